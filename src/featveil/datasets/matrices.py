"""Text files with the nine numbers of a (3, 3) matrix, row by row."""

from pathlib import Path

import numpy as np

from featveil.core import DatasetError
from featveil.core.arrays import Float64

_LARGEST_TEXT = 4096


def read_matrix(path: Path) -> Float64:
    """The matrix (3, 3) of a file; raises DatasetError unless it holds nine finite numbers."""
    try:
        with path.open("rb") as file:
            numbers = np.array([float(word) for word in file.read(_LARGEST_TEXT).split()])
    except (OSError, ValueError) as error:
        raise DatasetError(f"cannot read {path}: expected nine numbers as text") from error
    if numbers.shape != (9,) or not np.isfinite(numbers).all():
        raise DatasetError(f"{path} must hold nine finite numbers, got {numbers.size}")
    return numbers.reshape(3, 3)
