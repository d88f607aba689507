"""A sketch -> one descriptor for each point of the map: the mean of all its entries, of norm 1."""

from dataclasses import dataclass

import numpy as np

from featveil.core.arrays import Float32, Integers
from featveil.gate.map_sketch import Sketch


@dataclass(frozen=True, eq=False)
class PointMeans:
    """The points `known` (p,), rising, that a sketch has entries of, and the mean descriptors `values` (p, d)."""

    known: Integers
    values: Float32

    @classmethod
    def of(cls, sketch: Sketch) -> "PointMeans":
        """Those of `sketch`."""
        known = sketch.known
        sums = np.zeros((len(known), sketch.size), np.float32)
        for block, decoded in sketch.descriptors():
            place = np.searchsorted(known, sketch.points[block])
            begins = np.flatnonzero(np.diff(place, prepend=-1))
            sums[place[begins]] += np.add.reduceat(decoded, begins, axis=0)
        norms = np.linalg.norm(sums, axis=1, keepdims=True)
        return cls(known, np.asarray(sums / np.maximum(norms, 1e-9), np.float32))

    def at(self, points: Integers) -> Float32:
        """The descriptors (..., d) of `points` (...); zeros where there is none, as for -1."""
        place = np.minimum(np.searchsorted(self.known, points), len(self.known) - 1)
        there = self.known[place] == points
        return np.asarray(self.values[place] * there[..., None], np.float32)

    def table(self, count: int) -> Float32:
        """The descriptors (`count`, d) of points 0 to `count`; zeros where there is none."""
        return self.at(np.arange(count))
