"""Progress where stderr is no terminal: a line a minute, and never the end of the work."""

import io
import os
import subprocess
import sys
from pathlib import Path
from typing import IO

import pytest
from rich.console import Console

from featveil.cli.console import table

WORK = """
from featveil.cli import console

console._MINUTE = 0.0
with console.progress("counting") as report:
    for done in range(3):
        report(done, 3)
print("done")
"""


def test_cells_are_shown_as_they_are() -> None:
    """Names of files and people are no markup, no emoji and no commands of the terminal."""
    cells = ("[/b].veil", "[red]a[/red]", ":smile:", "a\x1b[2J", 5)
    console = Console(file=io.StringIO(), width=200)
    console.print(table("a", "b", "c", "d", "e", rows=[cells]))
    shown = console.file.getvalue().splitlines()[1]  # type: ignore[attr-defined]
    assert shown.split() == ["[/b].veil", "[red]a[/red]", ":smile:", "a?[2J", "5"]


def counted(stderr: int | IO[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", WORK], stdout=subprocess.PIPE, stderr=stderr, text=True, check=False)


def test_a_log_gets_lines() -> None:
    result = counted(subprocess.PIPE)
    assert result.stdout == "done\n"
    assert result.stderr.splitlines() == [f"counting: {done} of 3" for done in range(3)]


def test_a_log_whose_reader_has_left_does_not_end_the_work() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    try:
        result = counted(writing)
    finally:
        os.close(writing)
    assert (result.returncode, result.stdout) == (0, "done\n")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
def test_a_log_on_a_full_disk_does_not_end_the_work() -> None:
    with Path("/dev/full").open("w", encoding="utf-8") as full:
        result = counted(full)
    assert (result.returncode, result.stdout) == (0, "done\n")
