"""What an audit is asked for, before any photograph is read, and the usual schemes; file.py has the same as a file."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Any

from featveil.attacks import Attack
from featveil.audit.schemes import Scheme
from featveil.core import Defense, InputError
from featveil.core.options import parameters_of
from featveil.core.records import Parameter
from featveil.core.seeding import check_seed
from featveil.databases import Database, builtin, conceal_database
from featveil.datasets.private_content import BUNDLED
from featveil.defenses import Gate, Hardened, Identity, builtin_concealer, has_builtin_concealer, last_step
from featveil.extractors import EXTRACTORS
from featveil.pipelines.scoring import scheme_name
from featveil.registry import ATTACKS, DEFENSES

IMAGES = 6
BUILT_IN = "built-in pictures"
# Without an audit file: what takes some minutes on two cores, and for a folder about a quarter of an hour.
_BUILT_IN_FEATURES, _FOLDER_FEATURES, _FOLDER_IMAGES, _SAMPLE = 400, 500, 4, 25

KEYPOINTS = ("all", "apart")
_OF_MAP = ("sketch", "signer")  # options of a gate that are those of one map

_Files = dict[tuple[str, str], Any]  # what was read, by parameter and path

_USUAL: tuple[dict[str, Any], ...] = (
    {"name": "lifting", "strategy": "sub-hybrid", "dimension": [2, 4, 8, 16]},
    {"name": "lifting", "strategy": ["random", "adversarial"], "dimension": 4},
    {"name": "hardened", "confounders": 4, "dimension": 16, "keypoints": ["all", "apart"]},
    {"name": "subset", "epsilon": [10.0, 8.0, 6.0], "subset_size": 4},
    {"name": "metric", "epsilon": 49.0},
    {"name": "gate", "support": ["none", "both"]},
    {"name": "gate", "then": {"name": "subset", "epsilon": 10.0}},
)
# Where a network comes with featveil for the kind: by itself, and before lifting and the subset mechanism.
_CONCEALED: tuple[dict[str, Any], ...] = (
    {"name": "concealer"},
    {"name": "concealer", "then": {"name": "lifting", "strategy": "sub-hybrid", "dimension": 4}},
    {"name": "concealer", "then": {"name": "subset", "epsilon": 8.0, "subset_size": 4}},
)


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
    `private` is the folder of pictures that are pasted into photographs as private content; None pastes none.
    """

    schemes: tuple[Scheme, ...]
    sources: tuple[Source, ...] = ()
    settings: Settings = field(default_factory=Settings)
    methods: tuple[Attack, ...] = field(default_factory=lambda: tuple(_usual_attacks()))
    attacker: Attacker = field(default_factory=Attacker)
    pool: tuple[Path, ...] = ()
    private: Path | None = BUNDLED

    def __post_init__(self) -> None:
        check_different("scheme", [scheme.name for scheme in self.schemes])
        check_different("dataset", [source.name for source in self.sources])
        check_different("attack", [method.name for method in self.methods])


def _usual_attacks() -> Iterator[Attack]:
    """Every attack that needs no parameter."""
    for method in ATTACKS.values():
        if not any(parameter.required for parameter in parameters_of(method).values()):
            yield method()


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


def default_schemes(kind: str) -> list[Scheme]:
    """What an audit measures unless it names others."""
    usual = (*_USUAL, *(_CONCEALED if has_builtin_concealer(kind) else ()))
    return with_identity(scheme for entries in usual for scheme in grid(entries, kind))


def grid(entries: Mapping[str, Any], kind: str, folder: Path = Path()) -> list[Scheme]:
    """One scheme for each combination of the values of `entries`, where a list stands for several.

    `name` is that of a defense, `keypoints` one of KEYPOINTS, `geometry` whether scale and orientation are sent; all
    others are parameters of the defense, as its registry takes them, with paths of files relative to `folder`. `then`,
    of a concealer, is a table or tables of such entries. Raises InputError for what it does not take.
    """
    files: _Files = {}
    return [_scheme(chosen, kind, folder, files) for chosen in _combinations(entries)]


def _combinations(entries: Mapping[str, Any]) -> list[dict[str, Any]]:
    """`entries` with one value each, in every combination; tables within them likewise."""
    choices = []
    for name, value in entries.items():
        values = value if isinstance(value, list) else [value]
        if not values:
            raise InputError(f"{name} is an empty list")
        choices.append([one for each in values for one in (_combinations(each) if isinstance(each, dict) else [each])])
    return [dict(zip(entries, chosen, strict=True)) for chosen in product(*choices)]


def with_identity(schemes: Iterable[Scheme]) -> list[Scheme]:
    """`schemes` after that without any defense, once for each selection of keypoints that occurs."""
    chosen = list(schemes)
    plain = [Scheme("identity", Identity())]
    if any(scheme.apart for scheme in chosen):
        plain.append(Scheme("identity-apart", Identity(), apart=True))
    names = {scheme.name for scheme in plain}
    return [*plain, *(scheme for scheme in chosen if scheme.name not in names)]


def _scheme(entries: dict[str, Any], kind: str, folder: Path, files: _Files) -> Scheme:
    keypoints, geometry = entries.pop("keypoints", "all"), entries.pop("geometry", False)
    if keypoints not in KEYPOINTS:
        raise InputError(f"unknown keypoints {keypoints!r:.80}: use one of {', '.join(KEYPOINTS)}")
    if type(geometry) is not bool:
        raise InputError(f"geometry must be true or false, got {geometry!r:.80}")
    name = entries.pop("name")
    if "pool" in entries and "pool" in DEFENSES.parameters(name):
        raise InputError("unknown key 'pool': pools are filled from the photographs that the audit has for them")
    if name == "gate" and (own := [key for key in _OF_MAP if key in entries]):
        raise InputError(f"unknown key {own[0]!r}: the map of an audit is made of its second views, and so its sketch")
    defense: Defense = _make(name, entries, folder, files)
    if isinstance(defense, Gate) and isinstance(defense.then, Hardened):
        raise InputError("after a gate an audit has no pool for hardened lifting: choose lifting, subset or identity")
    scheme = Scheme("", defense, keypoints == "apart", geometry)
    if not scheme.private_pool and not isinstance(defense, Gate):  # pools are filled later, maps made later
        scheme = replace(scheme, defense=defense.for_kind(kind))
    return replace(scheme, name=_name(scheme, kind))


def _make(name: str, entries: dict[str, Any], folder: Path, files: _Files) -> Any:
    """The defense with these entries; what `files` has of them is not read again, and what is read is put there."""
    named = {key: value for key, value in entries.items() if isinstance(value, str)}
    known = {key: files[key, value] for key, value in named.items() if (key, value) in files}
    defense = DEFENSES.make(name, entries | known, folder)
    for key, value in named.items():
        if not isinstance(getattr(defense, key), str):
            files[key, value] = getattr(defense, key)
    return defense


def _name(scheme: Scheme, kind: str) -> str:
    """Defense and parameters, and what differs from the usual: random directions, network, database, what is sent."""
    spec, network = scheme.defense.spec(), scheme.network
    name = _gate_name(scheme.defense) if isinstance(scheme.defense, Gate) else scheme_name(spec)
    if getattr(last_step(scheme.defense), "random_share", None) is not None:
        name += f"-random-{spec['random_directions']}"
    if network is not None and not (has_builtin_concealer(kind) and network.digest == builtin_concealer(kind).digest):
        name += f"-{network.digest[:8]}"
    own = spec.get("database") or spec.get("codebook")
    if own and own != _usual_database(scheme, kind).digest:
        name += f"-{str(own)[:8]}"
    return name + ("-apart" if scheme.apart else "") + ("-geometry" if scheme.geometry else "")


def _gate_name(gate: Gate) -> str:
    """gate, and what differs from the usual: distance, contrast, who must agree, how many points, what follows."""
    usual, parts = Gate(), ["gate"]
    for name in ("tau", "contrast", "support", "candidates", "min_share", "min_features"):
        value = getattr(gate, name)
        if value != getattr(usual, name):
            text = f"{value:g}" if isinstance(value, int | float) else str(value)
            parts.append(text if name in ("tau", "support") else f"{name.replace('_', '-')}-{text}")
    return "-".join(parts if gate.then is None else [*parts, scheme_name(gate.then.spec())])


def _usual_database(scheme: Scheme, kind: str) -> Database:
    return builtin(kind) if scheme.network is None else conceal_database(builtin(kind), scheme.network)
