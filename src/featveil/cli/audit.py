"""featveil audit: every attack against every defense, and what still matches, as one page."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from featveil.cli.console import Json, progress, show, stderr, table

if TYPE_CHECKING:
    from rich.console import RenderableType

    from featveil.audit.rows import AuditRow
    from featveil.audit.run import AuditResult

Report = Callable[[int, int], None]


def audit(
    out: Annotated[Path, typer.Option(help="Folder for report.html, table.md, figures, records.jsonl and pictures/.")],
    what: Annotated[
        Path | None,
        typer.Argument(
            help="Audit file (.toml), or folder of photographs (or of scenes in HPatches layout).",
            show_default="built-in pictures",
        ),
    ] = None,
    private: Annotated[
        Path | None,
        typer.Option(help="Folder of pictures that are pasted in as private content.", show_default="bundled ones"),
    ] = None,
    no_private: Annotated[bool, typer.Option("--no-private", help="Paste no private content in.")] = False,
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

    A few photographs are attacked; the others serve the attacker, and the pools of hardened lifting. Content that no
    map has, such as a portrait, is pasted into each: what leaks of it is stated apart from what leaks of the place.
    Stop it with Ctrl-C at any time: the same command goes on where it stopped (from OUT/records.jsonl). An audit file
    chooses datasets, defenses, attacks, seeds, and how many photographs and features there are.

    Example: featveil audit photos/ --out audit/
    """
    from featveil.audit import run
    from featveil.audit.file import read_request, with_private

    @contextmanager
    def stage(name: str) -> Iterator[Report]:
        """A progress bar; Ctrl-C in a part that can go on ends the command and says how."""
        folders = {"audit": out, "pictures": out / run.PICTURES}
        try:
            with progress(name) as report:
                yield report
        except KeyboardInterrupt:
            if name not in folders:
                raise
            path = folders[name] / run.RECORDS
            stderr.print(f"Stopped. The same command goes on from {path}", markup=False, highlight=False)
            raise typer.Exit(130) from None

    request = with_private(read_request(what), private, no_private)
    result = run.audit(request, out, processes=processes, pictures=pictures, inverter=inverter, stage=stage)
    _show(result, out, json)


def _show(result: "AuditResult", out: Path, json: bool) -> None:
    """Print one line for each scheme."""
    pictures = [
        {
            "dataset": record.dataset,
            "scheme": record.scheme,
            "attack": record.attack,
            "score": record.value if isinstance(record.value, tuple) else None,
            "file": str(out / "pictures" / str(record.parameters["picture"])),
        }
        for record in result.pictures
        if "picture" in record.parameters
    ]
    facts = {
        "rows": [asdict(row) for row in result.rows],
        "pictures": pictures,
        "files": [str(path) for path in result.files],
    }
    show(facts, json, _summary(result.rows))
    if not json:
        show({}, False, f"\nthe whole report: {out / 'report.html'}")


def _summary(rows: "Sequence[AuditRow]") -> "RenderableType":
    """A terminal has 80 columns: the page and --json have everything."""
    lines: list[tuple[object, ...]] = []
    several = len({row.dataset for row in rows}) > 1
    pasted = any(row.private_best is not None for row in rows)
    for row in rows:
        shares = ("-" if share is None else f"{100 * share.mean:.0f}" for share in (row.utility_one, row.utility_both))
        best = ("-", "-") if row.best is None else (row.best.attack, f"{100 * row.best.below_near.mean:.0f}")
        most = row.private_best.private if row.private_best else None
        private = ("-" if most is None else f"{100 * most.near.mean:.0f}",) if pasted else ()
        lines.append((*((row.dataset,) if several else ()), row.scheme, *shares, *best, *private))
    headings = ("scheme", "matches of raw\none side, %", "both\n%", "best attack", "gets\nback, %")
    more = ("of private\ncontent, %",) if pasted else ()
    return table(*(("dataset",) if several else ()), *headings, *more, rows=lines)
