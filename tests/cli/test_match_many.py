"""featveil match of many images, into hloc's matches.h5 or a COLMAP database."""

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

import featveil as fv
from colmap_databases import connected, tables, write_database
from featveil.formats import hloc, hloc_matches, private_hloc
from featveil.geometry.match_database import matched_pairs, stored_images
from hloc_lists import write_pairs
from interruptions import Watched
from rooms import Room, RoomFiles


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "matches.h5"


@pytest.fixture
def database(tmp_path: Path) -> Path:
    return tmp_path / "matches.db"


@pytest.fixture
def pairs(tmp_path: Path, room: Room) -> Path:
    """Five pairs, the second the wrong way round."""
    listed = [(room.names[0], name) for name in room.names[1:]]
    write_pairs(tmp_path / "pairs.txt", [listed[0], listed[1][::-1], *listed[2:]])
    return tmp_path / "pairs.txt"


@pytest.fixture
def halves(tmp_path: Path, room: Room, files: RoomFiles) -> tuple[Path, Path]:
    """Lifted features of the first three views in one file, raw ones of the others in another."""
    queries, references = tmp_path / "queries.h5", tmp_path / "references.h5"
    private_hloc.write(queries, [(name, private_hloc.read(files.lifted, name)) for name in room.names[:3]])
    hloc.write_features(references, [(name, room.features[name]) for name in room.names[3:]])
    return queries, references


def stop_at(monkeypatch: pytest.MonkeyPatch, call: int) -> None:
    """Ctrl-C when pair number `call`, from 1, is matched."""
    Watched(monkeypatch, "featveil.matching.match", fv.match, call)


def test_the_layout_of_hloc(ran: Any, room: Room, files: RoomFiles, pairs: Path, out: Path) -> None:
    shown = ran("match", files.lifted, files.lifted, pairs, "--out", out)
    assert (shown["pairs"], shown["skipped"], shown["dropped"], shown["without_matches"]) == (5, 0, 0, 0)
    written = 0
    with h5py.File(out, "r") as file:
        assert sorted(file) == [room.names[0], room.names[2]]
        listed = [(room.names[2], room.names[0]), *((room.names[0], room.names[other]) for other in (1, 3, 4, 5))]
        for one, two in listed:
            group = file[one][two]
            matches, scores = group["matches0"][()], group["matching_scores0"][()]
            assert matches.dtype == np.int32 and matches.shape == scores.shape == (500,)
            assert ((scores > 0) == (matches >= 0)).all() and -1 <= matches.min() <= matches.max() < 500
            expected = fv.match(private_hloc.read(files.lifted, one), private_hloc.read(files.lifted, two))
            assert (matches[expected.indices[:, 0]] == expected.indices[:, 1]).all()
            written += int((matches >= 0).sum())
    assert shown["matches"] == written > 500


def test_every_pair_without_a_list(
    ran: Any, room: Room, files: RoomFiles, halves: tuple[Path, Path], out: Path
) -> None:
    """Of one file each pair once; of two files an image of each."""
    assert ran("match", files.raw, files.raw, "--out", out, "--ratio", 0.8)["pairs"] == 15
    assert len(hloc_matches.pairs_in(out)) == 15
    other = out.with_name("other.h5")
    assert ran("match", *halves, "--out", other)["pairs"] == 9
    assert set(hloc_matches.pairs_in(other)) == {(one, two) for one in room.names[:3] for two in room.names[3:]}


def test_a_pair_is_turned_to_the_files_that_hold_it(
    ran: Any, room: Room, halves: tuple[Path, Path], out: Path, tmp_path: Path
) -> None:
    write_pairs(tmp_path / "turned.txt", [(room.names[4], room.names[1]), (room.names[0], room.names[5])])
    ran("match", *halves, tmp_path / "turned.txt", "--out", out)
    assert set(hloc_matches.pairs_in(out)) == {(room.names[1], room.names[4]), (room.names[0], room.names[5])}


def test_a_database_for_colmap(ran: Any, room: Room, files: RoomFiles, pairs: Path, database: Path) -> None:
    shown = ran("match", files.lifted, files.lifted, pairs, "--out", database)
    assert shown["pairs"] == 5 and len(matched_pairs(database)) == 10
    assert stored_images(database) == set(room.names)
    with connected(database) as connection:
        assert connection.execute("SELECT count(*) FROM descriptors").fetchone() == (0,)
        assert connection.execute("SELECT sum(rows) FROM matches").fetchone() == (shown["matches"],)
        assert connection.execute("SELECT count(*), sum(rows) FROM keypoints").fetchone() == (6, 3000)


@pytest.mark.parametrize("ending", ["h5", "db"])
def test_words_have_more_candidates_than_hloc_takes(
    run: Any, files: RoomFiles, pairs: Path, tmp_path: Path, ending: str
) -> None:
    result = run("match", files.words, files.words, pairs, "--out", tmp_path / f"m.{ending}", "--json")
    assert result.exit_code == 0, result.output
    shown = json.loads(result.stdout)
    assert (shown["dropped"] > 0) == ("do not fit hloc's file" in result.stderr) == (ending == "h5")
    if ending == "db":
        with connected(tmp_path / "m.db") as connection:
            assert connection.execute("SELECT sum(rows) FROM matches").fetchone() == (shown["matches"],)


@pytest.mark.parametrize("ending", ["h5", "db"])
def test_what_is_there_is_kept_unless_asked(
    run: Any, ran: Any, files: RoomFiles, pairs: Path, tmp_path: Path, ending: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = ("match", files.lifted, files.lifted, "--out", tmp_path / f"m.{ending}")
    assert run(*command, pairs).exit_code == 0
    with monkeypatch.context() as counted:
        stop_at(counted, 11)  # which it does not come to
        result = run(*command)
        assert result.exit_code == 0 and "of 10 pairs written" in result.stdout, result.output
        assert "5 pairs there already and kept" in result.stdout
    with monkeypatch.context() as counted:
        stop_at(counted, 1)
        assert run(*command).exit_code == 0
        assert run(*command, "--overwrite").exit_code == 130
    assert ran(*command, "--overwrite")["skipped"] == 0


@pytest.mark.parametrize("ending", ["h5", "db"])
def test_ctrl_c_in_the_middle(
    run: Any, ran: Any, files: RoomFiles, pairs: Path, tmp_path: Path, ending: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whole batches are there, nothing else, and the same command does the rest."""
    monkeypatch.setattr("featveil.pipelines.match_parts.match_many._BATCH", 2)
    out = tmp_path / f"m.{ending}"
    command = ("match", files.lifted, files.lifted, pairs, "--out", out)
    with monkeypatch.context() as interrupted:
        stop_at(interrupted, 4)
        result = run(*command)
    assert result.exit_code == 130 and "Traceback" not in result.output
    assert {path.name for path in tmp_path.iterdir()} == {pairs.name, out.name}
    done = len(hloc_matches.pairs_in(out)) if ending == "h5" else len(matched_pairs(out)) // 2
    assert done == 2
    assert ran(*command)["skipped"] == 2


def test_pairs_of_unknown_images(
    refused: Any, room: Room, files: RoomFiles, halves: tuple[Path, Path], out: Path, tmp_path: Path
) -> None:
    wrong = tmp_path / "wrong.txt"
    write_pairs(wrong, [(room.names[0], "old/view01.png")])
    assert "names image 'old/view01.png', which is not in" in refused(
        "match", files.raw, files.raw, wrong, "--out", out
    )
    write_pairs(wrong, [(room.names[0], room.names[1])])
    assert "which is on one side only of" in refused("match", *halves, wrong, "--out", out)
    wrong.write_text("# nothing\n")
    assert "names no pairs" in refused("match", files.raw, files.raw, wrong, "--out", out)
    assert "does not exist" in refused("match", files.raw, files.raw, tmp_path / "no.txt", "--out", out)


def test_images_of_both_files(
    refused: Any, room: Room, files: RoomFiles, pairs: Path, out: Path, database: Path
) -> None:
    """One of them would have two sets of features in one file."""
    write_pairs(pairs, [(room.names[0], room.names[1]), (room.names[1], room.names[2])])
    for target in (out, database):
        for listed in ([], [pairs]):
            said = refused("match", files.lifted, files.raw, *listed, "--out", target)
            assert "is used from both" in said and "give one file twice" in said


def test_names_that_are_one_in_hloc(ran: Any, refused: Any, room: Room, out: Path, tmp_path: Path) -> None:
    """Also when pairs are matched again."""
    source = tmp_path / "names.h5"
    one, two, three = (room.features[name] for name in room.names[:3])
    hloc.write_features(source, [("a/b", one), ("a-b", two), ("c", three)])
    for more in ((), ("--overwrite",)):
        assert "are the same in a matches file of hloc" in refused("match", source, source, "--out", out, *more)
    ran("match", source, source, "--out", tmp_path / "m.db")
    assert stored_images(tmp_path / "m.db") == {"a/b", "a-b", "c"}


def test_databases_as_inputs(ran: Any, refused: Any, out: Path, tmp_path: Path) -> None:
    write_database(tmp_path / "a.db", {"a": tables(30), "b": tables(30, 1)})
    assert ran("match", tmp_path / "a.db", tmp_path / "a.db", "--out", out)["pairs"] == 1
    write_database(tmp_path / "empty.db", {})
    assert "image" in refused("match", tmp_path / "empty.db", tmp_path / "a.db", "--out", out)
    write_database(tmp_path / "short.db", {"c": tables(30, size=64)})
    said = refused("match", tmp_path / "a.db", tmp_path / "short.db", "--out", out)
    assert "128" in said and "64" in said


def test_a_database_of_other_keypoints(
    run: Any, ran: Any, refused: Any, room: Room, files: RoomFiles, database: Path
) -> None:
    fewer = database.with_name("fewer.h5")
    hloc.write_features(fewer, [(name, room.features[name].take(np.arange(400))) for name in room.names[:2]])
    ran("match", fewer, fewer, "--out", database)
    result = run("match", files.raw, files.raw, "--out", database)
    assert result.exit_code == 2 and "are not those in the database" in result.stderr
    assert len(matched_pairs(database)) == 2


def test_outputs(refused: Any, files: RoomFiles, pairs: Path, image: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy.h5"
    shutil.copy(files.raw, copy)
    both = ("match", copy, copy, pairs)
    assert "name it with --out" in refused(*both)
    assert "name it with --out" in refused(*both, "--out", tmp_path / "m.npz")
    assert "is an input" in refused(*both, "--out", copy)
    assert "create it first" in refused(*both, "--out", tmp_path / "no" / "m.h5")
    features = tmp_path / "features.h5"
    shutil.copy(files.lifted, features)
    assert "holds features" in refused(*both, "--out", features)
    (tmp_path / "text.db").write_text("no")
    assert "text.db" in refused(*both, "--out", tmp_path / "text.db")
    assert "for two images" in refused(*both, "--out", tmp_path / "m.h5", "--picture", tmp_path / "m.png")
    assert "--overwrite is for features of many" in refused("match", image, image, "--overwrite")


def test_kinds_and_words_that_cannot_be_compared(
    refused: Any, files: RoomFiles, halves: tuple[Path, Path], out: Path
) -> None:
    assert "sift, not rootsift" in refused("match", files.raw, files.raw, "--out", out, "--kind", "rootsift")
    words = out.with_name("words.h5")
    shutil.copy(files.words, words)
    assert "not with subspaces" in refused("match", halves[0], words, _one_pair(out), "--out", out)
    assert "have no mutual, ratio" in refused("match", words, words, "--out", out, "--ratio", 0.8)


def _one_pair(out: Path) -> Path:
    write_pairs(out.with_name("one.txt"), [("view00.png", "view04.png")])
    return out.with_name("one.txt")


def test_only_the_database_needs_pycolmap(
    ran: Any, refused: Any, files: RoomFiles, pairs: Path, out: Path, database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("featveil.geometry.colmap._loaded", None)
    monkeypatch.setitem(sys.modules, "pycolmap", None)
    assert "pip install 'featveil[colmap]'" in refused("match", files.raw, files.raw, pairs, "--out", database)
    assert ran("match", files.raw, files.raw, pairs, "--out", out)["pairs"] == 5


def test_matches_of_features_that_were_released_anew(ran: Any, refused: Any, files: RoomFiles, tmp_path: Path) -> None:
    """Numbers of features that are gone would be taken for those that came."""
    out, private = tmp_path / "matches.h5", tmp_path / "private.h5"
    release = ("privatize", files.raw, "--out", private, "--dimension", 2)
    ran(*release)
    ran("match", private, private, "--out", out)
    ran(*release, "--max-features", 50, "--overwrite")
    assert "matches of other features" in refused("match", private, private, "--out", out)
    assert ran("match", private, private, "--out", out, "--overwrite")["pairs"] == 15
