"""Maps of all schemes beside each other, as a PNG: one line of panels for each scene, one column for each measure."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from featveil.core import InputError
from featveil.lab.mapping_report import MappingRow
from featveil.plotting.figures import LEVELS, blank_figure, quiet, write_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_Value = Callable[[MappingRow], float | None]
_Text = Callable[[MappingRow, float], str]
_Measure = tuple[str, _Value, _Text]
_MEASURES: tuple[_Measure, ...] = (
    ("registered\nimages", lambda row: row.registered, lambda row, value: f"{value:.0f} of {row.images}"),
    ("points", lambda row: row.points, lambda _, value: f"{value:,.0f}"),
    ("track\nlength", lambda row: row.track_length if row.points else None, lambda _, value: f"{value:.1f}"),
    ("reprojection\nerror (px)", lambda row: row.error if row.points else None, lambda _, value: f"{value:.2f}"),
)
_CENTRE: _Measure = (
    "centre error\n(cm, log)",
    lambda row: None if row.centre_error is None else 100 * row.centre_error,
    lambda _, value: f"{value:.2f}" if value < 10 else f"{value:,.0f}",
)
_FAMILIES = {
    "raw": LEVELS["raw"],
    "quanti": LEVELS["quantised"],
    "subset": "#c98a1b",
    "hardened": "#7a5ba6",
    "concealer": "#3b8e8c",
}
_LIFTING = "#3b6ea8"
_FINEST = 1e-3  # cm: a logarithmic axis has no zero


def scheme_colour(scheme: str) -> str:
    """One colour for each family of schemes."""
    return next((colour for family, colour in _FAMILIES.items() if scheme.startswith(family)), _LIFTING)


def scheme_label(scheme: str, image_epsilon: float | None) -> str:
    """The name of a scheme, with its epsilon of an image in brackets where it has one."""
    return scheme if image_epsilon is None else f"{scheme} ({image_epsilon:,.0f})"


def draw_mapping(rows: Sequence[MappingRow], path: str | Path, title: str = "") -> None:
    """Write the measures of `rows` as bars to the PNG `path`; the error of the centres, which spans decades, as dots.

    Raises MissingExtraError without matplotlib, InputError when there is nothing to draw.
    """
    if not rows:
        raise InputError("there is no result to draw")
    measures = [*_MEASURES, *([_CENTRE] if any(row.centre_error is not None for row in rows) else [])]
    scenes = {name: [row for row in rows if row.scene == name] for name in dict.fromkeys(row.scene for row in rows)}
    lengths = [len(chosen) + 1 for chosen in scenes.values()]
    figure = blank_figure(7.2, 0.21 * sum(lengths) + 0.1 * len(lengths) + 1.0)
    panels = figure.subplots(len(scenes), len(measures), squeeze=False, gridspec_kw={"height_ratios": lengths})
    for line, (name, chosen) in zip(panels, scenes.items(), strict=True):
        for panel, measure in zip(line, measures, strict=True):
            _panel(panel, chosen, measure)
        labels = [name, *(scheme_label(row.scheme, row.image_epsilon) for row in chosen)]
        # The scene heads the names of its schemes as one of them, so that the layout leaves room for it.
        line[0].set_yticks(range(-1, len(chosen)), labels, fontsize=7.5)
        line[0].get_yticklabels()[0].set(fontweight="bold", fontsize=9)
    for panel, (label, *_) in zip(panels[0], measures, strict=True):
        panel.set_title(label, fontsize=8.5)
    if any(row.image_epsilon is not None for row in rows):
        figure.supxlabel("in brackets: what the epsilon of a descriptor adds up to over an image", fontsize=8)
    write_figure(figure, path, title)


def _panel(panel: "Axes", rows: Sequence[MappingRow], measure: _Measure) -> None:
    _, value_of, text_of = measure
    values = [value_of(row) for row in rows]
    known = [value for value in values if value is not None]
    dots = measure is _CENTRE
    if dots and not known:
        panel.set_axis_off()
        return
    for place, (row, value) in enumerate(zip(rows, values, strict=True)):
        text = "-" if value is None else text_of(row, value)
        if value is not None and dots:
            panel.plot(max(value, _FINEST), place, "o", color=scheme_colour(row.scheme), markersize=5)
        elif value is not None:
            panel.barh(place, value, 0.72, color=scheme_colour(row.scheme))
        at = max(min(known) if value is None else value, _FINEST) if dots else value or 0
        looks: dict[str, Any] = {"textcoords": "offset points", "va": "center", "fontsize": 7, "color": "#333333"}
        panel.annotate(text, (at, place), (5, 0), **looks)
    quiet(panel)
    panel.grid(visible=False, axis="y")
    panel.tick_params(axis="y", length=0)
    panel.set_yticks([])
    panel.set_ylim(len(rows) - 0.4, -1.4)
    panel.spines["left"].set_bounds(-0.6, len(rows) - 0.4)
    _limit(panel, known, dots)


def _limit(panel: "Axes", known: Sequence[float], dots: bool) -> None:
    """Room for the numbers at the right of the bars; few ticks, since every bar has its number."""
    if dots:
        panel.set_xscale("log")
        low, high = max(min(known), _FINEST), max(*known, _FINEST)
        panel.set_xlim(low / (high / low) ** 0.15 / 1.3, high * (high / low) ** 0.6 * 1.7)
    else:
        panel.set_xlim(0, 1.65 * max([*known, 0]) or 1)
    panel.set_xticks([])
    panel.set_xticks([], minor=True)
    panel.spines["bottom"].set_visible(False)
