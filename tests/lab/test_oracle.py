"""The oracle attack's curve as records."""

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from featveil.attacks import Knowledge, attack
from featveil.attacks.oracle import Oracle, OracleCurve, oracle_curve
from featveil.core import InputError, MissingExtraError, PrivateFeatures
from featveil.core.records import Parameter, Record, Value, append_records, read_records
from featveil.lab import oracle
from featveil.lab.bench import headings_and_cells
from featveil.lab.oracle import (
    BENCH,
    GUESSES,
    Options,
    OracleRow,
    Target,
    columns_of,
    draw,
    lines_of,
    make_targets,
    study,
)
from featveil.lab.scene_studies import lifted
from featveil.metrics import guess_distances
from scenes import draw_equal_views, draw_turned_views
from victims import own_database, picture

SETTINGS = (60, 0)  # features and seed


@pytest.fixture(scope="module")
def targets() -> list[Target]:
    made = []
    for kind in ("sift", "rootsift"):
        scheme = lifted(kind, [4])[0]
        victims = {"one.png": picture(0, kind, 60), "two.png": picture(0, kind, 400).take(np.arange(100, 140))}
        made.append(Target(kind, victims, scheme, own_database(kind)))
    return made


@pytest.fixture(scope="module")
def records(targets: list[Target]) -> list[Record]:
    return list(BENCH.measured(study("drawn", targets, *SETTINGS)))


def test_a_record_for_each_kind_photograph_and_guess(records: list[Record], targets: list[Target]) -> None:
    names = [(record.parameters["kind"], record.parameters["image"], record.parameters["guess"]) for record in records]
    kinds, images = ("sift", "rootsift"), ("one.png", "two.png")
    assert names == [(kind, image, guess) for kind in kinds for image in images for guess in GUESSES]
    assert [record.count for record in records[:6]] == [60, 60, 60, 40, 40, 40]
    one, found = records[0], records[0].parameters
    assert (one.task, one.dataset, one.scheme, one.attack, one.seed) == ("oracle", "drawn", "sub-hybrid-4", "oracle", 0)
    assert records[2].attack == "chance"
    assert (found["own_database"], found["own_size"]) == (targets[0].database.digest[:16], len(targets[0].database))
    assert found["database"] != found["own_database"]
    assert found["neighbours"] == [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, len(targets[0].database)]


def test_values_are_what_the_attack_achieves(records: list[Record], targets: list[Target]) -> None:
    target, image = targets[0], "one.png"
    truth = target.victims[image].descriptors
    lifting = target.scheme.defense
    subspaces = target.lifted(image, 0)
    private = PrivateFeatures(subspaces, "sift", lifting.spec(), lifting.guarantee())
    for record, projected in zip(records[:2], (False, True), strict=True):
        assert isinstance(record.value, tuple)
        for place, count in ((0, 1), (5, 50)):
            guess = attack(private, Oracle(count, projected), Knowledge(database=target.database, truth=truth))
            mean = guess_distances(guess.values, truth).mean()
            assert record.value[place] == pytest.approx(mean, abs=2e-6)
    random = np.linalg.norm(target.database.points()[None] - truth.values[:, None], axis=2).mean()
    assert records[2].value == pytest.approx(random, abs=1e-5)


def test_a_resumed_run_equals_one_run_and_does_nothing_twice(
    records: list[Record], targets: list[Target], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "records.jsonl"
    append_records(path, records[:8])
    path.write_bytes(path.read_bytes()[:-30])  # the last one is torn
    curves: list[object] = []

    def counting(*given: Any) -> OracleCurve:
        curves.append(given)
        return oracle_curve(*given)

    monkeypatch.setattr(oracle, "oracle_curve", counting)
    reports: list[tuple[int, int]] = []
    resumed = BENCH.resume(study("drawn", targets, *SETTINGS), path, lambda done, total: reports.append((done, total)))
    assert resumed == records == read_records(path)
    assert len(curves) == 2
    assert (reports[0], reports[-1]) == ((7, 12), (12, 12))
    assert BENCH.resume(study("drawn", targets[1:], *SETTINGS), path) == records[6:]
    assert len(curves) == 2


def test_other_settings_do_not_mix(records: list[Record], targets: list[Target], tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    append_records(path, records)
    with pytest.raises(InputError, match="seed 0, not 1"):
        BENCH.resume(study("drawn", targets, 60, 1), path)
    other = replace(targets[0], database=own_database(near_victim=False))
    with pytest.raises(InputError, match="own_database"):
        BENCH.resume(study("drawn", [other], *SETTINGS), path)
    assert read_records(path) == records


def test_targets_are_photographs_and_the_attackers_descriptors(tmp_path: Path) -> None:
    draw_equal_views(tmp_path / "victims")
    draw_turned_views(tmp_path / "own", degrees=5, growth=0)
    options = Options(
        *(tmp_path / "victims", (tmp_path / "own",), tmp_path / "o"), images=2, max_features=30, database_size=100
    )
    reports: list[tuple[int, int]] = []
    made = make_targets(replace(options, kinds=("sift", "sift")), lambda *at: reports.append(at))
    assert [target.kind for target in made] == ["sift"]
    assert [len(features) for features in made[0].victims.values()] == [30, 30]
    assert len(made[0].database) == 100
    assert reports[-1] == (6, 6)
    for wrong, message in (
        (replace(options, strategy="hybrid+"), "attribute labels"),
        (replace(options, strategy="best"), "unknown lifting strategy"),
        (replace(options, dimension=0), "dimension"),
        (replace(options, images=0), "at least one photograph"),
    ):
        with pytest.raises(InputError, match=message):
            make_targets(wrong)
    with pytest.raises(InputError, match="seed"):
        BENCH.run(replace(options, seed=-1))


def record(guess: str, value: Value, image: str = "a.png", count: int = 100, kind: str = "sift") -> Record:
    """A record such as the task writes."""
    parameters: dict[str, Parameter] = {"kind": kind, "guess": guess, "image": image, "neighbours": [1, 2, 1500]}
    parameters |= {"strategy": "sub-hybrid", "dimension": 2, "own_size": 1500, "max_features": 300}
    attack = "chance" if guess == "chance" else "oracle"
    return Record("oracle", "holidays", "sub-hybrid-2", BENCH.metric, value, "", count, 0, {}, attack, parameters)


def cells_of(rows: Sequence[OracleRow]) -> tuple[list[str], list[tuple[str, ...]]]:
    return headings_and_cells(columns_of(rows), lines_of(rows))


RECORDS = [
    record("plain", (0.9, 0.8, 0.5)),
    record("projected", (0.8, 0.6, 0.2)),
    record("chance", 1.0),
    record("plain", (0.7, 0.6, 0.5), "b.png", 300),
    record("projected", (0.6, 0.6, 0.2), "b.png", 300),
    record("chance", 1.2, "b.png", 300),
    record("plain", (0.5, 0.4, 0.3), kind="rootsift"),
    record("projected", (0.5, 0.3, 0.1), kind="rootsift"),
    record("chance", 0.8, kind="rootsift"),
]


def test_means_are_of_features_not_of_photographs() -> None:
    rows = BENCH.summarize(RECORDS)
    assert [(row.kind, row.neighbours) for row in rows] == [
        *(("sift", 1), ("sift", 2), ("sift", 1500)),
        *(("rootsift", 1), ("rootsift", 2), ("rootsift", 1500)),
    ]
    assert (rows[0].plain, rows[0].projected, rows[0].chance) == pytest.approx((0.75, 0.65, 1.15))
    assert (rows[0].features, rows[0].images) == (400, 2)
    assert (rows[5].plain, rows[5].projected, rows[5].chance, rows[5].features) == pytest.approx((0.3, 0.1, 0.8, 100))


def test_kinds_stand_beside_each_other_and_chance_below() -> None:
    headings, cells = cells_of(BENCH.summarize(RECORDS))
    assert headings == ["K", "sift plain", "sift projected", "rootsift plain", "rootsift projected"]
    assert cells[0] == ("1", "0.750", "0.650", "0.500", "0.500")
    assert cells[2] == ("1,500", "0.500", "0.200", "0.300", "0.100")
    assert cells[3] == ("chance", "1.150", "", "0.800", "")
    other = [
        replace(one, parameters={**one.parameters, "neighbours": [1, 2, 900]})
        for one in RECORDS
        if one.parameters["kind"] == "rootsift"
    ]
    cells = cells_of(BENCH.summarize([*RECORDS[:6], *other]))[1]
    assert cells[2:4] == [("900", "", "", "0.300", "0.100"), ("1,500", "0.500", "0.200", "", "")]


def test_markdown_says_that_no_adversary_has_the_oracle() -> None:
    text = BENCH.markdown(RECORDS)
    assert "No adversary has the oracle" in text
    assert "2 photographs, 400 features (at most 300 each), lifted to subspaces of dimension 2" in text
    assert "1,500 descriptors of other photographs" in text
    table = [line for line in text.splitlines() if line.startswith("|")]
    assert len(table) == 2 + 4
    assert {line.count("|") for line in table} == {6}


def test_records_of_something_else() -> None:
    one = RECORDS[0]
    for wrong in (
        replace(one, task="attacks"),
        replace(one, parameters={}),
        replace(one, parameters={**one.parameters, "guess": "best"}),
    ):
        with pytest.raises(InputError, match=r"not one of|damaged"):
            BENCH.summarize([wrong])
    for damaged in (replace(one, value=1.0), replace(one, value=(1.0,)), replace(RECORDS[2], value=(1.0, 1.0, 1.0))):
        with pytest.raises(InputError, match="damaged"):
            BENCH.summarize([damaged])
    with pytest.raises(InputError, match="lack a part"):
        BENCH.summarize(RECORDS[:5])
    with pytest.raises(InputError, match="different sizes"):
        changed = replace(RECORDS[3], parameters={**RECORDS[3].parameters, "neighbours": [1, 2, 9]})
        BENCH.summarize([*RECORDS[:3], changed, *RECORDS[4:6]])
    with pytest.raises(InputError, match="no record"):
        BENCH.markdown([])


@pytest.mark.parametrize("records", [RECORDS, RECORDS[:3]])
def test_a_picture_is_written(tmp_path: Path, records: list[Record]) -> None:
    pytest.importorskip("matplotlib")
    draw(BENCH.summarize(records), tmp_path / "curve.png", "a title")
    assert (tmp_path / "curve.png").read_bytes().startswith(b"\x89PNG")
    assert [path.name for path in tmp_path.iterdir()] == ["curve.png"]


def test_without_matplotlib_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("matplotlib")
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(MissingExtraError, match="plots"):
        draw(BENCH.summarize(RECORDS), tmp_path / "curve.png")
    assert not list(tmp_path.iterdir())
