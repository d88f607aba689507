"""A query, with or without content that its map has never seen, under one scheme -> what is sent, leaked and placed."""

import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from featveil.attacks import Attack, Knowledge, Overlap, Posterior, Read, Vertex, attack
from featveil.core import Features, InputError, MapPoints, NotMappedError, Pose, PrivateFeatures
from featveil.core.arrays import Float64, Integers
from featveil.core.records import Parameter
from featveil.core.seeding import generator
from featveil.datasets.private_content import Content, Mask, Sides, paste, private_rows
from featveil.defenses import Gate, Hardened, Lifting, privatize
from featveil.extractors import make_extractor, read_image
from featveil.extractors.images import Image
from featveil.formats import veil
from featveil.geometry.absolute_pose import PoseSearch
from featveil.geometry.silhouettes import find_hole
from featveil.lab.bench import Measured
from featveil.lab.gate_parts.gate_variants import Sketches, Variant
from featveil.lab.localization_parts.localization_maps import MapsWithout, Method
from featveil.lab.scene_studies import RAW, SceneReleases
from featveil.metrics import pose_errors
from featveil.metrics.leakage import CLOSE, NEAR, guess_distances
from featveil.pipelines.map_parts.localizer import Localizer

MEASURED = ("sent", "inliers", "localized", "rotation", "centre", "bytes", "device", "server")
METRIC = "share sent, inliers, localized, rotation error, centre error, size of the release, time of device, of server"
UNIT = "share, count, 0 or 1, degrees, metres, bytes, ms, ms"
LEAKED = (
    *("private sent", "private near", "private close", "mapped sent", "hole"),
    *("inliers", "localized", "rotation", "centre"),
)
LEAKED_METRIC = (
    f"private sent, private below {NEAR:g}, private below {CLOSE:g}, mapped sent, overlap of hole and content,"
    " inliers, localized, rotation error, centre error"
)
LEAKED_UNIT = "share, share, share, share, share, count, 0 or 1, degrees, metres"
PASSED = ("mean", "most", "taken")
PASSED_METRIC = "mean share that passes, largest share that passes, share of photographs taken for the place"
PASSED_UNIT = "share, share, share"

_ATTACKED = 100  # private features, where an attack takes long
_LOST = (0.0, 0.0, 0.0)  # localized, rotation, centre


@dataclass(frozen=True, eq=False)
class Pasted:
    """Content that takes a `share` of the picture that it is pasted into."""

    content: Content
    share: float


@dataclass(frozen=True, eq=False)
class Seen:
    """Raw features of a query; which of them show pasted content and where that is, None without any."""

    features: Features
    sides: Sides | None = None
    mask: Mask | None = None


class Place:
    """A scene: its queries with and without content, its maps without one image each, and sketches of these."""

    def __init__(self, releases: SceneReleases, maps: MapsWithout) -> None:
        self.releases, self.maps = releases, maps
        self._query = ""
        self._seen: dict[tuple[str, float] | None, Seen] = {}
        self._sketches: Sketches | None = None

    def sketches(self, query: str) -> Sketches:
        """Of the map without `query`; those of one query are kept at a time."""
        if self._sketches is None or self._sketches.query != query:
            self._sketches = Sketches(self.maps, query)
        return self._sketches

    def seen(self, query: str, pasted: Pasted | None) -> Seen:
        """What the query shows; of one query at a time it is kept."""
        if query != self._query:
            self._query, self._seen = query, {}
        key = None if pasted is None else (pasted.content.name, pasted.share)
        if key not in self._seen:
            self._seen[key] = self._read(query, pasted)
        return self._seen[key]

    def picture(self, query: str, pasted: Pasted) -> tuple[Image, Mask]:
        """The query with content at a place that was drawn for it, and where that is."""
        names = self.releases.scene.name, query, pasted.content.name, f"{pasted.share:g}"
        across, down = generator(self.releases.settings.seed, *names).uniform(size=2)
        image = read_image(self.releases.scene.images[query])
        return paste(image, pasted.content.picture, pasted.share, (float(across), float(down)))

    def _read(self, query: str, pasted: Pasted | None) -> Seen:
        if pasted is None:
            return Seen(self.releases.raw(query))
        settings = self.releases.settings
        image, mask = self.picture(query, pasted)
        features = make_extractor(settings.kind, settings.max_features).extract(image)
        if features.keypoints is None:
            raise InputError(f"{settings.kind} has no keypoints: nothing says what is private")
        return Seen(features, private_rows(features.keypoints, mask), mask)


@dataclass(frozen=True, eq=False)
class Baseline:
    """A method that gates are compared with, and how many images of the map its queries are matched with."""

    method: Method
    retrieved: int
    iterations: int
    suffix: str = ""

    @property
    def name(self) -> str:
        """The scheme."""
        return self.method.scheme.name + self.suffix


@dataclass(frozen=True, eq=False)
class Query:
    """An image of a place, with content or without, that is sent under a gate or by another method."""

    place: Place
    way: Variant | Baseline
    name: str
    pasted: Pasted | None = None


@dataclass(frozen=True, eq=False)
class Elsewhere:
    """Photographs that have nothing to do with a map without one image, and a gate of that."""

    place: Place
    way: Variant
    query: str
    photographs: "Photographs"


class Photographs:
    """Photographs from elsewhere, read when first needed."""

    def __init__(self, paths: Sequence[Path], kind: str, max_features: int) -> None:
        self.paths, self._extractor = paths, (kind, max_features)

    @cached_property
    def features(self) -> list[Features]:
        """Of those that have any."""
        extractor = make_extractor(*self._extractor)
        every = [extractor.extract(read_image(path)) for path in self.paths]
        return [features for features in every if len(features)]


@dataclass(frozen=True, eq=False)
class _Sent:
    """What was sent, None for nothing, and milliseconds of processor time that it took to hide."""

    release: Features | PrivateFeatures | None
    milliseconds: float


@dataclass(frozen=True, eq=False)
class _Located:
    """Inliers, localized, rotation and centre error; the pose, and milliseconds of processor time of the server."""

    values: tuple[float, ...]
    milliseconds: float
    pose: Pose | None = None


def measure(subject: Query | Elsewhere) -> Measured:
    """What MEASURED names; of a query with content what LEAKED names, of photographs from elsewhere PASSED."""
    if isinstance(subject, Elsewhere):
        return _passed(subject)
    seen = subject.place.seen(subject.name, subject.pasted)
    sent = _sent(subject, seen.features)
    located = _located(subject, sent.release)
    size = 0 if sent.release is None else len(sent.release)
    parameters: dict[str, Parameter] = {"features": len(seen.features), **_stated(sent.release)}
    if seen.sides is None:
        encoded = 0 if sent.release is None else len(veil.encode(_positions_only(sent.release)))
        values = size / len(seen.features), *located.values, float(encoded), sent.milliseconds, located.milliseconds
        return Measured(_rounded(values), size, parameters)
    leaked, counts = _leaked(subject, seen, sent.release)
    hole = _hole(subject, seen.mask, sent.release, located.pose)
    return Measured(_rounded((*leaked, hole, *located.values)), size, parameters | counts)


def _sent(subject: Query, features: Features) -> _Sent:
    place, query = subject.place, subject.name
    if isinstance(subject.way, Baseline):
        scheme = subject.way.method.scheme
        if scheme == RAW:
            return _Sent(features, 0.0)
        start = time.process_time()
        return _Sent(place.releases.release(query, scheme, features), 1000 * (time.process_time() - start))
    gate = subject.way.gate(place.sketches(query).of(subject.way)).for_kind(features.kind)
    rng = generator(place.releases.settings.seed, place.releases.scene.name, query, subject.way.name)
    with suppress(NotMappedError):  # what a device has ready before it sees a picture
        privatize(features.take(np.arange(1)), gate, rng=rng)
    start = time.process_time()
    try:
        release = privatize(features, gate, rng=rng)
    except NotMappedError:
        return _Sent(None, 1000 * (time.process_time() - start))
    return _Sent(release, 1000 * (time.process_time() - start))


def _located(subject: Query, release: Features | PrivateFeatures | None) -> _Located:
    if release is None:
        return _Located((0.0, *_LOST), 0.0)
    place, query = subject.place, subject.name
    model, scene = place.maps.without(query, RAW), place.releases.scene
    search, images = PoseSearch(seed=place.releases.settings.seed), None
    if isinstance(subject.way, Baseline):
        method = subject.way.method
        options = replace(method.options(), search=replace(search, iterations=subject.way.iterations))
        localizer = Localizer(model, partial(place.maps.features, method=method), options)
        images = place.maps.nearest(query, model)[: subject.way.retrieved]
        # A server has the features of its map at hand before a query comes.
        localizer.correspondences(release.take(np.arange(1)), images)
    else:
        localizer = Localizer(model, place.releases.raw)
        localizer.options = replace(localizer.options, search=search)
    start = time.process_time()
    located = localizer.locate(release, scene.cameras[query], True, images)
    milliseconds = 1000 * (time.process_time() - start)
    if located.pose is None:
        return _Located((float(located.inliers), *_LOST), milliseconds)
    errors = pose_errors(located.pose, scene.poses[query])
    return _Located((float(located.inliers), 1.0, *errors), milliseconds, located.pose)


def _hole(subject: Query, mask: Mask | None, release: Features | PrivateFeatures | None, pose: Pose | None) -> float:
    """The intersection over union of content, and of the hole that a gated release shows."""
    if pose is None or mask is None or not isinstance(release, PrivateFeatures):
        return 0.0
    if not isinstance(release.descriptors, MapPoints):
        return 0.0
    place, query = subject.place, subject.name
    hole = find_hole(release, pose, place.releases.scene.cameras[query], place.maps.without(query, RAW))
    drawn = hole.at_size(mask.shape[1], mask.shape[0]) > 0
    return float((drawn & mask).sum() / max(int((drawn | mask).sum()), 1))


def _stated(release: Features | PrivateFeatures | None) -> dict[str, Parameter]:
    """What the release promises: tau, and an epsilon never without that of the image."""
    if not isinstance(release, PrivateFeatures):
        return {}
    stated: dict[str, Parameter] = {}
    if release.guarantee.tau is not None:
        stated["tau"] = release.guarantee.tau
        stated |= {name: release.defense[name] for name in ("contrast", "min_share")}
    if release.guarantee.epsilon is not None:
        image = release.guarantee.compose(len(release)).epsilon
        stated |= {"epsilon": release.guarantee.epsilon, "image_epsilon": image}
    return stated


def _leaked(
    subject: Query, seen: Seen, release: Features | PrivateFeatures | None
) -> tuple[tuple[float, float, float, float], dict[str, Parameter]]:
    """Shares of the private features that are sent and recovered, near and close; of the mapped ones that are sent."""
    assert seen.sides is not None and subject.pasted is not None
    private, mapped = int(seen.sides.private.sum()), int(seen.sides.mapped.sum())
    counts: dict[str, Parameter] = {"private": private, "mapped": mapped}
    if release is None or len(release) == 0:
        return (0.0, 0.0, 0.0, 0.0), counts
    behind = _behind(release, seen.features)
    rows = np.array([at[0] for at in behind])
    own = np.flatnonzero(seen.sides.private[rows])
    near, close = _recovered(subject, seen.features, release, behind, own)
    shares = len(own) * near / max(private, 1), len(own) * close / max(private, 1)
    sent = len(own) / max(private, 1), int(seen.sides.mapped[rows].sum()) / max(mapped, 1)
    return (sent[0], *shares, sent[1]), counts


def _recovered(
    subject: Query,
    features: Features,
    release: Features | PrivateFeatures,
    behind: Sequence[Integers],
    own: Integers,
) -> tuple[float, float]:
    """Of the features `own` of a release, the shares that the best attack brings nearer than NEAR, and than CLOSE."""
    if len(own) == 0:
        return 0.0, 0.0
    if isinstance(release, Features):
        return 1.0, 1.0
    best = (0.0, 0.0)
    for method, knowledge in _attacks(subject, release):
        attacked, at = release, own
        if method.alone and not isinstance(release.descriptors, MapPoints):
            at = (
                own[np.unique(np.linspace(0, len(own) - 1, _ATTACKED).astype(np.int64))]
                if len(own) > _ATTACKED
                else own
            )
            attacked = release.take(at)
        guess = attack(attacked, method, knowledge, generator(0, subject.name, method.name))
        values = guess.values if len(guess) == len(at) else guess.values[at]
        away = _nearest_truth(values, features, [behind[place] for place in at])
        best = max(best, (float((away < NEAR).mean()), float((away < CLOSE).mean())))
    return best


def _attacks(subject: Query, release: PrivateFeatures) -> list[tuple[Attack, Knowledge]]:
    """The best of those that take seconds on what is sent, with all that their adversary may know."""
    if isinstance(subject.way, Variant):
        return [(Read(), Knowledge(sketch=subject.place.sketches(subject.name).of(subject.way)))]
    defense = subject.way.method.scheme.defense
    if isinstance(defense, Hardened):
        return [(Overlap(), Knowledge())]
    if isinstance(defense, Lifting):
        return [(Vertex(), Knowledge())]
    return [(Posterior(), Knowledge(codebook=subject.way.method.scheme.codebook))]


def _nearest_truth(values: NDArray[np.float32], features: Features, behind: Sequence[Integers]) -> Float64:
    """How far each guess is from the descriptor behind it; from the nearest, where a place has several."""
    rows = np.concatenate(behind)
    owners = np.repeat(np.arange(len(behind)), [len(at) for at in behind])
    away = guess_distances(values[owners], features.descriptors.take(rows))
    least = np.full(len(behind), np.inf)
    np.minimum.at(least, owners, away)
    return least


def _behind(release: Features | PrivateFeatures, features: Features) -> list[Integers]:
    """The raw features at the place of each one that was sent: often two, of several orientations."""
    assert release.keypoints is not None and features.keypoints is not None
    at: dict[bytes, list[int]] = {}
    for row, xy in enumerate(features.keypoints.xy):
        at.setdefault(xy.tobytes(), []).append(row)
    return [np.array(at[xy.tobytes()]) for xy in release.keypoints.xy]


def _passed(subject: Elsewhere) -> Measured:
    """Shares of features that pass, and how many photographs would be taken for the place."""
    sketch, photographs = subject.place.sketches(subject.query).of(subject.way), subject.photographs.features
    usual = subject.way.gate(sketch).for_kind(sketch.kind)
    every = replace(usual, min_share=0.0, min_features=1)
    shares, taken = [], 0
    for features in photographs:
        count = _count(features, every)
        shares.append(count / len(features))
        taken += count >= usual.min_features and count >= (usual.min_share or 0) * len(features)
    if not shares:
        raise InputError("none of the photographs from elsewhere has a feature: name others (--elsewhere)")
    values = float(np.mean(shares)), max(shares), taken / len(shares)
    return Measured(_rounded(values), len(shares), {})


def _count(features: Features, gate: Gate) -> int:
    try:
        return len(privatize(features, gate))
    except NotMappedError:
        return 0


def _positions_only(release: Features | PrivateFeatures) -> Features | PrivateFeatures:
    keypoints = release.keypoints
    return release if keypoints is None else replace(release, keypoints=keypoints.positions_only())


def _rounded(values: Sequence[float]) -> tuple[float, ...]:
    return tuple(round(value, 6) for value in values)
