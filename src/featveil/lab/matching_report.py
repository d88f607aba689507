"""Records of image matching -> rows of mean matching accuracy, and the table in Markdown."""

from collections.abc import Sequence
from dataclasses import dataclass

from featveil.core import InputError
from featveil.core.records import Record
from featveil.metrics import THRESHOLDS, mean_matching_accuracy

_SHOWN = (1, 3, 5, 10)
_RIGHT = THRESHOLDS.index(3)
_NAMED = ("strategy", "dimension", "distance")
_CHANGES = ("illumination", "viewpoint")
_Group = tuple[str, int, str]


@dataclass(frozen=True)
class MatchingRow:
    """One scheme over all its image pairs: `accuracy` at 1 to 10 px, and means a pair.

    `matches` is their mean number, `right` that of the ones within 3 px. Accuracy is a precision: a scheme that
    keeps fewer matches can score above raw descriptors and still find less.
    """

    strategy: str
    dimension: int
    distance: str
    accuracy: tuple[float, ...]
    pairs: int
    matches: float
    right: float

    def at(self, threshold: int) -> float:
        """Mean matching accuracy at a threshold of 1 to 10 px."""
        return self.accuracy[THRESHOLDS.index(threshold)]


def summarize_matching(records: Sequence[Record], change: str | None = None) -> list[MatchingRow]:
    """One row a scheme, raw descriptors first, then distance by distance, in the order of the records.

    `change` keeps the scenes of one kind, "illumination" or "viewpoint". Raises InputError when a record is
    not of image matching.
    """
    groups: dict[_Group, list[Record]] = {}
    for record in records:
        group = _group(record)
        if change is None or record.parameters.get("change") == change:
            groups.setdefault(group, []).append(record)
    rows = [_row(group, members) for group, members in groups.items()]
    # A stable sort: strategies and dimensions stay in the order in which they were asked for.
    return sorted(rows, key=lambda row: (row.strategy != "raw", row.distance))


def matching_cells(rows: Sequence[MatchingRow]) -> tuple[list[str], list[tuple[str, ...]]]:
    """Headings, and the cells of each row as text, accuracies in percent."""
    headings = ["scheme", "m", "distance", *(f"MMA@{threshold}" for threshold in _SHOWN), "matches", "right@3", "pairs"]
    cells = [
        (
            row.strategy,
            str(row.dimension),
            row.distance,
            *(f"{100 * row.at(threshold):.1f}" for threshold in _SHOWN),
            f"{row.matches:.0f}",
            f"{row.right:.0f}",
            str(row.pairs),
        )
        for row in rows
    ]
    return headings, cells


def matching_markdown(records: Sequence[Record]) -> str:
    """The whole table, and one for each kind of change where scenes are named by it."""
    if not records:
        raise InputError("there is no record to make a table of")
    one = records[0]
    settings = f"{one.parameters.get('kind')}, at most {one.parameters.get('max_features')} features an image"
    parts = [
        f"# Image matching on {one.dataset}\n",
        f"Mean matching accuracy in percent of mutual nearest neighbours ({settings}, seed {one.seed})."
        " MMA@t: the reprojected keypoint is at most t pixels off. A pair without matches counts as 0."
        " matches and right@3: mean number a pair, of all and of those within 3 pixels;"
        " accuracy alone rewards a scheme that keeps few.\n",
        _markdown(summarize_matching(records)),
    ]
    for change in _CHANGES:
        rows = summarize_matching(records, change)
        if rows:
            parts.append(f"\n## Scenes that change in {change}\n\n{_markdown(rows)}")
    return "\n".join(parts)


def _markdown(rows: Sequence[MatchingRow]) -> str:
    headings, cells = matching_cells(rows)
    rule = ["---" if heading in ("scheme", "distance") else "---:" for heading in headings]
    return "".join(f"| {' | '.join(line)} |\n" for line in (headings, rule, *cells))


def _group(record: Record) -> _Group:
    found = record.parameters
    whole = all(name in found for name in _NAMED) and isinstance(record.value, tuple)
    if record.task != "matching" or not whole or len(record.value) != len(THRESHOLDS):  # type: ignore[arg-type]
        raise InputError(f"a record of task {record.task} is not one of image matching: leave it out")
    return str(found["strategy"]), int(str(found["dimension"])), str(found["distance"])


def _row(group: _Group, records: Sequence[Record]) -> MatchingRow:
    accuracies = [record.value for record in records if isinstance(record.value, tuple)]
    mean = tuple(float(share) for share in mean_matching_accuracy(accuracies))
    matches = [record.count for record in records]
    right = [count * accuracy[_RIGHT] for count, accuracy in zip(matches, accuracies, strict=True)]
    pairs = len(records)
    return MatchingRow(*group, mean, pairs, sum(matches) / pairs, sum(right) / pairs)
