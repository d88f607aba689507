"""Localization with word sets (Pittaluga and Zhuang 2023, section 6.2), on image pairs with a known homography.

Image 1 of a scene is the raw reference, image n is private. Candidate matches are verified by a homography from image
1 to image n. Beside the subset mechanism stand raw descriptors, words without any randomness (quantised) and the naive
mechanism. Every image is released once for each scheme, which serves both matching rules.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import numpy as np

from featveil.core import Descriptors, InputError, Matches, Points, WordSets
from featveil.core.arrays import Integers
from featveil.core.records import Parameter, Record
from featveil.core.resuming import Key, Plan, Report, resume, versions
from featveil.core.seeding import image_generator
from featveil.databases import Database, nearest_words
from featveil.databases.entries import QUANTIZED_KINDS, unit_rows
from featveil.datasets import HPatches, ImagePair, Scene
from featveil.defenses import Naive, Subset
from featveil.defenses.subset import subset_coin
from featveil.geometry import find_homography
from featveil.lab import matching
from featveil.matching import NearestMatcher, WordMatcher
from featveil.matching.word_sets import WordRule
from featveil.metrics import CORRECT_PIXELS, corner_error, count_verified, transfer_errors

TASK = "words"
METRIC = "candidates, right candidates, inliers, right inliers, corner error, correct"
UNIT = "count, count, count, count, px, 0 or 1"
NAIVE = Naive(10.0)
DEFAULT_EPSILONS = (16.0, 14.0, 12.0, 10.0)
DEFAULT_SUBSET_SIZES = (1, 2, 4, 8, 16)
DEFAULT_NEAREST_SIZES = (2, 4)

_KEY = ("scene", "scheme", "codebook", "rule", "image")


@dataclass(frozen=True)
class Settings(matching.Settings):
    """What all records of one file share; `iterations` are those of the robust homography."""

    max_features: int = 1500
    iterations: int = 100_000

    def __post_init__(self) -> None:
        super().__post_init__()
        if type(self.iterations) is not int or not 1 <= self.iterations < 2**31:
            raise InputError(f"iterations must be a whole number from 1 to 2^31 - 1, got {self.iterations!r}")

    def shared(self) -> dict[str, Parameter]:
        """These settings but the seed, as every record states them."""
        found: dict[str, Parameter] = {"kind": self.kind, "max_features": self.max_features}
        return found | {"iterations": self.iterations, "pixels": CORRECT_PIXELS}


@dataclass(frozen=True)
class Scheme:
    """What is sent of image n: raw descriptors (no `defense`) or what a mechanism makes of them.

    `codebook` is the name of its codebook in tables.
    """

    name: str = "raw"
    defense: Naive | Subset | None = None
    rules: tuple[WordRule, ...] = ("nearest",)
    codebook: str | None = None

    @property
    def digest(self) -> str | None:
        """Of the codebook, its first 16 digits; None without one."""
        return str(self.defense.spec()["codebook"])[:16] if isinstance(self.defense, Subset) else None

    def parameters(self) -> dict[str, Parameter]:
        """Mechanism, epsilon of a descriptor (None: no guarantee) and codebook."""
        made: dict[str, Parameter] = {"mechanism": self.name.split("-")[0], "epsilon": None}
        if self.defense is not None:
            made["epsilon"] = self.defense.guarantee().epsilon
        if isinstance(self.defense, Subset) and self.defense.codebook is not None:
            made |= {"subset_size": self.defense.subset_size, "codebook": self.digest}
            made |= {"codebook_name": self.codebook, "codebook_size": len(self.defense.codebook)}
        return made

    def sent(self, descriptor_size: int) -> float:
        """Probability that the true word (without words, the true descriptor) is among what is sent."""
        match self.defense:
            case Subset():
                return float(self.defense.coin.probability)
            case Naive(epsilon):
                return float(subset_coin(epsilon, 256**descriptor_size, 1).probability)
        return 1.0


def make_schemes(
    kind: str,
    codebooks: Mapping[str, Database],
    epsilons: Sequence[float] = DEFAULT_EPSILONS,
    subset_sizes: Sequence[int] = DEFAULT_SUBSET_SIZES,
    nearest_sizes: Sequence[int] = DEFAULT_NEAREST_SIZES,
) -> list[Scheme]:
    """Raw and naive; then of each codebook, by name, its words quantised and every epsilon x subset size.

    Rule `nearest`, which is slow, is run for the quantised words and those subset sizes that are in `nearest_sizes`.
    Raises InputError for a codebook of another kind or given twice, and a size or epsilon that cannot be.
    """
    if any(math.isinf(epsilon) for epsilon in epsilons):
        raise InputError("epsilons must be finite: an infinite one is the row 'quantised', which is always there")
    if len({codebook.digest for codebook in codebooks.values()}) < len(codebooks):
        raise InputError("two of the codebooks are the same: name each once")
    schemes = [Scheme()]
    if kind in QUANTIZED_KINDS:
        schemes.append(Scheme(f"naive-{short(NAIVE.epsilon)}", NAIVE))
    for name, codebook in codebooks.items():
        quantised = Subset(math.inf, 1, codebook).for_kind(kind)
        schemes.append(Scheme("quantised", quantised, ("vocabulary", "nearest"), name))
        for epsilon, k in product(dict.fromkeys(epsilons), dict.fromkeys(subset_sizes)):
            rules: tuple[WordRule, ...] = ("vocabulary", "nearest") if k in nearest_sizes else ("vocabulary",)
            schemes.append(Scheme(f"subset-{short(epsilon)}-{k}", Subset(epsilon, k, codebook), rules, name))
    return schemes


def run(
    dataset: HPatches, schemes: Sequence[Scheme], settings: Settings, done: frozenset[Key] = frozenset()
) -> Iterator[Record]:
    """One record for each scheme, rule and image pair that is not in `done`.

    Its value is what METRIC names, in that order: counts of one pair, the corner error in pixels (FARTHEST without a
    homography), and 1 if that is at most CORRECT_PIXELS. Its count is the number of candidates.
    """
    for scene in dataset.scenes:
        images = Images(scene, settings)
        for scheme in schemes:
            released = _Released(images, scheme, settings)
            for rule, pair in product(scheme.rules, scene.pairs):
                if _key(scene, scheme, rule, pair) not in done:
                    yield _record(dataset, released, pair, rule)


def run_resumable(
    dataset: HPatches,
    schemes: Sequence[Scheme],
    settings: Settings,
    path: str | Path,
    report: Report = lambda done, total: None,
) -> list[Record]:
    """Run what `path` does not hold yet, append each record once measured, return all that were asked for.

    `report` is called with records (done, total). Raises InputError when the file has other settings.
    """
    shared: dict[str, Parameter] = {"dataset": dataset.name, "seed": settings.seed, **settings.shared()}
    wanted = {
        _key(scene, scheme, rule, pair): scheme.parameters()
        for scene in dataset.scenes
        for scheme in schemes
        for rule, pair in product(scheme.rules, scene.pairs)
    }
    plan = Plan(TASK, _KEY, shared, wanted)
    return resume(path, plan, lambda done: run(dataset, schemes, settings, done), report)


class Images(matching.Images):
    """Raw features of a scene's images and their nearest words, each found when first needed."""

    def __init__(self, scene: Scene, settings: Settings) -> None:
        super().__init__(scene, settings)
        self._words: dict[tuple[int, str], Integers] = {}

    def words(self, number: int, codebook: Database) -> Integers:
        """The nearest word of each feature: found once, for all epsilons and subset sizes."""
        key = number, codebook.digest
        if key not in self._words:
            self._words[key] = nearest_words(self[number].descriptors, codebook)[0]
        return self._words[key]

    def candidates(self, private: WordSets, codebook: Database, rule: WordRule) -> Matches:
        """Matches of raw image 1 (first column) with what is sent of another image."""
        if rule == "nearest":
            return WordMatcher(codebook, rule).match(self[1].descriptors, private)
        # As sets of one word the reference gives the same candidates, without another search for its words.
        words = WordSets(self.words(1, codebook)[:, None], codebook.digest, len(codebook))
        return WordMatcher(codebook, rule).match(words, private)

    def verify(self, matches: Matches, pair: ImagePair, iterations: int) -> tuple[float, ...]:
        """What METRIC names, for the candidates `matches` of `pair`."""
        first, second = self.keypoints(1), self.keypoints(pair.number)
        places = first.xy[matches.indices[:, 0]], second.xy[matches.indices[:, 1]]
        found = find_homography(*places, pixels=CORRECT_PIXELS, iterations=iterations)
        counts = count_verified(matches, found.agree, transfer_errors(matches, first, second, pair.homography))
        error = corner_error(found.matrix, pair.homography, self._size(1))
        return (*counts, round(error, 3), float(error <= CORRECT_PIXELS))

    def describe(self, pair: ImagePair) -> dict[str, Parameter]:
        """Scene, image and numbers of features, as every record of `pair` states them."""
        made: dict[str, Parameter] = {"scene": pair.scene, "image": pair.number}
        made |= {"change": self.scene.change} if self.scene.change else {}
        return made | {"features": [len(self[1]), len(self[pair.number])]}

    def _size(self, number: int) -> tuple[int, int]:
        size = self[number].image_size
        if size is None:
            raise InputError(f"image {self.scene.images[number]} has no known size")
        return size


class _Released:
    """A scene under one scheme: one release an image, each with its own generator."""

    def __init__(self, images: Images, scheme: Scheme, settings: Settings) -> None:
        self.images, self.scheme, self.settings = images, scheme, settings
        self._private: dict[int, Descriptors] = {}

    def private(self, number: int) -> Descriptors:
        """What is sent of an image."""
        if number not in self._private:
            name = f"{self.scheme.name}/{self.scheme.digest}"
            rng = image_generator(self.settings.seed, self.images.scene.name, number, name)
            self._private[number] = self._release(number, rng)
        return self._private[number]

    def candidates(self, number: int, rule: WordRule) -> Matches:
        """Matches of raw image 1 (first column) with private image `number`."""
        reference, private = self.images[1].descriptors, self.private(number)
        if isinstance(self.scheme.defense, Naive):
            reference = Points(unit_rows(reference.values))
        if not isinstance(private, WordSets):
            return NearestMatcher().match(reference, private)
        return self.images.candidates(private, self._codebook, rule)

    @property
    def _codebook(self) -> Database:
        if isinstance(self.scheme.defense, Subset) and self.scheme.defense.codebook is not None:
            return self.scheme.defense.codebook
        raise InputError(f"scheme {self.scheme.name} has no codebook: make schemes with make_schemes")

    def _release(self, number: int, rng: np.random.Generator) -> Descriptors:
        raw = self.images[number].descriptors
        match self.scheme.defense:
            case Subset():
                return self.scheme.defense.hide(self.images.words(number, self._codebook), rng)
            case Naive():
                # Random bytes are much longer than descriptors: compared by direction.
                return Points(unit_rows(self.scheme.defense.privatize(raw, rng).values))
        return raw


def _record(dataset: HPatches, released: _Released, pair: ImagePair, rule: WordRule) -> Record:
    images, scheme, settings = released.images, released.scheme, released.settings
    matches = released.candidates(pair.number, rule)
    parameters: dict[str, Parameter] = {"rule": rule, **images.describe(pair)}
    parameters |= {"sent": scheme.sent(images[1].descriptors.size)}
    return Record(
        task=TASK,
        dataset=dataset.name,
        scheme=scheme.name,
        metric=METRIC,
        value=images.verify(matches, pair, settings.iterations),
        unit=UNIT,
        count=len(matches),
        seed=settings.seed,
        versions=versions(),
        parameters=parameters | scheme.parameters() | settings.shared(),
    )


def _key(scene: Scene, scheme: Scheme, rule: WordRule, pair: ImagePair) -> Key:
    return scene.name, scheme.name, str(scheme.digest), rule, str(pair.number)


def short(epsilon: float) -> str:
    """As the names of schemes have it: 10, not 10.0."""
    return repr(float(epsilon)).removesuffix(".0")
