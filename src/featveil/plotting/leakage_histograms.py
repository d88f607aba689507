"""Distances of guesses and hidden descriptors as a PNG: one panel for each attack, chance in grey behind it."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from featveil.core import InputError
from featveil.metrics import BIN, BINS, CLOSE, NEAR
from featveil.plotting.figures import blank_figure, quiet, write_figure
from featveil.plotting.leakage_tables import FLOOR, LeakageRow

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_COLUMNS = 4
_COLOURS = {"attack": "#c0392b", "chance": "#b8bfc6"}


def draw_leakage(rows: Sequence[LeakageRow], path: str | Path, title: str = "") -> None:
    """Write the distances of each attack as a PNG, those of chance in grey behind them.

    Raises MissingExtraError without matplotlib, InputError when there is nothing to draw.
    """
    if not rows:
        raise InputError("there is no result to draw")
    floors = {row.scheme: row for row in rows if row.attack == FLOOR}
    drawn = [row for row in rows if row.attack != FLOOR] or list(rows)
    columns = min(_COLUMNS, len(drawn))
    lines = math.ceil(len(drawn) / columns)
    figure = blank_figure(max(3.1 * columns + 1.4, 6.2), 2.4 * lines + 1.1)
    panels = list(figure.subplots(lines, columns, sharex=True, squeeze=False).flat)
    several = len({row.scheme for row in drawn}) > 1
    for panel, row in zip(panels, drawn, strict=False):
        _panel(panel, row, floors.get(row.scheme))
        _name(panel, row, several)
    for panel in panels[len(drawn) :]:
        panel.set_visible(False)
    panels[0].set_xlim(0, BIN * _used(rows))
    for place, panel in enumerate(panels[: len(drawn)]):
        panel.tick_params(labelbottom=place + columns >= len(drawn))
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside right center", frameon=False, fontsize=9)
    figure.supxlabel("distance of guess and hidden descriptor, as a share of its norm", fontsize=9)
    figure.supylabel("features (%)", fontsize=9)
    write_figure(figure, path, title if several or not title else f"{title}\n{drawn[0].title}")


def _panel(panel: "Axes", row: LeakageRow, floor: LeakageRow | None) -> None:
    edges = [BIN * place for place in range(BINS + 1)]
    if floor is not None:
        panel.stairs(_percent(floor), edges, fill=True, color=_COLOURS["chance"], label="chance")
    if row is not floor:
        looks: dict[str, Any] = {"color": _COLOURS["attack"], "linewidth": 1.6}
        panel.stairs(_percent(row), edges, label="attack", **looks)
    for mark, style in ((CLOSE, "--"), (NEAR, ":")):
        panel.axvline(mark, color="#333333", linestyle=style, linewidth=1, label=f"distance {mark:g}")
    panel.set_ylim(bottom=0)
    quiet(panel)


def _name(panel: "Axes", row: LeakageRow, with_scheme: bool) -> None:
    """The attack in bold, below it in small letters what it recovered and, where they differ, the scheme."""
    shares = (row.below_close, f"below {CLOSE:g}"), (row.below_near, f"below {NEAR:g}"), (row.exact, "exact")
    lines = [row.title] if with_scheme else []
    lines.append(", ".join(f"{100 * share:.0f} % {name}" for share, name in shares))
    panel.set_title(row.attack, loc="left", fontsize=10, fontweight="bold", pad=6 + 11 * len(lines))
    panel.text(0, 1.03, "\n".join(lines), transform=panel.transAxes, va="bottom", fontsize=8)


def _percent(row: LeakageRow) -> list[float]:
    return [100 * count / max(sum(row.histogram), 1) for count in row.histogram]


def _used(rows: Sequence[LeakageRow]) -> int:
    """Bins to show: up to the last one that holds anything, and a few at least."""
    last = max(place for row in rows for place, count in enumerate(row.histogram) if count or place == 0)
    return min(max(last + 2, 24), BINS)
