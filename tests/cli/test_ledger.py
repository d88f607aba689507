"""featveil ledger."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

from featveil.cli import Commands
from featveil.cli.ledger import app as commands
from featveil.core import Guarantee, Points, PrivateFeatures
from featveil.stores.ledger import Ledger

app = typer.Typer(cls=Commands, name="featveil")
app.add_typer(commands, name="ledger")


def run(*arguments: object) -> Any:
    return CliRunner().invoke(app, ["ledger", *(str(argument) for argument in arguments)])


def refused(*arguments: object) -> str:
    result = run(*arguments)
    assert result.exit_code == 2, result.output
    assert result.stderr.startswith("error: ") and result.stderr.count("\n") == 1, result.stderr
    assert result.stdout == ""
    return str(result.stderr)


def charge(path: Path, subject: str, guarantee: Guarantee, label: str = "") -> None:
    private = PrivateFeatures(Points(np.ones((3, 4), np.float32)), "sift", {"name": "subset"}, guarantee)
    Ledger(path).account(subject).charge(private, label)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ledger.sqlite"


def test_set_budget(path: Path) -> None:
    result = run("set-budget", path, "ann", "30.5")
    assert result.exit_code == 0, result.output
    assert [line.split() for line in result.stdout.splitlines()] == [
        ["subject", "kind", "budget", "spent", "left", "releases"],
        ["ann", "local-dp", "30.5", "0", "30.5", "0"],
    ]
    charge(path, "ann", Guarantee("local-dp", 10.0))
    result = run("set-budget", path, "ann", "20", "--json")
    assert json.loads(result.stdout) == {
        "ledger": str(path),
        "subject": "ann",
        "kind": "local-dp",
        "budget": 20.0,
        "spent": 30.0,
        "remaining": 0.0,
        "releases": 1,
    }
    assert json.loads(run("set-budget", path, "ann", "7", "--kind", "metric-dp", "--json").stdout)["spent"] == 0.0


def test_show(path: Path) -> None:
    run("set-budget", path, "ann", "50")
    run("set-budget", path, "[bold]bob", "2", "--kind", "metric-dp")
    charge(path, "ann", Guarantee("local-dp", 12.5), "query.jpg\x1b[2J")
    charge(path, "[bold]bob", Guarantee("metric-dp", 1.5, "image"))
    result = run("show", path)
    assert result.exit_code == 0, result.output
    balances, history = (block.splitlines() for block in result.stdout.split("\n\n"))
    assert balances[1].split() == ["[bold]bob", "metric-dp", "2", "1.5", "0.5", "1"]
    assert balances[2].split() == ["ann", "local-dp", "50", "37.5", "12.5", "1"]
    assert [line.split()[1:4] for line in history[1:]] == [
        ["ann", "budget", "local-dp"],
        ["[bold]bob", "budget", "metric-dp"],
        ["ann", "release", "local-dp"],
        ["[bold]bob", "release", "metric-dp"],
    ]
    assert "set to 50" in history[1]
    assert "12.5 per descriptor x 3 = 37.5 per image" in history[3]
    assert "subset   query.jpg?[2J" in history[3]
    assert "1.5 per image" in history[4] and "descriptor" not in history[4]


def test_show_one_subject_and_the_last_entries(path: Path) -> None:
    for budget in range(1, 26):
        run("set-budget", path, "ann", budget)
    run("set-budget", path, "bob", "1")
    assert "(6 earlier entries are not shown: --last 0 shows all)" in run("show", path).stdout
    shown = json.loads(run("show", path, "ann", "--json", "--last", "2").stdout)
    assert [entry["epsilon"] for entry in shown["history"]] == [24.0, 25.0]
    assert (shown["not_shown"], len(shown["subjects"]), shown["subjects"][0]["budget"]) == (23, 1, 25.0)
    everything = run("show", path, "--last", "0").stdout
    assert everything.count(" set to ") == 26 and "not shown" not in everything
    assert json.loads(run("show", path, "--json", "--last", "0").stdout)["not_shown"] == 0


def test_mistakes(path: Path) -> None:
    assert "does not exist" in refused("show", path)
    for epsilon in ("nan", "inf", "2e9"):
        assert "a budget must be an epsilon of 0 to" in refused("set-budget", path, "ann", epsilon)
    assert "a budget must be an epsilon" in refused("set-budget", path, "ann", "--", "-1")
    assert "epsilon" in refused("set-budget", path, "ann", "much").lower()
    assert "must be local-dp or metric-dp" in refused("set-budget", path, "ann", "1", "--kind", "empirical")
    assert "1 to 200 printable characters" in refused("set-budget", path, "a\nb", "1")
    assert "create it first" in refused("set-budget", path.parent / "no" / "folder", "ann", "1")
    assert not path.exists()
    run("set-budget", path, "ann", "1")
    assert "'bob' is not in" in refused("show", path, "bob")
    assert "printable" in refused("show", path, "\udcff")
    assert "--last" in refused("show", path, "--last", "-1")
    path.write_bytes(b"no ledger" * 100)
    assert "is damaged or no ledger at all" in refused("show", path)


def test_every_command_shows_an_example() -> None:
    for command in ("set-budget", "show"):
        assert f"Example: featveil ledger {command} " in " ".join(run(command, "--help").stdout.split())
