"""featveil privatize into one private file for all images."""

import json
from pathlib import Path
from typing import Any

import h5py
import pytest

import featveil as fv
from colmap_databases import tables, write_database
from featveil.formats import colmap_database, hloc, private_hloc, veil
from interruptions import Watched

NAMES = ["db/1.jpg", "db/2.jpg", "db/3.jpg", "q/4.jpg", "q/5.jpg"]
N = 6  # features of an image
SOUND = ("--defense", "subset", "--epsilon", 2)


@pytest.fixture
def colmap(tmp_path: Path) -> Path:
    """Five images."""
    write_database(tmp_path / "database.db", {name: tables(N, seed) for seed, name in enumerate(NAMES)})
    return tmp_path / "database.db"


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "private.h5"


@pytest.fixture
def ledger(tmp_path: Path) -> fv.Ledger:
    """A budget for three images and a half."""
    budgets = fv.Ledger(tmp_path / "ledger.sqlite")
    budgets.set_budget("ann", 3.5 * N * 2)
    return budgets


def account(ledger: fv.Ledger) -> tuple[object, ...]:
    return ("--ledger", ledger.path, "--subject", "ann")


def releases(path: Path) -> dict[str, bytes]:
    return {name: veil.encode(private_hloc.read(path, name)) for name in private_hloc.names(path)}


def labels(ledger: fv.Ledger) -> list[str]:
    """What was charged, in that order."""
    return [entry.label for entry in ledger.history("ann") if entry.event == "release"]


def stop_at(monkeypatch: pytest.MonkeyPatch, call: int) -> None:
    """Ctrl-C while the release number `call`, from 1, is made."""
    Watched(monkeypatch, "featveil.defenses.privatize", fv.privatize, call)


def test_one_file_for_all(run: Any, colmap: Path, out: Path) -> None:
    result = run("privatize", colmap, "--out", out, *SOUND, "--json")
    assert result.exit_code == 0, result.output
    shown = json.loads(result.stdout)
    assert (shown["out"], shown["written"], shown["features"]) == (str(out), 5, 5 * N)
    assert private_hloc.is_private(out) and private_hloc.names(out) == hloc.names(out) == NAMES
    assert shown["bytes"] == sum(map(len, releases(out).values()))
    for name in NAMES:
        private, raw = private_hloc.read(out, name), colmap_database.read(colmap, name)
        assert private.defense == shown["defense"] and private.keypoints is not None and raw.keypoints is not None
        assert sorted(private.keypoints.xy.tolist()) == sorted(raw.keypoints.xy.tolist())
    assert sorted(path.name for path in out.parent.iterdir()) == [colmap.name, out.name]


def test_no_descriptor_is_in_the_file(run: Any, colmap: Path, out: Path) -> None:
    """Neither a dataset of that name nor the bytes of one."""
    assert run("privatize", colmap, "--out", out, *SOUND).exit_code == 0
    members: set[str] = set()
    with h5py.File(out, "r") as file:
        file.visit(lambda name: members.add(name.rpartition("/")[2]))
    assert members & {"descriptors", "scores", "scales", "oris"} == set()
    assert members >= {"keypoints", "veil", "image_size"}
    content = out.read_bytes()
    for seed, name in enumerate(NAMES):
        for row in (*tables(N, seed)[1], *colmap_database.read(colmap, name).descriptors.values):
            assert row.tobytes() not in content


def test_images_and_veil_files_go_in_under_their_names(run: Any, image: Path, tmp_path: Path, out: Path) -> None:
    (tmp_path / "raw" / "deep").mkdir(parents=True)
    fv.save(fv.extract(image, max_features=20), tmp_path / "raw" / "deep" / "b.jpg.veil")
    command = ("privatize", image, tmp_path / "raw", "--out", out, *SOUND, "--max-features", 20)
    assert run(*command).exit_code == 0
    assert private_hloc.names(out) == ["a.png", "deep/b.jpg"]


def test_what_is_there_is_kept_or_replaced_as_asked(run: Any, refused: Any, colmap: Path, out: Path) -> None:
    few = out.with_name("few.db")
    write_database(few, {name: tables(N, 9) for name in (NAMES[1], "new.jpg")})
    assert run("privatize", colmap, "--out", out, *SOUND).exit_code == 0
    before = releases(out)
    command = ("privatize", few, "--out", out, *SOUND)
    assert "'db/2.jpg' in " in (said := refused(*command)) and "exists: --resume keeps it" in said
    result = run(*command, "--resume", "--json")
    assert (json.loads(result.stdout)["written"], json.loads(result.stdout)["skipped"]) == (1, 1)
    resumed = releases(out)
    assert sorted(resumed) == [*NAMES[:3], "new.jpg", *NAMES[3:]]
    assert {name: resumed[name] for name in NAMES} == before
    assert run(*command, "--overwrite").exit_code == 0
    after = releases(out)
    assert {name for name in after if after[name] != resumed[name]} == {"db/2.jpg", "new.jpg"}
    assert before["db/2.jpg"][-30:] not in out.read_bytes()


def test_resuming_with_other_settings_is_refused(run: Any, refused: Any, colmap: Path, out: Path) -> None:
    assert run("privatize", colmap, "--out", out, *SOUND).exit_code == 0
    command = ("privatize", colmap, "--out", out, "--resume")
    assert run(*command, *SOUND).exit_code == 0
    for other in (("--defense", "subset", "--epsilon", 3), ()):
        assert "was made with other settings" in refused(*command, *other)


def test_names_that_collide(run: Any, refused: Any, image: Path, tmp_path: Path, out: Path) -> None:
    write_database(tmp_path / "nested.db", {"a": tables(N), "a/b": tables(N)})
    assert "inside the features of another" in refused("privatize", tmp_path / "nested.db", "--out", out, *SOUND)
    write_database(tmp_path / "one.db", {"a": tables(N)})
    fv.save(fv.extract(image, max_features=20), tmp_path / "a.veil")
    both = ("privatize", tmp_path / "one.db", tmp_path / "a.veil")
    assert "two inputs would have one name" in refused(*both, "--out", out, *SOUND)
    assert run(*both[:2], "--out", out, *SOUND).exit_code == 0
    write_database(tmp_path / "below.db", {"a/b": tables(N)})
    assert "inside the features of another" in refused("privatize", tmp_path / "below.db", "--out", out, *SOUND)


def test_files_that_are_not_for_this(run: Any, refused: Any, colmap: Path, image: Path, out: Path) -> None:
    raw = out.with_name("raw.h5")
    hloc.write_features(raw, [("a", fv.extract(image, "rootsift", 20))])
    assert "is an input" in refused("privatize", raw, "--out", raw, *SOUND, "--overwrite")
    assert "does not hold private features" in refused("privatize", colmap, "--out", raw, *SOUND)
    out.write_text("text")
    assert "not an HDF5 file" in refused("privatize", colmap, "--out", out, *SOUND, "--overwrite")
    assert "create it first" in refused("privatize", colmap, "--out", out.with_name("no") / "x.h5", *SOUND)
    out.unlink()
    assert run("privatize", colmap, "--out", out, *SOUND).exit_code == 0
    assert "private already" in refused("privatize", out, "--out", out.with_name("again.h5"), *SOUND)
    out.with_name("folder.h5").mkdir()
    assert run("privatize", colmap, "--out", out.with_name("folder.h5"), *SOUND).exit_code == 0
    assert (out.with_name("folder.h5") / "q" / "4.jpg.veil").is_file()


def test_failures_are_left_out(run: Any, tmp_path: Path, out: Path) -> None:
    """Also of one without keypoints, which the file needs; nothing is made when all fail."""
    good = fv.Features(fv.Points(tables(N)[1]), "rootsift", fv.Keypoints(tables(N)[0][:, :2]))
    (tmp_path / "in").mkdir()
    fv.save(fv.Features(good.descriptors, "rootsift"), tmp_path / "in" / "bare.veil")
    (tmp_path / "in" / "cut.veil").write_bytes(b"")
    result = run("privatize", tmp_path / "in", "--out", out, *SOUND)
    assert result.exit_code == 2 and "none of the 2 inputs" in result.stderr
    assert not out.exists()
    fv.save(good, tmp_path / "in" / "good.veil")
    result = run("privatize", tmp_path / "in", "--out", out, *SOUND, "--json")
    assert result.exit_code == 1, result.output
    assert (json.loads(result.stdout)["written"], json.loads(result.stdout)["failed"]) == (1, 2)
    assert "bare.veil" in result.stderr and "no keypoints" in result.stderr and "cut.veil" in result.stderr
    assert private_hloc.names(out) == ["good"]


@pytest.mark.parametrize("batch", [1, 2, 16])
def test_a_budget_that_ends_in_the_middle(
    run: Any, colmap: Path, out: Path, ledger: fv.Ledger, monkeypatch: pytest.MonkeyPatch, batch: int
) -> None:
    monkeypatch.setattr("featveil.pipelines.privatize_parts.outputs._BATCH", batch)
    result = run("privatize", colmap, "--out", out, *SOUND, *account(ledger), "--json")
    assert result.exit_code == 1, result.output
    shown = json.loads(result.stdout)
    assert (shown["written"], shown["failed"], shown["budget_left"]) == (3, 2, N)
    assert "q/4.jpg: this release costs 'ann'" in result.stderr
    assert private_hloc.names(out) == labels(ledger) == NAMES[:3]


def test_what_is_refused_or_kept_is_not_charged(
    run: Any, refused: Any, colmap: Path, out: Path, ledger: fv.Ledger
) -> None:
    bare = out.with_name("bare.veil")
    fv.save(fv.Features(fv.Points(tables(N)[1]), "rootsift"), bare)
    assert "no keypoints" in refused("privatize", bare, "--out", out, *SOUND, *account(ledger))
    assert labels(ledger) == []
    ledger.set_budget("ann", 99 * N)
    command = ("privatize", colmap, "--out", out, *SOUND, *account(ledger), "--resume")
    for _ in range(2):
        assert run(*command).exit_code == 0
    assert labels(ledger) == NAMES


def test_a_file_that_cannot_be_written_says_what_was_charged(
    run: Any, colmap: Path, out: Path, ledger: fv.Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = Path.replace

    def full(self: Path, target: Path) -> Path:
        if Path(target) == out:
            raise OSError(28, "No space left on device")
        return real(self, target)

    monkeypatch.setattr(Path, "replace", full)
    result = run("privatize", colmap, "--out", out, *SOUND, *account(ledger))
    assert result.exit_code == 2
    assert "No space left on device (the ledger was charged for 3 that were not released)" in result.stderr
    assert len(labels(ledger)) == 3 and not out.exists()
    assert "ledger" not in run("privatize", colmap, "--out", out, *SOUND).stderr


@pytest.mark.parametrize(("batch", "call"), [(16, 4), (2, 4), (2, 3), (16, 1)])
def test_ctrl_c_keeps_what_was_made(
    run: Any, colmap: Path, out: Path, ledger: fv.Ledger, monkeypatch: pytest.MonkeyPatch, batch: int, call: int
) -> None:
    """All that was charged is in the file, nothing else is beside it, and --resume does the rest."""
    monkeypatch.setattr("featveil.pipelines.privatize_parts.outputs._BATCH", batch)
    ledger.set_budget("ann", 99 * N)
    command = ("privatize", colmap, "--out", out, *SOUND, *account(ledger))
    with monkeypatch.context() as interrupted:
        stop_at(interrupted, call)
        result = run(*command)
    assert result.exit_code == 130 and "Traceback" not in result.output, result.output
    done = private_hloc.names(out) if out.exists() else []
    assert done == labels(ledger) == NAMES[: call - 1]
    assert {path.name for path in out.parent.iterdir()} - {out.name} == {colmap.name, ledger.path.name}
    result = run(*command, "--resume", "--json")
    assert (json.loads(result.stdout)["written"], json.loads(result.stdout)["skipped"]) == (6 - call, call - 1)
    assert private_hloc.names(out) == labels(ledger) == NAMES


def test_ctrl_c_while_the_file_is_written_leaves_the_old_one(
    run: Any, colmap: Path, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_database(out.with_name("first.db"), {"first.jpg": tables(N)})
    assert run("privatize", out.with_name("first.db"), "--out", out, *SOUND).exit_code == 0
    before = {path: path.read_bytes() for path in out.parent.iterdir()}

    def stop(*ignored: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("featveil.formats.private_hloc._copy", stop)
    assert run("privatize", colmap, "--out", out, *SOUND).exit_code == 130
    assert {path: path.read_bytes() for path in out.parent.iterdir()} == before


def test_only_images_whose_names_fit(run: Any, refused: Any, colmap: Path, out: Path) -> None:
    assert run("privatize", colmap, "--out", out, *SOUND, "--only", "q/*").exit_code == 0
    assert list(releases(out)) == NAMES[3:]
    assert "none of the 5 names fits 'x*'" in refused("privatize", colmap, "--out", out, *SOUND, "--only", "x*")
