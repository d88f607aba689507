"""Text files with one entry a line and words between spaces, as hloc writes them."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NoReturn

from featveil.core import FormatError, InputError
from featveil.core.files import replacing

_MAX_BYTES = 2**28


def read_entries(path: str | Path) -> Iterator[tuple[int, list[str]]]:
    """Line numbers, from 1, and words of all lines that are neither empty nor a comment ('#').

    Raises InputError when the file cannot be read and FormatError when it is no text.
    """
    path = Path(path)
    if not path.is_file():
        raise InputError(f"{path} is a folder: name a file" if path.is_dir() else f"{path} does not exist")
    try:
        if path.stat().st_size > _MAX_BYTES:
            raise FormatError(f"{path} has more than {_MAX_BYTES} bytes: it is no list of images")
        text = path.read_text("utf-8-sig")
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise FormatError(f"{path} is not a text file in UTF-8") from error
    for number, line in enumerate(text.split("\n"), start=1):
        words = line.split()
        if words and not words[0].startswith("#"):
            yield number, words


def write_entries(path: str | Path, entries: Iterable[Iterable[object]]) -> None:
    """Write one line an entry, all of them or nothing. Raises InputError for a word with a space and like `replacing`.

    Floats are written with all their digits.
    """
    lines = [_line([str(word) for word in words]) for words in entries]
    with replacing(path) as temporary:
        temporary.write_text("".join(lines), "utf-8")


def bad_line(path: str | Path, number: int, expected: str) -> NoReturn:
    """Raise FormatError that names the line and what was expected there; its content is not quoted."""
    raise FormatError(f"line {number} of {path} is not {expected}")


def check_name(name: str) -> None:
    """Raise InputError when an image cannot be called that in such a file."""
    _check_word(name)
    if name.startswith("#"):
        raise InputError(f"{name!r} would be read as a comment: rename the image")


def _check_word(word: str) -> None:
    if word.split() != [word] or not word.isprintable():
        raise InputError(f"{word!r} does not fit a file with words between spaces: rename the image")


def _line(words: list[str]) -> str:
    check_name(words[0])
    for word in words[1:]:
        _check_word(word)
    return " ".join(words) + "\n"
