"""Value types, protocols, guarantees, entropy and errors: what everything else speaks in. NumPy and stdlib only."""

from featveil.core.cameras import Camera, Pose
from featveil.core.descriptors import Descriptors, Flats, MapPoints, Points, Subspaces, WordSets
from featveil.core.entropy import Randomness, SecureRandomness
from featveil.core.errors import (
    DatasetError,
    FeatveilError,
    FormatError,
    InputError,
    MissingExtraError,
    NotFittedError,
    NotMappedError,
    PrivacyError,
)
from featveil.core.features import Features, Keypoints, PrivateFeatures, Spec
from featveil.core.guarantees import Guarantee
from featveil.core.kinds import base_kind, concealed_kind, is_concealed
from featveil.core.matches import Matches
from featveil.core.networks import ConcealingNetwork
from featveil.core.protocols import Account, ChangesKind, Defense, Selective

__all__ = [
    "Account",
    "Camera",
    "ChangesKind",
    "ConcealingNetwork",
    "DatasetError",
    "Defense",
    "Descriptors",
    "Features",
    "FeatveilError",
    "Flats",
    "FormatError",
    "Guarantee",
    "InputError",
    "Keypoints",
    "MapPoints",
    "Matches",
    "MissingExtraError",
    "NotFittedError",
    "NotMappedError",
    "Points",
    "Pose",
    "PrivacyError",
    "PrivateFeatures",
    "Randomness",
    "SecureRandomness",
    "Selective",
    "Spec",
    "Subspaces",
    "WordSets",
    "base_kind",
    "concealed_kind",
    "is_concealed",
]
