import numpy as np
import pytest

from featveil.attacks.discriminator_parts.ranking import distinguish
from featveil.core import Randomness
from featveil.core.arrays import Float32, Float64, Integers
from featveil.databases.entries import unit_rows
from featveil.defenses.balance import Balance
from pools import descriptors

SPARSE, DENSE = 30, 0  # zeros that are put into made-up descriptors


def sort_of(rng: np.random.Generator, n: int, zeros: int) -> Float32:
    """Made-up descriptors with about that many zeros more than usual."""
    values = rng.gamma(0.8, 1.0, (n, 128)).astype(np.float32)
    few = rng.binomial(60, 0.5, n) + zeros
    values[np.argsort(rng.random((n, 128)), axis=1) < few[:, None]] = 0
    return unit_rows(values)


def chosen(points: Float32, free: Float32, count: int = 4, seed: int = 0) -> Float32:
    return free[Balance("sift").choose(points, free, count, np.random.default_rng(seed))]


def test_every_row_is_chosen_once() -> None:
    rows = Balance("sift").choose(descriptors(0, 50), descriptors(50, 220), 4, np.random.default_rng(0))
    assert rows.shape == (50, 4)
    assert len(np.unique(rows)) == 200


def test_a_pool_with_none_to_spare() -> None:
    rows = Balance("sift").choose(descriptors(0, 50), descriptors(50, 200), 4, np.random.default_rng(0))
    assert (np.sort(rows.ravel()) == np.arange(200)).all()


@pytest.mark.parametrize("n", [1, 2])
def test_few_points(n: int) -> None:
    assert chosen(descriptors(0, n), descriptors(50, 200)).shape == (n, 4, 128)


def test_other_sizes_and_kinds_of_descriptors() -> None:
    rng = np.random.default_rng(0)
    faces, others = rng.standard_normal((20, 64)).astype(np.float32), rng.standard_normal((400, 64)).astype(np.float32)
    assert Balance("face").choose(faces, others, 3, rng).shape == (20, 3)


def test_what_tells_photographs_from_the_pool_is_balanced() -> None:
    rng = np.random.default_rng(1)
    points = sort_of(rng, 300, SPARSE)
    free = np.concatenate([sort_of(rng, 6000, DENSE), sort_of(rng, 2500, SPARSE)])
    zeros = (chosen(points, free) == 0).sum(axis=2)
    blind = (free[rng.permutation(len(free))[:1200]] == 0).sum(axis=1)
    own = (points == 0).sum(axis=1)
    assert abs(zeros.mean() - own.mean()) < 1.5
    assert own.mean() - blind.mean() > 15


def test_a_ranker_that_learned_the_difference_gains_nothing() -> None:
    """It picks the true one at once where confounders are drawn blindly."""
    rng = np.random.default_rng(2)
    sparse, pools = (sort_of(rng, 900, SPARSE), [sort_of(rng, 9000, SPARSE - 6) for _ in range(2)])
    success = {}
    for name in ("balanced", "blind"):
        lists = []
        for points, pool in zip((sparse[:300], sparse[300:600]), pools, strict=True):
            drawn = chosen(points, pool) if name == "balanced" else pool[:1200].reshape(300, 4, 128)
            lists.append(np.concatenate([points[:, None], drawn], axis=1))
        success[name] = distinguish(lists[0], lists[1], sparse[600:], "sift", rng).success
    assert success["blind"] > 0.35
    assert success["balanced"] < 0.3


def test_the_order_of_confounders_says_nothing() -> None:
    """A release with fewer takes the first ones: these must be like the others."""

    class ByRow(Balance):
        def _scores(self, points: Float32, free: Float32, rng: Randomness) -> tuple[Float64, Float64]:
            return np.linspace(0, 80, len(points)), np.linspace(0, 80, len(free))

    rng = np.random.default_rng(4)
    first, *_, last = ByRow("sift").choose(descriptors(0, 1000), descriptors(1000, 9000), 4, rng).T
    assert abs((first < last).mean() - 0.5) < 0.05  # three standard deviations


def test_the_true_one_is_not_in_the_middle() -> None:
    """The rank of the true descriptor's zeros among its confounders' is uniform: a centred window would show."""
    rng = np.random.default_rng(3)
    points, free = sort_of(rng, 1000, 10), sort_of(rng, 20_000, 10)
    zeros = (chosen(points, free) == 0).sum(axis=2) + rng.random((1000, 4)) * 0.5
    rank = (zeros < ((points == 0).sum(axis=1) + rng.random(1000) * 0.5)[:, None]).sum(axis=1)
    shares = np.bincount(rank, minlength=5) / 1000
    assert shares.max() < 0.27
    assert shares.min() > 0.13


def test_a_single_point_is_not_in_the_middle_of_its_confounders() -> None:
    """A score fitted to it is about it, and what it chooses resembles it more than each other."""
    rng = np.random.default_rng(4)
    points, free = sort_of(rng, 300, 10), sort_of(rng, 2000, 10)
    central = 0
    for start in range(300):
        some = points[start : start + 1]
        together = np.concatenate([some[:, None], chosen(some, free, seed=start)], axis=1)
        away = np.linalg.norm(together[:, :, None] - together[:, None], axis=3).sum(axis=2)
        central += int((away.argmin(axis=1) == 0).sum())
    assert central < 90  # 60 by chance


def test_few_points_have_any_confounders() -> None:
    rng = np.random.default_rng(5)
    points = sort_of(rng, 24, SPARSE)
    free = np.concatenate([sort_of(rng, 3000, DENSE), sort_of(rng, 1000, SPARSE)])
    few, enough = ((chosen(some, free) == 0).sum(axis=2).mean() for some in (points[:23], points))
    usual = (free == 0).sum(axis=1).mean()
    assert abs(few - usual) < 6
    assert enough - usual > 12


def test_a_window_that_begins_at_the_point_is_widened_all_the_same() -> None:
    class Zeros:
        """Of which every share is 0."""

        def __init__(self) -> None:
            self.rng = np.random.default_rng(0)

        def random(self, size: tuple[int, ...], /, dtype: type[np.float32]) -> Float32:
            return np.zeros(size, dtype)

        def integers(self, low: int, high: int, /, size: tuple[int, ...]) -> Integers:
            return self.rng.integers(low, high, size=size)

    rows = Balance("sift").choose(descriptors(0, 50), descriptors(50, 200), 4, Zeros())
    assert (np.sort(rows.ravel()) == np.arange(200)).all()
