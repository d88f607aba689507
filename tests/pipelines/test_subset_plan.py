"""What a plan says, against plain arithmetic, simulation and the numbers of the paper's settings."""

import math

import numpy as np
import pytest

from featveil.core import Features, InputError, Points
from featveil.databases import Database
from featveil.defenses.subset import Subset
from featveil.matching.word_sets import join
from featveil.pipelines.subset_parts.planning import Quantization, explain, measure_quantization, percent, plan, rounded


def codebook(words: int, size: int = 8) -> Database:
    rng = np.random.default_rng(0)
    return Database.from_array(rng.standard_normal((words, size)), "test", parts=1, rng=rng)


def test_the_example_of_a_weak_guarantee() -> None:
    (row,) = plan(16.0, 256_000, [1], 2048)
    assert row.sent == pytest.approx(0.972, abs=5e-4)
    assert row.verdict == "weak: whoever guesses the word is right 97.2 % of the time"
    assert (row.epsilon, row.epsilon_per_image) == (16, 16 * 2048)


@pytest.mark.parametrize("epsilon", [0.5, 4.0, 10.0])
@pytest.mark.parametrize("k", [1, 2, 7])
def test_columns_are_the_formulas(epsilon: float, k: int) -> None:
    (row,) = plan(epsilon, 1000, [k], 50, reference_features=301, same_word=0.4)
    sent = k * math.exp(epsilon) / (k * math.exp(epsilon) + 1000 - k)
    assert row.sent == pytest.approx(sent)
    assert row.best_guess == row.nearest_inliers == pytest.approx(sent / k)
    assert row.right_candidates == pytest.approx(50 * sent * 0.4)
    assert row.vocabulary_inliers == pytest.approx(0.4 * sent / (0.4 * sent + k * 300 / 1000))
    assert row.epsilon_per_image == 50 * epsilon


def test_vocabulary_inliers_and_guesses_happen_as_often_as_planned() -> None:
    words, features, k, epsilon = 60, 40, 3, 3.0
    mechanism, rng = Subset(epsilon, k, codebook(words)), np.random.default_rng(1)
    (row,) = plan(epsilon, words, [k], features)
    right = candidates = guessed = 0
    for _ in range(400):
        reference = rng.integers(0, words, features)
        sets = mechanism.hide(reference, rng).words
        left, found = join(sets.reshape(-1), reference)
        right += int((left // k == found).sum())
        candidates += len(found)
        guessed += int((sets[np.arange(features), rng.integers(0, k, features)] == reference).sum())
    assert right / candidates == pytest.approx(row.vocabulary_inliers, abs=0.01)
    assert right / 400 == pytest.approx(row.right_candidates, rel=0.02)
    assert guessed / (400 * features) == pytest.approx(row.best_guess, abs=0.015)


@pytest.mark.parametrize(
    ("epsilon", "level"), [(math.inf, "none"), (16.0, "weak"), (12.0, "modest"), (10.0, "fair"), (2.0, "strong")]
)
def test_levels(epsilon: float, level: str) -> None:
    (row,) = plan(epsilon, 256_000, [1], 100)
    assert row.level == level
    assert row.verdict.startswith(level)


def test_infinite_epsilon_is_quantisation() -> None:
    first, second = plan(math.inf, 1000, [1, 2], 11)
    assert (first.sent, first.best_guess, second.sent, second.best_guess) == (1, 1, 1, 0.5)
    assert first.epsilon_per_image == math.inf
    assert first.vocabulary_inliers == pytest.approx(1 / 1.01)  # other features with the very word remain
    text = "\n".join(explain([first, second], 1000, 11))
    assert "nothing is guaranteed" in text
    assert "epsilon inf" not in text


@pytest.mark.parametrize("power", [64, 1024, 4096])
def test_huge_codebooks_are_no_special_case(power: int) -> None:
    rows = plan(10.0, 2**power, [1, 32], 2048)
    assert rows[0].sent == pytest.approx(math.exp(10) * 2.0**-power if power <= 1024 else 0.0)
    assert rows[0].vocabulary_inliers == pytest.approx(math.exp(10) / (math.exp(10) + 2047))
    assert rounded(2**power) == f"2^{power}"
    assert explain(rows, 2**power, 2048)


def test_no_epsilon_is_told_without_the_one_per_image() -> None:
    text = "\n".join(explain(plan(10.0, 256_000, [1, 2], 2048), 256_000, 2048))
    assert "epsilon 10;" in text and "epsilon 20,480 (basic composition)" in text
    assert "bounds nothing by itself" in text
    assert "factor of 22,026 at most" in text
    small = "\n".join(explain(plan(0.5, 10, [1], 3), 10, 3))
    assert "epsilon 1.5 (basic composition)" in small and "bounds nothing" not in small
    assert "e^1000" in "\n".join(explain(plan(1000.0, 10, [1], 3), 10, 3))


def test_every_size_gets_its_verdict_and_the_reason() -> None:
    lines = explain(plan(16.0, 256_000, [1, 32], 2048), 256_000, 2048)
    assert "k = 1: weak: whoever guesses the word is right 97.2 % of the time" in lines
    assert "k = 32: weak: the true word is sent 99.9 % of the time, and only words drawn at random hide it" in lines
    lines = explain(plan(10.0, 256_000, [4, 16], 2048), 256_000, 2048)
    assert any(line.startswith("k = 4: fair: the true word is sent 25.6 % of the time, and whoever") for line in lines)
    assert any(line.startswith("k = 16: modest: the true word is sent 57.9 % of the time") for line in lines)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0.0, 10, [1], 5), "epsilon"),
        ((math.nan, 10, [1], 5), "epsilon"),
        ((1.0, 1, [1], 5), "codebook_size"),
        ((1.0, 2**4096 + 1, [1], 5), "codebook_size"),
        ((1.0, 10, [], 5), "subset sizes"),
        ((1.0, 2**1024, [0], 5), "subset sizes"),
        ((1.0, 10, [10], 5), "1 to 9"),
        ((1.0, 10, [1], 0), "features"),
        ((1.0, 10, [1], 5, 0), "features"),
        ((1.0, 10, [1], 5, 5, 0.0), "same_word"),
        ((1.0, 10, [1], 5, 5, 1.1), "same_word"),
    ],
)
def test_impossible_settings(arguments: tuple[object, ...], message: str) -> None:
    with pytest.raises(InputError, match=message):
        plan(*arguments)  # type: ignore[arg-type]


def test_quantization_against_a_plain_loop() -> None:
    words, rng = codebook(30), np.random.default_rng(2)
    images = [Features(Points(rng.standard_normal((n, 8)).astype(np.float32)), "test") for n in (20, 5)]
    found = measure_quantization(images, words)
    rows = np.concatenate([image.descriptors.values for image in images]).astype(np.float64)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    unit = words.points().astype(np.float64)
    distances = [min(math.dist(row, word) for word in unit) for row in rows]
    nearest = {int(np.argmax(unit @ row)) for row in rows}
    np.testing.assert_allclose(found.distances, distances, atol=1e-5)
    assert (found.images, found.words_used, found.features_per_image) == (2, len(nearest), 12)
    summary = found.summary()
    assert summary["mean"] == pytest.approx(np.mean(distances), abs=1e-5)
    assert summary["mean_cosine"] == pytest.approx(np.mean([(unit @ row).max() for row in rows]), abs=1e-5)
    assert summary["median"] <= summary["percentile_90"]
    assert summary["words_used_share"] == len(nearest) / 30
    assert "25 descriptors of 2 images" in "\n".join(found.explain())


def test_words_themselves_have_no_error() -> None:
    words = codebook(30)
    found = measure_quantization([Features(Points(words.points()), "test")], words)
    assert found.words_used == 30
    assert found.distances.max() < 1e-3
    assert "1 image," in found.explain()[0]


def test_other_kinds_and_empty_images_are_refused() -> None:
    words = codebook(30)
    with pytest.raises(InputError, match="use a sift codebook"):
        measure_quantization([Features(words.as_points, "sift")], words)
    with pytest.raises(InputError, match="no descriptors"):
        measure_quantization([Features(Points(np.empty((0, 8), np.float32)), "test")], words)


def test_numbers_for_people() -> None:
    assert [percent(share) for share in (0, 0.0734, 0.5, 0.99951, 1)] == ["0 %", "7.34 %", "50 %", "> 99.9 %", "100 %"]
    assert [rounded(number) for number in (1000, 3**100, 2**80)] == ["1,000", "about 2^158.5", "2^80"]
    assert Quantization(np.zeros(3), 10, 1, 5).features_per_image == 1
