"""Attacks on private features of files: one record for each file and attack, what is there is not measured again."""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from featveil.attacks import Attack, Knowledge, needs_of
from featveil.core import (
    ConcealingNetwork,
    Features,
    FeatveilError,
    InputError,
    MapPoints,
    Points,
    PrivateFeatures,
    Subspaces,
    WordSets,
)
from featveil.core.arrays import Integers
from featveil.core.files import make_folder
from featveil.core.records import Parameter, Record
from featveil.core.resuming import Key, Plan, Report, resume
from featveil.core.seeding import check_seed, generator
from featveil.databases import Database
from featveil.gate import Sketch
from featveil.metrics import NEAR, Truth, histogram
from featveil.pipelines.scoring import Outcome, attack_parameters, leakage_record, scheme_name, score_attack

TASK = "attack"

Failed = Callable[[Attack, FeatveilError], None]
Item = TypeVar("Item")

_KEY = ("file", "attack")


@dataclass(frozen=True)
class Settings:
    """Seed of a study, and how many features (None: all) are attacked by attacks that treat each by itself."""

    seed: int = 0
    sample: int | None = None

    def __post_init__(self) -> None:
        check_seed(self.seed)
        if self.sample is not None and (type(self.sample) is not int or self.sample < 1):
            raise InputError(f"sample must be a whole number of at least 1, got {self.sample!r}")


@dataclass(frozen=True, eq=False)
class Target:
    """Private features of the file `name`, and what the adversary has."""

    name: str
    private: PrivateFeatures
    knowledge: Knowledge

    def parameters(self, method: Attack, settings: Settings) -> dict[str, Parameter]:
        """All that decides what `method` makes of it, as its record states it."""
        parameters: dict[str, Parameter] = {"file": self.name, "attack": method.name, "kind": self.private.kind}
        parameters |= {"private": fingerprint(self.private), "features": len(self.private)}
        parameters |= {"guarantee": self.private.guarantee.kind, "epsilon": self.private.guarantee.epsilon}
        parameters["sample"] = None if self.rows(method, settings) is None else settings.sample
        return parameters | known_facts(method, self.knowledge, self.private) | attack_parameters(method)

    def rows(self, method: Attack, settings: Settings) -> Integers | None:
        """The features to attack, the same for every attack; None for all."""
        if settings.sample is None or not method.alone or settings.sample >= len(self.private):
            return None
        rng = generator(settings.seed, self.name)
        return np.sort(rng.permutation(len(self.private))[: settings.sample])

    def taken(self, rows: Integers | None) -> "Target":
        """The same with only those features; further releases without keypoints are in the same order."""
        if rows is None:
            return self
        repeats = tuple(one.take(rows) if one.keypoints is None else one for one in self.knowledge.repeats)
        return Target(self.name, self.private.take(rows), replace(self.knowledge, repeats=repeats))


def measure(target: Target, truth: Truth, method: Attack, settings: Settings) -> Record:
    """One attack on the file, compared with its `truth`; raises InputError as `score_attack` does."""
    rows = target.rows(method, settings)
    taken = target.taken(rows)
    rng = generator(settings.seed, target.name, method.name)
    known = truth if rows is None else truth.take(rows)
    outcome = score_attack(taken.private, known, method, taken.knowledge, rng)
    return _record(target, method, settings, outcome)


def run_resumable(
    target: Target,
    truth: Truth,
    methods: Sequence[Attack],
    settings: Settings,
    path: Path | None,
    failed: Failed,
    report: Report = lambda done, total: None,
) -> list[Record]:
    """The records of all `methods` on the file; those that `path` lacks are measured and appended, one by one.

    Without a `path` nothing is stored. `failed` is called for an attack that ends in an error: it has no record then.
    The folder of `path` is made with the first record. Raises InputError when `path` holds records of the same file
    name, but of other features or settings.
    """
    wanted = {_key(target, method): target.parameters(method, settings) for method in methods}

    def missing(done: frozenset[Key]) -> Iterator[Record]:
        for method in methods:
            if _key(target, method) in done:
                continue
            try:
                record = measure(target, truth, method, settings)
            except FeatveilError as error:
                failed(method, error)
            else:
                if path is not None:
                    make_folder(path.parent)
                yield record

    if path is None:
        return list(reporting(missing(frozenset()), len(methods), report))
    return resume(path, Plan(TASK, _KEY, {"seed": settings.seed}, wanted), missing, report)


def reporting(items: Iterable[Item], total: int, report: Report) -> Iterator[Item]:
    """What is in `made`, while `report` is called with (done, total)."""
    report(0, total)
    for done, item in enumerate(items, start=1):
        yield item
        report(done, total)


def known_facts(method: Attack, knowledge: Knowledge, private: PrivateFeatures | None = None) -> dict[str, Parameter]:
    """What the attack was given of what it declares, for `private` if it matters: names, and fingerprints of each."""
    needs = method.needs if private is None else needs_of(private, method)
    names = [name for name in dict.fromkeys((*needs, *method.uses)) if knowledge.has(name)]
    facts: dict[str, Parameter] = {"knows": names}
    for name in names:
        match getattr(knowledge, name):
            case Database() | ConcealingNetwork() | Sketch() as named:
                facts[f"known_{name}"] = named.digest[:16]
            case Features() | PrivateFeatures() as given:
                facts[f"known_{name}"] = fingerprint(given)
            case tuple() as given:
                facts[f"known_{name}"] = [fingerprint(one) for one in given]
    return facts


def fingerprint(features: Features | PrivateFeatures) -> str:
    """16 digits that tell these features from others."""
    match features.descriptors:
        case Points(values):
            arrays: list[NDArray[Any] | None] = [values]
        case Subspaces(offset, basis):
            arrays = [offset, basis]
        case WordSets(whole) | MapPoints(whole):
            arrays = [whole]
    if features.keypoints is not None:
        arrays += [getattr(features.keypoints, field.name) for field in fields(features.keypoints)]
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(f"{None if array is None else array.shape}".encode())
        if array is not None:
            digest.update(np.ascontiguousarray(array, array.dtype.newbyteorder("<")).data)
    return digest.hexdigest()[:16]


def _record(target: Target, method: Attack, settings: Settings, outcome: Outcome) -> Record:
    measured: dict[str, Parameter] = {
        "attacked": len(outcome.guess),
        "seconds": round(outcome.seconds, 4),
        "histogram": [int(count) for count in histogram(outcome.distances)],
        "note": _note(outcome),
    }
    parameters, scheme = target.parameters(method, settings) | measured, scheme_name(target.private.defense)
    return leakage_record(outcome, TASK, target.name, scheme, method.name, settings.seed, parameters)


def _note(outcome: Outcome) -> str:
    """The attack's, and behind a concealer what it found there before that was undone."""
    note, released = outcome.guess.note, outcome.released
    if released is None:
        return note
    concealed = (
        f"of the concealed descriptors {released.below_near:.1%} are guessed to {NEAR:g}, {released.exact:.1%} exactly"
    )
    return f"{note}; {concealed}" if note else concealed


def _key(target: Target, method: Attack) -> Key:
    return target.name, method.name
