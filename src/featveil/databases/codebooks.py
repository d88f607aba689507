"""A database as a codebook: its entries are words, and every descriptor has a nearest one."""

import numpy as np

from featveil.core import InputError, Points
from featveil.core.arrays import Float64, Integers
from featveil.databases.entries import Database, unit_rows
from featveil.distances import nearest


def nearest_words(points: Points, codebook: Database) -> tuple[Integers, Float64]:
    """The word nearest to each of `points` (n,), and its distance (n,) after both have norm 1.

    Exact: ties that float32 cannot tell apart are decided in float64, then by the lower index, so that both sides of a
    match find the same word. Raises InputError for another descriptor size or a descriptor of norm zero.
    """
    check_comparable(points, codebook)
    neighbours = nearest(Points(unit_rows(points.values)), codebook.as_points, 1)
    return neighbours.indices[:, 0], neighbours.distances[:, 0]


def check_comparable(points: Points, codebook: Database) -> None:
    """Raise InputError for descriptors of another size than the words, or of norm zero."""
    if points.size != codebook.size:
        raise InputError(f"words have size {codebook.size}, descriptors {points.size}: use a codebook of their kind")
    if not points.values.any(axis=1).all():
        raise InputError("a descriptor has zero norm: remove it first")


def check_codebook(codebook: object) -> None:
    """Raise InputError unless `codebook` is a Database."""
    if not isinstance(codebook, Database):
        raise InputError(f"codebook must be a Database (see load_database), got {type(codebook).__name__}")


def word_points(words: Integers, codebook: Database) -> Points:
    """The given words (n,) as points of norm 1."""
    return Points(codebook.unit(np.asarray(words)))
