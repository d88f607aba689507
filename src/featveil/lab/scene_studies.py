"""What benches share: settings of features, features of image pairs, releases of scenes, lists of schemes."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import product
from pathlib import Path
from statistics import fmean

import numpy as np

from featveil.audit.schemes import Scheme, concealed_schemes
from featveil.core import Defense, Features, InputError, Keypoints, Matches, PrivateFeatures, WordSets
from featveil.core.arrays import Float32, Integers
from featveil.core.records import Parameter, Record
from featveil.core.resuming import Report
from featveil.core.seeding import check_seed, generator, image_generator
from featveil.databases import Database, builtin, load_database, nearest_words
from featveil.datasets import ImagePair, MapScene, Scene
from featveil.defenses import STRATEGIES, Hardened, Identity, Lifting, Subset, load_network, privatize
from featveil.extractors import Extractor, extract, image_files, make_extractor, read_image
from featveil.extractors.describers import NetworkDescriber
from featveil.geometry import find_homography
from featveil.matching import WordMatcher
from featveil.matching.word_sets import WordRule
from featveil.metrics import CORRECT_PIXELS, corner_error, count_verified, transfer_errors
from featveil.stores.pool import Pool

RAW = Scheme("raw", Identity())
# Some balance an attribute label, which local features do not have.
STRATEGIES_WITHOUT_LABELS = tuple(name for name, strategy in STRATEGIES.items() if not strategy.needs_labels)

MATCHED = ("candidates", "right candidates", "inliers", "right inliers", "corner error", "correct")
MATCHED_UNIT = "count, count, count, count, px, 0 or 1"
RULES: tuple[WordRule, ...] = ("vocabulary", "nearest")

_FROM_PHOTO = 1000  # descriptors of a photograph that go into a pool


@dataclass(frozen=True)
class Settings:
    """Which features are extracted, and the seed of all draws; `weights` is the file of a kind that is a network."""

    kind: str = "sift"
    max_features: int = 2000
    seed: int = 0
    weights: Path | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        check_seed(self.seed)

    def shared(self) -> dict[str, Parameter]:
        """These settings but the seed, as every record states them."""
        stated: dict[str, Parameter] = {"kind": self.kind, "max_features": self.max_features}
        return (
            stated if self.weights is None else stated | {"weights": NetworkDescriber(self.kind, self.weights).digest}
        )


class Images:
    """Raw features of the images of a scene, each extracted when first needed."""

    def __init__(self, scene: Scene, settings: Settings) -> None:
        self.scene, self.settings = scene, settings
        self._features: dict[int, Features] = {}

    def __getitem__(self, number: int) -> Features:
        if number not in self._features:
            self._features[number] = self._extractor.extract(read_image(self.scene.images[number]))
        return self._features[number]

    @cached_property
    def _extractor(self) -> Extractor:
        return make_extractor(self.settings.kind, self.settings.max_features, self.settings.weights)

    def keypoints(self, number: int) -> Keypoints:
        """Their positions; every extractor of local features gives them."""
        keypoints = self[number].keypoints
        if keypoints is None:
            raise InputError(f"{self.settings.kind} has no keypoints: image matching needs local features")
        return keypoints

    def describe(self, number: int) -> dict[str, Parameter]:
        """Scene and image, as every record of a pair states them."""
        change: dict[str, Parameter] = {"change": self.scene.change} if self.scene.change else {}
        return {"scene": self.scene.name, "image": number, **change}

    def counts(self, number: int) -> dict[str, Parameter]:
        """Numbers of features of both images of a pair."""
        return {"features": [len(self[1]), len(self[number])]}


class WordImages(Images):
    """Raw features of a scene's images and their nearest words, each found when first needed."""

    def __init__(self, scene: Scene, settings: Settings, iterations: int) -> None:
        super().__init__(scene, settings)
        self.iterations = iterations
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

    def verify(self, matches: Matches, pair: ImagePair) -> tuple[float, ...]:
        """What MATCHED names: counts, the corner error (FARTHEST without a homography), 1 if it is small enough."""
        first, second = self.keypoints(1), self.keypoints(pair.number)
        places = first.xy[matches.indices[:, 0]], second.xy[matches.indices[:, 1]]
        verified = find_homography(*places, pixels=CORRECT_PIXELS, iterations=self.iterations)
        counts = count_verified(matches, verified.agree, transfer_errors(matches, first, second, pair.homography))
        error = corner_error(verified.matrix, pair.homography, self._size(1))
        return (*counts, round(error, 3), float(error <= CORRECT_PIXELS))

    def _size(self, number: int) -> tuple[int, int]:
        size = self[number].image_size
        if size is None:
            raise InputError(f"image {self.scene.images[number]} has no known size")
        return size


def release_generator(images: Images, number: int, scheme: Scheme) -> np.random.Generator:
    """Of the release of an image: each has its own, the same in all studies of word sets."""
    digest = None if scheme.codebook is None else scheme.codebook.digest[:16]
    return image_generator(images.settings.seed, images.scene.name, number, f"{scheme.name}/{digest}")


def homography_settings(settings: Settings, iterations: int) -> dict[str, Parameter]:
    """What all records of one file state."""
    return {**settings.shared(), "iterations": iterations, "pixels": CORRECT_PIXELS}


def private_features(record: Record) -> float:
    """How many the private image of a pair has."""
    counts = record.parameters["features"]
    if not isinstance(counts, list) or len(counts) != 2:
        raise InputError("a record of an image pair has two numbers of features: this file is damaged")
    return float(counts[1])


def check_iterations(iterations: int) -> None:
    """Raise InputError for a number that RANSAC cannot have."""
    if type(iterations) is not int or not 1 <= iterations < 2**31:
        raise InputError(f"iterations must be a whole number from 1 to 2^31 - 1, got {iterations!r}")


class SceneReleases:
    """The images of `scene`; devices of schemes with a private pool have a part each of the descriptors `pool`."""

    def __init__(self, scene: MapScene, settings: Settings, pool: Float32 | None = None) -> None:
        self.scene, self.settings, self.pool = scene, settings, pool
        self._raw: dict[str, Features] = {}
        self._scheme = ""
        self._sent: dict[str, PrivateFeatures] = {}

    def raw(self, name: str) -> Features:
        """The features of an image."""
        if name not in self._raw:
            features = extract(self.scene.images[name], self.settings.kind, self.settings.max_features)
            if len(features) == 0:
                raise InputError(f"image {name} of {self.scene.name} has no features: leave it out")
            self._raw[name] = features
        return self._raw[name]

    def sent(self, name: str, scheme: Scheme) -> Features | PrivateFeatures:
        """What is sent of an image: positions in the order of a release, descriptors as `scheme` hides them."""
        if scheme == RAW:
            return self.raw(name)
        if scheme.name != self._scheme:
            self._scheme, self._sent = scheme.name, {}
        if name not in self._sent:
            self._sent[name] = self.release(name, scheme, self.raw(name))
        return self._sent[name]

    def release(self, name: str, scheme: Scheme, features: Features) -> PrivateFeatures:
        """What the device that took an image sends of `features` under `scheme`; not kept."""
        rng = generator(self.settings.seed, self.scene.name, name, scheme.name)
        return privatize(features, self._equipped(name, scheme), apart=scheme.apart, rng=rng)

    def epsilons(self, scheme: Scheme, names: Sequence[str]) -> dict[str, Parameter]:
        """Epsilon of a descriptor and, on average over `names`, of an image; nothing where none is guaranteed."""
        sent = [self.sent(name, scheme) for name in names]
        private = [one for one in sent if isinstance(one, PrivateFeatures) and one.guarantee.epsilon is not None]
        if not private or private[0].guarantee.kind == "none":
            return {}
        images = [one.guarantee.compose(len(one)).epsilon or 0.0 for one in private]
        return {"epsilon": private[0].guarantee.epsilon, "image_epsilon": fmean(images)}

    def _equipped(self, name: str, scheme: Scheme) -> Defense:
        """The defense of the device that took the image."""
        if not isinstance(scheme.defense, Hardened):
            return scheme.defense.for_kind(self.settings.kind)
        if self.pool is None:
            raise InputError(f"{scheme.name} hides features among those of a pool: name photographs for it")
        names = sorted(self.scene.images)
        order = generator(0, "pools").permutation(len(self.pool))
        own = self.pool[order[names.index(name) :: len(names)]]
        rng = generator(self.settings.seed, self.scene.name, name, scheme.name, "pool")
        return replace(scheme.defense, pool=Pool.in_memory(own, self.settings.kind, rng))


def codebook_of(path: Path | None, kind: str) -> Database:
    """The file, or the built-in one."""
    return builtin(kind) if path is None else load_database(path)


def lifted(kind: str, dimensions: Iterable[int], strategies: Iterable[str] = ("sub-hybrid",)) -> list[Scheme]:
    """Lifting by every strategy (sub-hybrid is the papers' best) to each of `dimensions`.

    Raises InputError for an unknown strategy, and for one that needs attribute labels.
    """
    for strategy in strategies:
        check_strategy(strategy)
    wanted = product(dict.fromkeys(strategies), dict.fromkeys(dimensions))
    return [Scheme(f"{strategy}-{m}", Lifting(strategy, m).for_kind(kind)) for strategy, m in wanted]


def lifting_parameters(scheme: Scheme) -> dict[str, Parameter]:
    """Strategy, dimension and, where one is drawn from, the digest of the database; or of the network."""
    spec, network = scheme.defense.spec(), scheme.network
    if network is not None:
        about: dict[str, Parameter] = {"lambda": network.lambda_, "network": network.digest[:16]}
        return {"strategy": scheme.name, "dimension": 0, **about}
    if not isinstance(scheme.defense, Lifting):
        return {"strategy": "raw", "dimension": 0}
    stated: dict[str, Parameter] = {"strategy": spec["strategy"], "dimension": spec["dimension"]}
    return stated | ({"database": str(spec["database"])[:16]} if spec["database"] else {})


def check_strategy(strategy: str) -> None:
    """Raise InputError for a strategy that needs attribute labels."""
    if strategy in STRATEGIES and strategy not in STRATEGIES_WITHOUT_LABELS:
        raise InputError(f"{strategy} needs attribute labels, which local features do not have")


def quantised(codebook: Database) -> Scheme:
    """Each descriptor becomes its nearest word, without any randomness: what words can reach at best."""
    return Scheme("quantised", Subset(math.inf, 1, codebook))


def subsets(codebook: Database, epsilons: Iterable[float], sizes: Iterable[int]) -> list[Scheme]:
    """The subset mechanism with every epsilon and size."""
    wanted = product(dict.fromkeys(epsilons), dict.fromkeys(sizes))
    return [Scheme(f"subset-{short(epsilon)}-{k}", Subset(epsilon, k, codebook)) for epsilon, k in wanted]


def check_finite(epsilons: Iterable[float]) -> None:
    """Raise InputError for an infinite epsilon."""
    if any(math.isinf(epsilon) for epsilon in epsilons):
        raise InputError("epsilons must be finite: an infinite one is the row 'quantised', which is always there")


def concealed(files: Iterable[Path], kind: str) -> list[Scheme]:
    """The network of each file by itself."""
    return concealed_schemes([load_network(path) for path in files], kind)


def short(epsilon: float) -> str:
    """As the names of schemes have it: 10, not 10.0."""
    return repr(float(epsilon)).removesuffix(".0")


def hardened() -> list[Scheme]:
    """Hardened lifting of all features, and of those that lie apart."""
    return [Scheme("hardened-4-16", Hardened(4, 16)), Scheme("hardened-4-16-apart", Hardened(4, 16), apart=True)]


def pool_descriptors(folder: str | Path, kind: str, report: Report = lambda done, total: None) -> Float32:
    """Descriptors (s, d) of the photographs in `folder`, for the pools of the devices of a study."""
    parts = []
    files = image_files(Path(folder))
    for done, path in enumerate(files, start=1):
        parts.append(extract(path, kind, _FROM_PHOTO).descriptors.values)
        report(done, len(files))
    return np.concatenate(parts)
