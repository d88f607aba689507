"""The privacy-utility frontier of an audit: leakage of the best attack against utility, and its figure as a PNG.

What both figures share is here; the inline SVG is in frontier_svg.py, and needs no matplotlib as the PNG does.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

from featveil.audit.rows import AuditRow, Spread
from featveil.core import InputError
from featveil.metrics import NEAR
from featveil.plotting.figures import blank_figure, quiet, write_figure
from featveil.plotting.labels import Box, Labeller

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PANELS = {"one": "Private query, raw map", "both": "Both private"}
# Colours that colour-blind readers can tell apart; shapes and filling say the same without any colour.
LOOKS = {
    "identity": ("X", "#6b6b6b"),
    "lifting": ("o", "#0072b2"),
    "hardened": ("D", "#c44e00"),
    "concealer": ("p", "#56449a"),
    "subset": ("^", "#008a63"),
    "metric": ("v", "#a8478a"),
    "naive": ("s", "#8a6d00"),
}
_OTHER = ("P", "#444444")
WIDTH, HEIGHT = 440, 400
AREA = Box(44, 12, WIDTH - 56, HEIGHT - 58)  # where points are drawn
_MARGIN = 9  # between the frame and 0 or 100 %
_LETTER, _LINE = 7.1, 15  # size of a label's letters
_NEARBY = 12  # from a point to its label, without a line
_PIXELS_AN_INCH = 92  # of the SVG, where the PNG draws the same panel


@dataclass(frozen=True)
class Point:
    """A scheme in a panel: percent of features that leak, percent of raw matches kept."""

    row: AuditRow
    leakage: float
    utility: float
    low: tuple[float, float]
    high: tuple[float, float]
    optimal: bool

    @property
    def text(self) -> str:
        """Its figures in words."""
        attack = self.row.best.attack if self.row.best else ""
        return f"{self.row.scheme}: leaks {self.leakage:.1f}% ({attack}), keeps {self.utility:.1f}% of raw matches"


def look(defense: str) -> tuple[str, str]:
    """Marker (as matplotlib names it) and colour of a family."""
    return LOOKS.get(defense, _OTHER)


def number_schemes(rows: Iterable[AuditRow]) -> dict[str, int]:
    """The number of each scheme in figures, over all datasets."""
    return {scheme: number for number, scheme in enumerate(dict.fromkeys(row.scheme for row in rows), start=1)}


def frontier_points(rows: Sequence[AuditRow], sides: str) -> list[Point]:
    """The schemes of one dataset that have both figures.

    One is `optimal` when no other leaks less and keeps as much, or keeps more and leaks as little.
    """
    measured = [(row, row.best.below_near, kept) for row in rows if row.best and (kept := _utility(row, sides))]

    def beaten(leakage: Spread, utility: Spread) -> bool:
        return any(
            other.mean <= leakage.mean
            and kept.mean >= utility.mean
            and (other.mean, kept.mean) != (leakage.mean, utility.mean)
            for _, other, kept in measured
        )

    return [
        Point(
            row,
            100 * leakage.mean,
            100 * utility.mean,
            (100 * leakage.low, 100 * utility.low),
            (100 * leakage.high, 100 * utility.high),
            not beaten(leakage, utility),
        )
        for row, leakage, utility in measured
    ]


def mean_chance(rows: Iterable[AuditRow]) -> float | None:
    """Percent of guesses below NEAR without any knowledge, over the schemes where chance was tried."""
    shares = [row.chance.below_near.mean for row in rows if row.chance]
    return 100 * fmean(shares) if shares else None


def _utility(row: AuditRow, sides: str) -> Spread | None:
    return row.utility_one if sides == "one" else row.utility_both


class Scale:
    """From percent to the coordinates of the SVG."""

    def __init__(self, points: Sequence[Point]) -> None:
        highest = max((point.high[1] for point in points), default=100)
        self.top = 100 if highest <= 101 else 20 * (int(highest) // 20 + 1)

    def across(self, leakage: float) -> float:
        """From the left."""
        return AREA.left + _MARGIN + leakage / 100 * (AREA.width - 2 * _MARGIN)

    def down(self, utility: float) -> float:
        """From the top."""
        return AREA.top + AREA.height - _MARGIN - utility / self.top * (AREA.height - 2 * _MARGIN)

    def at(self, leakage: float, utility: float) -> tuple[float, float]:
        """Both."""
        return self.across(leakage), self.down(utility)


def staircase(points: Sequence[Point]) -> list[tuple[float, float]]:
    """The corners of the step line through the optimal points: the most that is kept for a leakage, in percent."""
    stairs = sorted({(point.leakage, point.utility) for point in points if point.optimal})
    if not stairs:
        return []
    corners = [(stairs[0][0], 0.0), stairs[0]]
    for (_, before), after in pairwise(stairs):
        corners += [(after[0], before), after]
    return [*corners, (100.0, stairs[-1][1])]


def in_order(points: Sequence[Point]) -> list[Point]:
    """Optimal points first, of them raw features, then by leakage: the order in which names find their place."""
    return sorted(points, key=lambda point: (not point.optimal, point.row.defense != "identity", point.leakage))


def place_labels(points: Sequence[Point], numbers: dict[str, int], scale: Scale) -> list[tuple[str, Box]]:
    """A label of each point, in order, and where it goes.

    Optimal points are named where there is room; the others, and these in a crowd, have their number.
    """
    corners = [scale.at(*corner) for corner in staircase(points)]
    line = [Box(min(a, c) - 1, min(b, d) - 1, abs(a - c) + 2, abs(b - d) + 2) for (a, b), (c, d) in pairwise(corners)]
    places = [scale.at(point.leakage, point.utility) for point in points]
    hints = Box(AREA.left, AREA.top + AREA.height - _LINE, AREA.width, _LINE)
    labeller = Labeller(AREA, places, [*line, hints])
    labels: dict[int, tuple[str, Box]] = {}
    for named in (True, False):
        for index, (point, place) in enumerate(zip(points, places, strict=True)):
            number = str(numbers[point.row.scheme])
            label = f"{number} {point.row.scheme}" if named else number
            width = _LETTER * len(label) + 2
            if named and point.optimal and (box := labeller.place_if_free(place, width, _LINE)):
                labels[index] = label, box
            elif not named and index not in labels:
                labels[index] = label, labeller.place(place, width, _LINE)
    return [labels[index] for index in range(len(points))]


def leader(point: Point, box: Box, scale: Scale) -> tuple[float, float] | None:
    """Where a thin line to a label ends that had to go farther away; None where it is near."""
    x, y = scale.at(point.leakage, point.utility)
    end = min(max(x, box.left), box.left + box.width), min(max(y, box.top + 2), box.top + box.height - 2)
    return end if abs(end[0] - x) + abs(end[1] - y) > _NEARBY else None


def draw_frontier(rows: Sequence[AuditRow], path: str | Path, title: str = "") -> None:
    """Write both panels of every dataset as a PNG to `path`.

    Raises MissingExtraError without matplotlib, InputError when there is nothing to draw.
    """
    datasets = list(dict.fromkeys(row.dataset for row in rows))
    if not datasets:
        raise InputError("there is no result to draw")
    numbers = number_schemes(rows)
    height = HEIGHT / _PIXELS_AN_INCH
    figure = blank_figure(2 * WIDTH / _PIXELS_AN_INCH + 2.1, height * len(datasets) + 0.4)
    panels = figure.subplots(len(datasets), len(PANELS), squeeze=False)
    for line, dataset in zip(panels, datasets, strict=True):
        chosen = [row for row in rows if row.dataset == dataset]
        for panel, sides in zip(line, PANELS, strict=True):
            _panel(panel, chosen, sides, numbers)
            where = f"{dataset}: " if len(datasets) > 1 else ""
            panel.set_title(where + PANELS[sides], fontsize=9, loc="left")
    figure.legend(handles=_handles(rows, numbers), loc="outside right center", frameon=False, fontsize=7.5)
    write_figure(figure, path, title)


def _panel(panel: "Axes", rows: Sequence[AuditRow], sides: str, numbers: dict[str, int]) -> None:
    from matplotlib.patheffects import withStroke

    points = in_order(frontier_points(rows, sides))
    scale, chance = Scale(points), mean_chance(rows)
    if stairs := staircase(points):
        panel.plot(*zip(*stairs, strict=True), color="#1d2129", linewidth=1.3, zorder=2)
    for point in points:
        x, y, (left, low), (right, high) = point.leakage, point.utility, point.low, point.high
        looks: dict[str, Any] = {"color": "#999999", "linewidth": 0.8, "zorder": 1}
        panel.plot([left, right], [y, y], **looks)
        panel.plot([x, x], [low, high], **looks)
        panel.plot(x, y, **_drawn(point.row.defense, point.optimal), zorder=3 + point.optimal, clip_on=False)
    for point, (label, box) in zip(points, place_labels(points, numbers, scale), strict=True):
        middle = _percent(*box.middle, scale)
        looks = {"fontsize": 7.2, "ha": "center", "va": "center", "weight": "bold" if point.optimal else "normal"}
        line = {"arrowstyle": "-", "color": "#999999", "linewidth": 0.6, "shrinkA": 0, "shrinkB": 0}
        far = leader(point, box, scale) is not None
        text = panel.annotate(label, (point.leakage, point.utility), middle, arrowprops=line if far else None, **looks)
        text.set_path_effects([withStroke(linewidth=2, foreground="white")])
    if chance is not None:
        panel.axvline(chance, color="#555555", linestyle=":", linewidth=1.2, zorder=1)
    panel.axhline(100, color="#555555", linestyle="--", linewidth=0.8, zorder=1)
    panel.set_xlim(*(_percent(x, 0, scale)[0] for x in (AREA.left, AREA.left + AREA.width)))
    panel.set_ylim(*(_percent(0, y, scale)[1] for y in (AREA.top + AREA.height, AREA.top)))
    panel.set_xlabel(f"best attack: features guessed nearer than {NEAR:g}, % (dotted: chance)", fontsize=8.5)
    panel.set_ylabel("right matches kept, % of raw", fontsize=8.5)
    quiet(panel)


def _percent(x: float, y: float, scale: Scale) -> tuple[float, float]:
    """Back from the coordinates of the SVG."""
    (left, bottom), (right, top) = scale.at(0, 0), scale.at(100, scale.top)
    return 100 * (x - left) / (right - left), scale.top * (bottom - y) / (bottom - top)


def _drawn(defense: str, optimal: bool) -> dict[str, Any]:
    marker, colour = look(defense)
    filling = colour if optimal else "white"
    return {"marker": marker, "color": colour, "markerfacecolor": filling, "markersize": 6.5, "linestyle": "none"}


def _handles(rows: Sequence[AuditRow], numbers: dict[str, int]) -> list[Any]:
    from matplotlib.lines import Line2D

    families = {row.scheme: row.defense for row in rows}
    return [
        Line2D([], [], label=f"{number}  {scheme}", **_drawn(families[scheme], False))
        for scheme, number in numbers.items()
    ]
