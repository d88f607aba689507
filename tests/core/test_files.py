import os
import stat
from itertools import count
from pathlib import Path

import pytest

from featveil.core import InputError, files
from featveil.core.files import locked, read_start, replacing
from interruptions import stops_at_line


def names(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


def test_success_replaces_and_leaves_nothing_else(tmp_path: Path) -> None:
    target = tmp_path / "a.bin"
    target.write_text("old")
    with replacing(target) as temporary:
        temporary.write_text("new")
        assert target.read_text() == "old"
    assert target.read_text() == "new"
    assert names(tmp_path) == ["a.bin"]


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError, MemoryError])
def test_failure_keeps_the_old_file(tmp_path: Path, error: type[BaseException]) -> None:
    target = tmp_path / "a.bin"
    target.write_text("old")
    with pytest.raises(error), replacing(target) as temporary:
        temporary.write_text("half")
        raise error
    assert target.read_text() == "old"
    assert names(tmp_path) == ["a.bin"]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # files that stay open
def test_ctrl_c_before_any_line_leaves_the_old_file_or_the_new_one(tmp_path: Path) -> None:
    target = tmp_path / "a.bin"

    def write() -> None:
        with replacing(target) as temporary:
            temporary.write_text("new")

    for number in count(1):
        target.write_text("old")
        if not stops_at_line(number, replacing, write):
            break
        assert target.read_text() in ("old", "new")
        assert names(tmp_path) == ["a.bin"]
    assert number > 20 and target.read_text() == "new"


def test_a_new_file_is_as_open_as_others(tmp_path: Path) -> None:
    """And as private as can be until it is whole."""
    (tmp_path / "other").touch()
    with replacing(tmp_path / "a.bin") as temporary:
        assert os.name == "nt" or temporary.stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "a.bin").stat().st_mode == (tmp_path / "other").stat().st_mode


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
def test_only_regular_files_are_read(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"abc")
    assert read_start(tmp_path / "a", 2) == b"ab"
    os.mkfifo(tmp_path / "pipe")
    assert stat.S_ISFIFO((tmp_path / "pipe").stat().st_mode)
    for wrong in (tmp_path / "pipe", tmp_path, tmp_path / "none"):
        with pytest.raises(OSError):
            read_start(wrong, 2)


def test_a_full_disk_is_one_clear_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="No space left"), replacing(tmp_path / "a.bin"):
        raise OSError(28, "No space left on device")
    assert names(tmp_path) == []


def test_missing_folder_and_folder_as_target(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="does not exist"), replacing(tmp_path / "no" / "a.bin"):
        pass
    with pytest.raises(InputError, match="is a folder"), replacing(tmp_path):
        pass


def test_a_lock_is_there_only_while_it_is_held(tmp_path: Path) -> None:
    with locked(tmp_path / "lock"):
        assert names(tmp_path) == ["lock"]
        with pytest.raises(InputError, match="another process is at work"), locked(tmp_path / "lock"):
            pass
        assert names(tmp_path) == ["lock"]  # who does not get it does not take it away either
    assert names(tmp_path) == []
    with pytest.raises(KeyboardInterrupt), locked(tmp_path / "lock"):
        raise KeyboardInterrupt
    assert names(tmp_path) == []
    with pytest.raises(InputError, match="cannot write"), locked(tmp_path / "nowhere" / "lock"):
        pass


def test_a_lock_whose_file_was_deleted_meanwhile_is_taken_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, lock, taken = tmp_path / "lock", files._lock, list[int]()

    def slow(handle: int, at: Path) -> None:
        """The last holder deletes its file after this process has opened it."""
        taken.append(handle)
        if len(taken) == 1:
            path.unlink()
        lock(handle, at)

    monkeypatch.setattr(files, "_lock", slow)
    with locked(path):
        monkeypatch.undo()
        assert len(taken) == 2 and names(tmp_path) == ["lock"]
        with pytest.raises(InputError, match="another process is at work"), locked(path):
            pass
