"""A map and the features of its images -> what each image saw of its points, one image at a time."""

from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np

from featveil.core import Features, InputError, Points, PrivateFeatures
from featveil.core.resuming import Report, silent
from featveil.databases import Database
from featveil.databases.entries import QUANTIZED_KINDS
from featveil.gate.background import foreign_descriptors, usual_background
from featveil.gate.map_sketch import unit
from featveil.gate.sketch_building import MapFacts, Observations
from featveil.gate.thresholds import Foreign
from featveil.geometry.absolute_pose import own_points
from featveil.geometry.models import SparseModel

Read = Callable[[str], Features | PrivateFeatures]


def observations(
    model: SparseModel, read: Read, names: Sequence[str], report: Report = silent
) -> Iterator[Observations]:
    """What the images `names` of `model` saw of its points, by the features that `read` gives.

    Raises InputError for private features, and for others than the model was made of.
    """
    numbers = {name: number for number, name in enumerate(sorted(model.views))}
    for done, name in enumerate(names):
        report(done, len(names))
        features = read(name)
        if not isinstance(features, Features):
            raise InputError("a sketch is made of raw features, and these are private: name the raw ones (--features)")
        if features.keypoints is None:
            raise InputError(f"the features of image {name!r} have no keypoints: nothing says which points they show")
        points = own_points(model.views[name], features.keypoints.xy, name)
        rows = np.flatnonzero(points >= 0)
        yield Observations(numbers[name], points[rows], features.descriptors.take(rows))
    report(len(names), len(names))


def facts_of(model: SparseModel, kind: str, source: str = "") -> MapFacts:
    """What a sketch says of its map. Raises InputError for a map without points."""
    if len(model.points) == 0:
        raise InputError("the model has no points, so there is nothing to sketch: triangulate it again")
    return MapFacts(model.digest, len(model.points), len(model.views), kind, source)


def foreign_to(kind: str, more: Iterable[Points] = (), background: Database | None = None) -> Foreign:
    """Foreign descriptors of that kind: a corpus of those that come with featveil and `more`, and a background.

    Without a `background` that is the built-in database; for a kind without one there is none.
    """
    from featveil.datasets.board import views
    from featveil.extractors import extract

    parts = [*more]
    if kind in QUANTIZED_KINDS:
        parts += [foreign_descriptors(kind), *(extract(view, kind).descriptors for view in views())]
    corpus = Points(np.concatenate([unit(points) for points in parts])) if parts else None
    return Foreign(corpus, usual_background(kind) if background is None else background)
