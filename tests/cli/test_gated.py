"""featveil privatize --defense gate and what a server makes of it, on views of the rendered room."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

import featveil as fv
from colmap_databases import tables, write_database
from featveil.attacks import Knowledge
from featveil.formats import hloc
from featveil.geometry.sfm import triangulate
from featveil.metrics import pose_errors
from hloc_lists import read_poses
from rooms import STEADY, Room, RoomFiles, sketch_room

QUERY = "view02.png"


@pytest.fixture(scope="module")
def sketch(room: Room, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of the room's map. Do not change it."""
    path = tmp_path_factory.mktemp("sketch") / "room.sketch"
    fv.save_sketch(sketch_room(room), path)
    return path


@pytest.fixture
def photo(files: RoomFiles) -> Path:
    """A view of the room."""
    return files.images / QUERY


@pytest.fixture
def gate(sketch: Path, tmp_path: Path) -> list[object]:
    """What follows the inputs of a command that gates them into q.veil."""
    return ["--out", tmp_path / "q.veil", "--defense", "gate", "--sketch", sketch, "--max-features", "500"]


def elsewhere(run: Any, *arguments: object) -> str:
    """Run a command that must find no mapped place: code 3, nothing on stdout; what it says."""
    result = run(*arguments)
    assert result.exit_code == 3, result.output
    assert result.stdout == ""
    return str(result.stderr)


def lines(run: Any, *arguments: object) -> dict[str, str]:
    """What `privatize` tells a person, by the first word of the line."""
    result = run("privatize", *arguments)
    assert result.exit_code == 0, result.output
    return dict(line.split(maxsplit=1) for line in result.stdout.splitlines()[1:])


class TestInvert:
    def test_is_painted_from_the_map_s_own_descriptors(
        self, run: Any, ran: Any, photo: Path, sketch: Path, gate: list[object], tmp_path: Path
    ) -> None:
        ran("privatize", photo, *gate)
        shown = ran("invert", tmp_path / "q.veil", "--sketch", sketch, "--out", tmp_path / "seen.png")
        assert shown["attack"] == "read" and shown["answered"] == 1 and shown["geometry"] == "positions"
        assert (tmp_path / "seen.png").stat().st_size > 0
        refused = run("invert", tmp_path / "q.veil", "--out", tmp_path / "other.png")
        assert refused.exit_code == 2 and "--sketch" in refused.stderr
        private, known = fv.load(tmp_path / "q.veil"), fv.load_sketch(sketch)
        assert fv.invert(private, knowledge=Knowledge(sketch=known)).ndim == 3
        with pytest.raises(fv.InputError, match="sketch"):
            fv.invert(private)
        assert not (tmp_path / "other.png").exists()

    def test_raw_descriptors_after_a_gate_are_what_the_inverter_was_trained_on(
        self, run: Any, photo: Path, gate: list[object], tmp_path: Path
    ) -> None:
        run("privatize", photo, *gate, "--then", "none")
        result = run("invert", tmp_path / "q.veil", "--out", tmp_path / "seen.png")
        assert result.exit_code == 0 and "another defense" not in result.stderr


class TestAttack:
    def test_a_fallback_is_said_to_be_one(
        self, run: Any, photo: Path, sketch: Path, gate: list[object], tmp_path: Path
    ) -> None:
        run("privatize", photo, *gate)
        result = run("attack", tmp_path / "q.veil", "--with", "read,overlap", "--sketch", sketch, "--truth", photo)
        said = " ".join(result.stdout.split())
        assert result.exit_code == 0 and "every guess is that of the read attack" in said
        assert "features without an answer are scored too, by a fallback guess" in said
        assert "they share their position with others" in said
        alone = run("attack", tmp_path / "q.veil", "--with", "read", "--sketch", sketch, "--truth", photo)
        assert "fallback" not in alone.stdout


class TestPrivatize:
    def test_what_is_said_and_sent(self, run: Any, ran: Any, photo: Path, gate: list[object], tmp_path: Path) -> None:
        shown_lines = lines(run, photo, *gate)
        private = fv.load(tmp_path / "q.veil")
        assert isinstance(private, fv.PrivateFeatures) and isinstance(private.descriptors, fv.MapPoints)
        share = 100 * len(private) / 500
        assert shown_lines["features"].startswith(f"{len(private)} of 500 ({share:.1f} %): those that the map knows")
        assert f"{(tmp_path / 'q.veil').stat().st_size:,} bytes" in shown_lines["features"]
        assert f"sketch {private.descriptors.sketch[:12]}, tau {private.guarantee.tau:g}" in shown_lines["defense"]
        assert "contrast" in shown_lines["defense"] and "support none" in shown_lines["defense"]
        assert shown_lines["guarantee"].startswith(
            f"map-known: features farther than {private.guarantee.tau:g} from the sketch leave no trace, but for"
            " whether anything is sent"
        )
        assert "points of the map that it may show" in shown_lines["leaks"]
        assert "gaps where nothing is sent" in shown_lines["leaks"]
        assert "attacks" not in shown_lines and "empirical" not in str(shown_lines)
        shown = ran("privatize", photo, *gate, "--overwrite")
        assert (shown["features"], shown["considered"]) == (len(private), 500)
        assert (
            shown["guarantee"] | {"kind": "map-known", "epsilon": None, "tau": private.guarantee.tau}
            == (shown["guarantee"])
        )

    def test_decoys_have_an_epsilon(self, run: Any, photo: Path, gate: list[object], tmp_path: Path) -> None:
        shown = lines(run, photo, *gate, "--then", "subset", "--epsilon", 8, "--subset-size", 3)
        private = fv.load(tmp_path / "q.veil")
        assert isinstance(private, fv.PrivateFeatures) and private.guarantee.epsilon == 8
        n = len(private)
        assert f"epsilon 8 a descriptor, {8 * n:,} for an image of {n:,} (they add up)" in shown["guarantee"]
        assert "leave no trace" in shown["guarantee"] and "then subset" in shown["defense"]
        assert "a blind guess at the true point" in shown["attacks"] and "may show" not in shown["leaks"]

    def test_other_defenses_after_it(self, run: Any, photo: Path, gate: list[object], tmp_path: Path) -> None:
        shown = lines(run, photo, *gate, "--then", "lifting", "--dimension", 2)
        private = fv.load(tmp_path / "q.veil")
        assert isinstance(private.descriptors, fv.Subspaces)
        assert "as far as known attacks tell" in shown["guarantee"]
        assert "subspaces that hold the descriptors of every feature that is sent" in shown["leaks"]
        pool = tmp_path / "device.pool"
        fv.Pool.create(pool, "sift", [fv.builtin("sift").points()[:8000]])
        hidden = lines(run, photo, *gate, "--then", "hardened", "--pool", pool, "--overwrite")["guarantee"]
        assert hidden.startswith("map-known") and "as far as known attacks tell" in hidden
        result = run("privatize", photo, *gate, "--then", "none", "--overwrite")
        assert "the descriptors of the others are sent as they are" in result.stdout
        assert "raw descriptors of every feature that is sent" in " ".join(result.stdout.split())
        assert "the read attack takes the descriptors" in result.stderr
        assert isinstance(fv.load(tmp_path / "q.veil").descriptors, fv.Points)

    def test_features_that_lie_apart_are_known_too(
        self, run: Any, photo: Path, gate: list[object], tmp_path: Path
    ) -> None:
        assert "those that the map knows and that lie apart" in lines(run, photo, *gate, "--apart")["features"]

    def test_a_private_file_for_many(
        self, run: Any, ran: Any, files: RoomFiles, gate: list[object], tmp_path: Path
    ) -> None:
        out = tmp_path / "queries.h5"
        shown = ran("privatize", files.images, *gate[2:], "--out", out)
        assert shown["written"] == 6
        with h5py.File(out) as file:
            assert "descriptors" not in file[QUERY] and len(file[QUERY]["keypoints"]) > 100
        again = run("privatize", files.images, *gate[2:], "--out", out, "--resume")
        assert again.exit_code == 0 and "6 there already" in again.stdout

    def test_images_are_described_as_the_sketch_is(
        self, ran: Any, refused: Any, room: Room, photo: Path, gate: list[object], tmp_path: Path
    ) -> None:
        other = tmp_path / "other.sketch"
        fv.save_sketch(replace(sketch_room(room), kind="rootsift", calibration=None), other)
        command = ("privatize", photo, "--defense", "gate", "--sketch", other, "--tau", 0.3, "--min-share", 0.001)
        shown = ran(*command, "--out", tmp_path / "r.veil", "--min-features", 1, "--contrast", 1)
        assert shown["kind"] == "rootsift"
        assert "holds sift descriptors, the features are rootsift" in refused(
            "privatize", photo, *gate, "--kind", "rootsift"
        )
        fv.save(fv.extract(photo, "rootsift", 50), tmp_path / "raw.veil")
        assert "holds sift descriptors" in refused("privatize", tmp_path / "raw.veil", *gate[:-2])

    def test_another_place(self, run: Any, image: Path, gate: list[object], tmp_path: Path) -> None:
        """One line and nothing written; of several, what shows the place is written."""
        said = elsewhere(run, "privatize", image, *gate)
        assert said.startswith("error: not a mapped place: ") and said.count("\n") == 1
        assert not (tmp_path / "q.veil").exists()
        assert "not a mapped place" in elsewhere(run, "privatize", image, *gate[2:], "--out", tmp_path / "q.h5")
        assert not (tmp_path / "q.h5").exists()

    def test_some_photographs_of_another_place(
        self, run: Any, ran: Any, image: Path, shifted: Path, photo: Path, gate: list[object], tmp_path: Path
    ) -> None:
        out = tmp_path / "out"
        result = run("privatize", image, photo, *gate[2:], "--out", out)
        assert result.exit_code == 0 and "1 written" in result.stdout and "failed" not in result.stdout
        assert "1 of other places: nothing sent" in result.stdout
        assert result.stderr.startswith("warning: a.png: not a mapped place")
        assert [path.name for path in out.iterdir()] == [f"{QUERY}.veil"]
        command = ("privatize", image, photo, *gate[2:], "--out", out)
        shown = ran(*command, "--overwrite")
        assert (shown["written"], shown["failed"], shown["elsewhere"]) == (1, 0, 1)
        shown = ran(*command, "--resume")
        assert (shown["written"], shown["skipped"], shown["elsewhere"]) == (0, 1, 1)
        (tmp_path / "bad.png").write_bytes(b"no image")
        result = run("privatize", image, photo, tmp_path / "bad.png", *gate[2:], "--out", tmp_path / "q.h5")
        assert result.exit_code == 1 and "1 of other places: nothing sent, 1 failed" in " ".join(result.stdout.split())
        said = elsewhere(run, "privatize", image, shifted, *gate[2:], "--out", tmp_path / "none")
        assert "none of the 2 inputs shows a mapped place" in said and not (tmp_path / "none").exists()

    def test_an_unreadable_input_among_them_is_another_failure(
        self, run: Any, image: Path, gate: list[object], tmp_path: Path
    ) -> None:
        (tmp_path / "bad.png").write_bytes(b"no image")
        result = run("privatize", image, tmp_path / "bad.png", *gate[2:], "--out", tmp_path / "none")
        assert result.exit_code == 2 and "none of the 2 inputs could be used" in result.stderr

    def test_what_is_refused(
        self, refused: Any, photo: Path, empty: Path, gate: list[object], sketch: Path, tmp_path: Path
    ) -> None:
        assert "tau must be a number above 0 and at most 2" in refused("privatize", photo, *gate, "--tau", 3)
        assert "has no features" in refused("privatize", empty, *gate)
        assert "gate needs --sketch" in refused("privatize", photo, "--out", tmp_path / "x.veil", "--defense", "gate")
        assert "is not there" in refused("privatize", photo, *gate, "--sketch", tmp_path / "no.sketch")
        assert "unknown support" in refused("privatize", photo, *gate, "--support", "all")
        fv.save(fv.extract(photo, max_features=20), tmp_path / "raw.veil")
        assert "not a usable sketch" in refused("privatize", photo, *gate, "--sketch", tmp_path / "raw.veil")
        wide = fv.Features(fv.Points(np.ones((40, 64), np.float32)), "sift")
        fv.save(wide, tmp_path / "wide.veil")
        assert "the features have 64" in refused("privatize", tmp_path / "wide.veil", *gate[:-2])
        assert "the sketch is not signed" in refused("privatize", photo, *gate, "--signer", "ab" * 32)
        write_database(tmp_path / "c.db", {"a.png": tables(30)})  # RootSIFT, unless something else is said
        assert "the features are rootsift" in refused("privatize", tmp_path / "c.db", *gate[:-2])

    def test_makes_no_map(self, refused: Any, files: RoomFiles, sketch: Path, tmp_path: Path) -> None:
        """Before anything is extracted."""
        for then in ((), ("--then", "subset", "--epsilon", 8)):
            said = refused("map", files.images, "--out", tmp_path / "m", "--defense", "gate", "--sketch", sketch, *then)
            assert "no descriptors to make another one of" in said and not (tmp_path / "m").exists()

    def test_a_pinned_sketch(
        self, run: Any, refused: Any, room: Room, photo: Path, gate: list[object], sketch: Path
    ) -> None:
        digest = fv.load_sketch(sketch).digest
        assert "expected abc" in refused("privatize", photo, *gate, "--sketch-digest", "abc")
        assert run("privatize", photo, *gate, "--sketch-digest", digest).exit_code == 0

    def test_the_digest_is_the_sketch_s_where_there_is_a_background(
        self, run: Any, photo: Path, gate: list[object], sketch: Path, tmp_path: Path
    ) -> None:
        background = tmp_path / "background.safetensors"
        fv.save_database(fv.builtin("sift"), background)
        pinned = ("--background", background, "--sketch-digest", fv.load_sketch(sketch).digest)
        result = run("privatize", photo, *gate, *pinned)
        assert result.exit_code == 0, result.output

    def test_a_ledger_charges_decoys_only(self, run: Any, refused: Any, photo: Path, gate: list[object]) -> None:
        ledger = Path(str(gate[1])).with_name("l.sqlite")
        fv.Ledger(ledger).set_budget("ann", 10_000)
        charged = ("--ledger", ledger, "--subject", "ann")
        assert "use --then subset" in refused("privatize", photo, *gate, *charged)
        result = run("privatize", photo, *gate, *charged, "--then", "subset", "--epsilon", 8, "--json")
        assert result.exit_code == 0, result.output
        shown = json.loads(result.stdout)
        assert shown["budget_left"] == 10_000 - 8 * shown["features"]


class TestLocalize:
    @pytest.fixture
    def gated(self, run: Any, photo: Path, gate: list[object], tmp_path: Path) -> Path:
        """A gated view."""
        assert run("privatize", photo, *gate).exit_code == 0
        return tmp_path / "q.veil"

    def test_no_features_of_the_map_are_needed(
        self, ran: Any, room: Room, files: RoomFiles, gated: Path, tmp_path: Path
    ) -> None:
        out = tmp_path / "poses.txt"
        shown = ran("localize", gated, "--model", room.model, "--out", out)["queries"]["q"]
        assert shown["localized"] and shown["inliers"] > 200 and shown["inliers_by_chance"] is None
        turned, moved = pose_errors(read_poses(out)["q"], room.map.poses[QUERY])
        assert turned < 0.5 and moved < 0.2

    def test_a_name_that_looks_like_markup(self, run: Any, room: Room, gated: Path, tmp_path: Path) -> None:
        folder = tmp_path / "queries"
        (folder / "[").mkdir(parents=True)
        gated.rename(folder / "[" / "b].veil")
        shown = run("localize", folder, "--model", room.model, "--out", tmp_path / "poses.txt")
        assert shown.exit_code == 0 and "[/b]" in shown.stdout

    def test_pairs_that_are_not_used_are_a_warning(self, run: Any, room: Room, gated: Path, tmp_path: Path) -> None:
        pairs = tmp_path / "pairs.txt"
        pairs.write_text("q view00.png\n")
        out = ("--out", tmp_path / "poses.txt")
        assert "not used" in run("localize", gated, "--model", room.model, "--pairs", pairs, *out).stderr
        assert run("localize", gated, "--model", room.model, "--out", tmp_path / "other.txt").stderr == ""

    def test_no_pairs_for_a_large_map(
        self, ran: Any, room: Room, gated: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("featveil.pipelines.localize._FEW", 1)
        assert ran("localize", gated, "--model", room.model, "--out", tmp_path / "poses.txt")["localized"] == 1

    def test_a_private_file_of_queries(
        self, ran: Any, room: Room, files: RoomFiles, gate: list[object], tmp_path: Path
    ) -> None:
        ran("privatize", files.images, *gate[2:], "--out", tmp_path / "queries.h5")
        out = tmp_path / "poses.txt"
        command = ("localize", tmp_path / "queries.h5", "--model", room.model, "--out", out)
        assert ran(*command, "--cameras", files.cameras)["localized"] == 6
        for name, pose in read_poses(out).items():
            turned, moved = pose_errors(pose, room.map.poses[name])
            assert turned < 0.3 and moved < 0.05

    def test_decoys_must_beat_chance(
        self, ran: Any, room: Room, files: RoomFiles, photo: Path, gate: list[object], tmp_path: Path
    ) -> None:
        ran("privatize", photo, *gate, "--then", "subset", "--epsilon", 10, "--subset-size", 2)
        out = tmp_path / "poses.txt"
        shown = ran("localize", tmp_path / "q.veil", "--model", room.model, "--out", out)["queries"]["q"]
        assert shown["localized"] and shown["inliers"] > 2 * shown["inliers_by_chance"] > 0

    def test_gated_and_other_queries_together(
        self, run: Any, ran: Any, room: Room, files: RoomFiles, gated: Path, photo: Path, tmp_path: Path
    ) -> None:
        model = tmp_path / "model"
        shutil.copytree(room.model, model)
        command = ("localize", gated, photo, "--model", model, "--out", tmp_path / "poses.txt", "--max-features", 500)
        result = run(*command)
        assert result.exit_code == 2 and "no features beside it" in result.stderr
        hloc.write_features(model / "features.h5", room.features.items())
        shown = ran(*command)["queries"]
        assert shown["q"]["localized"] and shown[QUERY]["localized"]

    def test_a_model_that_is_not_the_sketch_s(self, refused: Any, room: Room, gated: Path, tmp_path: Path) -> None:
        model = tmp_path / "model"
        triangulate(room.database, {name: room.map.poses[name] for name in room.names[:5]}, model, STEADY)
        said = refused("localize", gated, "--model", model, "--out", tmp_path / "poses.txt")
        assert "query 'q': " in said and "it changed since the sketch was built" in said
