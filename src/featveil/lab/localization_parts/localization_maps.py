"""Maps of a scene that lack one image each, and what that image is matched with, for the bench of localization."""

from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from urllib.parse import quote

import numpy as np

from featveil.audit.schemes import Scheme
from featveil.core import Features, PrivateFeatures
from featveil.datasets import MapScene
from featveil.geometry.absolute_pose import Correspondences
from featveil.geometry.models import SparseModel, read_model
from featveil.geometry.sfm import Mapping3D, triangulate
from featveil.lab.scene_studies import RAW, SceneReleases
from featveil.matching import MatchOptions, as_words
from featveil.pipelines.map_parts.localizer import LocalizeOptions, Localizer
from featveil.pipelines.map_parts.map_building import DATABASE, MapOptions, match_and_verify

SUPPORTED = "vocabulary, neighbours"


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


class MapsWithout:
    """Maps of a scene that lack one image each, made when first needed."""

    def __init__(self, releases: SceneReleases, retrieved: int, folder: Path) -> None:
        self.releases, self.retrieved, self.folder = releases, retrieved, folder
        self._models: dict[tuple[str, str], SparseModel] = {}
        self._words: dict[tuple[str, str], PrivateFeatures] = {}
        self._databases: dict[str, Path] = {}

    @property
    def scene(self) -> MapScene:
        """What is mapped."""
        return self.releases.scene

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
        return sorted(away, key=lambda name: away[name])[: self.retrieved]

    @property
    def _options(self) -> MapOptions:
        return MapOptions(mapping=Mapping3D(refine_intrinsics=False, seed=self.releases.settings.seed))

    def _database(self, scheme: Scheme) -> Path:
        """All pairs of images, matched and verified; what is there is not done again."""
        if scheme.name not in self._databases:
            folder, read = self.folder / scheme.name, partial(self.releases.sent, scheme=scheme)
            match_and_verify(sorted(self.scene.images), read, folder, cameras=self.scene.cameras, options=self._options)
            self._databases[scheme.name] = folder / DATABASE
        return self._databases[scheme.name]


@dataclass(frozen=True, eq=False)
class Matched:
    """A query and what it is matched with, once for all numbers of iterations."""

    maps: MapsWithout
    method: Method
    query: str

    @cached_property
    def correspondences(self) -> Correspondences:
        """Places in the query and points of the map."""
        maps, scheme = self.maps, self.method.scheme
        model = maps.without(self.query, scheme if self.method.map_kind == "private" else RAW)
        localizer = Localizer(model, partial(maps.features, method=self.method), self.method.options())
        return localizer.correspondences(maps.releases.sent(self.query, scheme), maps.nearest(self.query, model))
