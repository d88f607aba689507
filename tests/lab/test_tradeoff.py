"""The comparison of subset and metric mechanism on a drawn scene whose homographies are known."""

import sys
from collections import Counter
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import cv2
import numpy as np
import pytest

from featveil.core import InputError, MissingExtraError, Points, WordSets
from featveil.core.records import Parameter, Record, append_records, read_records
from featveil.core.seeding import image_generator
from featveil.databases import Database, builtin
from featveil.datasets import HPatches, load_hpatches
from featveil.defenses import Metric, Subset
from featveil.extractors import extract
from featveil.lab import tradeoff, words
from featveil.lab.bench import Measured, headings_and_cells
from featveil.lab.scene_studies import Settings
from featveil.lab.tradeoff import BENCH, COLUMNS, Arm, Compared, draw, make_arms, measure, study
from featveil.lab.tradeoff_parts import calibration
from featveil.lab.tradeoff_parts.calibration import Sample, sample_descriptors, subset_success
from featveil.metrics import FARTHEST
from scenes import draw_turned_views

SETTINGS = Settings(max_features=200)
ITERATIONS = 3000


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> HPatches:
    root = tmp_path_factory.mktemp("data") / "drawn"
    draw_turned_views(root / "v_one", degrees=2, growth=0)
    return load_hpatches(root)


@pytest.fixture(scope="module")
def codebook() -> Database:
    return Database(builtin("sift").values[:600], "sift")


@pytest.fixture(scope="module")
def arms(dataset: HPatches, codebook: Database) -> list[Arm]:
    return make_arms(dataset, SETTINGS, codebook, [6, 4.5], [1, 3])


@pytest.fixture(scope="module")
def records(dataset: HPatches, arms: list[Arm]) -> list[Record]:
    return list(BENCH.measured(study(dataset, arms, SETTINGS, ITERATIONS)))


def mean(records: list[Record], name: str, scheme: str, rule: str = "nearest") -> float:
    chosen = [record for record in records if (record.scheme, record.parameters["rule"]) == (scheme, rule)]
    assert len(chosen) == 5
    return float(np.mean([named(record)[name] for record in chosen]))


def named(record: Record) -> dict[str, float]:
    assert isinstance(record.value, tuple)
    return dict(zip(record.metric.split(", "), record.value, strict=True))


def test_each_metric_scheme_has_the_success_of_its_subset_scheme(
    dataset: HPatches, arms: list[Arm], codebook: Database
) -> None:
    assert [arm.scheme.name for arm in arms] == [
        *("raw", "quantised"),
        *("subset-6-1", "metric-as-6-1", "subset-4.5-1", "metric-as-4.5-1", "chance-1"),
        *("subset-6-3", "metric-as-6-3", "subset-4.5-3", "metric-as-4.5-3", "chance-3"),
    ]
    sample = sample_descriptors(dataset, SETTINGS)
    compared = 0
    for subset, metric in pairwise(arms):
        one, other = subset.scheme.defense, metric.scheme.defense
        if isinstance(other, Metric) and isinstance(one, Subset):
            k, compared = other.subset_size, compared + 1
            assert metric.success == subset.success == subset_success(one.epsilon, 600, k)
            own = Sample.of(sample, codebook).success(other.epsilon, k)
            assert own == pytest.approx(subset.success, rel=0.01)
    assert compared == 4
    assert [arm.success for arm in arms if "chance" in arm.scheme.name] == pytest.approx([1 / 600, 1 / 600])


def test_every_scheme_is_run_by_both_rules(records: list[Record], arms: list[Arm]) -> None:
    found = Counter((record.scheme, record.parameters["rule"]) for record in records)
    both = [(arm.scheme.name, rule) for arm in arms[1:] for rule in ("vocabulary", "nearest")]
    assert list(found) == [("raw", "nearest"), *both]
    assert set(found.values()) == {5}


def test_matching_is_what_the_task_of_word_sets_measures(
    dataset: HPatches, records: list[Record], codebook: Database
) -> None:
    """Also the sets are the same ones: releases of the same name and seed."""
    schemes = words.make_schemes("sift", {"few": codebook}, [6, 4.5], [1, 3])
    released = words.Released(schemes, {codebook.digest: "few"}, [1, 3])
    others = words.BENCH.measured(words.study(dataset, released, SETTINGS, ITERATIONS))
    here = {(record.scheme, record.parameters["rule"], record.parameters["image"]): record for record in records}
    compared = 0
    for other in others:
        record = here.get((other.scheme, other.parameters["rule"], other.parameters["image"]))
        if record is not None:
            assert isinstance(record.value, tuple)
            assert (record.value[:6], record.count) == (other.value, other.count)
            compared += 1
    assert compared == 5 + 10 + 4 * 10


@pytest.mark.parametrize("name", ["quantised", "subset-6-3", "metric-as-6-3", "chance-1"])
def test_leakage_is_what_an_attacker_measures(
    dataset: HPatches, records: list[Record], arms: list[Arm], name: str
) -> None:
    scheme = next(arm.scheme for arm in arms if arm.scheme.name == name)
    points = extract(dataset.scenes[0].images[4], "sift", 200).descriptors
    assert scheme.codebook is not None
    sets = scheme.defense.privatize(points, image_generator(0, "v_one", 4, f"{name}/{scheme.codebook.digest[:16]}"))
    assert isinstance(sets, WordSets)
    unit = points.values / np.linalg.norm(points.values, axis=1, keepdims=True)
    away = np.linalg.norm(unit[:, None] - scheme.codebook.points()[None], axis=2)
    own = np.take_along_axis(away, sets.words, axis=1)
    contains = (own.min(axis=1) <= away.min(axis=1)).mean()
    chosen = [record for record in records if record.scheme == name and record.parameters["image"] == 4]
    assert len(chosen) == 2
    for record in chosen:
        assert isinstance(record.value, tuple)
        assert record.value[6:] == pytest.approx((contains, own.mean(), own.min(axis=1).mean()), abs=2e-6)


def test_equal_success_is_not_equal_leakage(records: list[Record], arms: list[Arm]) -> None:
    for k in (1, 3):
        chance = mean(records, "guess distance", f"chance-{k}")
        for epsilon in ("6", "4.5"):
            subset, metric = f"subset-{epsilon}-{k}", f"metric-as-{epsilon}-{k}"
            success = next(arm.success for arm in arms if arm.scheme.name == subset)
            for name in (subset, metric):
                assert mean(records, "contains", name) == pytest.approx(k * success, abs=0.06)
            assert mean(records, "guess distance", metric) < mean(records, "guess distance", subset) - 0.02 < chance
            assert mean(records, "nearest distance", metric) <= mean(records, "guess distance", metric)
    assert mean(records, "guess distance", "raw") == 0 < mean(records, "guess distance", "quantised")


def test_near_words_help_to_match(records: list[Record]) -> None:
    assert mean(records, "correct", "raw") == 1
    for k in (1, 3):
        found = [mean(records, "right inliers", f"{name}-{k}") for name in ("metric-as-4.5", "subset-4.5", "chance")]
        assert found[0] > found[1] > found[2]


def test_records_say_how_they_were_made(records: list[Record], arms: list[Arm], codebook: Database) -> None:
    scheme = next(arm.scheme for arm in arms if arm.scheme.name == "metric-as-6-3")
    assert isinstance(scheme.defense, Metric)
    record = next(record for record in records if record.scheme == scheme.name)
    assert (record.task, record.dataset, record.seed, record.metric) == ("tradeoff", "drawn", 0, BENCH.metric)
    found = record.parameters
    assert (found["mechanism"], found["epsilon"], found["subset_epsilon"], found["subset_size"]) == (
        *("metric", scheme.defense.epsilon),
        *(6, 3),
    )
    assert (found["codebook"], found["codebook_size"]) == (codebook.digest[:16], 600)
    assert (found["scene"], found["image"], found["change"], found["features"]) == ("v_one", 2, "viewpoint", [200, 200])
    assert (found["kind"], found["max_features"], found["iterations"], found["pixels"]) == ("sift", 200, 3000, 5.0)
    quantised = records[5].parameters
    assert (quantised["mechanism"], quantised["epsilon"], quantised["success"]) == ("quantised", None, 1.0)
    assert "codebook" not in records[0].parameters


def test_a_resumed_run_equals_one_run_and_does_nothing_twice(
    dataset: HPatches, records: list[Record], arms: list[Arm], tmp_path: Path
) -> None:
    path = tmp_path / "records.jsonl"
    append_records(path, records[:-17])
    path.write_bytes(path.read_bytes()[:-30])  # the last one is torn
    measured: list[Measured] = []

    def counting(one: Compared) -> Measured:
        measured.append(measure(one))
        return measured[-1]

    counted, reports = replace(BENCH, measure=counting), list[tuple[int, int]]()
    wanted = study(dataset, arms, SETTINGS, ITERATIONS)
    assert counted.resume(wanted, path, lambda done, total: reports.append((done, total))) == records
    assert read_records(path) == records
    assert [one.value for one in measured] == [record.value for record in records[-18:]]
    assert (reports[0], reports[-1]) == ((97, 115), (115, 115))
    assert BENCH.resume(study(dataset, arms[:1], SETTINGS, ITERATIONS), path) == records[:5]


def test_other_settings_or_other_epsilons_do_not_mix(
    dataset: HPatches, records: list[Record], arms: list[Arm], tmp_path: Path
) -> None:
    path = tmp_path / "records.jsonl"
    append_records(path, records)
    before = path.read_bytes()
    with pytest.raises(InputError, match="iterations 3000, not 2999"):
        BENCH.resume(study(dataset, arms, SETTINGS, 2999), path)
    metric = arms[3].scheme
    assert isinstance(metric.defense, Metric)
    other = replace(arms[3], scheme=replace(metric, defense=replace(metric.defense, epsilon=5.0)))
    with pytest.raises(InputError, match=r"with epsilon [\d.]+, not 5"):
        BENCH.resume(study(dataset, [other], SETTINGS, ITERATIONS), path)
    assert path.read_bytes() == before


def test_the_sample_is_every_mth_descriptor_of_all_private_images(
    dataset: HPatches, monkeypatch: pytest.MonkeyPatch
) -> None:
    images = [extract(pair.second, "sift", 200).descriptors.values for pair in dataset.pairs()]
    monkeypatch.setattr(calibration, "SAMPLE", 30)
    reports: list[tuple[int, int]] = []
    found = sample_descriptors(dataset, SETTINGS, lambda done, total: reports.append((done, total)))
    np.testing.assert_array_equal(found.values, np.concatenate(images)[::32])  # 1000 of them
    assert reports == [(done, 5) for done in range(1, 6)]
    monkeypatch.setattr(calibration, "SAMPLE", 1000)
    np.testing.assert_array_equal(sample_descriptors(dataset, SETTINGS).values, np.concatenate(images))


def test_an_image_without_features_counts_nothing(tmp_path: Path, codebook: Database) -> None:
    draw_turned_views(tmp_path / "drawn" / "one", degrees=2, growth=0)
    blank = np.full((240, 320), 128, np.uint8)
    cv2.imwrite(str(tmp_path / "drawn" / "one" / "2.png"), blank)
    dataset = load_hpatches(tmp_path / "drawn")
    arms = make_arms(dataset, SETTINGS, codebook, [6], [2])
    found = [
        record
        for record in BENCH.measured(study(dataset, arms, SETTINGS, ITERATIONS))
        if record.parameters["image"] == 2
    ]
    assert len(found) == 9
    assert all(record.value == (0, 0, 0, 0, FARTHEST, 0, 0, 0, 0) for record in found[1:])
    for number in range(3, 7):
        cv2.imwrite(str(tmp_path / "drawn" / "one" / f"{number}.png"), blank)
    with pytest.raises(InputError, match="have no features"):
        make_arms(dataset, SETTINGS, codebook, [6], [2])


def test_schemes_that_cannot_be(dataset: HPatches, codebook: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match=r"compares with subset-60-1: .*use other epsilons"):
        make_arms(dataset, SETTINGS, codebook, [60], [1])

    def unread(*arguments: object) -> Points:
        raise AssertionError("images must not be read before mistakes are named")

    monkeypatch.setattr(tradeoff, "sample_descriptors", unread)
    for epsilons, sizes, message in (
        ([float("inf")], [1], "always there"),
        ([0.0], [1], "epsilon must be a number above 0"),
        ([6.0], [600], "subset_size"),
    ):
        with pytest.raises(InputError, match=message):
            make_arms(dataset, SETTINGS, codebook, epsilons, sizes)
    with pytest.raises(InputError, match="rootsift codebook"):
        make_arms(dataset, replace(SETTINGS, kind="rootsift"), codebook, [6], [1])


METRIC = "candidates, right candidates, inliers, right inliers, corner error, correct"
METRIC += ", contains, guess distance, nearest distance"


def record(
    mechanism: str, epsilon: float | None = None, k: int | None = None, success: float = 1.0, **changed: object
) -> Record:
    """A record such as the task writes; `changed` are right inliers, guess distance or other parameters."""
    right, guess = float(str(changed.pop("right", 40))), float(str(changed.pop("guess", 0.5)))
    value = (100.0, 50.0, 45.0, right, 1.5, float(right > 10), 0.25, guess, guess / 2)
    parameters: dict[str, Parameter] = {"rule": "nearest", "features": [500, 1000]}
    parameters |= {"mechanism": mechanism, "epsilon": epsilon, "success": success, "kind": "sift"}
    parameters |= {"max_features": 9, "iterations": 10_000, "pixels": 5.0}
    if k is not None:
        parameters |= {"subset_size": k, "codebook": "0123", "codebook_size": 4096}
    name = "-".join(str(part) for part in (mechanism, epsilon, k) if part is not None)
    parameters |= changed  # type: ignore[arg-type]
    return Record("tradeoff", "drawn", name, METRIC, value, "count", 100, 0, {}, parameters=parameters)


RECORDS = [
    record("chance", 1e-9, 4, 2e-4, right=0, guess=0.98),
    record("subset", 6.0, 4, 0.02, right=5, guess=0.95),
    record("metric", 38.444, 4, 0.02, right=30, guess=0.9),
    record("metric", 84.2, 4, 0.2, rule="vocabulary", right=20),
    record("metric", 84.2, 4, 0.2, rule="vocabulary", right=0, features=[500, 3000], guess=0.7),
    record("metric", 84.2, 4, 0.2),
    record("metric", 84.2, 4, 0.2, features=[500, 3000], guess=0.7),
    record("subset", 10.0, 4, 0.2, guess=0.8),
    record("quantised", k=1),
    record("raw", guess=0),
]


def test_mechanisms_of_equal_success_stand_together() -> None:
    rows = BENCH.summarize(RECORDS)
    assert [(row.mechanism, row.subset_size, row.success) for row in rows] == [
        ("raw", None, 1),
        ("quantised", 1, 1),
        ("subset", 4, 0.2),
        ("metric", 4, 0.2),
        ("subset", 4, 0.02),
        ("metric", 4, 0.02),
        ("chance", 4, 2e-4),
    ]


def test_utility_is_a_mean_of_pairs_and_leakage_one_of_descriptors() -> None:
    row = BENCH.summarize(RECORDS)[3]
    assert (row.right_inliers_vocabulary, row.right_inliers_nearest, row.right_inliers) == (10, 40, 40)
    assert (row.correct_vocabulary, row.correct_nearest, row.pairs) == (0.5, 1, 2)
    assert (row.features, row.epsilon, row.image_epsilon) == (2000, 84.2, 168_400)
    assert (row.guess_distance, row.nearest_distance) == pytest.approx((0.65, 0.325))
    raw = BENCH.summarize(RECORDS)[0]
    assert (raw.right_inliers_vocabulary, raw.correct_vocabulary, raw.right_inliers) == (None, None, 40)


def test_cells_have_both_epsilons_and_their_unit() -> None:
    headings, cells = headings_and_cells(COLUMNS, BENCH.summarize(RECORDS))
    assert headings[3:5] == ["epsilon", "epsilon an image"]
    assert cells[0] == ("", "1.000", "raw", "inf", "inf", "0.250", "0.000", "0.000", "-", "40", "-", "100", "1")
    assert cells[2][:5] == ("4", "0.200", "subset", "10", "10,000")
    assert cells[3][2:] == (
        *("metric", "84.2 per unit", "168,400 per unit", "0.250", "0.650", "0.325"),
        *("10", "40", "50", "100", "2"),
    )
    assert cells[5][3] == "38.44 per unit"
    assert cells[6][1:5] == ("2e-04", "chance", "1e-09", "1e-06")


def test_markdown_says_what_equal_success_is_not() -> None:
    text = BENCH.markdown(RECORDS)
    assert "Equal success in naming the word is not equal leakage" in text
    assert "Codebook of 4,096 words, digest 0123." in text
    assert "10,000 iterations at 5 px" in text
    table = [line for line in text.splitlines() if line.startswith("|")]
    assert len(table) == 2 + 7
    assert {line.count("|") for line in table} == {14}
    assert "digest" not in BENCH.markdown(RECORDS[-1:])


def test_records_of_something_else() -> None:
    one = RECORDS[0]
    for wrong in (
        replace(one, task="words"),
        replace(one, metric="accuracy"),
        replace(one, parameters={}),
        replace(one, parameters={**one.parameters, "mechanism": "naive"}),
    ):
        with pytest.raises(InputError, match="not one of"):
            BENCH.summarize([wrong])
    for damaged in (
        replace(one, value=1.0),
        replace(one, value=(1.0,)),
        replace(one, parameters={**one.parameters, "features": 3}),
    ):
        with pytest.raises(InputError, match="damaged"):
            BENCH.summarize([damaged])
    with pytest.raises(InputError, match="two codebooks"):
        BENCH.summarize([one, replace(RECORDS[1], parameters={**RECORDS[1].parameters, "codebook": "4567"})])
    with pytest.raises(InputError, match="nothing to compare"):
        BENCH.summarize([replace(one, parameters={**one.parameters, "features": [0, 0]})])
    with pytest.raises(InputError, match="no record"):
        BENCH.markdown([])


@pytest.mark.parametrize("records", [RECORDS, RECORDS[:1], RECORDS[7:8], RECORDS[-1:]])
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
