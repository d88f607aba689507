"""Where to write labels beside points so that they cover neither points nor each other."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

_ROUND = ((1, 0), (-1, 0), (0, -1), (0, 1), (1, -1), (-1, -1), (1, 1), (-1, 1))  # right first, as one reads
_STEPS = (0, 9, 20, 33, 48)
_OUTSIDE, _ON_LABEL, _ON_POINT, _FAR = 50.0, 6.0, 3.0, 4.0  # harm of an area covered, or of a distance
_CROSSED = 60.0
_ON_THE_WAY = (0.2, 0.4, 0.6, 0.8)
_HARMLESS = 85.0  # 20 units away, or 28 square units of a marker or line covered


@dataclass(frozen=True)
class Box:
    """A rectangle, y downwards."""

    left: float
    top: float
    width: float
    height: float

    def shared(self, other: "Box") -> float:
        """The area that both cover."""
        across = min(self.left + self.width, other.left + other.width) - max(self.left, other.left)
        down = min(self.top + self.height, other.top + other.height) - max(self.top, other.top)
        return max(across, 0.0) * max(down, 0.0)

    @property
    def middle(self) -> tuple[float, float]:
        """Its centre."""
        return self.left + self.width / 2, self.top + self.height / 2


class Labeller:
    """Places labels one after the other inside `area`: those that matter most come first.

    `points` are markers that reach `reach` around their middle; `taken` is where nothing should be written either.
    """

    def __init__(
        self, area: Box, points: Sequence[tuple[float, float]], taken: Sequence[Box] = (), reach: float = 7
    ) -> None:
        self.area, self.points, self.reach = area, points, reach
        self.markers = [Box(x - reach, y - reach, 2 * reach, 2 * reach) for x, y in points]
        self.taken = [*taken]
        self.placed: list[Box] = []

    def place(self, point: tuple[float, float], width: float, height: float) -> Box:
        """Where a label of a point does least harm."""
        self.placed.append(self._best(point, width, height)[1])
        return self.placed[-1]

    def place_if_free(self, point: tuple[float, float], width: float, height: float) -> Box | None:
        """The same, or None where it would cover something or end up far away."""
        cost, box = self._best(point, width, height)
        if cost > _HARMLESS:
            return None
        self.placed.append(box)
        return box

    def _best(self, point: tuple[float, float], width: float, height: float) -> tuple[float, Box]:
        (x, y), tried = point, []
        for step, (across, down) in product(_STEPS, _ROUND):
            gap = self.reach + step
            left = x - width / 2 + across * (gap + width / 2)
            top = y - height / 2 + down * (gap + height / 2)
            box = Box(left, top, width, height)
            tried.append((self._harm(box) + _CROSSED * self._crossed(point, box) + _FAR * step, box))
            if tried[-1][0] == 0:
                break
        return min(tried, key=lambda one: one[0])

    def _crossed(self, point: tuple[float, float], box: Box) -> int:
        """Markers of other points on the way to a label: it would seem to be theirs."""
        (x, y), (right, down) = point, box.middle
        way = [(x + part * (right - x), y + part * (down - y)) for part in _ON_THE_WAY]
        return sum(
            any(max(abs(across - a), abs(below - b)) < self.reach for across, below in way)
            for a, b in self.points
            if max(abs(a - x), abs(b - y)) >= self.reach
        )

    def _harm(self, box: Box) -> float:
        outside = box.width * box.height - box.shared(self.area)
        on_labels = sum(box.shared(other) for other in self.placed)
        on_others = sum(box.shared(other) for other in (*self.markers, *self.taken))
        return _OUTSIDE * outside + _ON_LABEL * on_labels + _ON_POINT * on_others
