"""The oracle attack's curve (Dusmanu et al. 2021, supplement C, figure 6): distance from the truth over K.

The K entries of the attacker's database nearest to a subspace, the one of them that is closest to the hidden
descriptor, plain and projected to the subspace. Beside it chance, a random entry of the same database.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path

from featveil.attacks.oracle import OracleCurve, oracle_curve, usual_neighbours
from featveil.audit.victims import own_database, read_victims
from featveil.core import Features, InputError, Subspaces
from featveil.core.records import Parameter, Record
from featveil.core.resuming import Key, Plan, Report, resume, versions
from featveil.core.seeding import check_seed, image_generator
from featveil.databases import Database
from featveil.lab import matching
from featveil.lab.matching import Scheme

TASK = "oracle"
METRIC = "mean distance from the truth"
UNIT = "share of the truth's norm"
GUESSES = ("plain", "projected", "chance")

_KEY = ("kind", "scheme", "image", "guess")


@dataclass(frozen=True)
class Settings:
    """How many photographs and features are attacked, how they are lifted, and what the attacker has."""

    strategy: str = "sub-hybrid"
    dimension: int = 2
    images: int = 10
    max_features: int = 1000
    database_size: int = 131_072
    seed: int = 0

    def __post_init__(self) -> None:
        check_seed(self.seed)


@dataclass(frozen=True, eq=False)
class Target:
    """Features of one kind by photograph, how they are lifted, and the database of the attacker."""

    kind: str
    victims: Mapping[str, Features]
    scheme: Scheme
    database: Database

    def parameters(self) -> dict[str, Parameter]:
        """Lifting, the attacker's database, and the K that its curve has."""
        made: dict[str, Parameter] = {"kind": self.kind, **self.scheme.parameters()}
        made |= {"own_database": self.database.digest[:16], "own_size": len(self.database)}
        return made | {"neighbours": usual_neighbours(len(self.database))}

    def lifted(self, image: str, seed: int) -> Subspaces:
        """The private descriptors of a photograph, in the order of the raw ones."""
        lifting = self.scheme.lifting
        if lifting is None:
            raise InputError("the oracle attack is on lifted descriptors")
        rng = image_generator(seed, f"{self.kind}/{image}", 1, self.scheme.name)
        return lifting.privatize(self.victims[image].descriptors, rng)


def make_targets(
    folder: Path,
    sources: Sequence[Path],
    kinds: Sequence[str],
    settings: Settings,
    report: Report = lambda done, total: None,
) -> list[Target]:
    """Victims of `folder` and the attacker's database of `sources`, for each of `kinds`.

    `report` is called with photographs (done, total), once for each folder. Raises InputError for what cannot be read
    or lifted.
    """
    made: list[Target] = []
    for kind in dict.fromkeys(kinds):
        scheme = matching.make_schemes(kind, [settings.strategy], [settings.dimension])[1]
        victims = read_victims(folder, kind, settings.images, settings.max_features, report)
        database = own_database(sources, kind, settings.database_size, settings.seed, report)
        made.append(Target(kind, victims, scheme, database))
    return made


def run(
    dataset: str, targets: Sequence[Target], settings: Settings, done: frozenset[Key] = frozenset()
) -> Iterator[Record]:
    """One record for each kind, photograph and guess that is not in `done`.

    Its value is the mean distance over the features for every K, of chance a single number; its count the features.
    """
    for target in targets:
        for image in target.victims:
            guesses = [guess for guess in GUESSES if _key(target, image, guess) not in done]
            if guesses:
                truth = target.victims[image].descriptors
                curve = oracle_curve(target.lifted(image, settings.seed), target.database, truth)
                yield from (_record(dataset, target, settings, image, guess, curve) for guess in guesses)


def run_resumable(
    dataset: str,
    targets: Sequence[Target],
    settings: Settings,
    path: str | Path,
    report: Report = lambda done, total: None,
) -> list[Record]:
    """Run what `path` does not hold yet, append each record once measured, return all that were asked for.

    `report` is called with records (done, total). Raises InputError when the file has other settings.
    """
    shared: dict[str, Parameter] = {"dataset": dataset, "seed": settings.seed, "max_features": settings.max_features}
    wanted = {
        _key(target, image, guess): target.parameters()
        for target in targets
        for image, guess in product(target.victims, GUESSES)
    }
    return resume(path, Plan(TASK, _KEY, shared, wanted), lambda done: run(dataset, targets, settings, done), report)


def _record(dataset: str, target: Target, settings: Settings, image: str, guess: str, curve: OracleCurve) -> Record:
    distances = getattr(curve, guess).mean(axis=0)
    parameters: dict[str, Parameter] = {"image": image, "guess": guess, "max_features": settings.max_features}
    return Record(
        task=TASK,
        dataset=dataset,
        scheme=target.scheme.name,
        metric=METRIC,
        value=float(distances.round(6)) if guess == "chance" else tuple(distances.round(6).tolist()),
        unit=UNIT,
        count=len(curve.plain),
        seed=settings.seed,
        versions=versions(),
        attack="chance" if guess == "chance" else "oracle",
        parameters=parameters | target.parameters(),
    )


def _key(target: Target, image: str, guess: str) -> Key:
    return target.kind, target.scheme.name, image, guess
