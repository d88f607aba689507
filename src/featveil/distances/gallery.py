"""Descriptors that are searched again and again, such as enrolled templates: what can be done once is."""

import numpy as np

from featveil.core import Flats, Points, Subspaces
from featveil.core.descriptors import as_flats
from featveil.distances.frames import Pair, frame
from featveil.distances.search import Comparison, Nearest, nearest, searched
from featveil.distances.tiles import Walker

_ROOM = 1.5  # how much farther from the middle than every entry a query may lie


class Gallery:
    """Searches `entries`, points or subspaces, for the nearest of each query; exact, as `nearest` is."""

    def __init__(self, entries: Flats) -> None:
        self.entries = as_flats(entries)
        self._prepared: dict[int, tuple[Pair, Walker]] = {}

    def __len__(self) -> int:
        return len(self.entries)

    def nearest(self, queries: Flats, k: int = 1) -> Nearest:
        """The k nearest entries of each of `queries`; raises InputError as `distances.nearest` does."""
        queries = as_flats(queries)
        if len(self.entries) == 0 or len(queries) == 0 or queries.size != self.entries.size:
            return nearest(queries, self.entries, k)
        prepared, walker = self._for(queries)
        pair = prepared.replaced(queries)
        if pair.first.reach > 1:  # the kernel's error is known for what lies within the scale
            return nearest(queries, self.entries, k)
        compared = Comparison(queries, self.entries, pair, walker.against(pair.first))
        return searched(compared, k)[0]

    def _for(self, queries: Flats) -> tuple[Pair, Walker]:
        """The entries, ready for queries of that dimension."""
        m = queries.dimension
        if m not in self._prepared:
            pair = frame(_nothing(m, queries.size), self.entries, _ROOM)
            self._prepared[m] = pair, Walker(pair.first, pair.second)
        return self._prepared[m]


def _nothing(m: int, d: int) -> Flats:
    """No descriptors, of dimension m."""
    if m == 0:
        return Points(np.empty((0, d), np.float32))
    return Subspaces(np.empty((0, d), np.float32), np.empty((0, m, d), np.float32))
