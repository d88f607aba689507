import numpy as np
import pytest

from featveil.core import InputError, NotFittedError, Points, PrivacyError, SecureRandomness, Subspaces
from featveil.core.arrays import Float64
from featveil.databases import Database, builtin
from featveil.defenses import STRATEGIES, Lifting
from featveil.defenses.lifting import redraw
from featveil.distances import matrix
from featveil.distances.orthonormal import orthonormalise

ZERO = 2e-6  # what float32 storage leaves of an exact zero distance


def faces(n: int, d: int = 24, seed: int = 0) -> Points:
    values = np.random.default_rng(seed).standard_normal((n, d))
    return Points((values / np.linalg.norm(values, axis=1, keepdims=True)).astype(np.float32))


def small_database(entries: int, parts: int = 1, d: int = 24, labels: object = None) -> Database:
    return Database(faces(entries, d, seed=1).values, "face", parts, labels)  # type: ignore[arg-type]


@pytest.mark.parametrize("strategy", [name for name, strategy in STRATEGIES.items() if not strategy.needs_labels])
@pytest.mark.parametrize("m", [2, 3, 8, 16])
def test_each_subspace_contains_its_descriptor(strategy: str, m: int) -> None:
    points = Points(builtin("sift").points()[:50])
    made = Lifting(strategy, m).for_kind("sift").privatize(points, SecureRandomness())
    assert made.basis.shape == (50, m, 128)
    assert made.looseness < 1e-6
    assert matrix(made, points).diagonal().max() < ZERO


@pytest.mark.parametrize("d", [3, 128, 192, 512])
def test_any_descriptor_size(d: int) -> None:
    points = faces(5, d)
    made = Lifting("random", 2).privatize(points, SecureRandomness())
    assert matrix(made, points).diagonal().max() < ZERO


@pytest.mark.parametrize(
    ("strategy", "share", "expected"),
    [("random", None, 0), ("adversarial", None, 4), ("hybrid", None, 2), ("hybrid", 0.25, 3), ("hybrid", 0.0, 4)],
)
def test_adversarial_directions_lead_to_database_entries(strategy: str, share: float | None, expected: int) -> None:
    lifting = Lifting(strategy, 4, random_share=share, database=small_database(60))
    points = faces(20)
    made = lifting.privatize(points, np.random.default_rng(0))
    hits = matrix(made, Points(small_database(60).points())) < ZERO
    assert (hits.sum(axis=1) == expected).all()


def test_confounders_take_the_norm_of_the_descriptor() -> None:
    lifting = Lifting("adversarial", 2, database=small_database(30))
    points = Points(faces(10).values * np.float32(512))
    made = lifting.privatize(points, np.random.default_rng(0))
    hits = matrix(made, Points(small_database(30).points() * np.float32(512))) < 512 * ZERO
    assert (hits.sum(axis=1) == 2).all()


def test_one_sub_database_for_each_image() -> None:
    database = small_database(64, parts=4)
    lifting = Lifting("sub-adversarial", 2, database=database)
    seen = set()
    for seed in range(24):
        made = lifting.privatize(faces(12), np.random.default_rng(seed))
        entries = np.argwhere(matrix(made, Points(database.points())) < ZERO)[:, 1]
        parts = {int(entry) // 16 for entry in entries}
        assert len(parts) == 1
        seen |= parts
    assert seen == {0, 1, 2, 3}


def test_hybrid_plus_draws_other_labels_only() -> None:
    labels = np.arange(60) % 3
    lifting = Lifting("hybrid+", 4, database=small_database(60, labels=labels))
    own = np.arange(30) % 3
    made = lifting.privatize(faces(30), np.random.default_rng(0), own)
    rows, entries = np.nonzero(matrix(made, Points(small_database(60).points())) < ZERO)
    assert len(rows) == 60
    assert (labels[entries] != own[rows]).all()
    assert {(int(own[r]), int(labels[e])) for r, e in zip(rows, entries, strict=True)} == {
        (a, b) for a in range(3) for b in range(3) if a != b
    }


class TestReleaseSafety:
    """What leaves the device is a function of the subspace and fresh randomness, and of nothing else."""

    @staticmethod
    def same_subspace_twice() -> tuple[tuple[Float64, Float64], tuple[Float64, Float64]]:
        """The same 40 subspaces, each reached from another point along other directions."""
        rng = np.random.default_rng(0)
        values, directions = rng.standard_normal((40, 20)), rng.standard_normal((40, 3, 20))
        moved = values + np.einsum("nm,nmd->nd", 5 * rng.standard_normal((40, 3)), directions)
        mixed = rng.standard_normal((40, 3, 3)) @ directions
        orthonormalise(directions)
        orthonormalise(mixed)
        return (values, directions), (moved, mixed)

    def test_release_does_not_depend_on_the_point_or_the_directions(self) -> None:
        first, second = self.same_subspace_twice()
        drawn = np.random.default_rng(7).uniform(-1, 1, (40, 4, 20))
        offset1, basis1 = redraw(*first, drawn)
        offset2, basis2 = redraw(*second, drawn)
        assert np.abs(offset1 - offset2).max() < 1e-10
        assert np.abs(basis1 - basis2).max() < 1e-10

    def test_release_follows_equations_9_and_10(self) -> None:
        (values, directions), _ = self.same_subspace_twice()
        drawn = np.random.default_rng(3).uniform(-1, 1, (40, 4, 20))
        offset, basis = redraw(values, directions, drawn)
        for i in range(40):
            projector = directions[i].T @ directions[i]
            expected_offset = values[i] + projector @ (drawn[i, 0] - values[i])
            raw_basis = [values[i] + projector @ (e - values[i]) - expected_offset for e in drawn[i, 1:]]
            assert np.abs(offset[i] - expected_offset).max() < 1e-12
            triangle = np.array(raw_basis) @ basis[i].T
            assert np.abs(np.triu(triangle, 1)).max() < 1e-12
            assert np.abs(triangle @ basis[i] - raw_basis).max() < 1e-12

    def test_two_releases_of_one_image_differ(self) -> None:
        lifting, points = Lifting("hybrid", 2).for_kind("sift"), Points(builtin("sift").points()[:5])
        first, second = (lifting.privatize(points, SecureRandomness()) for _ in range(2))
        assert np.abs(first.offset - second.offset).min(axis=1).max() > 0

    @pytest.mark.parametrize("strategy", ["random", "hybrid", "sub-hybrid"])
    def test_zeros_of_the_descriptor_do_not_show(self, strategy: str) -> None:
        values = builtin("sift").points()[:40].copy()
        values[:, :60] = 0
        made = Lifting(strategy, 4).for_kind("sift").privatize(Points(values), SecureRandomness())
        assert (made.offset != 0).all()
        assert (made.basis != 0).all()

    def test_the_offset_is_as_far_from_the_descriptor_as_chance(self) -> None:
        """Rank the descriptor among its confounders by distance to the offset: no rank may be favoured."""
        database = small_database(400)
        points = faces(2000, seed=5)
        made = Lifting("adversarial", 3, database=database).privatize(points, np.random.default_rng(1))
        entries = Points(database.points())
        confounders = np.argwhere(matrix(made, entries) < ZERO).reshape(2000, 3, 2)[:, :, 1]
        members = np.concatenate([points.values[:, None], entries.values[confounders]], axis=1)
        to_offset = np.linalg.norm(members - made.offset[:, None], axis=2)
        rank_of_truth = (to_offset < to_offset[:, :1]).sum(axis=1)
        counts = np.bincount(rank_of_truth, minlength=4)
        assert np.abs(counts - 500).max() < 5 * np.sqrt(2000 * 0.25 * 0.75)


class TestRefusals:
    def test_unknown_strategy_lists_the_valid_ones(self) -> None:
        with pytest.raises(InputError, match="sub-hybrid"):
            Lifting("sub-hybird")

    @pytest.mark.parametrize("dimension", [0, -1, 2.5, True])
    def test_dimension_must_be_a_whole_number(self, dimension: object) -> None:
        with pytest.raises(InputError, match="dimension"):
            Lifting(dimension=dimension)  # type: ignore[arg-type]

    def test_random_share_out_of_range(self) -> None:
        with pytest.raises(InputError, match="random_share"):
            Lifting(random_share=1.5)

    def test_random_share_that_contradicts_the_strategy(self) -> None:
        with pytest.raises(InputError, match="use a hybrid strategy"):
            Lifting("random", random_share=0.0)
        with pytest.raises(InputError, match="use a hybrid strategy"):
            Lifting("sub-adversarial", random_share=0.5)

    def test_a_file_name_is_not_a_database(self) -> None:
        with pytest.raises(InputError, match="load_database"):
            Lifting(database="mine.safetensors")  # type: ignore[arg-type]

    def test_lines_on_unit_vectors_only_by_name(self) -> None:
        points = faces(4)
        with pytest.raises(PrivacyError, match="two points"):
            Lifting("random", 1).privatize(points, SecureRandomness())
        made = Lifting("random", 1, allow_line=True).privatize(points, SecureRandomness())
        assert made.dimension == 1
        stretched = Points(points.values * np.array([[1], [2], [3], [4]], np.float32))
        assert Lifting("random", 1).privatize(stretched, SecureRandomness()).dimension == 1

    def test_dimension_as_large_as_the_descriptor(self) -> None:
        with pytest.raises(InputError, match="below the descriptor size 24"):
            Lifting("random", 24).privatize(faces(2), SecureRandomness())

    def test_database_too_small(self) -> None:
        with pytest.raises(InputError, match="3 are there"):
            Lifting("adversarial", 4, database=small_database(3)).privatize(faces(2), SecureRandomness())
        with pytest.raises(InputError, match="4 different database entries"):
            Lifting("sub-adversarial", 4, database=small_database(12, parts=4)).privatize(faces(2), SecureRandomness())
        uneven = Lifting("sub-adversarial", 4, database=small_database(15, parts=4))
        for seed in range(10):  # three of the four parts would do
            with pytest.raises(InputError, match="3 are there"):
                uneven.privatize(faces(2), np.random.default_rng(seed))

    def test_database_of_another_kind_or_size(self) -> None:
        with pytest.raises(InputError, match="holds face descriptors, the features are sift"):
            Lifting(database=small_database(20)).for_kind("sift")
        with pytest.raises(InputError, match="size 24, descriptors 30"):
            Lifting("adversarial", 2, database=small_database(20)).privatize(faces(2, 30), SecureRandomness())
        with pytest.raises(NotFittedError):
            Lifting().privatize(faces(2), SecureRandomness())
        with pytest.raises(InputError, match="no built-in database"):
            Lifting().for_kind("face")

    def test_hybrid_plus_without_labels(self) -> None:
        with pytest.raises(InputError, match="labels"):
            Lifting("hybrid+", database=small_database(20)).privatize(faces(2), SecureRandomness())

    def test_zero_norm(self) -> None:
        with pytest.raises(InputError, match="descriptor 1 has zero norm"):
            Lifting("random").privatize(Points(np.array([[1, 0, 0, 0, 0, 0], [0] * 6])), SecureRandomness())

    def test_database_that_is_the_descriptor(self) -> None:
        points = faces(1)
        twins = Database(np.repeat(points.values, 5, axis=0), "face", 1)
        with pytest.raises(InputError, match="coincide"):
            Lifting("adversarial", 2, database=twins).privatize(points, SecureRandomness())


def test_no_features_give_no_subspaces() -> None:
    made = Lifting("random", 3).privatize(Points(np.empty((0, 8), np.float32)), SecureRandomness())
    assert isinstance(made, Subspaces)
    assert len(made) == 0
