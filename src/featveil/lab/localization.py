"""Localization with private queries (Dusmanu et al. 2021, table 3; Pittaluga and Zhuang 2023, tables 2 and 3).

Each image of a scene is left out in turn and localized in a map of the others, which is triangulated from their true
poses. A raw map is what a service has that made it itself; a private map is matched and triangulated from private
features alone.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from pathlib import Path
from urllib.parse import quote

import numpy as np

from featveil.audit.schemes import Scheme
from featveil.core import Features, InputError, PrivateFeatures
from featveil.core.records import Parameter, Record
from featveil.core.resuming import Key, Plan, Report, resume, versions
from featveil.databases import Database
from featveil.datasets import MapScene
from featveil.geometry.absolute_pose import PoseSearch, estimate_pose
from featveil.geometry.models import SparseModel, read_model
from featveil.geometry.sfm import Mapping3D, triangulate
from featveil.lab import scenes
from featveil.lab.scenes import RAW, SceneReleases, lifted, quantised, subsets
from featveil.matching import MatchOptions, as_words
from featveil.metrics import pose_errors
from featveil.pipelines.map_parts.localizer import LocalizeOptions, Localizer
from featveil.pipelines.map_parts.map_building import DATABASE, MapOptions, match_and_verify

TASK = "localization"
METRIC = "rotation and centre error"
UNIT = "degrees, metres"
SUPPORTED = "vocabulary, neighbours"

_KEY = ("dataset", "scheme", "map", "distance", "iterations", "query")


@dataclass(frozen=True)
class Settings(scenes.Settings):
    """What all records of one file share; a query is matched with the `retrieved` images whose cameras are nearest.

    That stands in for image retrieval, which a service would do by global descriptors.
    """

    retrieved: int = 20

    def __post_init__(self) -> None:
        super().__post_init__()
        if type(self.retrieved) is not int or self.retrieved < 1:
            raise InputError(f"retrieved must be a whole number of at least 1, got {self.retrieved!r}")

    def shared(self) -> dict[str, Parameter]:
        """These settings but the seed, as every record states them."""
        return {"kind": self.kind, "max_features": self.max_features, "retrieved": self.retrieved}


@dataclass(frozen=True)
class Method:
    """How one scheme is localized: against a `raw` or `private` map, by a distance, with RANSAC of some lengths."""

    scheme: Scheme
    map_kind: str
    distance: str
    iterations: tuple[int, ...]

    def options(self) -> LocalizeOptions:
        """For the matching of the query."""
        if self.scheme.codebook is None:
            return LocalizeOptions()
        rule = MatchOptions(codebook=self.scheme.codebook)
        if self.distance == "nearest":
            rule["rule"] = "nearest"
        return LocalizeOptions(rule, neighbours=self.distance == SUPPORTED)


def make_methods(
    kind: str,
    dimensions: Sequence[int],
    private_maps: Sequence[int],
    codebook: Database,
    epsilons: Sequence[float],
    subset_size: int,
    iterations: Sequence[int],
    concealed: Sequence[Scheme] = (),
) -> list[Method]:
    """Raw; lifted queries of all `dimensions` against a raw map, of `private_maps` against private ones; words.

    Schemes of `concealed` are queries against a raw map too, whose features are concealed to be compared with them.
    Words are matched by vocabulary, with all candidates and with those that neighbours support, and by mutual nearest
    words, each with all numbers of `iterations`; the others need the fewest of these only.
    """
    fewest, every = (min(iterations),), tuple(sorted(set(iterations)))
    words = [quantised(codebook), *subsets(codebook, epsilons, [subset_size])] if epsilons else []
    return [
        *(Method(scheme, "raw", "point-to-point", fewest) for scheme in (RAW, *concealed)),
        *(Method(scheme, "raw", "point-to-subspace", fewest) for scheme in lifted(kind, dimensions)),
        *(Method(scheme, "private", "subspace-to-subspace", fewest) for scheme in lifted(kind, private_maps)),
        *(Method(scheme, "raw", rule, every) for rule in ("vocabulary", SUPPORTED, "nearest") for scheme in words),
    ]


def run_resumable(
    scenes: Sequence[tuple[MapScene, SceneReleases]],
    methods: Sequence[Method],
    settings: Settings,
    out: str | Path,
    report: Report = lambda done, total: None,
) -> list[Record]:
    """A record for each method and query, in `out/records.jsonl`; what is there is not measured again.

    Maps stay in `out/maps`. `report` is called with records (done, total). Raises InputError for a scene without true
    poses, and when the file has other settings.
    """
    for scene, _ in scenes:
        if set(scene.poses) != set(scene.images) or set(scene.cameras) != set(scene.images):
            raise InputError(f"scene {scene.name} has no true cameras for all its images, which localization needs")
    out = Path(out)
    shared: dict[str, Parameter] = {"seed": settings.seed, **settings.shared()}
    wanted: dict[Key, dict[str, Parameter]] = {
        _key(scene, method, iterations, query): method.scheme.parameters()
        for scene, _ in scenes
        for method in methods
        for query, iterations in product(sorted(scene.images), method.iterations)
    }

    def measure(done: frozenset[Key]) -> Iterator[Record]:
        for scene, releases in scenes:
            maps = _Maps(scene, releases, settings, out / "maps" / scene.name)
            for method, query in product(methods, sorted(scene.images)):
                left = [n for n in method.iterations if _key(scene, method, n, query) not in done]
                if left:
                    yield from _records(maps, method, query, left)

    return resume(out / "records.jsonl", Plan(TASK, _KEY, shared, wanted), measure, report)


class _Maps:
    """Maps of a scene that lack one image each, made when first needed."""

    def __init__(self, scene: MapScene, releases: SceneReleases, settings: Settings, folder: Path) -> None:
        self.scene, self.releases, self.settings, self.folder = scene, releases, settings, folder
        self._models: dict[tuple[str, str], SparseModel] = {}
        self._words: dict[tuple[str, str], PrivateFeatures] = {}
        self._databases: dict[str, Path] = {}

    def features(self, name: str, method: Method) -> Features | PrivateFeatures:
        """What the map has of an image: raw features by their words, found once, where words are looked up."""
        scheme = method.scheme
        if method.map_kind == "private":
            return self.releases.sent(name, scheme)
        raw, codebook = self.releases.raw(name), scheme.codebook
        if scheme.network is not None:
            raw = scheme.network.conceal(raw)
        if codebook is None or method.distance == "nearest":
            return raw
        if (name, codebook.digest) not in self._words:
            self._words[name, codebook.digest] = as_words(raw, codebook)
        return self._words[name, codebook.digest]

    def without(self, query: str, scheme: Scheme) -> SparseModel:
        """The map of all other images, whose features are sent under `scheme`."""
        if (query, scheme.name) not in self._models:
            folder = self.folder / scheme.name / f"without-{quote(query, safe='')}"
            if not (folder / "points3D.bin").exists():
                poses = {name: pose for name, pose in self.scene.poses.items() if name != query}
                triangulate(self._database(scheme), poses, folder, self._options.mapping)
            self._models[query, scheme.name] = read_model(folder)
        return self._models[query, scheme.name]

    def nearest(self, query: str, model: SparseModel) -> list[str]:
        """The images of the map that the query is matched with."""
        centre = self.scene.poses[query].centre
        away = {name: float(np.linalg.norm(pose.centre - centre)) for name, pose in model.poses.items()}
        return sorted(away, key=lambda name: away[name])[: self.settings.retrieved]

    @property
    def _options(self) -> MapOptions:
        return MapOptions(mapping=Mapping3D(refine_intrinsics=False, seed=self.settings.seed))

    def _database(self, scheme: Scheme) -> Path:
        """All pairs of images, matched and verified; what is there is not done again."""
        if scheme.name not in self._databases:
            folder, read = self.folder / scheme.name, partial(self.releases.sent, scheme=scheme)
            match_and_verify(sorted(self.scene.images), read, folder, cameras=self.scene.cameras, options=self._options)
            self._databases[scheme.name] = folder / DATABASE
        return self._databases[scheme.name]


def _records(maps: _Maps, method: Method, query: str, iterations: Sequence[int]) -> Iterator[Record]:
    """One record for each number of iterations, from the same matches."""
    scene, releases, settings, scheme = maps.scene, maps.releases, maps.settings, method.scheme
    map_scheme = scheme if method.map_kind == "private" else RAW
    model = maps.without(query, map_scheme)
    localizer = Localizer(model, partial(maps.features, method=method), method.options())
    found = localizer.correspondences(releases.sent(query, scheme), maps.nearest(query, model))
    for most in iterations:
        search = replace(PoseSearch(), iterations=most, seed=settings.seed)
        located = estimate_pose(found, scene.cameras[query], True, search)
        errors = () if located.pose is None else pose_errors(located.pose, scene.poses[query])
        parameters: dict[str, Parameter] = {"query": query, "map": method.map_kind, "distance": method.distance}
        parameters |= {"iterations": most, "correspondences": located.correspondences}
        parameters |= releases.epsilons(scheme, [query])
        yield Record(
            task=TASK,
            dataset=scene.name,
            scheme=scheme.name,
            metric=METRIC,
            value=tuple(round(error, 6) for error in errors),
            unit=UNIT,
            count=located.inliers,
            seed=settings.seed,
            versions=versions("pycolmap"),
            parameters=parameters | scheme.parameters() | settings.shared(),
        )


def _key(scene: MapScene, method: Method, iterations: int, query: str) -> Key:
    return scene.name, method.scheme.name, method.map_kind, method.distance, str(iterations), query
