"""The privacy-utility frontier of an audit: leakage of the best attack against utility.

There is one for all features and, where private content was pasted into photographs, one for that content alone.

A panel is drawn once, as lines, texts and marks at their places. The page writes them as an SVG (audit_frontier.html),
for which it needs no matplotlib, and `draw_frontier` as a PNG.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any, Literal

from featveil.audit.rows import AuditRow, Spread, TrialRow
from featveil.core import InputError
from featveil.plotting.figures import blank_figure, write_figure
from featveil.plotting.labels import NEARBY, Box, Labeller

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Leak = Literal["all", "private"]  # features that leak: all that are sent, or those of private content

PANELS = {"one": "Private query, raw map", "both": "Both private"}
WIDTH, HEIGHT = 440, 400
_AREA = Box(44, 12, WIDTH - 56, HEIGHT - 58)  # where points are drawn
_MARGIN = 9  # between the frame and 0 or 100 %
_LETTER, _LINE = 7.1, 15  # size of a label's letters
_LEAKS: dict[Leak, str] = {
    "all": "best attack, % of features leaked (left is better)",
    "private": "best attack, % of private content recovered (left is better)",
}
_SIDES = 24  # of what stands for a circle

Corner = tuple[float, float]


def _corners(text: str) -> tuple[Corner, ...]:
    """x,y x,y ... as corners around the middle of a mark, y downwards."""
    pairs = [corner.split(",") for corner in text.split()]
    return tuple((float(x), float(y)) for x, y in pairs)


_CIRCLE = tuple(
    (round(5 * math.cos(math.tau * k / _SIDES), 2), round(5 * math.sin(math.tau * k / _SIDES), 2))
    for k in range(_SIDES)
)
# Colours that colour-blind readers can tell apart; shapes and filling say the same without any colour.
LOOKS: dict[str, tuple[str, tuple[Corner, ...]]] = {
    "identity": ("#6b6b6b", _corners("-5,-3 -3,-5 0,-2 3,-5 5,-3 2,0 5,3 3,5 0,2 -3,5 -5,3 -2,0")),
    "gate": ("#b3123a", _corners("0,-7 1.8,-2.3 6.7,-2.2 2.8,0.9 4.1,5.7 0,3 -4.1,5.7 -2.8,0.9 -6.7,-2.2 -1.8,-2.3")),
    "lifting": ("#0072b2", _CIRCLE),
    "hardened": ("#c44e00", _corners("0,-6 6,0 0,6 -6,0")),
    "concealer": ("#56449a", _corners("0,-6 5.7,-1.9 3.5,4.9 -3.5,4.9 -5.7,-1.9")),
    "subset": ("#008a63", _corners("0,-6 6,5 -6,5")),
    "metric": ("#a8478a", _corners("0,6 6,-5 -6,-5")),
    "naive": ("#8a6d00", _corners("-4.5,-4.5 4.5,-4.5 4.5,4.5 -4.5,4.5")),
}
OTHER = "other"  # family of defenses that are not in LOOKS
_OTHER = ("#444444", _corners("-2,-5.5 2,-5.5 2,-2 5.5,-2 5.5,2 2,2 2,5.5 -2,5.5 -2,2 -5.5,2 -5.5,-2 -2,-2"))

# How the kinds of lines and texts look in the PNG; on the page they are classes, which follow light, dark and print.
_SOFT, _INK = "#5c6470", "#1d2129"
_LINES: dict[str, dict[str, Any]] = {
    "grid": {"color": "#e2e0da", "linewidth": 0.8},
    "grid raw": {"color": _SOFT, "linewidth": 0.8, "linestyle": (0, (5, 4))},
    "chance": {"color": _SOFT, "linewidth": 1.2, "linestyle": ":"},
    "stairs": {"color": _INK, "linewidth": 1.4},
    "range": {"color": "#999999", "linewidth": 0.8},
    "leader": {"color": _SOFT, "linewidth": 0.6},
}
_TEXTS: dict[str, dict[str, Any]] = {
    "tick": {"color": _SOFT},
    "axis": {"color": _SOFT},
    "hint": {"color": _SOFT, "style": "italic"},
    "name": {"color": _INK, "weight": "bold"},
    "number": {"color": _SOFT},
}
_ANCHORS = {"start": "left", "middle": "center", "end": "right"}
_PIXELS_AN_INCH = 92  # of a panel
_LETTERS = 8.6  # points: 11 pixels, as wide as those of the page
_CHANCE, _HINT = 92, 80  # percent where chance is named, few schemes are there; pixels of what names an end
_KEY, _HEAD = 200, 26  # pixels beside the panels for the key, and above each for its title


@dataclass(frozen=True)
class Point:
    """A scheme in a panel: percent of features that leak to an attack, percent of raw matches kept."""

    row: AuditRow
    attack: str
    leak: Leak
    leakage: float
    utility: float
    low: tuple[float, float]
    high: tuple[float, float]
    optimal: bool

    @property
    def text(self) -> str:
        """Its figures in words."""
        what = " of the private content" if self.leak == "private" else ""
        leaks = f"{self.row.scheme}: leaks {self.leakage:.1f}%{what} ({self.attack})"
        return f"{leaks}, keeps {self.utility:.1f}% of raw matches"


@dataclass(frozen=True)
class Line:
    """A line through `corners`; `kind` is one of those of the page's style."""

    kind: str
    corners: tuple[Corner, ...]

    @property
    def path(self) -> str:
        """That of an SVG."""
        return "M" + " ".join(f"{x:.1f} {y:.1f}" for x, y in self.corners)


@dataclass(frozen=True)
class Text:
    """Words at a place, which is their start, middle or end; `upright` ones are turned."""

    kind: str
    words: str
    x: float
    y: float
    anchor: Literal["start", "middle", "end"] = "middle"
    upright: bool = False


@dataclass(frozen=True)
class Mark:
    """The mark of a family of defenses, filled for the optimal ones; `text` says what it stands for."""

    family: str
    optimal: bool
    x: float = 0
    y: float = 0
    text: str = ""

    @classmethod
    def of(cls, defense: str, optimal: bool, text: str = "") -> "Mark":
        """That of a defense by itself, for keys and headings."""
        return cls(family(defense), optimal, text=text)

    @property
    def path(self) -> str:
        """That of an SVG, around 0."""
        return "M" + " ".join(f"{x:g} {y:g}" for x, y in look(self.family)[1]) + "Z"


@dataclass(frozen=True)
class Panel:
    """A panel for the rows of one dataset, WIDTH by HEIGHT, y downwards: lines below texts below marks."""

    title: str
    text: str
    lines: tuple[Line, ...]
    texts: tuple[Text, ...]
    marks: tuple[Mark, ...]


def look(defense: str) -> tuple[str, tuple[Corner, ...]]:
    """Colour and corners of the mark of a defense."""
    return LOOKS.get(defense, _OTHER)


def family(defense: str) -> str:
    """The family that the marks of a defense are drawn as."""
    return defense if defense in LOOKS else OTHER


def number_schemes(rows: Iterable[AuditRow]) -> dict[str, int]:
    """The number of each scheme in figures, over all datasets."""
    return {scheme: number for number, scheme in enumerate(dict.fromkeys(row.scheme for row in rows), start=1)}


def optimal_schemes(rows: Sequence[AuditRow]) -> set[str]:
    """Schemes of one dataset that are on the frontier of either panel."""
    return {point.row.scheme for sides in PANELS for point in frontier_points(rows, sides) if point.optimal}


def has_private(rows: Iterable[AuditRow]) -> bool:
    """Whether private content was pasted into photographs and attacked."""
    return any(row.private_best is not None for row in rows)


def frontier_points(rows: Sequence[AuditRow], sides: str, leak: Leak = "all") -> list[Point]:
    """The schemes of one dataset that have both figures.

    One is `optimal` when no other leaks less and keeps as much, or keeps more and leaks as little.
    """
    measured = [
        (row, leakage, kept)
        for row in rows
        if (leakage := _leakage(_best(row, leak), leak)) and (kept := _utility(row, sides))
    ]

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
            best.attack if (best := _best(row, leak)) else "",
            leak,
            100 * leakage.mean,
            100 * utility.mean,
            (100 * leakage.low, 100 * utility.low),
            (100 * leakage.high, 100 * utility.high),
            not beaten(leakage, utility),
        )
        for row, leakage, utility in measured
    ]


def draw_panel(rows: Sequence[AuditRow], sides: str, numbers: dict[str, int], leak: Leak = "all") -> Panel:
    """One panel for the rows of one dataset."""
    # Optimal points first, of them raw features, then by leakage: the order in which names find their place.
    points = sorted(
        frontier_points(rows, sides, leak),
        key=lambda point: (not point.optimal, point.row.defense != "identity", point.leakage),
    )
    scale, chance = _Scale(points), _mean_chance(rows, leak)
    stairs = tuple(scale.at(*corner) for corner in staircase(points))
    labels = _place_labels(points, numbers, scale, stairs)
    lines = [*_grid(scale, chance), *([Line("stairs", stairs)] if stairs else [])]
    texts = [*_axes(scale, chance, leak)]
    for point, (label, box) in zip(points, labels, strict=True):
        lines += [*_ranges(point, scale), *_leader(point, box, scale)]
        texts.append(_label(point, label, box, scale))
    marks = [
        Mark(family(point.row.defense), point.optimal, *scale.at(point.leakage, point.utility), point.text)
        for point in reversed(points)
    ]
    text = "; ".join(point.text + (" (on the frontier)" if point.optimal else "") for point in points)
    return Panel(PANELS[sides], text or "no result yet", tuple(lines), tuple(texts), tuple(marks))


def staircase(points: Sequence[Point]) -> list[Corner]:
    """The corners of the step line through the optimal points: the most that is kept for a leakage, in percent."""
    stairs = sorted({(point.leakage, point.utility) for point in points if point.optimal})
    if not stairs:
        return []
    corners = [(stairs[0][0], 0.0), stairs[0]]
    for (_, before), after in pairwise(stairs):
        corners += [(after[0], before), after]
    return [*corners, (100.0, stairs[-1][1])]


def draw_frontier(rows: Sequence[AuditRow], path: str | Path, title: str = "", leak: Leak = "all") -> None:
    """Write both panels of every dataset as a PNG to `path`.

    Raises MissingExtraError without matplotlib, InputError when there is nothing to draw.
    """
    datasets = list(dict.fromkeys(row.dataset for row in rows))
    if not datasets:
        raise InputError("there is no result to draw")
    numbers = number_schemes(rows)
    width, height = len(PANELS) * WIDTH + _KEY, len(datasets) * (HEIGHT + _HEAD) + _HEAD
    figure = blank_figure(width / _PIXELS_AN_INCH, height / _PIXELS_AN_INCH)
    figure.set_layout_engine("none")  # panels have their own margins
    for line, dataset in enumerate(datasets):
        chosen = [row for row in rows if row.dataset == dataset]
        for place, sides in enumerate(PANELS):
            bottom = height - _HEAD - (line + 1) * (HEIGHT + _HEAD)
            box = place * WIDTH / width, bottom / height, WIDTH / width, HEIGHT / height
            panel = draw_panel(chosen, sides, numbers, leak)
            where = f"{dataset}: " if len(datasets) > 1 else ""
            _plot(figure.add_axes(box), panel, where + panel.title)
    anchor = (1 - _KEY / width, 0.5)
    figure.legend(
        handles=_handles(rows, numbers), loc="center left", bbox_to_anchor=anchor, frameon=False, fontsize=7.5
    )
    write_figure(figure, path, title)


def _plot(axes: "Axes", panel: Panel, title: str) -> None:
    """The panel by matplotlib, in its own coordinates."""
    from matplotlib.patheffects import withStroke

    axes.set(xlim=(0, WIDTH), ylim=(HEIGHT, 0))
    axes.set_axis_off()
    axes.text(_AREA.left, 0, title, fontsize=9.5, va="bottom")
    for line in panel.lines:
        axes.plot(*zip(*line.corners, strict=True), **_LINES[line.kind], zorder=1)
    for text in panel.texts:
        looks = {"ha": _ANCHORS[text.anchor], "va": "baseline", "fontsize": _LETTERS, **_TEXTS[text.kind]}
        looks |= {"rotation": 90, "va": "center"} if text.upright else {}
        drawn = axes.text(text.x, text.y, text.words, **looks, zorder=2)
        if text.kind in ("name", "number", "hint"):
            drawn.set_path_effects([withStroke(linewidth=2, foreground="white")])
    for mark in panel.marks:
        axes.plot(mark.x, mark.y, **_drawn(mark.family, mark.optimal), zorder=3, clip_on=False)


def _drawn(defense: str, optimal: bool) -> dict[str, Any]:
    colour, corners = look(defense)
    size = 2 * max(max(abs(x), abs(y)) for x, y in corners)  # what matplotlib makes the mark's size of
    upwards = [(x, -y) for x, y in (*corners, corners[0])]
    return {
        "marker": upwards,
        "markersize": size * 72 / _PIXELS_AN_INCH,
        "color": colour,
        "markerfacecolor": colour if optimal else "white",
        "linestyle": "none",
    }


def _handles(rows: Sequence[AuditRow], numbers: dict[str, int]) -> list[Any]:
    from matplotlib.lines import Line2D

    families = {row.scheme: row.defense for row in rows}
    return [
        Line2D([], [], label=f"{number}  {scheme}", **_drawn(families[scheme], False))
        for scheme, number in numbers.items()
    ]


class _Scale:
    """From percent to the coordinates of a panel."""

    def __init__(self, points: Sequence[Point]) -> None:
        highest = max((point.high[1] for point in points), default=100)
        self.top = 100 if highest <= 101 else 20 * (int(highest) // 20 + 1)

    def across(self, leakage: float) -> float:
        """From the left."""
        return _AREA.left + _MARGIN + leakage / 100 * (_AREA.width - 2 * _MARGIN)

    def down(self, utility: float) -> float:
        """From the top."""
        return _AREA.top + _AREA.height - _MARGIN - utility / self.top * (_AREA.height - 2 * _MARGIN)

    def at(self, leakage: float, utility: float) -> Corner:
        """Both."""
        return self.across(leakage), self.down(utility)


def _best(row: AuditRow, leak: Leak) -> TrialRow | None:
    return row.best if leak == "all" else row.private_best


def _leakage(trial: TrialRow | None, leak: Leak) -> Spread | None:
    """What a trial gets back, if it was run, and of private content if that was there."""
    if trial is None or leak == "all":
        return None if trial is None else trial.below_near
    return None if trial.private is None else trial.private.near


def _mean_chance(rows: Iterable[AuditRow], leak: Leak) -> float | None:
    """Percent of guesses below NEAR without any knowledge, over the schemes where chance was tried."""
    shares = [leakage.mean for row in rows if (leakage := _leakage(row.chance, leak))]
    return 100 * fmean(shares) if shares else None


def _utility(row: AuditRow, sides: str) -> Spread | None:
    return row.utility_one if sides == "one" else row.utility_both


def _grid(scale: _Scale, chance: float | None) -> Iterator[Line]:
    top, bottom = _AREA.top, _AREA.top + _AREA.height
    for percent in range(0, 101, 20):
        yield Line("grid", ((scale.across(percent), top), (scale.across(percent), bottom)))
    for percent in range(0, scale.top + 1, 20):
        y = scale.down(percent)
        yield Line("grid raw" if percent == 100 else "grid", ((_AREA.left, y), (_AREA.left + _AREA.width, y)))
    if chance is not None:
        yield Line("chance", ((scale.across(chance), top), (scale.across(chance), bottom)))


def _axes(scale: _Scale, chance: float | None, leak: Leak) -> Iterator[Text]:
    """Numbers and names of the axes, and what both ends of the leakage mean."""
    bottom, left, right = _AREA.top + _AREA.height, scale.across(0), scale.across(100)
    for percent in range(0, 101, 20):
        yield Text("tick", str(percent), scale.across(percent), bottom + 16)
    for percent in range(0, scale.top + 1, 20):
        yield Text("tick", str(percent), _AREA.left - 6, scale.down(percent) + 4, "end")
    yield Text("axis", _LEAKS[leak], (left + right) / 2, HEIGHT - 8)
    yield Text("axis", "matches kept, % of raw", 12, _AREA.top + _AREA.height / 2, upright=True)
    if chance is not None:
        yield Text("hint", f"chance {chance:.1f}%", scale.across(chance) + 4, scale.down(_CHANCE) + 4, "start")
    yield Text("hint", "no privacy", right, scale.down(0) + 5, "end")


def _place_labels(
    points: Sequence[Point], numbers: dict[str, int], scale: _Scale, stairs: Sequence[Corner]
) -> list[tuple[str, Box]]:
    """A label of each point, in order, and where it goes.

    Optimal points are named where there is room; the others, and these in a crowd, have their number.
    """
    line = [Box(min(a, c) - 1, min(b, d) - 1, abs(a - c) + 2, abs(b - d) + 2) for (a, b), (c, d) in pairwise(stairs)]
    places = [scale.at(point.leakage, point.utility) for point in points]
    hints = (
        Box(_AREA.left, scale.down(_CHANCE) - _LINE / 2, _HINT, _LINE),
        Box(scale.across(100) - _HINT, _AREA.top + _AREA.height - _LINE, _HINT, _LINE),
    )
    labeller = Labeller(_AREA, places, [*line, *hints])
    labels: dict[int, tuple[str, Box]] = {}
    for named in (True, False):
        for index, (point, place) in enumerate(zip(points, places, strict=True)):
            number = str(numbers[point.row.scheme])
            label = f"{number} {point.row.scheme}" if named else number
            width = _LETTER * len(label) + 6
            if named and point.optimal and (box := labeller.place_if_free(place, width, _LINE)):
                labels[index] = label, box
            elif not named and index not in labels:
                labels[index] = label, labeller.place(place, width, _LINE)
    return [labels[index] for index in range(len(points))]


def _ranges(point: Point, scale: _Scale) -> Iterator[Line]:
    """The ranges over seeds; none where there is one seed."""
    if point.low != point.high:
        (left, bottom), (right, top) = scale.at(*point.low), scale.at(*point.high)
        x, y = scale.at(point.leakage, point.utility)
        yield Line("range", ((left, y), (right, y)))
        yield Line("range", ((x, bottom), (x, top)))


def _leader(point: Point, box: Box, scale: _Scale) -> Iterator[Line]:
    """A thin line to a label that had to go farther away; none where it is near."""
    x, y = scale.at(point.leakage, point.utility)
    end = min(max(x, box.left), box.left + box.width), min(max(y, box.top + 2), box.top + box.height - 2)
    if abs(end[0] - x) + abs(end[1] - y) > NEARBY:
        yield Line("leader", ((x, y), end))


def _label(point: Point, label: str, box: Box, scale: _Scale) -> Text:
    """Anchored where it is next to the point, because letters differ in width from what was reckoned with."""
    x, y, kind = scale.across(point.leakage), box.top + box.height / 2 + 4, "name" if point.optimal else "number"
    if box.left >= x:
        return Text(kind, label, box.left + 1, y, "start")
    if box.left + box.width <= x:
        return Text(kind, label, box.left + box.width - 1, y, "end")
    return Text(kind, label, box.left + box.width / 2, y)
