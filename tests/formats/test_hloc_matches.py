"""hloc's matches.h5: its layout, resuming, and which of several candidates stays."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from featveil.core import Features, FormatError, InputError, Keypoints, Matches, Points
from featveil.formats import hloc, hloc_matches


def some(*rows: tuple[int, int, float]) -> Matches:
    table = np.array(rows).reshape(-1, 3)
    return Matches(table[:, :2].astype(np.int64), table[:, 2].astype(np.float32))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "matches.h5"


def test_the_layout(path: Path) -> None:
    dropped = hloc_matches.write(path, [(("q/1.jpg", "db/2.jpg"), 4, some((0, 40_000, 0.0), (2, 1, 3.0)))])
    assert dropped == 0
    with h5py.File(path, "r") as file:
        group = file["q-1.jpg"]["db-2.jpg"]
        assert set(group) == {"matches0", "matching_scores0"}
        assert group["matches0"].dtype == np.int32 and group["matches0"][()].tolist() == [40_000, -1, 1, -1]
        assert group["matching_scores0"].dtype == np.float32
        assert group["matching_scores0"][()].tolist() == [1, 0, 0.25, 0]
    assert set(hloc_matches.pairs_in(path)) == {("q-1.jpg", "db-2.jpg")}


def test_read_in_either_order(path: Path) -> None:
    hloc_matches.write(path, [(("q/1.jpg", "db/2.jpg"), 4, some((0, 9, 0.0), (2, 1, 3.0)))])
    indices, scores = hloc_matches.read(path, "q/1.jpg", "db/2.jpg")
    assert (indices.tolist(), scores.tolist()) == ([[0, 9], [2, 1]], [1, 0.25])
    flipped, same = hloc_matches.read(path, "db/2.jpg", "q/1.jpg")
    assert (flipped.tolist(), same.tolist()) == ([[9, 0], [1, 2]], [1, 0.25])
    with pytest.raises(InputError, match="no matches of"):
        hloc_matches.read(path, "q/1.jpg", "db/3.jpg")


def test_the_nearest_candidate_stays(path: Path) -> None:
    """Compared with a plain loop; of equally near ones the lowest index stays."""
    rng = np.random.default_rng(0)
    indices = np.stack([rng.integers(0, 20, 200), rng.integers(0, 30, 200)], axis=1)
    distances = (rng.integers(0, 5, 200) / 4).astype(np.float32)
    best: dict[int, tuple[float, int]] = {}
    for (first, second), distance in zip(indices.tolist(), distances.tolist(), strict=True):
        best[first] = min(best.get(first, (9.0, 0)), (distance, second))
    dropped = hloc_matches.write(path, [(("a", "b"), 22, Matches(indices, distances))] * 2)
    assert dropped == 2 * (200 - len(best))
    matches, scores = hloc_matches.read(path, "a", "b")
    assert matches.tolist() == [[first, best[first][1]] for first in sorted(best)]
    assert np.allclose(scores, [1 / (1 + best[first][0]) for first in sorted(best)])


def test_no_matches_is_a_result(path: Path) -> None:
    hloc_matches.write(path, [(("a", "b"), 3, some()), (("a", "c"), 0, some())])
    assert set(hloc_matches.pairs_in(path)) == {("a", "b"), ("a", "c")}
    indices, scores = hloc_matches.read(path, "a", "b")
    assert indices.shape == (0, 2) and len(scores) == 0


def test_a_pair_is_there_once(path: Path) -> None:
    hloc_matches.write(path, [(("a", "b"), 3, some((0, 1, 0))), (("c", "a"), 3, some((1, 1, 0)))])
    hloc_matches.write(path, [(("b", "a"), 3, some((2, 2, 0)))])
    assert set(hloc_matches.pairs_in(path)) == {("b", "a"), ("c", "a")}
    assert hloc_matches.read(path, "a", "b")[0].tolist() == [[2, 2]]
    assert hloc_matches.read(path, "c", "a")[0].tolist() == [[1, 1]]


def test_interrupted_writing_changes_nothing(path: Path) -> None:
    hloc_matches.write(path, [(("a", "b"), 3, some())])
    before = path.read_bytes()

    def breaks_off() -> Iterator[Any]:
        yield ("a", "c"), 3, some()
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        hloc_matches.write(path, breaks_off())
    assert path.read_bytes() == before and list(path.parent.iterdir()) == [path]


def test_names_that_become_the_same() -> None:
    hloc_matches.check_names(["a/b", "a/c", "a/b"])
    assert hloc_matches.escaped("a/b/c.jpg") == "a-b-c.jpg"
    with pytest.raises(InputError, match="are the same in a matches file"):
        hloc_matches.check_names(["a/b", "x", "a-b"])


@pytest.mark.parametrize(
    ("names", "n0", "matches", "message"),
    [
        (("a", "b"), 3, some((3, 0, 0)), "match indices must be 0 to 2"),
        (("a", "b"), 3, some((-1, 0, 0)), "match indices"),
        (("a", "b"), 3, some((0, -1, 0)), "match indices"),
        (("a", "b"), 3, some((0, 2**31, 0)), "match indices"),
        (("a", "b"), 3, some((0, 0, -1)), "negative distance"),
        (("a", "a"), 3, some(), "paired with itself"),
        (("a/b", "a-b"), 3, some(), "the same in a matches file"),
        (("..", "b"), 3, some(), "relative path"),
    ],
)
def test_unusable_items(path: Path, names: tuple[str, str], n0: int, matches: Matches, message: str) -> None:
    with pytest.raises(InputError, match=message):
        hloc_matches.write(path, [(("x", "y"), 1, some()), (names, n0, matches)])
    assert not path.exists()


def test_a_file_of_features_is_not_added_to(path: Path) -> None:
    values, xy = np.ones((1, 4), np.float32), np.ones((1, 2), np.float32)
    hloc.write_features(path, [("a", Features(Points(values), "sift", Keypoints(xy)))])
    before = path.read_bytes()
    with pytest.raises(InputError, match="holds features"):
        hloc_matches.write(path, [(("a", "b"), 1, some())])
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("matches0", np.array([[1, 2, 3]]), "shape"),
        ("matches0", np.array([0.5, 1, 2]), "whole numbers"),
        ("matches0", np.array([-2, 0, 0]), "below -1"),
        ("matching_scores0", np.zeros(2), "shape"),
    ],
)
def test_damaged_content(path: Path, name: str, data: Any, message: str) -> None:
    hloc_matches.write(path, [(("a", "b"), 3, some((0, 1, 0)))])
    with h5py.File(path, "r+") as file:
        del file["a/b"][name]
        file["a/b"].create_dataset(name, data=data)
    with pytest.raises(FormatError, match=message):
        hloc_matches.read(path, "a", "b")


def test_files_of_hloc_itself(path: Path) -> None:
    """16-bit numbers, and sometimes no scores."""
    with h5py.File(path, "w") as file:
        file.create_dataset("a/b/matches0", data=np.array([-1, 5], np.int16))
        file.create_dataset("a/c/matches0", data=np.array([-1, 5], np.int16))
        file.create_dataset("a/c/matching_scores0", data=np.array([0, 0.5], np.float16))
    assert hloc_matches.read(path, "a", "b")[0].tolist() == [[1, 5]]
    assert hloc_matches.read(path, "a", "c")[1].tolist() == [0.5]


def test_unusable_files(path: Path) -> None:
    with pytest.raises(InputError, match="does not exist"):
        hloc_matches.pairs_in(path)
    path.write_text("text")
    for use in (
        lambda: hloc_matches.pairs_in(path),
        lambda: hloc_matches.read(path, "a", "b"),
        lambda: hloc_matches.write(path, []),
    ):
        with pytest.raises(FormatError, match="not an HDF5 file"):
            use()
