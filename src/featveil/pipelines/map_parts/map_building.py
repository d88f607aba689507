"""Features of many images -> a sparse COLMAP model: match, verify, map.

Word sets give every feature many candidates: of these, verification gets the ones that their neighbours support.

    out/database.db                        keypoints, matches and two-view geometries; never a descriptor
    out/cameras.bin, images.bin, ...       the model, in COLMAP's own files
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path

from featveil.core import Camera, Features, InputError, Matches, PrivateFeatures, WordSets
from featveil.core.files import make_folder
from featveil.geometry import sfm
from featveil.geometry.map_images import map_image
from featveil.geometry.match_database import (
    Pair,
    add_matches,
    check_images,
    matched_pairs,
    stored_images,
    write_images,
)
from featveil.geometry.models import SparseModel
from featveil.geometry.neighbours import well_supported
from featveil.geometry.sfm import Mapping3D
from featveil.geometry.two_view import OF_CANDIDATES, Verification, Verified, verify
from featveil.matching import Kept, MatchOptions, match

DATABASE = "database.db"

AnyFeatures = Features | PrivateFeatures
Read = Callable[[str], AnyFeatures]
StageReport = Callable[[str, int, int], None]

_BATCH = 20  # pairs that are lost when the machine stops


@dataclass(frozen=True)
class MapOptions:
    """How features are matched, verified and mapped; verification by default is what their descriptors call for."""

    matching: MatchOptions = field(default_factory=lambda: MatchOptions())
    verification: Verification | None = None
    mapping: Mapping3D = field(default_factory=Mapping3D)


@dataclass(frozen=True, eq=False)
class BuiltMap:
    """A model, without images when none could be put together, and what its matches gave: `pairs` that were matched."""

    model: SparseModel
    pairs: int
    verified: Verified


def silent_stages(stage: str, done: int, total: int) -> None:
    """The StageReport of who does not want any."""


def all_pairs(names: Iterable[str]) -> list[Pair]:
    """Every image with every other, once."""
    return list(combinations(sorted(names), 2))


def build_map(
    names: Sequence[str],
    read: Read,
    out: str | Path,
    *,
    cameras: Mapping[str, Camera] | None = None,
    pairs: Sequence[Pair] | None = None,
    options: MapOptions = MapOptions(),
    report: StageReport = silent_stages,
) -> BuiltMap:
    """The map of the images `names`, whose features `read` gives, in the folder `out`, which is made when missing.

    Example: build_map(list(features), features.__getitem__, "map/") for a dict of features, raw or private.

    Pairs that `out/database.db` has are not matched again: use one folder for the same features only. `cameras` that
    are not given are guessed and refined. `report` gets a stage and its (done, total). Raises InputError for fewer
    than two images or unknown ones in `pairs`, and as `match` does.
    """
    matched = match_and_verify(names, read, out, cameras=cameras, pairs=pairs, options=options, report=report)
    database = Path(out) / DATABASE
    model = sfm.build_map(database, out, options.mapping, lambda done, total: report("mapping", done, total))
    return BuiltMap(model, *matched)


def match_and_verify(
    names: Sequence[str],
    read: Read,
    out: str | Path,
    *,
    cameras: Mapping[str, Camera] | None = None,
    pairs: Sequence[Pair] | None = None,
    options: MapOptions = MapOptions(),
    report: StageReport = silent_stages,
) -> tuple[int, Verified]:
    """The first part of `build_map`: how many pairs `out/database.db` now has matches of, and which passed."""
    if len(names) < 2:
        raise InputError(f"a map needs at least two images, got {len(names)}")
    wanted = all_pairs(names) if pairs is None else list(pairs)
    if unknown := sorted({name for pair in wanted for name in pair} - set(names)):
        raise InputError(f"the pairs name image {unknown[0]!r}, which is none of the {len(names)} images")
    out = Path(out)
    make_folder(out)
    database = out / DATABASE
    words = _write_keypoints(database, names, read, cameras or {})
    _match(database, wanted, read, options.matching, report)
    report("verifying", 0, len(wanted))
    check = options.verification or (OF_CANDIDATES if words else Verification())
    return len(wanted), verify(database, check, options.mapping.seed)


def _write_keypoints(database: Path, names: Sequence[str], read: Read, cameras: Mapping[str, Camera]) -> bool:
    """Add the images that the database lacks; whether their descriptors are word sets."""
    there = stored_images(database) if database.exists() else set()
    if strange := sorted(there - set(names)):
        raise InputError(f"{database} has image {strange[0]!r}, which is none of these: use another folder")
    images = {name: map_image(read(name), cameras.get(name), name) for name in names}
    if there:
        check_images(database, {name: images[name] for name in names if name in there})
    write_images(database, {name: image for name, image in images.items() if name not in there})
    return has_words(read(names[0]))


def _match(database: Path, pairs: Sequence[Pair], read: Read, options: MatchOptions, report: StageReport) -> None:
    there = matched_pairs(database)
    left = [pair for pair in pairs if pair not in there]
    before = len(pairs) - len(left)
    report("matching", before, len(pairs))
    batch: list[tuple[Pair, Matches]] = []
    try:
        for done, matched in enumerate(_matches(left, read, options), start=before + 1):
            batch.append(matched)
            if len(batch) == _BATCH:
                add_matches(database, batch)
                batch = []
            report("matching", done, len(pairs))
    finally:  # whatever ends it, what was matched is kept
        add_matches(database, batch)


def _matches(pairs: Sequence[Pair], read: Read, options: MatchOptions) -> Iterator[tuple[Pair, Matches]]:
    kept = Kept()
    for pair in pairs:
        a, b = kept.read(read, pair[0]), kept.read(read, pair[1])
        yield pair, supported(match(a, b, **options), a, b)


def supported(matches: Matches, a: AnyFeatures, b: AnyFeatures) -> Matches:
    """Those of the candidates of words that their neighbours support; all, without words or keypoints."""
    if not has_words(a, b) or a.keypoints is None or b.keypoints is None:
        return matches
    kept = well_supported(a.keypoints.xy[matches.indices[:, 0]], b.keypoints.xy[matches.indices[:, 1]])
    return Matches(matches.indices[kept], matches.distances[kept])


def has_words(*sides: AnyFeatures) -> bool:
    """Whether any of them has word sets, and so several candidates a feature."""
    return any(isinstance(side.descriptors, WordSets) for side in sides)
