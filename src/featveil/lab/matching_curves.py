"""Mean matching accuracy over the threshold, as a PNG: one panel for each strategy and distance."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from featveil.core import InputError
from featveil.lab.matching_report import MatchingRow
from featveil.metrics import THRESHOLDS
from featveil.plotting.figures import LEVELS, MARKERS, blank_figure, quiet, shades, write_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_RAW: dict[str, Any] = {"color": LEVELS["raw"], "linestyle": "--", "linewidth": 1.4, "label": "raw"}


def draw_matching_curves(rows: Sequence[MatchingRow], path: str | Path, title: str = "") -> None:
    """Write the curves of `rows` as a PNG to `path`.

    Raises MissingExtraError without matplotlib, InputError when there is nothing to draw.
    """
    if not rows:
        raise InputError("there is no result to draw")
    raw = next((row for row in rows if row.strategy == "raw"), None)
    private = [row for row in rows if row.strategy != "raw"]
    strategies = list(dict.fromkeys(row.strategy for row in private)) or ["raw"]
    distances = list(dict.fromkeys(row.distance for row in private)) or ["point-to-point"]
    figure = blank_figure(2.5 * len(strategies) + 1.6, 2.6 * len(distances) + 1.1)
    panels = figure.subplots(len(distances), len(strategies), sharex=True, sharey=True, squeeze=False)
    styles = _styles(sorted({row.dimension for row in private}))
    for line, distance in enumerate(distances):
        for column, strategy in enumerate(strategies):
            chosen = [row for row in private if (row.strategy, row.distance) == (strategy, distance)]
            _panel(panels[line, column], raw, chosen, styles)
            panels[line, column].set_title(strategy if line == 0 else "", fontsize=11, fontweight="bold")
        panels[line, 0].set_ylabel(f"{distance}\nmean matching accuracy")
    _legend(figure, panels)
    write_figure(figure, path, title)


def _styles(dimensions: Sequence[int]) -> dict[int, dict[str, Any]]:
    """Colour, marker and label of each dimension, the same in every panel."""
    return {
        dimension: {"color": colour, "marker": MARKERS[place % len(MARKERS)], "label": f"m = {dimension}"}
        for place, (dimension, colour) in enumerate(zip(dimensions, shades(len(dimensions)), strict=True))
    }


def _panel(
    panel: "Axes", raw: MatchingRow | None, rows: Sequence[MatchingRow], styles: dict[int, dict[str, Any]]
) -> None:
    for row in rows:
        panel.plot(THRESHOLDS, row.accuracy, linewidth=1.6, markersize=4, **styles[row.dimension])
    if raw is not None:
        # Drawn last: a private curve that equals it must not hide it.
        panel.plot(THRESHOLDS, raw.accuracy, **_RAW)
    panel.set_xlim(THRESHOLDS[0] - 0.3, THRESHOLDS[-1] + 0.3)
    panel.set_ylim(-0.02, 1)
    panel.set_xticks(THRESHOLDS)
    quiet(panel)


def _legend(figure: "Figure", panels: Any) -> None:
    entries: dict[str, Any] = {}
    for panel in panels.flat:
        handles, labels = panel.get_legend_handles_labels()
        entries |= dict(zip(labels, handles, strict=True))
    names = sorted(entries, key=lambda label: (label != "raw", int(label.split()[-1]) if " " in label else 0))
    handles = [entries[name] for name in names]
    figure.legend(handles, names, loc="outside right upper", frameon=False, title="descriptors")
    figure.supxlabel("threshold (px)", fontsize=10)
