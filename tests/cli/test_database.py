"""featveil database."""

import json
from pathlib import Path
from typing import Any

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
