"""The tasks of HPatches: the same region in every image, disturbed as it says; perfect and useless descriptors."""

from pathlib import Path

import numpy as np
import pytest

from featveil.core import InputError
from featveil.core.arrays import Float64
from featveil.datasets import HPatches, load_hpatches
from featveil.lab.patches_parts.patches_tasks import (
    LEVELS,
    Disturbance,
    Negatives,
    SceneDescriptors,
    carried,
    disturbed,
    matching,
    retrieval,
    scene_patches,
    verification,
)
from featveil.metrics import average_precision
from scenes import draw_turned_views

BOTH: tuple[Negatives, Negatives] = ("intra", "inter")
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


def scenes(noise: float, count: int = 3, rows: int = 40, seed: int = 0) -> list[SceneDescriptors]:
    """Random regions; each image sees them with noise of so many times their length."""
    rng = np.random.default_rng(seed)
    made = []
    for place in range(count):
        true = rng.standard_normal((1, rows + place, 16))
        seen = true + noise * rng.standard_normal((6, rows + place, 16))
        made.append(
            SceneDescriptors(f"scene {place}", (seen / np.linalg.norm(seen, axis=2, keepdims=True)).astype(np.float32))
        )
    return made


def measured(given: list[SceneDescriptors], pairs: int = 3000) -> list[float]:
    rng = np.random.default_rng(1)
    return [*(verification(given, one, pairs, rng) for one in BOTH), matching(given), retrieval(given, 60, rng)]


def test_descriptors_without_noise_are_perfect() -> None:
    assert measured(scenes(0.01)) == [1.0, 1.0, 1.0, 1.0]


def test_more_noise_is_worse_down_to_chance() -> None:
    some, more, nothing = (measured(scenes(noise)) for noise in (0.5, 1.0, 1e6))
    assert all(a > b > c for a, b, c in zip(some, more, nothing, strict=True))
    assert np.abs(np.array(nothing[:2]) - 1 / 6).max() < 0.03
    assert nothing[2] < 0.03 and nothing[3] < 0.12


def test_one_descriptor_for_all_is_no_better_than_chance() -> None:
    same = [SceneDescriptors(one.name, np.ones_like(one.values)) for one in scenes(0)]
    found = measured(same)
    assert max(found[:2]) < 0.17 and found[2] == 0 and found[3] < 0.06


def test_matching_by_plain_loops() -> None:
    given = scenes(0.7, count=2, rows=15)
    precisions = []
    for scene in given:
        for image in range(1, 6):
            distances, right = [], []
            for row, one in enumerate(scene.values[0]):
                apart = [float(np.linalg.norm(one.astype(np.float64) - other)) for other in scene.values[image]]
                distances.append(min(apart))
                right.append(apart.index(min(apart)) == row)
            precisions.append(average_precision(np.array(distances), np.array(right), len(right)))
    assert matching(given) == pytest.approx(np.mean(precisions), abs=1e-6)


def test_retrieval_by_plain_loops() -> None:
    given = scenes(0.9, count=3, rows=10)
    precisions = []
    for place, scene in enumerate(given):
        others = np.concatenate([one.values[0] for number, one in enumerate(given) if number != place])
        for row, query in enumerate(scene.values[0].astype(np.float64)):
            among = np.concatenate([scene.values[1:, row], others])
            right = np.arange(len(among)) < 5
            precisions.append(average_precision(np.linalg.norm(among - query, axis=1), right))
    assert retrieval(given, 1000, np.random.default_rng(0)) == pytest.approx(np.mean(precisions), abs=1e-6)


def test_negatives_are_of_one_scene_or_of_two() -> None:
    # Scenes that are far apart: negatives of two scenes are easy, those of one scene are not.
    rng = np.random.default_rng(0)
    made = [
        SceneDescriptors(str(place), (10 * place + rng.standard_normal((6, 30, 4))).astype(np.float32))
        for place in range(3)
    ]
    assert verification(made, "inter", 3000, rng) == 1
    assert verification(made, "intra", 3000, rng) < 0.25


def test_what_cannot_be_measured() -> None:
    rng = np.random.default_rng(0)
    one = scenes(0.1, count=1)
    assert verification(one, "intra", 100, rng) == 1
    with pytest.raises(InputError, match="at least 2 scenes"):
        verification(one, "inter", 100, rng)
    with pytest.raises(InputError, match="at least 2 scenes"):
        retrieval(one, 5, rng)
    with pytest.raises(InputError, match="at least 1 scenes"):
        matching([])
    with pytest.raises(InputError, match=r"\(6, n, d\)"):
        matching([SceneDescriptors("a", np.zeros((5, 9, 4), np.float32))])
