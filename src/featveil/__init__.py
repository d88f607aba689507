"""featveil: image features that still match but no longer show what they saw.

Names are imported on first use, so that `import featveil` stays quick.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

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
    Matches,
    MissingExtraError,
    NotFittedError,
    Points,
    PrivacyError,
    PrivateFeatures,
    SecureRandomness,
    Subspaces,
    WordSets,
)
from featveil.core.version import VERSION

if TYPE_CHECKING:
    from featveil import distances
    from featveil.databases import Database, builtin, load_database, save_database
    from featveil.defenses import (
        Concealer,
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
    from featveil.matching import NearestMatcher, WordMatcher, match
    from featveil.stores.ledger import Ledger
    from featveil.stores.pool import Pool

__version__ = VERSION

__all__ = [
    "Concealer",
    "ConcealingNetwork",
    "Database",
    "DatasetError",
    "Defense",
    "Descriptors",
    "Features",
    "FeatveilError",
    "FormatError",
    "Guarantee",
    "Hardened",
    "Identity",
    "InputError",
    "Keypoints",
    "Ledger",
    "Lifting",
    "Matches",
    "Metric",
    "MissingExtraError",
    "Naive",
    "NearestMatcher",
    "NotFittedError",
    "Points",
    "Pool",
    "PrivacyError",
    "PrivateFeatures",
    "SecureRandomness",
    "Subset",
    "Subspaces",
    "WordMatcher",
    "WordSets",
    "builtin",
    "builtin_concealer",
    "distances",
    "extract",
    "load",
    "load_database",
    "load_network",
    "match",
    "privatize",
    "save",
    "save_database",
]

_HOMES = {
    "Concealer": "featveil.defenses",
    "Database": "featveil.databases",
    "Hardened": "featveil.defenses",
    "Identity": "featveil.defenses",
    "Ledger": "featveil.stores.ledger",
    "Lifting": "featveil.defenses",
    "Metric": "featveil.defenses",
    "Naive": "featveil.defenses",
    "NearestMatcher": "featveil.matching",
    "Pool": "featveil.stores.pool",
    "Subset": "featveil.defenses",
    "WordMatcher": "featveil.matching",
    "builtin": "featveil.databases",
    "builtin_concealer": "featveil.defenses",
    "extract": "featveil.extractors",
    "load": "featveil.formats.veil",
    "load_database": "featveil.databases",
    "load_network": "featveil.defenses",
    "match": "featveil.matching",
    "privatize": "featveil.defenses",
    "save": "featveil.formats.veil",
    "save_database": "featveil.databases",
}


def __getattr__(name: str) -> Any:
    if name == "distances":
        return import_module("featveil.distances")
    if name not in _HOMES:
        raise AttributeError(f"module 'featveil' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
