"""Records of patch descriptors -> rows, and the table in Markdown."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import mean

from featveil.core import InputError
from featveil.core.records import Record

TASKS = ("verification", "matching", "retrieval")

_FPR = "FPR@95"


@dataclass(frozen=True)
class PatchRow:
    """One descriptor under one scheme: FPR@95 by patch set, and mAP by task and level.

    `precisions` has keys such as "matching easy"; verification is the mean over negatives of one scene and of two.
    """

    kind: str
    scheme: str
    false_positives: dict[str, float]
    precisions: dict[str, float]

    def mean_of(self, task: str) -> float | None:
        """Mean over the levels of one task; None where it was not run."""
        found = [value for name, value in self.precisions.items() if name.split()[0] == task]
        return mean(found) if found else None

    @property
    def mean_precision(self) -> float | None:
        """Mean over the three tasks and all levels, as NinjaDesc's figure 8b has it; None unless all are there."""
        tasks = {name.split()[0] for name in self.precisions}
        return mean(self.precisions.values()) if tasks == set(TASKS) else None


def summarize_patches(records: Sequence[Record]) -> list[PatchRow]:
    """One row for each descriptor and scheme, in the order of the records; "chance" goes last.

    Raises InputError when a record is not one of patches, two are of one measurement, or sequences of two data sets.
    """
    if len({record.dataset for record in records if record.parameters.get("measure") != _FPR}) > 1:
        raise InputError("these records are of sequences of two data sets: make a table of each")
    values: dict[tuple[str, str], dict[tuple[str, ...], float]] = {}
    for record in records:
        if record.task != "patches" or not isinstance(record.value, float) or "measure" not in record.parameters:
            raise InputError(f"a record of task {record.task} is not one of patches: leave it out")
        found = record.parameters
        row = values.setdefault((str(found.get("kind")), record.scheme), {})
        name = (record.dataset, *str(found["measure"]).split(), str(found.get("level")))
        if name in row:
            raise InputError("these records have one measurement twice: make a table of each run")
        row[name] = record.value
    rows = [_row(kind, scheme, found) for (kind, scheme), found in values.items()]
    return sorted(rows, key=lambda row: row.scheme == "chance")


def patch_cells(rows: Sequence[PatchRow]) -> tuple[list[str], list[tuple[str, ...]]]:
    """Headings, and the cells of each row as text, all in percent."""
    sets = list(dict.fromkeys(name for row in rows for name in row.false_positives))
    tasks = list(dict.fromkeys(name for row in rows for name in row.precisions))
    headings = ["descriptor", "scheme", *(f"{_FPR} {name}" for name in sets), *tasks]
    headings += ["mean mAP"] if tasks else []
    cells = []
    for row in rows:
        numbers = [row.false_positives.get(name) for name in sets] + [row.precisions.get(name) for name in tasks]
        numbers += [row.mean_precision] if tasks else []
        cells.append((row.kind, row.scheme, *(percent(one) for one in numbers)))
    return headings, cells


def percent(share: float | None) -> str:
    """A share as text; a dash for none."""
    return "-" if share is None else f"{100 * share:.2f}"


def patch_markdown(records: Sequence[Record]) -> str:
    """The table, with what its columns mean."""
    if not records:
        raise InputError("there is no record to make a table of")
    headings, cells = patch_cells(summarize_patches(records))
    rule = ["---" if heading in ("descriptor", "scheme") else "---:" for heading in headings]
    lines = "".join(f"| {' | '.join(line)} |\n" for line in (headings, rule, *cells))
    names = ", ".join(dict.fromkeys(record.dataset for record in records))
    found, seed = records[0].parameters, records[0].seed
    settings = f"at most {found.get('max_patches')} patches a scene, {found.get('queries')} queries, seed {seed}"
    return f"# Patch descriptors on {names}\n\nAll numbers in percent ({settings}).\n\n{_EXPLAINED}\n{lines}"


_EXPLAINED = """\
- FPR@95: share of non-matching pairs that are taken for matches when 95 % of the matching ones are. Lower is better.
- verification, matching, retrieval: mean average precision of the tasks of HPatches. Higher is better. Verification is
  the mean over negatives of the same scene and of other scenes. easy, hard: how much patches are disturbed.
- scheme: what is done to the descriptors. raw: nothing. chance: random vectors, which know nothing.
"""


def _row(kind: str, scheme: str, found: dict[tuple[str, ...], float]) -> PatchRow:
    false_positives, grouped = {}, dict[str, list[float]]()
    for (dataset, measure, *_, level), value in found.items():
        if measure == _FPR:
            false_positives[dataset] = value
        else:
            grouped.setdefault(f"{measure} {level}", []).append(value)
    order = sorted(grouped, key=lambda name: TASKS.index(name.split()[0]))
    return PatchRow(kind, scheme, false_positives, {name: mean(grouped[name]) for name in order})
