"""The audit: every attack against every scheme on the same photographs, and what still matches.

For each victim, scheme and seed there is one record of matches for each number of private sides, and one for each
trial: what it gets back or, where it cannot be run, why. The same audit gives the same records with any number of
processes, whether it was interrupted or not.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path

from featveil.audit.measuring import Audit, Measuring, Unit, measure_units
from featveil.audit.rows import TASK
from featveil.core import InputError
from featveil.core.records import Parameter, Record
from featveil.core.resuming import Key, Plan, Report, resume
from featveil.pipelines.scoring import attack_parameters

_KEY = ("dataset", "seed", "victim", "scheme", "attack", "sides")


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
