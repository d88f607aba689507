"""Writing files so that a crash, a full disk or Ctrl-C never leaves half of one."""

import errno
import os
import secrets
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from featveil.core.errors import InputError


@contextmanager
def replacing(target: str | Path) -> Iterator[Path]:
    """Yield a temporary path beside `target`; move it there if the block succeeds, delete it if not.

    Raises InputError when the folder is missing or the disk refuses the write.
    """
    target = Path(target)
    check_folder(target.parent)
    if target.is_dir():
        raise InputError(f"{target} is a folder: name a file")
    # Its name is known before it is there, so that Ctrl-C at any moment finds it.
    temporary = beside(target)
    try:
        try:
            temporary.touch(exist_ok=False)
            mode = stat.S_IMODE(temporary.stat().st_mode)
            temporary.chmod(0o600)  # nobody else reads a half, or what a killed process leaves
        except OSError as error:
            raise InputError(f"cannot write in {target.parent}: {error.strerror}") from error
        yield temporary
        temporary.chmod(mode)
        flush(temporary)
        temporary.replace(target)
    except OSError as error:
        raise InputError(f"cannot write {target}: {error.strerror or error}") from error
    finally:
        temporary.unlink(missing_ok=True)


def beside(target: Path) -> Path:
    """A path in the folder of `target`, with its suffix, that nobody else uses."""
    return target.with_name(f".{target.name}.{secrets.token_urlsafe(6)}{target.suffix}")


def flush(path: Path) -> None:
    """Return once the disk has what was written to `path`; raises OSError when it refuses it."""
    with path.open("rb") as written:
        os.fsync(written.fileno())


def read_start(path: Path, count: int) -> bytes:
    """The first `count` bytes of a file; raises OSError for what is no regular one: a pipe may never say anything."""
    if not stat.S_ISREG(path.stat().st_mode):
        raise OSError(errno.EINVAL, "it is no regular file")
    with path.open("rb") as file:
        return file.read(count)


def check_folder(folder: Path) -> None:
    """Raise InputError unless `folder` is one."""
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder} is a file, not a folder")
    if not folder.is_dir():
        raise InputError(f"folder {folder} does not exist: create it first")


def make_folder(folder: Path, private: bool = False) -> None:
    """Make `folder` and those above it where they are missing; raises InputError when that is refused.

    A new one that is `private` can be read by its owner only.
    """
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        folder.mkdir(0o700 if private else 0o777, exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot make folder {folder}: {error.strerror}") from error


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold a lock on the file `path`, which is there only so long; raises InputError when another process holds it.

    Windows has no such locks: there it only makes the file.
    """
    handle = _acquired(path)
    try:
        yield
    finally:
        if sys.platform != "win32":  # where an open file cannot be deleted
            path.unlink(missing_ok=True)
        os.close(handle)  # which also lets go of the lock


def _acquired(path: Path) -> int:
    """The file at `path`, open and locked."""
    while True:
        try:
            handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        except OSError as error:
            raise InputError(f"cannot write {path}: {error.strerror}") from error
        try:
            _lock(handle, path)
        except InputError:
            os.close(handle)
            raise
        if _is_at(handle, path):
            return handle
        os.close(handle)  # its last holder has just deleted it


def _is_at(handle: int, path: Path) -> bool:
    """Whether the open file is still the one at `path`."""
    try:
        return os.path.samestat(os.fstat(handle), path.stat())
    except FileNotFoundError:
        return False


def _lock(handle: int, path: Path) -> None:
    if sys.platform == "win32":
        return
    import fcntl

    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise InputError(f"another process is at work in {path.parent}: wait until it has finished") from error
    except OSError as error:
        raise InputError(f"cannot lock {path}: {error.strerror}") from error
