"""A query and a map of raw or private features -> the pose of its camera, by matching with images of the map."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from featveil.core import Camera, Features, InputError, Matches, PrivateFeatures, WordSets
from featveil.core.arrays import Integers
from featveil.geometry.absolute_pose import (
    Correspondences,
    Localized,
    PoseSearch,
    correspond,
    estimate_beyond_chance,
    estimate_pose,
    points_at,
)
from featveil.geometry.models import SparseModel
from featveil.matching import Kept, MatchOptions, as_words, conceal_raw, match
from featveil.matching.dispatch import find_codebook
from featveil.pipelines.map import has_words, supported

AnyFeatures = Features | PrivateFeatures
Read = Callable[[str], AnyFeatures]


@dataclass(frozen=True)
class LocalizeOptions:
    """How queries are matched with the map, and their poses sought.

    `neighbours`: of the many candidates of word sets, only those that their neighbours support are tried.
    """

    matching: MatchOptions = field(default_factory=lambda: MatchOptions())
    search: PoseSearch = field(default_factory=PoseSearch)
    neighbours: bool = True


class Localizer:
    """Places queries in `model`, the features of whose images `read` gives; those that were read stay in memory."""

    def __init__(self, model: SparseModel, read: Read, options: LocalizeOptions | None = None) -> None:
        self.model, self.options = model, options or LocalizeOptions()
        self._network = self.options.matching.get("network")
        self._raw = read
        self._kept = Kept()
        self._seen: dict[str, Integers] = {}

    def locate(self, query: AnyFeatures, camera: Camera, known: bool, images: Sequence[str]) -> Localized:
        """The pose of `query` from matches with `images` of the map; `known` intrinsics stay as they are.

        With too few matches there is none, and a reason. Raises InputError when query and map cannot be compared, an
        image is not in the map, or its features are others than the model was made of.
        """
        found = self.correspondences(query, images)
        words = has_words(query, *(self._features(query, name) for name in images[:1]))
        estimate = estimate_beyond_chance if words else estimate_pose
        return estimate(found, camera, known, self.options.search)

    def correspondences(self, query: AnyFeatures, images: Sequence[str]) -> Correspondences:
        """Which points of the map the keypoints of `query` may show, by its matches with `images`."""
        if query.keypoints is None:
            raise InputError("the query has no keypoints, which localization needs")
        found = []
        for name in images:
            if name not in self.model.views:
                raise InputError(f"image {name!r} is not in the map")
            features = self._features(query, name)
            found.append((self._matches(query, features), self._points(name, features)))
        return correspond(query.keypoints.xy, found, self.model.points)

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
        features = self._raw(name)
        return features if self._network is None else conceal_raw(features, self._network)

    def _words(self, name: str) -> AnyFeatures:
        features = self._read(name)
        return as_words(features, self._codebook) if isinstance(features, Features) else features

    def _points(self, name: str, features: AnyFeatures) -> Integers:
        if name not in self._seen:
            if features.keypoints is None:
                raise InputError(f"the features of image {name!r} have no keypoints, which localization needs")
            self._seen[name] = points_at(self.model.views[name], features.keypoints.xy, name)
        return self._seen[name]
