"""Records of attacks on files -> rows of what leaked, and the tables in Markdown.

An epsilon of one descriptor is never shown without the one that it adds up to over an image.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, median
from typing import Any

from featveil.core import InputError
from featveil.core.records import Record
from featveil.metrics import BINS, CLOSE, NEAR, Leakage
from featveil.metrics.leakage import MEASURED, METRIC

FLOOR = "chance"
_SHARES = (f"< {CLOSE:g} %", f"< {NEAR:g} %", "exact %")
HEADINGS = ("attack", "features", "answered %", "mean", "median", *_SHARES, "rank", "seconds")

_NAMED = ("features", "attacked", "seconds", "histogram", "knows")


@dataclass(frozen=True)
class LeakageRow(Leakage):
    """One attack on all files of one scheme; distances are shares of the true descriptor's norm.

    Means and shares are over all `count` features whose truth is certain, of `attacked` ones; `median` and `rank` are
    the medians of the files' medians. `epsilon` is that of a descriptor, `image_epsilon` that of the largest image;
    None where nothing is guaranteed. `histogram` counts distances in bins of width BIN.
    """

    scheme: str
    attack: str
    knows: tuple[str, ...]
    files: int
    attacked: int
    seconds: float
    guarantee: str
    epsilon: float | None
    image_epsilon: float | None
    histogram: tuple[int, ...]

    @property
    def title(self) -> str:
        """The scheme with what it guarantees."""
        if self.epsilon is None or self.image_epsilon is None:
            return self.scheme
        unit = " and unit of distance" if self.guarantee == "metric-dp" else ""
        return f"{self.scheme} (epsilon {self.epsilon:g} a descriptor{unit}, {self.image_epsilon:,.0f} an image)"


def leakage_rows(records: Sequence[Record]) -> list[LeakageRow]:
    """One row for each scheme, attack and what it knew, chance first in each scheme, else in the order of the records.

    Raises InputError when a record is not one of an attack on a file.
    """
    groups: dict[tuple[str, ...], list[Record]] = {}
    for record in records:
        _check(record)
        groups.setdefault((record.scheme, str(record.attack), str(record.parameters["knows"])), []).append(record)
    rows = [_row(members) for members in groups.values()]
    schemes = list(dict.fromkeys(row.scheme for row in rows))
    return sorted(rows, key=lambda row: (schemes.index(row.scheme), row.attack != FLOOR))


def leakage_cells(rows: Sequence[LeakageRow]) -> list[tuple[str, ...]]:
    """The cells of each row under HEADINGS, as text."""
    return [
        (
            row.attack,
            f"{row.count:,}",
            f"{100 * row.answered:.1f}",
            f"{row.mean:.3f}",
            f"{row.median:.3f}",
            f"{100 * row.below_close:.1f}",
            f"{100 * row.below_near:.1f}",
            f"{100 * row.exact:.1f}",
            f"{row.rank:g}",
            f"{row.seconds:.1f}" if row.seconds >= 0.1 else "< 0.1",
        )
        for row in rows
    ]


def leakage_markdown(records: Sequence[Record], notes: Sequence[str] = ()) -> str:
    """One table for each scheme over all files, then one for each file where there are several, and the `notes`."""
    if not records:
        raise InputError("there is no record to make a table of")
    parts = [
        "# What attacks recover\n",
        "Distances are those of guess and hidden descriptor, as a share of its norm; features without an answer count"
        f" with a fallback. < {CLOSE:g}, < {NEAR:g}: share of features below that distance. exact: share of guesses"
        " that are the hidden descriptor or word. rank: median place of the hidden descriptor among all of its file by"
        " distance to the guess. chance guesses without looking: the floor. Of several files, median and rank are the"
        " medians over files.\n",
        _tables(leakage_rows(records), "##"),
    ]
    files = list(dict.fromkeys(record.dataset for record in records))
    if len(files) > 1:
        for file in files:
            rows = leakage_rows([record for record in records if record.dataset == file])
            parts.append(f"## {file}\n\n{_tables(rows, '###')}")
    if notes:
        parts.append("## Notes\n\n" + "".join(f"- {note}\n" for note in notes))
    return "\n".join(parts)


def _tables(rows: Sequence[LeakageRow], level: str) -> str:
    parts = []
    for scheme in dict.fromkeys(row.scheme for row in rows):
        chosen = [row for row in rows if row.scheme == scheme]
        lines = [[*HEADINGS, "knows"], ["---", *["---:"] * (len(HEADINGS) - 1), "---"]]
        for row, cells in zip(chosen, leakage_cells(chosen), strict=True):
            lines.append([*cells, ", ".join(name.replace("_", " ") for name in row.knows) or "nothing"])
        body = "".join(f"| {' | '.join(line)} |\n" for line in lines)
        parts.append(f"{level} {chosen[0].title}\n\n{body}")
    return "\n".join(parts)


def _check(record: Record) -> None:
    whole = all(name in record.parameters for name in _NAMED) and isinstance(record.value, tuple)
    if record.task != "attack" or not whole or record.metric != METRIC:
        raise InputError(f"a record of task {record.task} is not one of an attack on a file: leave it out")
    histogram = record.parameters["histogram"]
    if len(record.value) != len(MEASURED) or not isinstance(histogram, list) or len(histogram) != BINS:  # type: ignore[arg-type]
        raise InputError("a record of an attack lacks some of its values: this file is damaged")


def _row(records: Sequence[Record]) -> LeakageRow:
    first = records[0].parameters
    values = [dict(zip(MEASURED, r.value, strict=True)) for r in records if isinstance(r.value, tuple)]
    weights = [record.count for record in records]
    measured = {name: fmean([value[name] for value in values], weights) for name in MEASURED}
    measured |= {name: median(value[name] for value in values) for name in ("median", "rank")}
    histograms: list[Any] = [record.parameters["histogram"] for record in records]
    knows: Any = first["knows"]
    epsilon = first.get("epsilon")
    largest = max(int(str(record.parameters["features"])) for record in records)
    return LeakageRow(
        scheme=records[0].scheme,
        attack=str(records[0].attack),
        knows=tuple(knows),
        files=len(records),
        count=sum(weights),
        attacked=sum(int(str(record.parameters["attacked"])) for record in records),
        seconds=sum(float(str(record.parameters["seconds"])) for record in records),
        guarantee=str(first.get("guarantee")),
        epsilon=None if epsilon is None else float(str(epsilon)),
        image_epsilon=None if epsilon is None else float(str(epsilon)) * largest,
        histogram=tuple(sum(column) for column in zip(*histograms, strict=True)),
        **measured,
    )
