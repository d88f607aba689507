"""Subset against metric mechanism on image pairs with a known homography: what each finds, and what it gives away.

Image 1 of a scene is the raw reference, image n is private. The two mechanisms are compared at equal expected success
of the attacker of tasks/calibration, who names one of the k words at random. The metric epsilon of that success is
found once, on descriptors of all private images, so that what an image is released with does not depend on the image.
End points: raw descriptors, words without any randomness (quantised), and sets that know nothing (chance).
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import astuple, dataclass
from functools import cached_property
from itertools import product
from pathlib import Path

import numpy as np

from featveil.core import InputError, Matches, Points, WordSets
from featveil.core.arrays import Float32
from featveil.core.records import Parameter, Record
from featveil.core.resuming import Key, Plan, Report, resume, versions
from featveil.core.seeding import image_generator
from featveil.databases import Database
from featveil.datasets import HPatches, ImagePair
from featveil.defenses import Subset
from featveil.defenses.metric import Metric
from featveil.extractors import extract
from featveil.lab import words
from featveil.lab.calibration import SAMPLE, Outcome, calibrate, outcome, subset_success
from featveil.lab.words import Images, Settings, short
from featveil.matching import NearestMatcher
from featveil.matching.word_sets import WordRule

TASK = "tradeoff"
METRIC = f"{words.METRIC}, contains, guess distance, nearest distance"
UNIT = f"{words.UNIT}, share, distance at norm 1, distance at norm 1"
DEFAULT_EPSILONS = (10.0, 8.0, 6.0)
DEFAULT_SUBSET_SIZES = (1, 4)

_KEY = ("scene", "scheme", "codebook", "image", "rule")
_NO_KNOWLEDGE = 1e-9  # epsilon of the end point chance


@dataclass(frozen=True)
class Scheme:
    """What is sent of image n: raw descriptors (no `defense`) or the word sets of a mechanism.

    `success` is how often the attacker is expected to name the nearest word, `matched` the epsilon of the subset
    mechanism that has that success.
    """

    name: str = "raw"
    defense: Subset | Metric | None = None
    success: float = 1.0
    matched: float | None = None

    @property
    def rules(self) -> tuple[WordRule, ...]:
        """Near words help rule nearest, exact ones help vocabulary: what has words is matched by both."""
        return ("nearest",) if self.defense is None else ("vocabulary", "nearest")

    @property
    def codebook(self) -> Database | None:
        """The words, where there are any."""
        return None if self.defense is None else self.defense.codebook

    @property
    def digest(self) -> str | None:
        """Of the codebook, its first 16 digits; None without one."""
        return None if self.codebook is None else self.codebook.digest[:16]

    def parameters(self) -> dict[str, Parameter]:
        """Mechanism, its own epsilon of a descriptor (None: no guarantee), the attacker's success and the codebook."""
        made: dict[str, Parameter] = {"mechanism": self.name.split("-")[0], "epsilon": None, "success": self.success}
        if self.defense is None or self.codebook is None:
            return made
        made |= {"epsilon": self.defense.guarantee().epsilon, "subset_epsilon": self.matched}
        made |= {"subset_size": self.defense.subset_size}
        return made | {"codebook": self.digest, "codebook_size": len(self.codebook)}


def make_schemes(
    dataset: HPatches,
    settings: Settings,
    codebook: Database,
    epsilons: Sequence[float] = DEFAULT_EPSILONS,
    subset_sizes: Sequence[int] = DEFAULT_SUBSET_SIZES,
    report: Report = lambda done, total: None,
) -> list[Scheme]:
    """Raw and quantised; for each subset size, both mechanisms for every epsilon of the subset one, then chance.

    Reads all private images to find the metric epsilons; `report` is called with images (done, total). Raises
    InputError for a codebook of another kind, a size or epsilon that cannot be, and a success that no metric epsilon
    has.
    """
    if any(math.isinf(epsilon) for epsilon in epsilons):
        raise InputError("epsilons must be finite: an infinite one is the row 'quantised', which is always there")
    schemes = [Scheme(), Scheme("quantised", Subset(math.inf, 1, codebook).for_kind(settings.kind))]
    sizes, wanted = dict.fromkeys(subset_sizes), dict.fromkeys(epsilons)
    subsets = {k: [_subset(f"subset-{short(e)}", e, k, codebook) for e in wanted] for k in sizes}
    sample = sample_descriptors(dataset, settings, report)
    for k, chosen in subsets.items():
        for subset in chosen:
            schemes += [subset, _metric(subset, k, sample, codebook)]
        schemes.append(_subset("chance", _NO_KNOWLEDGE, k, codebook))
    return schemes


def sample_descriptors(dataset: HPatches, settings: Settings, report: Report = lambda done, total: None) -> Points:
    """Every m-th descriptor of all private images, m so small that `calibrate` has enough of them.

    Raises InputError when there is none.
    """
    pairs = list(dataset.pairs())
    kept: list[Float32] = []
    seen, step = 0, 1
    for done, pair in enumerate(pairs, start=1):
        values = extract(pair.second, settings.kind, settings.max_features).descriptors.values
        kept += list(values[-seen % step :: step])
        seen += len(values)
        while len(kept) > 2 * SAMPLE:
            kept, step = kept[::2], 2 * step
        report(done, len(pairs))
    if not kept:
        raise InputError(f"the private images of {dataset.name} have no features: use other images")
    return Points(np.array(kept))


def run(
    dataset: HPatches, schemes: Sequence[Scheme], settings: Settings, done: frozenset[Key] = frozenset()
) -> Iterator[Record]:
    """One record for each scheme, image pair and rule that is not in `done`.

    Its value is what METRIC names, in that order: the first six as in tasks/words, then the `Outcome` of the release,
    which serves both rules (zeros where an image has no features). Its count is the number of candidates.
    """
    for scene in dataset.scenes:
        images = Images(scene, settings)
        for scheme, pair in product(schemes, scene.pairs):
            rules = [rule for rule in scheme.rules if _key(scheme, pair, rule) not in done]
            if rules:
                released = _Released(images, scheme, settings, pair)
                yield from (_record(dataset, released, rule) for rule in rules)


def run_resumable(
    dataset: HPatches,
    schemes: Sequence[Scheme],
    settings: Settings,
    path: str | Path,
    report: Report = lambda done, total: None,
) -> list[Record]:
    """Run what `path` does not hold yet, append each record once measured, return all that were asked for.

    `report` is called with records (done, total). Raises InputError when the file has other settings, or metric
    epsilons that were found on other images.
    """
    shared: dict[str, Parameter] = {"dataset": dataset.name, "seed": settings.seed, **settings.shared()}
    wanted = {
        _key(scheme, pair, rule): scheme.parameters()
        for scene in dataset.scenes
        for scheme, pair in product(schemes, scene.pairs)
        for rule in scheme.rules
    }
    plan = Plan(TASK, _KEY, shared, wanted)
    return resume(path, plan, lambda done: run(dataset, schemes, settings, done), report)


@dataclass(frozen=True, eq=False)
class _Released:
    """One private image under one scheme: a single release, with its own generator, for both rules."""

    images: Images
    scheme: Scheme
    settings: Settings
    pair: ImagePair

    @cached_property
    def sets(self) -> WordSets | None:
        """What is sent; None if that is the raw descriptors."""
        number, book, defense = self.pair.number, self.scheme.codebook, self.scheme.defense
        # Named as in tasks/words: the same set is drawn there for the same seed.
        name = f"{self.scheme.name}/{self.scheme.digest}"
        rng = image_generator(self.settings.seed, self.pair.scene, number, name)
        if isinstance(defense, Subset) and book is not None:
            return defense.hide(self.images.words(number, book), rng)
        return None if defense is None else defense.privatize(self.images[number].descriptors, rng)

    @cached_property
    def outcome(self) -> Outcome:
        """What the attacker has of it."""
        number, book = self.pair.number, self.scheme.codebook
        if self.sets is None or book is None:
            return Outcome(contains=1.0, guess_distance=0.0, best_distance=0.0)
        if len(self.sets) == 0:
            return Outcome(0.0, 0.0, 0.0)
        return outcome(self.sets, self.images[number].descriptors, self.images.words(number, book), book)

    def candidates(self, rule: WordRule) -> Matches:
        """Matches of raw image 1 (first column) with the private image."""
        if self.sets is None or self.scheme.codebook is None:
            return NearestMatcher().match(self.images[1].descriptors, self.images[self.pair.number].descriptors)
        return self.images.candidates(self.sets, self.scheme.codebook, rule)


def _record(dataset: HPatches, released: _Released, rule: WordRule) -> Record:
    images, scheme, settings, pair = released.images, released.scheme, released.settings, released.pair
    matches = released.candidates(rule)
    leaked = (round(value, 6) for value in astuple(released.outcome))
    return Record(
        task=TASK,
        dataset=dataset.name,
        scheme=scheme.name,
        metric=METRIC,
        value=(*images.verify(matches, pair, settings.iterations), *leaked),
        unit=UNIT,
        count=len(matches),
        seed=settings.seed,
        versions=versions(),
        parameters={"rule": rule, **images.describe(pair), **scheme.parameters(), **settings.shared()},
    )


def _subset(name: str, epsilon: float, k: int, codebook: Database) -> Scheme:
    return Scheme(f"{name}-{k}", Subset(epsilon, k, codebook), subset_success(epsilon, len(codebook), k), epsilon)


def _metric(subset: Scheme, k: int, sample: Points, codebook: Database) -> Scheme:
    """The metric mechanism that is as successful for the attacker as `subset`."""
    try:
        found = calibrate(sample, codebook, subset.success, k)
    except InputError as error:
        raise InputError(f"no metric mechanism compares with {subset.name}: {error}; use other epsilons") from error
    # Five digits: finer than the calibration, and the epsilon in a table is then the one that was used.
    metric = Metric(float(f"{found:.5g}"), k, codebook)
    return Scheme(subset.name.replace("subset", "metric-as"), metric, subset.success, subset.matched)


def _key(scheme: Scheme, pair: ImagePair, rule: WordRule) -> Key:
    return pair.scene, scheme.name, str(scheme.digest), str(pair.number), rule
