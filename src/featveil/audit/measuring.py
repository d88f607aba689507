"""One victim under one scheme: how well its features still match, and what each attack gets back.

All attacks see one release, those that treat every feature by itself a sample of it, which is the same for all.
Several processes measure different units; each has what was read of the photographs, and computes on one thread.
"""

import hashlib
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from featveil.attacks import Guess, Knowledge, attack, check_applies
from featveil.audit.request import Settings
from featveil.audit.rows import CONTENT, SIDES, SKIPPED, TASK, UTILITY, stated_guarantee
from featveil.audit.schemes import Devices, Releases, Scheme, Victim
from featveil.audit.trials import Trial
from featveil.audit.victims import Dataset
from featveil.core import (
    Features,
    FeatveilError,
    InputError,
    Keypoints,
    MapPoints,
    Matches,
    MissingExtraError,
    PrivateFeatures,
    Subspaces,
    WordSets,
)
from featveil.core.arrays import Float32, Float64, Integers
from featveil.core.features import sent_by
from featveil.core.records import Parameter, Record
from featveil.core.resuming import Key, versions
from featveil.core.seeding import generator, image_generator
from featveil.databases import Database
from featveil.defenses import Gate
from featveil.distances.threads import single_threaded
from featveil.geometry import agreeing, agreeing_candidates
from featveil.matching import match
from featveil.metrics import CLOSE, NEAR, Truth, count_verified, transfer_errors
from featveil.pipelines.scoring import Outcome, attack_parameters, leakage_record, score_attack

_RIGHT = 3.0  # pixels
_SAMPLES = 100_000  # of four candidates, few of which are right
_SHOWN = 3
_BYTES = 512  # of the norm, as SIFT is stored


class Unit(NamedTuple):
    """Places of a dataset, seed, scheme and victim in an audit: what one process measures at a time."""

    dataset: int
    seed: int
    scheme: int
    victim: int


@dataclass(frozen=True, eq=False)
class Audit:
    """What is measured on what: `attacker` has descriptors of its own, `pool` (s, d) fills the pools of devices.

    `private` is the digest of the content that was pasted into photographs; empty where none was.
    """

    datasets: tuple[Dataset, ...]
    schemes: tuple[Scheme, ...]
    trials: tuple[Trial, ...]
    settings: Settings
    attacker: Database
    pool: Float32
    private: str = ""

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
        keys: dict[str, Key] = {sides: (*start, "None", sides) for sides in self.schemes[unit.scheme].sides}
        return keys | {trial.name: (*start, trial.name, "None") for trial in self.trials}

    def trial(self, name: str) -> Trial:
        """The one of that name."""
        return next(trial for trial in self.trials if trial.name == name)

    def stated(self, scheme: Scheme) -> dict[str, Parameter]:
        """What all records of a scheme state."""
        stated = {**self.shared(), **scheme.parameters(), "geometry": scheme.geometry}
        stated["keypoints"] = "apart" if scheme.apart else "all"
        return stated | ({"pool": self._pool_digest} if scheme.private_pool else {})

    def shared(self) -> dict[str, Parameter]:
        """What all records state."""
        stated = {**self.settings.shared(), "own_database": self.attacker.digest[:16]}
        return stated | ({"private_content": self.private} if self.private else {})

    @cached_property
    def _pool_digest(self) -> str:
        return hashlib.sha256(np.ascontiguousarray(self.pool, "<f4").data).hexdigest()[:16]


class Measuring:
    """Measures units, one after the other, and keeps what those of one dataset, seed and scheme share."""

    def __init__(self, audit: Audit) -> None:
        self.audit = audit
        self._place: tuple[int, int, int] | None = None

    def records(self, unit: Unit, wanted: tuple[str, ...]) -> Iterator[Record]:
        """Those of the unit that `wanted` names: sides of a pair, and trials. Each is measured on one thread."""
        with one_thread():
            subject = self.subject(unit)
        for name in wanted:
            with one_thread():
                record = subject.matching(name) if name in SIDES else subject.attacked(self.audit.trial(name))
            yield record

    def subject(self, unit: Unit) -> "Subject":
        """The victim of a unit under its scheme; raises InputError where that cannot be made."""
        audit, place = self.audit, unit[:3]
        dataset, scheme = audit.datasets[unit.dataset], audit.schemes[unit.scheme]
        victims = dataset.victims
        try:
            scheme = scheme.before(None if dataset.map is None else dataset.map.sketch)
        except InputError as error:
            raise InputError(f"{scheme.name} cannot be made for {dataset.name}: {error}") from error
        if place != self._place:
            seed = audit.settings.seeds[unit.seed]
            self._devices = Devices(audit.pool, audit.settings.kind, victims, scheme, seed)
            self._releases = Releases(victims, audit.attacker, seed, self._devices.equip)
            self._place = place
        try:
            return Subject(audit, unit, scheme, self._releases, self._devices)
        except FeatveilError as error:
            raise InputError(f"{scheme.name} cannot be made of {victims[unit.victim].name}: {error}") from error


class Subject:
    """One victim under one scheme, whose gate, if it has one, is before the map of the dataset."""

    def __init__(self, audit: Audit, unit: Unit, scheme: Scheme, releases: Releases, devices: Devices) -> None:
        self.audit, self.scheme, self.releases, self.devices = audit, scheme, releases, devices
        self.dataset = audit.datasets[unit.dataset]
        self.seed = audit.settings.seeds[unit.seed]
        self.victim, self.stated = self.dataset.victims[unit.victim], audit.stated(audit.schemes[unit.scheme])
        self.private = releases.release(self.victim, self.scheme, geometry=self.scheme.geometry)
        self.truth = releases.truth(self.victim, self.scheme)
        self.shows = unit.seed == unit.victim == 0
        self.chosen = self._chosen()

    def matching(self, sides: str) -> Record:
        """How many matches with the second view there are, and are right; it is private too where both sides are."""
        other: Features | PrivateFeatures = self.victim.second_view
        if sides == "both":
            other = self.releases.release(self.victim, self.scheme, -1)
        elif self.scheme.network is not None:
            other = self.scheme.network.conceal(self.victim.second_view)
        if isinstance(self.private.descriptors, MapPoints):
            assert self.dataset.map is not None, "a gate has a map"
            matches, elsewhere = self.dataset.map.matches(self.victim, self.private)
        else:
            matches, elsewhere = matched(other, self.private, self.scheme.codebook), 0
        counts = verified(self.victim, other, self.private, matches)
        counts = counts[0] + elsewhere, *counts[1:]
        return Record(
            task=TASK,
            dataset=self.dataset.name,
            scheme=self.scheme.name,
            metric=UTILITY,
            value=tuple(float(count) for count in counts),
            unit="count, count, count, count",
            count=counts[0],
            seed=self.seed,
            versions=versions(),
            parameters={**self._parameters(), "sides": sides},
        )

    def attacked(self, trial: Trial) -> Record:
        """What the trial gets back, or why it was not run."""
        try:
            self._check(trial)
            return self._leakage(trial)
        except (InputError, MissingExtraError) as error:
            return self._skipped(trial, str(error))

    def guessed(self, trial: Trial) -> Guess:
        """What the trial makes of all features, no sample; raises InputError where it cannot be run."""
        self._check(trial)
        rng = image_generator(self.seed, self.victim.name, 0, trial.name)
        return attack(self.private, trial.method, self.releases.knowledge(self.victim, self.scheme, trial), rng)

    def _check(self, trial: Trial) -> None:
        """Raise InputError when there is no such adversary of this victim."""
        check_applies(self.private.descriptors, trial.method)
        reason = self.scheme.withholds(trial)
        if "others" in trial.also and len(self.dataset.victims) == 1:
            reason = "there is no other image in this dataset"
        elif "others" in trial.also and self.scheme.private_pool and not self.devices.strangers:
            reason = "there are too few descriptors to give the devices of others pools of their own"
        if reason is not None:
            raise InputError(reason)

    def _leakage(self, trial: Trial) -> Record:
        private, truth, shown = self.private, self.truth, self.chosen[:_SHOWN]
        if trial.method.alone and len(private) > self.audit.settings.sample:
            rows = np.sort(self.chosen[: self.audit.settings.sample])
            private, truth, shown = private.take(rows), truth.take(rows), np.searchsorted(rows, shown)
        rng = image_generator(self.seed, self.victim.name, 0, trial.name)
        known = self.releases.knowledge(self.victim, self.scheme, trial)
        outcome = score_attack(private, truth, trial.method, known, rng)
        near = Distances(truth.rows[truth.certain], outcome.distances)
        if len(private) < len(self.private):
            near = near.with_more(self._more_private(trial, known))
        parameters = self._parameters() | attack_parameters(trial.method) | {"adversary": trial.adversary}
        parameters |= near.counted(self._sides)
        parameters |= self.scheme.bound() | (_examples(outcome, truth, shown) if self.shows else {})
        return leakage_record(outcome, TASK, self.dataset.name, self.scheme.name, trial.name, self.seed, parameters)

    def _more_private(self, trial: Trial, known: Knowledge) -> "Distances | None":
        """Of private features that the sample lacks, up to as many as it is large: content shows few features."""
        if self.victim.pasted is None:
            return None
        private = self.victim.pasted.sides.private[self.truth.rows[self.chosen]] & self.truth.certain[self.chosen]
        size = self.audit.settings.sample
        rows = self.chosen[size:][private[size:]][: max(size - int(private[:size].sum()), 0)]
        if len(rows) == 0:
            return None
        rows = np.sort(rows)
        rng = image_generator(self.seed, self.victim.name, 1, trial.name)
        outcome = score_attack(self.private.take(rows), self.truth.take(rows), trial.method, known, rng)
        return Distances(self.truth.rows[rows], outcome.distances)

    @property
    def _sides(self) -> dict[str, NDArray[np.bool_]]:
        """Which raw features are private, and which show what may be in a map; nothing where nothing was pasted."""
        if self.victim.pasted is None:
            return {}
        return {name: getattr(self.victim.pasted.sides, name) for name in CONTENT}

    def _skipped(self, trial: Trial, reason: str) -> Record:
        return Record(
            task=TASK,
            dataset=self.dataset.name,
            scheme=self.scheme.name,
            metric=SKIPPED,
            value=0.0,
            unit="",
            count=0,
            seed=self.seed,
            versions=versions(),
            attack=trial.name,
            parameters={**self._parameters(), **attack_parameters(trial.method), "reason": reason},
        )

    def _parameters(self) -> dict[str, Parameter]:
        stated: dict[str, Parameter] = {"victim": self.victim.name, **self.stated}
        stated |= {"features": len(self.private), "raw_features": len(self.victim.features)}
        if self.victim.pasted is not None:
            stated["content"] = self.victim.pasted.content
        sent = np.unique(self.truth.rows)
        for name, side in self._sides.items():
            stated |= {f"{name}_raw": int(side.sum()), f"{name}_sent": int(side[sent].sum())}
        if isinstance(self.scheme.defense, Gate):
            spec = self.scheme.defense.spec()
            stated |= {"map_sketch": str(spec["sketch"])[:16], "map_contrast": spec["contrast"]}
        return stated | stated_guarantee(self.private.guarantee)

    def _chosen(self) -> Integers:
        """Rows of the release in an order that depends on the raw features only: the same ones under all schemes."""
        order = generator(self.seed, self.victim.name, "sample").permutation(len(self.victim.features))
        rank = np.empty(len(order), np.int64)
        rank[order] = np.arange(len(order))
        # Of features that cannot be told apart none is scored: they come last.
        return np.lexsort((rank[self.truth.rows], ~self.truth.certain))


@dataclass(frozen=True, eq=False)
class Distances:
    """How far guesses are from the raw features at `rows` (k,) of a victim: `away` (k,), as shares of their norms."""

    rows: Integers
    away: Float64

    def with_more(self, other: "Distances | None") -> "Distances":
        """Both together."""
        if other is None:
            return self
        return Distances(np.concatenate([self.rows, other.rows]), np.concatenate([self.away, other.away]))

    def counted(self, sides: Mapping[str, NDArray[np.bool_]]) -> dict[str, Parameter]:
        """On each side how many guesses there are, and how many of them are near and close."""
        stated: dict[str, Parameter] = {}
        for name, side in sides.items():
            away = self.away[side[self.rows]]
            stated[f"{name}_scored"] = len(away)
            stated |= {f"{name}_near": int((away < NEAR).sum()), f"{name}_close": int((away < CLOSE).sum())}
        return stated


def matched(other: Features | PrivateFeatures, private: PrivateFeatures, codebook: Database | None) -> Matches:
    """Matches of the second view, `other`, with private features.

    Where both are subspaces, candidates are ranked by their parts of unit norm.
    """
    lifted = isinstance(other.descriptors, Subspaces) and isinstance(private.descriptors, Subspaces)
    return match(other, private, codebook=codebook, on_sphere=lifted)  # extractors give unit norm


def verified(
    victim: Victim, other: Features | PrivateFeatures, private: PrivateFeatures, matches: Matches
) -> tuple[int, ...]:
    """What UTILITY names: `matches` of the second view, `other`, with the `private` features of a victim."""
    if victim.homography is None:
        raise InputError(f"the homography of {victim.name} is not known: its matches cannot be counted")
    first, second = _keypoints(other), _keypoints(private)
    places = first.xy[matches.indices[:, 0]], second.xy[matches.indices[:, 1]]
    # Few of these are right; what a gate names is nearly always right, and is counted as raw matches are.
    decoys = isinstance(private.descriptors, WordSets) or sent_by(private.defense) == "subset"
    agree = agreeing_candidates(*places, _SAMPLES) if decoys else agreeing(*places)
    back: Float64 = np.linalg.inv(victim.homography).astype(np.float64)
    errors = transfer_errors(matches, first, second, back)
    return tuple(count_verified(matches, agree, errors, _RIGHT))


@contextmanager
def one_thread() -> Iterator[None]:
    """Compute on one thread: processes are the unit of parallel work, and sums do not depend on how many there are."""
    with ExitStack() as stack:
        stack.enter_context(single_threaded())
        stack.enter_context(threadpool_limits(1))
        yield


def _examples(outcome: Outcome, truth: Truth, rows: Integers) -> dict[str, Parameter]:
    """True and guessed descriptors of some attacked features, one after the other, in the bytes of SIFT."""
    true = truth.points.values[rows].astype(np.float64)
    norms = np.linalg.norm(true, axis=1, keepdims=True)
    return {
        "shown_truth": _bytes(true / norms, 0),
        "shown_guess": _bytes(outcome.guess.values[rows] / norms, -255),
    }


def _bytes(values: Float64, lowest: int) -> list[int]:
    return [int(value) for value in np.clip(np.rint(_BYTES * values), lowest, 255).ravel()]


def _keypoints(features: Features | PrivateFeatures) -> Keypoints:
    if features.keypoints is None:
        raise InputError("features without keypoints cannot be verified: audits need local features")
    return features.keypoints


Make = Callable[[Audit], Measuring]
_here: dict[str, Measuring] = {}  # of a worker: one process has one


def measure_units(
    audit: Audit, units: Mapping[Unit, tuple[str, ...]], processes: int, make: Make = Measuring
) -> Iterator[Record]:
    """The records that `units` name, those of a unit together, as they get ready; each process measures by `make`.

    The processes are ended at once when the caller stops early. Raises FeatveilError when one of them dies.
    """
    with _workers(audit, min(processes, len(units)), make) as workers:
        futures = [workers.submit(_measure, unit, names) for unit, names in units.items()]
        try:
            for future in as_completed(futures):
                yield from future.result()
        except BrokenProcessPool as error:
            raise FeatveilError(
                "a process of the audit was ended from outside, perhaps for want of memory: the same command goes on;"
                " give it fewer processes"
            ) from error


@contextmanager
def _workers(audit: Audit, count: int, make: Make) -> Iterator[ProcessPoolExecutor]:
    # Started afresh rather than forked: a fork copies locks of threads that it does not have.
    context, before = multiprocessing.get_context("spawn"), multiprocessing.active_children()
    workers = ProcessPoolExecutor(count, context, _start, (audit, make))
    finished = False
    try:
        yield workers
        finished = True
    finally:
        if not finished:
            for process in multiprocessing.active_children():
                if process not in before:
                    process.terminate()
        workers.shutdown(wait=finished, cancel_futures=True)


def _start(audit: Audit, make: Make) -> None:
    """In a worker: Ctrl-C reaches every process of a terminal, but the first one decides; none outlives that."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    _here["measuring"] = make(audit)


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _measure(unit: Unit, names: tuple[str, ...]) -> list[Record]:
    return list(_here["measuring"].records(unit, names))
