"""What a descriptor can be: a point, a subspace that contains it, words of a codebook, or the points of a map it shows.

`Descriptors` is a closed union. Code that handles descriptors matches on it and covers every case. `Flats` are those
that have distances by themselves: a point is a flat of dimension 0.
"""

import re
from dataclasses import dataclass, field
from typing import Self

import numpy as np

from featveil.core.arrays import Float32, Integers, floats, integers
from featveil.core.errors import InputError

_ORTHONORMAL_TOLERANCE = 1e-4
_DIGEST = re.compile(r"[0-9a-f]{64}")
_MOST_WORDS = 2**31
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


@dataclass(frozen=True, eq=False, repr=False)
class WordSets:
    """Sets of words: `words` (n, k), each row rising, of the `codebook` with that digest and `codebook_size` words."""

    words: Integers
    codebook: str
    codebook_size: int

    def __post_init__(self) -> None:
        if not isinstance(self.codebook, str) or not _DIGEST.fullmatch(self.codebook):
            raise InputError("a codebook is named by its digest: 64 lower-case hexadecimal digits")
        if type(self.codebook_size) is not int or not 1 <= self.codebook_size <= _MOST_WORDS:
            raise InputError(f"a codebook has 1 to {_MOST_WORDS} words")
        object.__setattr__(self, "words", integers("word sets", self.words, (None, None)))
        if not 1 <= self.words.shape[1] <= self.codebook_size:
            raise InputError(f"a word set has 1 to {self.codebook_size} words, got {self.words.shape[1]}")
        if self.words.size and not 0 <= self.words.min() <= self.words.max() < self.codebook_size:
            raise InputError(f"a word index is outside the codebook: it must be 0 to {self.codebook_size - 1}")
        if (self.words[:, 1:] <= self.words[:, :-1]).any():
            raise InputError("the words of a set must be different and in rising order, so that order tells nothing")

    def __repr__(self) -> str:
        return f"WordSets(n={len(self)}, k={self.subset_size}, codebook={self.codebook[:12]})"

    def __len__(self) -> int:
        return len(self.words)

    @property
    def subset_size(self) -> int:
        """Words in each set, k."""
        return int(self.words.shape[1])

    def take(self, indices: Integers) -> Self:
        """The descriptors at `indices`, in that order."""
        return type(self)(self.words[indices], self.codebook, self.codebook_size)


@dataclass(frozen=True, eq=False, repr=False)
class MapPoints:
    """What each feature may show of a map: `points` (n, k) are numbers of its points, each row rising.

    A row with fewer than k points begins with -1.

    `model` is the digest of the map, which has `model_points` points, and `sketch` that of what they were looked up in.
    """

    points: Integers
    sketch: str
    model: str
    model_points: int

    def __post_init__(self) -> None:
        for digest in (self.sketch, self.model):
            if not isinstance(digest, str) or not _DIGEST.fullmatch(digest):
                raise InputError("a map and its sketch are named by digests: 64 lower-case hexadecimal digits")
        if type(self.model_points) is not int or not 1 <= self.model_points <= _MOST_WORDS:
            raise InputError(f"a map has 1 to {_MOST_WORDS} points")
        object.__setattr__(self, "points", integers("map points", self.points, (None, None)))
        if self.points.shape[1] == 0:
            raise InputError("a feature shows at least one point of the map")
        if self.points.size and not -1 <= self.points.min() <= self.points.max() < self.model_points:
            raise InputError(f"a point is outside the map: its number must be 0 to {self.model_points - 1}")
        if (self.points[:, -1] < 0).any():
            raise InputError("a feature shows at least one point of the map")
        if ((self.points[:, 1:] <= self.points[:, :-1]) & (self.points[:, 1:] >= 0)).any():
            raise InputError(
                "the points of a feature must be different and in rising order, so that order tells nothing"
            )

    def __repr__(self) -> str:
        return f"MapPoints(n={len(self)}, k={self.candidates}, sketch={self.sketch[:12]})"

    def __len__(self) -> int:
        return len(self.points)

    @property
    def candidates(self) -> int:
        """Points sent for each feature, k at most."""
        return int(self.points.shape[1])

    def take(self, indices: Integers) -> Self:
        """The descriptors at `indices`, in that order."""
        return type(self)(self.points[indices], self.sketch, self.model, self.model_points)


Flats = Points | Subspaces
Descriptors = Points | Subspaces | WordSets | MapPoints


def as_flats(descriptors: Descriptors) -> Flats:
    """`descriptors`, if they have distances by themselves; raises InputError if not."""
    if isinstance(descriptors, WordSets):
        raise InputError("word sets have no distances by themselves: match them with their codebook")
    if isinstance(descriptors, MapPoints):
        raise InputError("points of a map have no distances by themselves: localize them in their map")
    if not isinstance(descriptors, Points | Subspaces):
        name = type(descriptors).__name__
        raise InputError(f"expected Points or Subspaces (as in features.descriptors), got {name}")
    return descriptors


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
