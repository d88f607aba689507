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

from featveil.attacks import ATTACKS, Attack, Knowledge
from featveil.attacks.posterior import posterior_bound
from featveil.core import Defense, Descriptors, Features, InputError, Points, PrivateFeatures, Subspaces, WordSets
from featveil.core.records import Parameter, Record
from featveil.databases import Database
from featveil.defenses import Identity, Lifting, Metric, Subset, privatize
from featveil.metrics import Truth, align
from featveil.tasks import matching
from featveil.tasks.generators import image_generator
from featveil.tasks.leakage import leakage_record, score_attack
from featveil.tasks.resuming import Key, Plan, Report, resume

TASK = "attacks"
DEFAULT_STRATEGIES = ("random", "adversarial", "hybrid", "sub-adversarial", "sub-hybrid")
DEFAULT_DIMENSIONS = (2, 4, 8, 16)
DEFAULT_EPSILONS = (14.0, 10.0, 8.0, 6.0)
DEFAULT_SUBSET_SIZES = (1, 4)
DEFAULT_METRIC_EPSILONS = (121.0, 49.0, 28.0)

_KEY = ("victim", "scheme", "attack")


@dataclass(frozen=True)
class Settings(matching.Settings):
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


@dataclass(frozen=True)
class Victim:
    """Raw features of a photograph, and of a second view of what it shows."""

    name: str
    features: Features
    second_view: Features


@dataclass(frozen=True)
class Trial:
    """One attack; `also` is what its adversary is given beyond what it needs.

    `geometry` stands for a release with scale and orientation, `lifted_reference` for a second view that is private.
    """

    method: Attack
    also: tuple[str, ...] = ()
    geometry: bool = False
    lifted_reference: bool = False

    @property
    def name(self) -> str:
        """Of the attack, with what it is given on top."""
        return " + ".join((self.method.name, *self.also, *(("geometry",) if self.geometry else ())))

    @property
    def knows(self) -> tuple[str, ...]:
        """The fields of Knowledge that its adversary is given."""
        return (*self.method.needs, *self.also)


@dataclass(frozen=True)
class Scheme:
    """A defense and its name in tables."""

    name: str
    defense: Defense

    @property
    def representation(self) -> type[Descriptors]:
        """What it sends."""
        match self.defense:
            case Lifting():
                return Subspaces
            case Subset() | Metric():
                return WordSets
        return Points

    def faces(self, trial: Trial) -> bool:
        """Whether the trial applies: to what is sent, and with a database where one is drawn from."""
        drawn = not isinstance(self.defense, Lifting) or self.defense.adversarial_directions > 0
        return issubclass(self.representation, trial.method.breaks) and (drawn or "lifting_database" not in trial.knows)


def make_schemes(
    kind: str,
    strategies: Sequence[str] = DEFAULT_STRATEGIES,
    dimensions: Sequence[int] = DEFAULT_DIMENSIONS,
    epsilons: Sequence[float] = DEFAULT_EPSILONS,
    subset_sizes: Sequence[int] = DEFAULT_SUBSET_SIZES,
    metric_epsilons: Sequence[float] = DEFAULT_METRIC_EPSILONS,
) -> list[Scheme]:
    """No defense, every strategy x dimension, every epsilon x subset size, and the metric mechanism with one word."""
    made = [Scheme("identity", Identity())]
    for strategy, m in product(dict.fromkeys(strategies), dict.fromkeys(dimensions)):
        made.append(Scheme(f"{strategy}-{m}", Lifting(strategy, m).for_kind(kind)))
    for epsilon, k in product(dict.fromkeys(epsilons), dict.fromkeys(subset_sizes)):
        made.append(Scheme(f"subset-{epsilon:g}-{k}", Subset(epsilon, k).for_kind(kind)))
    for epsilon in dict.fromkeys(metric_epsilons):
        made.append(Scheme(f"metric-{epsilon:g}-1", Metric(epsilon).for_kind(kind)))
    return made


def make_trials(names: Sequence[str] | None = None) -> list[Trial]:
    """Every attack (or those of `names`) with each thing that makes it stronger; raises InputError for unknown ones."""
    unknown = [name for name in names or () if name not in ATTACKS]
    if unknown:
        raise InputError(f"unknown attack {unknown[0]!r}: use some of {', '.join(ATTACKS)}")
    made: list[Trial] = []
    for name in ATTACKS if names is None else dict.fromkeys(names):
        method: Attack = ATTACKS[name]()
        made.append(Trial(method, lifted_reference=name == "closest-pair"))
        # A codebook is public, and word sets cannot be scored without it: every adversary has it.
        made += [Trial(method, (more,)) for more in method.uses if name != "chance" and more != "codebook"]
        if "overlap" in name:
            made.append(Trial(method, geometry=True))
    return made


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
    releases = _Releases(study)
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
        _key(victim, scheme, trial): _parameters(scheme) for victim, scheme, trial in study.wanted()
    }
    return resume(path, Plan(TASK, _KEY, shared, wanted), lambda done: run(study, done), report)


class _Releases:
    """What is sent of every victim under one scheme at a time, made when first needed."""

    def __init__(self, study: Study) -> None:
        self.study, self.scheme = study, ""
        self._made: dict[tuple[str, int, bool], PrivateFeatures] = {}

    def release(self, victim: Victim, scheme: Scheme, number: int = 0, geometry: bool = False) -> PrivateFeatures:
        """A release of the victim's features; another `number` is another release, -1 one of its second view."""
        if scheme.name != self.scheme:
            self.scheme, self._made = scheme.name, {}
        key = victim.name, number, geometry
        if key not in self._made:
            rng = image_generator(self.study.settings.seed, victim.name, number + 1, scheme.name)
            features = victim.second_view if number < 0 else victim.features
            self._made[key] = privatize(features, scheme.defense, keep_geometry=geometry, rng=rng)
        return self._made[key]

    def truth(self, victim: Victim, scheme: Scheme) -> Truth:
        """What the release hides: scale and orientation tell features at one position apart, whoever sees them."""
        return align(self.release(victim, scheme, geometry=True), victim.features)

    def knowledge(self, victim: Victim, scheme: Scheme, trial: Trial) -> Knowledge:
        """What the adversary of a trial has; the truth, for an oracle, is added where guesses are scored."""
        wanted, defense = trial.knows, scheme.defense
        others = [other for other in self.study.victims if other is not victim] if "others" in wanted else []
        reference: Features | PrivateFeatures = victim.second_view
        if trial.lifted_reference:
            reference = self.release(victim, scheme, -1)
        return Knowledge(
            database=self.study.database if "database" in wanted else None,
            lifting_database=defense.database
            if "lifting_database" in wanted and isinstance(defense, Lifting)
            else None,
            codebook=defense.codebook if isinstance(defense, Subset | Metric) else None,
            others=tuple(self.release(other, scheme) for other in others),
            repeats=(self.release(victim, scheme, 1, trial.geometry),) if "repeats" in wanted else (),
            reference=reference if "reference" in wanted else None,
        )


def _record(study: Study, releases: _Releases, victim: Victim, scheme: Scheme, trial: Trial) -> Record:
    settings = study.settings
    private, truth = releases.release(victim, scheme, geometry=trial.geometry), releases.truth(victim, scheme)
    # Of the attack's name only the seed depends, not of the scheme: all defenses are sampled at the same features.
    rng = image_generator(settings.seed, victim.name, 0, trial.name)
    if trial.method.alone and len(private) > settings.sample:
        rows = np.sort(rng.permutation(len(private))[: settings.sample])
        private, truth = private.take(rows), truth.take(rows)
    outcome = score_attack(private, truth, trial.method, releases.knowledge(victim, scheme, trial), rng)
    parameters: dict[str, Parameter] = {"victim": victim.name, **_parameters(scheme), **settings.shared()}
    parameters |= {"own_database": study.database.digest[:16], "features": len(victim.features)}
    parameters |= {"seconds": round(outcome.seconds, 3)}
    if isinstance(scheme.defense, Subset) and scheme.defense.codebook is not None:
        words = len(scheme.defense.codebook)
        parameters["bound"] = posterior_bound(scheme.defense.epsilon, np.full(words, 1 / words))
    return leakage_record(outcome, TASK, study.dataset, scheme.name, trial.name, settings.seed, parameters)


def _key(victim: Victim, scheme: Scheme, trial: Trial) -> Key:
    return victim.name, scheme.name, trial.name


def _parameters(scheme: Scheme) -> dict[str, Parameter]:
    spec = scheme.defense.spec()
    made: dict[str, Parameter] = {"defense": spec["name"]}
    for name in ("strategy", "dimension", "epsilon", "subset_size"):
        made |= {name: spec[name]} if name in spec else {}
    for name in ("database", "codebook"):
        made |= {name: str(spec[name])[:16]} if spec.get(name) else {}
    return made
