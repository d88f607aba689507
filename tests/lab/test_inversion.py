"""What attackers see of photographs: what is measured, nothing of it twice, and that pictures mean something."""

import shutil
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from featveil.attacks import attack
from featveil.core import InputError
from featveil.core.records import Record, read_records
from featveil.databases import Database, builtin
from featveil.datasets.board import views
from featveil.defenses import Lifting
from featveil.extractors import extract, read_image
from featveil.lab.inversion import picture_path, run, run_resumable
from featveil.lab.inversion_photos import Photograph, find_photographs, read_photographs
from featveil.lab.inversion_study import Attempt, Settings, Study, make_schemes, make_trials
from featveil.learning.encodings import Encoding
from featveil.metrics.reconstruction import compare
from featveil.pipelines.painters import load_painter
from featveil.pipelines.train_parts.photo_samples import middle
from interruptions import Watched
from networks import random_network
from painters import fed, grey_painter

KEYS = {
    *(("identity", name) for name in ("blank", "chance", "constant", "read", "read + geometry")),
    *(("random-2", "nearest"), ("random-2", "mean")),
    *(("sub-hybrid-2", "nearest"), ("sub-hybrid-2", "database"), ("sub-hybrid-2", "mean")),
    ("subset-8-2", "posterior"),
}


@cache
def photographs(count: int = 30) -> tuple[Photograph, ...]:
    """The middle of the demo's two pictures, with few features."""
    squares = [middle(read_image(path)) for path in views()]
    return tuple(
        Photograph(f"{number}.jpg", square, extract(square, "sift", count), str(number) * 64)
        for number, square in enumerate(squares)
    )


@cache
def own_database() -> Database:
    return Database(builtin("sift").values[:500], "sift", 1)


def study(**changes: Any) -> Study:
    """Two liftings, one subset mechanism and no defense, by a painter of grey."""
    made = Study(
        "drawn",
        photographs(),
        make_schemes("sift", ["sub-hybrid"], [2], [2], [8.0], [2]),
        make_trials(["read", "nearest", "database", "mean", "posterior"]),
        grey_painter(),
        own_database(),
        settings=Settings(max_features=30),
    )
    return replace(made, **changes)


def values(records: list[Record]) -> dict[tuple[str, str | None, str], Any]:
    return {(one.scheme, one.attack, str(one.parameters["victim"])): one.value for one in records}


def test_every_attack_that_applies_and_both_end_points(tmp_path: Path) -> None:
    records = list(run(study(), tmp_path))
    assert {(one.scheme, one.attack) for one in records} == KEYS
    assert len(records) == 2 * len(KEYS) and {one.count for one in records} == {30}
    for one in records:
        victim = photographs()[int(str(one.parameters["victim"])[0])]
        picture = read_image(picture_path(tmp_path, one.scheme, str(one.attack), victim.name))
        assert one.value == tuple(round(value, 6) for value in compare(picture, victim.image))
    words = next(one for one in records if one.scheme == "subset-8-2").parameters
    assert (words["epsilon"], words["image_epsilon"]) == (8, 240)
    raw = next(one for one in records if one.attack == "read").parameters
    assert (raw["median_distance"], raw["answered"], raw["geometry"], raw["part"]) == (0, 1, "positions", "all")
    assert (raw["inverter_name"], raw["inverter"]) == ("grey.onnx", grey_painter().digest[:16])


def test_what_is_there_is_not_measured_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    watched = Watched(monkeypatch, "featveil.lab.inversion.attack", attack)
    whole = run_resumable(study(), tmp_path)
    assert watched.calls == 2 * (len(KEYS) - 1)  # a grey picture is no attack
    path = tmp_path / "records.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(lines[:-3]) + lines[-3][:20])
    seen: list[tuple[int, int]] = []
    again = run_resumable(study(), tmp_path, lambda done, total: seen.append((done, total)))
    assert values(again) == values(whole) == values(list(run(study())))
    assert seen[0] == (19, 22) and seen[-1] == (22, 22) and len(read_records(path)) == 22
    calls = watched.calls
    run_resumable(study(), tmp_path)
    assert watched.calls == calls


def test_other_settings_photographs_and_inverters_do_not_mix(tmp_path: Path) -> None:
    small = {"schemes": make_schemes("sift", [], [], [], [], []), "trials": []}
    run_resumable(study(**small), tmp_path)
    before = (tmp_path / "records.jsonl").read_bytes()
    first, second = photographs()
    changes: list[dict[str, Any]] = [
        {"settings": Settings(max_features=30, geometry="full")},
        {"settings": Settings(max_features=30, part="test")},
        {"painter": grey_painter(name="other.onnx")},
        {"photographs": (replace(first, digest="f" * 64), second)},
        {"database": Database(builtin("sift").values[:400], "sift", 1)},
    ]
    for changed in changes:
        with pytest.raises(InputError, match="was made with"):
            run_resumable(study(**small, **changed), tmp_path)
    assert (tmp_path / "records.jsonl").read_bytes() == before


def reads_scale(painter: Any) -> list[bool]:
    """Of every picture, whether scale, orientation and response were read."""
    return [bool(feed["rows"][:, -5:].any()) for feed in fed(painter)]


def test_geometry_is_read_only_where_it_is_sent() -> None:
    one: dict[str, Any] = {"photographs": photographs()[:1], "trials": make_trials(["nearest"])}
    one["schemes"] = make_schemes("sift", [], [], [2], [], [])
    painter = grey_painter()
    names = [record.attack for record in run(study(painter=painter, **one))]
    assert names == ["blank", "chance", "constant", "read", "read + geometry", "nearest"]
    assert reads_scale(painter) == [False, False, False, True, False]
    painter = grey_painter()
    full = Settings(max_features=30, geometry="full")
    names = [record.attack for record in run(study(painter=painter, settings=full, **one))]
    assert names == ["blank", "chance", "constant", "read", "nearest"] and all(reads_scale(painter))
    plain = grey_painter(Encoding("sift"))
    assert "read + geometry" not in [record.attack for record in run(study(painter=plain, **one))]


def test_direct_inverters_find_their_scheme() -> None:
    schemes = make_schemes("sift", ["sub-hybrid"], [2, 4], [], [8.0], [2])
    specs = {scheme.name: scheme.defense.spec() for scheme in schemes}
    book = str(specs["subset-8-2"]["codebook"])
    subspaces = Encoding("sift", representation="subspaces", count=4)
    lifting = grey_painter(subspaces, specs["sub-hybrid-4"])
    residual = grey_painter(subspaces, specs["sub-hybrid-4"], "b", architecture="uresnet")
    standard = grey_painter(subspaces, specs["sub-hybrid-4"], "d", standardised=True)
    words = grey_painter(Encoding("sift", representation="words", count=2, codebook=book), specs["subset-8-2"], "c")
    made = study(schemes=schemes, trials=[], direct=[lifting, residual, standard, words])
    records = [one for one in run(made) if one.scheme != "identity"]
    assert {(one.scheme, one.attack, one.parameters["inverter_name"]) for one in records} == {
        ("sub-hybrid-4", "direct", "grey.onnx"),
        ("sub-hybrid-4", "direct (uresnet)", "b"),
        ("sub-hybrid-4", "direct (standardised)", "d"),
        ("subset-8-2", "direct", "c"),
    }
    assert fed(words)[0]["rows"].shape == (30, 2 * 128 + 7)


def test_inverters_that_cannot_be_used() -> None:
    other = grey_painter(Encoding("sift", representation="subspaces", count=2), Lifting("random", 3).spec())
    with pytest.raises(InputError, match=r"grey.onnx was trained on random-3, which no scheme here sends"):
        study(direct=[other])
    with pytest.raises(InputError, match="what its card does not say"):
        study(direct=[replace(other, inverter=replace(other.inverter, card={"defense": "lifting"}))])
    foreign = grey_painter(Encoding("superpoint", representation="subspaces", count=2), Lifting("random", 2).spec())
    with pytest.raises(InputError, match="which no scheme here sends"):
        study(schemes=make_schemes("sift", [], [], [2], [], []), direct=[foreign])
    twice = make_schemes("sift", [], [], [2], [], [])[1].defense.spec()
    same = grey_painter(Encoding("sift", representation="subspaces", count=2), twice)
    with pytest.raises(InputError, match="two inverters of one architecture fit random-2"):
        study(direct=[same, same])
    with pytest.raises(InputError, match="--geometry full"):
        study(painter=grey_painter(Encoding("sift", geometry="full")))
    with pytest.raises(InputError, match="reads sift subspaces"):
        study(painter=other)


def test_attacks_are_named_with_what_their_adversary_has() -> None:
    names = [trial.name for trial in make_trials(["lattice+lifting_database", "lattice", "lattice", "chance"])]
    assert names == ["lattice + lifting_database", "lattice"]
    assert make_trials(["posterior + database"])[0].also == ("database",)
    for name, told in {
        "guess": "unknown attack 'guess'",
        "mean+database": "mean makes no use of 'database'",
        "inlier": "another image of the place",
    }.items():
        with pytest.raises(InputError, match=told):
            make_trials([name])


def test_what_takes_too_long_is_left_out() -> None:
    made = study(left_out=frozenset({("sub-hybrid-2", "nearest")}))
    found = {(scheme.name, attempt.name) for _, scheme, attempt in made.wanted()}
    assert found == KEYS - {("sub-hybrid-2", "nearest")}


def test_concealed_descriptors_are_read_and_undone() -> None:
    schemes = make_schemes("sift", [], [], [], [], [], [random_network()])
    made = study(schemes=schemes, trials=make_trials(["read", "unconceal"]), photographs=photographs()[:1])
    found = {str(one.attack): one for one in run(made) if one.scheme != "identity"}
    assert set(found) == {"read", "unconceal"}
    assert found["unconceal"].parameters["median_distance"] < found["read"].parameters["median_distance"]  # type: ignore[operator]


def test_photographs_of_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: Any) -> None:
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        shutil.copy(views()[0], tmp_path / folder / "one.jpg")
    (tmp_path / "b" / "broken.jpg").write_bytes(b"\xff\xd8 no")
    assert list(find_photographs([tmp_path / "a"])) == ["one.jpg"]
    files = find_photographs([tmp_path / "a", tmp_path / "b"])
    assert list(files) == ["a/one.jpg", "b/broken.jpg", "b/one.jpg"]
    made = read_photographs(files, 3, max_features=20)
    assert [(one.name, one.image.shape, len(one.features)) for one in made] == [
        ("a/one.jpg", (256, 256, 3), 20),
        ("b/one.jpg", (256, 256, 3), 20),
    ]
    assert made[0].digest == made[1].digest and "left out b/broken.jpg" in caplog.text
    assert [one.name for one in read_photographs(files, 1, max_features=20)] == ["a/one.jpg"]
    monkeypatch.setattr(
        "featveil.lab.inversion_photos.part_of", lambda content: "test" if len(content) > 99 else "training"
    )
    assert list(find_photographs([tmp_path / "b"], "test")) == ["one.jpg"]
    with pytest.raises(InputError, match="none of these 2 photographs is in the validation part"):
        find_photographs([tmp_path / "b"], "validation")
    with pytest.raises(InputError, match="part must be one of all, training, validation, test"):
        find_photographs([tmp_path / "a"], "tests")
    with pytest.raises(InputError, match="no photograph has a feature"):
        read_photographs({"broken": tmp_path / "b" / "broken.jpg"}, 1)
    (tmp_path / "c" / "a").mkdir(parents=True)
    shutil.copy(views()[0], tmp_path / "c" / "a" / "one.jpg")
    with pytest.raises(InputError, match=r"are both called a/one.jpg"):
        find_photographs([tmp_path / "a", tmp_path / "c" / "a"])


def test_a_study_says_which_geometry() -> None:
    with pytest.raises(InputError, match="geometry must be one of positions, full"):
        Settings(geometry="either")
    assert Attempt("blank").painter is None


def test_the_built_in_inverter_sees_what_raw_descriptors_saw_and_no_random_ones() -> None:
    """Two-sided: recovered descriptors show the photograph, others than the true ones do not."""
    made = study(
        photographs=photographs(1000)[:1],
        schemes=make_schemes("sift", ["sub-hybrid"], [2], [], [], []),
        trials=make_trials(["database"]),
        painter=load_painter(),
        settings=Settings(),
    )
    ssim = {str(one.attack): one.value[1] for one in run(made)}  # type: ignore[index]
    assert ssim["read"] > ssim["blank"] + 0.05
    assert ssim["read + geometry"] > ssim["blank"] + 0.05
    assert ssim["database"] > max(ssim["blank"], ssim["chance"]) + 0.03
    assert ssim["chance"] < ssim["blank"] + 0.05
