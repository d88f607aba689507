"""The map of an audit, for gates: what its second views show, each seen once more by the same change of view.

Each feature of a second view is a point of the map. The image that saw it once more adds an observation where the two
match and geometry agrees, so that the distance of the gate is calibrated as that of any map: by leaving an image out.
"""

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np

from featveil.audit.schemes import Victim
from featveil.core import InputError, MapPoints, Matches, PrivateFeatures
from featveil.core.arrays import Float64, Integers
from featveil.databases.entries import QUANTIZED_KINDS
from featveil.gate import Sketch
from featveil.gate.background import foreign_descriptors, usual_background
from featveil.gate.sketch_building import MapFacts, Observations, build_sketch
from featveil.gate.thresholds import Foreign, calibrate
from featveil.matching import match
from featveil.metrics import transfer_errors

_RIGHT = 3.0  # pixels
_VIEWS = 2  # images of the map for each victim


@dataclass(frozen=True, eq=False)
class ViewMap:
    """The sketch of a map of second views: from point `starts[i]` on come the features of that of victim i."""

    sketch: Sketch
    names: tuple[str, ...]
    starts: Integers

    def matches(self, victim: Victim, private: PrivateFeatures) -> tuple[Matches, int]:
        """The features of the victim's second view that the release names, and how many others it names.

        Pairs of second view and release, without distances: the server knows none.
        """
        if not isinstance(private.descriptors, MapPoints):
            raise InputError("only points of the map say by themselves what they match")
        place = self.names.index(victim.name)
        points = private.descriptors.points
        here = (points >= self.starts[place]) & (points < self.starts[place + 1])
        rows, columns = np.nonzero(here)
        pairs = np.stack([points[rows, columns] - self.starts[place], rows], axis=1)
        others = int((points >= 0).sum()) - len(pairs)
        return Matches(pairs, np.zeros(len(pairs), np.float32)), others


def map_of_views(victims: Sequence[Victim], kind: str) -> ViewMap:
    """The map of the victims' second views; calibrated where one of their features was seen again.

    Raises InputError when a victim's second view was not seen once more.
    """
    starts = np.cumsum([0, *(len(victim.second_view) for victim in victims)])
    digest = hashlib.sha256(b"featveil audit map\n")
    for victim in victims:
        digest.update(np.ascontiguousarray(victim.second_view.descriptors.values, "<f4").data)
    facts = MapFacts(digest.hexdigest(), int(starts[-1]), _VIEWS * len(victims), kind, "second views of an audit")
    seen = list(_observations(victims, starts))
    sketch = build_sketch(facts, lambda: seen)
    foreign = Foreign()
    if kind in QUANTIZED_KINDS:
        foreign = Foreign(foreign_descriptors(kind), usual_background(kind))
    with suppress(InputError):  # where nothing was seen again, a gate must state its own distance, and says so
        sketch = replace(sketch, calibration=calibrate(sketch, seen, foreign))
    return ViewMap(sketch, tuple(victim.name for victim in victims), starts)


def _observations(victims: Sequence[Victim], starts: Integers) -> Iterator[Observations]:
    for number, victim in enumerate(victims):
        points = starts[number] + np.arange(len(victim.second_view))
        yield Observations(_VIEWS * number, points, victim.second_view.descriptors)
        if victim.seen_again is None:
            raise InputError(f"the second view of {victim.name} was seen once only: it makes no map")
        again, homography = victim.seen_again
        pairs = _right_pairs(victim, homography)
        descriptors = again.descriptors.take(pairs[:, 1])
        yield Observations(_VIEWS * number + 1, points[pairs[:, 0]], descriptors)


def _right_pairs(victim: Victim, homography: Float64) -> Integers:
    """Features of the second view and of the image that saw it again which match, and lie where they should."""
    assert victim.seen_again is not None
    first, second = victim.second_view, victim.seen_again[0]
    if first.keypoints is None or second.keypoints is None:
        raise InputError("features without keypoints make no map: audits need local features")
    matches = match(first, second)
    errors = transfer_errors(matches, first.keypoints, second.keypoints, homography)
    return matches.indices[errors <= _RIGHT]
