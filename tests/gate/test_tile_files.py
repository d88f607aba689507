"""Folders of tiles: replaced whole or not at all, and never with something else in them."""

import json
import os
import shutil
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from featveil.core import FormatError, InputError
from featveil.gate import Sketch, load_sketch, tile_files
from featveil.gate.sketch_building import tiles
from featveil.gate.tile_files import INDEX, check_tiles_folder, load_tiles, read_index, save_tiles
from interruptions import stops_at_line
from sketches import builtin_sketch


@pytest.fixture(scope="module")
def parts() -> list[Sketch]:
    return list(tiles(builtin_sketch(8), 1))


@pytest.fixture
def folder(parts: list[Sketch], tmp_path: Path) -> Path:
    """Three tiles and their index."""
    save_tiles(parts, tmp_path / "tiles")
    return tmp_path / "tiles"


def content(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in folder.iterdir()}


class TestReplacing:
    @pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # files that stay open
    @pytest.mark.parametrize("there", [True, False])
    @pytest.mark.parametrize("within", [tile_files._replacing_folder, tile_files._settle])
    def test_ctrl_c_before_any_line_leaves_all_of_the_old_or_all_of_the_new(
        self, tmp_path: Path, within: Any, there: bool
    ) -> None:
        folder, old, new = tmp_path / "tiles", {"a": "old", "b": "old"}, {"b": "new", "c": "new"}

        def write() -> None:
            with tile_files._replacing_folder(folder) as temporary:
                for name, text in new.items():
                    (temporary / name).write_text(text)

        for number in count(1):
            shutil.rmtree(folder, ignore_errors=True)
            if there:
                folder.mkdir()
                for name, text in old.items():
                    (folder / name).write_text(text)
            if not stops_at_line(number, within, write):
                break
            if there or folder.exists():
                assert content(folder) in (old, new) if there else content(folder) == new, number
            assert {path.name for path in tmp_path.iterdir()} <= {"tiles"}, number
        assert number > 20 and content(folder) == new

    @pytest.mark.parametrize("error", [OSError(5, "Input/output error"), KeyboardInterrupt()])
    def test_the_old_content_is_named_where_it_cannot_be_put_back(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException
    ) -> None:
        """Nothing can be moved any more once the old content was moved away."""
        folder, rename, calls = tmp_path / "tiles", Path.rename, 0
        folder.mkdir()
        (folder / "a").write_text("old")

        def stop(self: Path, target: Path) -> Path:
            nonlocal calls
            calls += 1
            if calls > 1:
                raise error if calls == 2 else OSError(5, "Input/output error")
            return rename(self, target)

        monkeypatch.setattr(Path, "rename", stop)
        with pytest.raises(InputError, match="what was in it is in") as caught, tile_files._replacing_folder(folder):
            pass
        assert (Path(str(caught.value).split(" is in ")[1].removesuffix(" now")) / "a").read_text() == "old"

    def test_a_full_disk_is_an_error_that_names_the_folder(
        self, parts: list[Sketch], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def full(self: Path, content: bytes) -> int:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(Path, "write_bytes", full)
        with pytest.raises(InputError) as caught:
            save_tiles(parts, tmp_path / "tiles")
        assert str(caught.value) == f"cannot write {tmp_path / 'tiles'}: No space left on device"
        assert list(tmp_path.iterdir()) == []

    def test_a_link_to_a_folder_stays_one(self, folder: Path, parts: list[Sketch], tmp_path: Path) -> None:
        (tmp_path / "elsewhere").mkdir()
        link = tmp_path / "elsewhere" / "link"
        link.symlink_to(folder)
        save_tiles(parts[:1], link, overwrite=True)
        assert link.is_symlink() and [path.name for path, _ in load_tiles(folder)] == ["tile-000.sketch"]
        assert [path.name for path in (tmp_path / "elsewhere").iterdir()] == ["link"]


class TestWhatIsNotReplaced:
    @pytest.mark.parametrize("name", ["tile-007.sketch", "notes.txt", "sub", "tile-000.sketch"])
    def test_what_the_index_does_not_list(self, folder: Path, parts: list[Sketch], name: str) -> None:
        if name == "sub":
            (folder / name).mkdir()
        elif name == "tile-000.sketch":  # no file
            (folder / name).unlink()
            (folder / name).mkdir()
        else:
            (folder / name).write_text("mine")
        with pytest.raises(InputError, match=f"{name}.*no tile that its index lists"):
            save_tiles(parts, folder, overwrite=True)
        assert (folder / name).exists()

    def test_a_folder_whose_index_cannot_be_read(self, folder: Path, parts: list[Sketch]) -> None:
        (folder / INDEX).write_text("{}")
        with pytest.raises(FormatError, match="index"):
            save_tiles(parts, folder, overwrite=True)
        (folder / INDEX).unlink()
        with pytest.raises(InputError, match="no tile that its index lists"):
            save_tiles(parts, folder, overwrite=True)
        assert len(list(folder.iterdir())) == 3

    @pytest.mark.parametrize("name", [".", "..", "../here", "../../"])
    def test_the_current_folder_and_those_above(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
    ) -> None:
        (tmp_path / "here").mkdir()
        monkeypatch.chdir(tmp_path / "here")
        with pytest.raises(InputError, match="cannot be replaced"):
            check_tiles_folder(Path(name), overwrite=True)
        check_tiles_folder(Path("new"), overwrite=False)
        check_tiles_folder(Path("../new"), overwrite=False)


class TestReading:
    @pytest.mark.parametrize("name", ["images", "points", "entries", "bytes"])
    def test_a_tile_is_as_the_index_says(self, folder: Path, name: str) -> None:
        index = json.loads((folder / INDEX).read_text())
        index["tiles"][1][name] += 1
        (folder / INDEX).write_text(json.dumps(index))
        with pytest.raises(FormatError, match=rf"tile-001\.sketch has .* {name}"):
            list(load_tiles(folder))

    def test_a_huge_index(self, folder: Path, parts: list[Sketch], monkeypatch: pytest.MonkeyPatch) -> None:
        with (folder / INDEX).open("ab") as file:
            file.write(b" " * 2**22)
        with pytest.raises(FormatError, match=f"more than {2**22} bytes"):
            read_index(folder)
        monkeypatch.setattr(tile_files, "_MAX_BYTES", 500)
        with pytest.raises(InputError, match="too many"):
            save_tiles(parts, folder.with_name("more"))
        assert not folder.with_name("more").exists()

    @pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
    def test_an_index_that_is_a_pipe(self, folder: Path) -> None:
        (folder / INDEX).unlink()
        os.mkfifo(folder / INDEX)
        with pytest.raises(InputError, match="no regular file"):
            read_index(folder)

    def test_arguments_of_another_type(self, folder: Path) -> None:
        wrong: Any
        for wrong in (None, 5, b"tile"):
            with pytest.raises(InputError, match="path"):
                load_sketch(wrong)
        with pytest.raises(InputError, match="digest"):
            load_sketch(folder / "tile-000.sketch", 5)  # type: ignore[arg-type]
