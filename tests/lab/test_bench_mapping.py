"""featveil bench mapping and featveil bench localization, on the rendered room."""

import json
import sys
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest

from featveil.core.records import read_records
from featveil.databases import Database, builtin, save_database
from featveil.datasets import RenderedScene
from featveil.geometry.absolute_pose import Localized
from featveil.geometry.models import empty_model
from featveil.geometry.two_view import Verified
from featveil.pipelines.map_parts.map_building import BuiltMap
from networks import write_network
from posed_scenes import write_strecha
from rooms import Room

MAPPING = ("--dimensions", 2, "--subset-sizes", 4, "--max-features", 400)
MAPS = "localization_parts.localization_maps"
LOCALIZATION = ("--dimensions", 2, "--private-maps", 2, "--epsilons", 10, "--iterations", "500,1000")
FEW = ("--max-features", 400)


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "new" / "results"


def some_views(room: Room, names: list[str]) -> RenderedScene:
    scene = room.scene
    return RenderedScene(
        {name: scene.images[name] for name in names},
        {name: scene.cameras[name] for name in names},
        {name: scene.poses[name] for name in names},
    )


@pytest.fixture(scope="module")
def small_room(room: Room, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four of the views in the layout of Strecha's scenes."""
    folder = tmp_path_factory.mktemp("small") / "room"
    folder.mkdir()
    write_strecha(some_views(room, room.names[:4]), folder)
    return folder


@pytest.fixture(scope="module")
def book(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small codebook."""
    path = tmp_path_factory.mktemp("book") / "book.safetensors"
    save_database(Database(builtin("sift").values[:1000], "sift"), path)
    return path


def strict(text: str) -> dict[str, Any]:
    """JSON as others read it: without Infinity and NaN."""

    def refuse(constant: str) -> None:
        raise AssertionError(constant)

    found: dict[str, Any] = json.loads(text, parse_constant=refuse)
    return found


def stop(*ignored: object, **options: object) -> None:
    raise KeyboardInterrupt


def test_maps(run: Any, refused: Any, small_room: Path, out: Path) -> None:
    pytest.importorskip("matplotlib")
    command = ("bench", "mapping", small_room, "--out", out, *MAPPING)
    result = run(*command, "--json")
    assert result.exit_code == 0, result.output
    shown = strict(result.stdout)
    assert [row["scheme"] for row in shown["rows"]] == ["raw", "sub-hybrid-2", "quantised", "subset-10-4"]
    assert [row["registered"] for row in shown["rows"][:2]] == [4, 4]
    names = {path.name for path in out.iterdir()}
    assert names == {"records.jsonl", "table.md", "curve.png", "room.png", "maps"}
    assert {Path(path).name for path in shown["files"]} == names - {"maps"}
    assert np.asarray(cv2.imread(str(out / "room.png"))).shape[1] > 2 * 720
    before = (out / "records.jsonl").read_bytes()
    again = run(*command)
    assert again.exit_code == 0 and (out / "records.jsonl").read_bytes() == before
    assert max(len(line) for line in again.stdout.splitlines()) <= 80
    assert "seed 0, not 1" in refused(*command, "--seed", 1)
    assert "max_features 400, not 300" in refused(*command, "--max-features", 300)


def test_localization(run: Any, refused: Any, small_room: Path, book: Path, out: Path) -> None:
    pytest.importorskip("matplotlib")
    command = ("bench", "localization", small_room, "--out", out, "--codebook", book, *LOCALIZATION, *FEW)
    result = run(*command, "--json")
    assert result.exit_code == 0, result.output
    shown = strict(result.stdout)
    assert len(shown["rows"]) == 3 + 2 * 3 * 2 and {row["queries"] for row in shown["rows"]} == {4}
    assert shown["rows"][0]["localized"] == 4 and shown["rows"][0]["centre_error"] < 0.05
    assert {path.name for path in out.iterdir()} == {"records.jsonl", "table.md", "curve.png", "maps"}
    before = (out / "records.jsonl").read_bytes()
    again = run(*command)
    assert again.exit_code == 0 and (out / "records.jsonl").read_bytes() == before
    assert max(len(line) for line in again.stdout.splitlines()) <= 80
    assert "seed 0, not 1" in refused(*command, "--seed", 1)


def test_concealers(run: Any, small_room: Path, out: Path, tmp_path: Path) -> None:
    network = write_network(tmp_path / "n.safetensors")
    nothing_else = ("--dimensions", "none", "--private-maps", "none", "--epsilons", "none", "--iterations", 500, *FEW)
    for bench, few in (("mapping", MAPPING), ("localization", nothing_else)):
        result = run("bench", bench, small_room, "--out", out / bench, *few, "--concealer", network, "--json")
        assert result.exit_code == 0, result.output
        rows = strict(result.stdout)["rows"]
        (row,) = [row for row in rows if row["scheme"] == "concealer-1"]
        assert row["registered" if bench == "mapping" else "localized"] == 4
    assert [row["scheme"] for row in rows] == ["raw", "concealer-1"]


def test_queries_that_are_never_localized(
    run: Any, small_room: Path, book: Path, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their median errors are infinite, which JSON has no word for."""
    monkeypatch.setattr("featveil.lab.localization.estimate_pose", lambda *ignored: Localized(None, 2, 9, "few"))
    command = ("bench", "localization", small_room, "--out", out, "--codebook", book, *LOCALIZATION, *FEW)
    result = run(*command, "--json")
    assert result.exit_code == 0, result.output
    row = strict(result.stdout)["rows"][0]
    assert (row["localized"], row["centre_error"], row["rotation_error"], row["inliers"]) == (0, None, None, 2)


def test_maps_that_could_not_be_made(run: Any, small_room: Path, out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    empty = BuiltMap(empty_model(), 6, Verified(0, 0))
    monkeypatch.setattr("featveil.lab.mapping.build", lambda *ignored, **options: empty)
    result = run("bench", "mapping", small_room, "--out", out, *MAPPING, "--json")
    assert result.exit_code == 0, result.output
    assert [row["registered"] for row in strict(result.stdout)["rows"]] == [0] * 4
    assert not (out / "room.png").exists()


@pytest.mark.parametrize(
    ("bench", "options", "place"),
    [
        ("mapping", MAPPING, "mapping.build"),
        ("localization", (*LOCALIZATION, *FEW), f"{MAPS}.triangulate"),
    ],
)
def test_ctrl_c_says_how_to_go_on(
    run: Any,
    small_room: Path,
    out: Path,
    monkeypatch: pytest.MonkeyPatch,
    bench: str,
    options: tuple[object, ...],
    place: str,
) -> None:
    monkeypatch.setattr(f"featveil.lab.{place}", stop)
    result = run("bench", bench, small_room, "--out", out, *options)
    assert result.exit_code == 130 and "The same command goes on from" in result.stderr
    assert not (out / "records.jsonl").exists() or read_records(out / "records.jsonl") == []


def test_hardened_lifting_draws_from_other_photographs(
    run: Any, room: Room, small_room: Path, out: Path, tmp_path: Path
) -> None:
    """The other two views are the pool."""
    some_views(room, room.names[4:]).write(tmp_path / "pool")
    options = ("--dimensions", 2, "--subset-sizes", 4, "--max-features", 60, "--pool", tmp_path / "pool")
    result = run("bench", "mapping", small_room, "--out", out, *options, "--json")
    assert result.exit_code == 0, result.output
    names = [row["scheme"] for row in strict(result.stdout)["rows"]]
    assert names[2:4] == ["hardened-4-16", "hardened-4-16-apart"]


@pytest.mark.parametrize("bench", ["mapping", "localization"])
def test_mistakes(refused: Any, small_room: Path, tmp_path: Path, bench: str) -> None:
    command = ("bench", bench, small_room, "--out", tmp_path / "o")
    assert "whole numbers" in refused(*command, "--dimensions", "two")
    assert "there is no database file" in refused(*command, "--codebook", tmp_path / "no.safetensors")
    assert "no" in refused("bench", bench, tmp_path / "no", "--out", tmp_path / "o")


def test_localization_needs_true_cameras(run: Any, small_room: Path, out: Path) -> None:
    result = run("bench", "localization", small_room / "images", "--out", out, *LOCALIZATION, *FEW)
    assert result.exit_code == 2 and "no true cameras for all its images" in result.stderr


@pytest.mark.parametrize("bench", ["mapping", "localization"])
def test_without_pycolmap(run: Any, small_room: Path, out: Path, monkeypatch: pytest.MonkeyPatch, bench: str) -> None:
    monkeypatch.setattr("featveil.geometry.colmap._loaded", None)
    monkeypatch.setitem(sys.modules, "pycolmap", None)
    result = run("bench", bench, small_room, "--out", out, *FEW)
    assert result.exit_code == 2 and "pip install 'featveil[colmap]'" in result.stderr
    assert "Traceback" not in result.output
