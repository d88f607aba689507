import numpy as np
import pytest

from featveil.core import InputError, NotFittedError, Points, PrivacyError, Subspaces
from featveil.core.arrays import Float32
from featveil.defenses import Hardened, privatize
from featveil.distances import matrix, nearest
from featveil.metrics import align
from pools import descriptors, memory_pool
from victims import picture

DITHER = 6.5 / 512  # by which a descriptor of 128 components is moved: sqrt(128 / 12) half steps


def lift(defense: Hardened, points: Float32, seed: int = 0) -> Subspaces:
    return defense.privatize(Points(points), np.random.default_rng(seed))


def used(defense: Hardened, points: Float32) -> Float32:
    """The confounders (n, k, d) that hide `points`, as the pool remembers them."""
    assert defense.pool is not None
    return defense.pool.hide(points, defense.confounders, lambda *_: pytest.fail("these were never lifted")).confounders


class TestSubspaces:
    def test_they_hold_the_descriptor_and_its_confounders_all_dithered(self) -> None:
        points = descriptors(0, 30)
        defense = Hardened(4, 16, memory_pool())
        lifted = lift(defense, points)
        assert (lifted.dimension, len(lifted)) == (16, 30)
        everyone = np.concatenate([points[:, None], used(defense, points)], axis=1)
        away = np.array([matrix(Points(everyone[i]), lifted.take(np.array([i])))[:, 0] for i in range(30)])
        # Of the movement, only the part across the subspace is seen.
        assert away.min() > 0.3 * DITHER
        assert away.max() < 1.5 * DITHER
        assert abs(away[:, 0].mean() - away[:, 1:].mean()) < 0.1 * DITHER

    def test_neither_whole_numbers_nor_zeros_are_left(self) -> None:
        points = descriptors(0, 30)
        lifted = lift(Hardened(4, 16, memory_pool()), points)
        exact = nearest(lifted, Points(points), 1)
        assert exact.distances.min() > 1e-3

    def test_confounders_take_the_norm_of_the_descriptor(self) -> None:
        points = 3 * descriptors(0, 5)
        defense = Hardened(2, 4, memory_pool())
        lifted = lift(defense, points)
        near = matrix(Points(3 * used(defense, points)[0]), lifted.take(np.array([0])))
        assert near.max() < 3 * 1.5 * DITHER

    def test_where_the_descriptor_lies_does_not_show(self) -> None:
        """The offset is where a uniform point projects to: as near to a confounder as to the true descriptor."""
        points = descriptors(0, 400)
        defense = Hardened(2, 8, memory_pool())
        lifted = lift(defense, points)
        true = np.linalg.norm(lifted.offset - points, axis=1)
        false = np.linalg.norm(lifted.offset - used(defense, points)[:, 0], axis=1)
        assert abs((true < false).mean() - 0.5) < 0.08


class TestSentTwice:
    def test_the_same_photograph_gives_the_same_subspaces(self) -> None:
        defense = Hardened(4, 16, memory_pool())
        first, second = (lift(defense, descriptors(0, 20), seed) for seed in (1, 2))
        assert (first.offset == second.offset).all()
        assert (first.basis == second.basis).all()

    @pytest.mark.parametrize("other", [(2, 8), (4, 8), (1, 13)])
    def test_with_fewer_of_both_they_are_nested(self, other: tuple[int, int]) -> None:
        pool, points = memory_pool(), descriptors(0, 10)
        large, small = lift(Hardened(4, 16, pool), points), lift(Hardened(*other, pool), points)
        for i in range(10):
            # Every direction of the smaller one lies in the larger, and so does its offset.
            shown = np.concatenate([small.basis[i], (small.offset[i] - large.offset[i])[None]])
            rest = shown - shown @ large.basis[i].T @ large.basis[i]
            assert np.abs(rest).max() < 1e-5

    def test_with_fewer_of_one_they_share_the_smaller_numbers(self) -> None:
        """12 random directions and 2 confounders in common, where unrelated lifts would share the point alone."""
        pool, points = memory_pool(), descriptors(0, 10)
        one, other = lift(Hardened(4, 16, pool), points), lift(Hardened(2, 16, pool), points)
        shared = np.linalg.svd(one.basis @ other.basis.transpose(0, 2, 1), compute_uv=False) > 1 - 1e-5
        assert (shared.sum(axis=1) == 14).all()

    def test_another_device_gives_others(self) -> None:
        points = descriptors(0, 10)
        pools = memory_pool(0, 2000), memory_pool(1, 8000)
        one, other = (lift(Hardened(4, 16, pool), points) for pool in pools)
        shared = np.linalg.svd(one.basis @ other.basis.transpose(0, 2, 1), compute_uv=False)
        assert (shared < 0.99).all()


class TestRelease:
    def test_of_a_picture(self) -> None:
        raw = picture(0, count=100)
        defense = Hardened(3, 8, memory_pool())
        private = privatize(raw, defense)
        assert private.defense == {"name": "hardened", "dimension": 8, "confounders": 3, "random_directions": 5}
        assert private.guarantee.kind == "empirical"
        assert (np.sort(align(private, raw).rows) == np.arange(100)).all()

    def test_a_pool_used_up(self) -> None:
        defense = Hardened(4, 16, memory_pool(count=50))
        privatize(picture(0, count=12), defense)
        with pytest.raises(PrivacyError, match="unused descriptors left"):
            privatize(picture(1, count=12), defense)


class TestBadInput:
    @pytest.mark.parametrize(
        ("parameters", "message"),
        [
            ({"confounders": 0}, "confounders must be a whole number"),
            ({"dimension": True}, "dimension must be a whole number"),
            ({"confounders": 5, "dimension": 4}, "5 confounders need a dimension"),
            ({"pool": "device.pool"}, "pool must be a Pool"),
        ],
    )
    def test_parameters(self, parameters: dict[str, object], message: str) -> None:
        with pytest.raises(InputError, match=message):
            Hardened(**parameters)  # type: ignore[arg-type]

    def test_no_pool(self) -> None:
        with pytest.raises(NotFittedError, match="featveil pool create"):
            Hardened().for_kind("sift")
        with pytest.raises(NotFittedError, match="featveil pool create"):
            lift(Hardened(), descriptors(0, 2))

    def test_a_pool_of_another_kind(self) -> None:
        with pytest.raises(InputError, match="holds sift descriptors, the features are rootsift"):
            Hardened(pool=memory_pool()).for_kind("rootsift")

    def test_a_descriptor_without_direction_uses_nothing_up(self) -> None:
        pool, points = memory_pool(), descriptors(0, 3).copy()
        points[1] = 0
        with pytest.raises(InputError, match="descriptor 1 has zero norm"):
            lift(Hardened(4, 16, pool), points)
        assert pool.holdings().free == 4000

    def test_too_large_a_dimension(self) -> None:
        with pytest.raises(InputError, match="below the descriptor size 128"):
            lift(Hardened(4, 128, memory_pool()), descriptors(0, 2))
