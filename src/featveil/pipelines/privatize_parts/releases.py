"""Releases of one run: made, charged and summed up, with what is known to be broken about them."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from logging import getLogger
from typing import TYPE_CHECKING

from featveil.core.kinds import base_kind

if TYPE_CHECKING:
    from featveil.core import Account, Defense, Features, Guarantee, PrivateFeatures
    from featveil.core.features import Spec
    from featveil.defenses import Weakness

THREATS = "docs/threat-model.md"

_ALWAYS_MEET = "subspaces of half the descriptor size always meet, so these can be matched with raw features only"

_SUBSPACES = "subspaces that hold the descriptors of every feature that is sent"
_SHOWN_AFTER_GATE = {  # by what follows the gate
    "None": "points of the map that it may show",
    "identity": "raw descriptors of every feature that is sent",
    "lifting": _SUBSPACES,
    "hardened": _SUBSPACES,
}

logger = getLogger(__name__)


@dataclass(frozen=True)
class Released:
    """Which part of the keypoints is released: their geometry too, or only those that lie apart."""

    keep_geometry: bool = False
    apart: bool = False


@dataclass(frozen=True)
class ReleaseSummary:
    """What the releases of one run add up to.

    `features` were charged in all `images`, `largest` in one; `considered` were there before any selection. `leaks` is
    what a receiver reads off without any attack, `known_attacks` what the bound leaves to an attacker.
    """

    kind: str
    defense: "Spec"
    guarantee: "Guarantee"
    images: int
    features: int
    largest: int
    considered: int
    bytes: int
    leaks: tuple[str, ...]
    known_attacks: str | None
    weaknesses: tuple["Weakness", ...]
    budget_left: float | None

    @property
    def image_epsilon(self) -> float | None:
        """The bound on the leakage of the largest image."""
        return self.guarantee.compose(self.largest).epsilon

    @property
    def total_epsilon(self) -> float | None:
        """The bound on the leakage of all images together."""
        return None if self.guarantee.epsilon is None else self.guarantee.epsilon * self.features


class Releases:
    """Makes the releases of one run, and remembers what they add up to."""

    def __init__(self, method: "Defense", released: Released, account: "Account | None") -> None:
        self.method, self.released, self.account = method, released, account
        self.images = self.bytes = 0
        self._last: PrivateFeatures | None = None
        self._largest = self._features = self._considered = 0
        self._kinds: set[str] = set()  # of descriptors, in what was released
        self._left: float | None = None  # of the account

    def make(self, features: "Features") -> "PrivateFeatures":
        """One release, with fresh randomness."""
        from featveil.core import Subspaces
        from featveil.defenses import privatize

        first = self._last is None
        self._last = privatize(features, self.method, **asdict(self.released))
        self._considered += len(features)
        hidden = self._last.descriptors
        if first and isinstance(hidden, Subspaces) and 2 * hidden.dimension >= hidden.size:
            logger.warning(f"{_ALWAYS_MEET} (dimension {hidden.dimension} of {hidden.size})")
        return self._last

    def count(self, private: "PrivateFeatures", label: str) -> None:
        """Charge the account, if there is one, for what is about to be released."""
        if self.account is not None:
            self._left = self.account.charge(private, label)
        self._largest, self.images = max(self._largest, len(private)), self.images + 1
        self._features += len(private)
        self._kinds.add(base_kind(private.kind))

    def weaknesses(self, kinds: Iterable[str]) -> "list[Weakness]":
        """What is known to be broken about releasing descriptors of `kinds` in this way."""
        from featveil.defenses import lint

        ordered = sorted(kinds, reverse=True)  # sift before rootsift, which is somewhat harder
        listed = [lint(kind, self.method, **asdict(self.released)) for kind in ordered]
        return list(dict.fromkeys(weakness for weaknesses in listed for weakness in weaknesses))

    def warn(self) -> None:
        """Say in one line what is known to be broken about what was released, if anything is."""
        from featveil.defenses import summarize_weaknesses

        if broken := summarize_weaknesses(self.weaknesses(self._kinds)):
            logger.warning(f"{broken}; --strict refuses, featveil attack shows it ({THREATS})")

    def summary(self) -> ReleaseSummary | None:
        """Of all releases so far; None without any."""
        if self._last is None:
            return None
        return ReleaseSummary(
            kind=self._last.kind,
            defense=self._last.defense,
            guarantee=self._last.guarantee,
            images=self.images,
            features=self._features,
            largest=self._largest,
            considered=self._considered,
            bytes=self.bytes,
            leaks=_leaks(self._last),
            known_attacks=self._attacks(self._last),
            weaknesses=tuple(self.weaknesses(self._kinds)),
            budget_left=self._left,
        )

    def _attacks(self, last: "PrivateFeatures") -> str | None:
        """What the bound leaves to an attacker; None where only the weaknesses are known."""
        from featveil.defenses import Gate, Metric, Naive, Subset, last_step
        from featveil.defenses.subset import subset_coin

        mechanism = last_step(self.method.for_kind(base_kind(last.kind)))
        if isinstance(mechanism, Gate):
            if not isinstance(mechanism.then, Subset) or mechanism.sketch is None:
                return None
            then = mechanism.then
            coin = subset_coin(then.epsilon, len(mechanism.sketch.known), then.subset_size)
            return _blind_guess(float(coin.probability) / then.subset_size, "point")
        if isinstance(mechanism, Subset):
            return _blind_guess(float(mechanism.coin.probability) / mechanism.subset_size, "word")
        if isinstance(mechanism, Metric):
            twice = 2 * mechanism.epsilon
            far = f"{twice:,.10g} a descriptor, {twice * self._largest:,.10g} an image"
            return f"none beats the bound, which says little of unlike descriptors: as local-dp it is {far}"
        if not isinstance(mechanism, Naive) or self.weaknesses(self._kinds):
            return None
        return "none: hardly any true descriptor is sent, so these match nothing either"


def _blind_guess(share: float, name: str) -> str:
    """What the subset mechanism leaves to an attacker who picks one of the words, or points, of a feature."""
    chance = f"{min(share, 0.999):.1%}" if share >= 0.001 else "below 0.1%"
    return (
        f"a blind guess at the true {name} of a feature is right {chance} of the time; none beats the bound from its"
        f" own {name}s, but overlapping features add theirs"
    )


def _leaks(private: "PrivateFeatures") -> tuple[str, ...]:
    """What a receiver reads off without any attack."""
    keypoints, gated = private.keypoints, private.guarantee.kind == "map-known"
    geometry = [name for name in ("scale", "orientation", "response") if getattr(keypoints, name, None) is not None]
    positions = ["position"] if keypoints is not None else []
    of_each = [f"{name} of every feature{' that is sent' if gated else ''}" for name in positions + geometry]
    after = str(private.defense.get("then"))
    shown = [_SHOWN_AFTER_GATE[after]] if gated and after in _SHOWN_AFTER_GATE else []
    gaps = ["gaps where nothing is sent"] if gated and positions else []
    size = ["image size"] if private.image_size else []
    return *of_each, *shown, *gaps, "number of features", *size
