"""Dataclasses -> options of a command: nothing that a field says of itself is typed again.

`command` makes a command of a function that takes dataclasses of options: every field is an option, or an argument. A
tuple of values is given between commas, unless the field says `repeated`; "none" is an empty one.
"""

import dataclasses
import inspect
import typing
from collections.abc import Callable
from functools import wraps
from typing import Annotated, Any

import typer

from featveil.core.errors import InputError
from featveil.core.options import Option, Parameter, parameters_of

_NONE = "none"


def command(function: Callable[..., None]) -> Callable[..., None]:
    """`function` with one parameter for each field of the dataclasses that it takes, as typer wants it."""
    hints = typing.get_type_hints(function, include_extras=True)
    takes = inspect.signature(function).parameters
    owners = {name: hints[name] for name in takes if dataclasses.is_dataclass(hints[name])}
    fields = {name: parameters_of(owner) for name, owner in owners.items()}
    parameters: list[inspect.Parameter] = []
    for name, parameter in takes.items():
        if name in owners:
            parameters += [_as_typer(field) for field in fields[name].values()]
        else:
            kept = parameter.replace(annotation=hints[name], kind=inspect.Parameter.KEYWORD_ONLY)
            parameters.append(kept)

    @wraps(function)
    def run(**values: Any) -> None:
        given: dict[str, Any] = {}
        for name, owner in owners.items():
            own = {field.name: _value(values.pop(field.name), field) for field in fields[name].values()}
            given[name] = owner(**own)
        function(**given, **values)

    signature = inspect.Signature(parameters)
    run.__signature__ = signature  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return run


def split(text: str, flag: str) -> list[str]:
    """The words of `text` between its commas; raises InputError when there is none."""
    words = [word.strip() for word in text.split(",") if word.strip()]
    if not words:
        raise InputError(f"{flag} names nothing: give one or more, separated by commas")
    return words


def _as_typer(field: Parameter) -> inspect.Parameter:
    facts = field.option
    several, kind = _kind(field)
    by_commas = several and not (facts.repeated or facts.positional)
    hint: Any = str if by_commas else list[kind] if several else kind  # type: ignore[valid-type]
    default: Any = inspect.Parameter.empty if field.required else field.default
    if by_commas and isinstance(default, tuple):
        default = ",".join(_shown(value) for value in default) or _NONE
    elif several and isinstance(default, tuple):
        default = list(default)
    if type(None) in field.types or default is None:
        hint = hint | None
    annotation = Annotated[hint, _info(field, facts, kind)]
    return inspect.Parameter(field.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def _info(field: Parameter, facts: Option, kind: Any) -> Any:
    shared: dict[str, Any] = {"help": facts.help, "metavar": facts.metavar, "min": facts.minimum}
    if facts.shown is not None:
        shared["show_default"] = facts.shown
    if facts.positional:
        return typer.Argument(**shared)
    # A switch has no opposite: what is off by default is turned on, and nothing else.
    spelled = field.flags if facts.flags or kind is bool else ()
    return typer.Option(*spelled, **shared)


def _value(value: Any, field: Parameter) -> Any:
    """What the command line gave, as the field wants it."""
    several, kind = _kind(field)
    if not several or value is None:
        return value
    if isinstance(value, list):
        return tuple(value)
    flag = field.flags[0]
    if value.strip() == _NONE and field.default is not None:
        return ()
    words = split(value, flag)
    try:
        return tuple(kind(word) for word in words)
    except ValueError as error:
        numbers = "whole numbers" if kind is int else "numbers"
        raise InputError(f"{flag} must be {numbers} separated by commas, got {value!r}") from error


def _kind(field: Parameter) -> tuple[bool, Any]:
    """Whether the field takes several values, and the type of one."""
    choice = next(choice for choice in field.types if choice is not type(None))
    if typing.get_origin(choice) is tuple and typing.get_args(choice)[-1] is Ellipsis:
        return True, typing.get_args(choice)[0]
    return False, choice


def _shown(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
