import os
import sqlite3
import stat
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from featveil.core import FormatError, InputError, PrivacyError
from featveil.core.arrays import Float32, Integers
from featveil.stores.pool import Pool
from pools import descriptors, memory_pool


def first_free(points: Float32, free: Float32, count: int) -> Integers:
    return np.arange(len(points) * count).reshape(len(points), count)


def make(path: Path, photographs: int = 3, each: int = 40) -> Pool:
    return Pool.create(path, "sift", [descriptors(each * number, each) for number in range(photographs)])


POINTS = descriptors(8000, 6)


class TestHiding:
    def test_every_entry_hides_one_point_once(self) -> None:
        pool = memory_pool(start=0, count=200)
        hidden = [pool.hide(descriptors(8000 + 6 * turn, 6), 4, first_free).confounders for turn in range(3)]
        used = np.concatenate(hidden).reshape(-1, 128)
        assert len(np.unique(used, axis=0)) == 3 * 6 * 4
        assert pool.holdings().free == 200 - 72

    def test_the_same_points_are_hidden_in_the_same_way(self) -> None:
        pool = memory_pool(start=0, count=200)
        first = pool.hide(POINTS, 4, first_free)
        again = pool.hide(POINTS[::-1], 4, lambda *_: pytest.fail("nothing is left to choose"))
        assert (first.confounders[::-1] == again.confounders).all()
        assert first.draws.tags[::-1] == again.draws.tags
        assert pool.holdings().free == 200 - 24

    def test_fewer_are_the_first_and_more_add_to_them(self) -> None:
        pool = memory_pool(start=0, count=200)
        four = pool.hide(POINTS, 4, first_free).confounders
        assert (pool.hide(POINTS, 2, first_free).confounders == four[:, :2]).all()
        six = pool.hide(POINTS, 6, first_free).confounders
        assert (six[:, :4] == four).all()
        assert len(np.unique(six.reshape(-1, 128), axis=0)) == 36

    def test_equal_points_share_what_hides_them(self) -> None:
        twice = np.concatenate([POINTS, POINTS[:1]])
        hidden = memory_pool(start=0, count=200).hide(twice, 4, first_free).confounders
        assert (hidden[0] == hidden[-1]).all()
        assert not (hidden[0] == hidden[1]).all()

    def test_no_point(self) -> None:
        assert memory_pool().hide(POINTS[:0], 4, first_free).confounders.shape == (0, 4, 128)

    def test_a_pool_that_is_too_small_says_so_and_loses_nothing(self, tmp_path: Path) -> None:
        pool = make(tmp_path / "device.pool", 1, 20)
        with pytest.raises(PrivacyError, match="20 unused descriptors left and 24 are needed"):
            pool.hide(POINTS, 4, first_free)
        assert pool.holdings().free == 20

    def test_an_interrupted_choice_uses_nothing_up(self, tmp_path: Path) -> None:
        pool = make(tmp_path / "device.pool")

        def interrupted(*_: object) -> Integers:
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            pool.hide(POINTS, 4, interrupted)
        assert pool.holdings().free == 120

    def test_a_refused_release_of_a_study_changes_nothing_either(self) -> None:
        pool = memory_pool(start=0, count=40)
        with pytest.raises(PrivacyError, match="unused descriptors left"):
            pool.hide(descriptors(38, 20), 4, first_free)  # two of them are in the pool, and were to be set apart
        assert pool.holdings().free == 40

    def test_what_hides_is_not_shown_in_a_log(self) -> None:
        assert "array" not in repr(memory_pool(start=0).hide(POINTS, 1, first_free))

    def test_descriptors_of_another_size(self) -> None:
        with pytest.raises(InputError, match="size 128, these have 64"):
            memory_pool().hide(POINTS[:, :64], 4, first_free)


class TestPhotographsOfThePool:
    """What hides others is not released, and what was released hides no other: both would show in two releases."""

    def test_one_whose_descriptors_hide_others_is_refused(self, tmp_path: Path) -> None:
        pool = make(tmp_path / "device.pool")
        pool.hide(POINTS, 4, first_free)  # takes from the first photograph
        with pytest.raises(PrivacyError, match="hide those of others"):
            pool.hide(descriptors(0, 40), 1, first_free)
        assert pool.hide(descriptors(80, 40), 1, first_free).confounders.shape == (40, 1, 128)

    def test_one_that_is_released_hides_nothing_from_then_on(self, tmp_path: Path) -> None:
        pool = make(tmp_path / "device.pool")
        own = descriptors(80, 20)  # half of the third photograph
        hidden = pool.hide(own, 2, first_free).confounders
        assert pool.holdings().free == 120 - 40 - 40
        kept = {row.tobytes() for row in descriptors(80, 40)}
        assert not kept & {row.tobytes() for row in hidden.reshape(-1, 128)}

    def test_a_descriptor_in_common_by_chance_is_no_reason(self, tmp_path: Path) -> None:
        pool = make(tmp_path / "device.pool")
        pool.hide(POINTS, 4, first_free)
        mixed = np.concatenate([descriptors(9000, 20), descriptors(50, 1)])  # one of the second photograph, unused
        hidden = pool.hide(mixed, 2, first_free).confounders
        assert pool.holdings().free == 120 - 24 - 42 - 1
        assert descriptors(50, 1)[0].tobytes() not in {row.tobytes() for row in hidden.reshape(-1, 128)}

    def test_one_of_which_the_pool_has_a_small_part_is_refused_too(self, tmp_path: Path) -> None:
        pool = make(tmp_path / "device.pool", 1, 30)
        pool.hide(POINTS, 4, first_free)
        with pytest.raises(PrivacyError, match="hide those of others"):
            pool.hide(descriptors(0, 400), 1, first_free)

    def test_what_was_released_in_small_part_is_not_added_afterwards(self, tmp_path: Path) -> None:
        pool = make(tmp_path / "device.pool")
        pool.hide(descriptors(8000, 8), 4, first_free)
        assert pool.add([descriptors(8000, 200)]).entries == 120

    def test_of_another_photograph_all_is_added_but_what_was_released(self, tmp_path: Path) -> None:
        pool = make(tmp_path / "device.pool")
        pool.hide(descriptors(8000, 1), 4, first_free)
        assert pool.add([descriptors(8000, 50)]).entries == 120 + 49

    def test_what_was_released_is_not_added_afterwards(self, tmp_path: Path) -> None:
        pool = make(tmp_path / "device.pool")
        pool.hide(POINTS, 4, first_free)
        assert pool.add([POINTS, descriptors(0, 40)]).entries == 120
        assert pool.add([descriptors(9000, 30)]).entries == 150
        assert pool.holdings().photographs == 4


class TestAdding:
    def test_an_interruption_keeps_what_was_added(self, tmp_path: Path) -> None:
        pool = make(tmp_path / "device.pool")

        def photographs() -> Iterator[Float32]:
            yield descriptors(9000, 30)
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            pool.add(photographs())
        assert pool.holdings().entries == 150

    def test_others_may_use_it_meanwhile(self, tmp_path: Path) -> None:
        pool = make(tmp_path / "device.pool")

        def photographs() -> Iterator[Float32]:
            Pool(tmp_path / "device.pool", wait=0).hide(POINTS, 1, first_free)
            yield descriptors(9000, 30)

        assert pool.add(photographs()).free == 120 - 6 + 30


class TestFile:
    def test_it_is_kept_between_processes_and_from_other_users(self, tmp_path: Path) -> None:
        path = tmp_path / "device.pool"
        first = make(path).hide(POINTS, 4, first_free)
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        again = Pool(path).hide(POINTS, 4, first_free)
        assert (first.confounders == again.confounders).all()
        assert (first.draws.uniform("x", 2, 3) == again.draws.uniform("x", 2, 3)).all()

    def test_two_pools_have_different_secrets(self, tmp_path: Path) -> None:
        one, other = (make(tmp_path / name).hide(POINTS, 1, first_free).draws for name in ("a", "b"))
        assert not set(one.tags) & set(other.tags)

    def test_an_existing_file_is_not_replaced(self, tmp_path: Path) -> None:
        path = tmp_path / "device.pool"
        make(path)
        before = path.read_bytes()
        with pytest.raises(InputError, match="exists"):
            make(path)
        assert path.read_bytes() == before

    def test_a_failed_creation_leaves_nothing(self, tmp_path: Path) -> None:
        for photographs in (
            [],
            [np.zeros((3, 128), np.float32)],
            [np.full((3, 128), 1e-30, np.float32)],
            [np.full((3, 128), np.nan, np.float32)],
        ):
            with pytest.raises(InputError):
                Pool.create(tmp_path / "device.pool", "sift", photographs)
            assert list(tmp_path.iterdir()) == []

    @pytest.mark.parametrize(
        "harm",
        [
            "UPDATE entries SET value = substr(value, 1, 511)",
            "UPDATE entries SET value = substr(value, 1, 508) WHERE id = 1",
            "UPDATE entries SET value = 'text'",
            "UPDATE entries SET value = cast(x'0000c07f' || substr(value, 5) AS BLOB)",
            "UPDATE device SET secret = x''",
            "UPDATE device SET secret = 'text'",
            "UPDATE device SET size = 'large'",
            "DELETE FROM device",
        ],
    )
    @pytest.mark.parametrize("used", [False, True])
    def test_damaged_contents(self, tmp_path: Path, harm: str, used: bool) -> None:
        path = tmp_path / "device.pool"
        pool = make(path)
        if used:
            pool.hide(POINTS, 4, first_free)
        connection = sqlite3.connect(path)
        connection.execute(harm)
        connection.commit()
        connection.close()
        with pytest.raises(FormatError, match="damaged"):
            pool.hide(POINTS, 4, first_free)

    def test_lacking_counts_what_is_not_hidden_yet(self, tmp_path: Path) -> None:
        pool = make(tmp_path / "device.pool")
        assert pool.lacking(POINTS, 2) == 2 * len(POINTS)
        pool.hide(POINTS, 2, first_free)
        assert (pool.lacking(POINTS, 2), pool.lacking(POINTS, 3)) == (0, len(POINTS))

    @pytest.mark.skipif(os.getuid() == 0, reason="root may write everywhere")
    def test_a_folder_that_cannot_be_written(self, tmp_path: Path) -> None:
        tmp_path.chmod(0o500)
        with pytest.raises(InputError, match="cannot make pool"):
            make(tmp_path / "device.pool")
        tmp_path.chmod(0o700)

    def test_a_folder_that_is_not_there(self, tmp_path: Path) -> None:
        with pytest.raises(InputError, match="does not exist"):
            make(tmp_path / "nowhere" / "device.pool")
