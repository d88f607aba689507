"""Lattice attack: SIFT descriptors are whole numbers, and a subspace holds few vectors of whole numbers.

Ours. OpenCV's descriptors are integer vectors of norm near 512, scaled to norm 1 before they are lifted, so the linear
span of the subspace holds them unscaled, and lattice reduction (integers.py) finds them.
Knows:      nothing but the subspace; the lifting database, where known, tells which candidates are confounders.
Breaks:     plain SIFT under every lifting strategy; stored at half precision, nearly all up to m = 8, some at 16.
Fails:      on RootSIFT and learned descriptors, which are not whole numbers at any scale.
"""

from dataclasses import dataclass
from functools import cache
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from featveil.attacks.knowledge import Guess, Knowledge
from featveil.attacks.lattice_parts.integers import Span, integer_vectors, require_flint, shortened, small_combinations
from featveil.attacks.lattice_parts.precision import check_precision, search
from featveil.attacks.subspaces import central, subspaces_of
from featveil.core import InputError, Points, PrivateFeatures, Subspaces
from featveil.core.arrays import Float64, Integers
from featveil.databases import Database, builtin
from featveil.distances import nearest

_LARGEST = 255
_SAME = 1e-3  # nearer than any two 8-bit descriptors of norm 512
_NOTHING = "no integer vectors: these are no whole-number descriptors, or they are stored too coarsely"


@dataclass(frozen=True)
class Lattice:
    """Take the integer vector of the span that lies on the subspace and looks most like a single descriptor.

    `precision` is the relative precision of the stored numbers; by default single, or half where that finds more.
    """

    precision: float | None = None

    name: ClassVar[str] = "lattice"
    summary: ClassVar[str] = "the integer vector in the span of the subspace (plain SIFT), by lattice reduction"
    breaks: ClassVar[tuple[type, ...]] = (Subspaces,)
    needs: ClassVar[tuple[str, ...]] = ()
    uses: ClassVar[tuple[str, ...]] = ("lifting_database",)
    alone: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_precision(self.precision)

    def run(self, seen: PrivateFeatures, knowledge: Knowledge, rng: np.random.Generator) -> Guess:
        """An integer vector for each subspace that has one, scaled to norm 1."""
        require_flint()
        subspaces = subspaces_of(seen)
        offsets, bases = subspaces.offset.astype(np.float64), subspaces.basis.astype(np.float64)

        def find(row: int, precision: float) -> Float64 | None:
            span = Span.of(offsets[row], bases[row], precision)
            return None if span is None else _candidates(span, _lengths(span, seen.kind), rng)

        vectors = search(len(seen), self.precision, find)
        values, answered = central(subspaces, seen.kind), np.zeros(len(seen), np.bool_)
        if all(candidates is None for candidates in vectors):
            return Guess(values.astype(np.float32), answered, note=_NOTHING)
        rows, chosen = _chosen(vectors, knowledge.lifting_database)
        values[rows], answered[rows] = chosen, True
        return Guess(values.astype(np.float32), answered)


def _candidates(span: Span, lengths: Float64, rng: np.random.Generator) -> Float64 | None:
    """Integer vectors (c, d) of the span that lie on the affine subspace when scaled to norm 1; None where none do."""
    for coordinates in (None, rng):  # the second time others are asked
        vectors = integer_vectors(span, lengths, coordinates)
        if len(vectors) == 0:
            continue
        # Reduced again, now without noise, nearly every vector is a descriptor or a confounder itself.
        vectors = _upright(shortened(vectors @ lengths) @ vectors, span)
        fits = _fitting(vectors, span)
        if not fits.all():
            vectors = _upright(small_combinations(len(vectors)) @ vectors, span)
            fits = _fitting(vectors, span)
        if fits.any():
            return np.unique(vectors[fits], axis=0)
    return None


def _upright(vectors: Float64, span: Span) -> Float64:
    """The same vectors, turned to the side of the origin where the subspace is."""
    return np.asarray(np.where(vectors @ span.height < 0, -1, 1)[:, None] * vectors)


def _fitting(vectors: Float64, span: Span) -> NDArray[np.bool_]:
    """Which vectors have entries as descriptors do and their norm for height: only those scale to norm 1 and on it."""
    norms, heights = np.linalg.norm(vectors, axis=1), vectors @ span.height
    tolerance = min(40 * span.usual_noise, 0.5)
    possible = (vectors.min(axis=1) >= 0) & (vectors.max(axis=1) <= _LARGEST) & (norms > 1)
    return np.asarray(possible & (np.abs(norms - heights) < tolerance))


def _lengths(span: Span, kind: str) -> Float64:
    """What integer_vectors seeks to make short (d, d+1): deviations from the mean descriptor, in whitened directions.

    Measured by these, descriptors are nearly orthogonal, so that reduction yields them and not their differences. The
    last column is the height, with so small a weight that differences, which have none, gain little by it.
    """
    mean, whitening = _usual(kind, span.rows.shape[1])
    deviations = whitening - np.outer(span.height, mean @ whitening)
    return np.hstack([deviations, np.sqrt(0.1 / len(span.rows)) * span.height[:, None]])


@cache
def _usual(kind: str, size: int) -> tuple[Float64, Float64]:
    """Mean (d,) and whitening (d, d) of the descriptors of the built-in database; without one, origin and identity."""
    try:
        values = builtin(kind).as_points.values.astype(np.float64)
    except InputError:
        return np.zeros(size), np.eye(size)
    if values.shape[1] != size:
        return np.zeros(size), np.eye(size)
    variances, directions = np.linalg.eigh(np.cov(values.T))
    usual = variances.mean()
    return values.mean(axis=0), (directions * np.sqrt(usual / (variances + 0.05 * usual))) @ directions.T


def _chosen(vectors: list[Float64 | None], database: Database | None) -> tuple[Integers, Float64]:
    """Which subspaces (k,) have a candidate left, and their most plausible one (k, d), of norm 1.

    Entries of the lifting database are confounders. Without it, looks decide: SIFT clips its largest entries to one
    value, so that single descriptors hold it several times (median 6; one in 7000 holds it once) and averages mostly
    once. If that is equal, single descriptors have more zeros (median 23, against 0).
    """
    there = [(row, one) for row, one in enumerate(vectors) if one is not None]
    owners, every = np.concatenate([np.full(len(one), row) for row, one in there]), np.vstack([one for _, one in there])
    unit = every / np.linalg.norm(every, axis=1, keepdims=True)
    if database is not None and database.size == every.shape[1]:
        fresh = nearest(Points(unit), database.as_points, 1).distances[:, 0] > _SAME
        owners, every, unit = owners[fresh], every[fresh], unit[fresh]
    clipped = (every == every.max(axis=1, keepdims=True)).sum(axis=1)
    order = np.lexsort((-(every == 0).sum(axis=1), -clipped, owners))
    rows, first = np.unique(owners[order], return_index=True)
    return rows, unit[order[first]]
