"""featveil bench inversion."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from featveil.cli.bench import app
from featveil.core import InputError
from featveil.core.records import read_records
from featveil.databases import Database, builtin, save_database
from featveil.datasets.board import views
from featveil.extractors import read_image
from painters import grey_painter

SMALL = (
    *("--only", "nearest,posterior", "--dimensions", 2, "--random-dimensions", "none"),
    *("--epsilons", 8, "--max-features", 20, "--leave-out", "none"),
)


def invoke(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["inversion", *(str(argument) for argument in arguments)])


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Any, ...]:
    """A small study by a painter of grey."""
    photos = tmp_path / "photos"
    photos.mkdir()
    for number, path in enumerate(views()):
        shutil.copy(path, photos / f"{number}.jpg")
    save_database(Database(builtin("sift").values[:300], "sift"), tmp_path / "own.safetensors")
    monkeypatch.setattr("featveil.lab.inversion.load_painter", lambda path=None, kind="sift": grey_painter())
    return "--images", photos, "--attacker", tmp_path / "own.safetensors", "--out", tmp_path / "new" / "out", *SMALL


def refused(*arguments: object) -> str:
    result = invoke(*arguments)
    assert isinstance(result.exception, InputError), result.output
    return str(result.exception)


def test_records_tables_and_pictures(command: tuple[Any, ...], tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    out = tmp_path / "new" / "out"
    result = invoke(*command, "--json")
    assert result.exit_code == 0, result.output
    shown = json.loads(result.stdout)
    assert [(row["scheme"], row["attack"], row["photographs"]) for row in shown["rows"]] == [
        *(("identity", name, 2) for name in ("blank", "chance", "constant", "read", "read + geometry")),
        *(("sub-hybrid-2", "nearest", 2), ("subset-8-2", "posterior", 2)),
    ]
    assert {path.name for path in out.iterdir()} == {"records.jsonl", "table.md", "curve.png", "pictures"}
    assert (out / "pictures" / "identity" / "read+geometry" / "1.jpg.png").is_file()
    before = (out / "records.jsonl").read_bytes()
    again = invoke(*command, "--grid", 1, "--grid-columns", "subset-8-2:posterior,identity:read+geometry")
    assert again.exit_code == 0 and (out / "records.jsonl").read_bytes() == before
    assert max(len(line) for line in again.stdout.splitlines()) <= 80 and "constant" in again.stdout
    narrow = read_image(out / "grid.png").shape
    assert invoke(*command, "--grid", "1.jpg,0.jpg").exit_code == 0
    wide = read_image(out / "grid.png").shape
    assert wide[0] > 1.5 * narrow[0] and wide[1] > narrow[1]
    assert len(read_records(out / "records.jsonl")) == 14
    assert "seed 0, not 1" in refused(*command, "--seed", 1)
    assert "geometry positions, not full" in refused(*command, "--geometry", "full")
    assert "contrast_threshold 0.04, not 0.01" in refused(*command, "--contrast-threshold", 0.01)
    assert "sub-hybrid-9:mean was not measured" in refused(*command, "--grid", 1, "--grid-columns", "sub-hybrid-9:mean")


def test_more_keypoints_may_be_attacked(command: tuple[Any, ...], tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    counts = []
    for threshold in ("0.04", "0.001"):
        out, few = tmp_path / threshold, ("--dimensions", "none", "--epsilons", "none", "--max-features", 5000)
        result = invoke(*command, *few, "--out", out, "--contrast-threshold", threshold)
        assert result.exit_code == 0, result.output
        counts.append(sum(record.count for record in read_records(out / "records.jsonl")))
    assert counts[0] < counts[1]
    assert "contrast_threshold must be a number" in refused(*command, "--contrast-threshold=-1")


def test_records_from_before_there_was_a_threshold_are_gone_on_with(command: tuple[Any, ...], tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    assert invoke(*command).exit_code == 0
    path = tmp_path / "new" / "out" / "records.jsonl"
    text = path.read_text(encoding="utf-8")
    before = text.replace(',"contrast_threshold":0.04', "")
    assert len(before) < len(text)
    path.write_text(before, encoding="utf-8")
    assert invoke(*command).exit_code == 0 and path.read_text(encoding="utf-8") == before
    assert "contrast_threshold 0.04, not 0.01" in refused(*command, "--contrast-threshold", 0.01)


def test_lifting_may_be_left_out(command: tuple[Any, ...]) -> None:
    pytest.importorskip("matplotlib")
    shown = json.loads(invoke(*command, "--dimensions", "none", "--json").stdout)
    assert {row["scheme"] for row in shown["rows"]} == {"identity", "subset-8-2"}


def test_the_attacker_has_other_photographs(command: tuple[Any, ...], tmp_path: Path) -> None:
    assert "share photographs" in refused(*command, "--attacker", tmp_path / "photos")
    linking = tmp_path / "theirs"
    linking.mkdir()
    try:
        (linking / "link").symlink_to(tmp_path / "photos", target_is_directory=True)
    except OSError:
        pytest.skip("this system makes no links")
    assert "share photographs" in refused(*command, "--attacker", linking)
    assert not (tmp_path / "new").exists()


def test_mistakes(command: tuple[Any, ...], tmp_path: Path) -> None:
    assert "'2.jpg' is not attacked here" in refused(*command, "--grid", "2.jpg")
    assert "--leave-out takes SCHEME:ATTACK" in refused(*command, "--leave-out", "vertex")
    assert "unknown attack" in refused(*command, "--only", "guess")
    assert "part must be one of" in refused(*command, "--part", "tests")
    assert "geometry must be one of" in refused(*command, "--geometry", "either")
    assert "two inverters" in refused(*command, "--direct", "a.onnx", "--direct", "b.onnx")
    assert "there is no network file" in refused(*command, "--concealer", tmp_path / "no.safetensors")
    assert not (tmp_path / "new").exists()


def test_ctrl_c_says_how_to_go_on(command: tuple[Any, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(*ignored: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("featveil.lab.inversion.recovered", stop)
    result = invoke(*command)
    assert result.exit_code == 130 and "The same command goes on from" in result.stderr
