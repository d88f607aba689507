"""What a template store keeps, and what it accepts: settings, templates as bytes, thresholds."""

import hashlib
from dataclasses import dataclass

import numpy as np

from featveil.core.arrays import Float32
from featveil.core.descriptors import Points, Subspaces
from featveil.core.errors import InputError, PrivacyError
from featveil.core.features import Features, PrivateFeatures, Spec

_PARALLEL = 1e-3  # how far a direction of a probe may point out of those of the template
_LONGEST_NAME = 200


@dataclass(frozen=True)
class Settings:
    """What all templates of a store share. `among` is where the faces are that they are hidden among, if known."""

    kind: str
    size: int
    defense: Spec
    model: str | None = None
    among: str | None = None

    @property
    def dimension(self) -> int:
        """Of the subspaces."""
        return int(str(self.defense["dimension"]))


@dataclass(frozen=True)
class Calibration:
    """A threshold that accepted a share of at most `far` of `strangers` pairs, and what it did to `mated` ones."""

    far: float
    threshold: float
    strangers: int
    mated: int
    true_accept_rate: float


@dataclass(frozen=True)
class Verdict:
    """How far a probe is from a template; `accepted` is None where the store has no threshold yet."""

    person: str
    distance: float
    threshold: float | None

    @property
    def accepted(self) -> bool | None:
        """Whether the probe is that person."""
        return None if self.threshold is None else self.distance <= self.threshold


def encoded(person: str, private: PrivateFeatures, settings: Settings) -> bytes:
    """The bytes of a template: offset and basis; raises InputError where it does not belong to the store."""
    check_name(person)
    if not isinstance(private, PrivateFeatures):
        raise PrivacyError("only private templates are stored: lift the descriptor first")
    descriptors = private.descriptors
    if len(private) != 1 or not isinstance(descriptors, Subspaces):
        raise InputError(f"a template is one lifted descriptor, got {len(private)}")
    check_network(private, settings)
    if private.defense != settings.defense:
        raise InputError("the store holds templates of another defense: lift with the settings of the store")
    stack: Float32 = np.concatenate([descriptors.offset[:, None], descriptors.basis], axis=1)
    return stack.astype("<f4").tobytes()


def check_name(person: str) -> None:
    """Raise InputError for what cannot be someone's name."""
    if not isinstance(person, str) or not (
        0 < len(person) <= _LONGEST_NAME and person.isprintable() and person.strip()
    ):
        raise InputError(f"a person is named by 1 to {_LONGEST_NAME} printable characters, got {person!r:.80}")


def check_network(features: Features | PrivateFeatures, settings: Settings) -> None:
    """Raise InputError for a descriptor of another network, or of another size."""
    size = features.descriptors.size if isinstance(features.descriptors, Points | Subspaces) else 0
    if features.kind != settings.kind or size != settings.size:
        raise InputError(
            f"the store holds templates of {settings.kind} (size {settings.size}), this one is of {features.kind}"
            f" (size {size}): describe it by the same network"
        )


def digest_of(person: str, blob: bytes) -> bytes:
    """What tells that a template, or whose it is, was changed."""
    return hashlib.sha256(person.encode() + b"\0" + blob).digest()


def check_parallel(probe: Subspaces, enrolled: Subspaces) -> None:
    """Raise InputError unless `probe` has the directions of `enrolled`."""
    if probe.dimension == enrolled.dimension:
        own, theirs = probe.basis[0].astype(np.float64), enrolled.basis[0].astype(np.float64)
        if np.abs(own - (own @ theirs.T) @ theirs).max() <= _PARALLEL:
            return
    raise InputError("a private probe must be parallel to the template of whom it claims to be: lift it along that one")
