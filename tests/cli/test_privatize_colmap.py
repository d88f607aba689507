"""featveil privatize: features in a COLMAP database."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import featveil as fv
from colmap_databases import edit, tables, write_database
from featveil.formats import hloc

IMAGES = {"db/1.jpg": tables(12, 1), "q.jpg": tables(5, 2)}
SOUND = ("--defense", "subset", "--epsilon", 8)


@pytest.fixture
def colmap(tmp_path: Path) -> Path:
    write_database(tmp_path / "database.db", IMAGES)
    return tmp_path / "database.db"


@pytest.mark.parametrize("name", ["database.db", "without suffix"])
def test_every_image_is_released(run: Any, colmap: Path, tmp_path: Path, name: str) -> None:
    source = colmap.rename(tmp_path / name)
    before = source.read_bytes()
    result = run("privatize", source, "--out", tmp_path / "out", *SOUND, "--json")
    assert result.exit_code == 0, result.output
    shown = json.loads(result.stdout)
    assert (shown["written"], shown["features"], shown["kind"]) == (2, 17, "rootsift")
    for image, (keypoints, _) in IMAGES.items():
        private = fv.load(tmp_path / "out" / f"{image}.veil")
        assert isinstance(private, fv.PrivateFeatures) and private.keypoints is not None
        assert (private.kind, private.image_size) == ("rootsift", (640, 480))
        assert sorted(private.keypoints.xy.tolist()) == sorted(keypoints[:, :2].tolist())
        assert private.keypoints.scale is None
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([name, "out"])
    assert source.read_bytes() == before


def test_the_kind_may_be_told(run: Any, refused: Any, colmap: Path, tmp_path: Path) -> None:
    command = ("privatize", colmap, "--out", tmp_path / "out")
    said = refused(*command, "--strict")
    assert "vertex" in said and "lattice" not in said
    assert "lattice" in refused(*command, "--strict", "--kind", "sift")
    assert run(*command, "--kind", "sift", *SOUND).exit_code == 0
    assert fv.load(tmp_path / "out" / "q.jpg.veil").kind == "sift"


def test_geometry_is_kept_on_request_and_does_not_rank_features(
    run: Any, refused: Any, colmap: Path, tmp_path: Path
) -> None:
    command = ("privatize", colmap, *SOUND, "--keep-geometry")
    assert run(*command, "--out", tmp_path / "out").exit_code == 0
    private = fv.load(tmp_path / "out" / "q.jpg.veil")
    assert private.keypoints is not None and private.keypoints.scale is not None
    np.testing.assert_allclose(sorted(private.keypoints.scale), sorted(IMAGES["q.jpg"][0][:, 2]))
    edit(colmap, "DELETE FROM images WHERE name = 'q.jpg'")
    said = refused(*command, "--out", tmp_path / "x.veil", "--max-features", 5)
    assert "these 12 features have no response to choose 5 by" in said


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("UPDATE keypoints SET rows = 99 WHERE image_id = 1", "should be 99 x 4"),
        ("DELETE FROM descriptors WHERE image_id = 1", "run COLMAP's feature extraction"),
        ("UPDATE descriptors SET type = 2 WHERE image_id = 1", "NaN"),
        ("UPDATE descriptors SET type = 99 WHERE image_id = 1", "name their kind"),
    ],
)
def test_one_unusable_image_does_not_stop_the_others(
    run: Any, colmap: Path, tmp_path: Path, change: str, message: str
) -> None:
    edit(colmap, change)
    result = run("privatize", colmap, "--out", tmp_path / "out", *SOUND, "--json")
    assert result.exit_code == 1, result.output
    assert (json.loads(result.stdout)["written"], json.loads(result.stdout)["failed"]) == (1, 1)
    assert result.stderr.startswith("warning: ") and message in result.stderr


def test_an_image_without_features(run: Any, tmp_path: Path) -> None:
    empty = (np.empty((0, 4), np.float32), np.empty((0, 128), np.uint8))
    write_database(tmp_path / "x.db", {"flat.jpg": empty, "q.jpg": IMAGES["q.jpg"]})
    result = run("privatize", tmp_path / "x.db", "--out", tmp_path / "out", *SOUND)
    assert result.exit_code == 1 and "image 'flat.jpg' in " in result.stderr and "has no features" in result.stderr


def test_bad_databases(refused: Any, colmap: Path, tmp_path: Path) -> None:
    out = ("--out", tmp_path / "out", *SOUND)
    assert "missing.db" in refused("privatize", tmp_path / "missing.db", *out)
    (tmp_path / "text.db").write_text("text" * 100)
    assert "not an SQLite database" in refused("privatize", tmp_path / "text.db", *out)
    write_database(tmp_path / "empty.db", {})
    assert "holds no images" in refused("privatize", tmp_path / "empty.db", *out)
    fv.Ledger(tmp_path / "ledger.sqlite").set_budget("ann", 1)
    assert "not a COLMAP database" in refused("privatize", tmp_path / "ledger.sqlite", *out)
    edit(colmap, "UPDATE images SET name = '../../x' WHERE image_id = 1")
    assert "not a relative path" in refused("privatize", colmap, *out)


def test_names_must_differ_between_inputs(run: Any, refused: Any, colmap: Path, image: Path, tmp_path: Path) -> None:
    hloc.write_features(tmp_path / "f.h5", [("q.jpg", fv.extract(image, "rootsift", 20))])
    command = ("privatize", colmap, tmp_path / "f.h5", "--out", tmp_path / "out", *SOUND)
    assert "both hold 'q.jpg'" in refused(*command)
    edit(colmap, "UPDATE images SET name = 'other.jpg' WHERE name = 'q.jpg'")
    assert run(*command).exit_code == 0
    written = sorted(path.relative_to(tmp_path / "out").as_posix() for path in (tmp_path / "out").rglob("*.veil"))
    assert written == ["db/1.jpg.veil", "other.jpg.veil", "q.jpg.veil"]


def test_a_database_is_no_output(refused: Any, tmp_path: Path) -> None:
    """It would be a folder of that name."""
    write_database(tmp_path / "database.db", {"a.jpg": tables(6, 0)})
    assert "misleading name" in refused("privatize", tmp_path / "database.db", "--out", tmp_path / "copy.db")
