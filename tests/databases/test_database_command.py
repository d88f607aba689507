"""featveil database build / info."""

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from featveil.cli.database import app
from featveil.core import InputError
from featveil.databases import Database, load_database, save_database

runner = CliRunner()


@pytest.fixture
def array(tmp_path: Path) -> Path:
    np.save(tmp_path / "a.npy", np.random.default_rng(0).normal(size=(300, 6)))
    return tmp_path / "a.npy"


def test_build_writes_the_file_and_clears_its_work(array: Path, tmp_path: Path) -> None:
    out = tmp_path / "my.safetensors"
    arguments = ["build", str(array), "--out", str(out), "--kind", "face", "--clusters", "20", "--parts", "4"]
    result = runner.invoke(app, [*arguments, "--licence", "CC0", "--source", "noise", "--json"])
    assert result.exit_code == 0, result.output
    shown = json.loads(result.stdout)
    database = load_database(out)
    assert (shown["entries"], shown["parts"], shown["kind"]) == (20, 4, "face")
    assert shown["digest"] == database.digest
    assert (database.card["licence"], database.card["source"]) == ("CC0", "noise")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.npy", "my.safetensors"]


def test_ctrl_c_keeps_the_work_and_the_same_command_goes_on(
    array: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from featveil.databases import kmeans as clustering

    out = tmp_path / "my.safetensors"
    arguments = ["build", str(array), "--out", str(out), "--kind", "face", "--clusters", "20", "--json"]

    def stop(*ignored: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(clustering, "_finish_iteration", stop)
        result = runner.invoke(app, arguments)
    assert result.exit_code == 130
    assert not out.exists()
    assert "goes on from" in result.stderr
    assert (tmp_path / "my.safetensors.work").is_dir()
    assert runner.invoke(app, arguments).exit_code == 0
    assert out.exists()
    assert not (tmp_path / "my.safetensors.work").exists()


def test_labels(array: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "labels.npy", np.arange(300) % 3)
    out = tmp_path / "my.safetensors"
    arguments = [
        "build",
        str(array),
        "--out",
        str(out),
        "--kind",
        "face",
        "--labels",
        str(tmp_path / "labels.npy"),
    ]
    assert runner.invoke(app, [*arguments, "--clusters", "0"]).exit_code == 0
    labels = load_database(out).labels
    assert labels is not None
    assert np.bincount(labels).tolist() == [100, 100, 100]
    assert isinstance(runner.invoke(app, [*arguments, "--clusters", "20"]).exception, InputError)
    (tmp_path / "labels.npy").write_text("no")
    assert isinstance(runner.invoke(app, [*arguments, "--clusters", "0"]).exception, InputError)


def test_a_missing_output_folder_is_found_before_the_work(array: Path, tmp_path: Path) -> None:
    result = runner.invoke(app, ["build", str(array), "--out", str(tmp_path / "no" / "x")])
    assert isinstance(result.exception, InputError)


def test_info_of_a_file_prints_its_card_as_plain_text(tmp_path: Path) -> None:
    card = {"source": "[red]x[/] [/nothing] \x1b[2J\x07", "recipe": "[bold]no dictionary"}
    save_database(Database(np.ones((16, 4), np.float32), "face", card=card), tmp_path / "x.safetensors")
    result = runner.invoke(app, ["info", str(tmp_path / "x.safetensors")])
    assert result.exit_code == 0, result.output
    assert "[red]x[/] [/nothing] ?[2J?" in result.stdout
    assert "\x1b[2J" not in result.stdout


def test_info_without_argument_is_the_built_in_one() -> None:
    for kind in ("sift", "rootsift"):
        result = runner.invoke(app, ["info", "--kind", kind, "--json"])
        assert result.exit_code == 0, result.output
        shown = json.loads(result.stdout)
        assert (shown["entries"], shown["parts"], shown["kind"]) == (16384, 16, kind)
    assert "ImageNet" in runner.invoke(app, ["info"]).stdout


@pytest.mark.parametrize("command", ["build", "info"])
def test_help_has_an_example(command: str) -> None:
    assert "Example: featveil database" in runner.invoke(app, [command, "--help"]).stdout
