"""Bytes of a safetensors file -> metadata and arrays, for files that anyone may have written.

Stricter than the safetensors library: a small header, few types, no duplicate key, no byte outside a tensor.
"""

import json
import math
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from featveil.core import FormatError

MAX_HEADER_BYTES = 2**16

_DTYPES: dict[str, np.dtype[Any]] = {
    "F32": np.dtype("<f4"),
    "F16": np.dtype("<f2"),
    "I64": np.dtype("<i8"),
    "I32": np.dtype("<i4"),
    "U16": np.dtype("<u2"),
    "U8": np.dtype("u1"),
}
OF_FEATURES = ("F32", "I64", "I32")
_MAX_RANK = 3
# Bounds shapes such as (0, huge, huge), which take no byte of the file; all others are bounded by its size.
_MAX_EXTENT = 2**40


def read_tensors(data: bytes, types: tuple[str, ...] = OF_FEATURES) -> tuple[object, dict[str, NDArray[Any]]]:
    """The `__metadata__` entry as it came (None without one), and read-only arrays over the bytes of `data`.

    The arrays are of `types`, as safetensors names them. Raises FormatError unless the header is well-formed and the
    tensors fill the rest of `data` exactly.
    """
    length = int.from_bytes(data[:8], "little")
    if len(data) < 8 or length > len(data) - 8:
        raise FormatError("it is no safetensors file, or it was cut off")
    if length > MAX_HEADER_BYTES:
        raise FormatError(f"its header has {length} bytes, at most {MAX_HEADER_BYTES} are allowed")
    header = read_json_object(data[8 : 8 + length], "header")
    metadata = header.pop("__metadata__", None)
    regions = {name: _region(entry, types) for name, entry in header.items()}
    body = 8 + length
    _check_layout([region[2:] for region in regions.values()], len(data) - body)
    return metadata, {name: _array(data, body, *region) for name, region in regions.items()}


def read_json_object(text: bytes | str, name: str) -> dict[str, Any]:
    """Parse `text` as one JSON object without duplicate keys, NaN or infinity, or raise FormatError."""
    try:
        text = text.decode("utf-8") if isinstance(text, bytes) else text
        parsed = json.loads(text, object_pairs_hook=_unique, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise FormatError(f"its {name} is not valid JSON") from error
    if not isinstance(parsed, dict) or not text.startswith("{"):
        raise FormatError(f"its {name} is not a JSON object")
    return parsed


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    entries = dict(pairs)
    if len(entries) < len(pairs):
        raise ValueError("duplicate key")
    return entries


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(name)


def _region(entry: object, types: tuple[str, ...]) -> tuple[np.dtype[Any], list[int], int, int]:
    """Type, shape, begin and end of one tensor, consistent with each other."""
    if not isinstance(entry, dict) or entry.keys() != {"dtype", "shape", "data_offsets"}:
        raise FormatError("a tensor entry must have exactly dtype, shape and data_offsets")
    dtype, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    if not isinstance(dtype, str) or dtype not in types:
        raise FormatError(f"a tensor has another type than {' or '.join(types)}")
    if not _are_lengths(shape) or len(shape) > _MAX_RANK or not _are_lengths(offsets) or len(offsets) != 2:
        raise FormatError("a tensor has an impossible shape or place")
    begin, end = offsets
    if math.prod(max(length, 1) for length in shape) > _MAX_EXTENT:
        raise FormatError("a tensor has an impossible shape or place")
    if end - begin != math.prod(shape) * _DTYPES[dtype].itemsize:
        raise FormatError("a tensor's shape does not fit its place in the file")
    return _DTYPES[dtype], shape, begin, end


def _are_lengths(value: object) -> bool:
    # `type` and not `isinstance`: true and false are no lengths.
    return isinstance(value, list) and all(type(item) is int and item >= 0 for item in value)


def _check_layout(places: list[Any], size: int) -> None:
    """Raise FormatError unless the (begin, end) `places` cover 0 to `size` without hole or overlap."""
    position = 0
    for begin, end in sorted(places):
        if begin != position:
            raise FormatError("its tensors overlap or leave holes")
        position = end
    if position != size:
        raise FormatError(f"its tensors take {position} bytes but the file holds {size}")


def _array(data: bytes, body: int, dtype: np.dtype[Any], shape: list[int], begin: int, end: int) -> NDArray[Any]:
    return np.frombuffer(memoryview(data)[body + begin : body + end], dtype).reshape(shape)
