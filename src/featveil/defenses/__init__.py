"""Points -> Descriptors: one file per defense, and the one function that makes a release."""

from typing import Any

from featveil.core import Defense, Features, InputError, PrivateFeatures, Randomness, SecureRandomness
from featveil.defenses.identity import Identity
from featveil.defenses.lifting import STRATEGIES, Lifting

__all__ = ["DEFENSES", "STRATEGIES", "Identity", "Lifting", "privatize"]

DEFENSES: dict[str, Any] = {"identity": Identity, "lifting": Lifting}


def privatize(
    features: Features, defense: Defense, *, keep_geometry: bool = False, rng: Randomness | None = None
) -> PrivateFeatures:
    """What may be sent of `features`: descriptors hidden by `defense`, and keypoint positions.

    Scale, orientation and response are left out unless `keep_geometry`: they help to redraw the picture. Randomness is
    the operating system's; pass a seeded `rng` for studies only. Raises InputError when the defense does not fit.
    """
    if not isinstance(features, Features):
        raise InputError(f"expected raw Features, got {type(features).__name__}")
    if not hasattr(defense, "for_kind"):
        raise InputError(f"expected a defense such as Lifting(), got {type(defense).__name__}")
    ready = defense.for_kind(features.kind)
    descriptors = ready.privatize(features.descriptors, rng or SecureRandomness(), features.labels)
    keypoints = features.keypoints
    if keypoints is not None and not keep_geometry:
        keypoints = keypoints.positions_only()
    return PrivateFeatures(descriptors, features.kind, ready.spec(), ready.guarantee(), keypoints, features.image_size)
