"""featveil privatize: raw features or images -> private features, which may be sent."""

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from featveil.cli.console import Json, progress
from featveil.cli.extract import HDF5, Work, finish
from featveil.cli.methods import (
    Apart,
    ConcealerFile,
    Confounders,
    DatabaseDigest,
    DatabaseFile,
    Dimension,
    Epsilon,
    PoolFile,
    Strategy,
    SubsetSize,
    Then,
    make_defense,
)
from featveil.cli.outputs import Output, PrivateFile, VeilFiles, names_to_skip
from featveil.cli.releases import Released, Releases
from featveil.cli.sources import Source, find_sources
from featveil.core.errors import FeatveilError, InputError

if TYPE_CHECKING:
    from featveil.core import Account, Defense, PrivateFeatures


def privatize(
    features: Annotated[
        list[Path],
        typer.Argument(
            metavar="FEATURES...",
            help="Raw .veil files, images, folders of either, hloc .h5 files, or COLMAP .db files.",
        ),
    ],
    out: Annotated[
        Path, typer.Option(help="A .veil file for one input, a folder, or one .h5 file for all, which hloc reads.")
    ],
    defense: Annotated[
        str,
        typer.Option(
            help="How descriptors are hidden: lifting, hardened, concealer; with a proven bound subset, metric, naive."
        ),
    ] = "lifting",
    strategy: Strategy = None,
    dimension: Dimension = None,
    random_share: Annotated[
        float | None, typer.Option(help="Lifting: share of random directions.", show_default="the strategy's")
    ] = None,
    confounders: Confounders = None,
    pool: PoolFile = None,
    concealer: ConcealerFile = None,
    then: Then = None,
    epsilon: Epsilon = None,
    subset_size: SubsetSize = None,
    database: DatabaseFile = None,
    database_digest: DatabaseDigest = None,
    ledger: Annotated[
        Path | None, typer.Option(help="Privacy ledger to charge; nothing is released unless it was recorded there.")
    ] = None,
    subject: Annotated[str | None, typer.Option(help="Person or device whose budget the ledger charges.")] = None,
    keep_geometry: Annotated[
        bool, typer.Option("--keep-geometry", help="Also release scale, orientation and response: they leak.")
    ] = False,
    apart: Apart = False,
    allow_line: Annotated[
        bool, typer.Option("--allow-line", help="Lifting: permit dimension 1, which hides almost nothing.")
    ] = False,
    kind: Annotated[
        str | None,
        typer.Option(
            help="Descriptor kind: of images (default sift), of COLMAP files (default rootsift), and of hloc files"
            " that do not say it.",
            show_default=False,
        ),
    ] = None,
    max_features: Annotated[
        int | None,
        typer.Option(min=1, help="Features to release, the strongest.", show_default="2048 of an image, else all"),
    ] = None,
    only: Annotated[
        str | None, typer.Option(help="Of many images, those whose names fit: a pattern such as 'query/*'.")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Skip inputs that were released before.")] = False,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Release again; two releases together reveal more than one.")
    ] = False,
    strict: Annotated[bool, typer.Option("--strict", help="Refuse choices that known attacks break.")] = False,
    json: Json = False,
) -> None:
    """Hide descriptors so that they still match. Randomness is the operating system's, or that of the pool's secret.

    An input that cannot be read is reported and left out: exit code 1 if others worked, 2 if none did.

    Example: featveil privatize query.jpg --out query.veil --defense subset --epsilon 10

    Example: featveil privatize query.jpg --out query.veil --defense concealer --then lifting --dimension 4
    """
    options: dict[str, Any] = {"strategy": strategy, "dimension": dimension, "random_share": random_share}
    options |= {"epsilon": epsilon, "subset_size": subset_size, "allow_line": allow_line or None}
    options |= {"confounders": confounders, "pool": pool, "network": concealer, "then": then}
    method = make_defense(defense, options, database, database_digest)
    account = _account(ledger, subject, method)
    sources = find_sources(features, kind, max_features, only)
    releases = Releases(method, Released(keep_geometry, apart), account)
    if strict:
        _refuse_weak(releases, sources)
    work = release_all(sources, _output(sources, out), releases, resume, overwrite)
    finish(work, out, releases.facts(work.features), json, releases.text())


def release_all(
    sources: dict[str, Source], output: Output, releases: Releases, resume: bool, overwrite: bool
) -> "Work[PrivateFeatures]":
    """Make and write what `output` lacks of `sources`, under a progress bar; what was done, skipped and failed."""
    skipped = names_to_skip(output, releases.method, resume, overwrite)
    work = Work(lambda path: releases.make(sources[str(path)].read()), len(sources))
    work.skipped = len(skipped)
    with progress("privatizing") as report:
        work.report = report
        output.release([name for name in sources if name not in skipped], work, releases)
    if work.written:
        releases.warn()
    return work


def _output(sources: dict[str, Source], out: Path) -> Output:
    one_for_all = out.suffix.lower() in HDF5 and not out.is_dir()
    return PrivateFile(sources, out) if one_for_all else VeilFiles(sources, out)


def _account(ledger: Path | None, subject: str | None, method: "Defense") -> "Account | None":
    """Where releases are charged; raises InputError when only one of the two is given or the method has no epsilon."""
    if (ledger is None) != (subject is None):
        raise InputError("--ledger and --subject go together: the ledger charges a subject")
    if ledger is None or subject is None:
        return None
    from featveil.stores.ledger import Ledger

    if method.guarantee().epsilon is None:
        raise InputError("a ledger accounts for differential privacy, which lifting does not have: use subset")
    return Ledger(ledger).account(subject)


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
