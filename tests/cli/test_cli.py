"""What all commands share: version, errors, Ctrl-C, pipes, a quick start."""

import logging
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import featveil
from featveil.cli import COMMANDS, load_command
from featveil.cli.console import complain, show
from featveil.pipelines import extract as extracting


@pytest.mark.parametrize("name", COMMANDS)
def test_the_list_of_commands_says_what_their_help_says(name: str) -> None:
    assert " ".join(load_command(name).help.split("\n\n")[0].split()) == COMMANDS[name][1]


def test_a_command_that_is_mistyped_is_guessed(refused: Any) -> None:
    assert "'match'" in refused("mtch")


def test_no_command_offers_a_seed_for_a_release(run: Any) -> None:
    assert "--seed" not in run("privatize", "--help").stdout
    assert "--seed" in run("database", "build", "--help").stdout  # the check above can fail


def test_version(run: Any) -> None:
    assert run("--version").stdout == f"featveil {featveil.__version__}\n"


@pytest.mark.parametrize(
    "arguments",
    [
        ["bogus"],
        ["extract"],
        ["match", "a", "b", "--bogus"],
        ["match", "a", "b", "--ratio", "much"],
        ["database", "x"],
    ],
)
def test_usage_mistakes_take_one_line_that_names_the_help(refused: Any, arguments: list[str]) -> None:
    assert refused(*arguments).rstrip().endswith("--help")


def test_messages_cannot_steer_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    complain("error", "[red]a[/] \x1b[2J\nb")
    assert capsys.readouterr().err == "error: [red]a[/] ?[2J b\n"
    show({}, False, "[bold]\x07")
    assert capsys.readouterr().out == "[bold]?\n"


def test_log_warnings_reach_stderr_once(run: Any, image: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def warn(*ignored: object) -> None:
        logging.getLogger("featveil.extractors").warning("odd [thing]")
        raise featveil.InputError("stop")

    monkeypatch.setattr(extracting, "extracted_by", warn)
    for _ in range(2):
        assert run("extract", image, "--out", image.with_name("x")).stderr == "warning: odd [thing]\nerror: stop\n"


def test_ctrl_c_ends_with_130_and_leaves_nothing(
    run: Any, image: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*ignored: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "replace", stop)  # in the middle of the write
    result = run("extract", image, "--out", tmp_path / "a.veil")
    assert result.exit_code == 130
    assert "Traceback" not in result.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["a.png"]


def _process(*arguments: str, **more: Any) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": str(Path(featveil.__file__).parents[1])}
    return subprocess.run(
        [sys.executable, *arguments], env=environment, text=True, stderr=subprocess.PIPE, timeout=60, **more
    )


@pytest.mark.parametrize("module", ["numpy", "typer", "featveil.cli", "featveil.core.errors"])
def test_ctrl_c_before_anything_is_loaded_is_one_line(module: str) -> None:
    code = f"""
import runpy, sys

class CtrlC:
    def find_spec(self, name, *ignored):
        if name == {module!r}:
            raise KeyboardInterrupt

sys.meta_path.insert(0, CtrlC())
runpy.run_module("featveil", run_name="__main__")
"""
    result = _process("-c", code)
    assert (result.returncode, result.stderr) == (130, "stopped: nothing was left half-written\n")


def test_a_closed_pipe_makes_no_noise() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    try:
        result = _process("-m", "featveil", "database", "info", "--json", stdout=writer)
    finally:
        os.close(writer)
    assert (result.returncode, result.stderr) == (1, "")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_behind_stdout_is_one_line() -> None:
    with Path("/dev/full").open("w") as full:
        result = _process("-m", "featveil", "database", "info", "--json", stdout=full)
    assert result.returncode == 2
    assert result.stderr.startswith("error: cannot write") and result.stderr.count("\n") == 1
