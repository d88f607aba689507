"""Records of repeated logins -> rows, the table in Markdown, and curves over the number of logins."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from featveil.core import InputError
from featveil.core.records import Record
from featveil.plotting.figures import MARKERS, blank_figure, quiet, write_figure
from featveil.plotting.tables import markdown_table

_NAMED = ("strategy", "dimension", "mode", "logins", "true_accept_rate")


@dataclass(frozen=True)
class LoginRow:
    """What the better of the attacks makes of some logins: its `distance` from the truth, and how often it passes."""

    strategy: str
    dimension: int
    mode: str
    logins: int
    attack: str
    distance: float
    verified: float
    true_accept_rate: float
    people: int


def summarize_logins(records: Sequence[Record]) -> list[LoginRow]:
    """One row for each scheme, mode and number of logins: the attack that comes nearest."""
    groups: dict[tuple[str, int, str, int], list[LoginRow]] = {}
    for record in records:
        found, value = record.parameters, record.value
        whole = isinstance(value, tuple) and len(value) == 2 and all(name in found for name in _NAMED)
        if record.task != "face-logins" or not whole or not isinstance(value, tuple):
            raise InputError(f"a record of task {record.task} is not one of repeated logins: leave it out")
        key = str(found["strategy"]), int(str(found["dimension"])), str(found["mode"]), int(str(found["logins"]))
        tar = float(str(found["true_accept_rate"]))
        made = LoginRow(*key, str(record.attack), value[0], value[1], tar, record.count)
        groups.setdefault(key, []).append(made)
    return [min(rows, key=lambda row: row.distance) for rows in groups.values()]


def login_cells(rows: Sequence[LoginRow]) -> tuple[list[str], list[tuple[str, ...]]]:
    """Headings, and a line for each scheme and mode: distance and share that passes at each number of logins."""
    counts = sorted({row.logins for row in rows})
    headings = ["scheme", "m", "lifted", "TAR", *(f"{n} template{'s' * (n > 1)}" for n in counts)]
    lines: dict[tuple[str, int, str], dict[int, LoginRow]] = {}
    for row in rows:
        lines.setdefault((row.strategy, row.dimension, row.mode), {})[row.logins] = row
    cells = [
        (
            strategy,
            str(dimension),
            mode,
            f"{100 * next(iter(found.values())).true_accept_rate:.1f}",
            *(_cell(found.get(count)) for count in counts),
        )
        for (strategy, dimension, mode), found in lines.items()
    ]
    return headings, cells


def logins_markdown(records: Sequence[Record]) -> str:
    """The whole table."""
    if not records:
        raise InputError("there is no record to make a table of")
    one = records[0]
    return "\n".join(
        [
            f"# Repeated logins of people in {one.dataset}\n",
            f"{one.parameters.get('people')} people, each template from another photograph (seed {one.seed}). Under"
            " the number of templates, the enrolment being the first: how far the attacker's descriptor is from the"
            " person's mean (by the better of two attacks), and in brackets how many in 100 are accepted as that person"
            " in place of a raw descriptor, at a threshold that accepts one pair of strangers in 1,000. TAR: logins"
            " that are accepted against the enrolment, both private, in percent, where one stranger in 1,000 is who"
            " sits at the device of whom it claims to be.\n",
            markdown_table(*login_cells(summarize_logins(records)), left=("scheme", "lifted")),
        ]
    )


def draw_logins(rows: Sequence[LoginRow], path: str | Path, title: str) -> None:
    """The attacker's distance over the number of logins, a panel for each scheme and a curve for each mode."""
    schemes = list(dict.fromkeys((row.strategy, row.dimension) for row in rows))
    modes = list(dict.fromkeys(row.mode for row in rows))
    figure = blank_figure(2.7 * len(schemes) + 1.6, 3.6)
    panels = figure.subplots(1, len(schemes), sharey=True, squeeze=False)[0]
    for panel, (strategy, dimension) in zip(panels, schemes, strict=True):
        for place, mode in enumerate(modes):
            chosen = [row for row in rows if (row.strategy, row.dimension, row.mode) == (strategy, dimension, mode)]
            panel.plot(
                [row.logins for row in chosen],
                [row.distance for row in chosen],
                marker=MARKERS[place],
                markersize=5,
                label=mode,
            )
        panel.set_title(f"{strategy}, m = {dimension}", fontsize=9)
        panel.set_xscale("log")
        panel.set_xticks(sorted({row.logins for row in rows}), [str(n) for n in sorted({row.logins for row in rows})])
        panel.minorticks_off()
        panel.set_ylim(0, 1.45)
        quiet(panel)
    panels[0].set_ylabel("attacker's distance from the truth", fontsize=9)
    figure.supxlabel("templates that the attacker has", fontsize=9)
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside right center", frameon=False, fontsize=8)
    write_figure(figure, path, title)


def _cell(row: LoginRow | None) -> str:
    return "-" if row is None else f"{row.distance:.2f} ({100 * row.verified:.0f})"
