"""Verification: pairs that show one scene pass, others do not, and damaged databases are refused in time."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from colmap_databases import edit
from featveil.core import FormatError, InputError, Matches
from featveil.core.arrays import Integers
from featveil.geometry.match_database import Pair, add_matches, opened, write_images
from featveil.geometry.two_view import Verification, Verified, verify
from posed_scenes import on_surfaces, project
from rooms import FEATURES, Room


def chance(n: int, seed: int = 0) -> Integers:
    """Matches (n, 2) that mean nothing."""
    return np.random.default_rng(seed).integers(0, FEATURES, (n, 2))


def only(indices: Integers) -> Matches:
    return Matches(indices, np.zeros(len(indices), np.float32))


def inliers(path: Path) -> dict[Pair, Integers]:
    """Of each pair that was checked the matches that agree, none when it did not pass."""
    with opened(path) as database:
        names = {image.image_id: image.name for image in database.read_all_images()}
        return {
            (names[one], names[two]): np.asarray(database.read_two_view_geometry(one, two).inlier_matches, np.int64)
            for one in names
            for two in names
            if one < two and database.exists_two_view_geometry(one, two)
        }


@pytest.fixture
def path(tmp_path: Path, room: Room) -> Path:
    """Three views of the room without matches."""
    path = tmp_path / "database.db"
    write_images(path, room.images(room.names[:3]))
    return path


def test_every_pair_of_the_room_passes(room: Room) -> None:
    agreeing = inliers(room.database)
    assert agreeing.keys() == room.matches.keys()
    assert room.verified == Verified(len(room.matches), sum(map(len, agreeing.values())))
    assert room.verified.matches > 0.9 * sum(map(len, room.matches.values()))


def test_verified_matches_show_the_same_places(room: Room) -> None:
    for (first, second), agreeing in inliers(room.database).items():
        given = {tuple(pair) for pair in room.matches[first, second].indices.tolist()}
        assert {tuple(pair) for pair in agreeing.tolist()} <= given
        seen = room.xy(first)[agreeing[:, 0]].astype(np.float64)
        surface = on_surfaces(seen, room.scene.cameras[first], room.scene.poses[first])
        there = project(surface, room.scene.cameras[second], room.scene.poses[second])
        off = np.linalg.norm(there - room.xy(second)[agreeing[:, 1]], axis=1)
        assert (off < 4).mean() > 0.97, (first, second)


def test_pairs_that_do_not_pass_are_not_counted(path: Path, room: Room) -> None:
    first, second, third = room.names[:3]
    good = room.matches[first, second]
    add_matches(path, [((first, second), good), ((first, third), only(chance(20))), ((second, third), only(chance(0)))])
    verified = verify(path, seed=0)
    agreeing = inliers(path)
    assert verified == Verified(1, len(agreeing[first, second]))
    assert len(agreeing[first, third]) == 0
    assert 0.9 * len(good) < verified.matches <= len(good)


def test_wrong_matches_are_sorted_out(path: Path, room: Room) -> None:
    first, second = room.names[:2]
    good = room.matches[first, second].indices
    add_matches(path, [((first, second), only(np.concatenate([good, chance(len(good))])))])
    verify(path, seed=0)
    right = {tuple(pair) for pair in good.tolist()}
    is_right = [tuple(pair) in right for pair in inliers(path)[first, second].tolist()]
    assert sum(is_right) > 0.9 * len(good)
    assert np.mean(is_right) > 0.9


@pytest.mark.parametrize(
    ("options", "pairs"),
    [
        (Verification(min_inlier_ratio=0.1), 1),
        (Verification(min_inlier_ratio=0.5), 0),
        (Verification(min_inliers=100), 1),
        (Verification(min_inliers=400), 0),
        (Verification(max_error=1e-4), 0),
    ],
)
def test_what_a_pair_needs_to_pass(path: Path, room: Room, options: Verification, pairs: int) -> None:
    """A third of the matches is right, about 230 of them."""
    first, second = room.names[:2]
    good = room.matches[first, second].indices
    add_matches(path, [((first, second), only(np.concatenate([good, chance(2 * len(good))])))])
    assert verify(path, options, seed=0).pairs == pairs


def test_a_pair_is_checked_once(path: Path, room: Room) -> None:
    first, second, third = room.names[:3]
    add_matches(path, [((first, second), room.matches[first, second])])
    before = verify(path, seed=0)
    # Nothing could pass now, but what has passed stays.
    assert verify(path, Verification(min_inliers=100_000), seed=0) == before
    add_matches(path, [((first, third), room.matches[first, third])])
    after = verify(path, seed=0)
    assert after.pairs == 2 and after.matches > before.matches


def test_new_matches_of_a_pair_are_checked_again(tmp_path: Path, room: Room) -> None:
    path = tmp_path / "database.db"
    shutil.copy(room.database, path)
    add_matches(path, [((room.names[0], room.names[1]), only(chance(20)))])
    assert verify(path, seed=0).pairs == len(room.matches) - 1


def test_a_seed_gives_the_same_again(tmp_path: Path, room: Room) -> None:
    """Although several threads share the pairs, of which most matches are wrong."""
    four, runs = room.names[:4], []
    noisy = {pair: only(np.concatenate([good.indices, chance(300)])) for pair, good in room.pairs(four).items()}
    for number, seed in enumerate((0, 0, 1)):
        path = tmp_path / f"{number}.db"
        write_images(path, room.images(four))
        add_matches(path, noisy.items())
        verify(path, Verification(iterations=1000), seed)
        runs.append({pair: matches.tolist() for pair, matches in inliers(path).items()})
    assert runs[0] == runs[1]
    assert runs[0] != runs[2]


def test_nothing_to_check(path: Path) -> None:
    assert verify(path) == Verified(0, 0)


@pytest.mark.parametrize(
    "options",
    [
        {"min_inliers": 0},
        {"min_inlier_ratio": 1.1},
        {"min_inlier_ratio": -0.1},
        {"min_inlier_ratio": float("nan")},
        {"iterations": 0},
        {"iterations": 10_000_001},
        {"max_error": 0},
        {"max_error": float("nan")},
    ],
)
def test_bad_options(options: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=r"at least 1 inlier|iterations are"):
        Verification(**options)


def beyond_the_keypoints(path: Path) -> None:
    with opened(path) as database:
        database.delete_matches(1, 2)
        database.write_matches(1, 2, np.array([[0, 0], [0, FEATURES]], np.uint32))


@pytest.mark.parametrize(
    "spoil",
    [
        beyond_the_keypoints,
        "UPDATE keypoints SET rows = rows + 1 WHERE image_id = 2",
        "UPDATE keypoints SET rows = rows * 2, cols = 1 WHERE image_id = 2",
        "DELETE FROM keypoints WHERE image_id = 2",
        "UPDATE matches SET rows = rows + 5",
        "UPDATE cameras SET params = x'00'",
        "UPDATE images SET camera_id = 77 WHERE image_id = 2",
        "DELETE FROM images WHERE image_id = 2",
    ],
)
def test_what_would_end_the_process_is_refused(tmp_path: Path, room: Room, spoil: str | Callable[[Path], None]) -> None:
    """COLMAP reads these in threads of its own, where an error ends the whole process."""
    path = tmp_path / "database.db"
    room.write(path, room.names[:2])
    if callable(spoil):
        spoil(path)
    else:
        edit(path, spoil)
    with pytest.raises(FormatError):
        verify(path, seed=0)
