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

_TRIPLES = 500
_ROUNDS = 10
_INLIER = 3.0  # times the median error
_FLAT = 1e-6  # of the scene's size: centres closer than that to one line do not say how it is turned
_ROUNDING = 1e-12  # of the coordinates: cameras in one place differ by that much


def pose_errors(estimated: Pose, true: Pose) -> tuple[float, float]:
    """The angle between two cameras' rotations in degrees, and the distance of their centres in the poses' unit."""
    between = estimated.rotation @ true.rotation.T
    # The sine keeps small angles that the cosine of one minus nothing would lose.
    sine = np.linalg.norm([between[2, 1] - between[1, 2], between[0, 2] - between[2, 0], between[1, 0] - between[0, 1]])
    degrees = np.degrees(np.arctan2(sine, np.trace(between) - 1))
    return float(degrees), float(np.linalg.norm(estimated.centre - true.centre))


def align(estimated: Mapping[str, Pose], true: Mapping[str, Pose]) -> dict[str, Pose]:
    """The estimated poses in the frame of the true ones, moved by the similarity that fits the camera centres.

    Cameras that are far off do not spoil it: among similarities of three cameras each (all triples, or 500 drawn with
    a fixed seed) the one of least median error is taken, and then fitted by least squares (Umeyama, PAMI 1991) to all
    cameras within three times the median error, until these no longer change. More than half of the cameras must be
    about right. Raises InputError when fewer than three cameras are in both, or all are on one line.
    """
    names = sorted(estimated.keys() & true.keys())
    if len(names) < 3:
        raise InputError(f"an alignment needs three cameras with true poses, got {len(names)}")
    here = np.array([estimated[name].centre for name in names])
    there = np.array([true[name].centre for name in names])
    scale, rotation, translation = _robust(here, there)
    moved = {}
    for name, pose in estimated.items():
        turned = pose.rotation @ rotation.T
        moved[name] = Pose(turned, -turned @ (scale * rotation @ pose.centre + translation))
    return moved


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


def _robust(here: Float64, there: Float64) -> Similarity:
    best: Similarity | None = None
    least = np.inf
    for triple in _triples(len(here)):
        found = _fit(here[triple], there[triple])
        if found is not None and (error := float(np.median(_residuals(found, here, there)))) < least:
            best, least = found, error
    if best is None:
        raise InputError("an alignment needs cameras in three places that are not on one line")
    kept = np.zeros(len(here), np.bool_)
    for _ in range(_ROUNDS):
        errors = _residuals(best, here, there)
        inside = errors <= max(_INLIER * float(np.median(errors)), _FLAT * _size(there))
        refined = _fit(here[inside], there[inside])
        if refined is None or (inside == kept).all():
            break
        best, kept = refined, inside
    return best


def _triples(count: int) -> list[list[int]]:
    """Every choice of three of `count`, or a fixed draw of them where there are many."""
    if comb(count, 3) <= _TRIPLES:
        return [list(triple) for triple in combinations(range(count), 3)]
    rng = np.random.default_rng(0)
    return [rng.choice(count, 3, replace=False).tolist() for _ in range(_TRIPLES)]


def _fit(here: Float64, there: Float64) -> Similarity | None:
    """Scale, rotation (3, 3) and translation (3,) that take points (n, 3) nearest to others; None if undetermined."""
    mean_here, mean_there = here.mean(axis=0), there.mean(axis=0)
    from_here, from_there = here - mean_here, there - mean_there
    for points, centred in ((here, from_here), (there, from_there)):
        extents = np.linalg.svd(centred, compute_uv=False)
        if extents[1] <= max(_FLAT * extents[0], _ROUNDING * np.abs(points).max()):
            return None
    left, strengths, right = np.linalg.svd(from_there.T @ from_here)
    signs = np.array([1.0, 1.0, np.sign(np.linalg.det(left) * np.linalg.det(right))])
    rotation = (left * signs) @ right
    scale = float((strengths * signs).sum() / (from_here**2).sum())
    return scale, rotation, mean_there - scale * rotation @ mean_here


def _residuals(similarity: Similarity, here: Float64, there: Float64) -> Float64:
    scale, rotation, translation = similarity
    return np.asarray(np.linalg.norm(scale * here @ rotation.T + translation - there, axis=1))


def _size(points: Float64) -> float:
    return float(np.linalg.norm(np.ptp(points, axis=0)))
