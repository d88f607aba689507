"""A file of records that a task fills: what it holds is not measured again, and other settings do not mix in."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path

import numpy as np

from featveil.core import InputError
from featveil.core.records import Parameter, Record, append_records, read_records
from featveil.core.version import VERSION

Report = Callable[[int, int], None]
Key = tuple[str, ...]
Measure = Callable[[frozenset[Key]], Iterable[Record]]


def silent(done: int, total: int) -> None:
    """The Report of who does not want any."""


@dataclass(frozen=True)
class Plan:
    """The records that a run of `task` shall give, by key, and the parameters that each must have.

    `names` are the parameters (or "dataset", "seed", "scheme", "attack") whose values make the key. `shared` is what
    every record of the file has, wanted or not: settings, and dataset and seed where there is one. `usual` is what
    records have that do not say it, because it could not be chosen when they were made.
    """

    task: str
    names: tuple[str, ...]
    shared: Mapping[str, Parameter]
    wanted: Mapping[Key, Mapping[str, Parameter]]
    usual: Mapping[str, Parameter] = field(default_factory=dict)

    def key(self, record: Record) -> Key:
        """Which of the wanted records this one is."""
        values = {"dataset": record.dataset, "seed": record.seed, "scheme": record.scheme, "attack": record.attack}
        values |= record.parameters
        return tuple(str(values.get(name)) for name in self.names)


def resume(path: str | Path, plan: Plan, measure: Measure, report: Report) -> list[Record]:
    """Append to `path` each record that it lacks, once measured; return all that `plan` wants, in its order.

    `measure` is called with the keys that are there, and gives the others. `report` is called with records (done,
    total). Raises InputError when the file has other settings or is of another version; nothing is written then.
    """
    path = Path(path)
    stored = {plan.key(record): record for record in _stored(path, plan.task)}
    for key, record in stored.items():
        stated = {**plan.usual, "dataset": record.dataset, "seed": record.seed, **record.parameters}
        _check_same(stated, {**plan.shared, **plan.wanted.get(key, {})}, path)
    have = {key: stored[key] for key in plan.wanted if key in stored}
    report(len(have), len(plan.wanted))
    for record in measure(frozenset(have)):
        append_records(path, [record])
        have[plan.key(record)] = record
        report(len(have), len(plan.wanted))
    return [have[key] for key in plan.wanted if key in have]


def versions(*others: str) -> dict[str, str]:
    """The software that decides what is measured on image pairs, and `others` by their packages' names."""
    return {
        "featveil": VERSION,
        "numpy": np.__version__,
        "opencv": version("opencv-python-headless"),
        **{name: version(name) for name in others},
    }


def _stored(path: Path, task: str) -> list[Record]:
    if not path.exists():
        return []
    records = [record for record in read_records(path) if record.task == task]
    for record in records:
        made_by = record.versions.get("featveil", "unknown")
        if made_by != VERSION:
            raise InputError(
                f"{path} was made by featveil {made_by}, this is {VERSION}: results of both do not mix;"
                " name another folder, or delete the file"
            )
    return records


def _check_same(stored: Mapping[str, Parameter], now: Mapping[str, Parameter], path: Path) -> None:
    for name, value in now.items():
        if stored.get(name) != value:
            raise InputError(
                f"{path} was made with {name} {stored.get(name)}, not {value}: name another folder, or delete the file"
            )
