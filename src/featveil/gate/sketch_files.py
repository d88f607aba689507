"""Sketch <-> one `.sketch` file, a safetensors file; docs/sketch-format.md specifies it.

The reader trusts nothing: a sketch comes from a server, which may be hostile. Sizes are compared with the file before
any of them is used.
"""

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy
from numpy.typing import NDArray

from featveil.core import FormatError, InputError
from featveil.core.arrays import Integers
from featveil.core.files import replacing
from featveil.formats.tensors import MAX_HEADER_BYTES, read_json_object, read_tensors
from featveil.gate.map_sketch import (
    LARGEST_SIZE,
    MOST_ENTRIES,
    Calibration,
    Entries,
    Exact,
    Quantised,
    Signature,
    Sketch,
)

SUFFIX = ".sketch"
VERSION = 1
MAX_BYTES = 2**31

_KEY = "featveil.sketch"
_LARGEST_VERSION = 2**31  # of any featveil to come
_TYPES = ("U8", "U16", "I32", "F16")
_QUANTISED, _EXACT = {"entries.codes", "quantiser.centroids"}, {"entries.values"}
_TRACKS = {"points.steps", "points.counts", "entries.images"}
_FIELDS = {"version", "digest", "kind", "size", "model", "source", "calibration", "signature"}
_WHOLE: tuple[type[np.generic], ...] = (np.uint8, np.uint16, np.int32)

Tensors = dict[str, NDArray[Any]]


def save_sketch(sketch: Sketch, path: str | Path) -> None:
    """Write `sketch` to `path`, all of it or nothing; equal sketches give equal bytes.

    Raises InputError when the file cannot be written.
    """
    content = encode_sketch(sketch)
    with replacing(path) as temporary:
        temporary.write_bytes(content)


def load_sketch(path: str | Path, digest: str | None = None) -> Sketch:
    """Read a sketch. Raises InputError when there is none, or its digest is not the expected `digest`; FormatError."""
    if not isinstance(path, str | os.PathLike):
        raise InputError(f"a sketch is read from the path of its file, not from {type(path).__name__}")
    if not isinstance(digest, str | None):
        raise InputError(f"a digest is a text of 64 hexadecimal digits, not {type(digest).__name__}")
    path = Path(path)
    if not path.is_file():
        what = (
            "a folder: name one of its sketches, or merge them (featveil sketch merge)"
            if path.is_dir()
            else "not there: see featveil sketch build"
        )
        raise InputError(f"{path} is {what}")
    try:
        size = path.stat().st_size
        if size > MAX_BYTES:
            raise FormatError(f"{path} is not a usable sketch: it has more than {MAX_BYTES} bytes")
        with path.open("rb") as file:
            content = file.read(size)
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}") from error
    try:
        sketch = decode_sketch(content)
    except FormatError as error:
        raise FormatError(f"{path} is not a usable sketch: {error}") from error
    if digest is not None and sketch.digest != digest.lower():
        raise InputError(f"sketch {path} has digest {sketch.digest}, expected {digest:.64}")
    return sketch


def encode_sketch(sketch: Sketch) -> bytes:
    """The content of a `.sketch` file."""
    signature = sketch.signature
    about = {
        "version": VERSION,
        "digest": sketch.digest,
        **sketch.card(),
        "signature": None if signature is None else {"key": signature.key, "value": signature.value},
    }
    match sketch.entries:
        case Quantised(codes, centroids):
            tensors: Tensors = {"entries.codes": codes, "quantiser.centroids": centroids}
        case Exact(values):
            tensors = {"entries.values": values}
    known, counts = np.unique(sketch.points, return_counts=True)
    tensors["points.steps"] = _small(np.diff(known, prepend=0))
    tensors["points.counts"] = _small(counts)
    tensors["entries.images"] = _small(sketch.images)
    text = json.dumps(about, sort_keys=True, separators=(",", ":"), allow_nan=False)
    content = safetensors.numpy.save(tensors, metadata={_KEY: text})
    if int.from_bytes(content[:8], "little") > MAX_HEADER_BYTES or len(content) > MAX_BYTES:
        raise InputError(f"this sketch does not fit a file of {MAX_BYTES} bytes: make tiles (--tile-images)")
    return content


def decode_sketch(content: bytes) -> Sketch:
    """The sketch in the bytes of a file. Raises FormatError when they are not as specified."""
    sketch, stated = _decoded(content)
    if sketch.digest != stated:
        raise FormatError("its content is not what its digest says: it was damaged or altered")
    return sketch


def _decoded(content: bytes) -> tuple[Sketch, object]:
    """The sketch, and the digest that the file states: a hostile one fits."""
    if len(content) > MAX_BYTES:
        raise FormatError(f"it has more than {MAX_BYTES} bytes")
    metadata, tensors = read_tensors(content, _TYPES)
    about = _read_about(metadata)
    try:
        # Hostile values may overflow in the checks of the value types; those look at the outcome.
        with np.errstate(all="ignore"):
            entries = _read_entries(about, tensors)
            points, images = _read_tracks(tensors, len(entries))
            return Sketch(
                entries,
                points,
                images,
                about["kind"],
                **_read_model(about["model"]),
                source=about["source"],
                calibration=_read_calibration(about["calibration"]),
                signature=_read_signature(about["signature"]),
            ), about["digest"]
    except InputError as error:
        raise FormatError(str(error)) from error


def _read_about(metadata: object) -> dict[str, Any]:
    if not isinstance(metadata, dict) or metadata.keys() != {_KEY} or not isinstance(metadata[_KEY], str):
        raise FormatError(f"its metadata must hold one text named {_KEY}")
    about = read_json_object(metadata[_KEY], "metadata")
    version = about.get("version")
    if type(version) is not int or not 1 <= version < _LARGEST_VERSION:
        raise FormatError("it has no format version")
    if version > VERSION:
        raise FormatError(f"it was written by a newer featveil (sketch format {version}): upgrade featveil")
    if about.keys() != _FIELDS:
        raise FormatError("its metadata does not have the fields of a sketch")
    return about


def _read_entries(about: dict[str, Any], tensors: Tensors) -> Entries:
    size = about["size"]
    if type(size) is not int or not 1 <= size <= LARGEST_SIZE:
        raise FormatError(f"its descriptor size is not a whole number of 1 to {LARGEST_SIZE}")
    exact = "entries.values" in tensors
    if tensors.keys() != (_EXACT if exact else _QUANTISED) | _TRACKS:
        raise FormatError("it does not hold the tensors of a sketch")
    for name, array in tensors.items():
        half = name in ("entries.values", "quantiser.centroids")
        allowed = (np.float16,) if half else (np.uint8,) if name == "entries.codes" else _WHOLE
        if array.dtype.type not in allowed:
            raise FormatError(f"tensor {name} is of another type")
    if not exact:
        return Quantised(tensors["entries.codes"], tensors["quantiser.centroids"], size)
    entries = Exact(tensors["entries.values"])
    if entries.size != size:
        raise FormatError(f"it states descriptors of size {size} and holds {entries.size}")
    return entries


def _read_tracks(tensors: Tensors, count: int) -> tuple[Integers, Integers]:
    """Point and image of each entry."""
    steps, counts, images = (tensors[name] for name in ("points.steps", "points.counts", "entries.images"))
    if {steps.ndim, counts.ndim, images.ndim} != {1} or len(steps) != len(counts) or len(images) != count:
        raise FormatError("its points and images do not fit its entries")
    steps, counts = steps.astype(np.int64), counts.astype(np.int64)
    if len(steps) and (steps[0] < 0 or (steps[1:] < 1).any() or counts.min() < 1):
        raise FormatError("its points do not rise, or one has no entry")
    if int(counts.sum()) != count or count > MOST_ENTRIES:
        raise FormatError("its points and entries do not add up")
    return np.repeat(np.cumsum(steps), counts), images.astype(np.int64)


def _read_model(fields: object) -> dict[str, Any]:
    if not isinstance(fields, dict) or fields.keys() != {"digest", "points", "images"}:
        raise FormatError("its model must have exactly digest, points and images")
    return {"model": fields["digest"], "model_points": fields["points"], "model_images": fields["images"]}


def _read_calibration(fields: object) -> Calibration | None:
    if fields is None:
        return None
    names = {"tau", "target", "contrast", "background", "taus", "passes", "right", "foreign", "queries", "corpus"}
    if not isinstance(fields, dict) or fields.keys() != names:
        raise FormatError("its calibration does not have the fields of one")
    for name in ("queries", "corpus"):
        if type(fields[name]) is not int:
            raise FormatError("a calibration counts in whole numbers")
    foreign = None if fields["foreign"] is None else _numbers(fields["foreign"])
    taus, passes, right = (_numbers(fields[name]) for name in ("taus", "passes", "right"))
    tau, target = _numbers([fields["tau"], fields["target"]])
    contrast = None if fields["contrast"] is None else _numbers([fields["contrast"]])[0]
    counts = fields["queries"], fields["corpus"]
    return Calibration(tau, target, contrast, fields["background"], taus, passes, right, foreign, *counts)


def _read_signature(fields: object) -> Signature | None:
    if fields is None:
        return None
    if not isinstance(fields, dict) or fields.keys() != {"key", "value"}:
        raise FormatError("its signature must have exactly key and value")
    return Signature(fields["key"], fields["value"])


def _numbers(values: object) -> tuple[float, ...]:
    """A list of numbers; JSON that was read has no infinity, but whole numbers of any size."""
    if not isinstance(values, list) or any(type(value) not in (int, float) for value in values):
        raise FormatError("a calibration holds numbers")
    if any(abs(value) > 1e6 for value in values):
        raise FormatError("a calibration holds numbers of usual size")
    return tuple(float(value) for value in values)


def _small(values: Integers) -> NDArray[Any]:
    """The numbers in the smallest type that holds them."""
    largest = int(values.max())
    return values.astype(next(kind for kind in _WHOLE if largest <= np.iinfo(kind).max))  # type: ignore[type-var]
