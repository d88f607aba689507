"""Files of raw features or images -> files of private features, which may be sent."""

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from featveil.core.errors import FeatveilError, InputError
from featveil.core.options import argument, option
from featveil.core.resuming import Report, silent
from featveil.pipelines.privatize_parts.outputs import Output, PrivateFile, VeilFiles, Work, names_to_skip
from featveil.pipelines.privatize_parts.releases import Released, Releases, ReleaseSummary
from featveil.pipelines.sources import HDF5, USUAL_KIND, Source, find_sources

if TYPE_CHECKING:
    from featveil.core import Account, Defense, PrivateFeatures


@dataclass(frozen=True)
class PrivatizeRequest:
    """What to release of which features, where to write it, and which ledger to charge."""

    features: tuple[Path, ...] = argument(
        metavar="FEATURES...", help="Raw .veil files, images, folders of either, hloc .h5 files, or COLMAP .db files."
    )
    out: Path = option(help="A .veil file for one input, a folder, or one .h5 file for all, which hloc reads.")
    defense: str = option(
        "lifting",
        help="How descriptors are hidden: lifting, hardened, concealer; with a proven bound subset, metric, naive;"
        " gate sends only what a map knows.",
    )
    database_digest: str | None = option(
        None,
        flags=("--database-digest", "--codebook-digest", "--sketch-digest"),
        help="Refuse a file with another digest.",
    )
    ledger: Path | None = option(
        None, help="Privacy ledger to charge; nothing is released unless it was recorded there."
    )
    subject: str | None = option(None, help="Person or device whose budget the ledger charges.")
    keep_geometry: bool = option(False, help="Also release scale, orientation and response: they leak.")
    apart: bool = option(False, help="Release only features that neither overlap nor resemble each other: few.")
    kind: str | None = option(
        None,
        help="Descriptor kind: of images (default sift, or the sketch's), of COLMAP files (default rootsift), and of"
        " hloc files that do not say it.",
        shown=False,
    )
    max_features: int | None = option(
        None,
        minimum=1,
        help="Keep only this many features, the strongest. A gate looks at these only.",
        shown="2048 of an image, else all",
    )
    only: str | None = option(None, help="Of many images, those whose names fit: a pattern such as 'query/*'.")
    resume: bool = option(False, help="Skip inputs that were released before.")
    overwrite: bool = option(False, help="Release again; two releases together reveal more than one.")
    strict: bool = option(False, help="Refuse choices that known attacks break.")


@dataclass(frozen=True)
class PrivatizeResult:
    """How many releases were written to `out`, kept from before, and failed; `features` of those that were written.

    `elsewhere` counts photographs of which a gate sent nothing, because they show another place than its map.
    `summary` says what the releases add up to; None when nothing was released.
    """

    out: Path
    written: int
    skipped: int
    failed: int
    features: int
    summary: ReleaseSummary | None
    elsewhere: int = 0


def privatize_files(request: PrivatizeRequest, options: Any = None, report: Report = silent) -> PrivatizeResult:
    """Release features, hidden by the named defense with `options`: a mapping, or see `defense_options`.

    What is known to be broken about that is a warning. So is an input that cannot be read, or that shows another place
    than the map of a gate; both are counted. Nothing is released unless the ledger recorded it. Raises InputError for
    outputs that are there, unless they are resumed or overwritten, and when all inputs fail, PrivacyError for features
    that are private already, a budget that is spent, and what `strict` refuses, and NotMappedError when no input shows
    the map of a gate.
    """
    from featveil.registry import make_defense

    defense = make_defense(request.defense, options, request.database_digest)
    account = _account(request, defense)
    sources = find_sources(request.features, request.kind, request.max_features, request.only, _usual_kind(defense))
    releases = Releases(defense, Released(request.keep_geometry, request.apart), account)
    if request.strict:
        _refuse_weak(releases, sources)
    out = request.out
    one_for_all = out.suffix.lower() in HDF5 and not out.is_dir()
    output: Output = PrivateFile(sources, out) if one_for_all else VeilFiles(sources, out)
    skipped = names_to_skip(output, defense, request.resume, request.overwrite)
    work = release(sources, output, releases, skipped, report)
    work.check_any()
    counts = work.written, work.skipped, work.failed, work.features
    return PrivatizeResult(out, *counts, releases.summary(), work.elsewhere)


def release(
    sources: dict[str, Source], output: Output, releases: Releases, skipped: set[str], report: Report
) -> "Work[PrivateFeatures]":
    """Make and write the releases of `sources` except `skipped`; what was done, skipped and failed."""
    work = Work(lambda path: releases.make(sources[str(path)].read()), len(sources), report)
    work.skipped = len(skipped)
    output.release([name for name in sources if name not in skipped], work, releases)
    if work.written:
        releases.warn()
    return work


def _usual_kind(defense: "Defense") -> str:
    """The kind that images are described by, if nothing says which: that of a gate's sketch."""
    from featveil.defenses import Gate

    return defense.sketch.kind if isinstance(defense, Gate) and defense.sketch is not None else USUAL_KIND


def _account(request: PrivatizeRequest, defense: "Defense") -> "Account | None":
    """Where releases are charged; raises InputError when only one of the two is given or there is no epsilon."""
    if (request.ledger is None) != (request.subject is None):
        raise InputError("--ledger and --subject go together: the ledger charges a subject")
    if request.ledger is None or request.subject is None:
        return None
    from featveil.stores.ledger import Ledger

    if defense.guarantee().epsilon is None:
        after = "--then subset" if request.defense in ("gate", "concealer") else "subset"
        raise InputError(
            f"a ledger accounts for differential privacy, which {request.defense} does not have by itself: use {after}"
        )
    return Ledger(request.ledger).account(request.subject)


def _refuse_weak(releases: Releases, sources: dict[str, Source]) -> None:
    """Raise PrivacyError when an attack is known to work on what would be released of any source.

    A source whose kind cannot be read is left to fail when its turn comes.
    """
    from featveil.defenses import refuse

    kinds: set[str] = set()
    for source in sources.values():
        with suppress(FeatveilError):
            kinds.add(source.find_kind())
    refuse(releases.weaknesses(kinds))
