"""How near guesses come: against plain loops, and at the edges."""

import numpy as np
import pytest

from featveil.core import InputError, Points
from featveil.core.arrays import Float32
from featveil.metrics import BIN, BINS, CLOSE, NEAR, guess_distances, histogram, ranks, summarize_leakage


def unit(rng: np.random.Generator, n: int, d: int = 12) -> Float32:
    values = rng.random((n, d))
    return np.asarray(values / np.linalg.norm(values, axis=1, keepdims=True), np.float32)


def slow_rank(guess: Float32, hidden: Float32, own: int) -> int:
    away = [float(np.linalg.norm(guess.astype(float) - one.astype(float))) for one in hidden]
    return 1 + sum(other < away[own] for other in away)


def test_distances_are_shares_of_the_true_norm() -> None:
    truth = Points(np.array([[3.0, 4.0], [0.0, 2.0]], np.float32))
    values = np.array([[3.0, 4.0], [0.0, 1.0]], np.float32)
    assert guess_distances(values, truth) == pytest.approx([0, 0.5])


def test_distances_do_not_depend_on_the_scale() -> None:
    rng = np.random.default_rng(0)
    truth, values = unit(rng, 9), unit(rng, 9)
    assert guess_distances(512 * values, Points(512 * truth)) == pytest.approx(guess_distances(values, Points(truth)))


@pytest.mark.parametrize("shape", [(3, 4), (2, 5)])
def test_guesses_of_another_shape_are_refused(shape: tuple[int, int]) -> None:
    truth = Points(np.ones((2, 4), np.float32))
    with pytest.raises(InputError, match="do not fit"):
        guess_distances(np.ones(shape, np.float32), truth)
    with pytest.raises(InputError, match="do not fit"):
        ranks(np.ones(shape, np.float32), truth)


def test_a_true_descriptor_without_length_is_refused() -> None:
    with pytest.raises(InputError, match="zero norm"):
        guess_distances(np.ones((1, 4), np.float32), Points(np.zeros((1, 4), np.float32)))


def test_ranks_equal_a_plain_loop() -> None:
    rng = np.random.default_rng(1)
    hidden = unit(rng, 70)
    values = (hidden + rng.normal(0, 0.2, hidden.shape)).astype(np.float32)
    places = ranks(values, Points(hidden))
    assert places.tolist() == [slow_rank(guess, hidden, row) for row, guess in enumerate(values)]
    assert 1 in places and places.max() > 5


def test_ranks_of_some_features_are_among_all() -> None:
    rng = np.random.default_rng(2)
    hidden, rows = unit(rng, 60), np.array([41, 3, 3, 59])
    values = unit(rng, 4)
    expected = [slow_rank(guess, hidden, own) for guess, own in zip(values, rows, strict=True)]
    assert ranks(values, Points(hidden), rows).tolist() == expected


def test_ranks_of_more_guesses_than_are_held_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(3)
    hidden, values = Points(unit(rng, 23)), unit(rng, 23)
    whole = ranks(values, hidden)
    monkeypatch.setattr("featveil.metrics.leakage._ROWS", 5)
    assert ranks(values, hidden).tolist() == whole.tolist()


def test_repeated_descriptors_share_their_place() -> None:
    hidden = Points(np.repeat(unit(np.random.default_rng(4), 3), 2, axis=0))
    assert ranks(hidden.values, hidden).tolist() == [1] * 6


def test_a_blind_guess_ranks_in_the_middle_and_a_right_one_first() -> None:
    rng = np.random.default_rng(5)
    hidden = Points(unit(rng, 301))
    assert 120 < np.median(ranks(unit(rng, 301), hidden)) < 180
    assert np.median(ranks(hidden.values, hidden)) == 1


def test_summary_counts_what_it_says() -> None:
    truth = Points(np.tile(np.eye(1, 8, dtype=np.float32), (5, 1)))
    away = np.array([0.0, 0.29, 0.3, 0.49, 1.0])
    values = truth.values + away[:, None].astype(np.float32) * np.eye(1, 8, k=1, dtype=np.float32)
    answered = np.array([True, True, True, False, True])
    leakage = summarize_leakage(values, answered, truth)
    assert leakage.count == 5
    assert leakage.mean == pytest.approx(away.mean()) and leakage.median == pytest.approx(0.3)
    # 0.3 in float32 lies a little above: not below the mark.
    assert (leakage.below_close, leakage.below_near, leakage.exact) == (0.4, 0.8, 0.2)
    assert leakage.answered == 0.8


def test_words_override_what_is_exact() -> None:
    truth = Points(unit(np.random.default_rng(6), 4))
    leakage = summarize_leakage(truth.values, np.ones(4, bool), truth, exact=np.array([True, False, False, False]))
    assert (leakage.exact, leakage.mean) == (0.25, 0)


def test_summary_of_some_rows() -> None:
    rng = np.random.default_rng(7)
    hidden, rows = Points(unit(rng, 30)), np.array([4, 9, 2])
    leakage = summarize_leakage(hidden.values[rows], np.ones(3, bool), hidden, rows)
    assert (leakage.count, leakage.mean, leakage.exact, leakage.rank) == (3, 0, 1, 1)
    swapped = summarize_leakage(hidden.values[rows], np.ones(3, bool), hidden, rows[::-1].copy())
    assert swapped.exact == pytest.approx(1 / 3) and swapped.rank > 1


def test_one_feature() -> None:
    leakage = summarize_leakage(
        np.array([[1.0, 1.0]], np.float32), np.ones(1, bool), Points(np.eye(1, 2, dtype=np.float32))
    )
    assert (leakage.count, leakage.mean, leakage.rank) == (1, 1, 1)


def test_nothing_to_compare_is_refused() -> None:
    with pytest.raises(InputError, match="no feature whose truth is known"):
        summarize_leakage(np.empty((0, 4), np.float32), np.empty(0, bool), Points(np.empty((0, 4), np.float32)))


def test_histogram_agrees_with_the_marks() -> None:
    rng = np.random.default_rng(8)
    distances = np.concatenate([rng.random(500) * 2, [CLOSE, NEAR, 0.0, 1e30]])
    counts = histogram(distances)
    assert len(counts) == BINS and counts.sum() == len(distances)
    for mark in (CLOSE, NEAR):
        assert counts[: round(mark / BIN)].sum() == (distances < mark).sum()
    assert counts[-1] == (distances >= BIN * (BINS - 1)).sum()


def test_histogram_of_nothing() -> None:
    assert histogram(np.empty(0)).tolist() == [0] * BINS
