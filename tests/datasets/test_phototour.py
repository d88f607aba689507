"""Patch sets in the layout of PhotoTour: read as others write them, written as others read them, and hostile ones."""

import struct
from pathlib import Path

import cv2
import numpy as np
import pytest

from featveil.core import DatasetError, InputError
from featveil.datasets import PatchPairs, load_phototour, phototour, write_phototour
from featveil.datasets.phototour_writing import writing_phototour
from featveil.extractors.patch_cutting import Patches

COUNT = 300  # two sheets, the second not full


@pytest.fixture(scope="module")
def patches() -> Patches:
    return np.random.default_rng(0).integers(0, 256, (COUNT, 64, 64), np.uint8)


@pytest.fixture
def points() -> np.ndarray:
    return np.arange(COUNT) // 3


@pytest.fixture
def pairs() -> PatchPairs:
    return PatchPairs(np.array([0, 4, 299]), np.array([2, 9, 297]), np.array([True, False, True]))


@pytest.fixture
def folder(tmp_path: Path, patches: Patches) -> Path:
    """A set as the downloads are, written here by plain means."""
    made = tmp_path / "liberty"
    made.mkdir()
    for number in range(2):
        sheet = np.zeros((1024, 1024), np.uint8)
        for place, patch in enumerate(patches[256 * number : 256 * number + 256]):
            row, column = divmod(place, 16)
            sheet[64 * row : 64 * row + 64, 64 * column : 64 * column + 64] = patch
        cv2.imwrite(str(made / f"patches000{number}.bmp"), sheet)
    (made / "info.txt").write_text("".join(f"{place // 3} 0\n" for place in range(COUNT)))
    (made / "interest.txt").write_text("1 2 3 4 5\n")
    (made / "m50_1000_1000_0.txt").write_text("0 0 0 2 0 0 0 \n4 1 0 9 3 0 0 \n299 99 0 297 99 0 0 \n")
    (made / "m50_500_500_0.txt").write_text("0 0 0 1 0 0 0\n")
    return made


def test_a_set_as_it_is_downloaded(folder: Path, patches: Patches) -> None:
    found = load_phototour(folder)
    assert (found.name, len(found), found.card) == ("liberty", COUNT, {})
    assert np.array_equal(found.points, np.arange(COUNT) // 3)
    assert found.pairs is not None and len(found.pairs) == 3
    assert (found.pairs.first.tolist(), found.pairs.second.tolist()) == ([0, 4, 299], [2, 9, 297])
    assert found.pairs.match.tolist() == [True, False, True]
    assert np.array_equal(found.read(), patches)
    assert np.array_equal(found.read([299, 0, 17, 256, 0]), patches[[299, 0, 17, 256, 0]])
    assert np.array_equal(np.concatenate(list(found.blocks(1))), patches)
    assert found.read(np.empty(0, np.int64)).shape == (0, 64, 64)


def test_which_pairs_are_taken(folder: Path) -> None:
    assert len(load_phototour(folder, "m50_500_500_0.txt").pairs or []) == 1
    (folder / "m50_100000_100000_0.txt").write_text("1 0 0 2 0 0 0\n5 1 0 9 3 0 0\n")
    (folder / "m50_500000_500000_0.txt").write_text("1 0 0 2 0 0 0\n")
    assert len(load_phototour(folder).pairs or []) == 2
    for path in folder.glob("m50*"):
        path.unlink()
    assert load_phototour(folder).pairs is None
    for name in ("m50_500_500_0.txt", "../liberty/info.txt"):
        with pytest.raises(DatasetError, match="no file of pairs"):
            load_phototour(folder, name)


def test_only_sheets_that_are_needed_are_read(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    real = phototour._read_sheet

    def noted(path: Path) -> Patches:
        read.append(path.name)
        return real(path)

    monkeypatch.setattr(phototour, "_read_sheet", noted)
    found = load_phototour(folder)
    assert read == []
    found.read([3, 200, 7])
    assert read == ["patches0000.bmp"]
    (folder / "patches0001.bmp").write_bytes(b"")
    found.read([255])
    with pytest.raises(DatasetError, match=r"patches0001\.bmp"):
        found.read([256])


@pytest.mark.parametrize("index", [-1, COUNT])
def test_patches_that_there_are_not(folder: Path, index: int) -> None:
    with pytest.raises(InputError, match="0 to 299"):
        load_phototour(folder).read([index])


@pytest.mark.parametrize(
    "content", ["", " \n ", "1\n2\n", "1 2 3\n", "0 0\n1\n", "0 0\nx 0\n", "0.5 0\n", "9" * 30 + " 0\n", "\0"]
)
def test_damaged_lists_of_patches(folder: Path, content: str) -> None:
    (folder / "info.txt").write_text(content)
    with pytest.raises(DatasetError, match=r"info\.txt"):
        load_phototour(folder)


@pytest.mark.parametrize("content", ["", "0 0 0 2 0 0\n", "0 0 0 300 0 0 0\n", "-1 0 0 2 0 0 0\n", "a b c d e f g\n"])
def test_damaged_lists_of_pairs(folder: Path, content: str) -> None:
    (folder / "m50_1000_1000_0.txt").write_text(content)
    with pytest.raises(DatasetError, match="m50_1000"):
        load_phototour(folder)


def test_folders_that_are_incomplete(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match="not a folder"):
        load_phototour(tmp_path / "none")
    with pytest.raises(DatasetError, match=r"info\.txt"):
        load_phototour(tmp_path)
    (folder / "patches0001.bmp").unlink()
    with pytest.raises(DatasetError, match=r"lacks patches0001\.bmp: info\.txt lists 300"):
        load_phototour(folder)
    (folder / "info.txt").unlink()
    (folder / "info.txt").mkdir()
    with pytest.raises(DatasetError, match=r"info\.txt"):
        load_phototour(folder)


def header(width: int, height: int) -> bytes:
    """The beginning of a bitmap that claims a size."""
    return b"BM" + struct.pack("<IHHI", 54, 0, 0, 54) + struct.pack("<IiiHHIIiiII", 40, width, height, 1, 24, *[0] * 6)


@pytest.mark.parametrize("content", [b"", b"BM", b"text", header(1024, 512), header(30000, 30000), header(1024, 1024)])
def test_sheets_that_are_none(folder: Path, content: bytes) -> None:
    (folder / "patches0000.bmp").write_bytes(content)
    found = load_phototour(folder)
    with pytest.raises(DatasetError, match=r"patches0000\.bmp"):
        found.read([0])


def test_a_picture_that_is_only_called_a_sheet(folder: Path) -> None:
    encoded = cv2.imencode(".png", np.zeros((1024, 1024), np.uint8))[1]
    (folder / "patches0000.bmp").write_bytes(encoded.tobytes())
    with pytest.raises(DatasetError, match="no bitmap"):
        load_phototour(folder).read([0])


@pytest.mark.parametrize("content", ["", "[1]", "{", "[" * 10**6])
def test_damaged_cards(folder: Path, content: str) -> None:
    (folder / "card.json").write_text(content)
    with pytest.raises(DatasetError, match=r"card\.json"):
        load_phototour(folder)


def test_what_is_written_is_what_is_read(
    tmp_path: Path, patches: Patches, points: np.ndarray, pairs: PatchPairs
) -> None:
    write_phototour(tmp_path / "own", patches, points, pairs, {"made": "here"})
    names = {path.name for path in (tmp_path / "own").iterdir()}
    assert names == {"patches0000.bmp", "patches0001.bmp", "info.txt", "m50_2_1_0.txt", "card.json"}
    found = load_phototour(tmp_path / "own")
    assert np.array_equal(found.read(), patches) and np.array_equal(found.points, points)
    assert found.card == {"made": "here"} and found.pairs is not None
    for name in ("first", "second", "match"):
        assert np.array_equal(getattr(found.pairs, name), getattr(pairs, name))


def test_the_files_are_those_of_the_layout(
    folder: Path, tmp_path: Path, patches: Patches, points: np.ndarray, pairs: PatchPairs
) -> None:
    write_phototour(tmp_path / "own", patches, points, pairs)
    assert (tmp_path / "own" / "info.txt").read_text() == (folder / "info.txt").read_text()
    lines = (tmp_path / "own" / "m50_2_1_0.txt").read_text().splitlines()
    assert lines == [line.strip() for line in (folder / "m50_1000_1000_0.txt").read_text().splitlines()]
    for name in ("patches0000.bmp", "patches0001.bmp"):
        ours, theirs = (cv2.imread(str(where / name), cv2.IMREAD_UNCHANGED) for where in (tmp_path / "own", folder))
        assert ours is not None and ours.shape == (1024, 1024) and np.array_equal(ours, np.asarray(theirs))


def test_blocks_of_any_size_make_the_same_files(tmp_path: Path, patches: Patches, points: np.ndarray) -> None:
    write_phototour(tmp_path / "whole", patches, points)
    with writing_phototour(tmp_path / "parts") as writer:
        for start, end in ((0, 1), (1, 1), (1, 290), (290, 300)):
            writer.add(patches[start:end], points[start:end])
        writer.finish()
    for path in (tmp_path / "whole").iterdir():
        assert (tmp_path / "parts" / path.name).read_bytes() == path.read_bytes()


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError, InputError])
def test_no_half_folder(tmp_path: Path, patches: Patches, points: np.ndarray, error: type[BaseException]) -> None:
    def write(overwrite: bool) -> None:
        with (
            pytest.raises(InputError if error is OSError else error),
            writing_phototour(tmp_path / "own", overwrite) as writer,
        ):
            writer.add(patches, points)
            raise error("stop")

    write(overwrite=False)
    assert list(tmp_path.iterdir()) == []
    write_phototour(tmp_path / "own", patches[:5], points[:5])
    write(overwrite=True)
    assert [path.name for path in tmp_path.iterdir()] == ["own"]
    assert len(load_phototour(tmp_path / "own")) == 5


def test_folders_that_are_there(tmp_path: Path, patches: Patches, points: np.ndarray) -> None:
    own, other, file = tmp_path / "own", tmp_path / "other", tmp_path / "file"
    own.mkdir()
    write_phototour(own, patches[:5], points[:5])
    with pytest.raises(InputError, match="--overwrite"):
        write_phototour(own, patches, points)
    with writing_phototour(own, overwrite=True) as writer:
        writer.add(patches[:7], points[:7])
        writer.finish()
    assert len(load_phototour(own)) == 7
    other.mkdir()
    (other / "precious.txt").write_text("keep")
    with pytest.raises(InputError, match="something else"), writing_phototour(other, overwrite=True):
        pass
    file.write_text("keep")
    with pytest.raises(InputError, match="is a file"):
        write_phototour(file, patches, points)
    with pytest.raises(InputError, match="create it first"):
        write_phototour(tmp_path / "no" / "own", patches, points)
    assert (other / "precious.txt").read_text() == file.read_text() == "keep"


def test_sets_that_cannot_be(tmp_path: Path, patches: Patches, points: np.ndarray) -> None:
    wrong = PatchPairs(np.array([0]), np.array([1]), np.array([False]))
    with pytest.raises(InputError, match="at least one patch"):
        write_phototour(tmp_path / "own", patches[:0], points[:0])
    with pytest.raises(InputError, match="points must have shape"):
        write_phototour(tmp_path / "own", patches, points[:-1])
    with pytest.raises(InputError, match="at least 0"):
        write_phototour(tmp_path / "own", patches, points - 1)
    with pytest.raises(InputError, match="matching pairs show one point"):
        write_phototour(tmp_path / "own", patches, points, wrong)
    with pytest.raises(InputError, match="uint8"):
        write_phototour(tmp_path / "own", patches / 255, points)  # type: ignore[arg-type]
    assert list(tmp_path.iterdir()) == []
