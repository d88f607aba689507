"""The audit: every attack against every scheme on the same photographs, and what still matches.

For each victim, scheme and seed there is one record of matches for each number of private sides, and one for each
trial: what it gets back or, where it cannot be run, why. The same audit gives the same records with any number of
processes, whether it was interrupted or not.
"""

import logging
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path

from featveil.audit.audit_tables import audit_markdown
from featveil.audit.file import read_request
from featveil.audit.frontier import draw_frontier, has_private
from featveil.audit.gallery import AuditPictures
from featveil.audit.measuring import Audit, Measuring, Unit, measure_units
from featveil.audit.page import audit_page
from featveil.audit.painting import paint_resumable
from featveil.audit.request import Request
from featveil.audit.roles import prepare
from featveil.audit.rows import TASK, AuditRow, summarize_audit
from featveil.core import FeatveilError, InputError, MissingExtraError
from featveil.core.files import locked, make_folder, replacing
from featveil.core.records import Parameter, Record
from featveil.core.resuming import Key, Plan, Report, resume
from featveil.pipelines.painters import raw_painter
from featveil.pipelines.scoring import attack_parameters

RECORDS, PICTURES = "records.jsonl", "pictures"  # in the folder of an audit; that of pictures has records too
Stage = Callable[[str], AbstractContextManager[Report]]

_log = logging.getLogger(__name__)

_KEY = ("dataset", "seed", "victim", "scheme", "attack", "sides")


@dataclass(frozen=True)
class AuditResult:
    """What an audit gives: one row per dataset and scheme, the records behind them, and the files of its folder.

    `pictures` are the records of what the best attackers see; none where that was not painted.
    """

    rows: Sequence[AuditRow]
    records: Sequence[Record]
    pictures: Sequence[Record]
    files: Sequence[Path]


def audit(
    request: Request | str | Path | None,
    out: str | Path,
    *,
    processes: int | None = None,
    pictures: bool = True,
    inverter: Path | None = None,
    stage: Stage = lambda name: nullcontext(lambda done, total: None),
) -> AuditResult:
    """Measure what `request` asks for into the folder `out`, and write report.html, table.md and frontier.png there.

    Where private content was pasted in, frontier-private.png is about that alone.

    Example: audit("photos/", "audit/"): a folder of photographs, an audit file, or None for the built-in pictures.

    What `out` holds already is not measured again. `processes` are as many as there are cores unless given.
    `pictures` paints what the best attacker of each scheme sees, by `inverter`, a file with one of raw descriptors, or
    the built-in one. `stage` gives a context for each part of the work, "photographs", "audit" and "pictures", with a
    function that is called with what is (done, total). What cannot be read, drawn or painted is logged. Raises
    InputError as `prepare` does, and when `out` holds an audit of something else.
    """
    processes, out = _cores() if processes is None else processes, Path(out)
    if not isinstance(request, Request):
        request = read_request(None if request is None else Path(request))
    if inverter is not None:
        raw_painter(request.settings.kind, inverter)  # before anything is measured
    with stage("photographs") as report:
        plan = prepare(request, report)
    make_folder(out)
    with locked(out / ".audit.lock"):
        with stage("audit") as report:
            records = run_resumable(plan, out / RECORDS, processes, report)
        rows = summarize_audit(records)
        files = _publish(rows, records, out)
        painted: list[Record] = []
        if pictures:
            painted = _paint(plan, rows, out / PICTURES, inverter, processes, stage)
            _write(out / "report.html", audit_page(records, AuditPictures(painted, out / PICTURES)))
    return AuditResult(rows, records, painted, files)


def run_resumable(
    audit: Audit, path: str | Path, processes: int = 1, report: Report = lambda done, total: None
) -> list[Record]:
    """Measure what `path` does not hold yet, append each record once it is there, return all of the audit.

    One process means this one. `report` is called with records (done, total). Raises InputError when the file has
    other settings or is of another version of featveil.
    """
    if type(processes) is not int or processes < 1:
        raise InputError(f"processes must be a whole number of at least 1, got {processes!r}")
    wanted: dict[Key, Mapping[str, Parameter]] = {}
    of_trials = {trial.name: attack_parameters(trial.method) for trial in audit.trials}
    for unit in audit.units():
        stated = audit.stated(audit.schemes[unit.scheme])
        wanted |= {key: stated | of_trials.get(name, {}) for name, key in audit.wanted(unit).items()}
    plan = Plan(TASK, _KEY, audit.shared(), wanted)
    return resume(path, plan, lambda done: _measure(audit, done, processes), report)


def _measure(audit: Audit, done: frozenset[Key], processes: int) -> Iterator[Record]:
    """The records that are not `done`."""
    missing: dict[Unit, tuple[str, ...]] = {}
    for unit in audit.units():
        names = tuple(name for name, key in audit.wanted(unit).items() if key not in done)
        if names:
            missing[unit] = names
    if processes > 1 and len(missing) > 1:
        yield from measure_units(audit, missing, processes)
        return
    measuring = Measuring(audit)
    for unit, names in missing.items():
        yield from measuring.records(unit, names)


def _cores() -> int:
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity else os.cpu_count() or 1


def _publish(rows: Sequence[AuditRow], records: Sequence[Record], out: Path) -> list[Path]:
    """Write page, table and figure; the files of the folder."""
    _write(out / "report.html", audit_page(records))
    _write(out / "table.md", audit_markdown(records))
    files = [out / name for name in (RECORDS, "report.html", "table.md")]
    try:
        draw_frontier(rows, out / "frontier.png", "Privacy and utility")
        files.append(out / "frontier.png")
        if has_private(rows):
            draw_frontier(rows, out / "frontier-private.png", "Private content and utility", "private")
            files.append(out / "frontier-private.png")
    except MissingExtraError as error:
        _log.warning("frontier.png was not drawn: %s", error)
    return files


def _paint(
    plan: Audit, rows: Sequence[AuditRow], folder: Path, inverter: Path | None, processes: int, stage: Stage
) -> list[Record]:
    """Records of what the best attackers see; none where that is not possible."""
    best = {(row.dataset, row.scheme): row.best.attack for row in rows if row.best is not None}
    try:
        with stage("pictures") as report:
            painted = paint_resumable(plan, best, folder, inverter, processes, report)
    except FeatveilError as error:
        _log.warning("no pictures: %s", error)
        return []
    for reason in dict.fromkeys(record.parameters.get("reason") for record in painted):
        if reason is not None:
            _log.warning("not painted: %s", reason)
    return painted


def _write(path: Path, text: str) -> None:
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")
