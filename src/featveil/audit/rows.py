"""The rows of an audit: one for each dataset and scheme, and within it one for each attack."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Self


@dataclass(frozen=True)
class Spread:
    """A mean over seeds, with the least and the largest of them."""

    mean: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Self | None:
        """That of `values`, one a seed; None when there is none."""
        return cls(fmean(values), min(values), max(values)) if values else None


@dataclass(frozen=True)
class TrialRow:
    """One attack on one scheme: `count` guesses on `victims` photographs, and how many came near.

    `adversary` says what the attacker has: "release", a second one ("twice"), another image of the "place", "none"
    (chance), or the "truth" (no adversary). `median` is a mean of the photographs' medians, in shares of the norm.
    `released_near` is the share of guesses near the concealed descriptor, before a concealer was undone.
    """

    attack: str
    adversary: str
    victims: int
    count: int
    below_near: Spread
    below_close: Spread
    exact: Spread
    median: Spread
    released_near: Spread | None = None


@dataclass(frozen=True)
class SkippedTrial:
    """An attack that was not run on some photographs, and why."""

    attack: str
    reason: str
    victims: int


@dataclass(frozen=True)
class AuditRow:
    """One scheme on one dataset; `then` is the defense after a concealer, if there is one.

    `utility_one` (private query, raw map) and `utility_both` are right verified matches as a share of those of raw
    features; `kept_one` and `kept_both` as a share of those of the same keypoints raw; `accuracy_*` is the share of
    right ones among all matches, `right_*` the right verified matches a photograph. `features` of `raw_features` were
    released a photograph. `image_epsilon` is epsilon times `features`. `best` is the attack with most guesses below
    NEAR of an adversary who has the release, `twice` and `place` those with more, `named` the attack that names most
    words right (word sets only). `missing` results of `expected` are not there: the audit was interrupted.
    """

    dataset: str
    scheme: str
    defense: str
    then: str | None
    strategy: str | None
    dimension: int | None
    confounders: int | None
    subset_size: int | None
    keypoints: str
    geometry: bool
    promise: str
    epsilon: float | None
    image_epsilon: float | None
    bound: float | None
    victims: int
    seeds: int
    features: float
    raw_features: float
    utility_one: Spread | None
    utility_both: Spread | None
    kept_one: Spread | None
    kept_both: Spread | None
    accuracy_one: Spread | None
    accuracy_both: Spread | None
    right_one: Spread | None
    right_both: Spread | None
    best: TrialRow | None
    twice: TrialRow | None
    place: TrialRow | None
    chance: TrialRow | None
    named: TrialRow | None
    trials: tuple[TrialRow, ...]
    skipped: tuple[SkippedTrial, ...]
    missing: int
    expected: int
