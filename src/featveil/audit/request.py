"""What an audit is asked for, before any photograph is read: see `audit_file` for the same as a file."""

from dataclasses import dataclass, field
from pathlib import Path

from featveil.attacks import ATTACKS, Attack
from featveil.audit.chosen_schemes import default_schemes
from featveil.audit.releases import Scheme
from featveil.core import InputError
from featveil.core.records import Parameter
from featveil.core.seeding import check_seed
from featveil.extractors import EXTRACTORS

IMAGES = 6
BUILT_IN = "built-in pictures"
# Without an audit file: what takes some minutes on two cores, and for a folder about a quarter of an hour.
_BUILT_IN_FEATURES, _FOLDER_FEATURES, _FOLDER_IMAGES, _SAMPLE = 400, 500, 4, 25


@dataclass(frozen=True)
class Settings:
    """What all records of an audit share, and its seeds; `sample` features are attacked one by one."""

    kind: str = "sift"
    max_features: int = 1000
    sample: int = 100
    seeds: tuple[int, ...] = (0,)

    def __post_init__(self) -> None:
        if not isinstance(self.kind, str) or self.kind not in EXTRACTORS:
            raise InputError(f"unknown descriptor kind {self.kind!r:.80}: use one of {', '.join(EXTRACTORS)}")
        for name in ("max_features", "sample"):
            check_positive(name, getattr(self, name))
        if not self.seeds:
            raise InputError("seeds names none: give at least one, such as [0]")
        for seed in self.seeds:
            check_seed(seed)
        check_different("seeds", [str(seed) for seed in self.seeds])

    def shared(self) -> dict[str, Parameter]:
        """These settings but the seeds, as every record states them."""
        return {"kind": self.kind, "max_features": self.max_features, "sample": self.sample}


@dataclass(frozen=True)
class Source:
    """A folder of photographs, or of scenes in HPatches layout, of which at most `images` are attacked."""

    folder: Path
    name: str
    images: int = IMAGES

    def __post_init__(self) -> None:
        check_positive("images", self.images)


@dataclass(frozen=True)
class Attacker:
    """Whose descriptors are the attacker's own: those of a database file, or `size` of photographs in folders.

    Without either they come from photographs of the datasets that are not attacked, and from bundled descriptors.
    """

    photos: tuple[Path, ...] = ()
    database: Path | None = None
    size: int = 65_536

    def __post_init__(self) -> None:
        check_positive("size", self.size)
        if self.photos and self.database is not None:
            raise InputError("an attacker has photos or a database: name one of the two")


@dataclass(frozen=True)
class Request:
    """Everything that is to be measured; without `sources` on the built-in pictures.

    `pool` are folders of photographs that fill the pools of hardened lifting; without any, as for the attacker.
    """

    schemes: tuple[Scheme, ...]
    sources: tuple[Source, ...] = ()
    settings: Settings = field(default_factory=Settings)
    methods: tuple[Attack, ...] = field(default_factory=lambda: tuple(method() for method in ATTACKS.values()))
    attacker: Attacker = field(default_factory=Attacker)
    pool: tuple[Path, ...] = ()

    def __post_init__(self) -> None:
        check_different("scheme", [scheme.name for scheme in self.schemes])
        check_different("dataset", [source.name for source in self.sources])
        check_different("attack", [method.name for method in self.methods])


def built_in_request() -> Request:
    """The audit that needs no file: the demo's pictures under the usual schemes."""
    settings = Settings(max_features=_BUILT_IN_FEATURES, sample=_SAMPLE)
    return Request(tuple(default_schemes(settings.kind)), settings=settings)


def folder_request(folder: Path) -> Request:
    """The audit of a folder of photographs under the usual schemes."""
    settings = Settings(max_features=_FOLDER_FEATURES, sample=_SAMPLE)
    source = Source(folder, folder.resolve().name, _FOLDER_IMAGES)
    return Request(tuple(default_schemes(settings.kind)), (source,), settings)


def check_positive(name: str, value: int) -> None:
    """Raise InputError unless `value` is a whole number of at least 1."""
    if type(value) is not int or value < 1:
        raise InputError(f"{name} must be a whole number of at least 1, got {value!r:.80}")


def check_different(what: str, names: list[str]) -> None:
    """Raise InputError when two of `names` are the same."""
    twice = [name for place, name in enumerate(names) if name in names[:place]]
    if twice:
        raise InputError(f"{what} {twice[0]} is there twice: name each once")
