"""How far estimated camera poses are from the true ones, also when a map has its own unit and axes."""

from collections.abc import Mapping, Sequence
from itertools import combinations
from math import comb

import numpy as np

from featveil.core import InputError, Pose
from featveil.core.arrays import Float64

# (metres, degrees): the long-term localization benchmark's, and tighter ones that tell methods apart on easy scenes.
POSE_THRESHOLDS = ((0.25, 2.0), (0.5, 5.0), (5.0, 10.0))
TIGHT_POSE_THRESHOLDS = ((0.01, 0.1), (0.02, 0.2), (0.05, 0.5))

Similarity = tuple[float, Float64, Float64]  # scale, rotation (3, 3), translation (3,)

_HYPOTHESES = 500
_ROUNDS = 10
_INLIER = 3.0  # times the median error
_EXACT = 1e-6  # of the scene's size, or of a turn: errors below are rounding
_ROUNDING = 1e-12  # of the coordinates: cameras in one place differ by that much


def pose_errors(estimated: Pose, true: Pose) -> tuple[float, float]:
    """The angle between two cameras' rotations in degrees, and the distance of their centres in the poses' unit."""
    between = estimated.rotation @ true.rotation.T
    # The sine keeps small angles that the cosine of one minus nothing would lose.
    sine = np.linalg.norm([between[2, 1] - between[1, 2], between[0, 2] - between[2, 0], between[1, 0] - between[0, 1]])
    degrees = np.degrees(np.arctan2(sine, np.trace(between) - 1))
    return float(degrees), float(np.linalg.norm(estimated.centre - true.centre))


def align(estimated: Mapping[str, Pose], true: Mapping[str, Pose]) -> dict[str, Pose]:
    """The estimated poses in the frame of the true ones; raises like `find_similarity`."""
    scale, rotation, translation = find_similarity(estimated, true)
    moved = {}
    for name, pose in estimated.items():
        turned = pose.rotation @ rotation.T
        moved[name] = Pose(turned, -turned @ (scale * rotation @ pose.centre + translation))
    return moved


def find_similarity(estimated: Mapping[str, Pose], true: Mapping[str, Pose]) -> Similarity:
    """What takes the estimated cameras to the true ones.

    It is turned as most cameras are, each of which tells a whole rotation; their centres alone would leave it nearly
    open about the line that cameras often stand on. Scale and shift fit the centres. More than half of the cameras
    must be about right; the others do not spoil it. Raises InputError when fewer than three cameras are in both, or
    all are in one place.
    """
    names = sorted(estimated.keys() & true.keys())
    if len(names) < 3:
        raise InputError(f"an alignment needs three cameras with true poses, got {len(names)}")
    rotation = _mean_rotation(np.array([true[name].rotation.T @ estimated[name].rotation for name in names]))
    here = np.array([rotation @ estimated[name].centre for name in names])
    there = np.array([true[name].centre for name in names])
    scale, translation = _scale_and_shift(here, there)
    return scale, rotation, translation


def move_points(points: Float64, similarity: Similarity) -> Float64:
    """Points (n, 3) moved by a similarity."""
    scale, rotation, translation = similarity
    return np.asarray(scale * points @ rotation.T + translation)


def shares_within(
    errors: Sequence[tuple[float, float]], thresholds: Sequence[tuple[float, float]], total: int
) -> tuple[float, ...]:
    """For each threshold (distance, degrees) the share of `total` cameras whose error is within both.

    `errors` are (degrees, distance) as `pose_errors` gives them; cameras that have none count as failures.
    Raises InputError when `total` is not at least one and the number of errors.
    """
    if total < max(1, len(errors)):
        raise InputError(f"total must be at least the {len(errors)} errors and one, got {total}")
    return tuple(
        sum(degrees <= angle and distance <= far for degrees, distance in errors) / total for far, angle in thresholds
    )


def _mean_rotation(rotations: Float64) -> Float64:
    """The mean of those of `rotations` (n, 3, 3) that agree with the one that most agree with."""
    # The squared distance of two rotations as matrices is 6 - 2 trace.
    products = np.einsum("iab,jab->ij", rotations, rotations)
    mean = rotations[int(np.argmax(np.median(products, axis=1)))]
    kept = np.zeros(len(rotations), np.bool_)
    for _ in range(_ROUNDS):
        errors = np.linalg.norm(rotations - mean, axis=(1, 2))
        inside = errors <= max(_INLIER * float(np.median(errors)), _EXACT)
        if (inside == kept).all():
            break
        left, _, right = np.linalg.svd(rotations[inside].sum(axis=0))
        mean, kept = (left * [1.0, 1.0, np.linalg.det(left @ right)]) @ right, inside
    return np.asarray(mean)


def _scale_and_shift(here: Float64, there: Float64) -> tuple[float, Float64]:
    """The scale and shift (3,) that take most of the points (n, 3) nearest to others: best of pairs, then refined."""
    best: tuple[float, Float64] | None = None
    least = np.inf
    for pair in _pairs(len(here)):
        fitted = _fit(here[pair], there[pair])
        if fitted is not None and (error := float(np.median(_residuals(fitted, here, there)))) < least:
            best, least = fitted, error
    if best is None:
        raise InputError("an alignment needs cameras in different places")
    kept = np.zeros(len(here), np.bool_)
    for _ in range(_ROUNDS):
        errors = _residuals(best, here, there)
        inside = errors <= max(_INLIER * float(np.median(errors)), _EXACT * _size(there))
        refined = _fit(here[inside], there[inside])
        if refined is None or (inside == kept).all():
            break
        best, kept = refined, inside
    return best


def _pairs(count: int) -> list[list[int]]:
    """Every choice of two of `count`, or a fixed draw of them where there are many."""
    if comb(count, 2) <= _HYPOTHESES:
        return [list(pair) for pair in combinations(range(count), 2)]
    rng = np.random.default_rng(0)
    return [rng.choice(count, 2, replace=False).tolist() for _ in range(_HYPOTHESES)]


def _fit(here: Float64, there: Float64) -> tuple[float, Float64] | None:
    """Scale and shift (3,) that take points (n, 3) nearest to others; None if they are in one place or turned away."""
    from_here, from_there = here - here.mean(axis=0), there - there.mean(axis=0)
    for points, centred in ((here, from_here), (there, from_there)):
        if np.abs(centred).max() <= _ROUNDING * np.abs(points).max():
            return None
    scale = float((from_here * from_there).sum() / (from_here**2).sum())
    return (scale, there.mean(axis=0) - scale * here.mean(axis=0)) if scale > 0 else None


def _residuals(similarity: tuple[float, Float64], here: Float64, there: Float64) -> Float64:
    return np.asarray(np.linalg.norm(similarity[0] * here + similarity[1] - there, axis=1))


def _size(points: Float64) -> float:
    return float(np.linalg.norm(np.ptp(points, axis=0)))
