"""Features of many images -> matches of pairs of them: hloc's matches.h5, or a COLMAP database."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from logging import getLogger
from pathlib import Path
from typing import TYPE_CHECKING

from featveil.core.errors import InputError
from featveil.core.files import check_folder
from featveil.core.resuming import Report, silent
from featveil.pipelines.match import MatchRequest
from featveil.pipelines.sources import HDF5

if TYPE_CHECKING:
    from featveil.core import Matches
    from featveil.formats.collections import Collection

Pair = tuple[str, str]
Matched = tuple[Pair, int, "Matches"]

_BATCH = 100  # pairs that are lost when the machine stops; a matches file is copied for each batch, so they grow

logger = getLogger(__name__)


@dataclass(frozen=True)
class MatchManyResult:
    """How many `pairs` were matched, and kept from before; `matches` of them are in `out`, others were `dropped`."""

    out: Path
    pairs: int
    skipped: int
    matches: int
    without_matches: int
    dropped: int


def match_many(request: MatchRequest, report: Report = silent) -> MatchManyResult:
    """Match the pairs of images and add them to `out`; those that are there are kept unless they are to be replaced.

    Raises InputError for images that are not there or on both sides, and for an output of other features.
    """
    from featveil.formats.collections import open_collection

    a, b, pairs, out = request.a, request.b, request.pairs, request.out
    if request.picture is not None or request.images is not None:
        raise InputError("--picture and --images are for two images, these are many")
    if out is None or out.suffix.lower() not in (*HDF5, ".db"):
        raise InputError("matches of many images go to one file: name it with --out, .h5 for hloc or .db for COLMAP")
    check_folder(out.parent)
    if out.resolve() in {path.resolve() for path in (a, b, pairs) if path is not None}:
        raise InputError(f"{out} is an input: choose another output")
    first = open_collection(a, request.kind)
    second = first if b.resolve() == a.resolve() else open_collection(b, request.kind)
    wanted = _wanted(first, second, pairs)
    target: _Target = _Database(out, first, second) if out.suffix.lower() == ".db" else _MatchesFile(out, first, second)
    target.check_names(wanted)
    left = wanted if request.overwrite else target.missing(wanted)
    counts = _Counts(len(wanted), len(wanted) - len(left))
    target.write(_matches(left, (first, second), request, counts, report))
    if target.dropped:
        logger.warning(
            f"{target.dropped:,} of {counts.matches:,} candidates do not fit hloc's file, which has one"
            " match a feature: word sets need many; use a COLMAP .db, or featveil localize"
        )
    matches = counts.matches - target.dropped
    return MatchManyResult(out, counts.done, counts.skipped, matches, counts.empty, target.dropped)


@dataclass
class _Counts:
    pairs: int
    skipped: int
    matches: int = 0
    empty: int = 0

    @property
    def done(self) -> int:
        return self.pairs - self.skipped


def _matches(
    left: list[Pair],
    sides: "tuple[Collection, Collection]",
    request: MatchRequest,
    counts: _Counts,
    report: Report,
) -> Iterator[Matched]:
    from featveil.matching import Kept, match

    kept = Kept()
    options = request.options([side.read(side.names[0]).kind for side in sides])
    read_first, read_second = sides[0].read, sides[1].read
    for done, pair in enumerate(left, start=1):
        one, two = kept.read(read_first, pair[0]), kept.read(read_second, pair[1])
        matches = match(one, two, **options)
        counts.matches += len(matches)
        counts.empty += len(matches) == 0
        yield pair, len(one), matches
        report(counts.skipped + done, counts.pairs)


def _wanted(first: "Collection", second: "Collection", path: Path | None) -> list[Pair]:
    """Pairs of an image of `first` and one of `second`; a pair in the other order is turned round."""
    from featveil.formats.pairs import read_pairs

    ours, theirs = set(first.names), set(second.names)
    if path is None:
        listed = [(one, two) for one in first.names for two in second.names]
        if first is second:
            return [pair for pair in listed if pair[0] < pair[1]]
        _check_sides(ours & theirs, first, second)
        return listed
    wanted = []
    for one, two in read_pairs(path):
        if one in ours and two in theirs:
            wanted.append((one, two))
        elif two in ours and one in theirs:
            wanted.append((two, one))
        else:
            known = ours | theirs
            name = next((name for name in (one, two) if name not in known), one)
            place = f"{first.path} or {second.path}" if first is not second else str(first.path)
            why = "which is not in" if name not in known else "which is on one side only of"
            raise InputError(f"{path} names image {name!r}, {why} {place}: names must be the same in all files")
    if not wanted:
        raise InputError(f"{path} names no pairs")
    if first is not second:
        _check_sides({one for one, _ in wanted} & {two for _, two in wanted}, first, second)
    return wanted


def _check_sides(both: set[str], first: "Collection", second: "Collection") -> None:
    """In one file an image has one set of features."""
    if both:
        raise InputError(
            f"image {min(both)!r} is used from both {first.path} and {second.path}: for pairs within one set give one"
            " file twice"
        )


class _MatchesFile:
    """hloc's file, in which a feature has one match at most."""

    def __init__(self, out: Path, first: "Collection", second: "Collection") -> None:
        self.out, self.dropped, self.kept = out, 0, 0
        self._sides = first, second

    def check_names(self, wanted: list[Pair]) -> None:
        """Raise InputError when two images would have one name in the file."""
        from featveil.formats.hloc_matches import check_names

        check_names({name for pair in wanted for name in pair})

    def missing(self, wanted: list[Pair]) -> list[Pair]:
        """The pairs that the file lacks, in either order; raises InputError for one of features that were others."""
        from featveil.formats.hloc_matches import escaped, pairs_in

        there = pairs_in(self.out) if self.out.exists() else {}
        self.kept = len(there)
        left, counts = [], {}
        for pair in wanted:
            named = escaped(pair[0]), escaped(pair[1])
            side = 0 if named in there else 1
            rows = there.get(named, there.get(named[::-1]))
            if rows is None:
                left.append(pair)
                continue
            name = pair[side]
            if name not in counts:
                counts[name] = len(self._sides[side].read(name))
            if counts[name] != rows:
                raise InputError(f"{self.out} has matches of other features of image {name!r}: --overwrite them")
        return left

    def write(self, matched: Iterator[Matched]) -> None:
        """Batch by batch."""
        from featveil.formats.hloc_matches import write

        while batch := list(islice(matched, max(_BATCH, self.kept))):
            self.dropped += write(self.out, batch)
            self.kept += len(batch)


class _Database:
    """A COLMAP database, in which a feature may have many matches."""

    dropped = 0

    def __init__(self, out: Path, first: "Collection", second: "Collection") -> None:
        self.out, self.first, self.second = out, first, second

    def check_names(self, wanted: list[Pair]) -> None:
        """A database takes all names."""

    def missing(self, wanted: list[Pair]) -> list[Pair]:
        """The pairs that have no matches there yet."""
        from featveil.geometry.match_database import matched_pairs

        there = matched_pairs(self.out) if self.out.exists() else set()
        return [pair for pair in wanted if pair not in there]

    def write(self, matched: Iterator[Matched]) -> None:
        """Batch by batch; images that are not there are added with their keypoints, never with descriptors."""
        from featveil.geometry.match_database import write_matches

        while batch := list(islice(matched, _BATCH)):
            sides = {pair[0]: self.first.read(pair[0]) for pair, _, _ in batch}
            sides |= {pair[1]: self.second.read(pair[1]) for pair, _, _ in batch if pair[1] not in sides}
            write_matches(self.out, sides, [(pair, matches) for pair, _, matches in batch])


_Target = _MatchesFile | _Database
