"""Where to write labels beside points: each goes to the nearest place where it touches nothing."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product

_ROUND = ((1, 0), (-1, 0), (0, -1), (0, 1), (1, -1), (-1, -1), (1, 1), (-1, 1))  # right first, as one reads
_STEPS = (0, 4, 9, 14, 20, 27, 35, 44, 54)
NEARBY = 14  # of these steps, those that need no thought about whose label it is
_ON_THE_WAY = (0.25, 0.5, 0.75)


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
        self.taken = [*taken, *(Box(x - reach, y - reach, 2 * reach, 2 * reach) for x, y in points)]

    def place(self, point: tuple[float, float], width: float, height: float) -> Box:
        """The nearest free place of a label; where none is free, that which covers least."""
        places = [box for _, box in self._around(point, width, height)]
        box = next(filter(self._is_free, places), None) or min(places, key=self._covered)
        self.taken.append(box)
        return box

    def place_if_free(self, point: tuple[float, float], width: float, height: float) -> Box | None:
        """The nearest free place; None where there is none nearby."""
        near = (box for step, box in self._around(point, width, height) if step <= NEARBY)
        box = next(filter(self._is_free, near), None)
        self.taken += [] if box is None else [box]
        return box

    def _around(self, point: tuple[float, float], width: float, height: float) -> Iterator[tuple[float, Box]]:
        """Places of a label around its point, the nearest first, without those behind the marker of another."""
        x, y = point
        for step, (across, down) in product(_STEPS, _ROUND):
            gap = self.reach + step
            left = x - width / 2 + across * (gap + width / 2)
            top = y - height / 2 + down * (gap + height / 2)
            box = Box(left, top, width, height)
            if step == 0 or not self._is_behind_another(point, box):
                yield step, box

    def _is_free(self, box: Box) -> bool:
        return self._covered(box) < 1e-3

    def _covered(self, box: Box) -> float:
        """The area of what a label would be written over, and of what would be outside."""
        outside = box.width * box.height - box.shared(self.area)
        return outside + sum(box.shared(other) for other in self.taken)

    def _is_behind_another(self, point: tuple[float, float], box: Box) -> bool:
        (x, y), (right, down) = point, box.middle
        way = [(x + part * (right - x), y + part * (down - y)) for part in _ON_THE_WAY]
        others = [(a, b) for a, b in self.points if max(abs(a - x), abs(b - y)) >= self.reach]
        return any(max(abs(across - a), abs(below - b)) < self.reach for across, below in way for a, b in others)
