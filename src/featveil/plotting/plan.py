"""What subset sizes amount to, as a PNG: how often the true word is sent, how well it is guessed, how far words are."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from featveil.core import InputError
from featveil.core.arrays import Float64
from featveil.plotting.figures import blank_figure, quiet, shades, write_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_CHOSEN = "#c0392b"
_MARKERS = "sD^vP"
_MOST_TICKS = 10
_SMALL = 0.01  # curves that stay below this need a logarithmic axis
# The limits of tasks.planning, which reports must not import; a test compares them.
BANDS_OF_GUESS = ((0.5, "weak"), (0.1, "modest"))
BANDS_OF_SENT = ((0.9, "weak"), (0.5, "modest"))


class PlanPoint(Protocol):
    """What is drawn of a row of a plan."""

    @property
    def subset_size(self) -> int:
        """Words in a set."""

    @property
    def sent(self) -> float:
        """Probability that the true word is among them."""

    @property
    def best_guess(self) -> float:
        """Probability that the best guess of it is right."""

    @property
    def epsilon_per_image(self) -> float:
        """Of all features together."""


def draw_plan(
    curves: Mapping[float, Sequence[PlanPoint]],
    chosen: float,
    path: str | Path,
    distances: Float64 | None = None,
    title: str = "",
) -> None:
    """Write a PNG to `path`: one curve for each epsilon in `curves`, the `chosen` one in red.

    `distances` (n,) of descriptors from their words get a panel of their own. Raises MissingExtraError without
    matplotlib, InputError when there is nothing to draw.
    """
    if not curves or not all(curves.values()):
        raise InputError("there is no plan to draw")
    count = 2 if distances is None else 3
    figure = blank_figure(3.9 * count, 3.9)
    panels = figure.subplots(1, count)
    sent = {epsilon: [row.sent for row in rows] for epsilon, rows in curves.items()}
    guess = {epsilon: [row.best_guess for row in rows] for epsilon, rows in curves.items()}
    sizes = [row.subset_size for row in next(iter(curves.values()))]
    _curves(panels[0], sizes, sent, chosen, "the true word is sent")
    _curves(panels[1], sizes, guess, chosen, "the best guess of the word is right")
    _bands(panels[0], BANDS_OF_SENT)
    _bands(panels[1], BANDS_OF_GUESS)
    if distances is not None:
        _histogram(panels[2], distances)
    names = [_name(epsilon, rows[0].epsilon_per_image) for epsilon, rows in curves.items()]
    # One frame below all panels: the per-image value must stand beside every epsilon, and that needs room.
    lines = panels[0].get_lines()[: len(names)]
    figure.legend(
        lines, names, loc="outside lower center", ncols=4, frameon=False, title="epsilon per descriptor (per image)"
    )
    write_figure(figure, path, title)


def _curves(
    panel: "Axes", sizes: Sequence[int], curves: Mapping[float, Sequence[float]], chosen: float, title: str
) -> None:
    from matplotlib.ticker import FixedLocator, NullFormatter, NullLocator, PercentFormatter

    colours = shades(len(curves), 0.8, 0.1)[::-1]  # larger epsilons are lighter
    for place, (epsilon, values) in enumerate(curves.items()):
        marked = epsilon == chosen
        panel.plot(
            sizes,
            values,
            color=_CHOSEN if marked else colours[place],
            marker="o" if marked else _MARKERS[place % len(_MARKERS)],
            linewidth=2.2 if marked else 1.3,
            markersize=5 if marked else 4,
            zorder=3 if marked else 2,
        )
    panel.set_xscale("log", base=2)
    shown = sizes[:: -(-len(sizes) // _MOST_TICKS)]
    panel.xaxis.set_major_locator(FixedLocator([float(size) for size in shown]))
    panel.xaxis.set_minor_locator(NullLocator())
    panel.set_xticklabels([str(size) for size in shown])
    panel.set_xlabel("words sent, k")
    highest = max(max(values) for values in curves.values())
    if 0 < highest < _SMALL:
        panel.set_yscale("log")
        panel.yaxis.set_minor_formatter(NullFormatter())
    else:
        panel.set_ylim(0, 1.03)
        panel.yaxis.set_major_formatter(PercentFormatter(1))
    _plain(panel, title)


def _bands(panel: "Axes", bands: Sequence[tuple[float, str]]) -> None:
    """Where the verdicts change."""
    if panel.get_yscale() == "log":
        return
    for height, name in bands:
        panel.axhline(height, color="#777777", linewidth=0.8, linestyle=":", zorder=1)
        panel.annotate(
            f"{name} above", (1, height), xycoords=("axes fraction", "data"), xytext=(-2, 3),
            textcoords="offset points", ha="right", fontsize=8, color="#555555",
        )  # fmt: skip


def _histogram(panel: "Axes", distances: Float64) -> None:
    panel.hist(distances, bins=40, color="#7f8fa6")
    mean = float(distances.mean())
    panel.axvline(mean, color=_CHOSEN, linewidth=1.4, label=f"mean {mean:.2f}")
    panel.set_xlim(left=0)
    panel.set_xlabel("distance from the nearest word, at norm 1")
    panel.set_ylabel("descriptors")
    panel.legend(frameon=False, fontsize=8, loc="upper left")
    _plain(panel, "quantisation error")


def _plain(panel: "Axes", title: str) -> None:
    panel.set_title(title, fontsize=10)
    quiet(panel)


def _name(epsilon: float, per_image: float) -> str:
    if math.isinf(epsilon):
        return "infinite: no guarantee"
    return f"{epsilon:g} ({per_image:,.6g})"
