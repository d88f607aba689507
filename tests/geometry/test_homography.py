import numpy as np
import pytest

from featveil.geometry import agreeing

HOMOGRAPHY = np.array([[0.9, 0.1, 20], [-0.05, 1.1, 5], [1e-4, -5e-5, 1]])


def _mapped(xy: np.ndarray[tuple[int, int], np.dtype[np.float64]]) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    seen = np.c_[xy, np.ones(len(xy))] @ HOMOGRAPHY.T
    return np.asarray(seen[:, :2] / seen[:, 2:])


def test_agreeing_finds_the_planted_matches_every_time() -> None:
    rng = np.random.default_rng(0)
    xy = rng.uniform(0, 600, (200, 2))
    there = _mapped(xy)
    there[120:] = rng.uniform(0, 600, (80, 2))
    a, b = xy.astype(np.float32), there.astype(np.float32)
    agree = agreeing(a, b)
    assert agree[:120].all()
    assert agree[120:].sum() <= 3
    np.testing.assert_array_equal(agree, agreeing(a, b))


@pytest.mark.parametrize("count", [0, 1, 3])
def test_fewer_than_four_never_agree(count: int) -> None:
    xy = np.arange(2 * count, dtype=np.float32).reshape(count, 2)
    assert agreeing(xy, xy).tolist() == [False] * count


def test_degenerate_points_do_not_fail() -> None:
    same = np.ones((10, 2), np.float32)
    assert agreeing(same, same).shape == (10,)
    line = np.stack([np.arange(10), np.arange(10)], axis=1).astype(np.float32)
    assert agreeing(line, line).shape == (10,)
