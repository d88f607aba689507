"""featveil bench attacks."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from featveil.cli.bench import app
from featveil.core import InputError
from featveil.core.records import read_records
from featveil.databases import Database, builtin, save_database
from scenes import draw_equal_views

KEYS = "scheme defense attack mean median below_close below_near exact rank answered count victims seconds epsilon"


def invoke(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["attacks", *(str(argument) for argument in arguments)])


@pytest.mark.parametrize("attacker", [".", "inside", ".."])
def test_the_attacker_has_other_photographs(tmp_path: Path, attacker: str) -> None:
    photos = tmp_path / "photos"
    draw_equal_views(photos)
    draw_equal_views(photos / "inside")
    small = (
        *("--only", "nearest", "--strategies", "random", "--dimensions", 2, "--epsilons", "none"),
        *("--metric-epsilons", "none", "--images", 1, "--max-features", 20),
    )
    result = invoke(photos, "--attacker", photos / attacker, "--out", tmp_path / "out", *small)
    assert isinstance(result.exception, InputError) and "share photographs" in str(result.exception)
    assert not (tmp_path / "out").exists()


def test_records_table_and_curve(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    draw_equal_views(tmp_path / "photos")
    save_database(Database(builtin("sift").values[:300], "sift"), tmp_path / "own.safetensors")
    out = tmp_path / "new" / "results"
    arguments = (
        *(tmp_path / "photos", "--attacker", tmp_path / "own.safetensors", "--out", out, "--only", "nearest"),
        *("--strategies", "random", "--dimensions", 2, "--epsilons", 8, "--subset-sizes", 2),
        *("--metric-epsilons", "none", "--images", 2, "--max-features", 40, "--sample", 10),
    )
    result = invoke(*arguments, "--json")
    assert result.exit_code == 0, result.output
    rows = json.loads(result.stdout)["rows"]
    assert [(row["scheme"], row["attack"]) for row in rows] == [
        *(("identity", "chance"), ("identity", "read"), ("random-2", "chance"), ("random-2", "nearest")),
        ("subset-8-2", "chance"),
    ]
    assert all((row["count"], row["victims"]) == (20, 2) for row in rows)
    assert set(rows[0]) == {*KEYS.split(), "image_epsilon", "bound", "then", "released_near"}
    assert (rows[1]["exact"], rows[1]["rank"], rows[1]["answered"]) == (1, 1, 1)
    assert rows[4]["image_epsilon"] == 40 * rows[4]["epsilon"] == 320
    assert sorted(path.name for path in out.iterdir()) == ["curve.png", "records.jsonl", "table.md"]
    assert "| nearest | " in (out / "table.md").read_text()
    again = invoke(*arguments)
    assert again.exit_code == 0 and "best attack" in again.stdout
    assert max(len(line) for line in again.stdout.splitlines()) <= 80
    assert len(read_records(out / "records.jsonl")) == 10
    other = invoke(*arguments, "--seed", 1)
    assert isinstance(other.exception, InputError)
    assert "seed 0, not 1" in str(other.exception)
