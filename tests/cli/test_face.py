"""featveil face, and pools of face descriptors: the whole way from descriptors to a decision, and what is refused."""

import json
import os
import pickle
import sqlite3
import subprocess
import sys
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.main import get_command

from face_sets import population
from featveil.cli import app
from featveil.core import Subspaces
from featveil.datasets.face_sets import FaceSet, load_faces, save_faces
from featveil.stores.pool import Pool
from featveil.stores.templates import TemplateStore
from interruptions import Watched
from template_stores import edit, without_waiting_for_the_disk

D, MODEL = 32, "0123456789ab" + 52 * "0"
KIND = "face-0123456789ab"
OTHERS = replace(population(60, 1, D, seed=1), model=MODEL)
STAFF = replace(population(15, 3, D, seed=2, scatter=0.3, label=0.0), model=MODEL)
COMMANDS = get_command(app)
NAMES = STAFF.names  # P020000_0001, P020000_0002, P020000_0003, P020001_0001, ...


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands are put together once, which takes longer than most of them."""
    without_waiting_for_the_disk(monkeypatch)
    monkeypatch.setattr("typer.testing._get_command", lambda _: COMMANDS)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """With others.npz, to hide among, and staff.npz, three photographs each."""
    save_faces(OTHERS, tmp_path / "others.npz")
    save_faces(STAFF, tmp_path / "staff.npz")
    return tmp_path


@pytest.fixture
def store(folder: Path, run: Any) -> Path:
    """A store that knows ann, who is P020000, and has no threshold yet."""
    path = folder / "people.sqlite"
    assert run("face", "create", path, "--among", folder / "others.npz", "--dimension", 8).exit_code == 0
    assert run("face", "enroll", path, "ann", folder / "staff.npz", "--name", NAMES[0]).exit_code == 0
    return path


@pytest.fixture
def pool(folder: Path, run: Any) -> Path:
    assert run("pool", "create", folder / "device.pool", folder / "others.npz").exit_code == 0
    return folder / "device.pool"


@pytest.fixture
def hardened(folder: Path, pool: Path, run: Any) -> Path:
    """A store whose templates are hidden among the pool, and that knows nobody."""
    assert run("face", "create", folder / "pooled.sqlite", "--among", pool, "--dimension", 4).exit_code == 0
    return folder / "pooled.sqlite"


def one_row(faces: FaceSet, row: int, path: Path) -> Path:
    save_faces(faces.take(np.array([row])), path)
    return path


class TestTheWholeWay:
    def test_with_lifting(self, folder: Path, run: Any, ran: Any) -> None:
        store, staff = folder / "people.sqlite", folder / "staff.npz"
        made = run("face", "create", store, "--among", folder / "others.npz", "--dimension", 8)
        assert made.exit_code == 0
        assert f"an empty store for {KIND} descriptors of size 32, lifted to dimension 8" in made.stdout
        assert made.stderr.startswith("warning: face templates hidden among faces that others may have")
        assert "ann is enrolled in" in run("face", "enroll", store, "ann", staff, "--name", NAMES[0]).stdout
        undecided = run("face", "verify", store, "ann", staff, "--name", NAMES[1])
        assert undecided.exit_code == 3
        assert "ann: not decided (distance 0." in undecided.stdout and "featveil face calibrate" in undecided.stdout
        assert run("face", "identify", store, staff, "--name", NAMES[1]).exit_code == 3
        told = run("face", "calibrate", store, staff, "--far", 0.01)
        assert told.exit_code == 0
        assert "FAR         at most 0.01 of 1,890 pairs of strangers (below 0.0" in told.stdout
        assert "TAR         100.0 % of 90 pairs of one person" in told.stdout
        for private in ([], ["--private"]):
            good = run("face", "verify", store, "ann", staff, "--name", NAMES[1], *private)
            assert (good.exit_code, good.stdout.startswith("ann: accepted (distance 0.")) == (0, True)
            bad = run("face", "verify", store, "ann", staff, "--name", NAMES[9], *private)
            assert (bad.exit_code, bad.stdout.startswith("ann: refused (distance ")) == (1, True)
        assert run("face", "identify", store, staff, "--name", NAMES[2]).exit_code == 0
        assert run("face", "identify", store, staff, "--name", NAMES[9]).exit_code == 1
        assert "the template of ann is deleted" in run("face", "revoke", store, "ann").stdout
        assert ran("face", "info", store)["people"] == []

    def test_with_a_pool(self, folder: Path, hardened: Path, pool: Path, run: Any, ran: Any) -> None:
        staff = folder / "staff.npz"
        assert ran("face", "enroll", hardened, "--everyone", staff)["enrolled"] == 15
        assert Pool(pool).holdings().free == 60 - 15 * 2  # half of the dimension
        assert ran("face", "calibrate", hardened, staff, "--far", 0.05)["true_accept_rate"] > 0.9
        assert Pool(pool).holdings().free == 30  # finding a threshold uses nothing up
        for private in ([], ["--private"]):
            assert run("face", "verify", hardened, "P020000", staff, "--name", NAMES[1], *private).exit_code == 0
            assert run("face", "verify", hardened, "P020000", staff, "--name", NAMES[9], *private).exit_code == 1
        found = ran("face", "identify", hardened, staff, "--name", NAMES[4], "--top", 2)["nearest"]
        assert [found[0]["person"], len(found)] == ["P020001", 2]
        before = TemplateStore(hardened).template("P020000").descriptors
        ran("face", "revoke", hardened, "P020000")
        ran("face", "enroll", hardened, "P020000", staff, "--name", NAMES[0])
        again = TemplateStore(hardened).template("P020000").descriptors
        assert isinstance(before, Subspaces) and isinstance(again, Subspaces)
        assert (before.basis == again.basis).all()  # the same photograph is hidden in the same way
        assert Pool(pool).holdings().free == 30

    def test_balanced_attributes(self, folder: Path, refused: Any, ran: Any) -> None:
        store, staff, others = folder / "b.sqlite", folder / "staff.npz", folder / "others.npz"
        create = ("face", "create", store, "--among", others, "--dimension", 8, "--strategy", "balanced")
        assert "name one with --attribute" in refused(*create)
        assert "no attribute 'age': there are gender" in refused(*create, "--attribute", "age")
        assert ran(*create, "--attribute", "gender")["defense"]["strategy"] == "balanced"
        enroll = ("face", "enroll", store, "ann", staff, "--name", NAMES[0])
        assert "give those, with the same --attribute" in refused(*enroll)
        assert ran(*enroll, "--attribute", "gender")["enrolled"] == 1
        assert ran("face", "calibrate", store, staff, "--far", 0.05, "--attribute", "gender")["threshold"] > 0

    def test_nothing_raw_is_stored(self, store: Path, hardened: Path, folder: Path, ran: Any) -> None:
        """Neither the descriptor nor the name of the photograph; of the person only the name that was given."""
        ran("face", "enroll", hardened, "ann", folder / "staff.npz", "--name", NAMES[0])
        ran("face", "calibrate", store, folder / "staff.npz", "--far", 0.05)
        rows = load_faces(folder / "staff.npz").values
        for path in (store, hardened):
            stored = path.read_bytes()
            assert b"ann" in stored and NAMES[0].encode() not in stored and b"P02" not in stored
            for width in ("<f4", "<f8", ">f4"):
                assert not any(
                    row[start : start + 2].astype(width).tobytes() in stored for row in rows for start in (0, 9)
                )


class TestJson:
    def test_of_a_store(self, store: Path, folder: Path, ran: Any) -> None:
        info = ran("face", "info", store)
        assert (info["store"], info["kind"], info["size"], info["model"]) == (str(store), KIND, 32, MODEL)
        assert (info["people"], info["calibration"]) == (["ann"], None)
        spec = info["defense"]
        assert (spec["name"], spec["strategy"], spec["dimension"], spec["random_directions"]) == (
            "lifting",
            "hybrid",
            8,
            4,
        )
        made = ran("face", "create", folder / "b.sqlite", "--among", folder / "others.npz", "--dimension", 8)
        assert made.pop("weaknesses").startswith("face templates hidden among faces that others may have")
        assert made == {"store": str(folder / "b.sqlite"), "kind": KIND, "size": 32, "model": MODEL, "defense": spec}
        assert ran("face", "revoke", store, "ann") == {"store": str(store), "revoked": "ann"}

    def test_of_enrolling_and_calibrating(self, store: Path, folder: Path, ran: Any) -> None:
        made = ran("face", "enroll", store, "bob", folder / "staff.npz", "--name", NAMES[3])
        assert made == {"store": str(store), "enrolled": 1, "already": 0}
        found = ran("face", "calibrate", store, folder / "staff.npz", "--far", 0.02)
        assert (found["far"], found["strangers"], found["mated"]) == (0.02, 1890, 90)
        assert 0 < found["threshold"] < 2 and 0.9 < found["true_accept_rate"] <= 1
        assert 0.02 < found["far_upper_bound"] < 0.04
        stored = ran("face", "info", store)["calibration"]
        assert stored == {name: found[name] for name in stored} and len(stored) == 5

    def test_of_probes(self, store: Path, folder: Path, run: Any, ran: Any) -> None:
        def said(*arguments: object) -> tuple[int, Any]:
            result = run("face", *arguments, "--json")
            return result.exit_code, json.loads(result.stdout)

        verify = ("verify", store, "ann", folder / "staff.npz", "--name")
        code, first = said(*verify, NAMES[1])
        assert (code, first["person"], first["threshold"], first["accepted"]) == (3, "ann", None, None)
        threshold = ran("face", "calibrate", store, folder / "staff.npz", "--far", 0.01)["threshold"]
        assert said(*verify, NAMES[1]) == (0, {**first, "threshold": threshold, "accepted": True})
        code, private = said(*verify, NAMES[1], "--private")
        assert (code, private["distance"]) == (0, pytest.approx(first["distance"], abs=1e-5))
        code, other = said(*verify, NAMES[9])
        assert (code, other["accepted"], other["distance"] > threshold) == (1, False, True)
        code, found = said("identify", store, folder / "staff.npz", "--name", NAMES[1])
        assert (code, found["store"]) == (0, str(store))
        (only,) = found["nearest"]
        assert (only["person"], only["accepted"], only["threshold"]) == ("ann", True, threshold)
        assert only["distance"] == pytest.approx(first["distance"], abs=1e-5)
        assert said("identify", store, folder / "staff.npz", "--name", NAMES[9])[0] == 1


class TestEnrolling:
    def test_files_of_one_face_need_no_name(self, store: Path, folder: Path, ran: Any) -> None:
        ran("face", "enroll", store, "bob", one_row(STAFF, 3, folder / "bob.npz"))
        np.save(folder / "cid.npy", STAFF.values[6:7])  # which does not say by what network
        ran("face", "enroll", store, "cid", folder / "cid.npy")
        found = ran("face", "info", store)["people"]
        assert found == ["ann", "bob", "cid"]

    def test_which_face_is_meant(self, store: Path, folder: Path, refused: Any) -> None:
        enroll = ("face", "enroll", store, "bob")
        assert f"holds 45 faces: say which with --name, such as '{NAMES[0]}'" in refused(*enroll, folder / "staff.npz")
        assert "has no face called 'zoe'" in refused(*enroll, folder / "staff.npz", "--name", "zoe")
        assert "there is no file" in refused(*enroll, folder / "none.npz")
        np.savez(folder / "empty.npz", embedding=np.zeros((0, D), np.float32))
        assert "empty.npz" in refused(*enroll, folder / "empty.npz")
        (folder / "bad.npz").write_bytes(b"no archive")
        assert "not a readable .npz" in refused(*enroll, folder / "bad.npz")
        (folder / "x.npz").write_bytes(pickle.dumps([1, 2]))
        assert "not a readable .npz" in refused(*enroll, folder / "x.npz")

    def test_one_person_or_everyone(self, store: Path, folder: Path, refused: Any) -> None:
        asked = "name a person and a face, or a file of faces with --everyone"
        staff = folder / "staff.npz"
        for arguments in (
            [],
            ["bob"],
            ["bob", staff, "--everyone", staff],
            ["bob", "--everyone", staff],
            ["--name", NAMES[0], "--everyone", staff],
        ):
            assert asked in refused("face", "enroll", store, *arguments)

    def test_everyone_is_enrolled_by_the_first_photograph(self, store: Path, folder: Path, ran: Any, run: Any) -> None:
        made = run("face", "enroll", store, "--everyone", folder / "staff.npz")
        assert (made.exit_code, made.stdout) == (0, f"15 enrolled in {store}\n")
        people = ran("face", "info", store)["people"]
        assert people == ["ann", *(f"P02{person:04d}" for person in range(15))]
        opened = TemplateStore(store)
        for person, row in ((people[1], 0), (people[15], 42)):
            away = run("face", "verify", store, person, one_row(STAFF, row, folder / "one.npz"), "--json")
            assert json.loads(away.stdout)["distance"] < 1e-5
        assert "ann, P020000, P020001" in run("face", "info", store).stdout
        assert "P020013" not in run("face", "info", store).stdout  # of many the first ten
        assert len(opened.people()) == 16

    def test_twice_is_refused_and_changes_nothing(self, store: Path, folder: Path, refused: Any) -> None:
        staff = folder / "staff.npz"
        told = refused("face", "enroll", store, "ann", staff, "--name", NAMES[1])
        assert "'ann' is enrolled already: revoke that template first, then enroll again" in told

    def test_everyone_goes_on_with_those_who_are_missing(self, store: Path, folder: Path, run: Any) -> None:
        save_faces(replace(STAFF, names=("ann_0001", *NAMES[1:])), folder / "more.npz")
        before = TemplateStore(store).template("ann").descriptors
        made = run("face", "enroll", store, "--everyone", folder / "more.npz")
        assert (made.exit_code, made.stdout) == (0, f"15 enrolled in {store}, 1 had been before\n")
        after = TemplateStore(store).template("ann").descriptors
        assert isinstance(before, Subspaces) and isinstance(after, Subspaces)
        np.testing.assert_array_equal(after.offset, before.offset)
        again = run("face", "enroll", store, "--everyone", folder / "more.npz")
        assert (again.exit_code, again.stdout) == (0, f"0 enrolled in {store}, 16 had been before\n")

    def test_what_is_refused_does_not_use_a_pool_up(self, hardened: Path, folder: Path, refused: Any, ran: Any) -> None:
        staff = folder / "staff.npz"
        ran("face", "enroll", hardened, "ann", staff, "--name", NAMES[0])
        assert "enrolled already" in refused("face", "enroll", hardened, "ann", staff, "--name", NAMES[3])
        assert "printable" in refused("face", "enroll", hardened, "a\nb", staff, "--name", NAMES[3])
        save_faces(replace(STAFF, model="f" * 64), folder / "other.npz")
        other = ("face", "enroll", hardened, "bob", folder / "other.npz", "--name", NAMES[3])
        assert "describe it by the same network" in refused(*other)

    def test_a_pool_that_is_too_small_enrolls_nobody_and_is_not_used(
        self, hardened: Path, pool: Path, folder: Path, run: Any, ran: Any
    ) -> None:
        save_faces(replace(population(40, 1, D, seed=9), model=MODEL), folder / "many.npz")
        short = run("face", "enroll", hardened, "--everyone", folder / "many.npz")
        assert (short.exit_code, short.stdout, short.stderr.count("\n")) == (2, "", 1)
        assert "the pool has 60 unused descriptors left and 80 are needed for 40 people" in short.stderr
        assert ran("face", "info", hardened)["people"] == []
        assert Pool(pool).holdings().free == 60

    @pytest.mark.parametrize("name", ["[/x]", "[bold]bob[/bold]", "ann'; --", "Zoë Ö", "--"])
    def test_any_name_is_shown_as_it_is(self, store: Path, folder: Path, run: Any, name: str) -> None:
        staff = folder / "staff.npz"
        made = run("face", "enroll", store, "--name", NAMES[3], "--", name, staff)
        assert (made.exit_code, made.stdout) == (0, f"{name} is enrolled in {store}\n")
        found = run("face", "identify", store, staff, "--name", NAMES[3])
        assert (found.exit_code, found.stdout.splitlines()[1].startswith(f"{name} ")) == (3, True)
        assert f"ann, {name}" in run("face", "info", store).stdout

    @pytest.mark.parametrize("name", ["", " ", "a\nb", "\x1b[2J", 201 * "x", "\udcff"])
    def test_names_that_are_none(self, store: Path, folder: Path, refused: Any, name: str) -> None:
        told = refused("face", "enroll", store, name, folder / "staff.npz", "--name", NAMES[3])
        assert "a person is named by 1 to 200 printable characters" in told and "\x1b" not in told

    def test_ctrl_c_leaves_nobody_behind(
        self, store: Path, folder: Path, run: Any, ran: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        from featveil.defenses import privatize

        Watched(monkeypatch, "featveil.pipelines.face_parts.face_templates.privatize", privatize, stop_at=5)
        stopped = run("face", "enroll", store, "--everyone", folder / "staff.npz")
        assert (stopped.exit_code, stopped.stdout) == (130, "")
        assert stopped.stderr == "stopped: nothing was left half-written\n"
        assert ran("face", "info", store)["people"] == ["ann"]
        assert [path.name for path in folder.glob("people*")] == ["people.sqlite"]


class TestOtherNetworks:
    @pytest.fixture
    def other(self, folder: Path) -> Path:
        """A face of the right size by another network."""
        return one_row(replace(STAFF, model="f" * 64), 1, folder / "other.npz")

    @pytest.fixture
    def wide(self, folder: Path) -> Path:
        """A face that says nothing of its network and is too long."""
        np.save(folder / "wide.npy", population(1, 1, 64).values)
        return folder / "wide.npy"

    def test_faces_are_refused(self, store: Path, other: Path, wide: Path, refused: Any, folder: Path) -> None:
        told = f"the store holds templates of {KIND} (size 32), this one is of"
        for arguments in (
            ("enroll", store, "bob"),
            ("verify", store, "ann"),
            ("identify", store),
        ):
            assert f"{told} face-ffffffffffff (size 32): describe it by" in refused("face", *arguments, other)
            assert f"{told} {KIND} (size 64): describe it by" in refused("face", *arguments, wide)
        assert f"is of {KIND}, the probe of face-f" in refused("face", "verify", store, "ann", other, "--private")
        assert "size 64 cannot be lifted" in refused("face", "verify", store, "ann", wide, "--private")
        save_faces(replace(STAFF, model="f" * 64), folder / "their-staff.npz")
        calibrate = ("face", "calibrate", store, folder / "their-staff.npz", "--far", 0.05)
        assert f"the store is for {KIND} of size 32, these faces are face-ffff" in refused(*calibrate)

    def test_faces_to_hide_among_are_those_of_the_store(
        self, store: Path, folder: Path, pool: Path, refused: Any, ran: Any
    ) -> None:
        enroll = ("face", "enroll", store, "bob", folder / "staff.npz", "--name", NAMES[3])
        assert "does not hold the faces that this store hides others among" in refused(
            *enroll, "--among", folder / "staff.npz"
        )
        assert "is not a database file" in refused(*enroll, "--among", pool)
        assert "there is no file" in refused(*enroll, "--among", folder / "none.npz")
        (folder / "moved").mkdir()
        (folder / "others.npz").rename(folder / "moved" / "others.npz")
        told = refused(*enroll)
        assert f"the faces to hide among are not at {folder / 'others.npz'}: say where with --among" in told
        calibrate = ("face", "calibrate", store, folder / "staff.npz", "--far", 0.05)
        assert "say where with --among" in refused(*calibrate)
        assert ran(*enroll, "--among", folder / "moved" / "others.npz")["enrolled"] == 1
        assert ran(*calibrate, "--among", folder / "moved" / "others.npz")["mated"] == 90

    def test_a_pool_of_another_network(self, hardened: Path, folder: Path, run: Any, refused: Any) -> None:
        save_faces(replace(OTHERS, model="f" * 64), folder / "theirs.npz")
        assert run("pool", "create", folder / "their.pool", folder / "theirs.npz").exit_code == 0
        enroll = ("face", "enroll", hardened, "bob", folder / "staff.npz", "--name", NAMES[3])
        assert f"use a {KIND} pool" in refused(*enroll, "--among", folder / "their.pool")


class TestCreating:
    def test_what_is_refused(self, store: Path, folder: Path, pool: Path, refused: Any) -> None:
        create, others = ("face", "create", folder / "new.sqlite", "--among"), folder / "others.npz"
        for dimension in (1, 32, 100):
            assert "dimension 2 or more, below it" in refused(*create, others, "--dimension", dimension)
        assert "dimension must be a whole number" in refused(*create, others, "--dimension", 0)
        assert "hybrid, adversarial or balanced, got 'random'" in refused(*create, others, "--strategy", "random")
        assert "there is no file" in refused(*create, folder / "none.npz")
        assert "does not exist: make it with featveil pool create" in refused(*create, folder / "none.pool")
        (folder / "text.pool").write_text("no pool" * 1000)
        assert "no pool at all" in refused(*create, folder / "text.pool")
        assert "dimension 2 or more, below it" in refused(*create, pool, "--dimension", 32)
        assert "does not exist: create it first" in refused(
            "face", "create", folder / "nowhere" / "x.sqlite", "--among", others, "--dimension", 8
        )
        assert "Missing option '--among'" in refused("face", "create", folder / "new.sqlite")
        again = ("face", "create", store, "--among", others, "--dimension", 8)
        assert "exists: use it, or name another file" in refused(*again)

    def test_weaknesses_of_a_pool_are_told_until_there_are_enough_confounders(
        self, folder: Path, run: Any, ran: Any
    ) -> None:
        save_faces(replace(population(60, 1, 64, seed=1), model=MODEL), folder / "wide.npz")
        assert run("pool", "create", folder / "wide.pool", folder / "wide.npz").exit_code == 0
        few = run("face", "create", folder / "few.sqlite", "--among", folder / "wide.pool", "--dimension", 8)
        assert (few.exit_code, few.stderr.startswith("warning: face templates with few confounders")) == (0, True)
        enough = run("face", "create", folder / "many.sqlite", "--among", folder / "wide.pool", "--dimension", 32)
        assert (enough.exit_code, enough.stderr) == (0, "")
        assert ran("face", "info", folder / "many.sqlite")["defense"]["confounders"] == 16

    def test_a_database_file_may_be_hidden_among(self, folder: Path, run: Any, ran: Any) -> None:
        from featveil.databases import Database, save_database

        save_database(Database.from_array(OTHERS.values, "face"), folder / "others.safetensors")
        made = ran("face", "create", folder / "d.sqlite", "--among", folder / "others.safetensors", "--dimension", 8)
        assert (made["kind"], made["model"]) == ("face", None)
        np.save(folder / "ann.npy", STAFF.values[:1])
        assert run("face", "enroll", folder / "d.sqlite", "ann", folder / "ann.npy").exit_code == 0


class TestCalibrating:
    def test_too_few_strangers_and_the_threshold_stays(self, store: Path, folder: Path, refused: Any, ran: Any) -> None:
        calibrate, staff = ("face", "calibrate", store), folder / "staff.npz"
        ran(*calibrate, staff, "--far", 0.05)
        wanted = "a FAR of 0.0005 is seen on 2,000 pairs of strangers or more, there are 1,890: give more faces"
        assert wanted in refused(*calibrate, staff, "--far", 0.0005)
        for far in (0, 1, -1, "nan"):
            assert "a false accept rate is between 0 and 1" in refused(*calibrate, staff, "--far", far)
        assert "people with several photographs" in refused(*calibrate, folder / "others.npz", "--far", 0.05)
        same = FaceSet(np.tile(STAFF.values[:1], (40, 1)), NAMES[:40], KIND, model=MODEL)
        save_faces(same, folder / "same.npz")
        assert "are photographs there twice" in refused(*calibrate, folder / "same.npz", "--far", 0.05)
        assert ran("face", "info", store)["calibration"]["far"] == 0.05

    def test_the_latest_threshold_counts(self, store: Path, folder: Path, ran: Any, run: Any) -> None:
        calibrate = ("face", "calibrate", store, folder / "staff.npz", "--far")
        loose, strict = (ran(*calibrate, far)["threshold"] for far in (0.2, 0.002))
        assert strict < loose
        assert f"threshold   {strict:.4f} (FAR 0.002)" in run("face", "info", store).stdout

    def test_pairs_of_a_list(self, store: Path, folder: Path, ran: Any, refused: Any) -> None:
        lines = [f"{NAMES[row]} {NAMES[row + 1]} 1\n" for row in range(0, 45, 3)]
        lines += [f"{NAMES[row]} {NAMES[(row + 3) % 45]} 0\n" for row in range(45)]
        (folder / "pairs.txt").write_text("".join(lines))
        calibrate = ("face", "calibrate", store, folder / "staff.npz", "--far", 0.1, "--pairs")
        found = ran(*calibrate, folder / "pairs.txt")
        assert (found["strangers"], found["mated"]) == (45, 15)
        (folder / "pairs.txt").write_text("zoe_0001 ann_0001 0\n")
        assert "which is not among the 45 faces" in refused(*calibrate, folder / "pairs.txt")
        assert "cannot read pairs" in refused(*calibrate, folder / "none.txt")


class TestProbing:
    def test_someone_unknown(self, store: Path, folder: Path, refused: Any) -> None:
        probe = one_row(STAFF, 1, folder / "probe.npz")
        for name in ("bob", "Ann", "", "\udcff", "\x1b[2J"):
            for arguments in (("verify", store, name, probe), ("revoke", store, name)):
                told = refused("face", *arguments)
                assert f"is not enrolled in {store}" in told and "\x1b" not in told
        assert f"'bob' is not enrolled in {store}" in refused("face", "verify", store, "bob", probe, "--private")

    def test_an_empty_store(self, store: Path, folder: Path, refused: Any, ran: Any, run: Any) -> None:
        ran("face", "revoke", store, "ann")
        probe = one_row(STAFF, 1, folder / "probe.npz")
        assert f"nobody is enrolled in {store}" in refused("face", "identify", store, probe)
        assert "holds       0 private templates\n" in run("face", "info", store).stdout

    def test_the_nearest_are_shown(self, store: Path, folder: Path, ran: Any, run: Any) -> None:
        ran("face", "enroll", store, "--everyone", folder / "staff.npz")
        lines = run("face", "identify", store, folder / "staff.npz", "--name", NAMES[4], "--top", 3).stdout.splitlines()
        assert lines[0].split() == ["person", "distance"]
        assert lines[1].split()[0] == "P020001" and lines[1].endswith("not decided") and len(lines) == 4
        away = [float(line.split()[1]) for line in lines[1:]]
        assert away == sorted(away) and away[0] < 0.5 < away[1]
        assert run("face", "identify", store, folder / "staff.npz", "--top", 0).exit_code == 2


class TestStoresThatAreNone:
    def commands(self, store: Path, folder: Path) -> list[tuple[object, ...]]:
        probe = one_row(STAFF, 1, folder / "probe.npz")
        return [
            ("face", "info", store),
            ("face", "enroll", store, "bob", probe),
            ("face", "enroll", store, "--everyone", folder / "staff.npz"),
            ("face", "verify", store, "ann", probe),
            ("face", "verify", store, "ann", probe, "--private"),
            ("face", "identify", store, probe),
            ("face", "calibrate", store, folder / "staff.npz", "--far", 0.05),
            ("face", "revoke", store, "ann"),
        ]

    def test_missing_foreign_and_cut_off(self, store: Path, folder: Path, refused: Any) -> None:
        for command in self.commands(folder / "none.sqlite", folder):
            assert "does not exist: make it with featveil face create" in refused(*command)
        for command in self.commands(folder / ("x" * 300), folder)[::4]:
            assert "File name too long" in refused(*command)
        whole = store.read_bytes()
        for content, told in (
            (b"", "is empty"),
            (whole[: len(whole) // 2], "is damaged"),
            (whole[:-1], "is damaged: restore it from a copy"),
            (b"text" * 2000, "is damaged or no template store at all"),
        ):
            store.write_bytes(content)
            for command in self.commands(store, folder)[:: 1 if content.startswith(whole[:100]) else 4]:
                assert told in refused(*command)
        store.unlink()
        with closing(sqlite3.connect(store)) as connection, connection:
            connection.execute("CREATE TABLE t (a)")
        for command in self.commands(store, folder)[::4]:
            assert "is not a template store of featveil" in refused(*command)

    @pytest.mark.parametrize(
        "harm",
        [
            "UPDATE settings SET defense = '{\"dimension\": 8}'",
            "UPDATE settings SET model = x'00'",
            "UPDATE settings SET among = x'00'",
            "UPDATE settings SET size = -1",
            f"UPDATE settings SET defense = '{100_000 * '['}'",
        ],
    )
    def test_damaged_settings(self, store: Path, folder: Path, refused: Any, harm: str) -> None:
        edit(store, harm)
        for command in self.commands(store, folder)[::3]:
            assert "is damaged: restore it from a copy" in refused(*command)

    def test_a_damaged_template_can_be_made_again(self, store: Path, folder: Path, refused: Any, ran: Any) -> None:
        probe = one_row(STAFF, 1, folder / "probe.npz")
        edit(store, "UPDATE templates SET template = zeroblob(length(template))")
        for command in (("verify", store, "ann", probe), ("identify", store, probe)):
            assert "the template of 'ann' in" in refused("face", *command)
        ran("face", "revoke", store, "ann")
        ran("face", "enroll", store, "ann", probe)

    def test_damaged_settings_of_a_pools_store(self, hardened: Path, folder: Path, refused: Any) -> None:
        edit(hardened, "UPDATE settings SET defense = replace(defense, 'confounders', 'others')")
        enroll = ("face", "enroll", hardened, "bob", folder / "staff.npz", "--name", NAMES[3])
        assert "confounders must be a whole number" in refused(*enroll)

    def test_one_that_another_process_holds(
        self, store: Path, folder: Path, refused: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(TemplateStore.__init__, "__defaults__", (0.01,))
        with closing(sqlite3.connect(store, isolation_level=None)) as other:
            other.execute("BEGIN EXCLUSIVE")
            for command in self.commands(store, folder)[::2]:
                assert "another process holds template store" in refused(*command)


def test_a_command_that_is_killed_keeps_who_was_enrolled(
    hardened: Path, pool: Path, folder: Path, run: Any, ran: Any
) -> None:
    """As if the power was cut: those of earlier parts are there, and those who follow cost the pool nothing twice."""
    code = """
import os, signal, sys
import featveil.pipelines.face_parts.face_templates as tasks, featveil.stores.templates as templates
from featveil.cli import app
templates._BATCH = 2
real, calls = tasks.privatize, 0

def cut(*arguments):
    global calls
    calls += 1
    if calls == 6:
        os.kill(os.getpid(), signal.SIGKILL)
    return real(*arguments)

tasks.privatize = cut
app(sys.argv[1:])
"""
    staff = folder / "staff.npz"
    command = [sys.executable, "-c", code, "face", "enroll", str(hardened), "--everyone", str(staff)]
    killed = subprocess.run(command, capture_output=True, check=False, env={**os.environ, "OMP_NUM_THREADS": "1"})
    assert killed.returncode == -9
    people = ran("face", "info", hardened)["people"]
    assert people == ["P020000", "P020001", "P020002", "P020003"]
    for row, person in enumerate(people):
        probe = run("face", "verify", hardened, person, staff, "--name", NAMES[3 * row + 1], "--json")
        assert (probe.exit_code, json.loads(probe.stdout)["distance"] < 0.6) == (3, True)
    assert Pool(pool).holdings().free == 60 - 5 * 2
    ran("face", "enroll", hardened, "P020004", staff, "--name", NAMES[12])
    assert Pool(pool).holdings().free == 60 - 5 * 2  # it was hidden already, before the power was cut


class TestPools:
    def test_faces_make_a_pool(self, pool: Path, folder: Path, run: Any, ran: Any) -> None:
        info = ran("pool", "info", pool)
        assert info == {
            "pool": str(pool), "kind": KIND, "size": 32, "photographs": 60, "entries": 60, "free": 60
        }  # fmt: skip
        assert f"60 {KIND} descriptors of 60 photographs" in run("pool", "info", pool).stdout
        assert ran("pool", "add", pool, folder / "staff.npz")["entries"] == 105
        assert ran("pool", "add", pool, folder / "staff.npz", folder / "others.npz")["entries"] == 105

    def test_arrays_that_name_no_network(self, folder: Path, ran: Any) -> None:
        np.save(folder / "plain.npy", OTHERS.values)
        assert ran("pool", "create", folder / "plain.pool", folder / "plain.npy")["kind"] == "face"

    def test_what_does_not_go_together(self, pool: Path, folder: Path, image: Path, run: Any, refused: Any) -> None:
        both = "a pool is made of photographs or of face descriptors, not of both"
        create, add = ("pool", "create", folder / "new.pool"), ("pool", "add", pool)
        assert both in refused(*create, folder / "others.npz", image)
        save_faces(replace(OTHERS, model="f" * 64), folder / "theirs.npz")
        told = refused(*create, folder / "others.npz", folder / "theirs.npz")
        assert f"described by different networks: {KIND}, face-ffffffffffff" in told
        np.save(folder / "wide.npy", population(3, 1, 64).values)
        assert "must have shape (any, 32), got (1, 64)" in refused(*add, folder / "wide.npy")
        assert f"the pool is for {KIND} descriptors, " in refused(*add, folder / "theirs.npz")
        assert "there is no file" in refused(*create, folder / "none.npz")
        for wrong in ((image,), (image, folder / "others.npz")):
            assert f"the pool is for {KIND} descriptors: add face descriptors" in refused(*add, *wrong)
        assert run("pool", "create", folder / "sift.pool", image).exit_code == 0
        np.save(folder / "same-size.npy", population(3, 1, 128).values)
        told = refused("pool", "add", folder / "sift.pool", folder / "same-size.npy")
        assert "the pool is for sift descriptors: add photographs" in told


class TestWarnings:
    def test_of_strangers_that_look_like_those_to_hide_among(self, folder: Path, run: Any) -> None:
        shift = np.zeros(D, np.float32)
        shift[0] = 2  # another sort of face: all of them look one way
        values = OTHERS.values + shift
        alike = FaceSet(values / np.linalg.norm(values, axis=1, keepdims=True), OTHERS.names, KIND, {}, {}, MODEL)
        save_faces(alike, folder / "alike.npz")
        told = {}
        for name in ("others", "alike"):
            store = folder / f"{name}.sqlite"
            assert run("face", "create", store, "--among", folder / f"{name}.npz", "--dimension", 4).exit_code == 0
            found = run("face", "calibrate", store, folder / "staff.npz", "--far", 0.02, "--json")
            told[name] = found.stderr, json.loads(found.stdout)["far_of_others"]
        assert "people like those to hide among" in told["alike"][0] and told["alike"][1] > 0.1
        assert told["others"][1] < told["alike"][1]

    def test_of_many_people_who_each_may_accept_a_stranger(self, store: Path, folder: Path, run: Any) -> None:
        staff = folder / "staff.npz"
        for far, warned in ((0.3, True), (0.002, False)):
            assert run("face", "calibrate", store, staff, "--far", far).exit_code == 0
            found = run("face", "identify", store, staff, "--name", NAMES[1], "--json")
            assert json.loads(found.stdout)["expected_false_accepts"] == pytest.approx(far)
            assert ("any stranger is accepted by about" in found.stderr) == warned

    def test_pixels_are_changed_for_a_network_only(self, folder: Path, refused: Any) -> None:
        told = refused("face", "create", folder / "new.sqlite", "--among", folder / "others.npz", "--mean", 127.5)
        assert "--mean and --scale belong to --model" in told

    def test_too_few_faces_to_hide_among(self, folder: Path, refused: Any) -> None:
        save_faces(OTHERS.take(np.arange(2)), folder / "few.npz")
        told = refused("face", "create", folder / "new.sqlite", "--among", folder / "few.npz", "--dimension", 4)
        assert "holds 2 faces: templates of dimension 4 need more" in told
