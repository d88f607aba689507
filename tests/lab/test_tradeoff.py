"""The comparison of subset and metric mechanism on a drawn scene whose homographies are known."""

from collections import Counter
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import cv2
import numpy as np
import pytest

from featveil.core import InputError, Points
from featveil.core.records import Record, append_records, read_records
from featveil.core.seeding import image_generator
from featveil.databases import Database, builtin
from featveil.datasets import HPatches, load_hpatches
from featveil.defenses.metric import Metric
from featveil.extractors import extract
from featveil.lab import tradeoff, words
from featveil.lab.calibration import Sample, subset_success
from featveil.lab.tradeoff import METRIC, Scheme, make_schemes, run, run_resumable, sample_descriptors
from featveil.lab.words import Settings
from featveil.metrics import FARTHEST
from scenes import draw_turned_views

SETTINGS = Settings(max_features=200, iterations=3000)


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> HPatches:
    root = tmp_path_factory.mktemp("data") / "drawn"
    draw_turned_views(root / "v_one", degrees=2, growth=0)
    return load_hpatches(root)


@pytest.fixture(scope="module")
def codebook() -> Database:
    return Database(builtin("sift").values[:600], "sift")


@pytest.fixture(scope="module")
def schemes(dataset: HPatches, codebook: Database) -> list[Scheme]:
    return make_schemes(dataset, SETTINGS, codebook, [6, 4.5], [1, 3])


@pytest.fixture(scope="module")
def records(dataset: HPatches, schemes: list[Scheme]) -> list[Record]:
    return list(run(dataset, schemes, SETTINGS))


def mean(records: list[Record], name: str, scheme: str, rule: str = "nearest") -> float:
    chosen = [record for record in records if (record.scheme, record.parameters["rule"]) == (scheme, rule)]
    assert len(chosen) == 5
    return float(np.mean([named(record)[name] for record in chosen]))


def named(record: Record) -> dict[str, float]:
    assert isinstance(record.value, tuple)
    return dict(zip(record.metric.split(", "), record.value, strict=True))


def test_each_metric_scheme_has_the_success_of_its_subset_scheme(
    dataset: HPatches, schemes: list[Scheme], codebook: Database
) -> None:
    assert [scheme.name for scheme in schemes] == [
        *("raw", "quantised"),
        *("subset-6-1", "metric-as-6-1", "subset-4.5-1", "metric-as-4.5-1", "chance-1"),
        *("subset-6-3", "metric-as-6-3", "subset-4.5-3", "metric-as-4.5-3", "chance-3"),
    ]
    sample = sample_descriptors(dataset, SETTINGS)
    for subset, metric in pairwise(schemes):
        if isinstance(metric.defense, Metric) and subset.defense is not None:
            k, epsilon = metric.defense.subset_size, subset.defense.epsilon
            assert metric.success == subset.success == subset_success(epsilon, 600, k)
            own = Sample.of(sample, codebook).success(metric.defense.epsilon, k)
            assert own == pytest.approx(subset.success, rel=0.01)
    assert [scheme.success for scheme in schemes if "chance" in scheme.name] == pytest.approx([1 / 600, 1 / 600])


def test_every_scheme_is_run_by_both_rules(records: list[Record], schemes: list[Scheme]) -> None:
    found = Counter((record.scheme, record.parameters["rule"]) for record in records)
    both = [(scheme.name, rule) for scheme in schemes[1:] for rule in ("vocabulary", "nearest")]
    assert list(found) == [("raw", "nearest"), *both]
    assert set(found.values()) == {5}


def test_matching_is_what_the_task_of_word_sets_measures(
    dataset: HPatches, records: list[Record], codebook: Database
) -> None:
    """Also the sets are the same ones: releases of the same name and seed."""
    others = words.run(dataset, words.make_schemes("sift", {"few": codebook}, [6, 4.5], [1, 3], [1, 3]), SETTINGS)
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
    dataset: HPatches, records: list[Record], schemes: list[Scheme], name: str
) -> None:
    scheme = next(scheme for scheme in schemes if scheme.name == name)
    points = extract(dataset.scenes[0].images[4], "sift", 200).descriptors
    assert scheme.defense is not None and scheme.codebook is not None
    sets = scheme.defense.privatize(points, image_generator(0, "v_one", 4, f"{name}/{scheme.digest}")).words
    unit = points.values / np.linalg.norm(points.values, axis=1, keepdims=True)
    away = np.linalg.norm(unit[:, None] - scheme.codebook.points()[None], axis=2)
    own = np.take_along_axis(away, sets, axis=1)
    contains = (own.min(axis=1) <= away.min(axis=1)).mean()
    chosen = [record for record in records if record.scheme == name and record.parameters["image"] == 4]
    assert len(chosen) == 2
    for record in chosen:
        assert isinstance(record.value, tuple)
        assert record.value[6:] == pytest.approx((contains, own.mean(), own.min(axis=1).mean()), abs=2e-6)


def test_equal_success_is_not_equal_leakage(records: list[Record], schemes: list[Scheme]) -> None:
    for k in (1, 3):
        chance = mean(records, "guess distance", f"chance-{k}")
        for epsilon in ("6", "4.5"):
            subset, metric = f"subset-{epsilon}-{k}", f"metric-as-{epsilon}-{k}"
            success = next(scheme.success for scheme in schemes if scheme.name == subset)
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


def test_records_say_how_they_were_made(records: list[Record], schemes: list[Scheme], codebook: Database) -> None:
    scheme = next(scheme for scheme in schemes if scheme.name == "metric-as-6-3")
    record = next(record for record in records if record.scheme == scheme.name)
    assert (record.task, record.dataset, record.seed, record.metric) == ("tradeoff", "drawn", 0, METRIC)
    found = record.parameters
    assert (found["mechanism"], found["epsilon"], found["subset_epsilon"], found["subset_size"]) == (
        *("metric", scheme.defense.epsilon if scheme.defense else None),
        *(6, 3),
    )
    assert (found["codebook"], found["codebook_size"]) == (codebook.digest[:16], 600)
    assert (found["scene"], found["image"], found["change"], found["features"]) == ("v_one", 2, "viewpoint", [200, 200])
    assert (found["kind"], found["max_features"], found["iterations"], found["pixels"]) == ("sift", 200, 3000, 5.0)
    quantised = records[5].parameters
    assert (quantised["mechanism"], quantised["epsilon"], quantised["success"]) == ("quantised", None, 1.0)
    assert "codebook" not in records[0].parameters


def test_a_resumed_run_equals_one_run_and_does_nothing_twice(
    dataset: HPatches, records: list[Record], schemes: list[Scheme], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "records.jsonl"
    append_records(path, records[:-17])
    path.write_bytes(path.read_bytes()[:-30])  # the last one is torn
    measured: list[Record] = []
    real = tradeoff._record

    def counting(*arguments: object) -> Record:
        measured.append(real(*arguments))  # type: ignore[arg-type]
        return measured[-1]

    monkeypatch.setattr(tradeoff, "_record", counting)
    reports: list[tuple[int, int]] = []
    resumed = run_resumable(dataset, schemes, SETTINGS, path, lambda done, total: reports.append((done, total)))
    assert resumed == records
    assert read_records(path) == records
    assert measured == records[-18:]
    assert (reports[0], reports[-1]) == ((97, 115), (115, 115))
    assert run_resumable(dataset, schemes[:1], SETTINGS, path) == records[:5]


def test_other_settings_or_other_epsilons_do_not_mix(
    dataset: HPatches, records: list[Record], schemes: list[Scheme], tmp_path: Path
) -> None:
    path = tmp_path / "records.jsonl"
    append_records(path, records)
    before = path.read_bytes()
    with pytest.raises(InputError, match="iterations 3000, not 2999"):
        run_resumable(dataset, schemes, replace(SETTINGS, iterations=2999), path)
    metric = schemes[3]
    assert isinstance(metric.defense, Metric)
    found = replace(metric, defense=replace(metric.defense, epsilon=5.0))
    with pytest.raises(InputError, match=r"with epsilon [\d.]+, not 5"):
        run_resumable(dataset, [found], SETTINGS, path)
    assert path.read_bytes() == before


def test_the_sample_is_every_mth_descriptor_of_all_private_images(
    dataset: HPatches, monkeypatch: pytest.MonkeyPatch
) -> None:
    images = [extract(pair.second, "sift", 200).descriptors.values for pair in dataset.pairs()]
    monkeypatch.setattr(tradeoff, "SAMPLE", 30)
    reports: list[tuple[int, int]] = []
    found = sample_descriptors(dataset, SETTINGS, lambda done, total: reports.append((done, total)))
    np.testing.assert_array_equal(found.values, np.concatenate(images)[::32])  # 1000 of them
    assert reports == [(done, 5) for done in range(1, 6)]
    monkeypatch.setattr(tradeoff, "SAMPLE", 1000)
    np.testing.assert_array_equal(sample_descriptors(dataset, SETTINGS).values, np.concatenate(images))


def test_an_image_without_features_counts_nothing(tmp_path: Path, codebook: Database) -> None:
    draw_turned_views(tmp_path / "drawn" / "one", degrees=2, growth=0)
    blank = np.full((240, 320), 128, np.uint8)
    cv2.imwrite(str(tmp_path / "drawn" / "one" / "2.png"), blank)
    dataset = load_hpatches(tmp_path / "drawn")
    schemes = make_schemes(dataset, SETTINGS, codebook, [6], [2])
    found = [record for record in run(dataset, schemes, SETTINGS) if record.parameters["image"] == 2]
    assert len(found) == 9
    assert all(record.value == (0, 0, 0, 0, FARTHEST, 0, 0, 0, 0) for record in found[1:])
    for number in range(3, 7):
        cv2.imwrite(str(tmp_path / "drawn" / "one" / f"{number}.png"), blank)
    with pytest.raises(InputError, match="have no features"):
        make_schemes(dataset, SETTINGS, codebook, [6], [2])


def test_schemes_that_cannot_be(dataset: HPatches, codebook: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match=r"compares with subset-60-1: .*use other epsilons"):
        make_schemes(dataset, SETTINGS, codebook, [60], [1])

    def unread(*arguments: object) -> Points:
        raise AssertionError("images must not be read before mistakes are named")

    monkeypatch.setattr(tradeoff, "sample_descriptors", unread)
    for epsilons, sizes, message in (
        ([float("inf")], [1], "always there"),
        ([0.0], [1], "epsilon must be a number above 0"),
        ([6.0], [600], "subset_size"),
    ):
        with pytest.raises(InputError, match=message):
            make_schemes(dataset, SETTINGS, codebook, epsilons, sizes)
    with pytest.raises(InputError, match="rootsift codebook"):
        make_schemes(dataset, replace(SETTINGS, kind="rootsift"), codebook)
