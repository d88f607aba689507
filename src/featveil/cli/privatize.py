"""featveil privatize: raw features or images -> private features, which may be sent."""

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from featveil.cli.console import Json, complain, progress
from featveil.cli.extract import HDF5, Work, finish, has_images, named_images, read_features, targets
from featveil.cli.methods import make_defense
from featveil.cli.releases import Released, Releases
from featveil.core.errors import FeatveilError, InputError, PrivacyError
from featveil.core.files import make_folder, replacing

if TYPE_CHECKING:
    from featveil.core import Account, Defense, Features, PrivateFeatures

_FEATURES_OF_IMAGE = 2048


def privatize(
    features: Annotated[
        list[Path],
        typer.Argument(metavar="FEATURES...", help="Raw .veil files, images, folders of either, or hloc .h5 files."),
    ],
    out: Annotated[Path, typer.Option(help="A .veil file for one input, else a folder.")],
    defense: Annotated[
        str,
        typer.Option(
            help="How descriptors are hidden: lifting, hardened, or with a proven bound subset, metric or naive."
        ),
    ] = "lifting",
    strategy: Annotated[
        str | None,
        typer.Option(
            help="Lifting: random, adversarial, hybrid, sub-adversarial, sub-hybrid or hybrid+.",
            show_default="sub-hybrid",
        ),
    ] = None,
    dimension: Annotated[
        int | None,
        typer.Option(help="Lifting, hardened: dimension of the subspaces.", show_default="lifting 4, hardened 16"),
    ] = None,
    random_share: Annotated[
        float | None, typer.Option(help="Lifting: share of random directions.", show_default="the strategy's")
    ] = None,
    confounders: Annotated[
        int | None, typer.Option(help="Hardened: real descriptors that each is hidden among.", show_default="4")
    ] = None,
    pool: Annotated[
        Path | None, typer.Option(help="Hardened: pool of the device's own photographs (featveil pool create).")
    ] = None,
    epsilon: Annotated[
        float | None, typer.Option(help="Subset, metric, naive: bound on the leakage of each descriptor.")
    ] = None,
    subset_size: Annotated[
        int | None,
        typer.Option(help="Subset, metric: words sent for each descriptor.", show_default="subset 2, metric 1"),
    ] = None,
    database: Annotated[
        Path | None,
        typer.Option(
            "--database",
            "--codebook",
            help="Database file that lifting draws from, or the codebook of subset and metric.",
            show_default="the built-in one",
        ),
    ] = None,
    database_digest: Annotated[
        str | None, typer.Option("--database-digest", "--codebook-digest", help="Refuse a file with another digest.")
    ] = None,
    ledger: Annotated[
        Path | None, typer.Option(help="Privacy ledger to charge; nothing is released unless it was recorded there.")
    ] = None,
    subject: Annotated[str | None, typer.Option(help="Person or device whose budget the ledger charges.")] = None,
    keep_geometry: Annotated[
        bool, typer.Option("--keep-geometry", help="Also release scale, orientation and response: they leak.")
    ] = False,
    apart: Annotated[
        bool, typer.Option("--apart", help="Release only features that neither overlap nor resemble each other: few.")
    ] = False,
    allow_line: Annotated[
        bool, typer.Option("--allow-line", help="Lifting: permit dimension 1, which hides almost nothing.")
    ] = False,
    kind: Annotated[
        str | None,
        typer.Option(help="Descriptor kind: of images (default sift), and of hloc files that do not say it."),
    ] = None,
    max_features: Annotated[
        int | None,
        typer.Option(min=1, help="Features to release, the strongest.", show_default="2048 of an image, else all"),
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
    """
    options: dict[str, Any] = {"strategy": strategy, "dimension": dimension, "random_share": random_share}
    options |= {"epsilon": epsilon, "subset_size": subset_size, "allow_line": allow_line or None}
    options |= {"confounders": confounders, "pool": pool}
    method = make_defense(defense, options, database, database_digest)
    account = _account(ledger, subject, method)
    sources = _sources(features, kind, max_features)
    releases = Releases(method, Released(keep_geometry, apart), account)
    if strict:
        _refuse_weak(releases, sources)
    planned = targets(list(sources), out)
    skipped = _check_targets(sources, planned, resume, overwrite)
    _check_settings([planned[name] for name in skipped], method)
    work = Work(lambda path: releases.make(_raw(sources[str(path)])), len(planned))
    work.skipped = len(skipped)
    with progress("privatizing") as report:
        work.report = report
        for name, target in planned.items():
            if name not in skipped:
                _release_one(name, target, work, releases)
    if work.written:
        releases.warn()
    finish(work, out, releases.facts(work.features), json, releases.text())


@dataclass(frozen=True)
class _Source:
    """Where raw features are; `name` is the image's in an hloc file."""

    path: Path
    name: str | None
    kind: str | None
    max_features: int | None


def _account(ledger: Path | None, subject: str | None, method: "Defense") -> "Account | None":
    """Where releases are charged; raises InputError when only one of the two is given or the method has no epsilon."""
    if (ledger is None) != (subject is None):
        raise InputError("--ledger and --subject go together: the ledger charges a subject")
    if ledger is None or subject is None:
        return None
    from featveil.ledger import Ledger

    if method.guarantee().epsilon is None:
        raise InputError("a ledger accounts for differential privacy, which lifting does not have: use subset")
    return Ledger(ledger).account(subject)


def _sources(inputs: list[Path], kind: str | None, max_features: int | None) -> dict[str, _Source]:
    """What to privatize, by name. A folder stands for its .veil files or, without any, its images."""
    found: dict[str, _Source] = {}
    for path in inputs:
        if path.suffix.lower() in HDF5:
            from featveil.formats import hloc

            more = {name: _Source(path, name, kind, max_features) for name in hloc.names(path)}
            if not more:
                raise InputError(f"{path} holds no image features")
        elif path.is_dir() and (veils := sorted(path.rglob("*.veil"))):
            if has_images(path):
                raise InputError(f"{path} holds both images and .veil files: name the ones you mean")
            names = {veil.relative_to(path).as_posix(): veil for veil in veils}
            more = {name: _Source(veil, None, kind, max_features) for name, veil in names.items()}
        else:
            more = {name: _Source(file, None, kind, max_features) for name, file in named_images([path]).items()}
        for name, source in more.items():
            if found.setdefault(name, source) != source:
                raise InputError(f"{found[name].path} and {path} both hold {name!r}: use two folders")
    return found


def _refuse_weak(releases: Releases, sources: dict[str, _Source]) -> None:
    """Raise PrivacyError when an attack is known to work on what would be released of any source.

    A source whose kind cannot be read is left to fail when its turn comes.
    """
    from featveil.defenses import refuse

    kinds: set[str] = set()
    for source in sources.values():
        with suppress(FeatveilError):
            kinds.add(_kind(source))
    refuse(releases.weaknesses(kinds))


def _kind(source: _Source) -> str:
    """The kind of the descriptors in `source`, of which no more is read than that takes."""
    from featveil.formats import hloc, veil

    if source.name is not None:
        return hloc.kind_of(source.path, source.name) or source.kind or ""
    return veil.load(source.path).kind if source.path.suffix.lower() == ".veil" else source.kind or "sift"


def _check_targets(sources: dict[str, _Source], planned: dict[str, Path], resume: bool, overwrite: bool) -> set[str]:
    """The names to skip; raises InputError when an input, or unasked an output, would be replaced."""
    inputs = {source.path.resolve() for source in sources.values()}
    for target in planned.values():
        if target.resolve() in inputs:
            raise InputError(f"{target} is an input: choose another output")
    there = {name for name, target in planned.items() if target.exists()}
    if there and not resume and not overwrite:
        raise InputError(
            f"{planned[min(there)]} exists: --resume keeps it, --overwrite releases again"
            " (two releases of one image together reveal more than one)"
        )
    return there if resume else set()


def _check_settings(released: list[Path], method: "Defense") -> None:
    """Raise InputError when a release that would be kept was made in another way."""
    from featveil.core import PrivateFeatures
    from featveil.formats.veil import load

    for path in released:
        there = load(path)
        if not isinstance(there, PrivateFeatures) or there.defense != method.for_kind(there.kind).spec():
            raise InputError(f"{path} was made with other settings: use those, or another output folder")


def _raw(source: _Source) -> "Features":
    from featveil.core import Features
    from featveil.formats import hloc

    if source.name is not None:
        features: Features | PrivateFeatures = hloc.read(source.path, source.name, source.kind)
        if len(features) == 0:
            raise InputError(f"image {source.name!r} in {source.path} has no features")
    else:
        features = read_features(source.path, source.kind or "sift", source.max_features or _FEATURES_OF_IMAGE)
    if not isinstance(features, Features):
        raise PrivacyError(f"{source.path} is private already: privatize the raw features it came from")
    return features if source.max_features is None else _strongest(features, source.max_features)


def _strongest(features: "Features", most: int) -> "Features":
    """The `most` features of highest response; raises InputError when there are more and none has a response."""
    if len(features) <= most:
        return features
    response = None if features.keypoints is None else features.keypoints.response
    if response is None:
        raise InputError(f"these {len(features)} features have no response to choose {most} by: extract fewer instead")
    return features.take((-response).argsort(kind="stable")[:most])


def _release_one(name: str, target: Path, work: "Work[PrivateFeatures]", releases: Releases) -> None:
    """Written beside, charged, then moved into place: what is not recorded is not released, and hardly the reverse."""
    from featveil.formats.veil import save

    private = work.tried(Path(name))
    if private is None:
        return
    make_folder(target.parent)
    before = releases.images
    try:
        with replacing(target) as temporary:
            save(private, temporary)
            size = temporary.stat().st_size
            releases.count(private, name)
    except FeatveilError as error:
        charged = releases.account is not None and releases.images > before
        message = f"{name}: {error}{' (the ledger was charged for it)' if charged else ''}"
        if work.total == 1:
            raise type(error)(message) from error
        work.failed += 1
        complain("warning", message)
    else:
        work.written += 1
        work.features += len(private)
        releases.bytes += size
    work.advance()
