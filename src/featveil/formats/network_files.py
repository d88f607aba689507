"""ConcealingNetwork <-> one safetensors file: four tensors of weights, and what they are in the metadata.

hidden.weight (h, d), hidden.bias (h,), output.weight (d, h), output.bias (d,)     float32, or float16
format = "featveil-concealer-1", kind, lambda, card (JSON text); digest, which is verified where it is there
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy

from featveil.core.errors import FormatError, InputError
from featveil.core.files import replacing
from featveil.core.networks import MOST_WEIGHTS, ConcealingNetwork
from featveil.formats.tensors import MAX_HEADER_BYTES, read_json_object, read_tensors

FORMAT = "featveil-concealer-1"

_TENSORS = {
    "hidden.weight": "hidden_weight",
    "hidden.bias": "hidden_bias",
    "output.weight": "output_weight",
    "output.bias": "output_bias",
}
_METADATA = {"format", "kind", "lambda", "card"}
_MAX_BYTES = 8 + MAX_HEADER_BYTES + 3 * 4 * MOST_WEIGHTS  # two matrices and, for few weights a row, as much of biases
_ROOM = 4096  # of the header, for everything but the card


def save_network(
    path: str | Path,
    hidden_weight: object,
    hidden_bias: object,
    output_weight: object,
    output_bias: object,
    kind: str,
    lambda_: float,
    card: dict[str, Any],
) -> ConcealingNetwork:
    """Write the network of these weights to `path` (.safetensors), all of it or nothing, and return it.

    Equal networks give equal files. Raises InputError when the weights are no concealing network, the card is too long
    or no JSON, the folder is missing or the disk is full.
    """
    given = (hidden_weight, hidden_bias, output_weight, output_bias)
    weights: dict[str, Any] = dict(zip(_TENSORS.values(), given, strict=True))
    network = ConcealingNetwork(**weights, kind=kind, lambda_=lambda_, card=card)
    try:
        text = json.dumps(card, sort_keys=True, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise InputError("the card of a network is texts, finite numbers, lists and tables by name") from error
    if len(json.dumps(text)) > MAX_HEADER_BYTES - _ROOM:
        raise InputError(f"the card of a network takes {len(text)} characters: {MAX_HEADER_BYTES - _ROOM} at most fit")
    metadata = {"format": FORMAT, "kind": kind, "lambda": repr(network.lambda_), "card": text, "digest": network.digest}
    tensors = {name: getattr(network, field) for name, field in _TENSORS.items()}
    content = _sorted_header(safetensors.numpy.save(tensors, metadata))
    with replacing(path) as temporary:
        temporary.write_bytes(content)
    return network


def load_network(path: str | Path, digest: str | None = None) -> ConcealingNetwork:
    """Read and verify a network.

    Raises FormatError when the file is damaged, altered or of another architecture, and InputError when it is missing
    or does not have the expected `digest`.
    """
    path = Path(path)
    if not path.is_file():
        raise InputError(f"{path} is a folder: name a file" if path.is_dir() else f"there is no network file {path}")
    try:
        if path.stat().st_size > _MAX_BYTES:
            raise FormatError(f"{path} is not a usable concealing network: it has more than {_MAX_BYTES} bytes")
        content = path.read_bytes()
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}") from error
    try:
        network = _decoded(content)
    except (FormatError, InputError) as error:
        raise FormatError(f"{path} is not a usable concealing network: {error}") from error
    if digest is not None and network.digest != digest.lower():
        raise InputError(f"network {path} has digest {network.digest}, expected {digest}")
    return network


def _decoded(content: bytes) -> ConcealingNetwork:
    metadata, tensors = read_tensors(content, ("F32", "F16"))
    if not isinstance(metadata, dict) or metadata.get("format") != FORMAT:
        raise FormatError(f"its metadata does not say format {FORMAT}")
    if metadata.keys() - {"digest"} != _METADATA or not all(isinstance(text, str) for text in metadata.values()):
        raise FormatError(f"its metadata must be texts called {', '.join(sorted(_METADATA))} and maybe digest")
    if tensors.keys() != _TENSORS.keys():
        raise FormatError(f"it is of another architecture: expected tensors {', '.join(_TENSORS)}")
    try:
        strength = float(metadata["lambda"])
    except ValueError as error:
        raise FormatError("its lambda is not a number") from error
    weights = {_TENSORS[name]: array for name, array in tensors.items()}
    card = read_json_object(metadata["card"], "card")
    with np.errstate(all="ignore"):  # hostile values may overflow in the checks, which look at the outcome
        network = ConcealingNetwork(**weights, kind=metadata["kind"], lambda_=strength, card=card)
    if metadata.get("digest", network.digest) != network.digest:
        raise FormatError("it is damaged or was altered: its weights do not have the digest it states")
    return network


def _sorted_header(content: bytes) -> bytes:
    """The same safetensors file with its header in a fixed order: the library writes metadata in a random one."""
    length = int.from_bytes(content[:8], "little")
    text = json.dumps(json.loads(content[8 : 8 + length]), sort_keys=True, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text + content[8 + length :]
