"""featveil privatize: raw features or images -> private features, which may be sent."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from featveil.cli.console import Json, complain, progress
from featveil.cli.extract import HDF5, MaxFeatures, Work, finish, has_images, named_images, read_features, targets
from featveil.core.errors import InputError, PrivacyError
from featveil.core.files import make_folder

if TYPE_CHECKING:
    from featveil.core import Defense, Features, PrivateFeatures

_ATTACKS = "database lookup, clustering of features, overlap of keypoints"
_ON_INTEGERS = ", lattice reduction (plain SIFT is integers; rootsift is not)"
_ALWAYS_MEET = "subspaces of half the descriptor size always meet, so these can be matched with raw features only"
_THREATS = "docs/threat-model.md"


def privatize(
    features: Annotated[
        list[Path],
        typer.Argument(metavar="FEATURES...", help="Raw .veil files, images, folders of either, or hloc .h5 files."),
    ],
    out: Annotated[Path, typer.Option(help="A .veil file for one input, else a folder.")],
    defense: Annotated[str, typer.Option(help="How descriptors are hidden: lifting.")] = "lifting",
    strategy: Annotated[
        str, typer.Option(help="random, adversarial, hybrid, sub-adversarial, sub-hybrid or hybrid+.")
    ] = "sub-hybrid",
    dimension: Annotated[int, typer.Option(help="Dimension of the subspaces.")] = 4,
    random_share: Annotated[
        float | None, typer.Option(help="Share of random directions.", show_default="the strategy's")
    ] = None,
    database: Annotated[
        Path | None, typer.Option(help="Database file to draw from.", show_default="the built-in one")
    ] = None,
    database_digest: Annotated[str | None, typer.Option(help="Refuse a database with another digest.")] = None,
    keep_geometry: Annotated[
        bool, typer.Option("--keep-geometry", help="Also release scale, orientation and response: they leak.")
    ] = False,
    allow_line: Annotated[
        bool, typer.Option("--allow-line", help="Permit dimension 1, which hides almost nothing.")
    ] = False,
    kind: Annotated[
        str | None,
        typer.Option(help="Descriptor kind: of images (default sift), and of hloc files that do not say it."),
    ] = None,
    max_features: MaxFeatures = 2048,
    resume: Annotated[bool, typer.Option("--resume", help="Skip inputs that were released before.")] = False,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Release again; two releases together reveal more than one.")
    ] = False,
    json: Json = False,
) -> None:
    """Hide descriptors so that they still match. Randomness is the operating system's; there is no seed.

    An input that cannot be read is reported and left out: exit code 1 if others worked, 2 if none did.

    Example: featveil privatize query.jpg --out query.veil --dimension 4
    """
    method = _method(defense, _Choice(strategy, dimension, random_share, allow_line), database, database_digest)
    sources = _sources(features, kind, max_features)
    planned = targets(list(sources), out)
    skipped = _check_targets(sources, planned, resume, overwrite)
    _check_settings([planned[name] for name in skipped], method)
    release = _Release(method, keep_geometry)
    work = Work(lambda path: release.make(_raw(sources[str(path)])), len(planned))
    work.skipped = len(skipped)
    with progress("privatizing") as report:
        work.report = report
        for name, target in planned.items():
            if name not in skipped:
                _release_one(name, target, work, release)
    finish(work, out, release.facts(work), json, release.text())


@dataclass(frozen=True)
class _Choice:
    strategy: str
    dimension: int
    random_share: float | None
    allow_line: bool


@dataclass(frozen=True)
class _Source:
    """Where raw features are; `name` is the image's in an hloc file."""

    path: Path
    name: str | None
    kind: str | None
    max_features: int


def _method(defense: str, choice: _Choice, database: Path | None, digest: str | None) -> "Defense":
    from featveil.databases import load_database
    from featveil.defenses import DEFENSES, Lifting

    if defense == "identity":
        raise PrivacyError("identity hides nothing, so its result is never written for release: use lifting")
    if defense not in DEFENSES:
        raise InputError(f"unknown defense {defense!r}: use lifting")
    if digest is not None and database is None:
        raise InputError("--database-digest needs --database: the built-in one is verified by itself")
    lifting = Lifting(choice.strategy, choice.dimension, choice.random_share, allow_line=choice.allow_line)
    if database is None:
        return lifting
    made = load_database(database, digest)
    return Lifting(choice.strategy, choice.dimension, choice.random_share, made, choice.allow_line)


def _sources(inputs: list[Path], kind: str | None, max_features: int) -> dict[str, _Source]:
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
        features = read_features(source.path, source.kind or "sift", source.max_features)
    if not isinstance(features, Features):
        raise PrivacyError(f"{source.path} is private already: privatize the raw features it came from")
    return features


class _Release:
    """Makes the releases, and remembers what the last one was for the summary."""

    def __init__(self, method: "Defense", keep_geometry: bool) -> None:
        self.method, self.keep_geometry = method, keep_geometry
        self.last: PrivateFeatures | None = None
        self.bytes = 0

    def make(self, features: "Features") -> "PrivateFeatures":
        """One release, with fresh randomness."""
        from featveil.core import Subspaces
        from featveil.defenses import privatize as privatize_features

        first = self.last is None
        self.last = privatize_features(features, self.method, keep_geometry=self.keep_geometry)
        hidden = self.last.descriptors
        if first and isinstance(hidden, Subspaces) and 2 * hidden.dimension >= hidden.size:
            complain("warning", f"{_ALWAYS_MEET} (dimension {hidden.dimension} of {hidden.size})")
        return self.last

    def leaks(self) -> list[str]:
        """What a receiver reads off without any attack."""
        keypoints = self.last.keypoints if self.last else None
        geometry = [name for name in ("scale", "orientation", "response") if getattr(keypoints, name, None) is not None]
        positions = ["position"] if keypoints is not None else []
        return [
            *(f"{name} of every feature" for name in positions + geometry),
            "number of features",
            *(["image size"] if self.last and self.last.image_size else []),
        ]

    def attacks(self) -> str:
        """Attacks that are known to apply to the last release."""
        return _ATTACKS + (_ON_INTEGERS if self.last and self.last.kind == "sift" else "")

    def facts(self, work: "Work[PrivateFeatures]") -> dict[str, Any]:
        """For --json."""
        if self.last is None:
            return {"features": 0, "bytes": 0}
        return {
            "features": work.features,
            "bytes": self.bytes,
            "kind": self.last.kind,
            "defense": self.last.defense,
            "guarantee": {"kind": self.last.guarantee.kind, "epsilon": self.last.guarantee.epsilon},
            "leaks": self.leaks(),
            "known_attacks": self.attacks(),
        }

    def text(self) -> str:
        """For a person."""
        if self.last is None:
            return ""
        spec = self.last.defense
        digest = f", database {str(spec['database'])[:12]}" if spec.get("database") else ""
        return "\n".join(
            (
                f"defense    {spec['name']}: {spec['strategy']}, dimension {spec['dimension']}{digest}",
                f"guarantee  {self.last.guarantee.kind}: judged by known attacks only, nothing is proved",
                f"leaks      {', '.join(self.leaks())}",
                f"attacks    exist: {self.attacks()} ({_THREATS})",
            )
        )


def _release_one(name: str, target: Path, work: "Work[PrivateFeatures]", release: _Release) -> None:
    from featveil.formats.veil import save

    private = work.tried(Path(name))
    if private is None:
        return
    make_folder(target.parent)
    save(private, target)
    work.written += 1
    work.features += len(private)
    release.bytes += target.stat().st_size
    work.advance()
