"""The oracle attack's curve as records."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from featveil.attacks import Knowledge, attack
from featveil.attacks.oracle import Oracle, OracleCurve, oracle_curve
from featveil.core import InputError, PrivateFeatures
from featveil.core.records import Record, append_records, read_records
from featveil.lab import oracle
from featveil.lab.matching import make_schemes
from featveil.lab.oracle import GUESSES, Settings, Target, make_targets, run, run_resumable
from featveil.metrics import guess_distances
from scenes import draw_equal_views, draw_turned_views
from victims import own_database, picture

SETTINGS = Settings(dimension=4, max_features=60)


@pytest.fixture(scope="module")
def targets() -> list[Target]:
    made = []
    for kind in ("sift", "rootsift"):
        scheme = make_schemes(kind, ["sub-hybrid"], [4])[1]
        victims = {"one.png": picture(0, kind, 60), "two.png": picture(0, kind, 400).take(np.arange(100, 140))}
        made.append(Target(kind, victims, scheme, own_database(kind)))
    return made


@pytest.fixture(scope="module")
def records(targets: list[Target]) -> list[Record]:
    return list(run("drawn", targets, SETTINGS))


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
    lifting = target.scheme.lifting
    assert lifting is not None
    lifted = target.lifted(image, 0)
    private = PrivateFeatures(lifted, "sift", lifting.spec(), lifting.guarantee())
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
    resumed = run_resumable("drawn", targets, SETTINGS, path, lambda done, total: reports.append((done, total)))
    assert resumed == records == read_records(path)
    assert len(curves) == 2
    assert (reports[0], reports[-1]) == ((7, 12), (12, 12))
    assert run_resumable("drawn", targets[1:], SETTINGS, path) == records[6:]
    assert len(curves) == 2


def test_other_settings_do_not_mix(records: list[Record], targets: list[Target], tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    append_records(path, records)
    with pytest.raises(InputError, match="seed 0, not 1"):
        run_resumable("drawn", targets, replace(SETTINGS, seed=1), path)
    other = replace(targets[0], database=own_database(near_victim=False))
    with pytest.raises(InputError, match="own_database"):
        run_resumable("drawn", [other], SETTINGS, path)
    assert read_records(path) == records


def test_targets_are_photographs_and_the_attackers_descriptors(tmp_path: Path) -> None:
    draw_equal_views(tmp_path / "victims")
    draw_turned_views(tmp_path / "own", degrees=5, growth=0)
    settings = Settings(images=2, max_features=30, database_size=100)
    reports: list[tuple[int, int]] = []
    made = make_targets(
        tmp_path / "victims", [tmp_path / "own"], ["sift", "sift"], settings, lambda *at: reports.append(at)
    )
    assert [target.kind for target in made] == ["sift"]
    assert [len(features) for features in made[0].victims.values()] == [30, 30]
    assert len(made[0].database) == 100
    assert reports[-1] == (6, 6)
    for wrong, message in (
        (replace(settings, strategy="hybrid+"), "attribute labels"),
        (replace(settings, strategy="best"), "unknown lifting strategy"),
        (replace(settings, dimension=0), "dimension"),
        (replace(settings, images=0), "at least one photograph"),
    ):
        with pytest.raises(InputError, match=message):
            make_targets(tmp_path / "victims", [tmp_path / "own"], ["sift"], wrong)
    with pytest.raises(InputError, match="seed"):
        Settings(seed=-1)
