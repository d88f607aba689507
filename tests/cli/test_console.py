"""Progress where stderr is no terminal: a line a minute, and never the end of the work."""

import os
import subprocess
import sys
from pathlib import Path
from typing import IO

import pytest

WORK = """
from featveil.cli import console

console._MINUTE = 0.0
with console.progress("counting") as report:
    for done in range(3):
        report(done, 3)
print("done")
"""


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
