"""Candidates that neighbours support: right ones stay, wrong ones go, and without any order hardly one is left."""

import numpy as np
import pytest

from featveil.core.arrays import Float32
from featveil.geometry import neighbours
from featveil.geometry.neighbours import support, well_supported

SHIFT = np.array([40, -25], np.float32)
WIDE, HIGH = 1000, 700


def scattered(count: int, rng: np.random.Generator) -> Float32:
    return (rng.uniform(0, 1, (count, 2)) * [WIDE, HIGH]).astype(np.float32)


def candidates(right: int, wrong: int, seed: int = 0) -> tuple[Float32, Float32]:
    """First `right` ones, slightly moved, grown and noisy; then for each `wrong` ones that lead anywhere."""
    rng = np.random.default_rng(seed)
    start = scattered(right, rng)
    end = (start * 1.05 + SHIFT + rng.normal(0, 1, start.shape)).astype(np.float32)
    astray = end[(np.repeat(np.arange(right), wrong) + rng.integers(1, right, right * wrong)) % right]
    return np.concatenate([start, np.repeat(start, wrong, axis=0)]), np.concatenate([end, astray])


def slow_support(xy_a: Float32, xy_b: Float32) -> list[float]:
    """In plain loops, for few enough candidates that the reach is not cut."""
    totals = []
    reach_a, reach_b = (0.08 * float(np.ptp(xy, axis=0).max()) for xy in (xy_a, xy_b))
    for i in range(len(xy_a)):
        total = 0.0
        for j in range(len(xy_a)):
            start, end = (xy_a[j] - xy_a[i]) / reach_a, (xy_b[j] - xy_b[i]) / reach_b
            if not start.any() or not end.any() or max(abs(start).max(), abs(end).max()) > 1:
                continue
            total += float(np.exp(-(((end - start) / 0.2) ** 2).sum()))
        totals.append(total)
    return totals


def test_support_by_a_slow_reference() -> None:
    xy_a, xy_b = candidates(80, 4)
    assert support(xy_a, xy_b) == pytest.approx(slow_support(xy_a, xy_b), abs=1e-4)


def test_right_candidates_stay_and_wrong_ones_go() -> None:
    xy_a, xy_b = candidates(600, 9)
    kept = well_supported(xy_a, xy_b)
    assert kept[:600].mean() > 0.9
    assert kept[600:].mean() < 0.02
    assert kept[:600].sum() > 5 * kept[600:].sum()


def test_without_order_hardly_more_than_by_chance_is_kept() -> None:
    """A tenth of the candidates is above the threshold by chance, and most of these are second at one of their ends."""
    xy_a, xy_b = candidates(600, 9)
    dealt = xy_b[np.random.default_rng(7).permutation(len(xy_b))]
    assert well_supported(xy_a, dealt).mean() < 0.08
    assert well_supported(xy_a, xy_b).sum() > 1.3 * well_supported(xy_a, dealt).sum()


def test_candidates_without_rivals_must_beat_chance_too() -> None:
    """One for each place: nine tenths of those that lead anywhere go."""
    xy_a, xy_b = candidates(1000, 0)
    assert well_supported(xy_a, xy_b).mean() > 0.9
    assert well_supported(xy_a, np.random.default_rng(7).permutation(xy_b)).mean() < 0.15


def test_a_place_has_one_candidate_on_either_side() -> None:
    xy_a, xy_b = candidates(300, 6)
    kept = well_supported(xy_a, xy_b)
    for side in (xy_a, xy_b):
        assert len(np.unique(side[kept], axis=0)) == kept.sum() > 200


def test_turned_views_lose_support() -> None:
    """What the module says of itself: positions tell right from wrong only while views are about upright."""
    xy_a, xy_b = candidates(600, 9)
    turned = (xy_b @ np.array([[0, 1], [-1, 0]])).astype(np.float32)
    assert support(xy_a, turned)[:600].mean() < 0.5 * support(xy_a, xy_b)[:600].mean()


def test_none_and_one() -> None:
    none = np.empty((0, 2), np.float32)
    assert well_supported(none, none).shape == support(none, none).shape == (0,)
    one = np.ones((1, 2), np.float32)
    assert support(one, one).tolist() == [0] and well_supported(one, one).tolist() == [False]


@pytest.mark.parametrize("count", [2, 50])
def test_equal_positions_do_not_support_each_other(count: int) -> None:
    rng = np.random.default_rng(0)
    same, other = np.ones((count, 2), np.float32), scattered(count, rng)
    for xy_a, xy_b in ((same, same), (same, other), (other, same)):
        assert support(xy_a, xy_b).tolist() == [0] * count
        assert not well_supported(xy_a, xy_b).any()


def test_many_candidates_are_thinned_out_by_a_smaller_reach(monkeypatch: pytest.MonkeyPatch) -> None:
    xy_a, xy_b = candidates(600, 9)
    whole = support(xy_a, xy_b)
    monkeypatch.setattr(neighbours, "_MOST_PAIRS", 2**8)
    assert support(xy_a, xy_b).sum() < 0.5 * whole.sum()
