"""Every attack against every defense on the same photographs.

Victims, lifting database and attacker's database come from different photographs. Each victim's features are released
once for a scheme; all attacks see that release. An attack stands once for each thing that its adversary may know beyond
what it needs (a trial). Attacks that treat every feature by itself are tried on a sample of them.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path

import numpy as np

from featveil.audit.releases import Releases, Scheme, Victim, concealed_schemes
from featveil.audit.trials import Trial
from featveil.core import ConcealingNetwork, InputError
from featveil.core.records import Parameter, Record
from featveil.core.resuming import Key, Plan, Report, resume
from featveil.core.seeding import image_generator
from featveil.databases import Database
from featveil.defenses import Identity, Lifting, Metric, Subset
from featveil.lab import scenes
from featveil.pipelines.attack import scheme_name
from featveil.pipelines.scoring import leakage_record, score_attack

TASK = "attacks"
DEFAULT_STRATEGIES = ("random", "adversarial", "hybrid", "sub-adversarial", "sub-hybrid")
DEFAULT_DIMENSIONS = (2, 4, 8, 16)
DEFAULT_EPSILONS = (14.0, 10.0, 8.0, 6.0)
DEFAULT_SUBSET_SIZES = (1, 4)
DEFAULT_METRIC_EPSILONS = (121.0, 49.0, 28.0)

_KEY = ("victim", "scheme", "attack")


@dataclass(frozen=True)
class Settings(scenes.Settings):
    """What all records of one file share; `sample` features of a photograph are attacked by slow attacks."""

    max_features: int = 1000
    sample: int = 100

    def __post_init__(self) -> None:
        super().__post_init__()
        if type(self.sample) is not int or self.sample < 1:
            raise InputError(f"sample must be a whole number of at least 1, got {self.sample!r}")

    def shared(self) -> dict[str, Parameter]:
        """These settings but the seed, as every record states them."""
        return {"kind": self.kind, "max_features": self.max_features, "sample": self.sample}


def make_schemes(
    kind: str,
    strategies: Sequence[str] = DEFAULT_STRATEGIES,
    dimensions: Sequence[int] = DEFAULT_DIMENSIONS,
    epsilons: Sequence[float] = DEFAULT_EPSILONS,
    subset_sizes: Sequence[int] = DEFAULT_SUBSET_SIZES,
    metric_epsilons: Sequence[float] = DEFAULT_METRIC_EPSILONS,
    concealers: Sequence[ConcealingNetwork] = (),
    composed: bool = False,
) -> list[Scheme]:
    """No defense, every strategy x dimension, every epsilon x subset size, and the metric mechanism with one word.

    Then the `concealers`, and with `composed` all of these defenses again after each.
    """
    liftings = [Lifting(*one) for one in product(dict.fromkeys(strategies), dict.fromkeys(dimensions))]
    words = [Subset(*one) for one in product(dict.fromkeys(epsilons), dict.fromkeys(subset_sizes))]
    others: list[Lifting | Subset | Metric] = [*liftings, *words, *map(Metric, dict.fromkeys(metric_epsilons))]
    alone = [Scheme(scheme_name(defense.spec()), defense.for_kind(kind)) for defense in others]
    behind = concealed_schemes(concealers, kind, others if composed else ())
    return [Scheme("identity", Identity()), *alone, *behind]


@dataclass(frozen=True)
class Study:
    """What is attacked, how it is defended, and what the attacker has."""

    dataset: str
    victims: Sequence[Victim]
    schemes: Sequence[Scheme]
    trials: Sequence[Trial]
    database: Database
    settings: Settings = field(default_factory=Settings)

    def wanted(self) -> Iterator[tuple[Victim, Scheme, Trial]]:
        """Everything that is to be measured, in order."""
        for scheme, victim, trial in product(self.schemes, self.victims, self.trials):
            if scheme.faces(trial):
                yield victim, scheme, trial


def run(study: Study, done: frozenset[Key] = frozenset()) -> Iterator[Record]:
    """One record for each victim, scheme and trial that is not in `done`; its value is that of a `leakage_record`."""
    releases = Releases(study.victims, study.database, study.settings.seed)
    for victim, scheme, trial in study.wanted():
        if _key(victim, scheme, trial) not in done:
            yield _record(study, releases, victim, scheme, trial)


def run_resumable(study: Study, path: str | Path, report: Report = lambda done, total: None) -> list[Record]:
    """Run what `path` does not hold yet, append each record once measured, return all that were asked for.

    `report` is called with records (done, total). Raises InputError when the file has other settings.
    """
    shared: dict[str, Parameter] = {"dataset": study.dataset, "seed": study.settings.seed, **study.settings.shared()}
    shared["own_database"] = study.database.digest[:16]
    wanted: dict[Key, Mapping[str, Parameter]] = {
        _key(victim, scheme, trial): scheme.parameters() for victim, scheme, trial in study.wanted()
    }
    return resume(path, Plan(TASK, _KEY, shared, wanted), lambda done: run(study, done), report)


def _record(study: Study, releases: Releases, victim: Victim, scheme: Scheme, trial: Trial) -> Record:
    settings = study.settings
    private, truth = releases.release(victim, scheme, geometry=trial.geometry), releases.truth(victim, scheme)
    # Of the attack's name only the seed depends, not of the scheme: all defenses are sampled at the same features.
    rng = image_generator(settings.seed, victim.name, 0, trial.name)
    if trial.method.alone and len(private) > settings.sample:
        rows = np.sort(rng.permutation(len(private))[: settings.sample])
        private, truth = private.take(rows), truth.take(rows)
    outcome = score_attack(private, truth, trial.method, releases.knowledge(victim, scheme, trial), rng)
    parameters: dict[str, Parameter] = {"victim": victim.name, **scheme.parameters(), **settings.shared()}
    parameters |= {"own_database": study.database.digest[:16], "features": len(victim.features)}
    parameters |= {"seconds": round(outcome.seconds, 3)}
    parameters |= scheme.bound()
    return leakage_record(outcome, TASK, study.dataset, scheme.name, trial.name, settings.seed, parameters)


def _key(victim: Victim, scheme: Scheme, trial: Trial) -> Key:
    return victim.name, scheme.name, trial.name
