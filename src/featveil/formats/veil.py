"""The `.veil` file: raw or private features of one image as safetensors. docs/file-format.md specifies it.

The reader trusts nothing: sizes are compared with the file before any of them is used.
"""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy
from numpy.typing import NDArray

from featveil.core import (
    Descriptors,
    Features,
    FormatError,
    Guarantee,
    InputError,
    Keypoints,
    MapPoints,
    Points,
    PrivacyError,
    PrivateFeatures,
    Spec,
    Subspaces,
    WordSets,
)
from featveil.core.files import replacing
from featveil.formats.tensors import MAX_HEADER_BYTES, read_json_object, read_tensors

VERSION = 2  # of files with points of a map; all others are still of version 1, which older readers know
MAX_BYTES = 2**30
MAX_DESCRIPTOR_SIZE = 2**16

_KEY = "featveil"
_HDF5 = b"\x89HDF\r\n"
_FIELDS = {
    "raw": {"version", "content", "kind", "image_size", "representation"},
    "private": {"version", "content", "kind", "image_size", "representation", "defense", "guarantee"},
}
_TENSORS = {
    "points": {"points.values"},
    "subspaces": {"subspaces.offset", "subspaces.basis"},
    "words": {"words.indices"},
    "map-points": {"map.points"},
}
_EXTRA = {"words": {"codebook"}, "map-points": {"map"}}  # metadata by representation
_WHOLE = {"labels": "i8", "words.indices": "i4", "map.points": "i4"}  # type of the tensors that are not F32
_GEOMETRY = ("scale", "orientation", "response")
_KEYPOINTS = {"keypoints.xy", *(f"keypoints.{name}" for name in _GEOMETRY)}
_LARGEST_WHOLE = 2**63
_LONGEST_KEY = 64

Tensors = dict[str, NDArray[Any]]


def save(features: Features | PrivateFeatures, path: str | Path) -> None:
    """Write `features` to `path`, all of it or nothing; equal features give equal bytes.

    Raises PrivacyError when the defense names a seed and InputError when the file cannot be written.
    """
    content = encode(features)
    with replacing(path) as temporary:
        temporary.write_bytes(content)


def load(path: str | Path) -> Features | PrivateFeatures:
    """Read a `.veil` file. Raises InputError when there is none, FormatError when it is not as specified."""
    path = Path(path)
    if not path.is_file():
        raise InputError(f"{path} is a folder: name a file" if path.is_dir() else f"{path} does not exist")
    try:
        size = path.stat().st_size
        if size > MAX_BYTES:
            raise FormatError(f"{path} is not a usable .veil file: it has more than {MAX_BYTES} bytes")
        with path.open("rb") as file:
            content = file.read(size)
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}") from error
    if content.startswith(_HDF5):
        raise InputError(
            f"{path} is an HDF5 file, as hloc writes them: featveil.formats.hloc.read takes one image of it"
        )
    try:
        return decode(content)
    except FormatError as error:
        raise FormatError(f"{path} is not a usable .veil file: {error}") from error


def encode(features: Features | PrivateFeatures) -> bytes:
    """The content of a `.veil` file. Raises like `save`."""
    about: dict[str, Any] = {
        "version": 1,
        "content": "raw",
        "kind": features.kind,
        "image_size": None if features.image_size is None else [int(side) for side in features.image_size],
        "representation": _representation(features.descriptors),
    }
    tensors = _keypoint_tensors(features.keypoints) | _descriptor_tensors(features.descriptors)
    if isinstance(features, PrivateFeatures):
        _check_spec(features.defense)
        if features.guarantee.kind == "none":
            raise PrivacyError("these features hide nothing, so they are not written as private: save the raw Features")
        about |= {
            "content": "private",
            "defense": features.defense,
            "guarantee": _guarantee_fields(features.guarantee),
        }
        if isinstance(features.descriptors, WordSets):
            about["codebook"] = {"digest": features.descriptors.codebook, "size": features.descriptors.codebook_size}
        if isinstance(features.descriptors, MapPoints):
            sent = features.descriptors
            about["map"] = {"sketch": sent.sketch, "model": sent.model, "points": sent.model_points}
        if features.guarantee.tau is not None or isinstance(features.descriptors, MapPoints):
            about["version"] = VERSION
    elif features.labels is not None:
        tensors["labels"] = features.labels
    described = json.dumps(about, sort_keys=True, separators=(",", ":"), allow_nan=False)
    # One metadata key only: safetensors writes several in random order.
    content = safetensors.numpy.save(tensors, metadata={_KEY: described})
    if int.from_bytes(content[:8], "little") > MAX_HEADER_BYTES or len(content) > MAX_BYTES:
        raise InputError(f"these features do not fit a .veil file of {MAX_BYTES} bytes: write fewer")
    return content


def decode(content: bytes) -> Features | PrivateFeatures:
    """The features in the bytes of a `.veil` file. Raises FormatError when they are not as specified."""
    if len(content) > MAX_BYTES:
        raise FormatError(f"it has more than {MAX_BYTES} bytes")
    metadata, tensors = read_tensors(content)
    about = _read_about(metadata)
    _check_names(about, tensors)
    try:
        # Hostile values may overflow in the checks of the value types; those look at the outcome.
        with np.errstate(all="ignore"):
            return _build(about, tensors)
    except (InputError, PrivacyError) as error:
        raise FormatError(str(error)) from error


def _build(about: dict[str, Any], tensors: Tensors) -> Features | PrivateFeatures:
    kind, size = about["kind"], about["image_size"]
    keypoints = _read_keypoints(tensors)
    descriptors = _read_descriptors(about, tensors)
    image_size = None if size is None else (size[0], size[1])
    if about["content"] == "raw" and isinstance(descriptors, Points):
        return Features(descriptors, kind, keypoints, image_size, tensors.get("labels"))
    _check_spec(about["defense"])
    guarantee = _read_guarantee(about["guarantee"], about["version"])
    return PrivateFeatures(descriptors, kind, about["defense"], guarantee, keypoints, image_size)


def _read_about(metadata: object) -> dict[str, Any]:
    """The fields of the `featveil` metadata entry, each of the right type."""
    if not isinstance(metadata, dict) or metadata.keys() != {_KEY} or not isinstance(metadata[_KEY], str):
        raise FormatError(f"its metadata must hold one text named {_KEY}")
    about = read_json_object(metadata[_KEY], "metadata")
    version = about.get("version")
    if type(version) is not int or version < 1 or not _is_plain(version):
        raise FormatError("it has no format version")
    if version > VERSION:
        raise FormatError(f"it was written by a newer featveil (format {version}): upgrade featveil")
    content, representation, size = (about.get(name) for name in ("content", "representation", "image_size"))
    if not isinstance(representation, str) or representation not in _TENSORS:
        raise FormatError(f"its representation is none of {', '.join(_TENSORS)}")
    extra = _EXTRA.get(representation, set())
    if extra == {"map"} and version < VERSION:
        raise FormatError("points of a map came with format 2: its version is wrong")
    if not isinstance(content, str) or about.keys() != _FIELDS.get(content, set()) | extra:
        raise FormatError("its metadata does not have the fields of raw or private features")
    if content == "raw" and representation != "points":
        raise FormatError("raw features must be points")
    if size is not None and not (isinstance(size, list) and [type(side) for side in size] == [int, int]):
        raise FormatError("its image size is not a pair of whole numbers")
    if size is not None and not all(map(_is_plain, size)):
        raise FormatError("its image size is impossible")
    return about


def _check_names(about: dict[str, Any], tensors: Tensors) -> None:
    """Raise FormatError unless exactly the specified tensors are there, each of its type."""
    needed = _TENSORS[about["representation"]]
    optional = _KEYPOINTS | ({"labels"} if about["content"] == "raw" else set())
    if tensors.keys() & _KEYPOINTS:
        needed = needed | {"keypoints.xy"}
    if missing := needed - tensors.keys():
        raise FormatError(f"tensor {min(missing)} is missing")
    if tensors.keys() - needed - optional:
        raise FormatError("it holds a tensor that this content may not have")
    if any(array.dtype != np.dtype(_WHOLE.get(name, "f4")) for name, array in tensors.items()):
        raise FormatError("labels must be I64, word indices and map points I32 and all other tensors F32")


def _keypoint_tensors(keypoints: Keypoints | None) -> Tensors:
    if keypoints is None:
        return {}
    arrays = {f"keypoints.{name}": getattr(keypoints, name) for name in ("xy", *_GEOMETRY)}
    return {name: array for name, array in arrays.items() if array is not None}


def _read_keypoints(tensors: Tensors) -> Keypoints | None:
    if "keypoints.xy" not in tensors:
        return None
    return Keypoints(tensors["keypoints.xy"], *(tensors.get(f"keypoints.{name}") for name in _GEOMETRY))


def _representation(descriptors: Descriptors) -> str:
    match descriptors:
        case Points():
            return "points"
        case Subspaces():
            return "subspaces"
        case WordSets():
            return "words"
        case MapPoints():
            return "map-points"


def _descriptor_tensors(descriptors: Descriptors) -> Tensors:
    match descriptors:
        case Points(values):
            tensors: Tensors = {"points.values": values}
        case Subspaces(offset, basis):
            tensors = {"subspaces.offset": offset, "subspaces.basis": basis}
        case WordSets(words):
            tensors = {"words.indices": words.astype(np.int32)}
        case MapPoints(points):
            tensors = {"map.points": points.astype(np.int32)}
    largest = max(length for tensor in tensors.values() for length in tensor.shape[1:])
    if largest > MAX_DESCRIPTOR_SIZE:
        raise InputError(f"descriptors of size {largest} are larger than {MAX_DESCRIPTOR_SIZE}")
    return tensors


def _read_descriptors(about: dict[str, Any], tensors: Tensors) -> Descriptors:
    representation = about["representation"]
    if any(max(tensors[name].shape[1:], default=0) > MAX_DESCRIPTOR_SIZE for name in _TENSORS[representation]):
        raise FormatError(f"its descriptors are larger than {MAX_DESCRIPTOR_SIZE}")
    match representation:
        case "points":
            return Points(tensors["points.values"])
        case "subspaces":
            return Subspaces(tensors["subspaces.offset"], tensors["subspaces.basis"])
        case "map-points":
            shown = about["map"]
            if not isinstance(shown, dict) or shown.keys() != {"sketch", "model", "points"}:
                raise FormatError("its map must have exactly sketch, model and points")
            return MapPoints(tensors["map.points"], shown["sketch"], shown["model"], shown["points"])
    codebook = about["codebook"]
    if not isinstance(codebook, dict) or codebook.keys() != {"digest", "size"}:
        raise FormatError("its codebook must have exactly digest and size")
    return WordSets(tensors["words.indices"], codebook["digest"], codebook["size"])


def _check_spec(spec: object) -> None:
    """Raise unless `spec` is a flat table of texts, finite numbers, booleans and None, without a seed."""
    if not isinstance(spec, dict):
        raise InputError("a defense is described by a table of names and values")
    for key, value in spec.items():
        if not isinstance(key, str) or not key.isprintable() or len(key) > _LONGEST_KEY:
            raise InputError("the names in a defense's description must be short printable texts")
        if "seed" in key.lower() or key.lower() in ("rng", "random_state"):
            raise PrivacyError("a defense's description holds a seed, with which its draws could be repeated")
        if not _is_plain(value):
            raise InputError(f"a defense's {key} must be a printable text, a finite number, a boolean or None")


def _is_plain(value: object) -> bool:
    match value:
        case None | bool():
            return True
        case int():
            return abs(value) < _LARGEST_WHOLE
        case float():
            return math.isfinite(value)
        case str():
            # A terminal would obey control characters when the description is shown.
            return value.isprintable()
        case _:
            return False


def _guarantee_fields(guarantee: Guarantee) -> Spec:
    if guarantee.epsilon is not None and not math.isfinite(guarantee.epsilon):
        raise InputError("an infinite epsilon guarantees nothing: state the guarantee as 'none'")
    fields: Spec = {"kind": guarantee.kind, "epsilon": guarantee.epsilon, "unit": guarantee.unit}
    return fields if guarantee.tau is None else fields | {"tau": guarantee.tau}


def _read_guarantee(fields: object, version: int) -> Guarantee:
    names = {"kind", "epsilon", "unit"}
    if isinstance(fields, dict) and version >= VERSION and fields.get("kind") == "map-known":
        names.add("tau")
    if not isinstance(fields, dict) or fields.keys() != names:
        raise FormatError("its guarantee must have exactly kind, epsilon and unit, and tau where it is map-known")
    for name in ("epsilon", "tau"):
        value = fields.get(name)
        if value is not None and (type(value) not in (int, float) or not _is_plain(value)):
            raise FormatError(f"its {name} is not a finite number")
    epsilon, tau = (None if fields.get(name) is None else float(fields[name]) for name in ("epsilon", "tau"))
    return Guarantee(fields["kind"], epsilon, fields["unit"], tau)
