"""featveil database."""

import json
from pathlib import Path
from typing import Any

from featveil.core.files import locked
from featveil.databases import load_database


def test_build_and_look(run: Any, refused: Any, image: Path, tmp_path: Path) -> None:
    out = tmp_path / "my.safetensors"
    command = ["database", "build", image.parent, "--out", out, "--clusters", 32, "--parts", 4, "--json"]
    result = run(*command)
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["digest"] == load_database(out).digest
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.png", "my.safetensors"]
    assert "--overwrite replaces it" in refused(*command)
    assert run(*command, "--overwrite", "--seed", 1).exit_code == 0
    shown = json.loads(run("database", "info", out, "--json").stdout)
    assert (shown["entries"], shown["parts"], shown["card"]["recipe"]["seed"]) == (32, 4, 1)


def test_a_build_that_fails_leaves_only_what_it_names(run: Any, refused: Any, image: Path, tmp_path: Path) -> None:
    out = tmp_path / "my.safetensors"
    assert "expected a folder of images" in refused("database", "build", image, "--out", out)
    result = run("database", "build", tmp_path, "--out", out, "--clusters", 100_000)
    assert result.exit_code == 2
    assert f"what was done so far is in {out}.work" in result.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.png", "my.safetensors.work"]
    with locked(tmp_path / "my.safetensors.work" / "lock"):
        assert "another process is at work" in refused("database", "build", tmp_path, "--out", out)
