"""A panel of the privacy-utility frontier as an inline SVG, written by hand: the page of an audit needs no matplotlib.

Colours and lines are classes of the page, so that they follow light, dark and print.
"""

import html
from collections.abc import Iterable, Sequence

from featveil.audit.frontier import (
    AREA,
    HEIGHT,
    LOOKS,
    PANELS,
    WIDTH,
    Point,
    Scale,
    frontier_points,
    in_order,
    leader,
    look,
    mean_chance,
    place_labels,
    staircase,
)
from featveil.audit.rows import AuditRow
from featveil.plotting.labels import Box

_SHAPES = {
    "X": "M-5-3-3-5 0-2 3-5 5-3 2 0 5 3 3 5 0 2-3 5-5 3-2 0Z",
    "o": "M-5 0a5 5 0 1 0 10 0a5 5 0 1 0-10 0Z",
    "D": "M0-6 6 0 0 6-6 0Z",
    "^": "M0-6 6 5H-6Z",
    "v": "M0 6 6-5H-6Z",
    "p": "M0-6 5.7-1.9 3.5 4.9H-3.5L-5.7-1.9Z",
    "s": "M-4.5-4.5H4.5V4.5H-4.5Z",
    "P": "M-2-5.5H2V-2H5.5V2H2V5.5H-2V2H-5.5V-2H-2Z",
}


def frontier_svg(rows: Sequence[AuditRow], sides: str, numbers: dict[str, int], name: str) -> str:
    """One panel for the rows of one dataset as an inline SVG; `name` makes its ids unique in the page."""
    points = in_order(frontier_points(rows, sides))
    scale, chance = Scale(points), mean_chance(rows)
    labels = place_labels(points, numbers, scale)
    told = (
        "; ".join(point.text + (" (on the frontier)" if point.optimal else "") for point in points) or "no result yet"
    )
    parts = [
        f'<svg class="frontier" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-labelledby="{name}-t {name}-d">',
        f'<title id="{name}-t">{PANELS[sides]}: share of raw matches kept over share of features leaked</title>',
        f'<desc id="{name}-d">{html.escape(told)}.</desc>',
        *_axes(scale, chance),
        _path([scale.at(*corner) for corner in staircase(points)], "stairs"),
        *_hints(scale, chance),
        *(_whiskers(point, scale) for point in points),
        *(_leader(point, box, scale) for point, (_, box) in zip(points, labels, strict=True)),
        *(_label(point, label, box, scale) for point, (label, box) in zip(points, labels, strict=True)),
        *(_marker(point, scale) for point in reversed(points)),
        "</svg>",
    ]
    return "\n".join(part for part in parts if part)


def marker_svg(defense: str, optimal: bool) -> str:
    """The marker of a family by itself, for keys and headings."""
    return f'<svg class="mark" viewBox="-8 -8 16 16" aria-hidden="true">{_shape(defense, optimal)}</svg>'


def _shape(defense: str, optimal: bool, where: str = "") -> str:
    family = defense if defense in LOOKS else "other"
    filled = "full" if optimal else "hollow"
    return f'<path class="{family} {filled}" d="{_SHAPES[look(defense)[0]]}"{where}/>'


def _axes(scale: Scale, chance: float | None) -> Iterable[str]:
    left, right, low = scale.across(0), scale.across(100), AREA.top + AREA.height
    for percent in range(0, 101, 20):
        x = scale.across(percent)
        yield f'<path class="grid" d="M{x:.1f} {AREA.top}V{low}"/>'
        yield f'<text class="tick" x="{x:.1f}" y="{low + 16}">{percent}</text>'
    for percent in range(0, scale.top + 1, 20):
        y = scale.down(percent)
        kind = "grid raw" if percent == 100 else "grid"
        yield f'<path class="{kind}" d="M{AREA.left} {y:.1f}H{AREA.left + AREA.width}"/>'
        yield f'<text class="tick side" x="{AREA.left - 6}" y="{y + 4:.1f}">{percent}</text>'
    if chance is not None:
        x = scale.across(chance)
        yield f'<path class="chance" d="M{x:.1f} {AREA.top}V{low}"/>'
    across, height, named = (left + right) / 2, AREA.top + AREA.height / 2, "best attack, % of features leaked"
    yield f'<text class="axis" x="{across:.1f}" y="{HEIGHT - 8}">{named} (left is better)</text>'
    yield f'<text class="axis" transform="translate(12 {height:.1f}) rotate(-90)">matches kept, % of raw</text>'


def _hints(scale: Scale, chance: float | None) -> Iterable[str]:
    """What both ends of the leakage mean."""
    bottom = scale.down(0) + 5
    if chance is not None:
        left = scale.across(chance) + 4
        yield f'<text class="hint start" x="{left:.1f}" y="{bottom:.1f}">chance {chance:.1f}%</text>'
    yield f'<text class="hint end" x="{scale.across(100):.1f}" y="{bottom:.1f}">no privacy</text>'


def _path(corners: Sequence[tuple[float, float]], kind: str) -> str:
    if not corners:
        return ""
    return f'<path class="{kind}" d="M{" ".join(f"{x:.1f} {y:.1f}" for x, y in corners)}"/>'


def _whiskers(point: Point, scale: Scale) -> str:
    """The range over seeds; nothing where there is one seed."""
    if point.low == point.high:
        return ""
    (left, bottom), (right, top) = scale.at(*point.low), scale.at(*point.high)
    x, y = scale.at(point.leakage, point.utility)
    return f'<path class="range" d="M{left:.1f} {y:.1f}H{right:.1f}M{x:.1f} {bottom:.1f}V{top:.1f}"/>'


def _leader(point: Point, box: Box, scale: Scale) -> str:
    end = leader(point, box, scale)
    return "" if end is None else _path([scale.at(point.leakage, point.utility), end], "leader")


def _label(point: Point, label: str, box: Box, scale: Scale) -> str:
    """Anchored where it is next to the point, because letters differ in width from what was reckoned with."""
    x, y = scale.across(point.leakage), box.top + box.height / 2 + 4
    if box.left >= x:
        anchor, at = "start", box.left + 1
    elif box.left + box.width <= x:
        anchor, at = "end", box.left + box.width - 1
    else:
        anchor, at = "middle", box.left + box.width / 2
    kind = "name" if point.optimal else "number"
    return f'<text class="{kind} {anchor}" x="{at:.1f}" y="{y:.1f}">{html.escape(label)}</text>'


def _marker(point: Point, scale: Scale) -> str:
    x, y = scale.at(point.leakage, point.utility)
    shape = _shape(point.row.defense, point.optimal, f' transform="translate({x:.1f} {y:.1f})"')
    return f"<g><title>{html.escape(point.text)}</title>{shape}</g>"
