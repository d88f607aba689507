"""Names and fields of defenses -> the schemes of an audit."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import product
from typing import Any

from featveil.core import Defense, InputError
from featveil.databases import builtin
from featveil.defenses import DEFENSES, Identity
from featveil.tasks.file_attacks import scheme_name
from featveil.tasks.releases import Scheme

KEYPOINTS = ("all", "apart")

_USUAL: tuple[dict[str, Any], ...] = (
    {"name": "lifting", "strategy": "sub-hybrid", "dimension": [2, 4, 8, 16]},
    {"name": "lifting", "strategy": ["random", "adversarial"], "dimension": 4},
    {"name": "hardened", "confounders": 4, "dimension": 16, "keypoints": ["all", "apart"]},
    {"name": "subset", "epsilon": [10.0, 8.0, 6.0], "subset_size": 4},
    {"name": "metric", "epsilon": 49.0},
)


def default_schemes(kind: str) -> list[Scheme]:
    """What an audit measures unless it is told otherwise."""
    return with_identity(scheme for entries in _USUAL for scheme in grid(entries, kind))


def grid(entries: Mapping[str, Any], kind: str) -> list[Scheme]:
    """One scheme for each combination of the values of `entries`, where a list stands for several.

    `name` is that of a defense, `keypoints` one of KEYPOINTS, `geometry` whether scale and orientation are sent; all
    others are fields of the defense. Raises InputError for what it does not take.
    """
    choices = [value if isinstance(value, list) else [value] for value in entries.values()]
    return [_scheme(dict(zip(entries, chosen, strict=True)), kind) for chosen in product(*choices)]


def with_identity(schemes: Iterable[Scheme]) -> list[Scheme]:
    """`schemes` after that without any defense, once for each selection of keypoints that occurs."""
    found = list(schemes)
    plain = [Scheme("identity", Identity())]
    if any(scheme.apart for scheme in found):
        plain.append(Scheme("identity-apart", Identity(), apart=True))
    names = {scheme.name for scheme in plain}
    return [*plain, *(scheme for scheme in found if scheme.name not in names)]


def _scheme(entries: dict[str, Any], kind: str) -> Scheme:
    keypoints, geometry = entries.pop("keypoints", "all"), entries.pop("geometry", False)
    if keypoints not in KEYPOINTS:
        raise InputError(f"unknown keypoints {keypoints!r:.80}: use one of {', '.join(KEYPOINTS)}")
    if type(geometry) is not bool:
        raise InputError(f"geometry must be true or false, got {geometry!r:.80}")
    defense: Defense = DEFENSES[entries.pop("name")](**entries)
    made = Scheme("", defense, keypoints == "apart", geometry)
    if not made.private_pool:  # a pool is that of a device, and filled later
        made = replace(made, defense=defense.for_kind(kind))
    return replace(made, name=_name(made, kind))


def _name(scheme: Scheme, kind: str) -> str:
    """Defense and parameters, and what differs from the usual: share of random directions, database, what is sent."""
    spec, defense = scheme.defense.spec(), scheme.defense
    name = scheme_name(spec)
    if getattr(defense, "random_share", None) is not None:
        name += f"-random-{spec['random_directions']}"
    own = spec.get("database") or spec.get("codebook")
    if own and own != builtin(kind).digest:
        name += f"-{str(own)[:8]}"
    return name + ("-apart" if scheme.apart else "") + ("-geometry" if scheme.geometry else "")
