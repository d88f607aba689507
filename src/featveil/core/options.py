"""Options are dataclass fields: help text and spelling travel with the field.

One dataclass serves the options of a command, the keys of an audit file and the arguments of a Python function. A field
that says nothing of itself is an option all the same, without help.
"""

import dataclasses
import types
import typing
from dataclasses import MISSING, dataclass, field
from typing import Any

from featveil.core.errors import InputError

_KEY = "option"
_TRUE, _FALSE = ("true", "yes", "on", "1"), ("false", "no", "off", "0")
_NAMES = {int: "a whole number", float: "a number", bool: "true or false", str: "a text", type(None): "none"}


@dataclass(frozen=True)
class Option:
    """What a field says of itself as an option.

    `flags` is how the command line spells it (default: --its-name). `shown` is what help shows as its default.
    `needed` says, where something cannot do without it, what it is and where to get it. `repeated`: one value each
    time it is given, instead of several between commas. `minimum` is the least value.
    """

    help: str = ""
    flags: tuple[str, ...] = ()
    shown: str | bool | None = None
    needed: str = ""
    metavar: str | None = None
    minimum: float | None = None
    repeated: bool = False
    positional: bool = False


def option(default: Any = MISSING, *, factory: Any = MISSING, **facts: Any) -> Any:
    """A dataclass field that is an option; `facts` are the fields of Option."""
    return field(default=default, default_factory=factory, metadata={_KEY: Option(**facts)})


def argument(default: Any = MISSING, **facts: Any) -> Any:
    """A dataclass field that the command line takes by its place."""
    return field(default=default, metadata={_KEY: Option(positional=True, **facts)})


@dataclass(frozen=True)
class Parameter:
    """A field of a dataclass as an option: its name, the types that it may have, its default (or MISSING)."""

    name: str
    types: tuple[Any, ...]
    default: Any
    option: Option

    @property
    def flags(self) -> tuple[str, ...]:
        """How the command line spells it."""
        return self.option.flags or ("--" + self.name.replace("_", "-"),)

    @property
    def required(self) -> bool:
        """Whether there is no default."""
        return self.default is MISSING


def parameters_of(owner: type) -> dict[str, Parameter]:
    """The fields of a dataclass by name."""
    hints = typing.get_type_hints(owner)
    return {
        item.name: Parameter(item.name, _choices(hints[item.name]), _default(item), item.metadata.get(_KEY, Option()))
        for item in dataclasses.fields(owner)
        if item.init
    }


def parse(text: str, parameter: Parameter, place: str) -> Any:
    """`text` as the first type of `parameter` that it can be; raises InputError, which names the `place`."""
    for choice in parameter.types:
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
    raise InputError(f"{place} must be {describe_types(parameter.types)}, got {text!r:.80}")


def describe_types(choices: tuple[Any, ...], names: dict[Any, str] = _NAMES) -> str:
    """The types in words."""
    words = []
    for choice in choices:
        if typing.get_origin(choice) is typing.Literal:
            words += [str(value) for value in typing.get_args(choice)]
        else:
            words.append(names.get(choice, _NAMES.get(choice, str(choice))))
    return " or ".join(words)


def _choices(hint: Any) -> tuple[Any, ...]:
    return typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)


def _default(item: "dataclasses.Field[Any]") -> Any:
    return item.default if item.default_factory is MISSING else item.default_factory()
