"""The only place where a name becomes a defense or an attack, and a table of values one with parameters.

The classes are named as text and imported when they are asked for. Another package adds its own by an entry point of
the group `featveil.defenses` or `featveil.attacks`, or by `register`. The fields of a method's dataclass are its
parameters everywhere: options of commands, keys of audit files, arguments in Python.
"""

import dataclasses
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, ClassVar

from featveil.core import ConcealingNetwork, Defense, InputError, PrivacyError
from featveil.core.options import Option, Parameter, describe_types, option, parameters_of, parse
from featveil.databases import Database, load_database
from featveil.formats.network_files import load_network
from featveil.gate import Sketch, load_sketch
from featveil.stores.pool import Pool

ALL, NONE = "all", "none"
_log = logging.getLogger(__name__)
_WORDS = {
    str: "text",
    Path: "a file name",
    Database: "a file name",
    ConcealingNetwork: "a file name",
    Pool: "a file name",
    Sketch: "a file name",
}
_LOADERS: dict[type, Callable[..., Any]] = {
    Database: load_database,
    ConcealingNetwork: load_network,
    Pool: Pool,
    Sketch: load_sketch,
}


@dataclasses.dataclass(frozen=True)
class Pinned:
    """The path of a file that must have this digest."""

    path: Path
    digest: str


class Registry(Mapping[str, Any]):
    """Methods of one role by name, each a frozen dataclass whose fields are its parameters."""

    _BUILTIN: ClassVar[str] = "featveil"

    def __init__(self, role: str, homes: Mapping[str, str]) -> None:
        self.role = role
        self._homes = dict(homes)
        self._loaded: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._loaded:
            if name not in self._homes and name not in self._plugins:
                raise KeyError(name)
            self._loaded[name] = self._load(name)
        return self._loaded[name]

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys((*self._homes, *self._plugins, *self._loaded)))

    def __len__(self) -> int:
        return len(list(iter(self)))

    def register(self, method: Any, name: str | None = None) -> Any:
        """Add `method`, a dataclass, under `name` (default: its own `name`); raises InputError for a name twice."""
        name = name or getattr(method, "name", None)
        if not isinstance(name, str) or not dataclasses.is_dataclass(method):
            raise InputError(f"a {self.role} is a dataclass with a name")
        if name in self:
            raise InputError(f"there is a {self.role} called {name} already")
        self._loaded[name] = method
        return method

    def unregister(self, name: str) -> None:
        """Take away what `register` added."""
        if name in self._homes or name in self._plugins:
            raise InputError(f"{name} comes with a package: it cannot be taken away")
        self._loaded.pop(name, None)

    def parameters(self, name: str) -> dict[str, Parameter]:
        """The parameters of the method called `name`; raises InputError when there is none."""
        if name not in self:
            raise InputError(f"unknown {self.role} {name!r:.80}: use one of {', '.join(self)}")
        return parameters_of(self[name])

    def make(self, name: str, given: Mapping[str, Any], folder: Path = Path()) -> Any:
        """The method called `name` with the parameters `given`, as a file or a request states them.

        What must be read from a file (a database, a network, a pool) may be its path, relative to `folder`; a method
        within a method is a table with a `name`. Raises InputError for what does not fit.
        """
        takes = self.parameters(name)
        for key in given:
            if key not in takes:
                raise InputError(f"unknown key {key!r:.80}: use some of {', '.join(('name', *takes))}")
        missing = [one.name for one in takes.values() if one.required and one.name not in given]
        if missing:
            raise InputError(f"{name} needs {missing[0]}")
        return self[name](**{key: self._value(value, takes[key], folder) for key, value in given.items()})

    def _value(self, value: Any, takes: Parameter, folder: Path) -> Any:
        loader = next((load for kind, load in _LOADERS.items() if kind in takes.types), None)
        if loader is not None:
            if isinstance(value, str | Path):
                return loader(folder / value)
            if isinstance(value, Pinned):
                return loader(folder / value.path, value.digest)
            return value
        if self.nests(takes):
            if not isinstance(value, Mapping):
                return value
            nested = dict(value)
            name = nested.pop("name", None)
            if not isinstance(name, str) or self.get(name) not in takes.types:
                known = ", ".join(one for one in self if self[one] in takes.types)
                raise InputError(f"{takes.name} has the name of one of {known}, got {name!r:.80}")
            return self.make(name, nested, folder)
        if type(value) is int and float in takes.types and int not in takes.types:
            return float(value)
        if type(value) not in takes.types and not _is_literal(value, takes):
            words = describe_types(tuple(kind for kind in takes.types if kind is not type(None)), _WORDS)
            raise InputError(f"{takes.name} must be {words}, got {value!r:.80}")
        return value

    def nests(self, takes: Parameter) -> bool:
        """Whether the parameter is another method of this registry."""
        return any(dataclasses.is_dataclass(kind) and kind not in _LOADERS for kind in takes.types)

    @cached_property
    def _plugins(self) -> dict[str, Any]:
        group = f"{self._BUILTIN}.{self.role}s"
        return {point.name: point for point in entry_points(group=group) if point.name not in self._homes}

    def _load(self, name: str) -> Any:
        if name not in self._homes:
            try:
                method = self._plugins[name].load()
            except Exception as error:  # whatever another package raises while it is imported
                raise InputError(
                    f"the {self.role} {name} of another package cannot be loaded: {error!r:.200}"
                ) from error
            if not dataclasses.is_dataclass(method):
                raise InputError(f"the {self.role} {name} of another package is not a dataclass")
            return method
        module, _, attribute = self._homes[name].partition(":")
        return getattr(import_module(module), attribute)


DEFENSES = Registry(
    "defense",
    {
        "identity": "featveil.defenses.identity:Identity",
        "lifting": "featveil.defenses.lifting:Lifting",
        "hardened": "featveil.defenses.hardened:Hardened",
        "subset": "featveil.defenses.subset:Subset",
        "metric": "featveil.defenses.metric:Metric",
        "naive": "featveil.defenses.naive:Naive",
        "concealer": "featveil.defenses.concealer:Concealer",
        "gate": "featveil.defenses.gate:Gate",
    },
)

ATTACKS = Registry(
    "attack",
    {
        "chance": "featveil.attacks.chance:Chance",
        "read": "featveil.attacks.read:Read",
        "mean": "featveil.attacks.mean:Mean",
        "nearest": "featveil.attacks.nearest:NearestNeighbour",
        "oracle": "featveil.attacks.oracle:Oracle",
        "database": "featveil.attacks.database:DatabaseAttack",
        "unmix": "featveil.attacks.unmix:Unmix",
        "clustering": "featveil.attacks.clustering:Clustering",
        "closest-pair": "featveil.attacks.closest_pair:ClosestPair",
        "inlier": "featveil.attacks.inlier:Inlier",
        "lattice": "featveil.attacks.lattice:Lattice",
        "vertex": "featveil.attacks.vertex:Vertex",
        "relift": "featveil.attacks.relift:Relift",
        "overlap": "featveil.attacks.overlap:Overlap",
        "discriminator": "featveil.attacks.discriminator:Discriminator",
        "posterior": "featveil.attacks.posterior:Posterior",
        "posterior-overlap": "featveil.attacks.posterior_overlap:WordOverlap",
        "unconceal": "featveil.attacks.unconceal:Unconceal",
    },
)


def register(method: Any, name: str | None = None) -> Any:
    """Add a defense or an attack, a dataclass, under `name` (default: its own); as a decorator or a call.

    A class with `breaks` is an attack, one with `privatize` a defense. From then on commands, audit files and Python
    know it by that name in this process; a package adds its own by an entry point. Raises InputError for what is
    neither, and for a name twice.
    """
    for registry, mark in ((ATTACKS, "breaks"), (DEFENSES, "privatize")):
        if hasattr(method, mark):
            return registry.register(method, name)
    raise InputError(f"expected a defense or an attack, got {getattr(method, '__name__', method)!r:.80}")


def defense_options(names: Iterable[str] | None = None) -> type:
    """A dataclass with the parameters of the defenses called `names` (default: all), as a command offers them.

    Parameters that the command line spells alike are one field; each is None until it is given.
    """
    names = list(DEFENSES) if names is None else list(names)
    spelled: dict[tuple[str, ...], list[tuple[str, Parameter]]] = {}
    for name in names:
        for parameter in _parameters(name).values():
            spelled.setdefault(parameter.flags, []).append((name, parameter))
    fields = [
        (_field_name(flags), _offered(uses[0][1]), option(None, **_described(flags, uses)))
        for flags, uses in spelled.items()
    ]
    return dataclasses.make_dataclass("DefenseOptions", fields, frozen=True)


def make_defense(name: str, options: Any = None, digest: str | None = None) -> Defense:
    """The defense called `name` with those of `options` that were given: see `defense_options`, or a mapping.

    Files must have `digest`, where there is one. Of a defense that another one follows (--then), all options that are
    not its own are for that one. Raises InputError for an option that does not belong, and PrivacyError where nothing
    would be hidden.
    """
    if options is None or isinstance(options, Mapping):
        given = dict(options or {})
    else:
        given = {field.name: getattr(options, field.name) for field in dataclasses.fields(options)}
    given = {_flag(field): value for field, value in given.items() if value is not None and value is not False}
    if name not in DEFENSES:
        usable = [known for known in DEFENSES if known != "identity"]
        raise InputError(f"unknown defense {name!r}: use one of {', '.join(usable)}")
    defense: Defense = DEFENSES.make(name, _by_field(name, given, digest))
    if defense.guarantee().kind == "none":
        advice = (
            "use lifting or subset" if name == "identity" else "an infinite epsilon is for studies with the Python API"
        )
        raise PrivacyError(f"this hides nothing, so its result is never written for release: {advice}")
    return defense


def make_attacks(names: Iterable[str], settings: Iterable[str] = ()) -> list[Any]:
    """The attacks called `names` ("all" for every one) with `settings`, each NAME=VALUE or ATTACK.NAME=VALUE.

    Raises InputError for what there is not, or what two of them have.
    """
    wanted = list(dict.fromkeys(names))
    if ALL in wanted and len(wanted) > 1:
        raise InputError("--with all stands for every attack: leave the other names out")
    chosen = list(ATTACKS) if ALL in wanted else wanted
    for name in chosen:
        if name not in ATTACKS:
            raise InputError(f"unknown attack {name!r:.80}: use one of {', '.join(ATTACKS)}, or all")
    given: dict[str, dict[str, Any]] = {name: {} for name in chosen}
    for setting in settings:
        owner, field, value = _setting(setting, chosen)
        given[owner][field] = value
    return [ATTACKS[name](**given[name]) for name in chosen]


def _parameters(name: str) -> dict[str, Parameter]:
    """Those of a defense; none, with a warning, of one that another package brings and that cannot be loaded."""
    try:
        return DEFENSES.parameters(name)
    except InputError as error:
        _log.warning("%s", error)
        return {}


def _setting(text: str, chosen: list[str]) -> tuple[str, str, Any]:
    """Attack, parameter and value of one NAME=VALUE or ATTACK.NAME=VALUE."""
    path, equals, value = text.partition("=")
    owner, dot, field = path.strip().rpartition(".")
    if not equals or not field:
        raise InputError(f"--set takes NAME=VALUE or ATTACK.NAME=VALUE, got {text!r:.80}")
    takes = {name: ATTACKS.parameters(name) for name in chosen}
    if dot and owner not in takes:
        raise InputError(f"--set {path} is for an attack that is not run: these are {', '.join(chosen)}")
    owners = [owner] if dot else [name for name in chosen if field in takes[name]] or chosen[:1]
    if len(owners) > 1:
        raise InputError(f"{' and '.join(owners)} both have {field}: --set {owners[0]}.{field}=... says which is meant")
    if field not in takes[owners[0]]:
        listed = [f"{name} has {', '.join(takes[name]) or 'none'}" for name in ([owner] if dot else chosen)]
        raise InputError(f"there is no parameter {field!r:.80} to set: {'; '.join(listed)}")
    return owners[0], field, parse(value.strip(), takes[owners[0]][field], f"--set {path.strip()}")


def _by_field(name: str, given: Mapping[str, Any], digest: str | None) -> dict[str, Any]:
    """Values by the defense's fields, of those by flag; what belongs to a defense that follows is a table."""
    takes = DEFENSES.parameters(name)
    own = {one.flags[0]: one for one in takes.values()}
    others = {flag: value for flag, value in given.items() if flag not in own}
    follows = next((one for one in takes.values() if DEFENSES.nests(one)), None)
    after = None if follows is None else given.get(follows.flags[0])
    if others and after is None:
        stray = next(iter(others))
        owners = [each for each in DEFENSES if stray in (one.flags[0] for one in _parameters(each).values())]
        listed = f"it takes {', '.join(one.flags[-1] for one in takes.values())}" if takes else "it takes no option"
        advice = listed if follows is None else f"name the defense it is for with {follows.flags[0]}"
        meant = f", or use --defense {owners[0]}" if len(owners) == 1 else ""
        raise InputError(f"{stray} does not belong to {name}: {advice}{meant}")
    for one in takes.values():
        if one.option.needed and one.flags[0] not in given:
            raise InputError(f"{name} needs {one.flags[0]}, {one.option.needed}")
    values = {one.name: given[flag] for flag, one in own.items() if flag in given}
    sketches, databases = (
        [one.name for one in takes.values() if kind in one.types and one.name in values] for kind in (Sketch, Database)
    )
    pinned = sketches or databases
    if follows is not None and after is not None:
        known = [each for each in DEFENSES if DEFENSES[each] in follows.types]
        if after == NONE and "identity" in known:
            after = "identity"
        if after not in known:
            listed = ", ".join(NONE if each == "identity" else each for each in known)
            raise InputError(f"after a {name} come {listed}, got {follows.flags[0]} {after!r:.80}")
        values[follows.name] = {"name": after, **_by_field(after, others, None if pinned else digest)}
    elif digest is not None and not pinned:
        raise InputError("--database-digest needs --database or --sketch: the built-in one is verified by itself")
    if digest is not None:
        values |= {key: Pinned(values[key], digest) for key in pinned}
    return values


def _offered(parameter: Parameter) -> Any:
    """The type of a parameter on the command line: a file by its path, a defense by its name."""
    if any(kind in _LOADERS for kind in parameter.types):
        return Path | None
    if DEFENSES.nests(parameter):
        return str | None
    return next(kind for kind in parameter.types if kind is not type(None)) | None


def _described(flags: tuple[str, ...], uses: list[tuple[str, Parameter]]) -> dict[str, Any]:
    """Help that names the defenses, and their defaults."""
    texts: dict[str, list[str]] = {}
    for name, parameter in uses:
        texts.setdefault(parameter.option.help, []).append(name)
    defaults = {name: one.default for name, one in uses if one.default not in (dataclasses.MISSING, None, False)}
    first: Option = uses[0][1].option
    shown: str | bool | None = first.shown
    if shown is None and defaults:
        same = len({str(value) for value in defaults.values()}) == 1
        shown = str(next(iter(defaults.values()))) if same else ", ".join(f"{n} {v}" for n, v in defaults.items())
    help_text = " ".join(f"{', '.join(names).capitalize()}: {text}" for text, names in texts.items())
    return {"help": help_text, "flags": flags, "shown": shown}


def _field_name(flags: tuple[str, ...]) -> str:
    return flags[0].removeprefix("--").replace("-", "_")


def _flag(field: str) -> str:
    return "--" + field.replace("_", "-")


def _is_literal(value: Any, takes: Parameter) -> bool:
    return any(value in getattr(kind, "__args__", ()) for kind in takes.types)
