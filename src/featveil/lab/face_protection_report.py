"""Records of template protection -> rows, the table in Markdown, and what is linked against what is reversed."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from featveil.core import InputError
from featveil.core.records import Record
from featveil.plotting.figures import MARKERS, blank_figure, quiet, shades, write_figure
from featveil.plotting.tables import markdown_table

_CROWDED = 0.9  # from here on points lie on each other
_BESIDE = ((-11, 5), (6, -9))


@dataclass(frozen=True)
class ProtectionRow:
    """One scheme: by the worst linker and the best attack.

    `linked` and `renewed` are D_sys with another and with the same photograph, with the score that links best.
    """

    strategy: str
    dimension: int
    linked: float
    linked_by: str
    renewed: float
    renewed_by: str
    distance: float
    verified: float
    reversed_by: str
    pairs: int


def summarize_protection(records: Sequence[Record]) -> list[ProtectionRow]:
    """One row for each scheme whose three measures are there, in the order of the records."""
    groups: dict[tuple[str, int], dict[str, list[Record]]] = {}
    for record in records:
        found = record.parameters
        if record.task != "face-protection" or "measure" not in found or "strategy" not in found:
            raise InputError(f"a record of task {record.task} is not one of template protection: leave it out")
        key = str(found["strategy"]), int(str(found["dimension"]))
        groups.setdefault(key, {}).setdefault(str(found["measure"]), []).append(record)
    return [_row(*key, found) for key, found in groups.items() if len(found) == 3]


def protection_cells(rows: Sequence[ProtectionRow]) -> tuple[list[str], list[tuple[str, ...]]]:
    """Headings, and the cells of each row as text."""
    headings = ["scheme", "m", "linked", "by", "renewed", "by ", "distance", "passes", "by  "]
    cells: list[tuple[str, ...]] = [
        (
            row.strategy,
            str(row.dimension or ""),
            f"{row.linked:.2f}",
            row.linked_by,
            f"{row.renewed:.2f}",
            row.renewed_by,
            f"{row.distance:.2f}",
            f"{100 * row.verified:.1f}",
            row.reversed_by,
        )
        for row in rows
    ]
    return headings, cells


def protection_markdown(records: Sequence[Record]) -> str:
    """The whole table."""
    if not records:
        raise InputError("there is no record to make a table of")
    one = records[0]
    return "\n".join(
        [
            f"# Template protection on {one.dataset}\n",
            f"{one.parameters.get('pairs'):,} pairs, seed {one.seed}. linked: D_sys of templates of two photographs of"
            " one person, lifted independently (0: never linked, 1: always), by the score that links best. renewed: the"
            " same where both templates are of one photograph, the worst case of a template that replaces a revoked"
            " one; with another photograph it is as in linked. distance: of the best attack's guess from the hidden"
            " descriptor (two strangers: 1.41). passes: guesses that are accepted as that person in place of a raw"
            " descriptor, in percent, where one pair of strangers in 1,000 is; best attack by this share. distance"
            " (linker): of two subspaces; centres: cosine of their points nearest the origin; unmixed: that of what is"
            " left without known confounders.\n",
            markdown_table(*protection_cells(summarize_protection(records)), left=("scheme", "by", "by ", "by  ")),
        ]
    )


def draw_protection(rows: Sequence[ProtectionRow], path: str | Path, title: str) -> None:
    """Share of guesses that pass over D_sys: the lower left is protected."""
    figure = blank_figure(7.6, 4.6)
    panel = figure.subplots()
    strategies = list(dict.fromkeys(row.strategy for row in rows))
    for place, (strategy, colour) in enumerate(zip(strategies, shades(len(strategies)), strict=True)):
        chosen = [row for row in rows if row.strategy == strategy]
        looks = {"marker": MARKERS[place % len(MARKERS)], "color": colour, "markersize": 6, "linewidth": 1.0}
        panel.plot([row.linked for row in chosen], [100 * row.verified for row in chosen], label=strategy, **looks)
        for row in chosen:
            if row.linked < _CROWDED:
                where = row.linked, 100 * row.verified
                panel.annotate(str(row.dimension), where, _BESIDE[place % 2], textcoords="offset points", fontsize=7)
    panel.set_xlim(-0.02, 1.03)
    panel.set_ylim(-3, 104)
    panel.set_xlabel("templates of one person are linked (D_sys)", fontsize=9)
    panel.set_ylabel("recovered descriptors that verify (%)", fontsize=9)
    quiet(panel)
    names = {"title": "numbers: dimension", "title_fontsize": 8, "fontsize": 9}
    figure.legend(loc="outside right center", frameon=False, **names)
    write_figure(figure, path, title)


def _row(strategy: str, dimension: int, found: dict[str, list[Record]]) -> ProtectionRow:
    linked, renewed = (_worst(found[name]) for name in ("unlinkability", "renewed, same photograph"))
    best = max(found["irreversibility"], key=lambda one: _pair(one)[1])
    return ProtectionRow(
        strategy,
        dimension,
        *linked,
        *renewed,
        *_pair(best),
        str(best.attack),
        max(one.count for one in found["unlinkability"]),
    )


def _worst(records: Sequence[Record]) -> tuple[float, str]:
    worst = max(records, key=lambda one: float(str(one.value)))
    return float(str(worst.value)), str(worst.attack)


def _pair(record: Record) -> tuple[float, float]:
    if not isinstance(record.value, tuple) or len(record.value) != 2:
        raise InputError("a record of irreversibility lacks its two values: the file is damaged")
    return record.value[0], record.value[1]
