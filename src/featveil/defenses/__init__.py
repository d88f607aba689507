"""Points -> Descriptors: one file per defense, and the one function that makes a release."""

import numpy as np

from featveil.core import (
    Account,
    ChangesKind,
    ConcealingNetwork,
    Defense,
    Features,
    InputError,
    PrivateFeatures,
    Randomness,
    SecureRandomness,
    Selective,
)
from featveil.defenses.concealer import Concealer, builtin_concealer, has_builtin_concealer, last_step
from featveil.defenses.confounders import STRATEGIES
from featveil.defenses.gate import Gate
from featveil.defenses.hardened import Hardened
from featveil.defenses.identity import Identity
from featveil.defenses.lifting import Lifting
from featveil.defenses.lint import Weakness, lint, refuse, summarize_weaknesses
from featveil.defenses.metric import Metric
from featveil.defenses.naive import Naive
from featveil.defenses.selection import lying_apart, rows_apart
from featveil.defenses.subset import Subset
from featveil.formats.network_files import load_network, save_network
from featveil.registry import DEFENSES

__all__ = [
    "DEFENSES",
    "STRATEGIES",
    "Concealer",
    "ConcealingNetwork",
    "Gate",
    "Hardened",
    "Identity",
    "Lifting",
    "Metric",
    "Naive",
    "Subset",
    "Weakness",
    "builtin_concealer",
    "has_builtin_concealer",
    "last_step",
    "lint",
    "load_network",
    "lying_apart",
    "privatize",
    "refuse",
    "save_network",
    "summarize_weaknesses",
]


def privatize(
    features: Features,
    defense: Defense,
    *,
    keep_geometry: bool = False,
    apart: bool = False,
    rng: Randomness | None = None,
    account: Account | None = None,
    strict: bool = False,
) -> PrivateFeatures:
    """What may be sent of `features`: descriptors hidden by `defense`, and keypoint positions.

    Scale, orientation and response are left out unless `keep_geometry`: they help to redraw the picture. `apart` keeps
    only features that do not overlap (`lying_apart`), which are few; behind a gate only those that pass are compared.
    Features with keypoints come in the order of their positions, row by row, because detectors sort them by response; a
    gate sends some of them only.
    Randomness is the operating system's; pass a seeded `rng` for studies only. With an `account` nothing is returned
    unless it was charged. `strict` refuses what `lint` knows to be broken, and any other `rng` than SecureRandomness.
    Raises InputError when the defense does not fit, PrivacyError when the account is short or `strict` refuses, and
    NotMappedError when too little passes a gate.
    """
    if not isinstance(features, Features):
        raise InputError(f"expected raw Features, got {type(features).__name__}")
    if not hasattr(defense, "for_kind"):
        raise InputError(f"expected a defense such as Lifting(), got {type(defense).__name__}")
    if strict:
        seeded = rng is not None and not isinstance(rng, SecureRandomness)
        overlapping = features.keypoints is not None and not apart
        refuse(lint(features.kind, defense, keep_geometry=keep_geometry, apart=not overlapping, seeded=seeded))
    ready = defense.for_kind(features.kind)
    rng = rng or SecureRandomness()
    if apart and not isinstance(ready, Selective):
        features = lying_apart(features)
    if features.keypoints is not None:
        xy = features.keypoints.xy
        ties = rng.integers(0, 2**62, size=(len(xy),))
        features = features.take(np.lexsort((ties, xy[:, 0], xy[:, 1])))
    keypoints = features.keypoints
    if keypoints is not None and not keep_geometry:
        keypoints = keypoints.positions_only()
    if isinstance(ready, Selective):
        places = None if features.keypoints is None else features.keypoints.xy
        raw = features
        thin = (lambda rows: np.sort(rows_apart(raw.take(rows)))) if apart else None
        rows, descriptors = ready.release(features.descriptors, places, rng, features.labels, thin)
        keypoints = None if keypoints is None else keypoints.take(rows)
    else:
        descriptors = ready.privatize(features.descriptors, rng, features.labels)
    kind = ready.released_kind(features.kind) if isinstance(ready, ChangesKind) else features.kind
    spec, guarantee = ready.spec(), ready.guarantee()
    private = PrivateFeatures(descriptors, kind, spec, guarantee, keypoints, features.image_size)
    if account is not None:
        account.charge(private)
    return private
