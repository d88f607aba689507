"""What attackers see of photographs: what is measured, nothing twice, that pictures mean something; its tables."""

import shutil
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest

from featveil.attacks import attack
from featveil.core import InputError
from featveil.core.records import Parameter, Record, read_records
from featveil.core.resuming import Report
from featveil.databases import Database, builtin
from featveil.datasets.board import views
from featveil.defenses import Lifting
from featveil.extractors import extract, read_image
from featveil.lab.bench import headings_and_cells
from featveil.lab.inversion import (
    BENCH,
    Attempt,
    Experiment,
    Settings,
    make_schemes,
    make_trials,
    picture_path,
    study,
)
from featveil.lab.inversion_parts.inversion_photos import Photograph, find_photographs, read_photographs
from featveil.lab.inversion_parts.inversion_report import COLUMNS, Seen, best_inversions, draw, draw_grid, grid_columns
from featveil.lab.papers import LDP_FEAT, LIFTING
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


def experiment(**changes: Any) -> Experiment:
    """Two liftings, one subset mechanism and no defense, by a painter of grey."""
    usual = Experiment(
        "drawn",
        photographs(),
        make_schemes("sift", ["sub-hybrid"], [2], [2], [8.0], [2]),
        make_trials(["read", "nearest", "database", "mean", "posterior"]),
        grey_painter(),
        own_database(),
        settings=Settings(max_features=30),
    )
    return replace(usual, **changes)


def run(given: Experiment, pictures: Path | None = None) -> Iterator[Record]:
    return BENCH.measured(study(given, pictures))


def resumed(given: Experiment, folder: Path, report: Report = lambda done, total: None) -> list[Record]:
    return BENCH.resume(study(given, folder / "pictures"), folder / "records.jsonl", report)


def values(records: list[Record]) -> dict[tuple[str, str | None, str], Any]:
    return {(one.scheme, one.attack, str(one.parameters["victim"])): one.value for one in records}


def test_every_attack_that_applies_and_both_end_points(tmp_path: Path) -> None:
    records = list(run(experiment(), tmp_path))
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
    whole = resumed(experiment(), tmp_path)
    assert watched.calls == 2 * (len(KEYS) - 1)  # a grey picture is no attack
    path = tmp_path / "records.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(lines[:-3]) + lines[-3][:20])
    seen: list[tuple[int, int]] = []
    again = resumed(experiment(), tmp_path, lambda done, total: seen.append((done, total)))
    assert values(again) == values(whole) == values(list(run(experiment())))
    assert seen[0] == (19, 22) and seen[-1] == (22, 22) and len(read_records(path)) == 22
    calls = watched.calls
    resumed(experiment(), tmp_path)
    assert watched.calls == calls


def test_other_settings_photographs_and_inverters_do_not_mix(tmp_path: Path) -> None:
    small = {"schemes": make_schemes("sift", [], [], [], [], []), "trials": []}
    resumed(experiment(**small), tmp_path)
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
            resumed(experiment(**small, **changed), tmp_path)
    assert (tmp_path / "records.jsonl").read_bytes() == before


def reads_scale(painter: Any) -> list[bool]:
    """Of every picture, whether scale, orientation and response were read."""
    return [bool(feed["rows"][:, -5:].any()) for feed in fed(painter)]


def test_geometry_is_read_only_where_it_is_sent() -> None:
    one: dict[str, Any] = {"photographs": photographs()[:1], "trials": make_trials(["nearest"])}
    one["schemes"] = make_schemes("sift", [], [], [2], [], [])
    painter = grey_painter()
    names = [record.attack for record in run(experiment(painter=painter, **one))]
    assert names == ["blank", "chance", "constant", "read", "read + geometry", "nearest"]
    assert reads_scale(painter) == [False, False, False, True, False]
    painter = grey_painter()
    full = Settings(max_features=30, geometry="full")
    names = [record.attack for record in run(experiment(painter=painter, settings=full, **one))]
    assert names == ["blank", "chance", "constant", "read", "nearest"] and all(reads_scale(painter))
    plain = grey_painter(Encoding("sift"))
    assert "read + geometry" not in [record.attack for record in run(experiment(painter=plain, **one))]


def test_direct_inverters_find_their_scheme() -> None:
    schemes = make_schemes("sift", ["sub-hybrid"], [2, 4], [], [8.0], [2])
    specs = {scheme.name: scheme.defense.spec() for scheme in schemes}
    book = str(specs["subset-8-2"]["codebook"])
    subspaces = Encoding("sift", representation="subspaces", count=4)
    lifting = grey_painter(subspaces, specs["sub-hybrid-4"])
    residual = grey_painter(subspaces, specs["sub-hybrid-4"], "b", architecture="uresnet")
    standard = grey_painter(subspaces, specs["sub-hybrid-4"], "d", standardised=True)
    words = grey_painter(Encoding("sift", representation="words", count=2, codebook=book), specs["subset-8-2"], "c")
    given = experiment(schemes=schemes, trials=[], direct=[lifting, residual, standard, words])
    records = [one for one in run(given) if one.scheme != "identity"]
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
        experiment(direct=[other])
    with pytest.raises(InputError, match="what its card does not say"):
        experiment(direct=[replace(other, inverter=replace(other.inverter, card={"defense": "lifting"}))])
    foreign = grey_painter(Encoding("superpoint", representation="subspaces", count=2), Lifting("random", 2).spec())
    with pytest.raises(InputError, match="which no scheme here sends"):
        experiment(schemes=make_schemes("sift", [], [], [2], [], []), direct=[foreign])
    twice = make_schemes("sift", [], [], [2], [], [])[1].defense.spec()
    same = grey_painter(Encoding("sift", representation="subspaces", count=2), twice)
    with pytest.raises(InputError, match="two inverters of one architecture fit random-2"):
        experiment(direct=[same, same])
    with pytest.raises(InputError, match="--geometry full"):
        experiment(painter=grey_painter(Encoding("sift", geometry="full")))
    with pytest.raises(InputError, match="reads sift subspaces"):
        experiment(painter=other)


def test_attacks_are_named_with_what_their_adversary_has() -> None:
    names = [trial.name for trial in make_trials(["lattice+lifting_database", "lattice", "lattice", "chance"])]
    assert names == ["lattice + lifting_database", "lattice"]
    assert make_trials(["posterior + database"])[0].also == ("database",)
    for name, message in {
        "guess": "unknown attack 'guess'",
        "mean+database": "mean makes no use of 'database'",
        "inlier": "another image of the place",
    }.items():
        with pytest.raises(InputError, match=message):
            make_trials([name])


def test_what_takes_too_long_is_left_out() -> None:
    given = experiment(left_out=frozenset({("sub-hybrid-2", "nearest")}))
    attempts = {(scheme.name, attempt.name) for _, scheme, attempt in given.wanted()}
    assert attempts == KEYS - {("sub-hybrid-2", "nearest")}


def test_concealed_descriptors_are_read_and_undone() -> None:
    schemes = make_schemes("sift", [], [], [], [], [], [random_network()])
    given = experiment(schemes=schemes, trials=make_trials(["read", "unconceal"]), photographs=photographs()[:1])
    by_attack = {str(one.attack): one for one in run(given) if one.scheme != "identity"}
    assert set(by_attack) == {"read", "unconceal"}
    assert by_attack["unconceal"].parameters["median_distance"] < by_attack["read"].parameters["median_distance"]  # type: ignore[operator]


def test_photographs_of_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: Any) -> None:
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        shutil.copy(views()[0], tmp_path / folder / "one.jpg")
    (tmp_path / "b" / "broken.jpg").write_bytes(b"\xff\xd8 no")
    assert list(find_photographs([tmp_path / "a"])) == ["one.jpg"]
    files = find_photographs([tmp_path / "a", tmp_path / "b"])
    assert list(files) == ["a/one.jpg", "b/broken.jpg", "b/one.jpg"]
    read = read_photographs(files, 3, max_features=20)
    assert [(one.name, one.image.shape, len(one.features)) for one in read] == [
        ("a/one.jpg", (256, 256, 3), 20),
        ("b/one.jpg", (256, 256, 3), 20),
    ]
    assert read[0].digest == read[1].digest and "left out b/broken.jpg" in caplog.text
    assert [one.name for one in read_photographs(files, 1, max_features=20)] == ["a/one.jpg"]
    monkeypatch.setattr(
        "featveil.lab.inversion_parts.inversion_photos.part_of",
        lambda content: "test" if len(content) > 99 else "training",
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
    given = experiment(
        photographs=photographs(1000)[:1],
        schemes=make_schemes("sift", ["sub-hybrid"], [2], [], [], []),
        trials=make_trials(["database"]),
        painter=load_painter(),
        settings=Settings(),
    )
    ssim = {str(one.attack): one.value[1] for one in run(given)}  # type: ignore[index]
    assert ssim["read"] > ssim["blank"] + 0.05
    assert ssim["read + geometry"] > ssim["blank"] + 0.05
    assert ssim["database"] > max(ssim["blank"], ssim["chance"]) + 0.03
    assert ssim["chance"] < ssim["blank"] + 0.05


def record(scheme: str, attack: str, ssim: float, victim: str = "a", **more: Parameter) -> Record:
    """One attack on one photograph."""
    defense = {"identity": "identity", "subset": "subset"}.get(scheme.split("-")[0], "lifting")
    parameters: dict[str, Parameter] = {"victim": victim, "kind": "sift", "max_features": 500, "defense": defense}
    parameters |= {"geometry": "positions", "part": "test", "seconds": 2.0, "features": 400}
    parameters |= {"inverter": "0123", "inverter_name": "raw.onnx"}
    if defense == "lifting":
        parameters |= {"strategy": scheme.rpartition("-")[0], "dimension": int(scheme.rpartition("-")[2])}
    if defense == "subset":
        _, epsilon, k = scheme.split("-")
        parameters |= {"epsilon": float(epsilon), "image_epsilon": 400 * float(epsilon), "subset_size": int(k)}
    value = (1 - ssim, ssim, 20 * ssim)
    return Record("inversion", "town", scheme, BENCH.metric, value, "", 400, 3, {}, attack, {**parameters, **more})


RECORDS = [
    record("identity", "blank", 0.37),
    record("identity", "chance", 0.36),
    record("identity", "constant", 0.45),
    record("identity", "read", 0.6),
    record("identity", "read", 0.8, "b"),
    record("identity", "read + geometry", 0.9),
    record("random-2", "nearest", 0.65),
    record("sub-hybrid-2", "nearest", 0.4, median_distance=0.5, answered=1.0),
    record("sub-hybrid-2", "database", 0.62),
    record("sub-hybrid-2", "oracle", 0.69),
    record("sub-hybrid-2", "direct", 0.5),
    record("sub-hybrid-4", "nearest", 0.39),
    record("sub-hybrid-4", "database", 0.61),
    record("subset-10-2", "posterior", 0.42),
    record("subset-14-2", "posterior", 0.5),
]


def test_photographs_count_alike() -> None:
    row = next(row for row in BENCH.summarize(RECORDS) if row.attack == "read")
    assert (row.ssim, row.mae, row.psnr, row.photographs) == pytest.approx((0.7, 0.3, 14, 2))
    assert row.spread == pytest.approx(0.1) and row.distance is None and row.seconds == 2
    nearest = next(row for row in BENCH.summarize(RECORDS) if row.scheme == "sub-hybrid-2")
    assert (nearest.distance, nearest.answered, nearest.dimension) == (0.5, 1, 2)


def test_the_best_attack_is_no_floor_no_oracle_and_sees_what_is_sent() -> None:
    best = {scheme: row.attack for scheme, row in best_inversions(BENCH.summarize(RECORDS)).items()}
    assert best == {
        "identity": "read",
        "random-2": "nearest",
        "sub-hybrid-2": "database",
        "sub-hybrid-4": "database",
        "subset-10-2": "posterior",
        "subset-14-2": "posterior",
    }


def test_a_grid_shows_raw_descriptors_every_scheme_by_its_best_attack_and_positions_alone() -> None:
    columns = grid_columns(BENCH.summarize(RECORDS))
    assert columns[0] == ("identity", "read") and columns[-1] == ("identity", "constant")
    assert columns[1:3] == [("random-2", "nearest"), ("sub-hybrid-2", "database")] and len(columns) == 7


def test_floors_and_raw_descriptors_stand_in_every_table() -> None:
    parts = BENCH.markdown(RECORDS).split("\n## ")
    assert [part.splitlines()[0] for part in parts[1:]] == [
        "lifting: SSIM",
        "subset: SSIM",
        "Beside the papers",
        "All figures",
    ]
    lines = parts[1].splitlines()
    assert lines[2] == "| attack | random-2 | sub-hybrid-2 | sub-hybrid-4 |"
    assert lines[4:7] == [
        "| blank | 0.370 | 0.370 | 0.370 |",
        "| chance | 0.360 | 0.360 | 0.360 |",
        "| constant | 0.450 | 0.450 | 0.450 |",
    ]
    assert "| direct | - | 0.500 | - |" in lines and "| nearest | 0.650 | 0.400 | 0.390 |" in lines
    assert lines[-3:-1] == [
        "| raw descriptors: read | 0.700 | 0.700 | 0.700 |",
        "| raw descriptors: read + geometry | 0.900 | 0.900 | 0.900 |",
    ]
    assert lines[-1] == "| **best** | nearest 0.650 | database 0.620 | database 0.610 |"
    assert "2 photographs of the test part" in parts[0] and "positions only" in parts[0]
    assert "raw.onnx (0123)" in parts[0] and "seed 3" in parts[0]


def test_the_papers_numbers_stand_beside_ours() -> None:
    part = BENCH.markdown(RECORDS).split("## Beside the papers")[1].split("## ")[0]
    assert "| sub-hybrid-2 | database | 0.380 | 0.620 | 12.40 | 0.095 | 0.657 | 18.26 | - | - | - |" in part
    assert "| sub-hybrid-2 | direct | 0.500 | 0.500 | 10.00 | 0.119 | 0.500 | 16.35 | 0.150 | 0.653 | 14.96 |" in part
    assert "| random-2 | nearest | 0.350 | 0.650 | 13.00 | - | - | - | 0.111 | 0.740 | 17.39 |" in part
    assert "oracle" not in part and "posterior" not in part


def test_the_papers_tables_are_whole() -> None:
    counts = {attack: sum(one == attack for _, one in LDP_FEAT) for attack in ("nearest", "clustering", "database")}
    assert counts == {"nearest": 4, "clustering": 4, "database": 4}
    assert len(LDP_FEAT) == 1 + 16 + 12 and len(LIFTING) == 6
    for figures in (*LDP_FEAT.values(), *LIFTING.values()):
        mae, ssim, psnr = figures
        assert 0.09 <= mae < 0.2 and 0.24 < ssim < 0.78 and 12 < psnr < 19


def test_an_epsilon_stands_beside_that_of_the_image() -> None:
    headings, cells = headings_and_cells(COLUMNS, BENCH.summarize(RECORDS))
    shown = dict(zip(headings, cells[-2], strict=True))
    assert (shown["scheme"], shown["epsilon"], shown["epsilon an image"]) == ("subset-10-2", "10", "4,000")


@pytest.mark.parametrize("records", [RECORDS, RECORDS[:5], RECORDS[:8], RECORDS[-2:]])
def test_the_figure_has_something_on_it(tmp_path: Path, records: list[Record]) -> None:
    pytest.importorskip("matplotlib")
    draw(BENCH.summarize(records), tmp_path / "a.png", "title")
    image = np.asarray(cv2.imread(str(tmp_path / "a.png")))
    assert image.std() > 5
    assert image[:, :2].min() == image[:, -2:].min() == image[:2].min() == image[-2:].min() == 255


def test_the_grid_shows_the_pictures(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    red, blue = (np.full((64, 64, 3), colour, np.uint8) for colour in ((255, 0, 0), (0, 0, 255)))
    columns = [("identity", "read"), ("sub-hybrid-16", "posterior-overlap + database")]
    draw_grid(columns, [red, red], [[Seen(blue, 0.5), None], [Seen(blue, 0.25)] * 2], tmp_path / "g.png")
    image = np.asarray(cv2.imread(str(tmp_path / "g.png"))).reshape(-1, 3)
    shares = [(image == colour).all(axis=1).mean() for colour in ((0, 0, 255), (255, 0, 0))]
    assert shares[1] == pytest.approx(1.5 * shares[0], rel=0.02) and shares[0] > 0.15
    with pytest.raises(InputError, match="nothing to show"):
        draw_grid(columns, [], [], tmp_path / "h.png")


def test_other_records_and_none_at_all_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="not one of inversion"):
        BENCH.summarize([Record("words", "x", "y", "z", 1.0, "", 1, 0, {})])
    with pytest.raises(InputError, match="3 values"):
        BENCH.summarize([replace(RECORDS[0], value=1.0)])
    with pytest.raises(InputError, match="names an attack"):
        BENCH.summarize([replace(RECORDS[0], attack=None)])
    with pytest.raises(InputError, match="no record"):
        BENCH.markdown([])
    with pytest.raises(InputError, match="no result"):
        draw([], tmp_path / "a.png")
