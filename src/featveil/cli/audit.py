"""featveil audit: every attack against every defense, and what still matches, as one page."""

import os
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from featveil.cli.benching import stoppable
from featveil.cli.console import Json, progress, show, stderr, table
from featveil.core.errors import InputError, MissingExtraError
from featveil.core.files import locked, make_folder, replacing

if TYPE_CHECKING:
    from rich.console import RenderableType

    from featveil.core.records import Record
    from featveil.reports import AuditRow
    from featveil.tasks.audit_request import Request


def audit(
    out: Annotated[Path, typer.Option(help="Folder for report.html, table.md, frontier.png and records.jsonl.")],
    what: Annotated[
        Path | None,
        typer.Argument(
            help="Audit file (.toml), or folder of photographs (or of scenes in HPatches layout).",
            show_default="built-in pictures",
        ),
    ] = None,
    processes: Annotated[
        int | None, typer.Option(min=1, help="Processes to measure in.", show_default="one a core")
    ] = None,
    json: Json = False,
) -> None:
    """How well features still match, and how much attacks get back: all defenses, all attacks, on your own images.

    A few photographs are attacked; the others serve the attacker, and the pools of hardened lifting. Stop it with
    Ctrl-C at any time: the same command goes on where it stopped (from OUT/records.jsonl). An audit file chooses
    datasets, defenses, attacks, seeds, and how many photographs and features there are.

    Example: featveil audit photos/ --out audit/
    """
    from featveil.tasks.audit import run_resumable
    from featveil.tasks.audit_roles import prepare

    request = _request(what)
    with progress("photographs") as report:
        made = prepare(request, report)
    make_folder(out)
    path = out / "records.jsonl"
    with locked(out / ".audit.lock"):
        records = stoppable("audit", path, lambda report: run_resumable(made, path, processes or _cores(), report))
        _publish(records, out, json)


def _cores() -> int:
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity else os.cpu_count() or 1


def _request(what: Path | None) -> "Request":
    from featveil.tasks.audit_file import read_audit_file
    from featveil.tasks.audit_request import built_in_request, folder_request

    if what is None:
        return built_in_request()
    if what.is_dir():
        return folder_request(what)
    if not what.exists():
        raise InputError(f"there is no audit file or folder {what}")
    if what.suffix.lower() != ".toml":
        raise InputError(f"{what} is neither a folder of photographs nor an audit file, which ends in .toml")
    return read_audit_file(what)


def _publish(records: "list[Record]", out: Path, json: bool) -> None:
    """Write page, table and figure, and print one line for each scheme."""
    from featveil.reports import audit_markdown, audit_page, draw_frontier, summarize_audit

    rows = summarize_audit(records)
    for name, text in (("report.html", audit_page(records)), ("table.md", audit_markdown(records))):
        with replacing(out / name) as temporary:
            temporary.write_text(text, encoding="utf-8")
    files = ["records.jsonl", "report.html", "table.md", "frontier.png"]
    try:
        draw_frontier(rows, out / "frontier.png", "Privacy and utility")
    except MissingExtraError as error:
        files.remove("frontier.png")
        stderr.print(f"frontier.png was not drawn: {error}", markup=False, highlight=False)
    show({"rows": [asdict(row) for row in rows], "files": [str(out / name) for name in files]}, json, _summary(rows))
    if not json:
        show({}, False, f"\nthe whole report: {out / 'report.html'}")


def _summary(rows: "list[AuditRow]") -> "RenderableType":
    """A terminal has 80 columns: the page and --json have everything."""
    lines: list[tuple[object, ...]] = []
    several = len({row.dataset for row in rows}) > 1
    for row in rows:
        shares = ("-" if share is None else f"{100 * share.mean:.0f}" for share in (row.utility_one, row.utility_both))
        best = ("-", "-") if row.best is None else (row.best.attack, f"{100 * row.best.below_near.mean:.0f}")
        lines.append((*((row.dataset,) if several else ()), row.scheme, *shares, *best))
    headings = ("scheme", "matches of raw\none side, %", "both\n%", "best attack", "gets\nback, %")
    return table(*(("dataset",) if several else ()), *headings, rows=lines)
