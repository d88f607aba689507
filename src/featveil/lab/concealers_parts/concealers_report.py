"""Records of a study of concealers -> one row per network, tables of utility beside privacy, and two figures.

The records are those of the tasks of patches, image matching and inversion, which have the networks under one name.
Theirs stand beside ours.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.table import Table

from featveil.core import InputError
from featveil.core.records import Record
from featveil.lab import inversion, matching, patches
from featveil.lab.bench import Column, NothingToDrawError, markdown_table, screen_table
from featveil.lab.inversion_parts.inversion_report import BLANK, FLOORS, RAW, READ, InversionRow, best_inversions
from featveil.lab.matching import MatchingRow
from featveil.lab.papers import CONCEALED_SSIM, NINJADESC_SAID, SOSNET, Figures
from featveil.lab.patches import TASKS, PatchRow, percent
from featveil.metrics import THRESHOLDS
from featveil.plotting.figures import LEVELS, MARKERS, blank_figure, quiet, shades, write_figure
from featveil.plotting.labels import Box, Labeller
from featveil.plotting.tables import markdown_table as lay_out

if TYPE_CHECKING:
    from matplotlib.axes import Axes

TRAINED = {  # inverters of an architecture, as inversion names them
    "unet": ("direct", "direct (standardised)"),
    "uresnet": ("direct (uresnet)", "direct (uresnet, standardised)"),
}
_ALIKE = {"hardtfeat": "hardnet"}  # whose numbers stand beside those of a kind that the paper has not; else sift's
_AT = 3  # pixels
_FLOORS = {"blank": ("grey picture", "-."), "constant": ("average descriptor", "--")}
_FRESH = {
    attack: f"fresh inverter, {name}, {read}"
    for name, attacks in TRAINED.items()
    for attack, read in zip(attacks, ("as sent", "standardised"), strict=True)
}
_REACH, _LETTER, _LINE = 0.06, 0.07, 0.14  # inches: half a marker, and the letters of its label
_LIFTED: dict[str, Any] = {"color": "#c44e00", "linewidth": 1.4}


@dataclass(frozen=True)
class ConcealerRow:
    """One network, or the raw descriptor (lambda None), under all that was measured; None where it was not.

    `inversions` are all attempts to see the picture, `seen` the one that sees most.
    """

    scheme: str
    strength: float | None
    patches: PatchRow | None
    matching: MatchingRow | None
    inversions: tuple[InversionRow, ...]
    seen: InversionRow | None

    @property
    def name(self) -> str:
        """As tables have it."""
        return "raw" if self.strength is None else f"lambda {self.strength:g} ({self.scheme[-8:]})"

    def inverted(self, attack: str) -> InversionRow | None:
        """The row of one attempt."""
        return next((row for row in self.inversions if row.attack == attack), None)

    def fresh(self, architecture: str) -> InversionRow | None:
        """Of inverters of an architecture that were trained on these descriptors, the one that sees most.

        Of raw descriptors without one, what the usual inverter reads.
        """
        tried = [row for row in map(self.inverted, TRAINED[architecture]) if row is not None]
        usual = self.inverted(READ) if self.strength is None and architecture == "unet" else None
        return max(tried, key=lambda row: row.ssim, default=usual)


@dataclass(frozen=True)
class ConcealerResults:
    """`rows`: raw first, then by lambda. `floors` of inversion, `lifted` of matching, and `chance` of patches."""

    rows: tuple[ConcealerRow, ...]
    floors: tuple[InversionRow, ...]
    lifted: tuple[MatchingRow, ...]
    chance: PatchRow | None

    def gain(self, row: ConcealerRow) -> float | None:
        """Mean average precision beyond that of raw descriptors, over the three tasks of HPatches."""
        here, raw = (one.patches.mean_precision if one.patches else None for one in (row, self.rows[0]))
        return None if here is None or raw is None else here - raw


def rows_of(records: Sequence[Record]) -> ConcealerResults:
    """Rows of everything that is known of each network; raises InputError without records of raw descriptors."""
    by_task: dict[str, list[Record]] = {}
    for record in records:
        by_task.setdefault(record.task, []).append(record)
    described = {row.scheme: row for row in patches.BENCH.summarize(by_task.get("patches", []))}
    matched = matching.BENCH.summarize(by_task.get("matching", []))
    inverted = inversion.BENCH.summarize(by_task.get("inversion", []))
    if "raw" not in described and not any(row.strategy == "raw" for row in matched):
        raise InputError("there is no record of raw descriptors to compare with")
    strengths = _strengths(records)
    best = best_inversions(inverted)
    rows = []
    for scheme, strength in [("raw", None), *sorted(strengths.items(), key=lambda one: (one[1], one[0]))]:
        name = RAW if strength is None else scheme
        tried = tuple(row for row in inverted if row.scheme == name and row.attack not in FLOORS)
        match = next((row for row in matched if row.strategy == scheme), None)
        rows.append(ConcealerRow(scheme, strength, described.get(scheme), match, tried, best.get(name)))
    floors = tuple(row for row in inverted if row.scheme == RAW and row.attack in FLOORS)
    known = {row.scheme for row in rows}
    lifted = tuple(row for row in matched if row.strategy not in known)
    return ConcealerResults(tuple(rows), floors, lifted, described.get("chance"))


def _strengths(records: Sequence[Record]) -> dict[str, float]:
    """Lambda of each network that there are records of."""
    strengths: dict[str, float] = {}
    for record in records:
        strength = record.parameters.get("lambda")
        if isinstance(strength, int | float):
            strengths[record.scheme] = float(strength)
    return strengths


def columns_of(results: ConcealerResults) -> list[Column[ConcealerRow]]:
    """Utility, then privacy. Shares in percent."""

    def gain(row: ConcealerRow) -> str:
        value = results.gain(row)
        return "-" if value is None else f"{100 * value:+.2f}"

    sets = dict.fromkeys(name for row in results.rows if row.patches for name in row.patches.false_positives)
    return [
        Column("descriptors", lambda row: row.name, left=True),
        *map(_rate, sets),
        *map(_precision, TASKS),
        Column("mean mAP", lambda row: percent(row.patches.mean_precision if row.patches else None)),
        Column("to raw", gain),
        *_MATCHED,
        Column("SSIM seen", lambda row: "-" if row.seen is None else f"{row.seen.ssim:.3f}"),
        Column("by", lambda row: "-" if row.seen is None else row.seen.attack, left=True),
    ]


def _rate(name: str) -> Column[ConcealerRow]:
    def cell(row: ConcealerRow) -> str:
        return percent(row.patches.false_positives.get(name) if row.patches else None)

    return Column(f"FPR@95 {name}", cell, screen=None)


def _precision(task: str) -> Column[ConcealerRow]:
    return Column(task, lambda row: percent(row.patches.mean_of(task) if row.patches else None), screen=None)


def _accuracy(row: ConcealerRow) -> str:
    return "-" if row.matching is None else f"{100 * row.matching.at(_AT):.1f}"


_MATCHED: tuple[Column[ConcealerRow], ...] = (
    Column(f"MMA@{_AT}", _accuracy, screen=None),
    Column(f"right@{_AT}", lambda row: "-" if row.matching is None else f"{row.matching.right:.0f}"),
)


def facts(results: ConcealerResults) -> dict[str, Any]:
    """Rows for --json, with their names."""
    return {"rows": [{"name": row.name, **asdict(row)} for row in results.rows]}


def screen(results: ConcealerResults) -> Table:
    """The first table on a terminal."""
    return screen_table(columns_of(results), results.rows)


def concealer_text(results: ConcealerResults, records: Sequence[Record]) -> str:
    """All tables: utility and privacy, inversion, theirs beside ours, and mean matching accuracy."""
    kind = str(records[0].parameters.get("kind"))
    table = markdown_table(columns_of(results), results.rows)
    parts = [f"# Concealers of {kind}\n", _settings(records, results), _EXPLAINED, table]
    if results.floors or any(row.inversions for row in results.rows):
        parts.append(f"## What inverters see\n\n{_SEEN}\n{_inversions(results)}")
        parts.append(f"## Beside NinjaDesc\n\n{NINJADESC_SAID}\n{_beside(results, kind)}")
    if matched := [row for row in results.rows if row.matching]:
        parts.append(f"## Mean matching accuracy, percent\n\n{_accuracies(matched, results.lifted)}")
    return "\n".join(parts)


_EXPLAINED = """\
- FPR@95: share of non-matching pairs taken for matches when 95 % of the matching ones are; lower is better.
  verification, matching, retrieval: mean average precision of the tasks of HPatches, means over easy and hard;
  "to raw" is what the mean of the three gains on raw descriptors (their figure 8b). All in percent.
- MMA@3: share of mutual nearest neighbours within 3 pixels; right@3: how many those are for an image pair.
- SSIM seen: the most that any inverter or attack sees of test photographs ("by" which one); lower is more private.
"""
_SEEN = """\
**direct** is an inverter trained on what the network gives (its card says from what beginning), **read** one of raw
descriptors; others recover raw descriptors first. blank: a grey picture; chance: random descriptors at the true
positions; constant: the average descriptor at all of them, both painted by the inverter of raw descriptors. No
concealer hides positions, and an inverter trained on these alone would see more than that: the last two are no upper
bound of privacy.
"""


def _settings(records: Sequence[Record], results: ConcealerResults) -> str:
    """What was measured on what, in one paragraph."""
    firsts = {record.task: record for record in reversed(records)}
    parts = []
    if "patches" in firsts:
        names = dict.fromkeys(record.dataset for record in records if record.task == "patches")
        parts.append(
            f"Patches of {', '.join(names)}, at most {firsts['patches'].parameters.get('max_patches')} a scene."
        )
    if "matching" in firsts:
        one = firsts["matching"]
        parts.append(f"Matching on {one.dataset}, at most {one.parameters.get('max_features')} features an image.")
    if "inversion" in firsts:
        one = firsts["inversion"]
        part = "" if one.parameters.get("part") == "all" else f" (the {one.parameters.get('part')} part)"
        count = max((row.photographs for row in results.floors), default=0)
        parts.append(
            f"Inversion of {count} photographs of {one.dataset}{part}, at most {one.parameters.get('max_features')}"
            f" features each; of keypoints inverters see: {one.parameters.get('geometry')}."
        )
    return "\n".join([*parts, f"Seed {records[0].seed}.\n"])


def _inversions(results: ConcealerResults) -> str:
    lines = [("floor", *_figures(row), str(row.photographs)) for row in results.floors]
    named = [(row.name, tried) for row in results.rows for tried in row.inversions]
    lines += [(name, *_figures(tried), str(tried.photographs)) for name, tried in named]
    headings = ["descriptors", "seen by", "MAE", "SSIM", "spread", "PSNR", "photographs"]
    return lay_out(headings, lines, headings[:2])


def _figures(row: InversionRow) -> tuple[str, ...]:
    return row.attack, f"{row.mae:.3f}", f"{row.ssim:.3f}", f"{row.spread:.3f}", f"{row.psnr:.2f}"


def _beside(results: ConcealerResults, kind: str) -> str:
    """MAE, SSIM and PSNR of both architectures, our best and theirs of SOSNet; and SSIM of their base descriptor."""
    theirs = kind if kind in CONCEALED_SSIM else _ALIKE.get(kind, "sift")
    headings = ["descriptors", "SSIM above blank", f"their {theirs} SSIM"]
    for architecture in TRAINED:
        headings += [f"{architecture} {name}" for name in ("MAE", "SSIM", "PSNR")]
        headings += [f"their SOSNet {architecture} {name}" for name in ("MAE", "SSIM", "PSNR")]
    floor = next((row.ssim for row in results.floors if row.attack == BLANK), None)
    lines = []
    for row in results.rows:
        known = CONCEALED_SSIM[theirs].get(row.strength)
        above = "-" if floor is None or row.seen is None else f"{row.seen.ssim - floor:+.3f}"
        cells = [row.name, above, "-" if known is None else f"{known:.3f}"]
        for architecture in TRAINED:
            ours, paper = row.fresh(architecture), SOSNET[architecture].get(row.strength)
            cells += _three(None if ours is None else (ours.mae, ours.ssim, ours.psnr)) + _three(paper)
        lines.append(tuple(cells))
    return lay_out(headings, lines, headings[:1])


def _three(figures: Figures | None) -> list[str]:
    return ["-"] * 3 if figures is None else [f"{figures[0]:.3f}", f"{figures[1]:.3f}", f"{figures[2]:.2f}"]


def _accuracies(rows: Sequence[ConcealerRow], lifted: Sequence[MatchingRow]) -> str:
    named = [(row.name, row.matching) for row in rows if row.matching]
    named += [(f"{row.strategy} lifting m = {row.dimension}, {row.distance}", row) for row in lifted]
    lines = [
        (name, *(f"{100 * share:.1f}" for share in row.accuracy), f"{row.matches:.0f}", str(row.pairs))
        for name, row in named
    ]
    headings = ["descriptors", *(f"{px} px" for px in THRESHOLDS), "matches", "pairs"]
    return lay_out(headings, lines, headings[:1])


def draw(results: ConcealerResults, path: str | Path, title: str = "") -> None:
    """Write the utility over the privacy of every network to the PNG `path`, a line for each way of inverting.

    Raises MissingExtraError without matplotlib, NothingToDrawError when no network has both.
    """
    attacks = list(dict.fromkeys(tried.attack for row in results.rows[1:] for tried in row.inversions))
    curves = {attack: _points(results, attack) for attack in attacks}
    if not any(len(points) > 1 for points in curves.values()):
        raise NothingToDrawError("no inverter of a concealer was given, or the tasks of HPatches were not run")
    figure = blank_figure(6.4, 4.4)
    panel = figure.subplots()
    named: list[tuple[ConcealerRow, float, float, Any]] = []
    for number, (attack, points) in enumerate(curves.items()):
        colour = shades(len(curves), lightest=0.6)[number]
        looks: dict[str, Any] = {"color": colour, "marker": MARKERS[number % len(MARKERS)]}
        label = _FRESH.get(attack, f"{attack}, then inverted")
        panel.plot([x for _, x, _ in points], [y for _, _, y in points], label=label, linewidth=1.4, **looks)
        named += [(row, x, y, colour) for row, x, y in points if row.strength is not None or number == 0]
    for floor in results.floors:
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


def draw_matching(results: ConcealerResults, path: str | Path, title: str = "") -> None:
    """Write the mean matching accuracy of raw, concealed and lifted descriptors to the PNG `path`.

    Raises MissingExtraError without matplotlib, NothingToDrawError when nothing was matched.
    """
    rows = [row for row in results.rows if row.matching is not None]
    if not rows:
        raise NothingToDrawError("there is no result of image matching to draw")
    figure = blank_figure(6.4, 4.4)
    panel = figure.subplots()
    _curves(panel, rows)
    for lifted, style in zip(results.lifted, (":", "-."), strict=False):
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
    boxes = []
    for line in panel.lines:
        corners = line.get_transform().transform(np.column_stack(line.get_data()))
        for first, last in pairwise(corners):
            count = max(2, int(np.abs(last - first).max()) // 2)
            boxes += [Box(x - 1, -y - 1, 2, 2) for x, y in np.linspace(first, last, count).tolist()]
    return boxes


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


def _points(results: ConcealerResults, attack: str) -> list[tuple[ConcealerRow, float, float]]:
    """Each row that has both, with its privacy and its utility; raw descriptors are read as they are."""
    points = []
    for row in results.rows:
        read = (row.inverted(READ) or row.seen) if row.strength is None else None
        seen, gain = row.inverted(attack) or read, results.gain(row)
        if seen is not None and gain is not None:
            points.append((row, 1 - seen.ssim, 100 * gain))
    return points
