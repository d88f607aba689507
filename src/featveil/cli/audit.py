"""featveil audit: every attack against every defense, and what still matches, as one page."""

import os
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from featveil.cli.benching import stoppable
from featveil.cli.console import Json, complain, progress, show, stderr, table
from featveil.core.errors import FeatveilError, InputError, MissingExtraError
from featveil.core.files import locked, make_folder, replacing

if TYPE_CHECKING:
    from rich.console import RenderableType

    from featveil.audit.measuring import Audit
    from featveil.audit.request import Request
    from featveil.audit.rows import AuditRow
    from featveil.core.records import Record


def audit(
    out: Annotated[
        Path, typer.Option(help="Folder for report.html, table.md, frontier.png, records.jsonl and pictures/.")
    ],
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
    pictures: Annotated[bool, typer.Option(help="Paint what the best attacker of each defense sees.")] = True,
    inverter: Annotated[
        Path | None,
        typer.Option(help="Inverter of raw descriptors to paint with (.onnx).", show_default="built-in one, for SIFT"),
    ] = None,
    json: Json = False,
) -> None:
    """How well features still match, and how much attacks get back: all defenses, all attacks, on your own images.

    A few photographs are attacked; the others serve the attacker, and the pools of hardened lifting. Stop it with
    Ctrl-C at any time: the same command goes on where it stopped (from OUT/records.jsonl). An audit file chooses
    datasets, defenses, attacks, seeds, and how many photographs and features there are.

    Example: featveil audit photos/ --out audit/
    """
    from featveil.audit.roles import prepare
    from featveil.audit.run import run_resumable

    request = _request(what)
    if inverter is not None:
        from featveil.pipelines.painters import raw_painter

        raw_painter(request.settings.kind, inverter)  # before anything is measured
    with progress("photographs") as report:
        made = prepare(request, report)
    make_folder(out)
    path = out / "records.jsonl"
    with locked(out / ".audit.lock"):
        records = stoppable("audit", path, lambda report: run_resumable(made, path, processes or _cores(), report))
        files = _publish(records, out)
        painted = _paint(made, records, out, inverter, processes or _cores()) if pictures else []
    _show(records, painted, files, out, json)


def _cores() -> int:
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity else os.cpu_count() or 1


def _request(what: Path | None) -> "Request":
    from featveil.audit.file import read_audit_file
    from featveil.audit.request import built_in_request, folder_request

    if what is None:
        return built_in_request()
    if what.is_dir():
        return folder_request(what)
    if not what.exists():
        raise InputError(f"there is no audit file or folder {what}")
    if what.suffix.lower() != ".toml":
        raise InputError(f"{what} is neither a folder of photographs nor an audit file, which ends in .toml")
    return read_audit_file(what)


def _publish(records: "list[Record]", out: Path) -> list[str]:
    """Write page, table and figure; the files of the folder."""
    from featveil.audit.audit_tables import audit_markdown
    from featveil.audit.frontier import draw_frontier
    from featveil.audit.page import audit_page
    from featveil.audit.rows import summarize_audit

    _write(out / "report.html", audit_page(records))
    _write(out / "table.md", audit_markdown(records))
    files = ["records.jsonl", "report.html", "table.md", "frontier.png"]
    try:
        draw_frontier(summarize_audit(records), out / "frontier.png", "Privacy and utility")
    except MissingExtraError as error:
        files.remove("frontier.png")
        stderr.print(f"frontier.png was not drawn: {error}", markup=False, highlight=False)
    return [str(out / name) for name in files]


def _paint(made: "Audit", records: "list[Record]", out: Path, inverter: Path | None, processes: int) -> "list[Record]":
    """Records of what the best attackers see, with which the page is written again; none where that is not possible."""
    from featveil.audit.gallery import AuditPictures
    from featveil.audit.page import audit_page
    from featveil.audit.painting import paint_resumable
    from featveil.audit.rows import summarize_audit

    best = {(row.dataset, row.scheme): row.best.attack for row in summarize_audit(records) if row.best is not None}
    folder = out / "pictures"
    try:
        painted = stoppable(
            "pictures",
            folder / "records.jsonl",
            lambda report: paint_resumable(made, best, folder, inverter, processes, report),
        )
    except FeatveilError as error:
        complain("warning", f"no pictures: {error}")
        return []
    for reason in dict.fromkeys(record.parameters.get("reason") for record in painted):
        if reason is not None:
            complain("warning", f"not painted: {reason}")
    _write(out / "report.html", audit_page(records, AuditPictures(painted, folder)))
    return painted


def _write(path: Path, text: str) -> None:
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def _show(records: "list[Record]", painted: "list[Record]", files: list[str], out: Path, json: bool) -> None:
    """Print one line for each scheme."""
    from featveil.audit.rows import summarize_audit

    rows = summarize_audit(records)
    pictures = [
        {
            "dataset": record.dataset,
            "scheme": record.scheme,
            "attack": record.attack,
            "score": record.value if isinstance(record.value, tuple) else None,
            "file": str(out / "pictures" / str(record.parameters["picture"])),
        }
        for record in painted
        if "picture" in record.parameters
    ]
    show({"rows": [asdict(row) for row in rows], "pictures": pictures, "files": files}, json, _summary(rows))
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
