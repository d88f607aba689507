"""Poses from made-up correspondences: right ones, too few, many candidates, and ones that agree by chance only."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from featveil.core import Camera, InputError, Matches, Pose
from featveil.core.arrays import Float32, Integers
from featveil.geometry.absolute_pose import (
    MOST_ITERATIONS,
    Correspondences,
    Localized,
    PoseSearch,
    correspond,
    estimate_beyond_chance,
    estimate_pose,
    estimate_supported,
    own_points,
    points_at,
    supported_first,
)
from featveil.geometry.map_images import guess_camera
from featveil.geometry.models import View
from featveil.metrics import pose_errors
from posed_scenes import project

pytest.importorskip("pycolmap", reason="COLMAP itself: pip install 'featveil[colmap]'")

CAMERA = Camera("PINHOLE", 640, 480, (500.0, 500.0, 320.0, 240.0))
TRUE = Pose(np.array([[0.0, -1, 0], [0, 0, -1], [1, 0, 0]]), np.array([0.1, -0.2, 4.0]))
STEADY = PoseSearch(seed=0)

Estimate = Callable[[Correspondences, Camera, bool, PoseSearch], Localized]


def seen(count: int, candidates: int = 1, seed: int = 0) -> Correspondences:
    """`count` keypoints at the exact place of their points; each has further `candidates` that are any points."""
    rng = np.random.default_rng(seed)
    points = rng.uniform(-1, 1, (count, 3))
    keypoint = np.repeat(np.arange(count), candidates)
    point = rng.integers(0, max(count, 1), len(keypoint))
    point[::candidates] = np.arange(count)
    return Correspondences(keypoint, point, project(points, CAMERA, TRUE)[keypoint], points[point])


def shuffled(given: Correspondences) -> Correspondences:
    """The same keypoints with the points of others."""
    deal = np.random.default_rng(1).permutation(len(given))
    return replace(given, points=given.points[deal], xyz=given.xyz[deal])


def some(given: Correspondences, places: Integers) -> Correspondences:
    return Correspondences(given.keypoints[places], given.points[places], given.xy[places], given.xyz[places])


def check(located: Localized, degrees: float = 1e-4, far: float = 1e-4) -> None:
    assert located.pose is not None, located.reason
    turned, moved = pose_errors(located.pose, TRUE)
    assert turned < degrees and moved < far
    assert located.reason == ""


@pytest.mark.parametrize("estimate", [estimate_pose, estimate_beyond_chance, estimate_supported])
@pytest.mark.parametrize("known", [True, False])
def test_exact_correspondences_give_the_exact_pose(estimate: Estimate, known: bool) -> None:
    located = estimate(seen(60), CAMERA, known, STEADY)
    check(located)
    assert (located.inliers, located.correspondences) == (60, 60)


def test_an_unknown_focal_length_is_found_along() -> None:
    guess = guess_camera((CAMERA.width, CAMERA.height))
    assert guess.parameters[0] > 1.5 * CAMERA.parameters[0]
    located = estimate_pose(seen(60), guess, False, STEADY)
    check(located, degrees=0.1, far=0.01)
    assert located.inliers == 60  # with the wrong one, refined at last, some are not found
    wrong = estimate_pose(seen(60), guess, True, STEADY)
    assert wrong.pose is None or pose_errors(wrong.pose, TRUE)[1] > 0.5


@pytest.mark.parametrize("estimate", [estimate_pose, estimate_beyond_chance, estimate_supported])
def test_right_ones_are_found_among_many_candidates(estimate: Estimate) -> None:
    """One of ten candidates is right. Some wrong ones lie within 12 pixels; a keypoint counts once all the same."""
    located = estimate(seen(150, candidates=10), CAMERA, True, STEADY)
    check(located, degrees=0.5, far=0.05)
    assert 140 <= located.inliers <= 150 and located.correspondences == 1500


def test_a_seed_gives_the_same_again() -> None:
    one, two = (estimate_pose(seen(80, candidates=8), CAMERA, True, STEADY) for _ in range(2))
    assert one.pose is not None and two.pose is not None
    assert (one.pose.rotation == two.pose.rotation).all() and (one.pose.translation == two.pose.translation).all()


@pytest.mark.parametrize("estimate", [estimate_pose, estimate_beyond_chance, estimate_supported])
@pytest.mark.parametrize("count", [0, 1, 3])
def test_too_few_to_try(estimate: Estimate, count: int) -> None:
    located = estimate(seen(count), CAMERA, True, STEADY)
    assert located.pose is None and located.inliers == 0 and located.correspondences == count
    assert located.reason == f"{count} matches with points of the map, a pose needs 4"


def test_too_few_that_agree() -> None:
    for count, enough in ((11, False), (12, True)):
        located = estimate_pose(seen(count), CAMERA, True, STEADY)
        assert (located.pose is not None) == enough and located.inliers == count
    assert estimate_pose(seen(11), CAMERA, True, STEADY).reason == "11 of 11 matches agree, 12 are asked for"
    check(estimate_pose(seen(11), CAMERA, True, replace(STEADY, min_inliers=11)))


def test_no_pose_fits_points_that_are_all_one() -> None:
    same = some(seen(30), np.zeros(30, np.int64))
    located = estimate_pose(same, CAMERA, True, STEADY)
    assert located.pose is None and located.inliers <= 1 and located.reason


def test_a_tighter_error_leaves_fewer_inliers() -> None:
    given = seen(100)
    noisy = replace(given, xy=given.xy + np.random.default_rng(3).normal(0, 3, given.xy.shape))
    tight, loose = (estimate_pose(noisy, CAMERA, True, replace(STEADY, max_error=far)) for far in (2.0, 12.0))
    assert tight.inliers < 60 and loose.inliers == 100


def test_a_collapsed_pose_does_not_count_a_keypoint_many_times() -> None:
    """A keypoint has 200 points as candidates: a far camera sees all of them there, and that is one inlier."""
    rng = np.random.default_rng(0)
    points = rng.uniform(-1, 1, (200, 3))
    crowd = Correspondences(np.zeros(200, np.int64), np.arange(200), np.full((200, 2), 300.0), points)
    located = estimate_pose(crowd, CAMERA, True, STEADY)
    assert located.pose is None and located.inliers <= 1
    # The same the other way round: 200 keypoints on one spot that all name one point.
    spot = Correspondences(np.arange(200), np.zeros(200, np.int64), crowd.xy, np.repeat(points[:1], 200, axis=0))
    assert estimate_pose(spot, CAMERA, True, STEADY).inliers <= 1


def test_what_agrees_by_chance_is_no_pose() -> None:
    given = seen(300, candidates=10)
    located = estimate_beyond_chance(given, CAMERA, True, STEADY)
    check(located, degrees=0.5, far=0.05)
    assert located.by_chance is not None and 2 * located.by_chance < located.inliers
    plain = estimate_pose(shuffled(given), CAMERA, True, STEADY)
    assert plain.pose is not None and pose_errors(plain.pose, TRUE)[1] > 0.2  # what a plain count falls for
    refused = estimate_beyond_chance(shuffled(given), CAMERA, True, STEADY)
    assert refused.pose is None and refused.by_chance is not None
    assert refused.reason == f"{refused.inliers} of 3000 matches agree, and {refused.by_chance} would by chance"


def on_a_wall(count: int, wrong: int) -> Correspondences:
    """`count` keypoints that see a wall; each names its point and, after that, `wrong` others."""
    rng = np.random.default_rng(4)
    points = np.stack([np.full(count, 0.2), *rng.uniform(-1, 1, (2, count))], axis=1)
    keypoint = np.repeat(np.arange(count), 1 + wrong)
    point = rng.integers(0, count, len(keypoint))
    point[:: 1 + wrong] = np.arange(count)
    return Correspondences(keypoint, point, project(points, CAMERA, TRUE)[keypoint], points[point])


def test_neighbours_support_the_right_points() -> None:
    given = on_a_wall(400, wrong=5)
    first = supported_first(given)
    assert len(first) == len(given) // 3
    assert (given.keypoints[first] == given.points[first]).mean() > 2 * (given.keypoints == given.points).mean()
    check(estimate_supported(given, CAMERA, True, STEADY), degrees=0.5, far=0.05)


@pytest.mark.parametrize("given", [on_a_wall(30, wrong=2), on_a_wall(400, wrong=40)])
def test_with_few_matches_or_many_candidates_all_are_first(given: Correspondences) -> None:
    assert supported_first(given).tolist() == list(range(len(given)))


def test_all_that_agree_with_the_first_count() -> None:
    """Neighbours in the picture lie at any depth: the third that comes first is a third of right ones."""
    given = seen(300)
    located = estimate_supported(given, CAMERA, True, STEADY)
    check(located)
    assert (located.inliers, located.correspondences) == (300, 300)


def test_the_most_iterations() -> None:
    assert MOST_ITERATIONS == 10_000_000
    check(estimate_pose(seen(60), CAMERA, True, replace(STEADY, iterations=MOST_ITERATIONS)))
    check(estimate_pose(seen(60), CAMERA, True, replace(STEADY, iterations=1)))
    for wrong in (0, -1, MOST_ITERATIONS + 1, 2**40, True, 1e3):
        with pytest.raises(InputError, match="iterations must be 1 to 10,000,000"):
            PoseSearch(iterations=wrong)  # type: ignore[arg-type]


def test_other_settings_that_cannot_be() -> None:
    for far in (0.0, -1.0, float("nan"), float("inf")):
        with pytest.raises(InputError, match="in pixels and above 0"):
            PoseSearch(max_error=far)
    with pytest.raises(InputError, match="at least 4 inliers"):
        PoseSearch(min_inliers=3)


def view(xy: Float32, points: Integers) -> View:
    return View(CAMERA, TRUE, xy, points)


def grid(count: int) -> Float32:
    return np.stack([np.arange(count) * 3.0, np.arange(count) * 2.0 + 10], axis=1).astype(np.float32)


def test_points_are_found_whatever_the_order() -> None:
    xy, points = grid(50), np.where(np.arange(50) % 3 == 0, -1, np.arange(50) + 100)
    assert (points_at(view(xy, points), xy, "a") == points).all()
    order = np.random.default_rng(0).permutation(50)
    for chosen in (order, order[:20], order[:1], order[:0]):
        assert (points_at(view(xy, points), xy[chosen], "a") == points[chosen]).all()


def test_points_are_found_at_rounded_places() -> None:
    xy = grid(20) * 30  # up to 1,710 pixels
    half = xy.astype(np.float16).astype(np.float32)
    assert (points_at(view(xy + np.float32(0.01), np.arange(20)), half, "a") == np.arange(20)).all()


def test_a_keypoint_with_a_point_is_preferred_at_a_shared_place() -> None:
    """Detectors give one place several orientations, and the map has triangulated one of them."""
    xy = np.repeat(grid(3), 3, axis=0)
    points = np.array([-1, 7, -1, -1, -1, -1, 8, -1, -1])
    assert points_at(view(xy, points), grid(3), "a").tolist() == [7, -1, 8]


def test_each_feature_in_order_shows_its_own_point() -> None:
    """Two keypoints at one place show two points, or both the one that is known there."""
    xy = np.repeat(grid(3), 2, axis=0)
    points = np.array([4, 5, -1, 6, -1, -1])
    mine = view(xy, points)
    shown = [4, 5, 6, 6, -1, -1]
    assert own_points(mine, xy, "a").tolist() == shown
    half = view((xy * 30).astype(np.float16).astype(np.float32), points)
    assert own_points(half, xy * 30 + np.float32(0.01), "a").tolist() == shown
    for other in (xy[::-1], xy[:4]):  # by their places alone
        assert own_points(mine, other, "a").tolist() == points_at(mine, other, "a").tolist()
    assert own_points(mine, xy[:0], "a").tolist() == []
    with pytest.raises(InputError, match="not those of the model"):
        own_points(mine, xy + 1, "a")


def test_foreign_keypoints_are_refused() -> None:
    mine = view(grid(20), np.arange(20))
    for foreign in (grid(20) + 1, np.concatenate([grid(20), [[5, 5]]]).astype(np.float32), grid(21)):
        with pytest.raises(InputError, match=r"keypoints of image 'a\.jpg' are not those of the model"):
            points_at(mine, foreign, "a.jpg")
    with pytest.raises(InputError, match="use the features that it was made of"):
        points_at(view(np.empty((0, 2), np.float32), np.empty(0, np.int64)), grid(1), "a.jpg")


def test_a_view_without_any_point() -> None:
    assert points_at(view(grid(4), np.full(4, -1)), grid(4), "a").tolist() == [-1] * 4


def matches(*pairs: tuple[int, int]) -> Matches:
    return Matches(np.array(pairs, np.int64).reshape(-1, 2), np.zeros(len(pairs), np.float32))


def test_each_pair_of_keypoint_and_point_counts_once() -> None:
    """Two images of the map show point 1 to keypoint 0; what shows no point is left out."""
    points = np.arange(9.0).reshape(3, 3)
    first = matches((0, 0), (1, 1), (0, 2)), np.array([1, -1, 2])
    second = matches((0, 3), (2, 0)), np.array([0, -1, -1, 1])
    given = correspond(grid(3), [first, second], points)
    assert list(zip(given.keypoints.tolist(), given.points.tolist(), strict=True)) == [(0, 1), (0, 2), (2, 0)]
    assert (given.xy == grid(3)[given.keypoints]).all() and (given.xyz == points[given.points]).all()
    assert len(correspond(grid(3), [], points)) == len(correspond(grid(3), [(matches(), np.array([1]))], points)) == 0


def test_points_are_found_at_the_places_that_hloc_makes_of_half_precision() -> None:
    """It adds the half pixel in half precision, where positions beyond 1024 come in steps of one pixel."""
    xy = np.random.default_rng(5).uniform(0, 1500, (200, 2)).astype(np.float32).astype(np.float16)
    stored = (xy + np.float16(0.5)).astype(np.float32)
    read = xy.astype(np.float32) + np.float32(0.5)  # as featveil reads the features file
    assert np.abs(stored - read).max() == 0.5
    order = np.random.default_rng(6).permutation(200)
    assert (points_at(view(stored, np.arange(200)), read[order], "a.jpg") >= 0).all()
    with pytest.raises(InputError, match="not those of the model"):
        points_at(view(stored, np.arange(200)), read + np.float32(0.25), "a.jpg")
