"""Checking arrays once, at the public border."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from featveil.core.errors import InputError

Float32 = NDArray[np.float32]
Float64 = NDArray[np.float64]
Floats = NDArray[np.float32] | NDArray[np.float64]
Integers = NDArray[np.int64]


def floats(name: str, value: object, shape: tuple[int | None, ...], dtype: Any = np.float32) -> Any:
    """Return `value` as a read-only, contiguous, finite float array of `shape` (None = any length).

    Raises InputError when it is not numeric, has another shape or holds NaN or infinity.
    """
    array = _numeric(name, value, shape)
    if array.dtype.kind not in "fiub":
        raise InputError(f"{name} must hold real numbers, got dtype {array.dtype}")
    with np.errstate(over="ignore", invalid="ignore"):  # a signalling NaN warns when it is converted
        array = np.array(array, dtype=dtype, order="C")
    if not np.isfinite(array).all():
        raise InputError(f"{name} holds NaN, infinite or too large values: remove those rows first")
    return _frozen(array)


def integers(name: str, value: object, shape: tuple[int | None, ...], dtype: Any = np.int64) -> Any:
    """Return `value` as a read-only integer array of `shape`; floats are refused, not rounded."""
    array = _numeric(name, value, shape)
    if array.dtype.kind not in "iu":
        raise InputError(f"{name} must hold whole numbers, got dtype {array.dtype}")
    if array.size and (array.min() < np.iinfo(dtype).min or array.max() > np.iinfo(dtype).max):
        raise InputError(f"{name} holds values outside the range of {np.dtype(dtype).name}")
    return _frozen(np.array(array, dtype=dtype, order="C"))


def _numeric(name: str, value: object, shape: tuple[int | None, ...]) -> NDArray[Any]:
    try:
        array = np.asarray(value)
    except ValueError as error:
        raise InputError(f"{name} is not a rectangular array") from error
    fits = array.ndim == len(shape) and all(want in (None, have) for want, have in zip(shape, array.shape, strict=True))
    if not fits:
        wanted = ", ".join("any" if length is None else str(length) for length in shape)
        raise InputError(f"{name} must have shape ({wanted}), got {array.shape}")
    return array


def _frozen(array: NDArray[Any]) -> NDArray[Any]:
    array.setflags(write=False)
    return array
