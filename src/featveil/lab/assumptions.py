"""What the database and clustering attacks take for granted (Pittaluga and Zhuang 2023, S3.1 and S3.2), measured.

members:     the lifting database's entries nearest to a subspace are near one of its members, which are the hidden
             descriptor and the entries that it was lifted with (table S2).
collisions:  other subspaces that meet this one do so in such an entry, and stay away from the hidden descriptor, so
             that of all members this one is farthest from them (table S3).

Lifting does not tell which entries it drew; they are those at distance zero. What is measured beside each other where
the paper can be read in several ways is told in docs/claims.md.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path

import numpy as np

from featveil.attacks.subspaces import INSIDE, meeting_pairs
from featveil.audit.victims import own_database
from featveil.core import Features, InputError, Points, Subspaces
from featveil.core.arrays import Float64, Integers
from featveil.core.records import Parameter, Record
from featveil.core.resuming import Key, Plan, Report, resume, versions
from featveil.core.seeding import image_generator
from featveil.databases import Database, builtin
from featveil.defenses import STRATEGIES, Lifting
from featveil.distances import matrix, nearest
from featveil.lab.matching import Scheme, Settings
from featveil.metrics.leakage import CLOSE, NEAR

TASK = "assumptions"
MEMBERS, COLLISIONS = "members", "collisions"
VARIANTS = {MEMBERS: ("with members", "without members"), COLLISIONS: ("same image", "other images")}
COUNTED = "met, all found, no collision, no collision and all found, clear by 0.3, clear by 0.5, meeting"
METRICS = {MEMBERS: "ratio test success for each N", COLLISIONS: COUNTED}
UNITS = {MEMBERS: "share of neighbours", COLLISIONS: "share of subspaces, but for the last: count"}
NEIGHBOURS = (50, 20, 10, 5)  # N of table S2

_KEY = ("study", "scheme", "image", "variant")
_RATIO = 0.8
_SPARE = 2  # entries that may lie in a subspace without having been drawn: doubles
_PARTS = 16  # of a lifting database that is made of photographs, as in the papers


def lifting_database(
    sources: Sequence[Path], kind: str, size: int, seed: int = 0, report: Report = lambda done, total: None
) -> Database:
    """The database to lift with: a file, `size` descriptors of folders of photographs, or the built-in one."""
    if not sources:
        return builtin(kind)
    made = own_database(sources, kind, size, seed, report)
    return made if sources[0].is_file() else replace(made, parts=_PARTS)


def make_schemes(database: Database, dimensions: Sequence[int], strategy: str = "sub-hybrid") -> list[Scheme]:
    """Lifting to each of `dimensions`; raises InputError where nothing of the database gets into a subspace."""
    liftings = [Lifting(strategy, m, database=database) for m in dict.fromkeys(dimensions)]
    for lifting in liftings:
        if STRATEGIES[lifting.strategy].needs_labels:
            raise InputError(f"{lifting.strategy} needs attribute labels, which local features do not have")
        if lifting.adversarial_directions == 0:
            raise InputError(f"{strategy} lifting to dimension {lifting.dimension} draws no entry of a database")
        fewest = max(NEIGHBOURS) + lifting.adversarial_directions + _SPARE
        if len(database) < fewest:
            raise InputError(f"{len(database)} entries are too few to lift with: use at least {fewest}")
    return [Scheme(lifting) for lifting in liftings]


def member_success(subspaces: Subspaces, truth: Points, lifting: Lifting) -> dict[str, Float64]:
    """Share of the N nearest entries that pass the ratio test between members, for each N of NEIGHBOURS.

    Once with the entries that are members themselves, which always pass, and once with the next N after them.
    """
    database = _database_of(lifting)
    count = lifting.adversarial_directions
    found = nearest(subspaces, database.as_points, max(NEIGHBOURS) + count + _SPARE)
    inside = found.distances <= INSIDE
    entries = database.unit(found.indices)
    away = [np.linalg.norm(entries - truth.values[:, None], axis=2)]
    for place in range(count + _SPARE):  # members are the nearest of all, so they come first
        off = np.linalg.norm(entries - entries[:, place, None], axis=2)
        away.append(np.where(inside[:, place, None], off, np.inf))
    two = np.partition(np.stack(away), 1, axis=0)[:2]
    passed = two[0] < _RATIO * two[1]
    outside_first = np.argsort(inside, axis=1, kind="stable")
    others = np.take_along_axis(passed, outside_first, axis=1)
    with_members, without = VARIANTS[MEMBERS]
    return {
        with_members: np.array([passed[:, :n].mean() for n in NEIGHBOURS]),
        without: np.array([others[:, :n].mean() for n in NEIGHBOURS]),
    }


@dataclass(frozen=True, eq=False)
class Lifted:
    """Subspaces (n), the hidden descriptors, and the `entries` (n, c) of the database that each was lifted with."""

    subspaces: Subspaces
    truth: Points
    entries: Integers
    database: Database

    @classmethod
    def of(cls, truth: Points, lifting: Lifting, rng: np.random.Generator) -> "Lifted":
        """Lift, and find what was drawn."""
        subspaces, database = lifting.privatize(truth, rng), _database_of(lifting)
        found = nearest(subspaces, database.as_points, lifting.adversarial_directions)
        return cls(subspaces, truth, found.indices, database)

    def meeting(self, others: "Lifted") -> tuple[Integers, Integers]:
        """Which subspaces of this (rows) and of `others` (columns) meet, apart from each with itself."""
        pairs = [np.stack(pair) for pair in meeting_pairs(self.subspaces, others.subspaces)]
        rows, columns = np.concatenate(pairs, axis=1)
        return rows, columns

    def scores(self, others: "Lifted", rows: Integers, columns: Integers) -> Float64:
        """How far each member (n, 1 + c), the hidden descriptor first, is from the subspaces of `others` met."""
        scores = np.full((len(self.truth), 1 + self.entries.shape[1]), np.inf)
        if len(rows) == 0:
            return scores
        used, place = np.unique(self.entries, return_inverse=True)
        points = Points(np.concatenate([self.truth.values, self.database.unit(used)]))
        away = matrix(points, others.subspaces)
        own = np.arange(len(self.truth))
        members = np.column_stack([own, len(own) + place.reshape(self.entries.shape)])
        for member in range(scores.shape[1]):
            np.minimum.at(scores[:, member], rows, away[members[rows, member], columns])
        return scores


def collisions(own: Lifted, others: Sequence[tuple[Lifted, Integers, Integers]]) -> Float64:
    """What COUNTED names, for the subspaces of `own` with those of `others` that they meet (rows, columns)."""
    scores = np.full((len(own.truth), 1 + own.entries.shape[1]), np.inf)
    meeting = np.zeros(len(scores))
    for lifted, rows, columns in others:
        np.minimum(scores, own.scores(lifted, rows, columns), out=scores)
        meeting += np.bincount(rows, minlength=len(scores))
    hidden, worst = scores[:, 0], scores[:, 1:].max(axis=1)
    met, found = meeting > 0, worst <= INSIDE
    first = (hidden > worst) & (hidden > INSIDE)  # of several at zero, none is farthest
    counted = (met, found, first, first & found, hidden >= CLOSE, hidden >= NEAR, meeting)
    return np.array([values.mean() for values in counted])


def run(
    dataset: str,
    victims: Mapping[str, Features],
    schemes: Sequence[Scheme],
    settings: Settings,
    done: frozenset[Key] = frozenset(),
) -> Iterator[Record]:
    """One record for each study, scheme, photograph and variant that is not in `done`; count: its features."""
    for scheme in schemes:
        measure = _Measure(victims, scheme, settings.seed)
        for study, image in product(VARIANTS, victims):
            variants = [name for name in _variants(study, victims) if _key(study, scheme, image, name) not in done]
            for variant, values in measure(study, image, variants):
                yield _record(dataset, victims, scheme, settings, (study, image, variant), values)


def run_resumable(
    dataset: str,
    victims: Mapping[str, Features],
    schemes: Sequence[Scheme],
    settings: Settings,
    path: str | Path,
    report: Report = lambda done, total: None,
) -> list[Record]:
    """Run what `path` does not hold yet, append each record once measured, return all that were asked for.

    `report` is called with records (done, total). Raises InputError when the file has other settings.
    """
    shared: dict[str, Parameter] = {"dataset": dataset, "seed": settings.seed, **_shared(settings)}
    wanted = {
        _key(study, scheme, image, variant): _parameters(scheme, victims, variant)
        for scheme, study in product(schemes, VARIANTS)
        for image, variant in product(victims, _variants(study, victims))
    }
    plan = Plan(TASK, _KEY, shared, wanted)
    return resume(path, plan, lambda done: run(dataset, victims, schemes, settings, done), report)


class _Measure:
    """All photographs under one scheme, each lifted once; which subspaces of two of them meet is found once."""

    def __init__(self, victims: Mapping[str, Features], scheme: Scheme, seed: int) -> None:
        self.victims, self.scheme, self.seed = victims, scheme, seed
        self._lifted: dict[str, Lifted] = {}
        self._met: dict[tuple[str, str], tuple[Integers, Integers]] = {}

    def __call__(self, study: str, image: str, variants: Sequence[str]) -> Iterator[tuple[str, Float64]]:
        """The values of each of `variants`."""
        if not variants:
            return
        if study == MEMBERS:
            own = self.lifted(image)
            success = member_success(own.subspaces, own.truth, _lifting_of(self.scheme))
            yield from ((variant, success[variant]) for variant in variants)
            return
        for variant in variants:
            others = [name for name in self.victims if (name == image) == (variant == VARIANTS[COLLISIONS][0])]
            met = [(self.lifted(name), *self.met(image, name)) for name in others]
            yield variant, collisions(self.lifted(image), met)

    def lifted(self, image: str) -> Lifted:
        if image not in self._lifted:
            rng = image_generator(self.seed, image, 1, self.scheme.name)
            self._lifted[image] = Lifted.of(self.victims[image].descriptors, _lifting_of(self.scheme), rng)
        return self._lifted[image]

    def met(self, image: str, other: str) -> tuple[Integers, Integers]:
        if (image, other) not in self._met:
            rows, columns = self.lifted(image).meeting(self.lifted(other))
            self._met[image, other], self._met[other, image] = (rows, columns), (columns, rows)
        return self._met[image, other]


def _record(
    dataset: str,
    victims: Mapping[str, Features],
    scheme: Scheme,
    settings: Settings,
    what: tuple[str, str, str],
    values: Float64,
) -> Record:
    study, image, variant = what
    parameters: dict[str, Parameter] = {"study": study, "image": image, "variant": variant}
    parameters |= {"neighbours": list(NEIGHBOURS)} if study == MEMBERS else {}
    return Record(
        task=TASK,
        dataset=dataset,
        scheme=scheme.name,
        metric=METRICS[study],
        value=tuple(round(float(value), 6) for value in values),
        unit=UNITS[study],
        count=len(victims[image]),
        seed=settings.seed,
        versions=versions(),
        parameters=parameters | _parameters(scheme, victims, variant) | _shared(settings),
    )


def _shared(settings: Settings) -> dict[str, Parameter]:
    return {"kind": settings.kind, "max_features": settings.max_features}


def _parameters(scheme: Scheme, victims: Mapping[str, Features], variant: str) -> dict[str, Parameter]:
    found = scheme.parameters() | {"database_size": len(_database_of(_lifting_of(scheme)))}
    return found | ({"others": len(victims) - 1} if variant == VARIANTS[COLLISIONS][1] else {})


def _variants(study: str, victims: Mapping[str, Features]) -> tuple[str, ...]:
    """Those that can be measured: a single photograph has no others."""
    return VARIANTS[study] if study == MEMBERS or len(victims) > 1 else VARIANTS[study][:1]


def _key(study: str, scheme: Scheme, image: str, variant: str) -> Key:
    return study, scheme.name, image, variant


def _lifting_of(scheme: Scheme) -> Lifting:
    if scheme.lifting is None:
        raise InputError("these are assumptions about lifted descriptors")
    return scheme.lifting


def _database_of(lifting: Lifting) -> Database:
    if lifting.database is None:
        raise InputError("this lifting has no database: give one")
    return lifting.database
