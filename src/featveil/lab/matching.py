"""Image matching (Dusmanu et al. 2021, section 4.2): mean matching accuracy of raw, lifted and concealed descriptors.

A scheme is raw descriptors, or a lifting strategy and dimension under one of two distances. Point-to-subspace
leaves image 1 raw and makes image k private (localization in a known map); subspace-to-subspace makes both
private. Every image is lifted once for each strategy and dimension, as one release that serves all its pairs.
Concealed descriptors are compared with concealed ones, so the network is put on both sides.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import product
from pathlib import Path

from featveil.core import ConcealingNetwork, Features, Flats, InputError, Keypoints, Points
from featveil.core.records import Parameter, Record
from featveil.core.resuming import Key, Plan, Report, resume, versions
from featveil.core.seeding import check_seed, image_generator
from featveil.datasets import HPatches, ImagePair, Scene
from featveil.defenses import STRATEGIES, Lifting
from featveil.extractors import Extractor, make_extractor, read_image
from featveil.extractors.describers import NetworkDescriber
from featveil.matching import NearestMatcher
from featveil.metrics import matching_accuracy, transfer_errors

TASK = "matching"
METRIC = "matching accuracy at 1 to 10 px"
RAW = "point-to-point"
DISTANCES = ("point-to-subspace", "subspace-to-subspace")
# Some balance an attribute label, which local features do not have.
DEFAULT_STRATEGIES = tuple(name for name, strategy in STRATEGIES.items() if not strategy.needs_labels)
DEFAULT_DIMENSIONS = (2, 4, 8, 16)

_KEY = ("scene", "scheme", "distance", "image")


@dataclass(frozen=True)
class Settings:
    """What all records of one file share; `weights` is the file of a kind that is a network."""

    kind: str = "sift"
    max_features: int = 2000
    seed: int = 0
    weights: Path | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        check_seed(self.seed)


@dataclass(frozen=True)
class Scheme:
    """A lifting (None: points) and the distances that its features are matched by, or a network that conceals them.

    Raises InputError for both.
    """

    lifting: Lifting | None = None
    distances: tuple[str, ...] = (RAW,)
    network: ConcealingNetwork | None = None

    def __post_init__(self) -> None:
        if self.network is not None and self.lifting is not None:
            raise InputError("image matching has no scheme that conceals and then lifts")

    @property
    def name(self) -> str:
        """Strategy and dimension, for example sub-hybrid-4; or raw, or the name of the network."""
        if self.network is not None:
            return self.network.name
        return "raw" if self.lifting is None else f"{self.lifting.strategy}-{self.lifting.dimension}"

    def parameters(self) -> dict[str, Parameter]:
        """Strategy, dimension and, where one is drawn from, the digest of the database; or of the network."""
        if self.network is not None:
            about: dict[str, Parameter] = {"lambda": self.network.lambda_, "network": self.network.digest[:16]}
            return {"strategy": self.name, "dimension": 0, **about}
        if self.lifting is None:
            return {"strategy": "raw", "dimension": 0}
        spec = self.lifting.spec()
        made: dict[str, Parameter] = {"strategy": spec["strategy"], "dimension": spec["dimension"]}
        return made | ({"database": str(spec["database"])[:16]} if spec["database"] else {})


def make_schemes(
    kind: str,
    strategies: Sequence[str] = DEFAULT_STRATEGIES,
    dimensions: Sequence[int] = DEFAULT_DIMENSIONS,
    distances: Sequence[str] = DISTANCES,
) -> list[Scheme]:
    """Raw descriptors of `kind`, then every strategy x dimension, each under all `distances`.

    Raises InputError for an unknown strategy or distance, and for a strategy that needs attribute labels.
    """
    for distance in distances:
        if distance not in DISTANCES:
            raise InputError(f"unknown distance {distance!r}: use one of {', '.join(DISTANCES)}")
    for strategy in strategies:
        if strategy in STRATEGIES and strategy not in DEFAULT_STRATEGIES:
            raise InputError(f"{strategy} needs attribute labels, which local features do not have")
    wanted = product(dict.fromkeys(strategies), dict.fromkeys(dimensions))
    return [
        Scheme(),
        *(Scheme(Lifting(name, m).for_kind(kind), tuple(dict.fromkeys(distances))) for name, m in wanted),
    ]


def run(
    dataset: HPatches, schemes: Sequence[Scheme], settings: Settings, done: frozenset[Key] = frozenset()
) -> Iterator[Record]:
    """One record for each scheme, distance and image pair that is not in `done`.

    Its value is the accuracy at 1 to 10 px, its count the number of mutual nearest neighbours.
    """
    for scene in dataset.scenes:
        features = Images(scene, settings)
        for scheme in schemes:
            lifted = _Lifted(features, scheme, settings.seed)
            for pair, distance in product(scene.pairs, scheme.distances):
                if (scene.name, scheme.name, distance, str(pair.number)) not in done:
                    yield _record(dataset, scene, pair, lifted, distance)


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
    shared: dict[str, Parameter] = {"dataset": dataset.name, "seed": settings.seed, **_shared(settings)}
    plan = Plan(TASK, _KEY, shared, _wanted(dataset, schemes))
    return resume(path, plan, lambda done: run(dataset, schemes, settings, done), report)


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


class _Lifted:
    """Descriptors of a scene's images under one scheme: one release an image, each with its own generator."""

    def __init__(self, images: Images, scheme: Scheme, seed: int) -> None:
        self.images, self.scheme, self.seed = images, scheme, seed
        self._private: dict[int, Flats] = {}

    def private(self, number: int) -> Flats:
        lifting, network, raw = self.scheme.lifting, self.scheme.network, self.images[number].descriptors
        if lifting is None and network is None:
            return raw
        if number not in self._private:
            if lifting is None:
                assert network is not None
                self._private[number] = Points(network.apply(raw.values))
            else:
                rng = image_generator(self.seed, self.images.scene.name, number, self.scheme.name)
                self._private[number] = lifting.privatize(raw, rng)
        return self._private[number]

    def sides(self, number: int, distance: str) -> tuple[Flats, Flats]:
        """Descriptors of image 1 and of image `number`, as `distance` compares them."""
        one_raw = distance != "subspace-to-subspace" and self.scheme.network is None
        return self.images[1].descriptors if one_raw else self.private(1), self.private(number)


def _record(dataset: HPatches, scene: Scene, pair: ImagePair, lifted: _Lifted, distance: str) -> Record:
    images = lifted.images
    matches = NearestMatcher().match(*lifted.sides(pair.number, distance))
    errors = transfer_errors(matches, images.keypoints(1), images.keypoints(pair.number), pair.homography)
    settings = images.settings
    parameters: dict[str, Parameter] = {"distance": distance, "scene": scene.name, "image": pair.number}
    parameters |= {"change": scene.change} if scene.change else {}
    parameters |= {"features": [len(images[1]), len(images[pair.number])]}
    return Record(
        task=TASK,
        dataset=dataset.name,
        scheme=lifted.scheme.name,
        metric=METRIC,
        value=tuple(round(float(share), 6) for share in matching_accuracy(errors)),
        unit="share of matches",
        count=len(matches),
        seed=settings.seed,
        versions=versions(),
        parameters=parameters | lifted.scheme.parameters() | _shared(settings),
    )


def _shared(settings: Settings) -> dict[str, Parameter]:
    made: dict[str, Parameter] = {"kind": settings.kind, "max_features": settings.max_features}
    weights = settings.weights
    return made if weights is None else made | {"weights": NetworkDescriber(settings.kind, weights).digest}


def _wanted(dataset: HPatches, schemes: Sequence[Scheme]) -> dict[Key, dict[str, Parameter]]:
    return {
        (scene.name, scheme.name, distance, str(pair.number)): scheme.parameters()
        for scene in dataset.scenes
        for scheme in schemes
        for pair, distance in product(scene.pairs, scheme.distances)
    }
