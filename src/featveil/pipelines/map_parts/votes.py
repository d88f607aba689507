"""Points of a map that a query names -> the images of the map that see them: retrieval without a global descriptor."""

from functools import cached_property

import numpy as np
from scipy.sparse import csr_array

from featveil.core import InputError, MapPoints, PrivateFeatures
from featveil.core.arrays import Float64
from featveil.core.features import sent_by
from featveil.geometry.models import SparseModel
from featveil.pipelines.map_parts.map_building import AnyFeatures


class ImageVotes:
    """Ranks the images of a map by the points that a query names.

    Example: ImageVotes(fv.Localizer("map/").model).rank(query)
    """

    def __init__(self, model: SparseModel) -> None:
        self.model = model
        self.names = list(model.views)

    def rank(self, query: AnyFeatures) -> list[tuple[str, float]]:
        """The images that see any of these points with their votes, most first.

        Each feature has one vote, which its candidates share, and which each point shares out to the images that see
        it. From votes of decoys is taken off what as many points at random give, so that they may be below zero.
        Raises InputError for a query that names no points, or those of another map.
        """
        if not isinstance(query.descriptors, MapPoints):
            raise InputError(
                "it names no points of a map, which images are found by: privatize the photograph with --defense gate"
            )
        check_model(query.descriptors, self.model)
        parts = self._parts(query.descriptors)
        by_chance = parts.mean() if has_decoys(query) else 0.0
        votes = self._seen @ ((parts - by_chance) / self._seers)
        any_of_them = self._seen @ parts > 0
        order = np.argsort(-votes, kind="stable")
        return [(self.names[number], float(votes[number])) for number in order if any_of_them[number]]

    def _parts(self, shown: MapPoints) -> Float64:
        """The share of features (p,) that each point of the map got."""
        feature, place = np.nonzero(shown.points >= 0)
        candidates = np.bincount(feature, minlength=len(shown))
        parts = np.bincount(shown.points[feature, place], 1 / candidates[feature], len(self.model.points))
        return parts.astype(np.float64)

    @cached_property
    def _seen(self) -> csr_array:
        """Which images (i) see which points (p), as zeros and ones."""
        seen = [np.unique(view.points[view.points >= 0]) for view in self.model.views.values()]
        images = np.repeat(np.arange(len(seen)), [len(points) for points in seen])
        points = np.concatenate(seen)
        shape = len(seen), len(self.model.points)
        return csr_array((np.ones(len(points)), (images, points)), shape=shape)

    @cached_property
    def _seers(self) -> Float64:
        """How many images see each point (p,), one at least."""
        return np.maximum(np.asarray(self._seen.sum(axis=0), np.float64).ravel(), 1)


def has_decoys(query: AnyFeatures) -> bool:
    """Whether most of the points that a query names are drawn at random."""
    if not isinstance(query, PrivateFeatures) or not isinstance(query.descriptors, MapPoints):
        return False
    return sent_by(query.defense) == "subset"


def check_model(points: MapPoints, model: SparseModel) -> None:
    """Raise InputError unless the numbers of `points` are of this model."""
    if (points.model, points.model_points) != (model.digest, len(model.points)):
        raise InputError(
            f"the query names points of map {points.model[:16]}, the model is {model.digest[:16]}: it is another one,"
            " or it changed since the sketch was built; build the sketch again"
        )
