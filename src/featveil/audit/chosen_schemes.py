"""Names and fields of defenses -> the schemes of an audit."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import product
from typing import Any

from featveil.audit.releases import Scheme
from featveil.core import Defense, InputError
from featveil.databases import Database, builtin, conceal_database
from featveil.defenses import DEFENSES, Identity, builtin_concealer, has_builtin_concealer, last_step
from featveil.pipelines.scoring import scheme_name

KEYPOINTS = ("all", "apart")

_USUAL: tuple[dict[str, Any], ...] = (
    {"name": "lifting", "strategy": "sub-hybrid", "dimension": [2, 4, 8, 16]},
    {"name": "lifting", "strategy": ["random", "adversarial"], "dimension": 4},
    {"name": "hardened", "confounders": 4, "dimension": 16, "keypoints": ["all", "apart"]},
    {"name": "subset", "epsilon": [10.0, 8.0, 6.0], "subset_size": 4},
    {"name": "metric", "epsilon": 49.0},
)
# Where a network comes with featveil for the kind: by itself, and before lifting and the subset mechanism.
_CONCEALED: tuple[dict[str, Any], ...] = (
    {"name": "concealer"},
    {"name": "concealer", "then": {"name": "lifting", "strategy": "sub-hybrid", "dimension": 4}},
    {"name": "concealer", "then": {"name": "subset", "epsilon": 8.0, "subset_size": 4}},
)


def default_schemes(kind: str) -> list[Scheme]:
    """What an audit measures unless it is told otherwise."""
    usual = (*_USUAL, *(_CONCEALED if has_builtin_concealer(kind) else ()))
    return with_identity(scheme for entries in usual for scheme in grid(entries, kind))


def grid(entries: Mapping[str, Any], kind: str) -> list[Scheme]:
    """One scheme for each combination of the values of `entries`, where a list stands for several.

    `name` is that of a defense, `keypoints` one of KEYPOINTS, `geometry` whether scale and orientation are sent; all
    others are fields of the defense. `then`, of a concealer, is a table or tables of such entries. Raises InputError
    for what it does not take.
    """
    return [_scheme(chosen, kind) for chosen in _combinations(entries)]


def _combinations(entries: Mapping[str, Any]) -> list[dict[str, Any]]:
    """`entries` with one value each, in every combination; tables within them likewise."""
    choices = []
    for value in entries.values():
        values = value if isinstance(value, list) else [value]
        choices.append([one for each in values for one in (_combinations(each) if isinstance(each, dict) else [each])])
    return [dict(zip(entries, chosen, strict=True)) for chosen in product(*choices)]


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
    if isinstance(entries.get("then"), dict):
        after = dict(entries["then"])
        entries["then"] = DEFENSES[after.pop("name")](**after)
    defense: Defense = DEFENSES[entries.pop("name")](**entries)
    made = Scheme("", defense, keypoints == "apart", geometry)
    if not made.private_pool:  # a pool is that of a device, and filled later
        made = replace(made, defense=defense.for_kind(kind))
    return replace(made, name=_name(made, kind))


def _name(scheme: Scheme, kind: str) -> str:
    """Defense and parameters, and what differs from the usual: random directions, network, database, what is sent."""
    spec, network = scheme.defense.spec(), scheme.network
    name = scheme_name(spec)
    if getattr(last_step(scheme.defense), "random_share", None) is not None:
        name += f"-random-{spec['random_directions']}"
    if network is not None and not (has_builtin_concealer(kind) and network.digest == builtin_concealer(kind).digest):
        name += f"-{network.digest[:8]}"
    own = spec.get("database") or spec.get("codebook")
    if own and own != _usual_database(scheme, kind).digest:
        name += f"-{str(own)[:8]}"
    return name + ("-apart" if scheme.apart else "") + ("-geometry" if scheme.geometry else "")


def _usual_database(scheme: Scheme, kind: str) -> Database:
    return builtin(kind) if scheme.network is None else conceal_database(builtin(kind), scheme.network)
