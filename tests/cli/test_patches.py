"""featveil patches build and featveil bench patches."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import cv2
import numpy as np
import pytest

from featveil.core.records import read_records
from featveil.core.seeding import generator
from featveil.datasets import load_phototour
from interruptions import Watched
from networks import identity_network, random_network, write_network
from scenes import draw_turned_views
from textures import texture

if TYPE_CHECKING:
    from rooms import Room, RoomFiles

QUICK = ("--views", 2, "--max-features", 40, "--pairs", 100)
FEW = ("--max-patches", 20, "--pairs", 200, "--queries", 10)


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    (tmp_path / "photos").mkdir()
    for number in range(2):
        cv2.imwrite(str(tmp_path / "photos" / f"{number}.png"), texture(number))
    return tmp_path / "photos"


@pytest.fixture(scope="module")
def sequences(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("sequences") / "drawn"
    for number in range(2):
        draw_turned_views(root / f"v_{number}", seed=number)
    return root


def test_a_set_and_its_picture(run: Any, ran: Any, refused: Any, photos: Path, tmp_path: Path) -> None:
    out = tmp_path / "set"
    shown = ran("patches", "build", photos, "--out", out, *QUICK)
    found = load_phototour(out)
    assert (shown["images"], shown["patches"], shown["matching"]) == (2, len(found), 50)
    assert found.card["recipe"]["jitter"] == 0.5
    picture = np.asarray(cv2.imread(shown["picture"]))
    assert picture.shape[1] > 8 * 130 and picture.shape[0] > 6 * 64
    assert "--overwrite" in refused("patches", "build", photos, "--out", out, *QUICK)
    again = run("patches", "build", photos, "--out", out, *QUICK, "--overwrite", "--seed", 1)
    assert again.exit_code == 0 and "written to" in again.stdout
    assert load_phototour(out).card["recipe"]["seed"] == 1


def test_a_set_of_a_model(ran: Any, refused: Any, room: "Room", files: "RoomFiles", tmp_path: Path) -> None:
    command = ("patches", "build", files.images, "--model", room.model, "--out", tmp_path / "set", "--pairs", 100)
    shown = ran(*command)
    assert shown["images"] == 6 and shown["points"] > 50
    assert load_phototour(tmp_path / "set").card["recipe"]["jitter"] == 0
    assert "holds no COLMAP model" in refused(*command[:4], tmp_path, *command[5:], "--overwrite")
    assert "name one folder" in refused("patches", "build", files.images, *command[2:], "--overwrite")


def test_mistakes_leave_nothing_behind(refused: Any, photos: Path, empty: Path, tmp_path: Path) -> None:
    out = tmp_path / "set"
    for option, value, message in (
        ("--views", 0, "views"),
        ("--pairs", 3, "even"),
        ("--test-share", 2, "test_share"),
        ("--jitter", -1, "jitter"),
        ("--part", "half", "half"),
        ("--seed", -1, "seed"),
    ):
        assert message in refused("patches", "build", photos, "--out", out, option, value)
    assert "create it first" in refused("patches", "build", photos, "--out", tmp_path / "no" / "set")
    assert "nowhere" in refused("patches", "build", tmp_path / "nowhere", "--out", out)


def test_photographs_without_features(run: Any, empty: Path, tmp_path: Path) -> None:
    result = run("patches", "build", empty, "--out", tmp_path / "set")
    assert result.exit_code == 2 and "fewer than two points" in result.stderr
    assert not (tmp_path / "set").exists() and sorted(path.name for path in tmp_path.iterdir()) == ["empty.png"]


def test_bench(run: Any, ran: Any, refused: Any, photos: Path, sequences: Path, tmp_path: Path) -> None:
    ran("patches", "build", photos, "--out", tmp_path / "set", *QUICK)
    command = ("bench", "patches", "--data", sequences, "--phototour", tmp_path / "set", "--out", tmp_path / "o", *FEW)
    rows = ran(*command)["rows"]
    assert [(row["kind"], row["scheme"]) for row in rows] == [("sift", "raw"), ("sift", "chance")]
    assert rows[0]["false_positives"]["set"] < 0.4 < rows[1]["false_positives"]["set"]
    assert len(rows[0]["precisions"]) == 6
    before = (tmp_path / "o" / "records.jsonl").read_bytes()
    again = run(*command)
    assert again.exit_code == 0 and (tmp_path / "o" / "records.jsonl").read_bytes() == before
    assert max(len(line) for line in again.stdout.splitlines()) <= 80
    both = ran(*command, "--kind", "rootsift")["rows"]
    assert [row["kind"] for row in both] == ["sift", "rootsift", "sift", "rootsift"]
    assert (tmp_path / "o" / "table.md").read_text().count("| rootsift |") == 2
    assert "seed 0, not 1" in refused(*command, "--seed", 1)


def test_bench_of_concealers(ran: Any, refused: Any, sequences: Path, tmp_path: Path) -> None:
    same = write_network(tmp_path / "same.safetensors", identity_network())
    narrow = write_network(tmp_path / "narrow.safetensors", random_network(rank=2))
    other = write_network(tmp_path / "other.safetensors", identity_network("rootsift"))
    command = ("bench", "patches", "--data", sequences, "--out", tmp_path / "o", *FEW)
    rows = ran(*command, "--concealer", same, "--concealer", narrow)["rows"]
    names = ["raw", f"concealer-0-{identity_network().digest[:8]}", f"concealer-1-{random_network(rank=2).digest[:8]}"]
    assert [row["scheme"] for row in rows] == [*names, "chance"]
    assert rows[1]["precisions"] == pytest.approx(rows[0]["precisions"], abs=1e-4)
    assert all(rows[2]["precisions"][name] < value - 0.05 for name, value in rows[0]["precisions"].items())
    assert "conceals rootsift descriptors, not sift" in refused(*command, "--concealer", other)
    assert "no network file" in refused(*command, "--concealer", tmp_path / "none.safetensors")


def test_bench_can_be_stopped(run: Any, sequences: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    command = ("bench", "patches", "--data", sequences, "--out", tmp_path / "o", *FEW)
    with monkeypatch.context() as patch:
        Watched(patch, "featveil.lab.patches.generator", generator, stop_at=4)
        result = run(*command)
    assert result.exit_code == 130 and "goes on from" in result.stderr
    before = read_records(tmp_path / "o" / "records.jsonl")
    assert len(before) == 3
    assert run(*command).exit_code == 0
    after = read_records(tmp_path / "o" / "records.jsonl")
    assert after[:3] == before and len(after) == 16


def test_bench_mistakes(refused: Any, sequences: Path, tmp_path: Path) -> None:
    out = tmp_path / "o"
    (tmp_path / "some.pth").write_bytes(b"x")
    command = ("bench", "patches", "--data", sequences, "--out", out)
    assert "nothing to measure" in refused("bench", "patches", "--out", out)
    assert "orb" in refused(*command, "--kind", "orb")
    assert "give its weights file" in refused(*command, "--kind", "hardnet")
    assert "sift has no weights" in refused(*command, "--weights", tmp_path / "some.pth")
    assert "max_patches" in refused(*command, "--max-patches", 1)
    assert "not a folder" in refused("bench", "patches", "--phototour", tmp_path / "none", "--out", out)


@pytest.mark.parametrize("command", [("patches", "build"), ("bench", "patches")])
def test_help_has_an_example(run: Any, command: tuple[str, ...]) -> None:
    result = run(*command, "--help")
    assert result.exit_code == 0 and f"featveil {' '.join(command)}" in " ".join(result.stdout.split())


def test_json_is_strict(run: Any, photos: Path, tmp_path: Path) -> None:
    result = run("patches", "build", photos, "--out", tmp_path / "set", *QUICK, "--json")
    assert set(json.loads(result.stdout)) == {"out", "images", "points", "patches", "matching", "other", "picture"}
