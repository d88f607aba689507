"""hloc's pairs file: the names of two images a line, the query first where one is."""

from collections.abc import Iterable
from pathlib import Path

from featveil.formats.lists import bad_line, read_entries, write_entries


def read_pairs(path: str | Path) -> list[tuple[str, str]]:
    """All pairs in their order, without repetitions: a pair is the same in either order, and the first one counts.

    Lines that start with '#' are comments. Raises InputError when the file cannot be read, and FormatError, with the
    line, for anything but two different names.
    """
    pairs: dict[frozenset[str], tuple[str, str]] = {}
    for number, words in read_entries(path):
        if len(words) != 2:
            bad_line(path, number, "a pair: it needs two image names, which may not contain spaces")
        if words[0] == words[1]:
            bad_line(path, number, "a pair: it names one image twice")
        pairs.setdefault(frozenset(words), (words[0], words[1]))
    return list(pairs.values())


def write_pairs(path: str | Path, pairs: Iterable[tuple[str, str]]) -> None:
    """Write `pairs`, one a line. Raises InputError for a name with a space."""
    write_entries(path, pairs)
