"""Repeated authentication (Dusmanu et al. 2021, section 5): what a history of private templates gives away.

A person enrolls and then logs in, each time from another photograph; whoever keeps the templates puts them together.
raw:        nothing is lifted: what the photographs themselves give.
fresh:      each template is lifted anew.
keyed:      a key of the enrolment draws the same confounders and random directions each time.
parallel:   each login is lifted along the directions of the enrolment; `parallel-S` turns them by about S radians.
Measured: how far the attacker's descriptor is from the person's mean over all photographs but one, whether it is
accepted as that person on the one, in place of a raw descriptor, and whether such logins are still verified.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from featveil.attacks.on_faces.logins import Population, meeting_point, varying_part
from featveil.core import InputError, Points, Subspaces
from featveil.core.arrays import Float32, Float64, Integers
from featveil.core.keyed import SECRET_BYTES, KeyedRandomness
from featveil.core.records import Parameter, Record
from featveil.core.resuming import Key, Plan, Report, resume, versions
from featveil.core.seeding import check_seed, generator
from featveil.databases import Database
from featveil.datasets.face_pairs import FacePairs
from featveil.datasets.face_sets import FaceSet
from featveil.defenses.parallel import parallel
from featveil.distances import pair_distances
from featveil.metrics.error_rates import error_rates
from featveil.pipelines.face_schemes import FaceScheme, apart_from, lifting_database, without

TASK = "face-logins"
COUNTS = (1, 2, 3, 5, 10)
RAW_MODE = "raw"
MODES = (RAW_MODE, "fresh", "keyed", "parallel", "parallel-0.03", "parallel-0.1", "parallel-0.3")
FAR = 1e-3
ATTACKS = ("meeting", "varying")
_KEY = ("scheme", "mode", "logins", "attack")


@dataclass(frozen=True, eq=False)
class LoginStudy:
    """Who logs in: everyone of `faces` with enough photographs, one of them kept to verify the attacker's guess by.

    `pairs` of the same faces say which distance is one person at a FAR of 0.001. Logins are hidden among `others`.
    """

    name: str
    faces: FaceSet
    pairs: FacePairs
    others: FaceSet
    counts: tuple[int, ...] = COUNTS
    seed: int = 0

    def __post_init__(self) -> None:
        check_seed(self.seed)
        if self.faces.kind != self.others.kind or self.faces.size != self.others.size:
            raise InputError("the faces to hide among were described by another network: describe both by one")
        if not self.counts or min(self.counts) < 1:
            raise InputError("a study of logins needs at least one of them")
        if len(self.rows) < 2:
            raise InputError(f"nobody has the {max(self.counts) + 1} photographs that this many templates need")

    @cached_property
    def rows(self) -> Integers:
        """Photographs of each person (p, most + 1): an enrolment, logins, and one that nobody has seen."""
        wanted = max(self.counts) + 1
        _, person, counts = np.unique(self.faces.people, return_inverse=True, return_counts=True)
        rng = generator(self.seed, TASK, "photographs")
        chosen = [rng.permutation(np.flatnonzero(person == one))[:wanted] for one in np.flatnonzero(counts >= wanted)]
        return np.array(chosen, np.int64).reshape(len(chosen), wanted)

    @cached_property
    def database(self) -> Database:
        """Faces of others."""
        others = without(self.others, self.faces.take(self.rows[:, 0]))
        return lifting_database(apart_from(others, without(self.faces, others)), None, generator(self.seed, "database"))

    @cached_property
    def population(self) -> Population:
        """What is known of faces in general: from everyone who is not a victim."""
        victims = np.isin(self.faces.people, self.faces.people[self.rows[:, 0]])
        return Population.of(self.faces.values[~victims], self.faces.people[~victims])

    @cached_property
    def threshold(self) -> float:
        """The raw distance up to which two photographs are one person."""
        first, second = self.faces.values[self.pairs.first], self.faces.values[self.pairs.second]
        return error_rates(np.linalg.norm(first - second, axis=1), self.pairs.same).threshold(FAR)

    def shared(self) -> dict[str, Parameter]:
        """Settings that all records of a file have."""
        return {"people": len(self.rows), "far": FAR, "others": len(self.others)}


def run(
    study: LoginStudy, schemes: Sequence[FaceScheme], modes: Sequence[str], done: frozenset[Key] = frozenset()
) -> Iterator[Record]:
    """One record for each scheme, mode, number of logins and attack that is not in `done`.

    Its value are the mean distance of the guess from the mean login, and the share of guesses that verify.
    """
    for scheme in schemes:
        for mode in modes:
            wanted = [key for key in _keys(study, scheme, mode) if key not in done]
            if not wanted:
                continue
            history = _History(study, scheme, mode)
            for _, _, count, attack in wanted:
                yield history.record(int(count), attack)


def run_resumable(
    study: LoginStudy,
    schemes: Sequence[FaceScheme],
    modes: Sequence[str],
    path: str | Path,
    report: Report = lambda done, total: None,
) -> list[Record]:
    """Run what `path` does not hold yet, append each record once measured, return all that were asked for."""
    for mode in modes:
        if mode not in MODES:
            raise InputError(f"unknown mode {mode!r:.80}: use one of {', '.join(MODES)}")
    shared = {"dataset": study.name, "seed": study.seed, **study.shared()}
    wanted = {key: one.parameters() for one in schemes for mode in modes for key in _keys(study, one, mode)}
    return resume(path, Plan(TASK, _KEY, shared, wanted), lambda done: run(study, schemes, modes, done), report)


class _History:
    """Templates of everyone under one scheme and mode: row i of each belongs to person i."""

    def __init__(self, study: LoginStudy, scheme: FaceScheme, mode: str) -> None:
        self.study, self.scheme, self.mode = study, scheme, mode
        self.rng = generator(study.seed, TASK, scheme.name, mode)
        self.secret = self.rng.bytes(SECRET_BYTES)
        self.lifting = scheme.lifting(study.database)
        self.enrolled = self._lifted(self._photographs(0))

    @cached_property
    def templates(self) -> list[Subspaces]:
        """Of all enrolments, then of all logins."""
        columns = range(1, max(self.study.counts))
        return [self.enrolled, *(self._login(self._photographs(column)) for column in columns)]

    @cached_property
    def true_accept_rate(self) -> float:
        """Of first logins against enrolments, both private, at a FAR of 0.001: strangers log in in everyone's place.

        A stranger sits at the device of whom it claims to be, so that what that device keeps lifts it too.
        """
        n, photographs = len(self.study.rows), self._photographs(1)
        if self.mode == RAW_MODE:
            own = self._photographs(0)
            away = np.linalg.norm(own[:, None] - photographs[None], axis=2)
            return error_rates(away.ravel(), np.eye(n, dtype=np.bool_).ravel()).true_accept_rate(FAR)
        rows, distances = np.arange(n), []
        for shift in range(n):
            probes = self._login(np.roll(photographs, -shift, axis=0))
            distances.append(pair_distances(self.enrolled, probes, rows, rows))
        mated = np.repeat(rows == 0, n)  # those of the shift by nobody
        # Whatever is nearer than rounding is as near as can be.
        return error_rates(np.concatenate(distances).round(5), mated).true_accept_rate(FAR)

    def record(self, count: int, attack: str) -> Record:
        """What an attack makes of the first `count` templates of everyone."""
        study = self.study
        guess = _unit(self._guess(count, attack))
        everything = study.faces.values[study.rows[:, :-1]].astype(np.float64)
        away = np.linalg.norm(guess - _unit(everything.mean(axis=1)), axis=1)
        unseen: Float32 = study.faces.values[study.rows[:, -1]]
        verified = np.linalg.norm(guess - unseen, axis=1) <= study.threshold
        return Record(
            task=TASK,
            dataset=study.name,
            scheme=self.scheme.name,
            metric="distance, verified",
            value=(round(float(away.mean()), 6), round(float(verified.mean()), 6)),
            unit="distance, share",
            count=len(guess),
            seed=study.seed,
            versions=versions(),
            attack=attack,
            parameters={
                "mode": self.mode,
                "logins": count,
                "true_accept_rate": round(self.true_accept_rate, 6),
                **self.scheme.parameters(),
                **study.shared(),
            },
        )

    def _guess(self, count: int, attack: str) -> Float64:
        if self.mode == RAW_MODE:
            photographs = [self._photographs(column) for column in range(count)]
            return np.asarray(np.mean(photographs, axis=0, dtype=np.float64))
        seen = self.templates[:count]
        met = meeting_point(seen, self.study.population)
        if attack == "meeting":
            return met
        values, found = varying_part(seen, self.study.population)
        return np.where(found[:, None], values, met)

    def _photographs(self, column: int) -> Float32:
        return self.study.faces.values[self.study.rows[:, column]]

    def _lifted(self, values: Float32) -> Subspaces:
        draws = KeyedRandomness(self.secret, "enrolment") if self.mode == "keyed" else self.rng
        return self.lifting.privatize(Points(values), draws)

    def _login(self, values: Float32) -> Subspaces:
        """What the devices of everyone make of `values` (p, d), a photograph at each."""
        if not self.mode.startswith("parallel"):
            return self._lifted(values)
        return parallel(Points(values), self.enrolled, self.rng, float(self.mode.partition("-")[2] or 0))


def _keys(study: LoginStudy, scheme: FaceScheme, mode: str) -> list[Key]:
    attacks = ("meeting",) if mode == RAW_MODE else ATTACKS
    return [(scheme.name, mode, str(count), attack) for count in study.counts for attack in attacks]


def _unit(values: Float64) -> Float64:
    return np.asarray(values / np.linalg.norm(values, axis=1, keepdims=True))
