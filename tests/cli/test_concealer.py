"""Concealers on the command line: privatize, match, attack, map and localize."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import featveil as fv
from featveil.formats import hloc
from featveil.metrics import pose_errors
from hloc_lists import read_poses, write_pairs
from networks import random_network, write_network
from rooms import Room, RoomFiles

FEW = ("--max-features", 150)
QUICK = ("--set", "unconceal.examples=2000", "--set", "unconceal.features=64", "--set", "unconceal.steps=20")
LIFTING = ("--then", "lifting", "--dimension", 2)
SUBSET = ("--then", "subset", "--epsilon", 30, "--subset-size", 2)


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_network(tmp_path_factory.mktemp("network") / "n.safetensors", random_network(512))


@pytest.fixture
def conceal(ran: Any, network: Path) -> Any:
    """Privatize an image by the concealer."""

    def made(image: Path, *more: object) -> Path:
        out = image.with_suffix(".veil")
        ran("privatize", image, "--out", out, "--defense", "concealer", "--concealer", network, *FEW, *more)
        return out

    return made


def test_what_is_released_and_said(run: Any, image: Path, network: Path, tmp_path: Path) -> None:
    out = tmp_path / "p.veil"
    result = run("privatize", image, "--out", out, "--defense", "concealer", "--concealer", network, *FEW)
    assert result.exit_code == 0, result.output
    private = fv.load(out)
    assert isinstance(private, fv.PrivateFeatures)
    assert private.kind == random_network(512).concealed_kind
    assert f"concealer: network {random_network(512).digest[:12]}, lambda 1.0" in result.stdout
    assert "empirical: judged by known attacks only, nothing is proved" in result.stdout
    assert "a concealer alone: the unconceal attack learns the way back" in " ".join(result.stderr.split())


def test_another_defense_follows(ran: Any, image: Path, network: Path, tmp_path: Path) -> None:
    command = ("privatize", image, "--defense", "concealer", "--concealer", network, *FEW)
    lifted = ran(*command, "--out", tmp_path / "l.veil", *LIFTING, "--strategy", "adversarial")
    assert lifted["defense"]["then"] == "lifting" and lifted["defense"]["dimension"] == 2
    words = ran(*command, "--out", tmp_path / "w.veil", "--then", "subset", "--epsilon", 8, "--subset-size", 4)
    assert words["guarantee"]["kind"] == "local-dp" and words["guarantee"]["image_epsilon"] == 8 * 150
    assert "a blind guess at the true word" in words["known_attacks"] and words["weaknesses"] == []
    metric = ran(*command, "--out", tmp_path / "m.veil", "--then", "metric", "--epsilon", 20)
    assert metric["guarantee"]["kind"] == "metric-dp"


def test_a_release_is_kept_and_not_mixed(run: Any, ran: Any, refused: Any, image: Path, network: Path) -> None:
    out = image.with_suffix(".veil")
    command = ("privatize", image, "--out", out, "--defense", "concealer", "--concealer", network, *FEW)
    ran(*command)
    assert ran(*command, "--resume")["skipped"] == 1
    assert "was made with other settings" in refused(*command, "--resume", *LIFTING)
    assert "was made with other settings" in refused("privatize", image, "--out", out, "--resume", *FEW)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--dimension", 4), "--dimension does not belong to concealer: name the defense it is for with --then"),
        (("--codebook", "x"), "--database does not belong to concealer"),
        (("--then", "naive", "--epsilon", 1), "after a concealer come lifting, subset, metric, got --then 'naive'"),
        (("--then", "subset"), "subset needs --epsilon"),
        (("--then", "lifting", "--epsilon", 1), "--epsilon does not belong to lifting"),
        (("--strict",), "refused, as this is known to be broken: a concealer alone"),
    ],
)
def test_options_that_do_not_fit(
    refused: Any, image: Path, network: Path, options: tuple[object, ...], message: str
) -> None:
    command = ("privatize", image, "--out", image.with_suffix(".veil"), "--defense", "concealer")
    assert message in refused(*command, "--concealer", network, *options)


def test_networks_that_do_not_fit(refused: Any, image: Path, network: Path, tmp_path: Path) -> None:
    command = ("privatize", image, "--out", image.with_suffix(".veil"))
    concealer = (*command, "--defense", "concealer", "--concealer")
    assert "conceals sift descriptors, the features are rootsift" in refused(*concealer, network, "--kind", "rootsift")
    assert "there is no network file" in refused(*concealer, tmp_path / "no")
    (tmp_path / "other.safetensors").write_bytes(b"x" * 100)
    assert "not a usable concealing network" in refused(*concealer, tmp_path / "other.safetensors")
    assert "--concealer does not belong to lifting" in refused(*command, "--concealer", network)
    assert "no built-in concealer for rootsift" in refused(*command, "--defense", "concealer", "--kind", "rootsift")


@pytest.mark.parametrize("more", [(), LIFTING, SUBSET])
def test_matching_with_a_raw_image(
    ran: Any, refused: Any, conceal: Any, image: Path, shifted: Path, network: Path, more: tuple[object, ...]
) -> None:
    private = conceal(image, *more)
    assert "conceal the raw side too, by naming the network (--concealer FILE" in refused("match", private, shifted)
    shown = ran("match", private, shifted, "--concealer", network, *FEW)
    assert shown["inliers"] > (20 if more == SUBSET else 40)
    both = ran("match", private, conceal(shifted, *more), *(("--concealer", network) if more == SUBSET else ()))
    assert both["inliers"] > (5 if more == SUBSET else 40)


def test_matching_of_many_and_of_two_networks(
    ran: Any, refused: Any, conceal: Any, image: Path, shifted: Path, network: Path, tmp_path: Path
) -> None:
    private = conceal(image)
    hloc.write_features(tmp_path / "raw.h5", [("b.png", fv.extract(shifted, max_features=150))])
    write_pairs(tmp_path / "pairs.txt", [("a", "b.png")])
    many = ("match", private, tmp_path / "raw.h5", tmp_path / "pairs.txt", "--out", tmp_path / "m.h5")
    assert ran(*many, "--concealer", network)["matches"] > 40
    other = write_network(tmp_path / "other.safetensors", random_network(seed=5))
    assert "neither side was concealed by network" in refused("match", private, shifted, "--concealer", other)


def test_the_built_in_network_is_found_by_itself(
    ran: Any, conceal: Any, image: Path, shifted: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    private = conceal(image)
    monkeypatch.setattr("featveil.defenses.has_builtin_concealer", lambda kind: True)
    monkeypatch.setattr("featveil.defenses.builtin_concealer", lambda kind: random_network(512))
    assert ran("match", private, shifted, *FEW)["inliers"] > 40


def test_attacks_score_the_raw_descriptor(
    run: Any, ran: Any, conceal: Any, image: Path, network: Path, tmp_path: Path
) -> None:
    private = conceal(image)
    fv.save(fv.extract(image, max_features=150), tmp_path / "raw.veil")
    scored = ("--truth", tmp_path / "raw.veil", "--concealer", network, "--sample", 30)
    shown = ran("attack", private, "--with", "unconceal,read", *scored, *QUICK, "--out", tmp_path / "out")
    rows = {row["attack"]: row for row in shown["rows"]}
    assert rows["unconceal"]["below_near"] == 1 and rows["unconceal"]["below_close"] > 0.5
    assert rows["read"]["below_near"] == rows["chance"]["below_near"] == 0
    assert rows["unconceal"]["scheme"] == "concealer-1" and rows["unconceal"]["knows"] == ["database", "network"]
    assert any("of the concealed descriptors 100.0% are guessed to 0.5, 100.0% exactly" in n for n in shown["notes"])
    everything = run("attack", private, "--with", "all", *scored[:2], "--sample", 5)
    assert everything.exit_code == 0, everything.output
    assert "without --concealer" in " ".join(everything.stdout.split())


def test_attacks_behind_a_concealer(ran: Any, conceal: Any, image: Path, network: Path, tmp_path: Path) -> None:
    private = conceal(image, *LIFTING)
    known = ("--concealer", network, "--sample", 10)
    shown = ran("attack", private, "--with", "database,nearest", "--truth", image, *known, "--out", tmp_path / "o")
    rows = {row["attack"]: row for row in shown["rows"]}
    assert rows["database"]["knows"] == ["lifting_database", "network", "database"]
    assert rows["database"]["scheme"] == "concealer-1-sub-hybrid-2"
    guessed = ran("attack", private, "--with", "nearest", *known, "--out", tmp_path / "g")
    with np.load(guessed["written"][0], allow_pickle=False) as written:
        assert written["released"].shape == written["values"].shape == (10, 128)


def test_a_map_and_a_query(ran: Any, room: Room, files: RoomFiles, network: Path, tmp_path: Path) -> None:
    out = tmp_path / "map"
    hiding = ("--defense", "concealer", "--concealer", network)
    shown = ran("map", files.raw, "--out", out, *hiding, "--cameras", files.cameras)
    assert shown["private"] and shown["registered_images"] == 6
    query = room.names[2]
    known = ("--cameras", files.cameras, "--concealer", network)
    for model, features in ((room.model, files.raw), (out, None)):
        path = tmp_path / f"{query}.veil"
        fv.save(fv.privatize(room.features[query], fv.Concealer(random_network(512))), path)
        beside = () if features is None else ("--features", features)
        ran("localize", path, "--model", model, "--out", tmp_path / "p.txt", *beside, *known)
        turned, _ = pose_errors(read_poses(tmp_path / "p.txt")[query], room.map.poses[query])
        assert turned < 1.5 or features is None  # another map has its own axes


def test_words_behind_a_concealer_in_a_raw_map(
    ran: Any, room: Room, files: RoomFiles, network: Path, tmp_path: Path
) -> None:
    query, path = room.names[2], tmp_path / f"{room.names[2]}.veil"
    defense = fv.Concealer(random_network(512), fv.Subset(30.0, 1))
    fv.save(fv.privatize(room.features[query], defense), path)
    known = ("--cameras", files.cameras, "--concealer", network, "--features", files.raw, "--iterations", 20_000)
    shown = ran("localize", path, "--model", room.model, "--out", tmp_path / "p.txt", *known)
    assert shown["localized"] == 1


def test_help_names_it(run: Any) -> None:
    shown = run("attack", "--list", "--json")
    assert json.loads(shown.stdout)["knowledge"]["network"] == "the concealing network, which is in every client"
