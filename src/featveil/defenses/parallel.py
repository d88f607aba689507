"""Parallel lifting: every later descriptor of one person is hidden along the directions of the first (ours).

Hides:          where in its subspace each descriptor lies, however many of them are sent.
From:           whoever keeps a history of them. Subspaces in all directions meet near the person's descriptor, so that
                each of them takes some of the protection away (Dusmanu et al. 2021, section 5, suggest near-parallel
                ones); parallel ones never meet.
Does not hide:  that they are of one enrolment; what the first of them does not hide.
Known breaks:   those of the first. Directions that are only nearly parallel (`spread`) meet again: attack logins.
"""

import numpy as np

from featveil.core import InputError, Points, Randomness, Subspaces
from featveil.defenses.lifting import redraw, uniform
from featveil.distances.orthonormal import orthonormalise


def parallel(points: Points, like: Subspaces, rng: Randomness, spread: float = 0.0) -> Subspaces:
    """Lift each of `points` along the directions of the subspace in the same row of `like`.

    `spread` turns the directions by about that angle (in radians, for small ones); 0 is parallel. Offset and basis are
    redrawn, as in every release. Raises InputError where sizes do not fit.
    """
    if len(points) != len(like) or points.size != like.size:
        raise InputError(
            f"{len(points)} descriptors of size {points.size} cannot be lifted along {len(like)} subspaces of size"
            f" {like.size}"
        )
    if not 0 <= spread <= 1:
        raise InputError(f"spread must be between 0 and 1, got {spread}")
    directions = like.basis.astype(np.float64)
    orthonormalise(directions)
    if spread:
        turned = uniform(directions.shape, rng)
        directions += spread * turned / np.linalg.norm(turned, axis=2, keepdims=True)
        orthonormalise(directions)
    drawn = uniform((len(points), like.dimension + 1, points.size), rng)
    offset, basis = redraw(points.values.astype(np.float64), directions, drawn)
    return Subspaces(offset.astype(np.float32), basis.astype(np.float32))
