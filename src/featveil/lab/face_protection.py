"""Face templates measured as ISO/IEC 24745 asks: irreversible, unlinkable, renewable.

unlinkability:   D_sys (Gomez-Barrero et al. 2018) of templates of two photographs of one person, lifted independently,
                 against those of two people; by each score that a linker may use, of which the worst counts.
irreversibility: how far the best attack comes to the descriptor, and how often its guess is accepted as that person.
renewability:    D_sys of a template and the one that replaced it after it was revoked: from another photograph, or,
                 the worst case, from the same one.
The attacker's own faces and those that others are hidden among are two halves of one set; `database` and `unmix` are
given the latter.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from featveil.attacks import ATTACKS, Knowledge, attack
from featveil.attacks.subspaces import central
from featveil.core import Flats, Guarantee, Points, PrivateFeatures, Spec
from featveil.core.arrays import Float32, Float64, Integers
from featveil.core.records import Parameter, Record
from featveil.core.resuming import Key, Plan, Report, resume, versions
from featveil.core.seeding import generator
from featveil.databases import Database
from featveil.distances import pair_distances
from featveil.lab.face_verification import Verification
from featveil.metrics.error_rates import error_rates
from featveil.metrics.unlinkability import global_unlinkability
from featveil.pipelines.face_schemes import HARDENED, RAW, FaceScheme, apart_from, halves, lifting_database

TASK = "face-protection"
FAR = 1e-3
LINKERS = ("distance", "centres", "unmixed")
REVERSERS = ("read", "mean", "nearest", "database", "unmix")
_KEY = ("scheme", "measure", "by")
_LEAST_FREE = "renewed, same photograph"


def run(
    verification: Verification, schemes: Sequence[FaceScheme], done: frozenset[Key] = frozenset()
) -> Iterator[Record]:
    """One record for each scheme, measure and attack that is not in `done`."""
    for scheme in schemes:
        wanted = [key for key in _keys(scheme) if key not in done]
        if wanted:
            templates = _Templates(verification, scheme)
            for _, measure, by in wanted:
                yield templates.record(measure, by)


def run_resumable(
    verification: Verification,
    schemes: Sequence[FaceScheme],
    path: str | Path,
    report: Report = lambda done, total: None,
) -> list[Record]:
    """Run what `path` does not hold yet, append each record once measured, return all that were asked for."""
    shared = {"dataset": verification.name, "seed": verification.seed, **verification.shared(), "far": FAR}
    wanted = {key: scheme.parameters() for scheme in schemes for key in _keys(scheme)}
    return resume(path, Plan(TASK, _KEY, shared, wanted), lambda done: run(verification, schemes, done), report)


@dataclass(frozen=True, eq=False)
class _Side:
    """Templates of photographs, each lifted once for this side."""

    rows: Integers
    seen: Flats

    def place(self, rows: Integers) -> Integers:
        """Where the templates of `rows` are."""
        return np.searchsorted(self.rows, rows)


class _Templates:
    """Two independent sides of templates of all photographs that are in pairs, under one scheme."""

    def __init__(self, verification: Verification, scheme: FaceScheme) -> None:
        self.verification, self.scheme = verification, scheme
        self.rng = generator(verification.seed, TASK, scheme.name)
        others = apart_from(verification.others, verification.tested)
        lifting, own = halves(others, generator(verification.seed, "halves"))
        self.database: Database = lifting_database(lifting, None, generator(verification.seed, "database"))
        self.own: Database = lifting_database(own, None, generator(verification.seed, "database"))
        used = np.unique(np.concatenate([verification.pairs.first, verification.pairs.second]))
        self.sides = [_Side(used, self._hide(used)) for _ in range(2)]

    def record(self, measure: str, by: str) -> Record:
        """One figure."""
        value, count = self._reversed(by) if measure == "irreversibility" else self._linked(measure, by)
        verification = self.verification
        parameters: dict[str, Parameter] = {"measure": measure, "by": by, "far": FAR, "threshold": self.threshold}
        return Record(
            task=TASK,
            dataset=verification.name,
            scheme=self.scheme.name,
            metric="distance, verified" if measure == "irreversibility" else "global unlinkability",
            value=tuple(round(one, 6) for one in value) if isinstance(value, tuple) else round(value, 6),
            unit="distance, share" if measure == "irreversibility" else "D_sys",
            count=count,
            seed=verification.seed,
            versions=versions(),
            attack=by,
            parameters={**parameters, **self.scheme.parameters(), **verification.shared()},
        )

    @cached_property
    def threshold(self) -> float:
        """The raw distance up to which two photographs are one person."""
        values, pairs = self.verification.faces.values, self.verification.pairs
        away = np.linalg.norm(values[pairs.first] - values[pairs.second], axis=1)
        return error_rates(away, pairs.same).threshold(FAR)

    def _linked(self, measure: str, by: str) -> tuple[float, int]:
        """D_sys by one score; where the same photograph is lifted again, mated are its two templates."""
        pairs = self.verification.pairs
        scores = self._scores(by, pairs.first, pairs.second)
        mated = scores[pairs.same]
        if measure == _LEAST_FREE:
            again = pairs.first[pairs.same]
            mated = self._scores(by, again, again)
        return global_unlinkability(mated, scores[~pairs.same]), len(scores)

    def _scores(self, by: str, first: Integers, second: Integers) -> Float64:
        one, two = self.sides
        i, j = one.place(first), two.place(second)
        if by == "distance":
            return pair_distances(one.seen, two.seen, i, j)
        a, b = (_unit(self._points(side.seen, by)) for side in (one, two))
        return np.asarray((a[i] * b[j]).sum(axis=1))

    def _points(self, seen: Flats, by: str) -> Float64:
        """A point for each template: its own, that nearest the origin, or what unmixing gives."""
        if isinstance(seen, Points):
            return seen.values.astype(np.float64)
        if by == "centres":
            return central(seen, self.database.kind)
        return self._guess(seen, "unmix").astype(np.float64)

    def _reversed(self, by: str) -> tuple[tuple[float, float], int]:
        """Mean distance of the guess for the first of each mated pair, and how often it passes for the second."""
        pairs, values, side = self.verification.pairs, self.verification.faces.values, self.sides[0]
        first, second = pairs.first[pairs.same], pairs.second[pairs.same]
        chosen = np.unique(first)
        guess = _unit(self._guess(side.seen.take(side.place(chosen)), by).astype(np.float64))
        place = np.searchsorted(chosen, first)
        away = np.linalg.norm(guess - values[chosen], axis=1)
        passes = np.linalg.norm(guess[place] - values[second], axis=1) <= self.threshold
        return (float(away.mean()), float(passes.mean())), len(first)

    def _guess(self, seen: Flats, by: str) -> Float32:
        private = PrivateFeatures(seen, self.database.kind, self._spec(), Guarantee("empirical"))
        known = Knowledge(database=self.own, lifting_database=self.database)
        return attack(private, ATTACKS[by](), known, self.rng).values

    def _spec(self) -> Spec:
        if self.scheme.strategy in (RAW, HARDENED):
            return {"name": self.scheme.strategy}
        return self.scheme.lifting(self.database).spec()

    def _hide(self, rows: Integers) -> Flats:
        return self.scheme.hide(self.verification.faces.values[rows], self.database, self.rng)


def _keys(scheme: FaceScheme) -> list[Key]:
    """Points are read; whoever has no confounders, or none that are known, is not unmixed."""
    known = scheme.confounders > 0 and scheme.strategy != HARDENED
    linkers = [one for one in LINKERS if one != "unmixed" or known]
    reversers = [one for one in REVERSERS if one not in ("read", "database", "unmix")]
    reversers += ["database", "unmix"] if known else []
    if scheme.strategy == RAW:
        linkers, reversers = ["distance"], ["read"]
    made: list[Key] = [(scheme.name, "irreversibility", one) for one in reversers]
    return made + [(scheme.name, measure, one) for measure in ("unlinkability", _LEAST_FREE) for one in linkers]


def _unit(values: Float64) -> Float64:
    return np.asarray(values / np.maximum(np.linalg.norm(values, axis=1, keepdims=True), 1e-12))
