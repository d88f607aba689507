"""A query and a map -> the pose of its camera: by matching with images of the map, or by the points that it names."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np

from featveil.core import Camera, Features, InputError, MapPoints, Matches, WordSets
from featveil.core.arrays import Integers
from featveil.formats.collections import Collection, open_collection
from featveil.geometry.absolute_pose import (
    Correspondences,
    Localized,
    PoseSearch,
    correspond,
    estimate_beyond_chance,
    estimate_pose,
    estimate_supported,
    points_at,
)
from featveil.geometry.map_images import guess_camera
from featveil.geometry.models import SparseModel, read_model
from featveil.matching import Kept, MatchOptions, as_words, conceal_raw, match
from featveil.matching.dispatch import find_codebook
from featveil.pipelines.map_parts.map_building import AnyFeatures, Read, has_words, supported
from featveil.pipelines.map_parts.votes import ImageVotes, check_model, has_decoys
from featveil.pipelines.sources import PRIVATE, RAW

_MOST_NAMED = 2**16  # points that a gated query may name; the time of a pose grows with them


@dataclass(frozen=True)
class LocalizeOptions:
    """How queries are matched with the map, and their poses sought.

    `neighbours`: of the many candidates of word sets, only those that their neighbours support are tried.
    """

    matching: MatchOptions = field(default_factory=lambda: MatchOptions())
    search: PoseSearch = field(default_factory=PoseSearch)
    neighbours: bool = True


class Localizer:
    """Places queries in a map, raw or private: by matching them with its images, or by the points that they name.

    Example: Localizer("map/").locate(query, camera)
    """

    def __init__(
        self,
        model: SparseModel | str | Path,
        features: Read | str | Path | None = None,
        options: LocalizeOptions | None = None,
    ) -> None:
        """Of `model`, a folder or what was read from it, with the `features` of its images, which stay in memory.

        `features` are a file or a folder of them, or a function of an image's name; without any those beside the
        model. Queries that name points of the map need none. Raises InputError or FormatError for an unusable model.
        """
        self.model = model if isinstance(model, SparseModel) else read_model(model)
        self.options = options or LocalizeOptions()
        self._folder = None if isinstance(model, SparseModel) else Path(model)
        self._given = features
        self._network = self.options.matching.get("network")
        self._kept = Kept()
        self._seen: dict[str, Integers] = {}

    @cached_property
    def images(self) -> list[str]:
        """The images of the map that there are features of: what a query is matched with."""
        return self._source[1]

    def locate(
        self,
        query: AnyFeatures,
        camera: Camera | None = None,
        known: bool = True,
        images: Sequence[str] | None = None,
    ) -> Localized:
        """The pose of `query` from matches with `images` of the map (default: all); `known` intrinsics stay.

        Without a camera its focal length is estimated along. With too few matches there is no pose, and a reason.
        A query that names points of the map is not matched with anything, so `images` do not matter.
        Raises InputError when query and map cannot be compared, an image is not in the map, or its features are others
        than the model was made of.
        """
        if camera is None:
            if query.image_size is None:
                raise InputError("neither size nor camera of the query is known: give its camera")
            camera, known = guess_camera(query.image_size), False
        if isinstance(query.descriptors, MapPoints):
            shown, search = self.named(query), self.options.search
            if drawn_at_random(query):
                return estimate_beyond_chance(shown, camera, known, search, estimate_supported)
            return estimate_supported(shown, camera, known, search)
        images = self.images if images is None else images
        correspondences = self.correspondences(query, images)
        words = has_words(query, *(self._features(query, name) for name in images[:1]))
        estimate = estimate_beyond_chance if words else estimate_pose
        return estimate(correspondences, camera, known, self.options.search)

    def named(self, query: AnyFeatures) -> Correspondences:
        """Which points of the map a gated query says that its keypoints show; raises InputError for another map."""
        descriptors, keypoints = query.descriptors, query.keypoints
        if keypoints is None or not isinstance(descriptors, MapPoints):
            raise InputError("the query does not name points of a map, with the places where it saw them")
        check_model(descriptors, self.model)
        if int((descriptors.points >= 0).sum()) > _MOST_NAMED:
            raise InputError(f"the query names more than {_MOST_NAMED:,} points: no photograph shows so many")
        keypoint, place = np.nonzero(descriptors.points >= 0)  # a row with fewer points begins with -1
        point = descriptors.points[keypoint, place]
        return Correspondences(keypoint, point, keypoints.xy[keypoint].astype(np.float64), self.model.points[point])

    def retrieve(self, query: AnyFeatures, top: int = 20) -> list[str]:
        """The `top` images of the map, or fewer, that see most of what a gated query names; the best first.

        Raises InputError for a query that names no points, or those of another map.
        """
        return [name for name, _ in self._votes.rank(query)[:top]]

    def correspondences(self, query: AnyFeatures, images: Sequence[str]) -> Correspondences:
        """Which points of the map the keypoints of `query` may show, by its matches with `images`."""
        if query.keypoints is None:
            raise InputError("the query has no keypoints, which localization needs")
        matched = []
        for name in images:
            if name not in self.model.views:
                raise InputError(f"image {name!r} is not in the map")
            features = self._features(query, name)
            matched.append((self._matches(query, features), self._points(name, features)))
        return correspond(query.keypoints.xy, matched, self.model.points)

    def _features(self, query: AnyFeatures, name: str) -> AnyFeatures:
        """What `query` is matched with of an image of the map."""
        return self._kept.read(self._words if self._in_words(query) else self._read, name)

    def _matches(self, query: AnyFeatures, features: AnyFeatures) -> Matches:
        matches = match(query, features, **self.options.matching)
        return supported(matches, query, features) if self.options.neighbours else matches

    def _in_words(self, query: AnyFeatures) -> bool:
        """Whether raw features of the map are better named by their words once, for all queries."""
        vocabulary = self.options.matching.get("rule", "vocabulary") == "vocabulary"
        if not vocabulary or not isinstance(query.descriptors, WordSets):
            return False
        given = self.options.matching.get("codebook")
        self._codebook = find_codebook(query, given=given, network=self._network)
        return True

    def _read(self, name: str) -> AnyFeatures:
        """What the map has of an image; raw features are concealed where queries are."""
        features = self._source[0](name)
        return features if self._network is None else conceal_raw(features, self._network)

    @cached_property
    def _votes(self) -> ImageVotes:
        return ImageVotes(self.model)

    @cached_property
    def _source(self) -> tuple[Read, list[str]]:
        """What reads features of images of the map, and of which."""
        given = self._given
        if given is None and self._folder is None:
            raise InputError("a model that was read needs the features of its images: give them, or its folder")
        if given is None and self._folder is not None:
            given = beside(self._folder)
        if isinstance(given, str | Path):
            collection = open_collection(given)
            return collection.read, usable_images(self.model, collection)
        assert given is not None
        return given, list(self.model.views)

    def _words(self, name: str) -> AnyFeatures:
        features = self._read(name)
        return as_words(features, self._codebook) if isinstance(features, Features) else features

    def _points(self, name: str, features: AnyFeatures) -> Integers:
        if name not in self._seen:
            if features.keypoints is None:
                raise InputError(f"the features of image {name!r} have no keypoints, which localization needs")
            self._seen[name] = points_at(self.model.views[name], features.keypoints.xy, name)
        return self._seen[name]


def names_points(query: AnyFeatures) -> bool:
    """Whether a query names points of its map, so that no features of the map are needed."""
    return isinstance(query.descriptors, MapPoints)


def drawn_at_random(query: AnyFeatures) -> bool:
    """Whether nearly all candidates of a query are wrong by design, as words are: some agree by chance alone.

    A plain gate sends several points as well, but each of them resembles its feature.
    """
    return has_words(query) or has_decoys(query)


def beside(model: Path) -> Path:
    """The file of features beside the model in a folder, such as `featveil map` leaves; raises InputError for none."""
    for name in (PRIVATE, RAW):
        if (model / name).is_file():
            return model / name
    raise InputError(f"{model} has no features beside it: name those that it was made of with --features")


def usable_images(model: SparseModel, stored: Collection) -> list[str]:
    """The images of the map that there are features of; raises InputError when there are none."""
    names = set(stored.names)
    usable = [name for name in model.views if name in names]
    if not usable:
        raise InputError(f"none of the {len(model.views)} images of the model is in {stored.path}: names must agree")
    return usable
