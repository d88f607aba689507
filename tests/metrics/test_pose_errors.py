"""Pose errors of known turns and places, and alignments of known similarities."""

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from featveil.core import InputError, Pose
from featveil.core.arrays import Float64
from featveil.metrics import align_poses, find_similarity, move_points, pose_errors, shares_within
from posed_scenes import random_pose

FIXED = random_pose(np.random.default_rng(7)).rotation


def turn(degrees: float, axis: tuple[float, float, float] = (1, 2, 3)) -> Float64:
    unit = np.array(axis) / np.linalg.norm(axis)
    return np.asarray(Rotation.from_rotvec(np.radians(degrees) * unit).as_matrix())


def at(centre: Float64, rotation: Float64) -> Pose:
    """A camera in that place."""
    return Pose(rotation, -rotation @ centre)


def poses(n: int, seed: int = 0) -> dict[str, Pose]:
    rng = np.random.default_rng(seed)
    return {f"{number:03d}.jpg": random_pose(rng) for number in range(n)}


def moved(given: dict[str, Pose], scale: float, rotation: Float64, translation: Float64) -> dict[str, Pose]:
    """The same cameras in a world that was scaled, turned and shifted, each camera with what it saw before."""
    return {
        name: at(scale * rotation @ pose.centre + translation, pose.rotation @ rotation.T)
        for name, pose in given.items()
    }


def worst(given: dict[str, Pose], true: dict[str, Pose]) -> tuple[float, float]:
    errors = np.array([pose_errors(given[name], true[name]) for name in true])
    return float(errors[:, 0].max()), float(errors[:, 1].max())


@pytest.mark.parametrize("degrees", [0.0, 1e-6, 0.02, 30.0, 90.0, 179.9, 180.0])
def test_the_angle_of_a_known_turn(degrees: float) -> None:
    """Also of one so small that the cosine is 1."""
    pose = Pose(FIXED, np.array([1.0, 2.0, 3.0]))
    for turned in (turn(degrees) @ FIXED, FIXED @ turn(degrees, (0, 0, -1))):
        angle, distance = pose_errors(at(pose.centre, turned), pose)
        assert angle == pytest.approx(degrees, rel=1e-6, abs=1e-9)
        assert distance == pytest.approx(0, abs=1e-12)


def test_the_distance_is_of_centres_not_of_translations() -> None:
    here, there = np.array([1.0, 2.0, 3.0]), np.array([4.0, 6.0, 3.0])
    assert pose_errors(at(here, FIXED), at(there, FIXED)) == pytest.approx((0, 5), abs=1e-6)
    assert pose_errors(at(here, np.eye(3)), at(here, turn(90))) == pytest.approx((90, 0), abs=1e-6)


@pytest.mark.parametrize("scale", [1e-4, 1.0, 300.0])
@pytest.mark.parametrize(("cameras", "wrong"), [(3, 0), (4, 1), (11, 5), (60, 25)])
def test_a_known_similarity_is_found_although_some_cameras_are_wrong(scale: float, cameras: int, wrong: int) -> None:
    true = poses(cameras)
    estimated = moved(true, scale, FIXED, np.array([5.0, -6.0, 70.0]))
    spoiled = sorted(estimated)[:wrong]
    rng = np.random.default_rng(1)
    for name in spoiled:
        estimated[name] = at(estimated[name].centre + scale * rng.uniform(5, 90, 3), random_pose(rng).rotation)
    aligned = align_poses(estimated, true)
    assert list(aligned) == list(estimated)
    degrees, distance = worst(aligned, {name: true[name] for name in true if name not in spoiled})
    assert degrees < 1e-5 and distance < 1e-8
    assert all(pose_errors(aligned[name], true[name])[1] > 1 for name in spoiled)


def test_points_move_as_their_cameras_do() -> None:
    """What a camera sees stays at its place in the image."""
    true, points = poses(6), np.random.default_rng(5).normal(size=(20, 3))
    scale, rotation, translation = 2.5, turn(40), np.array([3.0, -1.0, 7.0])
    there = moved(true, scale, rotation, translation)
    similarity = find_similarity(there, true)
    assert similarity[0] == pytest.approx(1 / scale)
    np.testing.assert_allclose(similarity[1], rotation.T, atol=1e-9)
    np.testing.assert_allclose(move_points(scale * points @ rotation.T + translation, similarity), points, atol=1e-9)
    assert worst(align_poses(there, true), true) == pytest.approx((0, 0), abs=1e-6)
    assert move_points(np.empty((0, 3)), similarity).shape == (0, 3)


def test_cameras_without_truth_are_moved_along() -> None:
    true = poses(6)
    aligned = align_poses(moved(true, 3.0, turn(50), np.ones(3)), {name: true[name] for name in sorted(true)[:4]})
    degrees, distance = worst(aligned, true)
    assert degrees < 1e-5 and distance < 1e-9


def test_places_in_a_plane_are_not_mirrored() -> None:
    true = {name: at(pose.centre * [1, 1, 0], pose.rotation) for name, pose in poses(9).items()}
    degrees, distance = worst(align_poses(moved(true, 2.0, FIXED, np.ones(3)), true), true)
    assert degrees < 1e-5 and distance < 1e-9


def test_noise_is_averaged_over_all_cameras() -> None:
    """Three cameras alone would be turned by a degree or so."""
    true, rng = poses(40), np.random.default_rng(2)
    noisy = {name: at(pose.centre + 0.02 * rng.normal(size=3), pose.rotation) for name, pose in true.items()}
    degrees, distance = worst(align_poses(moved(noisy, 0.1, FIXED, np.ones(3)), true), true)
    assert degrees < 0.5 and distance < 0.1


def test_too_little_to_align() -> None:
    true = poses(5)
    with pytest.raises(InputError, match="needs three cameras with true poses, got 2"):
        align_poses(true, {name: true[name] for name in sorted(true)[:2]})
    with pytest.raises(InputError, match="got 0"):
        align_poses({}, {})
    crowded = {name: at(np.ones(3), pose.rotation) for name, pose in true.items()}
    for estimated, truth in ((crowded, true), (true, crowded), (crowded, crowded)):
        with pytest.raises(InputError, match="in different places"):
            align_poses(estimated, truth)


def test_cameras_on_a_line_are_aligned_by_how_they_are_turned() -> None:
    """Their centres say nothing about a turn around the line, and noise would decide it."""
    rng = np.random.default_rng(3)
    true = {
        name: at(place * np.array([1.0, 2.0, 3.0]), pose.rotation)
        for place, (name, pose) in enumerate(poses(9).items())
    }
    noisy = {name: at(pose.centre + 0.01 * rng.normal(size=3), pose.rotation) for name, pose in true.items()}
    degrees, distance = worst(align_poses(moved(noisy, 2.0, FIXED, np.ones(3)), true), true)
    assert degrees < 1e-5 and distance < 0.05


def test_shares_within_both_thresholds() -> None:
    """Errors are (degrees, distance), thresholds (distance, degrees); the limit itself is within."""
    errors = [(2.0, 0.25), (2.1, 0.1), (0.0, 0.3), (9.0, 4.0), (11.0, 0.0)]
    thresholds = ((0.25, 2.0), (0.5, 5.0), (5.0, 10.0))
    assert shares_within(errors, thresholds, 10) == (0.1, 0.3, 0.4)
    assert shares_within([], thresholds, 3) == (0, 0, 0)
    for given, total in ((errors, 4), ([], 0), ([], -1)):
        with pytest.raises(InputError, match="total must be at least"):
            shares_within(given, thresholds, total)
