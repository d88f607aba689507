"""featveil: image features that still match but no longer show what they saw.

Names are imported on first use, so that `import featveil` stays quick and the command can catch Ctrl-C from the start.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from featveil import distances
    from featveil.attacks.knowledge import Attack, Guess, Knowledge
    from featveil.audit.run import audit
    from featveil.core import (
        ConcealingNetwork,
        DatasetError,
        Defense,
        Descriptors,
        Features,
        FeatveilError,
        FormatError,
        Guarantee,
        InputError,
        Keypoints,
        MapPoints,
        Matches,
        MissingExtraError,
        NotFittedError,
        NotMappedError,
        Points,
        PrivacyError,
        PrivateFeatures,
        SecureRandomness,
        Subspaces,
        WordSets,
    )
    from featveil.core.options import option
    from featveil.databases import Database, builtin, load_database, save_database
    from featveil.defenses import (
        Concealer,
        Gate,
        Hardened,
        Identity,
        Lifting,
        Metric,
        Naive,
        Subset,
        builtin_concealer,
        load_network,
        privatize,
    )
    from featveil.extractors import extract
    from featveil.formats.veil import load, save
    from featveil.gate import Sketch, load_sketch, save_sketch
    from featveil.matching import NearestMatcher, WordMatcher, match
    from featveil.pipelines.direct import attack, invert, leakage, public_knowledge
    from featveil.pipelines.map_parts.localizer import LocalizeOptions, Localizer
    from featveil.pipelines.map_parts.map_building import MapOptions, build_map
    from featveil.registry import register
    from featveil.stores.ledger import Ledger
    from featveil.stores.pool import Pool
    from featveil.stores.templates import TemplateStore

    __version__: str

__all__ = [
    "Attack",
    "Concealer",
    "ConcealingNetwork",
    "Database",
    "DatasetError",
    "Defense",
    "Descriptors",
    "Features",
    "FeatveilError",
    "FormatError",
    "Gate",
    "Guarantee",
    "Guess",
    "Hardened",
    "Identity",
    "InputError",
    "Keypoints",
    "Knowledge",
    "Ledger",
    "Lifting",
    "LocalizeOptions",
    "Localizer",
    "MapOptions",
    "MapPoints",
    "Matches",
    "Metric",
    "MissingExtraError",
    "Naive",
    "NearestMatcher",
    "NotFittedError",
    "NotMappedError",
    "Points",
    "Pool",
    "PrivacyError",
    "PrivateFeatures",
    "SecureRandomness",
    "Sketch",
    "Subset",
    "Subspaces",
    "TemplateStore",
    "WordMatcher",
    "WordSets",
    "attack",
    "audit",
    "build_map",
    "builtin",
    "builtin_concealer",
    "distances",
    "extract",
    "invert",
    "leakage",
    "load",
    "load_database",
    "load_network",
    "load_sketch",
    "match",
    "option",
    "privatize",
    "public_knowledge",
    "register",
    "save",
    "save_database",
    "save_sketch",
]

# All others are in featveil.core.
_HOMES = {
    "Attack": "featveil.attacks.knowledge",
    "Concealer": "featveil.defenses",
    "Database": "featveil.databases",
    "Gate": "featveil.defenses",
    "Guess": "featveil.attacks.knowledge",
    "Hardened": "featveil.defenses",
    "Identity": "featveil.defenses",
    "Knowledge": "featveil.attacks.knowledge",
    "Ledger": "featveil.stores.ledger",
    "Lifting": "featveil.defenses",
    "LocalizeOptions": "featveil.pipelines.map_parts.localizer",
    "Localizer": "featveil.pipelines.map_parts.localizer",
    "MapOptions": "featveil.pipelines.map_parts.map_building",
    "Metric": "featveil.defenses",
    "Naive": "featveil.defenses",
    "NearestMatcher": "featveil.matching",
    "Pool": "featveil.stores.pool",
    "Sketch": "featveil.gate",
    "Subset": "featveil.defenses",
    "TemplateStore": "featveil.stores.templates",
    "WordMatcher": "featveil.matching",
    "attack": "featveil.pipelines.direct",
    "build_map": "featveil.pipelines.map_parts.map_building",
    "builtin": "featveil.databases",
    "builtin_concealer": "featveil.defenses",
    "extract": "featveil.extractors",
    "invert": "featveil.pipelines.direct",
    "leakage": "featveil.pipelines.direct",
    "load": "featveil.formats.veil",
    "load_database": "featveil.databases",
    "load_network": "featveil.defenses",
    "load_sketch": "featveil.gate",
    "match": "featveil.matching",
    "option": "featveil.core.options",
    "privatize": "featveil.defenses",
    "public_knowledge": "featveil.pipelines.direct",
    "register": "featveil.registry",
    "save": "featveil.formats.veil",
    "save_database": "featveil.databases",
    "save_sketch": "featveil.gate",
}

_PACKAGES = ("audit", "core", "distances")  # the first can be called


def __getattr__(name: str) -> Any:
    if name in _PACKAGES:
        return import_module(f"featveil.{name}")
    if name == "__version__":
        return import_module("featveil.core.version").VERSION
    if name not in __all__:
        raise AttributeError(f"module 'featveil' has no attribute {name!r}")
    return getattr(import_module(_HOMES.get(name, "featveil.core")), name)


def __dir__() -> list[str]:
    return sorted(__all__)
