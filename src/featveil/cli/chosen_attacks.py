"""Options of the command line -> attacks with their parameters, with a clear error for what does not fit."""

import dataclasses
import types
import typing
from typing import TYPE_CHECKING, Any

from featveil.cli.benching import split
from featveil.core.errors import InputError

if TYPE_CHECKING:
    from featveil.attacks import Attack

ALL = "all"

_TRUE, _FALSE = ("true", "yes", "on", "1"), ("false", "no", "off", "0")
_NAMES = {int: "a whole number", float: "a number", bool: "true or false", str: "a text", type(None): "none"}


def make_attacks(names: list[str], settings: list[str]) -> "tuple[list[Attack], bool]":
    """The attacks called `names` with NAME=VALUE `settings`, and whether that was "all".

    Each of `names` may be several, separated by commas.
    """
    from featveil.attacks import ATTACKS

    wanted = [word for text in names for word in split(text, "--with")]
    if ALL in wanted and len(set(wanted)) > 1:
        raise InputError("--with all stands for every attack: leave the other names out")
    chosen = list(ATTACKS) if ALL in wanted else list(dict.fromkeys(wanted))
    for name in chosen:
        if name not in ATTACKS:
            raise InputError(f"unknown attack {name!r:.80}: use one of {', '.join(ATTACKS)}, or all")
    given: dict[str, dict[str, Any]] = {name: {} for name in chosen}
    for setting in settings:
        owner, field, value = _setting(setting, chosen)
        given[owner][field] = value
    return [ATTACKS[name](**given[name]) for name in chosen], ALL in wanted


def _setting(text: str, chosen: list[str]) -> tuple[str, str, Any]:
    """Attack, field and value of one NAME=VALUE or ATTACK.NAME=VALUE."""
    from featveil.attacks import ATTACKS

    path, equals, value = text.partition("=")
    owner, dot, field = path.strip().rpartition(".")
    if not equals or not field:
        raise InputError(f"--set takes NAME=VALUE or ATTACK.NAME=VALUE, got {text!r:.80}")
    fields = {name: [one.name for one in dataclasses.fields(ATTACKS[name])] for name in chosen}
    if dot and owner not in fields:
        raise InputError(f"--set {path} is for an attack that is not run: these are {', '.join(chosen)}")
    owners = [owner] if dot else [name for name in chosen if field in fields[name]] or chosen[:1]
    if len(owners) > 1:
        raise InputError(f"{' and '.join(owners)} both have {field}: --set {owners[0]}.{field}=... says which is meant")
    if field not in fields[owners[0]]:
        listed = [f"{name} has {', '.join(fields[name]) or 'none'}" for name in ([owner] if dot else chosen)]
        raise InputError(f"there is no parameter {field!r:.80} to set: {'; '.join(listed)}")
    hints = typing.get_type_hints(ATTACKS[owners[0]])
    return owners[0], field, _converted(value.strip(), hints[field], f"--set {path.strip()}")


def _converted(text: str, hint: Any, option: str) -> Any:
    """`text` as the first type of `hint` that it can be."""
    choices = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
    for choice in choices:
        if typing.get_origin(choice) is typing.Literal and text in typing.get_args(choice):
            return text
        if choice is type(None) and text.lower() == "none":
            return None
        if choice is bool and text.lower() in (*_TRUE, *_FALSE):
            return text.lower() in _TRUE
        if choice in (int, float, str):
            try:
                return choice(text)
            except ValueError:
                continue
    raise InputError(f"{option} must be {' or '.join(map(_named, choices))}, got {text!r:.80}")


def _named(choice: Any) -> str:
    if typing.get_origin(choice) is typing.Literal:
        return " or ".join(map(str, typing.get_args(choice)))
    return _NAMES.get(choice, str(choice))
