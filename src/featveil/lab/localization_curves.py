"""Shares of localized queries by method, and over the iterations of RANSAC, as a PNG: one column for each scene."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from featveil.core import InputError
from featveil.lab.localization_report import THRESHOLDS, LocalizationRow, threshold_label
from featveil.lab.mapping import scheme_colour, scheme_label
from featveil.plotting.figures import MARKERS, blank_figure, quiet, shades, write_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_SHOWN = THRESHOLDS[2]  # 5 cm, 0.5 degrees: looser ones hardly tell methods apart on easy scenes
_NESTED = ((THRESHOLDS[3], 0.28), (_SHOWN, 0.5), (THRESHOLDS[0], 1.0))  # bars over each other, and how opaque
_NOTE = "Bars: at the most iterations. In brackets: what the epsilon of a descriptor adds up to over an image."
_GREY = "#555555"
_STROKES = {"vocabulary": "-", "nearest": ":"}
_Method = tuple[str, str, str]


def draw_localization(rows: Sequence[LocalizationRow], path: str | Path, title: str = "") -> None:
    """Write the shares of every method, each at its most iterations, as bars to the PNG `path`.

    Below them, for methods that were run with several numbers of iterations, the share over these. Raises
    MissingExtraError without matplotlib, InputError when there is nothing to draw.
    """
    if not rows:
        raise InputError("there is no result to draw")
    scenes = list(dict.fromkeys(row.scene for row in rows))
    methods = sorted(dict.fromkeys(_method(row) for row in rows), key=_grouped(rows))
    groups = list(dict.fromkeys(method[1:] for method in methods))
    # A free line above each group is for its heading.
    places = {method: place + groups.index(method[1:]) + 1 for place, method in enumerate(methods)}
    curves = _curve_looks(rows)
    heights = [0.19 * (len(places) + len(groups)) + 0.5, *([2.2] if curves else [])]
    figure = blank_figure(7.2, sum(heights) + 0.75 + 0.09 * len(curves))
    looks: dict[str, Any] = {"squeeze": False, "sharey": "row", "gridspec_kw": {"height_ratios": heights}}
    panels = figure.subplots(len(heights), len(scenes), **looks)
    for column, scene in enumerate(scenes):
        chosen = [row for row in rows if row.scene == scene]
        panels[0, column].set_title(scene, fontsize=9, fontweight="bold")
        _bars(panels[0, column], chosen, places)
        if curves:
            _curves(panels[1, column], chosen, curves)
    _name_methods(panels[0, 0], rows, places)
    if curves:
        panels[1, 0].set_ylabel(f"within {threshold_label(_SHOWN)} (%)", fontsize=8)
    _legends(figure, panels[1, 0] if curves else None, title)
    write_figure(figure, path)


def _method(row: LocalizationRow) -> _Method:
    return row.scheme, row.map_kind, row.distance


def _grouped(rows: Sequence[LocalizationRow]) -> Any:
    """A sort key that brings methods of one map and distance together and keeps the order of the rows otherwise."""
    groups = list(dict.fromkeys((row.map_kind, row.distance) for row in rows))
    return lambda method: groups.index(method[1:])


def _bars(panel: "Axes", rows: Sequence[LocalizationRow], places: dict[_Method, int]) -> None:
    # Later ones replace earlier ones: what stays is the row with the most iterations.
    for method, row in {_method(row): row for row in sorted(rows, key=lambda row: row.iterations)}.items():
        for threshold, opacity in _NESTED:
            looks: dict[str, Any] = {"color": scheme_colour(row.scheme), "alpha": opacity, "linewidth": 0}
            panel.barh(places[method], 100 * row.within(threshold), 0.72, **looks)
    quiet(panel)
    panel.grid(visible=False, axis="y")
    panel.tick_params(axis="y", length=0)
    panel.set_xlim(0, 103)
    panel.set_xticks([0, 25, 50, 75, 100])
    panel.set_xlabel("queries (%)", fontsize=8)


def _name_methods(panel: "Axes", rows: Sequence[LocalizationRow], places: dict[_Method, int]) -> None:
    """Names of schemes at their bars, under a heading for each map and distance."""
    images = {_method(row): row.image_epsilon for row in rows}
    names = {place: scheme_label(method[0], images[method]) for method, place in places.items()}
    headings: dict[int, str] = {}
    for (_, map_kind, distance), place in places.items():
        if place - 1 not in names:
            headings[place - 1] = f"{distance}, {map_kind} map"
    shown = headings | names
    panel.set_yticks(list(shown), list(shown.values()), fontsize=7.5)
    for label in panel.get_yticklabels()[: len(headings)]:
        label.set_fontweight("bold")
    panel.set_ylim(max(names) + 0.6, -0.6)


def _curve_looks(rows: Sequence[LocalizationRow]) -> dict[_Method, dict[str, Any]]:
    """Colour, marker and label of each method that was run with several numbers of iterations."""
    images = {_method(row): row.image_epsilon for row in rows}
    tried = {method: {row.iterations for row in rows if _method(row) == method} for method in images}
    several = [method for method, found in tried.items() if len(found) > 1]
    schemes = list(dict.fromkeys(scheme for scheme, *_ in several))
    colours = shades(len(schemes))
    return {
        method: {
            "color": colours[schemes.index(method[0])],
            "marker": MARKERS[schemes.index(method[0]) % len(MARKERS)],
            "linestyle": _STROKES.get(method[2], "--"),
            "label": f"{scheme_label(method[0], images[method])}, {method[2]}",
        }
        for method in several
    }


def _curves(panel: "Axes", rows: Sequence[LocalizationRow], curves: dict[_Method, dict[str, Any]]) -> None:
    for method, looks in curves.items():
        chosen = sorted((row.iterations, 100 * row.within(_SHOWN)) for row in rows if _method(row) == method)
        if chosen:
            panel.plot(*zip(*chosen, strict=True), linewidth=1.5, markersize=4, **looks)
    quiet(panel)
    panel.set_xscale("log")
    panel.set_ylim(-3, 103)
    panel.set_xlabel("RANSAC iterations", fontsize=8)


def _legends(figure: "Figure", curves: "Axes | None", title: str) -> None:
    """What the shades of the bars mean, above them under the title; what the curves and the brackets mean, below."""
    from matplotlib.patches import Patch

    nested = [Patch(color=_GREY, alpha=opacity, linewidth=0) for _, opacity in _NESTED]
    labels = [f"within {threshold_label(threshold)}" for threshold, _ in _NESTED]
    looks: dict[str, Any] = {"frameon": False, "fontsize": 8, "title_fontsize": 11}
    figure.legend(nested, labels, loc="outside upper center", ncols=3, title=title or None, **looks)
    handles, names = ([], []) if curves is None else curves.get_legend_handles_labels()
    looks |= {"title_fontsize": 8}
    figure.legend(handles, names, loc="outside lower center", ncols=2, title=_NOTE, **looks)
