"""featveil demo."""

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import featveil as fv
from featveil.attacks import Unconceal
from featveil.demo.room import MappedRoom, map_room


@pytest.fixture(autouse=True)
def fewer_features(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("featveil.demo.two_views._FEATURES", 120)
    monkeypatch.setattr("featveil.demo.demo.DIMENSIONS", (4,))
    monkeypatch.setattr("featveil.demo.two_views._SAMPLE", 5)
    monkeypatch.setattr("featveil.demo.astronaut.STRATEGIES", ("hybrid",))
    monkeypatch.setattr("featveil.demo.room.map_room", without_pycolmap)
    quick = partial(Unconceal, examples=1024, features=64, steps=2)
    monkeypatch.setattr("featveil.demo.two_views.Unconceal", quick)


def without_pycolmap() -> list[MappedRoom]:
    raise fv.MissingExtraError("pycolmap", "colmap")


def test_page_and_release(run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("featveil.demo.two_views._FEATURES", 300)
    monkeypatch.setattr("featveil.demo.two_views._SAMPLE", 20)
    monkeypatch.setattr("featveil.demo.two_views.Unconceal", partial(Unconceal, examples=4096, features=512, steps=20))
    result = run("demo", "--out", tmp_path / "out", "--json")
    assert result.exit_code == 0, result.output
    shown = json.loads(result.stdout)
    page = Path(shown["page"]).read_text(encoding="utf-8")
    row = shown["lifting"][0]
    assert shown["raw"]["inliers"] > 50
    assert row["private_raw"]["inliers"] > 0.7 * shown["raw"]["inliers"]
    assert row["private_private"]["inliers"] > 0.5 * shown["raw"]["inliers"]
    assert f"{row['private_private']['inliers']} of {row['private_private']['matches']} matches agree" in page
    words = shown["subset"]
    assert [each["epsilon"] for each in words] == [12, 10, 8]
    assert all(each["image_epsilon"] == 300 * each["epsilon"] for each in words)
    assert words[0]["inliers"] > 0.3 * shown["raw"]["inliers"]
    assert words[0]["guess"] > words[1]["guess"] > words[2]["guess"]
    attacks = {each["attack"]: each for each in shown["attacks"]}
    assert attacks["chance"]["below_near"] < 0.1 < attacks["database"]["below_near"]
    assert attacks["lattice"]["exact"] > 0.9
    seen = {each["attack"]: each["ssim"] for each in shown["views"]}
    assert list(seen) == ["read", "lattice", "database", "mean", "chance", "unconceal"]
    concealed = shown["concealed"]
    assert concealed["inliers"] > 0.7 * shown["raw"]["inliers"]
    assert f"{concealed['inliers']} of {concealed['matches']} matches agree" in page
    assert concealed["unconceal"]["below_near"] > 0.5 and seen["unconceal"] > seen["chance"] + 0.01
    assert seen["read"] > seen["chance"] + 0.01 and abs(seen["lattice"] - seen["read"]) < 0.02
    assert "<b>Attack lattice:</b>" in page and "What the attacker sees" in page
    private = fv.load(tmp_path / "out/query.veil")
    assert isinstance(private, fv.PrivateFeatures)
    assert private.keypoints is not None and private.keypoints.scale is None
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["index.html", "query.veil"]


def test_the_map_of_a_room(run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every scheme places all views but the query, and localizes that within 1 cm and 0.2 degrees of the truth.

    So does a gate with a portrait in the query, of which it sends next to nothing.
    """
    pytest.importorskip("pycolmap")
    monkeypatch.setattr("featveil.demo.room.map_room", map_room)
    result = run("demo", "--out", tmp_path / "out", "--json")
    rows = json.loads(result.stdout)["map"]
    page = (tmp_path / "out/index.html").read_text(encoding="utf-8")
    assert [row["scheme"].split(",")[0] for row in rows] == ["raw", "subspaces of dimension 2", "words"]
    for row in rows:
        degrees, metres = row["query_errors"]
        assert row["registered"] == row["images"] == 9
        assert degrees < 0.2 and metres < 0.01
        assert f"<td>{row['points']:,}</td>" in page
    assert rows[0]["points"] > rows[1]["points"] > rows[2]["points"] > 100
    assert [row["image_epsilon"] for row in rows] == [None, None, 8000]
    assert "needs pycolmap" not in page and "(8,000 for the image)" in page
    gate = json.loads(result.stdout)["gate"]
    degrees, metres = gate["gated_errors"]
    assert degrees < 0.2 and metres < 0.01
    room, portrait = gate["room"], gate["portrait"]
    assert room["sent"] > 0.15 * room["features"] and room["features"] > 1000
    assert portrait["sent"] <= 0.02 * portrait["features"] and portrait["features"] > 100
    assert f"<small>{portrait['sent']} of {portrait['features']} features</small>" in page
    assert gate["bytes"]["gated"] < gate["bytes"]["raw"] / 15


def test_without_pycolmap_the_page_says_what_is_missing(run: Any, tmp_path: Path) -> None:
    result = run("demo", "--out", tmp_path / "out", "--json")
    assert json.loads(result.stdout)["map"] is None
    assert "install the extra <code>colmap</code>" in (tmp_path / "out/index.html").read_text(encoding="utf-8")


def test_a_redraw_is_owned_up_to(run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answers = iter([False, False, True, False])  # raw, private with raw, private with private twice
    monkeypatch.setattr("featveil.demo.two_views.shared_part", lambda matches, agree: next(answers, False))
    result = run("demo", "--out", tmp_path / "out")
    assert "released again, 1 x" in result.stdout
    assert result.stdout.rstrip().endswith("index.html")
    assert "it happened at dimension 4" in (tmp_path / "out/index.html").read_text(encoding="utf-8")


def test_own_images(run: Any, image: Path, shifted: Path, tmp_path: Path) -> None:
    result = run("demo", "--images", image, shifted, "--out", tmp_path / "out", "--json")
    assert json.loads(result.stdout)["raw"]["inliers"] > 50


def test_one_image_twice_is_no_shared_part(run: Any, image: Path, tmp_path: Path) -> None:
    shown = json.loads(run("demo", "--images", image, image, "--out", tmp_path / "out", "--json").stdout)
    assert shown["lifting"][0]["private_private"]["inliers"] > 0.9 * shown["raw"]["inliers"]


def test_bad_input_leaves_no_page(refused: Any, image: Path, empty: Path, tmp_path: Path) -> None:
    assert "does not exist" in refused("demo", "--images", image, tmp_path / "no.png", "--out", tmp_path / "out")
    assert "no features" in refused("demo", "--images", image, empty, "--out", tmp_path / "out")
    assert "is a file" in refused("demo", "--out", image)
    assert "create it first" in refused("demo", "--out", tmp_path / "no/out")


def test_a_failed_run_keeps_the_earlier_page(run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "index.html").write_text("earlier")

    def fail(run: object) -> str:
        raise fv.InputError("stop")

    monkeypatch.setattr("featveil.demo.demo_page.render", fail)
    assert run("demo", "--out", tmp_path).exit_code == 2
    assert [path.name for path in tmp_path.iterdir()] == ["index.html"]
    assert (tmp_path / "index.html").read_text() == "earlier"


def test_a_demo_without_an_inverter_is_still_one(run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def none(kind: str) -> None:
        raise fv.InputError("there is no inverter")

    monkeypatch.setattr("featveil.demo.two_views.raw_painter", none)
    result = run("demo", "--out", tmp_path / "out", "--json")
    assert result.exit_code == 0 and json.loads(result.stdout)["views"] == []
    assert "was not painted: there is no inverter." in (tmp_path / "out/index.html").read_text(encoding="utf-8")
