"""SSIM of what every attacker sees, as a PNG: over the dimension of subspaces, and over epsilon of word sets.

Dashed lines are the floors and raw descriptors: the same for every defense.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from featveil.core import InputError
from featveil.lab.inversion_report import BLANK, CHANCE, CONSTANT, RAW, READ, InversionRow
from featveil.plotting.figures import LEVELS, MARKERS, blank_figure, quiet, shades, write_figure

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
    curves = [_curves(chosen) for chosen, _, _ in parts]
    looks = _looks(list(dict.fromkeys(name for found in curves for name in found)))
    entries: dict[str, Any] = {}
    for panel, found, (_, place, label) in zip(panels, curves, parts, strict=True):
        _panel(panel, found, place, looks)
        panel.set_xlabel(label, fontsize=9)
        handles, names = panel.get_legend_handles_labels()
        entries |= dict(zip(names, handles, strict=True))
    for panel in panels:
        _levels(panel, rows)
    handles, names = panels[0].get_legend_handles_labels()
    entries |= dict(zip(names, handles, strict=True))
    panels[0].set_ylabel("SSIM of what is seen")
    panels[0].set_ylim(0, max(row.ssim for row in rows) / _MOST)
    figure.legend(list(entries.values()), list(entries), loc="outside right upper", frameon=False, fontsize=8)
    write_figure(figure, path, title)


def _most_dimensions(rows: Sequence[InversionRow]) -> list[InversionRow]:
    """The rows of the lifting strategy with most dimensions; among equals with most attacks."""
    strategies: dict[str, list[InversionRow]] = {}
    for row in rows:
        if row.defense == "lifting" and row.strategy is not None and row.dimension is not None:
            strategies.setdefault(row.strategy, []).append(row)
    return max(strategies.values(), key=lambda found: (len({row.dimension for row in found}), len(found)), default=[])


def _curves(rows: Sequence[InversionRow]) -> dict[str, list[InversionRow]]:
    """The rows of each attack; of each size of word sets apart, where there are several."""
    made: dict[str, list[InversionRow]] = {}
    several = len({row.subset_size for row in rows}) > 1
    for row in rows:
        made.setdefault(f"{row.attack}, k = {row.subset_size}" if several else row.attack, []).append(row)
    return made


def _looks(names: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Colour, marker and label of each attack, the same in every panel."""
    made: dict[str, dict[str, Any]] = {}
    for number, (name, colour) in enumerate(zip(names, shades(len(names)), strict=True)):
        made[name] = {"color": colour, "marker": MARKERS[number % len(MARKERS)], "label": name}
        made[name]["linestyle"] = (0, (1, 1)) if name.startswith("oracle") else "-"
    return made


def _panel(
    panel: "Axes", curves: dict[str, list[InversionRow]], place: Place, looks: dict[str, dict[str, Any]]
) -> None:
    for name, found in curves.items():
        points = sorted((place(row) or 0.0, row.ssim) for row in found)
        panel.plot([at for at, _ in points], [ssim for _, ssim in points], linewidth=1.6, markersize=5, **looks[name])
    quiet(panel)
    ticks = {place(row) or 0.0: row.image_epsilon for found in curves.values() for row in found}
    if ticks and all(image is None for image in ticks.values()):
        panel.set_xscale("log", base=2)
    labels = [f"{at:g}" if image is None else f"{at:g}\n({image:,.0f})" for at, image in sorted(ticks.items())]
    panel.set_xticks(sorted(ticks), labels)
    panel.set_xticks([], minor=True)


def _levels(panel: "Axes", rows: Sequence[InversionRow]) -> None:
    for row in rows:
        if row.scheme == RAW and row.attack in _LEVELS:
            label, colour, style = _LEVELS[row.attack]
            panel.axhline(row.ssim, color=colour, linestyle=style, linewidth=1.3, label=label)
