"""Patches of sequences: the same region in every image, disturbed as much as HPatches says."""

from pathlib import Path

import numpy as np
import pytest

from featveil.core import InputError
from featveil.core.arrays import Float64
from featveil.datasets import HPatches, load_hpatches
from featveil.lab.patch_sequences import LEVELS, Disturbance, carried, disturbed, scene_patches
from scenes import draw_turned_views

UNIT = np.array([[1, 0, 0], [0, 1, 0]], np.float64)


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> HPatches:
    root = tmp_path_factory.mktemp("data") / "drawn"
    draw_turned_views(root / "v_one")
    return load_hpatches(root)


def overlap(frame: Float64) -> float:
    """Intersection over union of the unit disc and where a frame puts it, on a grid."""
    x, y = np.meshgrid(np.linspace(-2, 2, 101), np.linspace(-2, 2, 101))
    back = np.linalg.inv(frame[:, :2]) @ np.stack([(x - frame[0, 2]).ravel(), (y - frame[1, 2]).ravel()])
    here, there = (x * x + y * y <= 1).ravel(), (back * back).sum(axis=0) <= 1
    return float((here & there).sum() / (here | there).sum())


@pytest.mark.parametrize(("level", "median"), [("easy", 0.85), ("hard", 0.72)])
def test_regions_overlap_as_those_of_hpatches(level: str, median: float) -> None:
    frames = disturbed(np.tile(UNIT, (200, 1, 1)), LEVELS[level], np.random.default_rng(0))
    assert abs(np.median([overlap(frame) for frame in frames]) - median) < 0.02


def test_no_disturbance_changes_nothing() -> None:
    frames = np.random.default_rng(0).normal(size=(5, 2, 3))
    assert np.allclose(disturbed(frames, Disturbance(0, 0, 0, 0), np.random.default_rng(0)), frames)


def test_frames_go_where_the_homography_puts_their_points() -> None:
    homography = np.array([[1.2, -0.3, 5], [0.2, 0.9, -3], [1e-4, 2e-4, 1]])
    frame = np.array([[[0.01, 0, 50], [0, 0.01, 60]]])
    for u, v in ((0, 0), (1, 0), (0, -1)):
        point = homography @ [50 + 0.01 * u, 60 + 0.01 * v, 1]
        assert np.abs(carried(frame, homography)[0] @ [u, v, 1] - point[:2] / point[2]).max() < 1e-5


def test_every_image_shows_the_same_regions(drawn: HPatches) -> None:
    found = scene_patches(drawn.scenes[0], 30, seed=0)
    assert found.reference.shape == (30, 64, 64)
    assert {level: others.shape for level, others in found.others.items()} == dict.fromkeys(LEVELS, (5, 30, 64, 64))

    def likeness(others: np.ndarray) -> float:
        return float(
            np.mean([np.corrcoef(a.ravel(), b.ravel())[0, 1] for a, b in zip(found.reference, others, strict=True)])
        )

    easy, hard = (np.mean([likeness(view) for view in found.others[level]]) for level in ("easy", "hard"))
    assert easy > 0.65 and easy > hard + 0.1 and hard > 0.25
    assert likeness(found.others["easy"][0][::-1]) < 0.3
    again = scene_patches(drawn.scenes[0], 30, seed=0)
    assert np.array_equal(again.others["hard"], found.others["hard"])
    assert not np.array_equal(scene_patches(drawn.scenes[0], 30, seed=1).others["hard"], found.others["hard"])
    assert np.array_equal(scene_patches(drawn.scenes[0], 10, seed=0).reference, found.reference[:10])


def test_scenes_of_which_nothing_is_in_all_images(tmp_path: Path) -> None:
    draw_turned_views(tmp_path / "data" / "one")
    np.savetxt(tmp_path / "data" / "one" / "H_1_6", [[1, 0, 5000], [0, 1, 0], [0, 0, 1]])
    with pytest.raises(InputError, match="fewer than two regions"):
        scene_patches(load_hpatches(tmp_path / "data").scenes[0], 30, seed=0)
