"""Records of face verification -> rows, the table in Markdown, bars as in the paper's figure 4, and DET curves."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev
from typing import TYPE_CHECKING, Any

from featveil.core import InputError
from featveil.core.records import Record
from featveil.plotting.figures import LEVELS, blank_figure, quiet, shades, write_figure
from featveil.plotting.tables import markdown_table

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_NAMED = ("strategy", "dimension", "distance", "true_accept_rates", "equal_error_rate", "det_far", "det_frr")
_SIDES = ("p-to-s", "s-to-s")


@dataclass(frozen=True)
class VerificationRow:
    """One scheme: accuracy over the folds with its spread, TAR at the FARs of the records, EER and the DET curve."""

    strategy: str
    dimension: int
    distance: str
    accuracy: float
    spread: float
    true_accept_rates: tuple[float, ...]
    equal_error_rate: float
    det: tuple[tuple[float, ...], tuple[float, ...]]
    pairs: int


def summarize_verification(records: Sequence[Record]) -> list[VerificationRow]:
    """One row a record, raw first; raises InputError for a record of another task."""
    rows = [_row(record) for record in records]
    return sorted(rows, key=lambda row: (row.strategy != "raw", row.distance))


def verification_cells(rows: Sequence[VerificationRow]) -> tuple[list[str], list[tuple[str, ...]]]:
    """Headings, and the cells of each row as text, shares in percent."""
    headings = ["scheme", "m", "distance", "accuracy", "±", "TAR@FAR 1%", "TAR@FAR 0.1%", "EER"]
    cells = [
        (
            row.strategy,
            str(row.dimension or ""),
            row.distance,
            f"{100 * row.accuracy:.2f}",
            f"{100 * row.spread:.2f}",
            *(f"{100 * rate:.1f}" for rate in row.true_accept_rates),
            f"{100 * row.equal_error_rate:.2f}",
        )
        for row in rows
    ]
    return headings, cells


def verification_markdown(records: Sequence[Record]) -> str:
    """The whole table."""
    if not records:
        raise InputError("there is no record to make a table of")
    one = records[0]
    return "\n".join(
        [
            f"# Face verification on {one.dataset}\n",
            f"{one.count:,} pairs, hidden among {one.parameters.get('others'):,} faces of others, seed {one.seed}, in"
            " percent. accuracy: mean over the folds, the threshold of each being the best of the others;"
            " ±: their standard deviation. TAR@FAR: pairs of one person that are accepted where that share of pairs of"
            " two people is. EER: where as many are wrongly refused as wrongly accepted. p-to-s: one side lifted;"
            " s-to-s: both.\n",
            markdown_table(*verification_cells(summarize_verification(records)), left=("scheme", "distance")),
        ]
    )


def draw_verification(rows: Sequence[VerificationRow], path: str | Path, title: str) -> None:
    """Accuracy as bars, a panel for each distance and a group for each strategy, raw as a dashed line."""
    figure = blank_figure(9.0, 4.6)
    panels = figure.subplots(len(_SIDES), 1, sharex=True)
    raw = next((row.accuracy for row in rows if row.strategy == "raw"), None)
    strategies = list(dict.fromkeys(row.strategy for row in rows if row.strategy != "raw"))
    dimensions = sorted({row.dimension for row in rows if row.strategy != "raw"})
    for panel, side in zip(panels, _SIDES, strict=True):
        chosen = {(row.strategy, row.dimension): row for row in rows if row.distance == side}
        draw_bars(panel, strategies, dimensions, {key: 100 * row.accuracy for key, row in chosen.items()})
        if raw is not None:
            panel.axhline(100 * raw, color=LEVELS["raw"], linestyle="--", linewidth=1.3, label="raw")
        panel.axhline(50, color="black", linewidth=1.3, label="chance")
        panel.set_ylim(48, 101)
        panel.set_ylabel(f"{side}\naccuracy (%)", fontsize=9)
        quiet(panel)
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside right center", frameon=False, fontsize=8)
    write_figure(figure, path, title)


def draw_bars(panel: "Axes", groups: Sequence[str], bars: Sequence[int], heights: dict[tuple[str, int], float]) -> None:
    """A group of bars for each of `groups`, one for each of `bars`, light to dark; what is missing stays empty."""
    width = 0.8 / max(len(bars), 1)
    for place, (bar, colour) in enumerate(zip(bars, shades(len(bars)), strict=True)):
        there = [(index, heights[group, bar]) for index, group in enumerate(groups) if (group, bar) in heights]
        where = [index - 0.4 + (place + 0.5) * width for index, _ in there]
        panel.bar(where, [height for _, height in there], width * 0.92, color=colour, label=f"m = {bar}")
    panel.set_xticks(range(len(groups)), groups)


def draw_det(rows: Sequence[VerificationRow], path: str | Path, title: str) -> None:
    """False rejects over false accepts, both on logarithmic axes: raw, and every scheme in its strategy's panel."""
    strategies = list(dict.fromkeys(row.strategy for row in rows if row.strategy != "raw"))
    raw = [row for row in rows if row.strategy == "raw"]
    columns = 3
    lines = -(-len(strategies) // columns)
    figure = blank_figure(3.3 * columns + 1.2, 2.9 * lines + 0.3)
    panels = figure.subplots(lines, columns, sharex=True, sharey=True, squeeze=False).ravel()
    dimensions = sorted({row.dimension for row in rows if row.strategy != "raw"})
    colours = dict(zip(dimensions, shades(len(dimensions)), strict=True))
    for panel, strategy in zip(panels, strategies, strict=False):
        for row in raw:
            _curve(panel, row, {"color": LEVELS["raw"], "linestyle": "--", "label": "raw"})
        for row in (one for one in rows if one.strategy == strategy):
            line = "-" if row.distance == "p-to-s" else ":"
            _curve(
                panel,
                row,
                {"color": colours[row.dimension], "linestyle": line, "label": f"m = {row.dimension}, {row.distance}"},
            )
        panel.set_title(strategy, fontsize=9)
        panel.set_xscale("log")
        panel.set_yscale("log")
        panel.set_xlim(3e-4, 1)
        panel.set_ylim(3e-3, 1.05)
        quiet(panel)
    for panel in panels[len(strategies) :]:
        panel.set_visible(False)
    figure.supxlabel("false accept rate", fontsize=9)
    figure.supylabel("false reject rate", fontsize=9)
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside right center", frameon=False, fontsize=8)
    write_figure(figure, path, title)


def _curve(panel: "Axes", row: VerificationRow, looks: dict[str, Any]) -> None:
    far, frr = row.det
    panel.plot(far, [max(rate, 1e-4) for rate in frr], linewidth=1.4, **looks)


def _row(record: Record) -> VerificationRow:
    found = record.parameters
    if record.task != "face-verification" or any(name not in found for name in _NAMED):
        raise InputError(f"a record of task {record.task} is not one of face verification: leave it out")
    values = record.value if isinstance(record.value, tuple) else (record.value,)
    return VerificationRow(
        str(found["strategy"]),
        int(str(found["dimension"])),
        str(found["distance"]),
        fmean(values),
        stdev(values) if len(values) > 1 else 0.0,
        numbers(found["true_accept_rates"]),
        float(str(found["equal_error_rate"])),
        (numbers(found["det_far"]), numbers(found["det_frr"])),
        record.count,
    )


def numbers(value: object) -> tuple[float, ...]:
    """A list of a record as floats; raises InputError where it is none."""
    if not isinstance(value, list):
        raise InputError("a record lacks a list of numbers: the file is damaged")
    return tuple(float(one) for one in value)
