"""Face verification (Dusmanu et al. 2021, section 4.3, figure 4): which pairs are one person, by private templates.

raw:    both descriptors as they are.
p-to-s: the first as it is, the second lifted.      s-to-s: both lifted, independently of each other.
The faces that others are hidden among show nobody who is tested.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import fmean, stdev
from typing import TYPE_CHECKING, Any

import numpy as np

from featveil.core import Flats, InputError
from featveil.core.arrays import Float64, Integers
from featveil.core.options import option
from featveil.core.records import Record
from featveil.core.seeding import generator
from featveil.distances import pair_distances
from featveil.lab.bench import (
    CURVE,
    Bench,
    Case,
    Column,
    Measured,
    Progress,
    Study,
    markdown_table,
    refuse_none,
    screen_table,
    seed_option,
)
from featveil.lab.face_parts.face_studies import (
    DIMENSIONS,
    DIMENSIONS_HELP,
    FACE_STRATEGIES,
    RAW,
    STRATEGIES_HELP,
    FaceScheme,
    TestedFaces,
    Verification,
    apart_from,
    draw_bars,
    labels_for,
    lifting_database,
    make_schemes,
    strategy_and_dimension,
)
from featveil.metrics.error_rates import error_rates, fold_accuracies
from featveil.plotting.figures import LEVELS, blank_figure, quiet, shades, write_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes

DISTANCES = ("p-to-s", "s-to-s")
FARS = (1e-2, 1e-3)

_TASK = "face-verification"


@dataclass(frozen=True)
class Options(TestedFaces):
    """Who is verified, and under which schemes."""

    strategies: tuple[str, ...] = option(FACE_STRATEGIES, help=STRATEGIES_HELP)
    dimensions: tuple[int, ...] = option(DIMENSIONS, help=DIMENSIONS_HELP)
    attribute: str = option("gender", help="Attribute that hybrid+ and balanced balance, of the other faces.")
    seed: int = seed_option()

    def __post_init__(self) -> None:
        refuse_none(self, "strategies", "dimensions")


def verification(options: Options, progress: Progress) -> Study["Compared"]:
    """Which pairs are one person, by raw and by private templates: accuracy, TAR at FAR, EER, DET curves.

    Stop it with Ctrl-C at any time: the same command goes on where it stopped (from OUT/records.jsonl).

    Example: featveil bench faces verification lfw.npz --pairs pairs.txt --others utk.npz --out results/
    """
    tested = options.load(options.seed, options.attribute)
    return study(tested, make_schemes(options.strategies, options.dimensions))


def study(tested: Verification, schemes: Sequence[FaceScheme]) -> Study["Compared"]:
    """All pairs under every scheme, by both distances that it has."""

    def cases() -> Iterator[Case[Compared]]:
        for scheme in schemes:
            for distance in (RAW,) if scheme.strategy == RAW else DISTANCES:
                stated = {"distance": distance, **scheme.parameters()}
                yield Case(scheme.name, stated, Compared(tested, scheme, distance))

    return Study(cases, tested.shared(), tested.seed, tested.name)


@dataclass(frozen=True, eq=False)
class Compared:
    """All pairs as they are sent and compared."""

    tested: Verification
    scheme: FaceScheme
    distance: str

    def distances(self) -> Float64:
        """The distance (k,) of each pair. Templates of both sides are drawn independently."""
        tested, scheme, pairs, faces = self.tested, self.scheme, self.tested.pairs, self.tested.faces
        rng = generator(tested.seed, _TASK, scheme.name, self.distance)
        others = apart_from(tested.others, tested.tested)
        database = lifting_database(others, tested.attribute, generator(tested.seed, "database"))
        labels = labels_for(faces, database, tested.attribute) if scheme.needs_labels else None

        def hidden(rows: Integers, raw: bool) -> tuple[Flats, Integers]:
            used, place = np.unique(rows, return_inverse=True)
            chosen, of_them = FaceScheme() if raw else scheme, None if labels is None else labels[used]
            return chosen.hide(faces.values[used], database, rng, of_them), place

        first, i = hidden(pairs.first, self.distance != "s-to-s")
        second, j = hidden(pairs.second, scheme.strategy == RAW)
        return pair_distances(first, second, i, j)


def measure(compared: Compared) -> Measured:
    """The accuracies of the folds; rates at thresholds are parameters."""
    distances, pairs = compared.distances(), compared.tested.pairs
    rates = error_rates(distances, pairs.same)
    far, frr = rates.curve()
    accuracies = fold_accuracies(distances, pairs.same, pairs.fold)
    return Measured(
        tuple(round(float(one), 6) for one in accuracies),
        len(distances),
        {
            "fars": list(FARS),
            "true_accept_rates": [round(rates.true_accept_rate(one), 6) for one in FARS],
            "equal_error_rate": round(rates.equal_error_rate, 6),
            "det_far": [round(float(one), 6) for one in far],
            "det_frr": [round(float(one), 6) for one in frr],
        },
    )


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


COLUMNS: tuple[Column[VerificationRow], ...] = (
    Column("scheme", lambda row: row.strategy, left=True),
    Column("m", lambda row: str(row.dimension or "")),
    Column("distance", lambda row: row.distance, left=True),
    Column("accuracy", lambda row: f"{100 * row.accuracy:.2f}"),
    Column("±", lambda row: f"{100 * row.spread:.2f}"),
    Column("TAR@FAR 1%", lambda row: f"{100 * row.true_accept_rates[0]:.1f}"),
    Column("TAR@FAR 0.1%", lambda row: f"{100 * row.true_accept_rates[1]:.1f}"),
    Column("EER", lambda row: f"{100 * row.equal_error_rate:.2f}"),
)


def rows_of(records: Sequence[Record]) -> list[VerificationRow]:
    """One row per record, raw first."""
    rows = [_row(record) for record in records]
    return sorted(rows, key=lambda row: (row.strategy != RAW, row.distance))


def _row(record: Record) -> VerificationRow:
    stated = record.parameters
    values = record.value if isinstance(record.value, tuple) else (record.value,)
    return VerificationRow(
        *strategy_and_dimension(record),
        str(stated["distance"]),
        fmean(values),
        stdev(values) if len(values) > 1 else 0.0,
        _numbers(stated["true_accept_rates"]),
        float(str(stated["equal_error_rate"])),
        (_numbers(stated["det_far"]), _numbers(stated["det_frr"])),
        record.count,
    )


def _numbers(value: object) -> tuple[float, ...]:
    """A list of a record as floats; raises InputError where it is none."""
    if not isinstance(value, list):
        raise InputError("a record lacks a list of numbers: the file is damaged")
    return tuple(float(one) for one in value)


def _text(rows: Sequence[VerificationRow], records: Sequence[Record]) -> str:
    one = records[0]
    return "\n".join(
        [
            f"# Face verification on {one.dataset}\n",
            f"{one.count:,} pairs, hidden among {one.parameters.get('others'):,} faces of others, seed {one.seed}, in"
            " percent. accuracy: mean over the folds, the threshold of each being the best of the others;"
            " ±: their standard deviation. TAR@FAR: pairs of one person that are accepted where that share of pairs of"
            " two people is. EER: where as many are wrongly refused as wrongly accepted. p-to-s: one side lifted;"
            " s-to-s: both.\n",
            markdown_table(COLUMNS, rows),
        ]
    )


def draw(rows: Sequence[VerificationRow], path: str | Path, title: str = "") -> None:
    """Accuracy as bars, a panel for each distance and a group for each strategy, raw as a dashed line."""
    figure = blank_figure(9.0, 4.6)
    panels = figure.subplots(len(DISTANCES), 1, sharex=True)
    raw = next((row.accuracy for row in rows if row.strategy == "raw"), None)
    strategies = list(dict.fromkeys(row.strategy for row in rows if row.strategy != "raw"))
    dimensions = sorted({row.dimension for row in rows if row.strategy != "raw"})
    for panel, side in zip(panels, DISTANCES, strict=True):
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


def draw_det(rows: Sequence[VerificationRow], path: str | Path, title: str = "") -> None:
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


BENCH = Bench(
    "faces verification",
    verification,
    task=_TASK,
    measure=measure,
    key=("scheme", "distance"),
    metric="accuracy",
    unit="share",
    rows=rows_of,
    text=_text,
    screen=partial(screen_table, COLUMNS),
    figures={CURVE: draw, "det.png": draw_det},
    title=lambda record: f"Face verification on {record.dataset}",
    named=("strategy", "dimension", "distance", "true_accept_rates", "equal_error_rate", "det_far", "det_frr"),
)
