"""SSIM of what every attacker sees, as a PNG: over the dimension of subspaces, and over epsilon of word sets.

Dashed lines are the floors and raw descriptors: the same for every defense.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from featveil.core import InputError
from featveil.reports.figures import LEVELS, MARKERS, blank_figure, quiet, shades, write_figure
from featveil.reports.inversion import BLANK, CHANCE, CONSTANT, RAW, READ, InversionRow

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_LEVELS = {
    READ: ("raw descriptors", LEVELS["raw"], "--"),
    CONSTANT: ("positions alone", "#555555", "--"),
    CHANCE: ("random descriptors", "#555555", ":"),
    BLANK: ("grey picture", "#555555", "-."),
}
_MOST = 0.9  # of the figure's highest value that the lowest may be: small differences stay small

Place = Callable[[InversionRow], float | None]


def draw_inversion(rows: Sequence[InversionRow], path: str | Path, title: str = "") -> None:
    """Write the curves of `rows` to the PNG `path`; schemes that are neither subspaces nor word sets are left out.

    Raises MissingExtraError without matplotlib, InputError when there is nothing to draw.
    """
    if not rows:
        raise InputError("there is no result to draw")
    parts: list[tuple[list[InversionRow], Place, str]] = []
    if lifted := _most_dimensions(rows):
        parts.append((lifted, lambda row: row.dimension, f"{lifted[0].strategy} lifting: dimension"))
    if words := [row for row in rows if row.defense == "subset" and row.epsilon is not None]:
        parts.append((words, lambda row: row.epsilon, "word sets: epsilon of a descriptor (of an image)"))
    if not parts:
        parts.append(([], lambda row: None, "no private scheme"))
    figure = blank_figure(4.4 * len(parts) + 1.8, 4.0)
    panels = figure.subplots(1, len(parts), squeeze=False, sharey=True)[0]
    entries: dict[str, Any] = {}
    for panel, (chosen, place, label) in zip(panels, parts, strict=True):
        _panel(panel, chosen, place)
        _levels(panel, rows)
        panel.set_xlabel(label, fontsize=9)
        handles, names = panel.get_legend_handles_labels()
        entries |= dict(zip(names, handles, strict=True))
    panels[0].set_ylabel("SSIM of what is seen")
    panels[0].set_ylim(0, max(row.ssim for row in rows) / _MOST)
    figure.legend(list(entries.values()), list(entries), loc="outside right upper", frameon=False, fontsize=8)
    write_figure(figure, path, title)


def _most_dimensions(rows: Sequence[InversionRow]) -> list[InversionRow]:
    """The rows of the lifting strategy with most dimensions."""
    strategies: dict[str, list[InversionRow]] = {}
    for row in rows:
        if row.defense == "lifting" and row.strategy is not None and row.dimension is not None:
            strategies.setdefault(row.strategy, []).append(row)
    return max(strategies.values(), key=lambda found: len({row.dimension for row in found}), default=[])


def _panel(panel: "Axes", rows: Sequence[InversionRow], place: Place) -> None:
    curves: dict[str, list[InversionRow]] = {}
    several = len({row.subset_size for row in rows}) > 1
    for row in rows:
        curves.setdefault(f"{row.attack}, k = {row.subset_size}" if several else row.attack, []).append(row)
    for number, ((name, found), colour) in enumerate(zip(curves.items(), shades(len(curves)), strict=True)):
        points = sorted((place(row) or 0.0, row.ssim) for row in found)
        looks: dict[str, Any] = {"color": colour, "marker": MARKERS[number % len(MARKERS)], "label": name}
        looks |= {"linestyle": (0, (1, 1))} if name.startswith("oracle") else {}
        panel.plot([at for at, _ in points], [ssim for _, ssim in points], linewidth=1.6, markersize=5, **looks)
    quiet(panel)
    ticks = {place(row) or 0.0: row.image_epsilon for row in rows}
    if all(image is None for image in ticks.values()) and ticks:
        panel.set_xscale("log", base=2)
    labels = [f"{at:g}" if image is None else f"{at:g}\n({image:,.0f})" for at, image in sorted(ticks.items())]
    panel.set_xticks(sorted(ticks), labels)
    panel.set_xticks([], minor=True)


def _levels(panel: "Axes", rows: Sequence[InversionRow]) -> None:
    for row in rows:
        if row.scheme == RAW and row.attack in _LEVELS:
            label, colour, style = _LEVELS[row.attack]
            panel.axhline(row.ssim, color=colour, linestyle=style, linewidth=1.3, label=label)
