"""Records of the oracle attack -> the curve of mean distance over K, as rows, a table and a figure."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from featveil.core import InputError
from featveil.core.records import Record
from featveil.plotting.figures import blank_figure, quiet, shades, write_figure

_GUESSES = ("plain", "projected", "chance")
_NAMED = ("kind", "guess", "image", "neighbours", "dimension")


@dataclass(frozen=True)
class OracleRow:
    """Mean distance from the truth, as a share of its norm, over all features of one descriptor kind at K neighbours.

    `neighbours` is K; the last row of a kind has all of the attacker's database, the limit of the curve. `chance` is
    a random entry of that database, the same for every K.
    """

    kind: str
    scheme: str
    neighbours: int
    plain: float
    projected: float
    chance: float
    features: int
    images: int


def summarize_oracle(records: Sequence[Record]) -> list[OracleRow]:
    """One row for each kind and K, in rising K; means over features, of all photographs together.

    Raises InputError when a record is of something else, or a photograph lacks one of its three records.
    """
    groups: dict[tuple[str, str], list[Record]] = {}
    for record in records:
        _check(record)
        groups.setdefault((str(record.parameters["kind"]), record.scheme), []).append(record)
    return [row for members in groups.values() for row in _rows(members)]


def oracle_cells(rows: Sequence[OracleRow]) -> tuple[list[str], list[tuple[str, ...]]]:
    """Headings, and a line of text for every K; then one for chance."""
    groups = _by_kind(rows)
    headings = ["K", *(f"{kind} {guess}" for kind in groups for guess in ("plain", "projected"))]
    lines = []
    for count in sorted({row.neighbours for row in rows}):
        found = [next((row for row in group if row.neighbours == count), None) for group in groups.values()]
        cells = [(f"{row.plain:.3f}", f"{row.projected:.3f}") if row else ("", "") for row in found]
        lines.append((f"{count:,}", *(cell for pair in cells for cell in pair)))
    levels = [cell for group in groups.values() for cell in (f"{group[0].chance:.3f}", "")]
    return headings, [*lines, ("chance", *levels)]


def oracle_markdown(records: Sequence[Record]) -> str:
    """The table, with what its columns mean."""
    if not records:
        raise InputError("there is no record to make a table of")
    rows, one = summarize_oracle(records), records[0]
    found = one.parameters
    headings, cells = oracle_cells(rows)
    lines = "".join(f"| {' | '.join(line)} |\n" for line in (headings, ["---:" for _ in headings], *cells))
    return (
        f"# Oracle attack on {one.dataset}\n\n"
        f"{rows[0].images} photographs, {rows[0].features:,} features (at most {found.get('max_features')} each),"
        f" lifted to subspaces of dimension {found['dimension']} by {found.get('strategy')} lifting; the attacker has"
        f" {found.get('own_size'):,} descriptors of other photographs; seed {one.seed}.\n\n{_EXPLAINED}\n{lines}"
    )


_EXPLAINED = """\
Mean distance from the true descriptor, as a share of its norm (0: known exactly). Of the K descriptors of the attacker
that are nearest to the subspace, an oracle names the one closest to the truth: plain is that descriptor, projected the
point of the subspace nearest to it, which is not at norm 1. K = 1 is the nearest neighbour attack, the last K all that
the attacker has. chance is a random one of them. No adversary has the oracle: this bounds what a better choice among K
descriptors could gain, not what other attacks can do.
"""


def draw_oracle(rows: Sequence[OracleRow], path: str | Path, title: str = "") -> None:
    """Write the mean distance over K as a PNG to `path`, limits dotted, chance dashed.

    Raises MissingExtraError without matplotlib, InputError when there is nothing to draw.
    """
    if not rows:
        raise InputError("there is no result to draw")
    figure = blank_figure(7.4, 4.4)
    panel = figure.subplots()
    groups = _by_kind(rows)
    for (kind, group), colour in zip(groups.items(), shades(len(groups), 0.72, 0.05), strict=True):
        counts = [row.neighbours for row in group]
        for guess, marker in (("plain", "o"), ("projected", "^")):
            values = [getattr(row, guess) for row in group]
            looks: dict[str, Any] = {"color": colour, "marker": marker, "markersize": 5}
            panel.plot(counts, values, label=f"{kind}, {guess}", **looks)
            panel.axhline(values[-1], color=colour, linestyle=":", linewidth=1.2, zorder=1)
        panel.axhline(group[0].chance, color=colour, linestyle="--", linewidth=1.2, zorder=1, label=f"{kind}, chance")
    panel.set_xscale("log")
    panel.set_ylim(bottom=0)
    panel.set_xlabel("K: nearest descriptors that the oracle chooses from", fontsize=9)
    panel.set_ylabel("mean distance from the truth (higher hides more)", fontsize=9)
    quiet(panel)
    names = {"title": "dotted: all of the\nattacker's database", "title_fontsize": 8, "fontsize": 9}
    figure.legend(loc="outside right center", frameon=False, **names)
    write_figure(figure, path, title)


def _by_kind(rows: Sequence[OracleRow]) -> dict[str, list[OracleRow]]:
    groups: dict[str, list[OracleRow]] = {}
    for row in rows:
        groups.setdefault(row.kind, []).append(row)
    return groups


def _check(record: Record) -> None:
    named = all(name in record.parameters for name in _NAMED) and record.parameters["guess"] in _GUESSES
    if record.task != "oracle" or not named:
        raise InputError(f"a record of task {record.task} is not one of the oracle attack: leave it out")
    counts = record.parameters["neighbours"]
    single = record.parameters["guess"] == "chance"
    length = len(record.value) if isinstance(record.value, tuple) else None
    if not isinstance(counts, list) or length != (None if single else len(counts)):
        raise InputError("a record of the oracle attack lacks some of its values: the file is damaged")


def _rows(records: Sequence[Record]) -> list[OracleRow]:
    one = records[0]
    counts = one.parameters["neighbours"]
    by_guess = {guess: [record for record in records if record.parameters["guess"] == guess] for guess in _GUESSES}
    images = {guess: {str(record.parameters["image"]) for record in found} for guess, found in by_guess.items()}
    if len({frozenset(names) for names in images.values()}) > 1:
        raise InputError("some photographs of these records lack a part of the curve: run the same command again")
    if not isinstance(counts, list) or any(record.parameters["neighbours"] != counts for record in records):
        raise InputError("these records are of databases of different sizes: make a table of each")

    def mean(guess: str, place: int) -> float:
        values = [
            record.value[place] if isinstance(record.value, tuple) else record.value for record in by_guess[guess]
        ]
        return fmean(values, weights=[record.count for record in by_guess[guess]])

    return [
        OracleRow(
            kind=str(one.parameters["kind"]),
            scheme=one.scheme,
            neighbours=int(str(count)),
            plain=mean("plain", place),
            projected=mean("projected", place),
            chance=mean("chance", place),
            features=sum(record.count for record in by_guess["plain"]),
            images=len(by_guess["plain"]),
        )
        for place, count in enumerate(counts)
    ]
