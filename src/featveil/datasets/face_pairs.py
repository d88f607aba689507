"""Which photographs show the same person: LFW's pairs.txt, or a list of one pair a line.

LFW         10 300                        folds, and pairs of each sort in each (300 same, then 300 different)
            Abel_Pacheco 1 4              photographs 1 and 4 of one person
            Robert_Downey_Jr 1 Tommy 2    two people
a list      a/1.jpg b/2.jpg 0 [fold]      0 or 1; folds are dealt out evenly where none is given
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath

import numpy as np
from numpy.typing import NDArray

from featveil.core import DatasetError, InputError
from featveil.core.arrays import Integers
from featveil.datasets.face_sets import FaceSet, without_suffix

FOLDS = 10
_LARGEST_FILE = 2**28
_DIGITS = 9  # of a fold or a count
_Named = tuple[str, str, bool, int]


@dataclass(frozen=True, eq=False)
class FacePairs:
    """Pairs of rows `first` and `second` (k,) of a set of faces, which are the `same` person, in `fold` (k,)."""

    first: Integers
    second: Integers
    same: NDArray[np.bool_]
    fold: Integers

    def __post_init__(self) -> None:
        if not len(self.first) == len(self.second) == len(self.same) == len(self.fold):
            raise InputError("pairs of faces need as many first ones, second ones, labels and folds")
        if not self.same.any() or self.same.all():
            raise InputError("pairs of faces must hold both some of one person and some of two")

    def __len__(self) -> int:
        return len(self.first)

    def people(self, faces: FaceSet) -> frozenset[str]:
        """Everyone in these pairs."""
        return frozenset(faces.people[np.concatenate([self.first, self.second])])


def load_pairs(path: str | Path, faces: FaceSet) -> FacePairs:
    """The pairs of a file as rows of `faces`; raises DatasetError where it is damaged or names an unknown one."""
    path = Path(path)
    try:
        if path.stat().st_size > _LARGEST_FILE:
            raise DatasetError(f"{path} is larger than any list of pairs")
        lines = [line.split("#")[0].replace(",", " ").split() for line in path.read_text("utf-8-sig").splitlines()]
    except OSError as error:
        raise InputError(f"cannot read pairs {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise DatasetError(f"{path} is not a list of pairs: it is no text") from error
    lines = [line for line in lines if line]
    if not lines:
        raise DatasetError(f"{path} holds no pairs")
    is_lfw = len(lines[0]) <= 2 and all(_is_number(word) for word in lines[0])
    named = _lfw(lines, path) if is_lfw else [_listed(line, path) for line in lines]
    without = sum(fold < 0 for *_, fold in named)
    if 0 < without < len(named):
        raise DatasetError(f"{path} names the folds of some pairs only: name all of them, or none")
    if without:
        named = _dealt(named)
    return _found(named, faces, path)


def pairs_within(faces: FaceSet) -> FacePairs:
    """The pairs that a set of faces brings itself; raises DatasetError where it has none, or they do not fit."""
    missing = [name for name in ("first", "second", "same", "fold") if name not in faces.pairs]
    if missing:
        raise DatasetError("these faces bring no pairs: name a file of pairs")
    first, second, same, fold = (faces.pairs[name] for name in ("first", "second", "same", "fold"))
    rows = np.concatenate([first.ravel(), second.ravel()])
    if len({array.shape for array in (first, second, same, fold)}) > 1 or first.ndim != 1:
        raise DatasetError("the pairs within these faces do not fit each other")
    if rows.size and not 0 <= rows.min() <= rows.max() < len(faces):
        raise DatasetError("the pairs within these faces name rows that are not there")
    try:
        return FacePairs(first, second, same != 0, fold)
    except InputError as error:
        raise DatasetError(str(error)) from error


def _lfw(lines: list[list[str]], path: Path) -> list[_Named]:
    header, body = [int(word) for word in lines[0]], lines[1:]
    folds, count = (1, header[0]) if len(header) == 1 else header
    if not folds or not count or len(body) != 2 * folds * count:
        raise DatasetError(f"{path} announces {folds} folds of twice {count} pairs and has {len(body)}")
    pairs: list[_Named] = []
    for place, line in enumerate(body):
        fold = place // (2 * count) if folds > 1 else -1
        try:
            if len(line) == 3:
                person, first, second = line
                pairs.append((f"{person}_{int(first):04d}", f"{person}_{int(second):04d}", True, fold))
            else:
                one, first, other, second = line
                pairs.append((f"{one}_{int(first):04d}", f"{other}_{int(second):04d}", False, fold))
        except ValueError as error:
            raise DatasetError(f"line {place + 2} of {path} is no pair of LFW's: PERSON i j, or A i B j") from error
    return pairs


def _is_number(word: str) -> bool:
    return word.isdecimal() and len(word) <= _DIGITS


def _listed(line: list[str], path: Path) -> _Named:
    well_formed = len(line) in (3, 4) and line[2] in ("0", "1") and (len(line) == 3 or _is_number(line[3]))
    if not well_formed:
        raise DatasetError(f"a line of {path} is no pair: expected two photographs, 0 or 1, and maybe a fold")
    return line[0], line[1], line[2] == "1", int(line[3]) if len(line) == 4 else -1


def _dealt(named: Sequence[_Named]) -> list[_Named]:
    """Folds for each sort by itself, in its order, so that every fold has both where there are enough."""
    places = {True: 0, False: 0}
    counts = {sort: sum(pair[2] == sort for pair in named) for sort in places}
    dealt = []
    for a, b, same, _ in named:
        dealt.append((a, b, same, places[same] * FOLDS // counts[same]))
        places[same] += 1
    return dealt


def _found(named: Sequence[_Named], faces: FaceSet, path: Path) -> FacePairs:
    """Photographs by their names, with or without folder and suffix; raises DatasetError where two could be meant."""
    exact = {name: row for row, name in enumerate(faces.names)}
    short: dict[str, set[int]] = {}
    for row, name in enumerate(faces.names):
        bare = without_suffix(name)
        for called in (bare, PurePath(bare).name):
            short.setdefault(called, set()).add(row)

    def row_of(name: str) -> int:
        for called in (name, without_suffix(name)):
            if called in exact:
                return exact[called]
            if called in short:
                if len(short[called]) > 1:
                    raise DatasetError(f"{path} names {name!r:.120}, which may be any of several faces: add its folder")
                return min(short[called])
        raise DatasetError(f"{path} names {name!r:.120}, which is not among the {len(faces):,} faces")

    first, second = np.array([(row_of(a), row_of(b)) for a, b, *_ in named]).T
    same, fold = np.array([pair[2] for pair in named]), np.array([pair[3] for pair in named])
    try:
        return FacePairs(first, second, same, fold)
    except InputError as error:
        raise DatasetError(f"{path}: {error}") from error
