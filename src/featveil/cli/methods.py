"""Options of the command line -> a defense, with a clear error for every option that does not belong to it."""

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from featveil.core.errors import InputError, PrivacyError

if TYPE_CHECKING:
    from featveil.core import Defense

Strategy = Annotated[
    str | None,
    typer.Option(
        help="Lifting: random, adversarial, hybrid, sub-adversarial or sub-hybrid.",
        show_default="sub-hybrid",
    ),
]
Dimension = Annotated[
    int | None,
    typer.Option(help="Lifting, hardened: dimension of the subspaces.", show_default="lifting 4, hardened 16"),
]
Confounders = Annotated[
    int | None, typer.Option(help="Hardened: real descriptors that each is hidden among.", show_default="4")
]
PoolFile = Annotated[
    Path | None, typer.Option(help="Hardened: pool of the device's own photographs (featveil pool create).")
]
Epsilon = Annotated[float | None, typer.Option(help="Subset, metric, naive: bound on the leakage of each descriptor.")]
SubsetSize = Annotated[
    int | None,
    typer.Option(help="Subset, metric: words sent for each descriptor.", show_default="subset 2, metric 1"),
]
DatabaseFile = Annotated[
    Path | None,
    typer.Option(
        "--database",
        "--codebook",
        help="Database file that lifting draws from, or the codebook of subset and metric.",
        show_default="the built-in one",
    ),
]
DatabaseDigest = Annotated[
    str | None, typer.Option("--database-digest", "--codebook-digest", help="Refuse a file with another digest.")
]
ConcealerFile = Annotated[
    Path | None,
    typer.Option("--concealer", help="Concealer: file of its network.", show_default="the built-in one of the kind"),
]
Then = Annotated[
    str | None,
    typer.Option(help="Concealer: the defense that follows it, with its own options: lifting, subset or metric."),
]
Apart = Annotated[
    bool, typer.Option("--apart", help="Release only features that neither overlap nor resemble each other: few.")
]

_AFTER_CONCEALER = ("lifting", "subset", "metric")


def make_defense(name: str, options: dict[str, Any], database: Path | None, digest: str | None) -> "Defense":
    """The defense called `name` with those of `options` that were given (not None).

    `database` is the file that lifting draws from or the codebook of a mechanism with words; it must have `digest`. Of
    a concealer, `network` is a file and `then` the name of the defense that all other options are for.
    """
    from featveil.databases import load_database
    from featveil.defenses import DEFENSES
    from featveil.stores.pool import Pool

    usable = [known for known in DEFENSES if known != "identity"]
    if name not in DEFENSES:
        raise InputError(f"unknown defense {name!r}: use one of {', '.join(usable)}")
    fields = {field.name: field for field in dataclasses.fields(DEFENSES[name])}
    given = {option: value for option, value in options.items() if value is not None}
    if name == "concealer":
        return _concealer(given, database, digest)
    for option in given:
        if option not in fields:
            raise InputError(f"{_flag(option)} does not belong to {name}: {_takes(list(fields))}")
    if "epsilon" in fields and "epsilon" not in given:
        raise InputError(f"{name} needs --epsilon, the bound on what a descriptor leaks: see featveil subset plan")
    if "pool" in fields and "pool" not in given:
        raise InputError(f"{name} needs --pool, descriptors that only this device has: see featveil pool create")
    if "pool" in given:
        given["pool"] = Pool(given["pool"])
    if digest is not None and database is None:
        raise InputError("--database-digest needs --database: the built-in one is verified by itself")
    if database is not None:
        role = next((role for role in ("database", "codebook") if role in fields), None)
        if role is None:
            raise InputError(f"--database (--codebook) does not belong to {name}: {_takes(list(fields))}")
        given[role] = load_database(database, digest)
    made: Defense = DEFENSES[name](**given)
    if made.guarantee().kind == "none":
        raise PrivacyError(f"this hides nothing, so its result is never written for release: {_advice(name)}")
    return made


def _concealer(given: dict[str, Any], database: Path | None, digest: str | None) -> "Defense":
    from featveil.defenses import Concealer, load_network

    path, then = given.pop("network", None), given.pop("then", None)
    if then is None and (given or database is not None or digest is not None):
        option = next(iter(given), "database")
        raise InputError(f"{_flag(option)} does not belong to concealer: name the defense it is for with --then")
    if then is not None and then not in _AFTER_CONCEALER:
        raise InputError(f"after a concealer come {', '.join(_AFTER_CONCEALER)}, got --then {then!r:.80}")
    after: Any = None if then is None else make_defense(then, given, database, digest)
    return Concealer(None if path is None else load_network(path), after)


def _flag(option: str) -> str:
    return "--concealer" if option == "network" else "--" + option.replace("_", "-")


def _takes(fields: list[str]) -> str:
    return f"it takes {', '.join(map(_flag, fields))}" if fields else "it takes no option"


def _advice(name: str) -> str:
    return "use lifting or subset" if name == "identity" else "an infinite epsilon is for studies with the Python API"
