"""Matches with the images of a map -> where the camera stood: COLMAP's LO-RANSAC and refinement, intrinsics fixed.

A keypoint may have many candidates, as words do by design; each keypoint and each point of the map counts once.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.spatial import cKDTree

from featveil.core import Camera, InputError, Matches, Pose
from featveil.core.arrays import Float32, Float64, Integers
from featveil.geometry.colmap import pose_of, pycolmap, to_colmap
from featveil.geometry.models import View
from featveil.geometry.places import in_half_precision
from featveil.geometry.two_view import ransac_options

MOST_ITERATIONS = 10_000_000

_SAME_PLACE = 0.05  # pixels
_BELIEVED = 2  # times as many as by chance
_BY_CHANCE = 10_000  # iterations; the number grows slowly with more
_GLANCE = 100  # iterations that suffice where far more agree: the number grows threefold at most beyond these
_FAR_MORE = 8  # times as many as by chance
_MINIMAL = 4  # three points give up to four poses, one more tells which
_NEIGHBOURS, _WITNESS = 8, 1  # in the picture, and which of these says how near the points are: the second-best
_FIRST = 3  # one correspondence in so many is tried first
_FEWEST = 100  # that are tried first
_MOST_CANDIDATES = 16  # at a place, of keypoints of all orientations: the time that neighbours take grows with them


@dataclass(frozen=True)
class PoseSearch:
    """How a pose is sought: most `iterations` of LO-RANSAC, how far off an inlier may be, and the fewest inliers.

    Without known intrinsics the focal length is estimated along. A seed is for studies that can be repeated.
    """

    iterations: int = 10_000
    max_error: float = 12.0
    min_inliers: int = 12
    seed: int | None = None

    def __post_init__(self) -> None:
        if type(self.iterations) is not int or not 1 <= self.iterations <= MOST_ITERATIONS:
            raise InputError(f"iterations must be 1 to {MOST_ITERATIONS:,}, got {self.iterations}")
        if not self.max_error > 0 or not np.isfinite(self.max_error):
            raise InputError(f"the largest error of an inlier is in pixels and above 0, got {self.max_error}")
        if self.min_inliers < _MINIMAL:
            raise InputError(f"a pose needs at least {_MINIMAL} inliers, got {self.min_inliers}")


@dataclass(frozen=True, eq=False)
class Correspondences:
    """Places in the query and points of the map: `keypoints` (k,) at `xy` (k, 2) and `points` (k,) at `xyz` (k, 3)."""

    keypoints: Integers
    points: Integers
    xy: Float64
    xyz: Float64

    def __len__(self) -> int:
        return len(self.keypoints)

    def take(self, rows: Integers) -> "Correspondences":
        """Those at `rows`."""
        return Correspondences(self.keypoints[rows], self.points[rows], self.xy[rows], self.xyz[rows])


@dataclass(frozen=True, eq=False)
class Localized:
    """The pose of a query, or None and the `reason`; `inliers` of its `correspondences` agree.

    Each keypoint and each point of the map counts once.

    `by_chance` is how many would agree if points were dealt to other keypoints, where that was looked at.
    """

    pose: Pose | None
    inliers: int
    correspondences: int
    reason: str = ""
    by_chance: int | None = None


Estimate = Callable[[Correspondences, Camera, bool, PoseSearch], Localized]


def points_at(view: View, xy: Float32, name: str) -> Integers:
    """Which point of the map is seen at each of the positions `xy` (n, 2) of image `name`; -1 where none is.

    Features may have another order than the keypoints of the model, or be some of them. Raises InputError when one
    lies where the model has no keypoint.
    """
    if len(xy) == 0:
        return np.empty(0, np.int64)
    stored = next((places for places in (xy, in_half_precision(xy)) if _has_all(view, places)), None)
    if stored is None:
        raise InputError(
            f"the keypoints of image {name!r} are not those of the model: use the features that it was made of"
        )
    seen = np.flatnonzero(view.points >= 0)
    points = np.full(len(xy), -1, np.int64)
    if len(seen):
        # Several keypoints may share a place; any point that is seen there will do.
        distances, nearest = cKDTree(view.xy[seen]).query(stored)
        there = distances <= _SAME_PLACE
        points[there] = view.points[seen[nearest[there]]]
    return points


def own_points(view: View, xy: Float32, name: str) -> Integers:
    """Which point of the map each feature of image `name` shows, by its positions `xy` (n, 2); -1 for none.

    Keypoints of several orientations share a place and may show different points. Features in the order of the model's
    keypoints show what these do, or else what another one at their place does: a patch shows a point at any
    orientation. Features in another order show what is seen at their place. Raises like `points_at`.
    """
    there = points_at(view, xy, name)
    for places in (xy, in_half_precision(xy)):
        if len(places) == len(view.xy) and bool((np.abs(places - view.xy) <= _SAME_PLACE).all()):
            return np.where(view.points >= 0, view.points, there)
    return there


def _has_all(view: View, xy: Float32) -> bool:
    """Whether there is a keypoint at each of the positions."""
    return len(view.xy) > 0 and float(cKDTree(view.xy).query(xy)[0].max()) <= _SAME_PLACE


def correspond(xy: Float32, matches: Iterable[tuple[Matches, Integers]], points: Float64) -> Correspondences:
    """What keypoints `xy` (n, 2) of a query see, each pair once.

    `matches` are with an image of the map each, together with the points (-1 for none) that its features show;
    `points` (p, 3) are those of the map.
    """
    pairs = [np.empty((0, 2), np.int64)]
    for own, seen in matches:
        both = np.stack([own.indices[:, 0], seen[own.indices[:, 1]]], axis=1)
        pairs.append(both[both[:, 1] >= 0])
    keypoint, point = np.unique(np.concatenate(pairs), axis=0).T
    return Correspondences(keypoint, point, xy[keypoint].astype(np.float64), points[point])


def estimate_pose(
    matches: Correspondences, camera: Camera, known: bool, search: PoseSearch = PoseSearch()
) -> Localized:
    """The pose that most of the correspondences agree on; with too few of them none, and the reason.

    `known` intrinsics stay as they are, otherwise the focal length is found along.
    """
    return _estimate(matches, to_colmap(camera, known=known), known, search)


def estimate_supported(
    matches: Correspondences, camera: Camera, known: bool, search: PoseSearch = PoseSearch()
) -> Localized:
    """Like `estimate_pose`, but a search among the correspondences that neighbours support comes first.

    Where several points are named for a keypoint, most correspondences are wrong. The third that neighbours support
    best has few wrong ones, so that its pose takes little time. All that agree with it then make the pose.
    """
    first = supported_first(matches)
    if len(first) < len(matches):
        guess = to_colmap(camera, known=known)
        begun = _estimate(matches.take(first), guess, known, search)
        if begun.pose is not None:
            near = matches.take(np.flatnonzero(_errors(matches, begun.pose, guess) <= search.max_error))
            located = _estimate(near, guess, known, search)
            if located.pose is not None:
                return replace(located, correspondences=len(matches))
    return estimate_pose(matches, camera, known, search)


def supported_first(matches: Correspondences) -> Integers:
    """Rows of the third of `matches` whose points lie nearest to those of their neighbours in the picture.

    Neighbours in the picture show points that lie near each other; wrong points lie anywhere. Distances in the map are
    over those in the picture, which needs no scale of the map. Of few matches all rows.
    """
    places, place = np.unique(matches.xy, axis=0, return_inverse=True)
    place = place.ravel()
    counts = np.bincount(place, minlength=len(places))
    enough = max(len(matches) // _FIRST, _FEWEST)
    if len(matches) <= enough or len(places) <= _NEIGHBOURS or counts.max() > _MOST_CANDIDATES:
        return np.arange(len(matches))
    order = np.argsort(place, kind="stable")
    # The candidates of each place; where there are fewer than the most, points at infinity.
    xyz = np.full((len(places), int(counts.max()), 3), np.inf)
    owner = place[order]
    xyz[owner, np.arange(len(order)) - (np.cumsum(counts) - counts)[owner]] = matches.xyz[order]
    away, near = cKDTree(places).query(places, _NEIGHBOURS + 1)
    away, near = away[:, 1:], near[:, 1:]  # the nearest is the place itself
    ratios = np.empty((len(matches), _NEIGHBOURS))
    for column in range(_NEIGHBOURS):
        squared = ((xyz[near[place, column]] - matches.xyz[:, None]) ** 2).sum(axis=2).min(axis=1)
        ratios[:, column] = np.sqrt(squared) / np.maximum(away[place, column], 1.0)
    witness = np.partition(ratios, _WITNESS, axis=1)[:, _WITNESS]
    return np.sort(np.argsort(witness, kind="stable")[:enough])


def _errors(matches: Correspondences, pose: Pose, camera: Any) -> Float64:
    """How many pixels (k,) each point is off its place; infinity behind the camera. `camera` is pycolmap's."""
    seen = matches.xyz @ pose.rotation.T + pose.translation
    errors = np.full(len(matches), np.inf)
    ahead = np.flatnonzero(seen[:, 2] > 0)
    if len(ahead):
        errors[ahead] = np.linalg.norm(np.asarray(camera.img_from_cam(seen[ahead])) - matches.xy[ahead], axis=1)
    errors[np.isnan(errors)] = np.inf
    return errors


def _estimate(matches: Correspondences, camera: Any, known: bool, search: PoseSearch) -> Localized:
    """The same for a camera of pycolmap's, whose focal length it changes unless that is known."""
    if len(matches) < _MINIMAL:
        return Localized(
            None, 0, len(matches), f"{len(matches)} matches with points of the map, a pose needs {_MINIMAL}"
        )
    estimation = {
        "estimate_focal_length": not known,
        "ransac": ransac_options(search.iterations, search.max_error, 0.0, search.seed),
    }
    answer = pycolmap().estimate_and_refine_absolute_pose(
        matches.xy,
        matches.xyz,
        camera,
        estimation_options=estimation,
        refinement_options={"refine_focal_length": not known},
    )
    if answer is None:
        return Localized(
            None, 0, len(matches), f"no pose fits any of the {len(matches)} matches with points of the map"
        )
    agree = np.asarray(answer["inlier_mask"], np.bool_)
    inliers = min(len(np.unique(matches.keypoints[agree])), len(np.unique(matches.points[agree])))
    if inliers < search.min_inliers:
        reason = f"{inliers} of {len(matches)} matches agree, {search.min_inliers} are asked for"
        return Localized(None, inliers, len(matches), reason)
    return Localized(pose_of(answer["cam_from_world"]), inliers, len(matches))


def estimate_beyond_chance(
    matches: Correspondences,
    camera: Camera,
    known: bool,
    search: PoseSearch = PoseSearch(),
    estimate: Estimate = estimate_pose,
) -> Localized:
    """Like `estimate`, but without a pose if half as many would agree by chance: for several candidates."""
    located = estimate(matches, camera, known, search)
    if located.pose is None:
        return located
    deal = np.random.default_rng(0).permutation(len(matches))
    dealt = replace(matches, points=matches.points[deal], xyz=matches.xyz[deal])
    for iterations, believed in ((_GLANCE, _FAR_MORE), (_BY_CHANCE, _BELIEVED)):
        quick = replace(search, iterations=min(search.iterations, iterations))
        chance = estimate(dealt, camera, known, quick).inliers
        if located.inliers > believed * chance:
            break
    if located.inliers > _BELIEVED * chance:
        return replace(located, by_chance=chance)
    reason = f"{located.inliers} of {len(matches)} matches agree, and {chance} would by chance"
    return Localized(None, located.inliers, len(matches), reason, chance)
