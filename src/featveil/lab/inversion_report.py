"""Records of inverted photographs -> rows, and tables of what every attacker sees beside floors and the papers.

A row is a mean over photographs, each of which counts alike. Floors are records of raw descriptors: they do not depend
on the defense.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, pstdev

from featveil.core import InputError
from featveil.core.records import Record
from featveil.lab.inversion_papers import LDP_FEAT, LIFTING
from featveil.lab.mapping import both_epsilons

RAW = "identity"
BLANK, CHANCE, CONSTANT, READ = "blank", "chance", "constant", "read"
FLOORS = (BLANK, CHANCE, CONSTANT)
_NOT_ADVERSARIES = (*FLOORS, "oracle")
_VALUES = 3


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


def summarize_inversion(records: Sequence[Record]) -> list[InversionRow]:
    """One row for each scheme and attack, in the order of the records; raises InputError for other records."""
    groups: dict[tuple[str, str], list[Record]] = {}
    for record in records:
        if record.task != "inversion" or record.attack is None:
            raise InputError(f"a record of task {record.task} is not one of inversion: leave it out")
        if not isinstance(record.value, tuple) or len(record.value) != _VALUES:
            raise InputError("a record of inversion has three values: this file is damaged")
        groups.setdefault((record.scheme, record.attack), []).append(record)
    return [_row(members) for members in groups.values()]


def best_inversions(rows: Sequence[InversionRow]) -> dict[str, InversionRow]:
    """Of each scheme the attack with the highest SSIM; no floor, and no oracle, which knows the truth.

    Raw descriptors are read with what the other schemes send of keypoints.
    """
    found: dict[str, InversionRow] = {}
    for row in rows:
        if row.attack.split(" + ")[0] in _NOT_ADVERSARIES or row.attack.endswith("geometry"):
            continue
        if row.scheme not in found or row.ssim > found[row.scheme].ssim:
            found[row.scheme] = row
    return found


def inversion_columns(rows: Sequence[InversionRow]) -> list[tuple[str, str]]:
    """Scheme and attack of what a grid shows: raw, each private scheme by its best attack, and positions alone."""
    best = best_inversions(rows)
    there = {(row.scheme, row.attack) for row in rows}
    private = [(scheme, row.attack) for scheme, row in best.items() if scheme != RAW]
    return [one for one in ((RAW, READ), *private, (RAW, CONSTANT)) if one in there]


def inversion_cells(rows: Sequence[InversionRow]) -> tuple[list[str], list[tuple[str, ...]]]:
    """Headings, and the cells of each row as text."""
    headings = ["scheme", "attack", "MAE", "SSIM", "spread", "PSNR", "photographs", "answered %", "distance", "seconds"]
    return [*headings, "epsilon", "epsilon an image"], [_cells(row) for row in rows]


def inversion_markdown(records: Sequence[Record]) -> str:
    """SSIM of every attack on every scheme, then beside the papers' numbers, then all figures."""
    if not records:
        raise InputError("there is no record to make a table of")
    rows = summarize_inversion(records)
    parts = [f"# What attackers see of {records[0].dataset}\n", _settings(records, rows), _EXPLAINED]
    private = [row for row in rows if row.scheme != RAW]
    for defense in dict.fromkeys(row.defense for row in private):
        chosen = [row for row in private if row.defense == defense]
        parts.append(f"## {defense}: SSIM\n\n{_grid(chosen, rows)}")
    if known := [row for row in rows if (row.scheme, row.attack) in {**LDP_FEAT, **LIFTING}]:
        parts.append(f"## Beside the papers\n\n{_THEIRS}\n{_beside(known)}")
    parts.append(f"## All figures\n\n{_list(rows)}")
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
    found = one.parameters
    which = "" if found.get("part") == "all" else f" of the {found.get('part')} part"
    sent = "positions only" if found.get("geometry") == "positions" else "positions, scale, orientation and response"
    names = {
        f"{record.parameters['inverter_name']} ({record.parameters['inverter']})"
        for record in records
        if record.attack == READ and record.parameters.get("inverter")
    }
    return (
        f"{max(row.photographs for row in rows)} photographs{which}, the middle square of each at 256 x 256 pixels;"
        f" {found.get('kind')}, at most {found.get('max_features')} features of each, all of them attacked. Sent of"
        f" keypoints: {sent}. Raw descriptors are inverted by {', '.join(sorted(names)) or 'none'}; seed {one.seed}.\n"
    )


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
    found = [record.parameters.get(name) for record in records]
    numbers = [float(value) for value in found if isinstance(value, int | float)]
    return fmean(numbers) if numbers else None


def _whole(record: Record, name: str) -> int | None:
    value = record.parameters.get(name)
    return None if value is None else int(str(value))


def _cells(row: InversionRow) -> tuple[str, ...]:
    return (
        row.scheme,
        row.attack,
        f"{row.mae:.4f}",
        f"{row.ssim:.4f}",
        f"{row.spread:.3f}",
        f"{row.psnr:.2f}",
        str(row.photographs),
        "-" if row.answered is None else f"{100 * row.answered:.0f}",
        "-" if row.distance is None else f"{row.distance:.3f}",
        f"{row.seconds:.1f}",
        "-" if row.epsilon is None else f"{row.epsilon:g}",
        "-" if row.image_epsilon is None else f"{row.image_epsilon:,.0f}",
    )


def _grid(rows: Sequence[InversionRow], everything: Sequence[InversionRow]) -> str:
    """Attacks x schemes, between the floors and raw descriptors."""
    schemes, attacks = (list(dict.fromkeys(getattr(row, name) for row in rows)) for name in ("scheme", "attack"))
    cells = {(row.scheme, row.attack): f"{row.ssim:.3f}" for row in rows}
    plain = {row.attack: f"{row.ssim:.3f}" for row in everything if row.scheme == RAW}
    best = {scheme: f"{row.attack} {row.ssim:.3f}" for scheme, row in best_inversions(rows).items()}
    lines = [["attack", *schemes], ["---", *("---:" for _ in schemes)]]
    lines += [[floor, *(plain[floor] for _ in schemes)] for floor in FLOORS if floor in plain]
    lines += [[attack, *(cells.get((scheme, attack), "-") for scheme in schemes)] for attack in attacks]
    lines += [[f"raw descriptors: {name}", *(plain[name] for _ in schemes)] for name in plain if READ in name]
    lines.append(["**best**", *(best.get(scheme, "-") for scheme in schemes)])
    return _table(lines)


def _beside(rows: Sequence[InversionRow]) -> str:
    measures = ("MAE", "SSIM", "PSNR")
    headings = ["scheme", "attack", *measures, *(f"LDP-FEAT {name}" for name in measures)]
    lines = [[*headings, *(f"lifting paper {name}" for name in measures)]]
    lines.append(["---", "---", *("---:" for _ in lines[0][2:])])
    for row in rows:
        theirs = [paper.get((row.scheme, row.attack)) for paper in (LDP_FEAT, LIFTING)]
        numbers = [(row.mae, row.ssim, row.psnr), *theirs]
        lines.append([row.scheme, row.attack, *(cell for figures in numbers for cell in _figures(figures))])
    return _table(lines)


def _figures(figures: tuple[float, float, float] | None) -> tuple[str, str, str]:
    if figures is None:
        return "-", "-", "-"
    return f"{figures[0]:.3f}", f"{figures[1]:.3f}", f"{figures[2]:.2f}"


def _list(rows: Sequence[InversionRow]) -> str:
    headings, cells = inversion_cells(rows)
    return _table([headings, ["---", "---", *("---:" for _ in headings[2:])], *(list(line) for line in cells)])


def _table(lines: Sequence[Sequence[str]]) -> str:
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)
