"""Records of what the database and clustering attacks take for granted -> rows, tables and a figure.

Beside ours stand the numbers of tables S2 and S3 of the paper (Pittaluga and Zhuang 2023), where it has one.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING

from featveil.core import InputError
from featveil.core.records import Record
from featveil.plotting.figures import MARKERS, blank_figure, quiet, shades, write_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes

THEIR_SUCCESS = {
    4: {50: 0.9389, 20: 0.9560, 10: 0.9661, 5: 0.9746},
    16: {50: 0.8727, 20: 0.9054, 10: 0.9273, 5: 0.9438},
}
THEIR_NO_COLLISION = {2: 0.9742, 4: 0.9430, 8: 0.8546, 16: 0.7303}

_PAPER = "#c0392b"
_STUDIES = {"members": ("with members", "without members"), "collisions": ("same image", "other images")}
_COUNTED = ("met", "all found", "no collision", "no collision and all found", "clear by 0.3", "clear by 0.5", "meeting")
_NAMED = ("study", "variant", "image", "dimension", "database_size")


@dataclass(frozen=True)
class MemberRow:
    """Share of the N = `neighbours` entries nearest to a subspace that pass the ratio test between its members.

    `theirs` is the paper's, which does not say whether entries that are members themselves count.
    """

    dimension: int
    variant: str
    neighbours: int
    success: float
    theirs: float | None
    features: int


@dataclass(frozen=True)
class CollisionRow:
    """What other subspaces, of the same image or of others, give away; all but `meeting` are shares of subspaces.

    `meeting` is how many others a subspace meets on average, `met` the share that meets any, `all_found` the share of
    which every confounder lies in one of them. `no_collision`: the hidden descriptor is the member that is farthest
    from them; `no_collision_if_found` among those of which all confounders are found (None if there is none). `clear`:
    they stay at least 0.3 or 0.5 away from it.
    """

    dimension: int
    variant: str
    meeting: float
    met: float
    all_found: float
    no_collision: float
    no_collision_if_found: float | None
    clear_by_03: float
    clear_by_05: float
    theirs: float | None
    features: int


def summarize_assumptions(records: Sequence[Record]) -> tuple[list[MemberRow], list[CollisionRow]]:
    """Rows of both studies by dimension and variant; means over the features of all photographs.

    Raises InputError when a record is of something else.
    """
    groups: dict[tuple[str, str, int], list[Record]] = {}
    for record in records:
        _check(record)
        found = record.parameters
        key = str(found["study"]), str(found["variant"]), int(str(found["dimension"]))
        groups.setdefault(key, []).append(record)
    members: list[MemberRow] = []
    collisions: list[CollisionRow] = []
    for (study, variant, m), group in sorted(groups.items(), key=_place):
        if study == "members":
            members += _member_rows(m, variant, group)
        else:
            collisions.append(_collision_row(m, variant, group))
    return members, collisions


def member_cells(rows: Sequence[MemberRow]) -> tuple[list[str], list[tuple[str, ...]]]:
    """Headings, and for each dimension the paper's line and one of ours for each variant."""
    counts = list(dict.fromkeys(row.neighbours for row in rows))
    lines: list[tuple[str, ...]] = []
    for m in dict.fromkeys(row.dimension for row in rows):
        chosen = {(row.variant, row.neighbours): row for row in rows if row.dimension == m}
        if m in THEIR_SUCCESS:
            lines.append((str(m), "paper", *(_percent(THEIR_SUCCESS[m].get(count)) for count in counts)))
        for variant in dict.fromkeys(variant for variant, _ in chosen):
            lines.append((str(m), variant, *(_percent(chosen[variant, count].success) for count in counts)))
    return ["m", "neighbours", *(f"N = {count}" for count in counts)], lines


def collision_cells(rows: Sequence[CollisionRow]) -> tuple[list[str], list[tuple[str, ...]]]:
    """Headings, and the cells of each row as text."""
    headings = ["m", "others of", "meeting", "met", "all found", "no collision", "if found", "clear 0.3", "clear 0.5"]
    lines: list[tuple[str, ...]] = [
        (
            *(str(row.dimension), row.variant, f"{row.meeting:.2f}", _percent(row.met), _percent(row.all_found)),
            *(_percent(row.no_collision), _percent(row.no_collision_if_found)),
            *(_percent(row.clear_by_03), _percent(row.clear_by_05), _percent(row.theirs)),
        )
        for row in rows
    ]
    return [*headings, "paper"], lines


def assumptions_markdown(records: Sequence[Record]) -> str:
    """Both tables, with what their columns mean."""
    if not records:
        raise InputError("there is no record to make a table of")
    members, collisions = summarize_assumptions(records)
    one, found = records[0], records[0].parameters
    images = len({record.parameters["image"] for record in records})
    features = max([row.features for row in members] + [row.features for row in collisions])
    return (
        f"# Assumptions of the database and clustering attacks on {one.dataset}\n\n"
        f"{images} photographs, {features:,} features ({found.get('kind')}, at most {found.get('max_features')} each),"
        f" {found.get('strategy')} lifting with a database of {found['database_size']:,} entries, digest"
        f" {found.get('database')}; seed {one.seed}. Shares in percent.\n\n"
        f"{_MEMBERS_EXPLAINED}\n{_lines(member_cells(members))}\n"
        f"{_COLLISIONS_EXPLAINED}\n{_lines(collision_cells(collisions))}"
    )


_MEMBERS_EXPLAINED = """\
## Entries near a subspace are near one of its members (table S2)

The members of a subspace are the hidden descriptor and the entries that it was lifted with. Of the N entries of the
lifting database nearest to the subspace, the share whose nearest member is closer than 0.8 times the second nearest.
"with members" takes the N nearest of all entries: the members among them are their own nearest member and always pass.
"without members" takes the next N after those. The paper does not say which it counts.
"""
_COLLISIONS_EXPLAINED = """\
## Subspaces that meet give their confounders away, not the hidden descriptor (table S3)

Q' are the other subspaces, of the same image or of all other images, that intersect the one under attack. meeting: how
many those are on average; met: subspaces that have any. all found: every confounder lies in one of Q'. no collision: of
all members, the hidden descriptor is farthest from Q', so the attack would choose it if it knew the members; a subspace
without Q' counts as a failure. if found: the same among subspaces with all confounders found. clear 0.3, clear 0.5:
no subspace of Q' comes closer to the hidden descriptor than that; a subspace without Q' counts as clear. The paper
reports subspaces "that have no collisions in our attack" and does not define a collision.
"""


def draw_assumptions(
    members: Sequence[MemberRow], collisions: Sequence[CollisionRow], path: str | Path, title: str = ""
) -> None:
    """Write success over N and the shares of subspaces over m as a PNG to `path`, the paper's in red.

    Raises MissingExtraError without matplotlib, InputError when there is nothing to draw.
    """
    if not members or not collisions:
        raise InputError("there is no result to draw")
    figure = blank_figure(10.5, 4.6)
    left, right = figure.subplots(1, 2)
    _draw_members(left, members)
    _draw_collisions(right, collisions)
    for panel in (left, right):
        quiet(panel)
        panel.legend(fontsize=7, frameon=False, loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2)
    write_figure(figure, path, title)


def _draw_members(panel: "Axes", rows: Sequence[MemberRow]) -> None:
    dimensions = sorted({row.dimension for row in rows})
    counts = sorted({row.neighbours for row in rows})
    for m, colour in zip(dimensions, shades(len(dimensions)), strict=True):
        chosen = sorted((row for row in rows if row.dimension == m), key=lambda row: row.neighbours)
        for variant, style in zip(_STUDIES["members"], (":", "-"), strict=True):
            values = [100 * row.success for row in chosen if row.variant == variant]
            if values:
                panel.plot(counts, values, style, color=colour, marker="o", markersize=4, label=f"m = {m}, {variant}")
        theirs = [100 * row.theirs for row in chosen if row.theirs is not None and row.variant == chosen[0].variant]
        if theirs:
            marker = MARKERS[1 + list(THEIR_SUCCESS).index(m)]
            panel.plot(counts, theirs, marker, color=_PAPER, markersize=6, label=f"m = {m}, paper")
    panel.set_xscale("log")
    panel.set_xticks(counts, [str(count) for count in counts])
    panel.minorticks_off()
    panel.set_ylim(top=101)  # shares near 100 %: the axis does not begin at 0
    panel.set_xlabel("N: entries nearest to the subspace", fontsize=9)
    panel.set_ylabel("near one of the members, %", fontsize=9)


def _draw_collisions(panel: "Axes", rows: Sequence[CollisionRow]) -> None:
    dimensions = sorted({row.dimension for row in rows})
    shown = {"all_found": "all found", "no_collision": "no collision"}
    shown |= {"clear_by_03": "clear by 0.3", "clear_by_05": "clear by 0.5"}
    for variant, style in zip(_STUDIES["collisions"], ("-", ":"), strict=True):
        chosen = sorted((row for row in rows if row.variant == variant), key=lambda row: row.dimension)
        for (name, label), colour, marker in zip(shown.items(), shades(len(shown)), MARKERS, strict=False):
            looks = {"color": colour, "marker": marker, "markersize": 4.0, "label": f"{label}, {variant}"}
            if chosen:
                heights = [100 * getattr(row, name) for row in chosen]
                panel.plot([row.dimension for row in chosen], heights, style, **looks)
    theirs = {m: 100 * value for m, value in THEIR_NO_COLLISION.items() if m in dimensions}
    if theirs:
        panel.plot(*zip(*theirs.items(), strict=True), "x", color=_PAPER, markersize=7, label="paper, no collision")
    panel.set_ylim(0, 102)
    panel.set_xscale("log", base=2)
    panel.set_xticks(dimensions, [str(m) for m in dimensions])
    panel.set_xlabel("dimension m", fontsize=9)
    panel.set_ylabel("subspaces, %", fontsize=9)


def _place(item: tuple[tuple[str, str, int], object]) -> tuple[int, int]:
    study, variant, m = item[0]
    return m, _STUDIES[study].index(variant)


def _percent(share: float | None) -> str:
    return "" if share is None else f"{100 * share:.1f}"


def _lines(table: tuple[list[str], list[tuple[str, ...]]]) -> str:
    headings, cells = table
    rule = ["---" if place == 1 else "---:" for place in range(len(headings))]
    return "".join(f"| {' | '.join(line)} |\n" for line in (headings, rule, *cells))


def _check(record: Record) -> None:
    found = record.parameters
    named = all(name in found for name in _NAMED) and found["variant"] in _STUDIES.get(str(found["study"]), ())
    if record.task != "assumptions" or not named:
        raise InputError(f"a record of task {record.task} is not one of these studies: leave it out")
    counts = found.get("neighbours") if found["study"] == "members" else list(_COUNTED)
    if not isinstance(counts, list) or not isinstance(record.value, tuple) or len(record.value) != len(counts):
        raise InputError("a record of these studies lacks some of its values: the file is damaged")


def _mean(records: Sequence[Record], place: int) -> float:
    values = [record.value[place] for record in records if isinstance(record.value, tuple)]
    return fmean(values, weights=[record.count for record in records])


def _member_rows(m: int, variant: str, records: Sequence[Record]) -> list[MemberRow]:
    counts = records[0].parameters["neighbours"]
    features = sum(record.count for record in records)
    numbers = [int(str(count)) for count in counts] if isinstance(counts, list) else []
    return [
        MemberRow(m, variant, n, _mean(records, place), THEIR_SUCCESS.get(m, {}).get(n), features)
        for place, n in enumerate(numbers)
    ]


def _collision_row(m: int, variant: str, records: Sequence[Record]) -> CollisionRow:
    means = {name: _mean(records, place) for place, name in enumerate(_COUNTED)}
    found = means["all found"]
    return CollisionRow(
        dimension=m,
        variant=variant,
        meeting=means["meeting"],
        met=means["met"],
        all_found=found,
        no_collision=means["no collision"],
        no_collision_if_found=means["no collision and all found"] / found if found else None,
        clear_by_03=means["clear by 0.3"],
        clear_by_05=means["clear by 0.5"],
        theirs=THEIR_NO_COLLISION.get(m),
        features=sum(record.count for record in records),
    )
