"""Correct homographies and right inliers over the subset size, as a PNG: one column of panels for each codebook."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from featveil.core import InputError
from featveil.lab.words_report import WordsRow, words_tables
from featveil.plotting.figures import LEVELS, MARKERS, blank_figure, quiet, shades, write_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MEASURES: tuple[tuple[str, Callable[[WordsRow], float]], ...] = (
    ("pairs with a correct homography (%)", lambda row: 100 * row.correct),
    ("right inliers a pair", lambda row: row.right_inliers),
)


def draw_words_curves(rows: Sequence[WordsRow], path: str | Path, title: str = "") -> None:
    """Write the curves of `rows` as a PNG to `path`: solid for rule vocabulary, dotted for nearest.

    Raises MissingExtraError without matplotlib, InputError when there is nothing to draw.
    """
    if not rows:
        raise InputError("there is no result to draw")
    tables = words_tables(rows)
    figure = blank_figure(3.1 * len(tables) + 2.6, 6.2)
    styles = _styles(rows)
    panels = figure.subplots(len(_MEASURES), len(tables), sharex=True, sharey="row", squeeze=False)
    for column, (name, chosen) in enumerate(tables.items()):
        panels[0, column].set_title(name, fontsize=10, fontweight="bold")
        for line, (_, measure) in enumerate(_MEASURES):
            _panel(panels[line, column], chosen, measure, styles)
    for line, (label, _) in enumerate(_MEASURES):
        panels[line, 0].set_ylabel(label, fontsize=9)
        panels[line, 0].set_ylim(bottom=0)
    panels[0, 0].set_ylim(-3, 103)
    sizes = sorted({row.subset_size for row in rows if row.subset_size is not None}) or [1]
    panels[0, 0].set_xscale("log", base=2)
    panels[0, 0].set_xticks(sizes, [str(size) for size in sizes])
    handles, labels = panels[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside right center", frameon=False, fontsize=9)
    figure.supxlabel("words sent for each descriptor (k)", fontsize=10)
    write_figure(figure, path, title)


def _styles(rows: Sequence[WordsRow]) -> dict[float, dict[str, Any]]:
    """Colour, marker and label of each epsilon, the same in every panel."""
    images = {row.epsilon: row.image_epsilon for row in rows if row.mechanism == "subset" and row.epsilon is not None}
    return {
        epsilon: {
            "color": colour,
            "marker": MARKERS[place % len(MARKERS)],
            "label": f"epsilon {epsilon:g}\n({images[epsilon]:,.0f} an image)",
        }
        for place, (epsilon, colour) in enumerate(zip(sorted(images), shades(len(images)), strict=True))
    }


def _panel(
    panel: "Axes",
    rows: Sequence[WordsRow],
    measure: Callable[[WordsRow], float],
    styles: dict[float, dict[str, Any]],
) -> None:
    for row in rows:
        # On top: a curve that equals a level must not hide it. Quantised words by rule nearest are in the table only.
        if row.mechanism in LEVELS and (row.mechanism == "raw" or row.rule == "vocabulary"):
            looks: dict[str, Any] = {"linestyle": "--", "linewidth": 1.4, "zorder": 3}
            panel.axhline(measure(row), label=row.mechanism, color=LEVELS[row.mechanism], **looks)
    for epsilon, style in reversed(styles.items()):
        for rule in ("vocabulary", "nearest"):
            chosen = sorted(
                (row.subset_size, measure(row))
                for row in rows
                if (row.mechanism, row.epsilon, row.rule) == ("subset", epsilon, rule) and row.subset_size is not None
            )
            looks = {"linewidth": 1.6, "markersize": 4.5, **style}
            if rule == "nearest":
                looks |= {"linestyle": ":", "markerfacecolor": "white", "label": "_"}
            if chosen:
                panel.plot(*zip(*chosen, strict=True), **looks)
    if any(row.mechanism == "subset" and row.rule == "nearest" for row in rows):
        panel.plot([], [], color="black", linestyle=":", label="dotted: by rule nearest")
    quiet(panel)
