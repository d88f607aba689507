"""A sketch, its map and foreign descriptors -> which distance lets how much of each pass.

True correspondences come from the map itself: an image is left out, and its observations are looked up among those of
the other images. That is what a photograph of the place finds that the map has never seen.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from featveil.core import InputError, Points
from featveil.core.arrays import Float32, Float64, Integers
from featveil.databases import Database
from featveil.gate.background import CONTRASTS, background_distances
from featveil.gate.map_sketch import Calibration, Sketch, unit
from featveil.gate.sketch_building import Observations

TARGET = 0.85  # share of true correspondences that shall pass
TAUS = tuple(round(0.10 + 0.025 * step, 3) for step in range(29))  # 0.1 to 0.8

_QUERIES = 4000  # true and foreign descriptors that are looked up, at most
_PAIRS = 2e9  # of these and entries: some seconds
_FINE = 0.005


@dataclass(frozen=True, eq=False)
class Foreign:
    """What has nothing to do with a map: a `corpus` of descriptors to test with, and a public `background`.

    The two must not come from the same photographs.
    """

    corpus: Points | None = None
    background: Database | None = None


def calibrate(
    sketch: Sketch, observations: Iterable[Observations], foreign: Foreign, target: float = TARGET
) -> Calibration:
    """The distance and contrast at which the share `target` of true correspondences passes and least foreign ones do.

    A sample of `observations` is looked up in full precision. Where no distance of TAUS and no contrast reach the
    target, what lets most pass is taken. Raises InputError when no point is seen by two images.
    """
    if isinstance(target, bool) or not isinstance(target, int | float) or not 0 < target < 1:
        raise InputError(f"the share that shall pass is between 0 and 1, got {target!r:.40}")
    most = int(np.clip(_PAIRS / len(sketch), 500, _QUERIES))
    true, right = _left_out(sketch, observations, most, foreign.background)
    if len(true.distances) == 0:
        raise InputError(
            "no point of the map is seen by two of its images: nothing can be calibrated; state a tau instead (--tau)"
        )
    others = None if foreign.corpus is None or len(foreign.corpus) == 0 else _foreign(sketch, foreign, most)
    contrasts = [None] if foreign.background is None else CONTRASTS
    choices = [(contrast, _reaching(true.at(contrast), target)) for contrast in contrasts]
    contrast, tau = min(choices, key=lambda choice: _cost(true, others, choice, target))
    taus, own = np.unique([*TAUS, tau]), true.at(contrast)
    return Calibration(
        tau,
        float(target),
        contrast,
        None if foreign.background is None else foreign.background.digest,
        tuple(taus.tolist()),
        _shares(own, taus),
        _shares(np.where(right, own, np.inf).astype(np.float32), taus),
        None if others is None else _shares(others.at(contrast), taus),
        len(own),
        0 if others is None else len(others.distances),
    )


@dataclass(frozen=True, eq=False)
class _Looked:
    """Distances (q,) from the sketch, and from the background (None without one)."""

    distances: Float32
    background: Float32 | None

    def at(self, contrast: float | None) -> Float32:
        """Distances from the sketch; infinite where the background is too near."""
        if contrast is None or self.background is None:
            return self.distances
        return np.where(self.distances <= contrast * self.background, self.distances, np.inf).astype(np.float32)


def _reaching(distances: Float32, target: float) -> float:
    """The least distance at which the share passes; the largest that makes a difference where none does."""
    wanted = float(np.quantile(distances, target, method="higher"))
    if not np.isfinite(wanted):
        wanted = float(distances[np.isfinite(distances)].max(initial=TAUS[0]))
    return round(float(np.clip(np.ceil(wanted / _FINE) * _FINE, TAUS[0], TAUS[-1])), 3)


def _cost(
    true: _Looked, others: _Looked | None, choice: tuple[float | None, float], target: float
) -> tuple[float, float, float]:
    """What is lost of the target, then what passes of foreign content, then the distance."""
    contrast, tau = choice
    lost = max(0.0, target - float((true.at(contrast) <= tau).mean()))
    passed = 0.0 if others is None else float((others.at(contrast) <= tau).mean())
    return round(lost, 3), passed, tau


def _foreign(sketch: Sketch, foreign: Foreign, most: int) -> _Looked:
    assert foreign.corpus is not None
    rows = np.unique(np.linspace(0, len(foreign.corpus) - 1, min(len(foreign.corpus), most)).astype(np.int64))
    points = foreign.corpus.take(rows)
    distances, _ = sketch.nearest_elsewhere(points)
    return _Looked(distances, _from_background(points, foreign.background))


def _from_background(points: Points, background: Database | None) -> Float32 | None:
    return None if background is None else background_distances(unit(points), background)


def _shares(distances: Float32, taus: Float64) -> tuple[float, ...]:
    return tuple(round(float(share), 5) for share in (distances[:, None] <= taus).mean(axis=0))


def _left_out(
    sketch: Sketch, observations: Iterable[Observations], most: int, background: Database | None
) -> tuple[_Looked, NDArray[np.bool_]]:
    """Distance (q,) of observations from the nearest entry of another image, and whether that is of the same point."""
    several = _seen_by_several(sketch)
    share = min(1.0, most / max(int(several[sketch.points].sum()), 1))
    queries: list[Float32] = []
    points: list[Integers] = []
    images: list[Integers] = []
    for one in observations:
        rows = np.flatnonzero(several[one.points])
        count = min(len(rows), int(np.ceil(share * len(rows))))
        if count:
            rows = rows[np.unique(np.linspace(0, len(rows) - 1, count).astype(np.int64))]
            queries.append(one.descriptors.take(rows).values)
            points.append(one.points[rows])
            images.append(np.full(len(rows), one.image))
    if not queries:
        return _Looked(np.empty(0, np.float32), None), np.empty(0, np.bool_)
    image = np.concatenate(images)
    looked_up = Points(np.concatenate(queries))
    nearest, which = sketch.nearest_elsewhere(looked_up, image)
    return _Looked(nearest, _from_background(looked_up, background)), sketch.points[which] == np.concatenate(points)


def _seen_by_several(sketch: Sketch) -> NDArray[np.bool_]:
    """Of each point of the map, whether two images of the sketch or more see it."""
    pairs = np.unique(np.stack([sketch.points, sketch.images], axis=1), axis=0)
    return np.bincount(pairs[:, 0], minlength=sketch.model_points) > 1
