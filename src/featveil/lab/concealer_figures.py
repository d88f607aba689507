"""The two figures of a study of concealers, as PNG: utility over privacy (NinjaDesc's 8b) and matching (their 8a)."""

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from featveil.core import InputError
from featveil.lab.concealers_report import TRAINED, ConcealerResults, ConcealerRow
from featveil.lab.inversion_report import READ
from featveil.metrics import THRESHOLDS
from featveil.plotting.figures import LEVELS, MARKERS, blank_figure, quiet, shades, write_figure
from featveil.plotting.labels import Box, Labeller

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_FLOORS = {"blank": ("grey picture", "-."), "constant": ("average descriptor", "--")}
_FRESH = {
    attack: f"fresh inverter, {name}, {read}"
    for name, attacks in TRAINED.items()
    for attack, read in zip(attacks, ("as sent", "standardised"), strict=True)
}
_REACH, _LETTER, _LINE = 0.06, 0.07, 0.14  # inches: half a marker, and the letters of its label
_LIFTED: dict[str, Any] = {"color": "#c44e00", "linewidth": 1.4}


def draw_concealers(found: ConcealerResults, path: str | Path, title: str = "") -> None:
    """Write the utility over the privacy of every network to the PNG `path`, a line for each way of inverting.

    Raises MissingExtraError without matplotlib, InputError when no network has both.
    """
    attacks = list(dict.fromkeys(tried.attack for row in found.rows[1:] for tried in row.inversions))
    curves = {attack: _points(found, attack) for attack in attacks}
    if not any(len(points) > 1 for points in curves.values()):
        raise InputError("no inverter of a concealer was given, or the tasks of HPatches were not run")
    figure = blank_figure(6.4, 4.4)
    panel = figure.subplots()
    named: list[tuple[ConcealerRow, float, float, Any]] = []
    for number, (attack, points) in enumerate(curves.items()):
        colour = shades(len(curves), lightest=0.6)[number]
        looks: dict[str, Any] = {"color": colour, "marker": MARKERS[number % len(MARKERS)]}
        label = _FRESH.get(attack, f"{attack}, then inverted")
        panel.plot([x for _, x, _ in points], [y for _, _, y in points], label=label, linewidth=1.4, **looks)
        named += [(row, x, y, colour) for row, x, y in points if row.strength is not None or number == 0]
    for floor in found.floors:
        if floor.attack in _FLOORS:
            name, style = _FLOORS[floor.attack]
            panel.axvline(1 - floor.ssim, color="#555555", linestyle=style, linewidth=1.1, label=name)
    panel.axhline(0, color=LEVELS["raw"], linestyle="--", linewidth=1.1, label="mAP of raw descriptors")
    panel.set_xlabel("privacy: 1 - SSIM of what is seen (numbers: lambda)", fontsize=9)
    panel.set_ylabel("utility: mean mAP to raw, points", fontsize=9)
    quiet(panel)
    figure.legend(loc="outside lower center", ncols=2, frameon=False, fontsize=8)
    figure.draw_without_rendering()  # only then is it known where points are
    _name_points(panel, named)
    write_figure(figure, path, title)


def draw_concealed_matching(found: ConcealerResults, path: str | Path, title: str = "") -> None:
    """Write the mean matching accuracy of raw, concealed and lifted descriptors to the PNG `path`.

    Raises MissingExtraError without matplotlib, InputError when nothing was matched.
    """
    rows = [row for row in found.rows if row.matching is not None]
    if not rows:
        raise InputError("there is no result of image matching to draw")
    figure = blank_figure(6.4, 4.4)
    panel = figure.subplots()
    _curves(panel, rows)
    for lifted, style in zip(found.lifted, (":", "-."), strict=False):
        label = f"{lifted.strategy}, m = {lifted.dimension}, {lifted.distance}"
        panel.plot(THRESHOLDS, lifted.accuracy, label=label, linestyle=style, **_LIFTED)
    panel.set_ylim(-0.02, 1)
    panel.set_xticks(THRESHOLDS)
    panel.set_xlabel("threshold (px)", fontsize=9)
    panel.set_ylabel("mean matching accuracy", fontsize=9)
    quiet(panel)
    figure.legend(loc="outside lower center", ncols=2, frameon=False, fontsize=8)
    write_figure(figure, path, title)


def _name_points(panel: "Axes", named: "Sequence[tuple[ConcealerRow, float, float, Any]]") -> None:
    """Write lambda beside each point, clear of other points and labels."""
    frame, inch = panel.bbox, panel.figure.dpi
    places = [(float(x), -float(y)) for x, y in panel.transData.transform([(x, y) for _, x, y, _ in named])]
    area = Box(frame.x0, -frame.y1, frame.width, frame.height)
    labeller = Labeller(area, places, _drawn(panel), reach=_REACH * inch)
    for (row, x, y, colour), place in zip(named, places, strict=True):
        text = "raw" if row.strength is None else f"{row.strength:g}"
        box = labeller.place(place, _LETTER * inch * len(text), _LINE * inch)
        across, down = box.middle[0] - place[0], box.middle[1] - place[1]
        panel.annotate(
            text,
            (x, y),
            (72 * across / inch, -72 * down / inch),
            textcoords="offset points",
            ha="center",
            va="center",
            fontsize=8,
            color=colour,
        )


def _drawn(panel: "Axes") -> list[Box]:
    """Where lines are, as boxes of two pixels along them."""
    made = []
    for line in panel.lines:
        corners = line.get_transform().transform(np.column_stack(line.get_data()))
        for first, last in pairwise(corners):
            count = max(2, int(np.abs(last - first).max()) // 2)
            made += [Box(x - 1, -y - 1, 2, 2) for x, y in np.linspace(first, last, count).tolist()]
    return made


def _curves(panel: "Axes", rows: Sequence[ConcealerRow]) -> None:
    private = [row for row in rows if row.strength is not None]
    for number, (row, colour) in enumerate(zip(private, shades(len(private)), strict=True)):
        assert row.matching is not None
        looks: dict[str, Any] = {"color": colour, "marker": MARKERS[number % len(MARKERS)], "markersize": 4}
        panel.plot(THRESHOLDS, row.matching.accuracy, label=row.name, linewidth=1.6, **looks)
    for row in rows:
        if row.strength is None and row.matching is not None:
            # Drawn last: a private curve that equals it must not hide it.
            panel.plot(THRESHOLDS, row.matching.accuracy, color=LEVELS["raw"], linestyle="--", label="raw")


def _points(found: ConcealerResults, attack: str) -> list[tuple[ConcealerRow, float, float]]:
    """Each row that has both, with its privacy and its utility; raw descriptors are read as they are."""
    made = []
    for row in found.rows:
        read = (row.inverted(READ) or row.seen) if row.strength is None else None
        seen, gain = row.inverted(attack) or read, found.gain(row)
        if seen is not None and gain is not None:
            made.append((row, 1 - seen.ssim, 100 * gain))
    return made
