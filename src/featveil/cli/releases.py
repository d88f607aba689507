"""What the privatize command says about its releases: the guarantee, what leaks, what attacks are known."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from featveil.cli.console import complain, number
from featveil.core.kinds import base_kind

if TYPE_CHECKING:
    from featveil.core import Account, Defense, Features, PrivateFeatures
    from featveil.defenses import Weakness

_ALWAYS_MEET = "subspaces of half the descriptor size always meet, so these can be matched with raw features only"
_NOT_SHOWN = ("name", "random_directions", "epsilon")  # epsilon stands in the next line, with that of the image
_THREATS = "docs/threat-model.md"


@dataclass(frozen=True)
class Released:
    """Which part of the keypoints is released: their geometry too, or only those that lie apart."""

    keep_geometry: bool = False
    apart: bool = False


class Releases:
    """Makes the releases of one command, and remembers what they add up to for the summary."""

    def __init__(self, method: "Defense", released: Released, account: "Account | None") -> None:
        self.method, self.released, self.account = method, released, account
        self.last: PrivateFeatures | None = None
        self.largest = self.images = self.total = 0  # features of the largest image, images, features of all
        self.bytes = 0
        self.found = 0  # features before any selection
        self.kinds: set[str] = set()  # of descriptors, in what was released
        self.left: float | None = None  # of the account

    def make(self, features: "Features") -> "PrivateFeatures":
        """One release, with fresh randomness."""
        from featveil.core import Subspaces
        from featveil.defenses import privatize

        first = self.last is None
        self.last = privatize(features, self.method, **asdict(self.released))
        self.found += len(features)
        hidden = self.last.descriptors
        if first and isinstance(hidden, Subspaces) and 2 * hidden.dimension >= hidden.size:
            complain("warning", f"{_ALWAYS_MEET} (dimension {hidden.dimension} of {hidden.size})")
        return self.last

    def count(self, private: "PrivateFeatures", label: str) -> None:
        """Charge the account, if there is one, for what is about to be released."""
        if self.account is not None:
            self.left = self.account.charge(private, label)
        self.largest, self.images = max(self.largest, len(private)), self.images + 1
        self.total += len(private)
        self.kinds.add(base_kind(private.kind))

    def weaknesses(self, kinds: Iterable[str]) -> "list[Weakness]":
        """What is known to be broken about releasing descriptors of `kinds` in this way."""
        from featveil.defenses import lint

        ordered = sorted(kinds, reverse=True)  # sift before rootsift, which is somewhat harder
        found = [lint(kind, self.method, **asdict(self.released)) for kind in ordered]
        return list(dict.fromkeys(weakness for weaknesses in found for weakness in weaknesses))

    def warn(self) -> None:
        """Say in one line what is known to be broken about what was released, if anything is."""
        from featveil.defenses import summarize_weaknesses

        if broken := summarize_weaknesses(self.weaknesses(self.kinds)):
            complain("warning", f"{broken}; --strict refuses, featveil attack shows it ({_THREATS})")

    def facts(self, features: int) -> dict[str, Any]:
        """For --json; `features` of all releases."""
        if self.last is None:
            return {"features": 0, "bytes": 0}
        guarantee = self.last.guarantee
        return {
            "features": features,
            "bytes": self.bytes,
            "kind": self.last.kind,
            "defense": self.last.defense,
            "guarantee": {
                "kind": guarantee.kind,
                "epsilon": guarantee.epsilon,
                "unit": guarantee.unit,
                "image_epsilon": guarantee.compose(self.largest).epsilon,
                "total_epsilon": None if guarantee.epsilon is None else guarantee.epsilon * self.total,
            },
            "leaks": self._leaks(),
            "known_attacks": self._attacks(),
            "weaknesses": [{**asdict(found), "message": found.message} for found in self.weaknesses(self.kinds)],
            "budget_left": self.left,
        }

    def text(self) -> str:
        """For a person."""
        if self.last is None:
            return ""
        lines = [
            f"defense    {self._defense()}",
            f"features   {self.total:,}{f' of {self.found:,}: those that lie apart' if self.released.apart else ''}",
            f"guarantee  {self._guarantee()}",
            f"leaks      {', '.join(self._leaks())}",
            *([f"attacks    {attacks} ({_THREATS})"] if (attacks := self._attacks()) else []),
        ]
        return "\n".join(lines + ([] if self.left is None else [f"budget     {number(self.left)} left"]))

    def _defense(self) -> str:
        spec = self.last.defense if self.last else {}
        shown = {key: value for key, value in spec.items() if value is not None and key not in _NOT_SHOWN}
        shown |= {key: str(spec[key])[:12] for key in ("network", "database", "codebook") if spec.get(key)}
        listed = ", ".join(f"{key.replace('_', ' ')} {value}" for key, value in shown.items())
        return f"{spec.get('name')}: {listed}" if listed else str(spec.get("name"))

    def _guarantee(self) -> str:
        guarantee = self.last.guarantee if self.last else None
        confounders = self.last.defense.get("confounders") if self.last else None
        if isinstance(confounders, int):
            if not self.released.apart:
                return "empirical, nothing is proved: overlapping features tell which of their descriptors is true"
            among = f"at best no attack is right more often than 1 in {confounders + 1}"
            return f"empirical, nothing is proved: {among}, as far as the pool resembles the photograph"
        if guarantee is None or guarantee.epsilon is None:
            return "empirical: judged by known attacks only, nothing is proved"
        image = guarantee.compose(self.largest).epsilon or 0.0
        both = f", {number(guarantee.epsilon * self.total)} for all {self.images}" if self.images > 1 else ""
        unit = " and unit of distance" if guarantee.kind == "metric-dp" else ""
        unit += " between concealed ones" if unit and self.last and "network" in self.last.defense else ""
        return (
            f"{guarantee.kind}: epsilon {number(guarantee.epsilon)} a descriptor{unit},"
            f" {number(image)} for an image of {self.largest:,}{both} (they add up)"
        )

    def _leaks(self) -> list[str]:
        """What a receiver reads off without any attack."""
        keypoints = self.last.keypoints if self.last else None
        geometry = [name for name in ("scale", "orientation", "response") if getattr(keypoints, name, None) is not None]
        positions = ["position"] if keypoints is not None else []
        return [
            *(f"{name} of every feature" for name in positions + geometry),
            "number of features",
            *(["image size"] if self.last and self.last.image_size else []),
        ]

    def _attacks(self) -> str | None:
        """What the bound leaves to an attacker; None where only the weaknesses are known."""
        from featveil.defenses import Metric, Naive, Subset, last_step

        mechanism = last_step(self.method if not self.last else self.method.for_kind(base_kind(self.last.kind)))
        if isinstance(mechanism, Subset) and self.last:
            share = float(mechanism.coin.probability) / mechanism.subset_size
            chance = f"{min(share, 0.999):.1%}" if share >= 0.001 else "below 0.1%"
            return (
                f"a blind guess at the true word of a feature is right {chance} of the time; none beats the bound"
                " from its own words, but overlapping features add theirs"
            )
        if isinstance(mechanism, Metric):
            twice = 2 * mechanism.epsilon
            far = f"{number(twice)} a descriptor, {number(twice * self.largest)} an image"
            return f"none beats the bound, which says little of unlike descriptors: as local-dp it is {far}"
        if not isinstance(mechanism, Naive) or self.weaknesses(self.kinds):
            return None
        return "none: hardly any true descriptor is sent, so these match nothing either"
