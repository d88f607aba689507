"""hloc's `matches.h5`: a group `<name0>/<name1>` for each pair, where '/' in names has become '-'.

It holds `matches0` (n0,): for each feature of the first image the index of its match in the second, or -1; and
`matching_scores0` (n0,), here 1 / (1 + distance), or 0. hloc itself writes 16-bit numbers, featveil 32-bit ones:
an index may exceed 32,767.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

from featveil.core import FormatError, InputError, Matches
from featveil.core.arrays import Float32, Integers, floats, integers
from featveil.formats.hdf5 import changed, check_name, find_group, image_names, numbers, opened

_MATCHES, _SCORES = "matches0", "matching_scores0"
_MOST = 2**31 - 1


def escaped(name: str) -> str:
    """`name` as it stands in the file."""
    check_name(name)
    return name.replace("/", "-")


def check_names(names: Iterable[str]) -> None:
    """Raise InputError when two different names would be the same in the file, or one cannot be a name."""
    groups: dict[str, str] = {}
    for name in names:
        if (other := groups.setdefault(escaped(name), name)) != name:
            raise InputError(f"{other!r} and {name!r} are the same in a matches file of hloc: rename one")


def pairs_in(path: str | Path) -> dict[tuple[str, str], int]:
    """The pairs in the file, by escaped names, and how many features the first image of each has.

    Raises InputError when there is no file, FormatError if damaged.
    """
    with opened(path) as file:
        parts = [name.split("/") for name in image_names(file, _MATCHES)]
        return {(pair[0], pair[1]): len(numbers(file["/".join(pair)], _MATCHES)) for pair in parts if len(pair) == 2}


def write(path: str | Path, items: Iterable[tuple[tuple[str, str], int, Matches]]) -> int:
    """Add matches to `path`, which is made when missing; a pair already there, in either order, is replaced.

    Each item is a pair of names, how many features the first image has, and the matches. A feature of the first image
    has one match at most, the nearest; the others do not fit the layout, and their number is returned. All items are
    written or, after any error, none. Raises InputError for unusable names or indices.
    """
    dropped = 0
    with changed(Path(path)) as file:
        if image_names(file):
            raise InputError(f"{path} holds features: name another file for matches")
        for (name0, name1), n0, matches in items:
            check_names((name0, name1))
            if name0 == name1:
                raise InputError(f"image {name0!r} is paired with itself")
            _remove(file, escaped(name0), escaped(name1))
            group = file.create_group(f"{escaped(name0)}/{escaped(name1)}")
            best, scores, kept = _nearest(n0, matches)
            group.create_dataset(_MATCHES, data=best)
            group.create_dataset(_SCORES, data=scores)
            dropped += len(matches) - kept
    return dropped


def read(path: str | Path, name0: str, name1: str) -> tuple[Integers, Float32]:
    """Matches of a pair, stored in either order: `indices` (k, 2) in the order of the names, and scores (k,).

    Raises InputError when the pair is not in the file and FormatError when its content cannot be used.
    """
    with opened(path) as file:
        for first, second in ((name0, name1), (name1, name0)):
            group = find_group(file, f"{escaped(first)}/{escaped(second)}")
            if group is not None and _MATCHES in group:
                try:
                    indices, scores = _read_group(group)
                except InputError as error:
                    raise FormatError(f"the matches of {name0!r} and {name1!r} cannot be used: {error}") from error
                return indices if first == name0 else indices[:, ::-1].copy(), scores
    raise InputError(f"{path} has no matches of {name0!r} and {name1!r}")


def _remove(file: Any, name0: str, name1: str) -> None:
    for pair in (f"{name0}/{name1}", f"{name1}/{name0}"):
        if isinstance(file.get(pair.partition("/")[0]), h5py.Group) and pair in file:
            del file[pair]


def _nearest(n0: int, matches: Matches) -> tuple[NDArray[np.int32], Float32, int]:
    """Match or -1 and score of each feature of the first image, and how many have a match."""
    best, scores = np.full(n0, -1, np.int32), np.zeros(n0, np.float32)
    if len(matches) == 0:
        return best, scores, 0
    first, second = matches.indices.T
    if min(first.min(), second.min()) < 0 or first.max() >= n0 or second.max() > _MOST:
        raise InputError(f"match indices must be 0 to {n0 - 1} in the first image, and not negative in the second")
    if matches.distances.min() < 0:
        raise InputError("a match has a negative distance")
    # Farthest first, so that the nearest is what stays; of equals the one with the lowest index.
    order = np.lexsort((-second, -matches.distances.astype(np.float64)))
    best[first[order]] = second[order]
    scores[first[order]] = 1 / (1 + matches.distances[order].astype(np.float64))
    return best, scores, int((best >= 0).sum())


def _read_group(group: Any) -> tuple[Integers, Float32]:
    matches = integers(_MATCHES, numbers(group, _MATCHES), (None,))
    scores = np.zeros(len(matches)) if _SCORES not in group else numbers(group, _SCORES)
    scores = floats(_SCORES, scores, (len(matches),))
    if len(matches) and matches.min() < -1:
        raise InputError(f"dataset {_MATCHES} holds an index below -1")
    matched = np.flatnonzero(matches >= 0)
    return np.column_stack([matched, matches[matched]]), scores[matched]
