"""The tasks of HPatches on made-up descriptors: perfect ones, useless ones, and plain loops beside them."""

import numpy as np
import pytest

from featveil.core import InputError
from featveil.lab.patch_measures import Negatives, SceneDescriptors, matching, retrieval, verification
from featveil.metrics import average_precision

BOTH: tuple[Negatives, Negatives] = ("intra", "inter")


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
