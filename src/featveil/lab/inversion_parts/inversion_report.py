"""Records of inverted photographs -> rows, tables beside floors and the papers, curves, and a grid of pictures.

A row is a mean over photographs, each of which counts alike. Floors are records of raw descriptors: they do not depend
on the defense.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, pstdev
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from featveil.core import InputError
from featveil.core.records import Record
from featveil.lab.bench import Column, markdown_table
from featveil.lab.mapping import both_epsilons, epsilon_cell, image_epsilon_cell
from featveil.lab.papers import LDP_FEAT, LIFTING, Figures
from featveil.plotting.figures import LEVELS, MARKERS, blank_figure, quiet, shades, write_figure
from featveil.plotting.tables import markdown_table as lay_out

if TYPE_CHECKING:
    from matplotlib.axes import Axes

RAW = "identity"
BLANK, CHANCE, CONSTANT, READ = "blank", "chance", "constant", "read"
FLOORS = (BLANK, CHANCE, CONSTANT)

Picture = NDArray[np.uint8]
Place = Callable[["InversionRow"], float | None]

_NOT_ADVERSARIES = (*FLOORS, "oracle")
_LEVELS = {
    READ: ("raw descriptors", LEVELS["raw"], "--"),
    CONSTANT: ("positions alone", "#555555", "--"),
    CHANCE: ("random descriptors", "#555555", ":"),
    BLANK: ("grey picture", "#555555", "-."),
}
_MOST = 0.9  # of the figure's highest value that the lowest may be: small differences stay small
_INCHES = 1.35  # of a picture


@dataclass(frozen=True)
class InversionRow:
    """One attack on one scheme over all photographs: means of MAE, SSIM and PSNR of what it paints.

    `spread` is the standard deviation of SSIM over the photographs, `distance` the mean of the photographs' median
    distances between guessed and hidden descriptors (None without guesses), `seconds` those of the attack on a
    photograph. `image_epsilon` is what `epsilon` of a descriptor adds up to; None where nothing is guaranteed.
    """

    scheme: str
    defense: str
    attack: str
    photographs: int
    mae: float
    ssim: float
    psnr: float
    spread: float
    distance: float | None
    answered: float | None
    seconds: float
    strategy: str | None
    dimension: int | None
    subset_size: int | None
    epsilon: float | None
    image_epsilon: float | None


def _name(row: InversionRow) -> str:
    """Floors are of no defense."""
    return "-" if row.attack in FLOORS else row.scheme


COLUMNS: tuple[Column[InversionRow], ...] = (
    Column("scheme", lambda row: row.scheme, left=True, screen="defense", brief=_name),
    Column("attack", lambda row: row.attack, left=True, screen="best attack"),
    Column("MAE", lambda row: f"{row.mae:.4f}", brief=lambda row: f"{row.mae:.3f}"),
    Column("SSIM", lambda row: f"{row.ssim:.4f}", brief=lambda row: f"{row.ssim:.3f}"),
    Column("spread", lambda row: f"{row.spread:.3f}", screen=None),
    Column("PSNR", lambda row: f"{row.psnr:.2f}"),
    Column("photographs", lambda row: str(row.photographs)),
    Column("answered %", lambda row: "-" if row.answered is None else f"{100 * row.answered:.0f}", screen=None),
    Column("distance", lambda row: "-" if row.distance is None else f"{row.distance:.3f}", screen=None),
    Column("seconds", lambda row: f"{row.seconds:.1f}", screen=None),
    Column("epsilon", lambda row: epsilon_cell(row.epsilon), screen=None),
    Column("epsilon an image", lambda row: image_epsilon_cell(row.image_epsilon), screen=None),
)


def rows_of(records: Sequence[Record]) -> list[InversionRow]:
    """One row for each scheme and attack, in the order of the records."""
    groups: dict[tuple[str, str], list[Record]] = {}
    for record in records:
        if record.attack is None:
            raise InputError("a record of inversion names an attack: this file is damaged")
        groups.setdefault((record.scheme, record.attack), []).append(record)
    return [_row(members) for members in groups.values()]


def _row(records: Sequence[Record]) -> InversionRow:
    one = records[0]
    measured = [record.value for record in records if isinstance(record.value, tuple)]
    similarities = [value[1] for value in measured]
    epsilons = [both_epsilons(record) for record in records]
    image_epsilons = [image for _, image in epsilons if image is not None]
    strategy = one.parameters.get("strategy")
    return InversionRow(
        scheme=one.scheme,
        defense=str(one.parameters["defense"]),
        attack=str(one.attack),
        photographs=len(records),
        mae=fmean(value[0] for value in measured),
        ssim=fmean(similarities),
        psnr=fmean(value[2] for value in measured),
        spread=pstdev(similarities),
        distance=_mean(records, "median_distance"),
        answered=_mean(records, "answered"),
        seconds=_mean(records, "seconds") or 0.0,
        strategy=None if strategy is None else str(strategy),
        dimension=_whole(one, "dimension"),
        subset_size=_whole(one, "subset_size"),
        epsilon=epsilons[0][0],
        image_epsilon=fmean(image_epsilons) if image_epsilons else None,
    )


def _mean(records: Sequence[Record], name: str) -> float | None:
    values = [record.parameters.get(name) for record in records]
    numbers = [float(value) for value in values if isinstance(value, int | float)]
    return fmean(numbers) if numbers else None


def _whole(record: Record, name: str) -> int | None:
    value = record.parameters.get(name)
    return None if value is None else int(str(value))


def best_inversions(rows: Sequence[InversionRow]) -> dict[str, InversionRow]:
    """Of each scheme the attack with the highest SSIM; no floor, and no oracle, which knows the truth.

    Raw descriptors are read with what the other schemes send of keypoints.
    """
    best: dict[str, InversionRow] = {}
    for row in rows:
        if row.attack.split(" + ")[0] in _NOT_ADVERSARIES or row.attack.endswith("geometry"):
            continue
        if row.scheme not in best or row.ssim > best[row.scheme].ssim:
            best[row.scheme] = row
    return best


def grid_columns(rows: Sequence[InversionRow]) -> list[tuple[str, str]]:
    """Scheme and attack of what a grid shows: raw, each private scheme by its best attack, and positions alone."""
    best = best_inversions(rows)
    there = {(row.scheme, row.attack) for row in rows}
    private = [(scheme, row.attack) for scheme, row in best.items() if scheme != RAW]
    return [one for one in ((RAW, READ), *private, (RAW, CONSTANT)) if one in there]


def inversion_text(rows: Sequence[InversionRow], records: Sequence[Record]) -> str:
    """SSIM of every attack on every scheme, then beside the papers' numbers, then all figures."""
    parts = [f"# What attackers see of {records[0].dataset}\n", _settings(records, rows), _EXPLAINED]
    private = [row for row in rows if row.scheme != RAW]
    for defense in dict.fromkeys(row.defense for row in private):
        chosen = [row for row in private if row.defense == defense]
        parts.append(f"## {defense}: SSIM\n\n{_grid(chosen, rows)}")
    if known := [row for row in rows if (row.scheme, row.attack) in {**LDP_FEAT, **LIFTING}]:
        parts.append(f"## Beside the papers\n\n{_THEIRS}\n{_beside(known)}")
    parts.append(f"## All figures\n\n{markdown_table(COLUMNS, rows)}")
    return "\n".join(parts)


_EXPLAINED = """\
- SSIM, MAE and PSNR are of grey values in 0 to 1; an SSIM of 1 is the photograph itself. Floors: **blank** is a grey
  picture, **chance** random descriptors at the true positions, **constant** the average descriptor at all of them: what
  this inverter makes of positions alone, which no defense of descriptors hides. One trained on positions may see more.
- Every other attack estimates all descriptors, which an inverter of raw ones paints. **direct** is an inverter trained
  on what the defense sends. **read** on raw descriptors is what there is without any defense; **read + geometry** with
  scale, orientation and response of the keypoints as well. A name after + is what else the adversary has.
- The oracle knows the truth: it is no adversary. best: the attack with the highest SSIM, oracle and floors left out.
"""
_THEIRS = """\
Theirs are other photographs (10 of Flickr), networks (full size, trained on MegaDepth) and databases (256,000 entries),
and the papers' SSIM differ from each other at equal MAE: compare orders, not digits. Both give no floor.
"""


def _settings(records: Sequence[Record], rows: Sequence[InversionRow]) -> str:
    one = records[0]
    stated = one.parameters
    which = "" if stated.get("part") == "all" else f" of the {stated.get('part')} part"
    sent = "positions only" if stated.get("geometry") == "positions" else "positions, scale, orientation and response"
    names = {
        f"{record.parameters['inverter_name']} ({record.parameters['inverter']})"
        for record in records
        if record.attack == READ and record.parameters.get("inverter")
    }
    return (
        f"{max(row.photographs for row in rows)} photographs{which}, the middle square of each at 256 x 256 pixels;"
        f" {stated.get('kind')}, at most {stated.get('max_features')} features of each, all of them attacked. Sent of"
        f" keypoints: {sent}. Raw descriptors are inverted by {', '.join(sorted(names)) or 'none'}; seed {one.seed}.\n"
    )


def _grid(rows: Sequence[InversionRow], everything: Sequence[InversionRow]) -> str:
    """Attacks x schemes, between the floors and raw descriptors."""
    schemes, attacks = (list(dict.fromkeys(getattr(row, name) for row in rows)) for name in ("scheme", "attack"))
    cells = {(row.scheme, row.attack): f"{row.ssim:.3f}" for row in rows}
    plain = {row.attack: f"{row.ssim:.3f}" for row in everything if row.scheme == RAW}
    best = {scheme: f"{row.attack} {row.ssim:.3f}" for scheme, row in best_inversions(rows).items()}
    lines = [[floor, *(plain[floor] for _ in schemes)] for floor in FLOORS if floor in plain]
    lines += [[attack, *(cells.get((scheme, attack), "-") for scheme in schemes)] for attack in attacks]
    lines += [[f"raw descriptors: {name}", *(plain[name] for _ in schemes)] for name in plain if READ in name]
    lines.append(["**best**", *(best.get(scheme, "-") for scheme in schemes)])
    return lay_out(["attack", *schemes], lines, ["attack"])


def _beside(rows: Sequence[InversionRow]) -> str:
    measures = ("MAE", "SSIM", "PSNR")
    headings = ["scheme", "attack", *measures, *(f"LDP-FEAT {name}" for name in measures)]
    headings += [f"lifting paper {name}" for name in measures]
    lines = []
    for row in rows:
        theirs = [paper.get((row.scheme, row.attack)) for paper in (LDP_FEAT, LIFTING)]
        numbers = [(row.mae, row.ssim, row.psnr), *theirs]
        lines.append([row.scheme, row.attack, *(cell for figures in numbers for cell in _figures(figures))])
    return lay_out(headings, lines, ["scheme", "attack"])


def _figures(figures: Figures | None) -> tuple[str, str, str]:
    if figures is None:
        return "-", "-", "-"
    return f"{figures[0]:.3f}", f"{figures[1]:.3f}", f"{figures[2]:.2f}"


def draw(rows: Sequence[InversionRow], path: str | Path, title: str = "") -> None:
    """SSIM of what every attacker sees, as a PNG: over the dimension of subspaces, and over epsilon of word sets.

    Other schemes are left out. Dashed lines are the floors and raw descriptors: the same for every defense.

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
    looks = _looks(list(dict.fromkeys(name for lines in curves for name in lines)))
    entries: dict[str, Any] = {}
    for panel, lines, (_, place, label) in zip(panels, curves, parts, strict=True):
        _panel(panel, lines, place, looks)
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
    return max(strategies.values(), key=lambda same: (len({row.dimension for row in same}), len(same)), default=[])


def _curves(rows: Sequence[InversionRow]) -> dict[str, list[InversionRow]]:
    """The rows of each attack; of each size of word sets apart, where there are several."""
    curves: dict[str, list[InversionRow]] = {}
    several = len({row.subset_size for row in rows}) > 1
    for row in rows:
        curves.setdefault(f"{row.attack}, k = {row.subset_size}" if several else row.attack, []).append(row)
    return curves


def _looks(names: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Colour, marker and label of each attack, the same in every panel."""
    looks: dict[str, dict[str, Any]] = {}
    for number, (name, colour) in enumerate(zip(names, shades(len(names)), strict=True)):
        looks[name] = {"color": colour, "marker": MARKERS[number % len(MARKERS)], "label": name}
        looks[name]["linestyle"] = (0, (1, 1)) if name.startswith("oracle") else "-"
    return looks


def _panel(
    panel: "Axes", curves: dict[str, list[InversionRow]], place: Place, looks: dict[str, dict[str, Any]]
) -> None:
    for name, rows in curves.items():
        points = sorted((place(row) or 0.0, row.ssim) for row in rows)
        panel.plot([at for at, _ in points], [ssim for _, ssim in points], linewidth=1.6, markersize=5, **looks[name])
    quiet(panel)
    ticks = {place(row) or 0.0: row.image_epsilon for rows in curves.values() for row in rows}
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


@dataclass(frozen=True, eq=False)
class Seen:
    """What an attacker sees of a photograph, uint8 RGB, and how near that is."""

    picture: Picture
    ssim: float


def draw_grid(
    columns: Sequence[tuple[str, str]],
    photographs: Sequence[Picture],
    seen: Sequence[Sequence[Seen | None]],
    path: str | Path,
    title: str = "",
) -> None:
    """Write the grid to the PNG `path`; `seen` has a line for each photograph, in it one for each column, or None.

    `columns` are scheme and attack. Raises MissingExtraError without matplotlib, InputError when there is no photograph
    or column.
    """
    if not photographs or not columns:
        raise InputError("there is nothing to show: name photographs that were attacked")
    figure = blank_figure(_INCHES * (len(columns) + 1) + 0.1, (_INCHES + 0.14) * len(photographs) + 0.45)
    panels = figure.subplots(len(photographs), len(columns) + 1, squeeze=False)
    for line, photograph, cells in zip(panels, photographs, seen, strict=True):
        line[0].imshow(photograph)
        for panel, cell in zip(line[1:], cells, strict=True):
            if cell is not None:
                panel.imshow(cell.picture)
                panel.set_xlabel(f"SSIM {cell.ssim:.2f}", fontsize=7.5, labelpad=2)
        for panel in line:
            panel.set_xticks([])
            panel.set_yticks([])
            panel.spines[:].set_visible(False)
    for panel, heading in zip(
        panels[0], ["photograph\n", *(column_heading(*column) for column in columns)], strict=True
    ):
        panel.set_title(heading, fontsize=8)
    write_figure(figure, path, title)


def column_heading(scheme: str, attack: str) -> str:
    """Two lines above a column."""
    if scheme == RAW:
        return {READ: "raw\ndescriptors", CONSTANT: "positions\nalone"}.get(attack, f"raw\n{attack}")
    return f"{scheme}\n{attack}"
