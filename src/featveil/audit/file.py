"""An audit file (TOML) -> what is asked for.

    kind, max_features, sample, seeds    what all records share
    [attacker]   photos or database; size
    [pool]       photos
    [[dataset]]  folder; name, images
    [[scheme]]   name of a defense, its fields (a list gives one scheme for each value), keypoints, geometry; of a
                 concealer also then = { name = ..., ... }, the defense after it with its fields
    [[attack]]   name of an attack, its fields

Everything is optional but folder and name. Paths are relative to the file.
"""

import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from featveil.audit.request import (
    IMAGES,
    Attacker,
    Request,
    Settings,
    Source,
    built_in_request,
    check_different,
    default_schemes,
    folder_request,
    grid,
    with_identity,
)
from featveil.audit.schemes import Scheme
from featveil.core import InputError
from featveil.registry import ATTACKS

Value = TypeVar("Value")
Entries = dict[str, Any]

_TOP = ("kind", "max_features", "sample", "seeds", "attacker", "pool", "private", "dataset", "scheme", "attack")
NO_CONTENT = "none"  # pasted into photographs

_INTEGERS = 2**63
_BY_ITSELF = ("chance", "read")  # always run: the floor, and what is read where nothing is hidden
_NAMES = {str: "text", int: "a whole number", list: "a list"}


def read_request(what: Path | None) -> Request:
    """That of an audit file, of a folder of photographs under the usual schemes, or of the built-in pictures."""
    if what is None:
        return built_in_request()
    if what.is_dir():
        return folder_request(what)
    if not what.exists():
        raise InputError(f"there is no audit file or folder {what}")
    if what.suffix.lower() != ".toml":
        raise InputError(f"{what} is neither a folder of photographs nor an audit file, which ends in .toml")
    return read_audit_file(what)


def with_private(request: Request, folder: Path | None, none: bool = False) -> Request:
    """The request with the pictures of `folder` as private content, or with `none`; else as it is."""
    if folder is not None and none:
        raise InputError("private content cannot be both a folder and none: choose one")
    if folder is not None and not folder.is_dir():
        raise InputError(f"there is no folder {folder} of private content")
    return replace(request, private=folder) if folder is not None or none else request


def read_audit_file(path: str | Path) -> Request:
    """What the audit file at `path` asks for; raises InputError, naming the place, for anything that it cannot be."""
    path = Path(path)
    entries = _parsed(path)
    if not entries:
        raise InputError(f"{path} is empty: an audit file has some of {', '.join(_TOP)}")
    _check_keys(entries, _TOP, f"{path}")
    shared: Entries = {name: entries[name] for name in _TOP[:3] if name in entries}
    if "seeds" in entries:
        shared["seeds"] = tuple(_typed(entries, "seeds", list, f"{path}"))
    with _at(f"{path}"):
        settings = Settings(**shared)
    changes: Entries = {"settings": settings, "schemes": _schemes(entries, path, settings.kind)}
    if "attack" in entries:
        changes["methods"] = tuple(_methods(entries, path))
    changes["sources"] = tuple(_sources(entries, path))
    changes["attacker"], changes["pool"] = _attacker(entries, path), _pool(entries, path)
    if "private" in entries:
        changes["private"] = _private(entries, path)
    with _at(f"{path}"):
        return Request(**changes)


def _parsed(path: Path) -> Entries:
    try:
        entries = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"cannot read audit file {path}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:  # ValueError also for text that is not UTF-8, and endless digits
        raise InputError(f"{path} is not TOML: {error}") from error
    if not _fits(entries):
        raise InputError(f"{path} is not TOML: a whole number has at most 64 bits")
    return entries


def _fits(value: Any) -> bool:
    """Whether every whole number in there is one of TOML."""
    if isinstance(value, dict | list):
        return all(map(_fits, value.values() if isinstance(value, dict) else value))
    return type(value) is not int or -_INTEGERS <= value < _INTEGERS


def _sources(entries: Entries, path: Path) -> Iterator[Source]:
    for place, table in _tables(entries, "dataset", path):
        _check_keys(table, ("folder", "name", "images"), place)
        folder = _path(table, "folder", place, path)
        if not folder.is_dir():
            raise InputError(f"{place}: {folder} is not a folder")
        name = _typed(table, "name", str, place) if "name" in table else folder.resolve().name
        with _at(place):
            source = Source(folder, name, table.get("images", IMAGES))
        yield source


def _attacker(entries: Entries, path: Path) -> Attacker:
    table, place = entries.get("attacker", {}), f"{path}, attacker"
    _check_table(table, place)
    _check_keys(table, ("photos", "database", "size"), place)
    given: Entries = {"size": table["size"]} if "size" in table else {}
    if "database" in table:
        given["database"] = _path(table, "database", place, path)
        if not given["database"].is_file():
            raise InputError(f"{place}: there is no database file {given['database']}")
    photos = _folders(table, place, path)
    with _at(place):
        return Attacker(photos, **given)


def _pool(entries: Entries, path: Path) -> tuple[Path, ...]:
    table, place = entries.get("pool", {}), f"{path}, pool"
    _check_table(table, place)
    _check_keys(table, ("photos",), place)
    return _folders(table, place, path)


def _private(entries: Entries, path: Path) -> Path | None:
    """The folder of private content; None for "none"."""
    if _typed(entries, "private", str, f"{path}") == NO_CONTENT:
        return None
    folder = _path(entries, "private", f"{path}", path)
    if not folder.is_dir():
        raise InputError(f"{path}: private is {NO_CONTENT!r} or a folder of pictures, and {folder} is not there")
    return folder


def _schemes(entries: Entries, path: Path, kind: str) -> tuple[Scheme, ...]:
    if "scheme" not in entries:
        return tuple(default_schemes(kind))
    schemes: list[Scheme] = []
    for place, table in _tables(entries, "scheme", path):
        _typed(table, "name", str, place)
        with _at(place):
            schemes += grid(table, kind, path.parent)
            check_different("scheme", [scheme.name for scheme in schemes])
    return tuple(with_identity(schemes))


def _methods(entries: Entries, path: Path) -> Iterator[Any]:
    tables = list(_tables(entries, "attack", path))
    named = [table.get("name") for _, table in tables]
    for name in _BY_ITSELF:
        if name not in named:
            yield ATTACKS[name]()
    for place, table in tables:
        given = dict(table)
        name = _typed(given, "name", str, place)
        del given["name"]
        with _at(place):
            yield ATTACKS.make(name, given, path.parent)


def _tables(entries: Entries, name: str, path: Path) -> Iterator[tuple[str, Entries]]:
    """Each table of an array of tables, with its place for messages: the second one is NAME 2."""
    tables = entries.get(name, [])
    if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        raise InputError(f"{path}: {name} must be tables: write [[{name}]] above each")
    for number, table in enumerate(tables, start=1):
        yield f"{path}, {name} {number}", table


def _folders(table: Entries, place: str, path: Path) -> tuple[Path, ...]:
    """The folders that `photos` names, all of them there."""
    if "photos" not in table:
        return ()
    names = _typed(table, "photos", list, place)
    if not names or not all(isinstance(name, str) for name in names):
        raise InputError(f"{place}: photos must be a list of folders")
    check_different(f"{place}: folder", names)
    folders = tuple(path.parent / name for name in names)
    for folder in folders:
        if not folder.is_dir():
            raise InputError(f"{place}: {folder} is not a folder")
    return folders


def _path(table: Entries, name: str, place: str, path: Path) -> Path:
    return path.parent / str(_typed(table, name, str, place))


def _typed(table: Entries, name: str, kind: type[Value], place: str) -> Value:
    if name not in table:
        raise InputError(f"{place}: {name} is missing")
    value = table[name]
    if type(value) is not kind:
        raise InputError(f"{place}: {name} must be {_NAMES[kind]}, got {value!r:.80}")
    return value


def _check_table(table: Any, place: str) -> None:
    if not isinstance(table, dict):
        raise InputError(f"{place} must be a table: write [{place.rsplit(' ', 1)[1]}] above its entries")


def _check_keys(table: Entries, known: tuple[str, ...], place: str) -> None:
    for key in table:
        if key not in known:
            raise InputError(f"{place}: unknown key {key!r:.80}: use some of {', '.join(known)}")


@contextmanager
def _at(place: str) -> Iterator[None]:
    """An InputError of the block says where in the file it came from."""
    try:
        yield
    except InputError as error:
        raise InputError(f"{place}: {error}") from error
