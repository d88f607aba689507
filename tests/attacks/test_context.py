"""What features of one image say of each other: only if they are of one image, and in their right places."""

import numpy as np
import pytest

from featveil.attacks.discriminator_parts import context as module
from featveil.attacks.discriminator_parts.context import in_context
from featveil.attacks.overlap_parts.overlapping import find_overlaps, predict
from featveil.core import Features, Guarantee, Keypoints, Points, PrivateFeatures
from featveil.core.arrays import Float32, Float64, Integers
from featveil.databases.entries import unit_rows
from victims import picture

COUNT, CHOICES = 300, 5


def seen(keypoints: Keypoints | None, kind: str = "sift") -> PrivateFeatures:
    """Features at `keypoints`; context does not look at what was sent."""
    count = COUNT if keypoints is None else len(keypoints)
    sent = Points(np.ones((count, 2), np.float32))
    return PrivateFeatures(sent, kind, {"name": "lifting"}, Guarantee("empirical"), keypoints)


def usual() -> Float32:
    return unit_rows(np.abs(np.random.default_rng(8).normal(size=(500, 128))))


def choices(features: Features, seed: int = 0) -> tuple[Float64, Integers]:
    """Candidates (n, 5, d), of which one is the feature's own and the others those of other features, and its place."""
    rng = np.random.default_rng(seed)
    values = features.descriptors.values.astype(np.float64)
    made = values[rng.integers(0, len(values), size=(len(values), CHOICES))]
    places = rng.integers(0, CHOICES, size=len(values))
    made[np.arange(len(values)), places] = values
    return made, places


def shuffled(keypoints: Keypoints) -> Keypoints:
    return keypoints.take(np.random.default_rng(9).permutation(len(keypoints)))


def successes(features: Features, keypoints: Keypoints | None) -> float:
    made, places = choices(features)
    picked = in_context(
        made, np.zeros(made.shape[:2]), seen(keypoints, features.kind), usual(), np.random.default_rng(0)
    )
    return float((picked == places).mean())


@pytest.mark.parametrize("kind", ["sift", "rootsift"])
def test_neighbours_agree_where_they_are(kind: str) -> None:
    features = picture(0, kind, COUNT)
    assert features.keypoints is not None
    assert successes(features, features.keypoints) > 0.6
    assert successes(features, shuffled(features.keypoints)) < 0.35


def test_positions_alone_say_nothing() -> None:
    features = picture(0, count=COUNT)
    assert features.keypoints is not None
    assert successes(features, features.keypoints.positions_only()) < 0.35
    assert successes(features, None) < 0.35


def resembling(strength: float) -> tuple[Float64, Integers]:
    """Candidates around random points, but for one of each list, of which there are 3 sorts."""
    rng = np.random.default_rng(2)
    sorts = unit_rows(np.abs(rng.normal(size=(3, 128))))
    made = unit_rows(np.abs(rng.normal(size=(COUNT, CHOICES, 128)))).astype(np.float64)
    places = rng.integers(0, CHOICES, size=COUNT)
    rows = np.arange(COUNT)
    made[rows, places] = made[rows, places] * (1 - strength) + strength * sorts[rng.integers(0, 3, size=COUNT)]
    return made / np.linalg.norm(made, axis=2, keepdims=True), places


@pytest.mark.parametrize(("strength", "least", "most"), [(0.8, 0.95, 1.0), (0.0, 0.1, 0.3)])
def test_what_resembles_others_is_real(strength: float, least: float, most: float) -> None:
    made, places = resembling(strength)
    picked = in_context(made, np.zeros(made.shape[:2]), seen(None), usual(), np.random.default_rng(0))
    assert least <= (picked == places).mean() <= most


def test_certain_scores_are_kept() -> None:
    made, places = resembling(0.8)
    sure = np.zeros(made.shape[:2])
    wrong = (places + 1) % CHOICES
    sure[np.arange(COUNT), wrong] = 1000
    assert (in_context(made, sure, seen(None), usual(), np.random.default_rng(0)) == wrong).all()


def test_what_is_not_there_is_never_picked() -> None:
    made, places = resembling(0.8)
    scores = np.zeros(made.shape[:2])
    scores[np.arange(COUNT), places] = -np.inf
    assert (in_context(made, scores, seen(None), usual(), np.random.default_rng(0)) != places).all()


def test_one_feature_keeps_its_best() -> None:
    made, _ = resembling(0.8)
    features = picture(0, count=COUNT)
    assert features.keypoints is not None
    alone = features.keypoints.take(np.arange(1))
    scores = np.array([[0.0, 3.0, 1.0, -np.inf, 2.0]])
    assert in_context(made[:1], scores, seen(alone), usual(), np.random.default_rng(0)).tolist() == [1]


def test_the_comparison_of_neighbours_is_the_plain_one(monkeypatch: pytest.MonkeyPatch) -> None:
    features = picture(0, count=COUNT)
    assert features.keypoints is not None
    made = choices(features)[0].astype(np.float32)
    monkeypatch.setattr(module, "_ROWS", 100)
    found = module._Neighbours.of(made, features.keypoints, "sift")
    overlaps = find_overlaps(features.keypoints)
    for pair in range(0, len(overlaps), 97):
        for own, other in ((0, 0), (1, 3), (4, 2)):
            predicted, weights = predict(made[:, other], overlaps)
            cosine = plain_cosine(made[overlaps.first[pair], own], predicted[pair], weights[pair])
            assert found.gain[pair, own, other] == pytest.approx(20 * overlaps.share[pair] * (cosine - 1), abs=1e-3)


def test_neighbours_of_rootsift_are_those_of_sift() -> None:
    features = picture(0, count=COUNT)
    made = choices(features)[0].astype(np.float32)
    plain = module._Neighbours.of(made, features.keypoints, "sift")
    rooted = module._Neighbours.of(np.sqrt(made), features.keypoints, "rootsift")
    assert rooted.gain == pytest.approx(plain.gain, abs=1e-3)


def test_resemblance_is_the_plain_one() -> None:
    made = resembling(0.8)[0][:12].astype(np.float32)
    rng = np.random.default_rng(0)
    belief, possible = rng.dirichlet(np.ones(CHOICES), size=12), rng.random((12, CHOICES)) < 0.8
    found = module._Likeness.of(made, possible, usual(), rng).evidence(belief)

    def near(one: Float32, other: Float32) -> float:
        return float(np.exp(-(np.linalg.norm(one - other) ** 2) / (2 * 0.2**2)))

    places = [(i, c) for i in range(12) for c in range(CHOICES) if possible[i, c]]
    for i, c in ((0, 0), (5, 2), (11, 4)):
        others = [place for place in places if place[0] != i]  # never itself
        real = sum(belief[place] * near(made[i, c], made[place]) for place in others)
        rest = sum((1 - belief[place]) * near(made[i, c], made[place]) for place in others)
        real /= sum(belief[place] for place in places)
        rest /= sum(1 - belief[place] for place in places)
        elsewhere = np.mean([near(made[i, c], other) for other in usual()])
        assert found[i, c] == pytest.approx(np.log(real + 1e-6) - np.log((rest + elsewhere) / 2 + 1e-6), abs=1e-3)


def plain_cosine(one: Float32, other: Float32, weights: Float32) -> float:
    root = np.sqrt(np.maximum(weights, 0))
    return float(root * one @ (root * other) / (np.linalg.norm(root * one) * np.linalg.norm(root * other)))
