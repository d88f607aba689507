"""What a descriptor can be: a point, or an affine subspace that contains it.

`Descriptors` is a closed union. Code that handles descriptors matches on it and covers every case.
"""

from dataclasses import dataclass, field
from typing import Self

import numpy as np

from featveil.core.arrays import Float32, Integers, floats
from featveil.core.errors import InputError

_ORTHONORMAL_TOLERANCE = 1e-4
_LARGEST = 1e12  # squares and sums of such values still fit float32


@dataclass(frozen=True, eq=False, repr=False)
class Points:
    """Descriptors as plain vectors: raw, noised or concealed. `values` is (n, d) float32."""

    values: Float32

    def __post_init__(self) -> None:
        object.__setattr__(self, "values", floats("descriptors", self.values, (None, None)))
        if self.values.shape[1] == 0:
            raise InputError("descriptors must have at least one component, got size 0")
        _check_magnitude(self.values)

    def __repr__(self) -> str:  # no values: descriptors must not end up in a log
        return f"Points(n={len(self)}, d={self.size})"

    def __len__(self) -> int:
        return len(self.values)

    @property
    def size(self) -> int:
        """Descriptor size d."""
        return int(self.values.shape[1])

    @property
    def dimension(self) -> int:
        """A point is a subspace of dimension 0."""
        return 0

    def take(self, indices: Integers) -> Self:
        """The descriptors at `indices`, in that order."""
        return type(self)(self.values[indices])


@dataclass(frozen=True, eq=False, repr=False)
class Subspaces:
    """Affine subspaces offset + span(basis): `offset` (n, d) and `basis` (n, m, d), orthonormal rows.

    `looseness` is how far from orthonormal the rows are: the largest entry of |B Bt - I|.
    """

    offset: Float32
    basis: Float32
    looseness: float = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "offset", floats("subspace offsets", self.offset, (None, None)))
        _check_magnitude(self.offset)
        n, d = self.offset.shape
        object.__setattr__(self, "basis", floats("subspace bases", self.basis, (n, None, d)))
        m = self.basis.shape[1]
        if not 1 <= m < d:
            raise InputError(f"a subspace of {d}-d descriptors has dimension 1 to {d - 1}, got {m}")
        object.__setattr__(self, "looseness", _orthonormal_error(self.basis))
        # Written so that NaN, which huge values overflow to, is refused too.
        if not self.looseness <= _ORTHONORMAL_TOLERANCE:
            raise InputError("subspace bases must have orthonormal rows: orthonormalise them first")

    def __repr__(self) -> str:
        return f"Subspaces(n={len(self)}, m={self.dimension}, d={self.size})"

    def __len__(self) -> int:
        return len(self.offset)

    @property
    def size(self) -> int:
        """Descriptor size d."""
        return int(self.offset.shape[1])

    @property
    def dimension(self) -> int:
        """Subspace dimension m."""
        return int(self.basis.shape[1])

    def take(self, indices: Integers) -> Self:
        """The descriptors at `indices`, in that order."""
        return type(self)(self.offset[indices], self.basis[indices])


Descriptors = Points | Subspaces


def _check_magnitude(values: Float32) -> None:
    if values.size and max(values.max(), -values.min()) > _LARGEST:
        raise InputError(f"descriptor components must lie within {_LARGEST:.0e}: rescale them first")


def _orthonormal_error(basis: Float32) -> float:
    """Largest entry of |B Bt - I| over all bases (0 for none)."""
    if basis.size == 0:
        return 0.0
    with np.errstate(over="ignore", invalid="ignore"):
        gram = basis @ basis.transpose(0, 2, 1)
    return float(np.abs(gram - np.eye(basis.shape[1], dtype=np.float32)).max())
