"""The audit: every attack against every scheme on the same photographs, and what still matches.

For each victim, scheme and seed there is one record of matches for each number of private sides, and one for each
trial: what it gets back or, where it cannot be run, why. The same audit gives the same records with any number of
processes, whether it was interrupted or not.
"""

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from pathlib import Path

import numpy as np

from featveil.audit.data import Dataset
from featveil.audit.measuring import Measuring, Unit
from featveil.audit.names import SIDES, TASK
from featveil.audit.releases import Scheme
from featveil.audit.request import Settings
from featveil.audit.trials import Trial
from featveil.audit.workers import measure_units
from featveil.core import InputError
from featveil.core.arrays import Float32
from featveil.core.records import Parameter, Record
from featveil.core.resuming import Key, Plan, Report, resume
from featveil.databases import Database
from featveil.pipelines.scoring import attack_parameters

__all__ = ["Audit", "run_resumable"]

_KEY = ("dataset", "seed", "victim", "scheme", "attack", "sides")


@dataclass(frozen=True, eq=False)
class Audit:
    """What is measured on what: `attacker` has descriptors of its own, `pool` (s, d) fills the pools of devices."""

    datasets: tuple[Dataset, ...]
    schemes: tuple[Scheme, ...]
    trials: tuple[Trial, ...]
    settings: Settings
    attacker: Database
    pool: Float32

    def units(self) -> Iterator[Unit]:
        """Everything that can be measured by itself, what shares most next to each other."""
        for place, dataset in enumerate(self.datasets):
            parts = len(self.settings.seeds), len(self.schemes), len(dataset.victims)
            yield from (Unit(place, *others) for others in product(*map(range, parts)))

    def wanted(self, unit: Unit) -> dict[str, Key]:
        """The sides and trials of a unit, with the key of their record."""
        dataset = self.datasets[unit.dataset]
        seed = str(self.settings.seeds[unit.seed])
        start = dataset.name, seed, dataset.victims[unit.victim].name, self.schemes[unit.scheme].name
        made: dict[str, Key] = {sides: (*start, "None", sides) for sides in SIDES}
        return made | {trial.name: (*start, trial.name, "None") for trial in self.trials}

    def trial(self, name: str) -> Trial:
        """The one of that name."""
        return next(trial for trial in self.trials if trial.name == name)

    def stated(self, scheme: Scheme) -> dict[str, Parameter]:
        """What all records of a scheme state."""
        made = {**self.shared(), **scheme.parameters(), "geometry": scheme.geometry}
        made["keypoints"] = "apart" if scheme.apart else "all"
        return made | ({"pool": self._pool_digest} if scheme.private_pool else {})

    def shared(self) -> dict[str, Parameter]:
        """What all records state."""
        return {**self.settings.shared(), "own_database": self.attacker.digest[:16]}

    @cached_property
    def _pool_digest(self) -> str:
        return hashlib.sha256(np.ascontiguousarray(self.pool, "<f4").data).hexdigest()[:16]


def run_resumable(
    audit: Audit, path: str | Path, processes: int = 1, report: Report = lambda done, total: None
) -> list[Record]:
    """Measure what `path` does not hold yet, append each record once it is there, return all of the audit.

    One process means this one. `report` is called with records (done, total). Raises InputError when the file has
    other settings or is of another version of featveil.
    """
    if type(processes) is not int or processes < 1:
        raise InputError(f"processes must be a whole number of at least 1, got {processes!r}")
    wanted: dict[Key, Mapping[str, Parameter]] = {}
    of_trials = {trial.name: attack_parameters(trial.method) for trial in audit.trials}
    for unit in audit.units():
        stated = audit.stated(audit.schemes[unit.scheme])
        wanted |= {key: stated | of_trials.get(name, {}) for name, key in audit.wanted(unit).items()}
    plan = Plan(TASK, _KEY, audit.shared(), wanted)
    return resume(path, plan, lambda done: _measure(audit, done, processes), report)


def _measure(audit: Audit, done: frozenset[Key], processes: int) -> Iterator[Record]:
    """The records that are not `done`."""
    missing: dict[Unit, tuple[str, ...]] = {}
    for unit in audit.units():
        names = tuple(name for name, key in audit.wanted(unit).items() if key not in done)
        if names:
            missing[unit] = names
    if processes > 1 and len(missing) > 1:
        yield from measure_units(audit, missing, processes)
        return
    measuring = Measuring(audit)
    for unit, names in missing.items():
        yield from measuring.records(unit, names)
