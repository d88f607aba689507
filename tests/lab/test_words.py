"""The task of word sets on a drawn scene whose homographies are known."""

import math
from collections import Counter
from dataclasses import replace
from pathlib import Path

import cv2
import numpy as np
import pytest

from featveil.core import InputError, WordSets
from featveil.core.records import Record, append_records, read_records
from featveil.databases import Database, builtin
from featveil.datasets import HPatches, load_hpatches
from featveil.defenses import Subset
from featveil.extractors import extract
from featveil.lab import words
from featveil.lab.words import METRIC, Scheme, Settings, make_schemes, run, run_resumable
from featveil.matching import WordMatcher
from featveil.metrics import FARTHEST
from scenes import draw_turned_views

SETTINGS = Settings(max_features=300, iterations=5000)
BOOK = "few (2,000)"


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> HPatches:
    root = tmp_path_factory.mktemp("data") / "drawn"
    draw_turned_views(root / "v_one", degrees=2, growth=0)
    return load_hpatches(root)


@pytest.fixture(scope="module")
def codebook() -> Database:
    return Database(builtin("sift").values[:2000], "sift")


@pytest.fixture(scope="module")
def records(dataset: HPatches, codebook: Database) -> list[Record]:
    return list(run(dataset, make_schemes("sift", {BOOK: codebook}, [12, 4], [1, 4], [4]), SETTINGS))


def mean(records: list[Record], name: str, scheme: str, rule: str = "vocabulary") -> float:
    chosen = [record for record in records if (record.scheme, record.parameters["rule"]) == (scheme, rule)]
    assert len(chosen) == 5
    return float(np.mean([named(record)[name] for record in chosen]))


def named(record: Record) -> dict[str, float]:
    assert isinstance(record.value, tuple)
    return dict(zip(record.metric.split(", "), record.value, strict=True))


def test_every_scheme_is_run_by_its_rules(records: list[Record]) -> None:
    found = Counter((record.scheme, record.parameters["rule"]) for record in records)
    expected = [("raw", "nearest"), ("naive-10", "nearest"), ("quantised", "vocabulary"), ("quantised", "nearest")]
    for epsilon in (12, 4):
        expected += [(f"subset-{epsilon}-1", "vocabulary")]
        expected += [(f"subset-{epsilon}-4", "vocabulary"), (f"subset-{epsilon}-4", "nearest")]
    assert list(found) == expected
    assert set(found.values()) == {5}


def test_raw_and_quantised_features_find_the_homography_and_naive_ones_do_not(records: list[Record]) -> None:
    assert mean(records, "correct", "raw", "nearest") == 1
    assert mean(records, "corner error", "raw", "nearest") < 2
    assert mean(records, "correct", "quantised") >= 0.8
    assert mean(records, "right inliers", "quantised") > 40
    assert mean(records, "right inliers", "raw", "nearest") > mean(records, "right inliers", "quantised")
    assert mean(records, "correct", "naive-10", "nearest") == 0
    assert mean(records, "right inliers", "naive-10", "nearest") < 2


def test_less_epsilon_finds_less(records: list[Record]) -> None:
    for rule in ("vocabulary", "nearest"):
        found = [mean(records, "right inliers", name, rule) for name in ("quantised", "subset-12-4", "subset-4-4")]
        # At epsilon 12 the true word is all but always sent.
        assert found[0] + 3 >= found[1] > found[2]
    # At epsilon 4 the true word is sent for 2.7 % of the features.
    assert mean(records, "right candidates", "subset-4-1") < 0.1 * mean(records, "right candidates", "quantised")
    assert mean(records, "correct", "subset-4-1") < 0.5


def test_more_words_mean_more_candidates_and_a_smaller_right_share(records: list[Record]) -> None:
    one, four = (mean(records, "candidates", f"subset-12-{k}") for k in (1, 4))
    assert four > 1.5 * one
    shares = [mean(records, "right candidates", f"subset-12-{k}") / many for k, many in ((1, one), (4, four))]
    assert shares[1] < shares[0]


def test_counts_are_of_different_private_features(records: list[Record]) -> None:
    for record in records:
        value = named(record)
        features = record.parameters["features"]
        assert isinstance(features, list)
        assert value["right inliers"] <= value["inliers"] <= min(value["candidates"], float(features[1]))
        assert value["right inliers"] <= value["right candidates"] <= value["candidates"] == record.count
        assert value["correct"] == (value["corner error"] <= 5)


def test_the_shortcut_gives_the_candidates_of_the_matcher(dataset: HPatches, codebook: Database) -> None:
    scheme = Scheme("subset-12-4", Subset(12, 4, codebook), ("vocabulary",), BOOK)
    released = words._Released(words.Images(dataset.scenes[0], SETTINGS), scheme, SETTINGS)
    private = released.private(2)
    assert isinstance(private, WordSets)
    reference = extract(dataset.scenes[0].images[1], "sift", 300).descriptors
    slow = WordMatcher(codebook, "vocabulary").match(reference, private)
    np.testing.assert_array_equal(released.candidates(2, "vocabulary").indices, slow.indices)


def test_records_say_how_they_were_made(records: list[Record], codebook: Database) -> None:
    record = next(record for record in records if record.scheme == "subset-12-4")
    assert (record.task, record.dataset, record.seed, record.metric) == ("words", "drawn", 0, METRIC)
    found = record.parameters
    assert (found["scene"], found["image"], found["change"], found["features"]) == ("v_one", 2, "viewpoint", [300, 300])
    assert (found["mechanism"], found["epsilon"], found["subset_size"]) == ("subset", 12.0, 4)
    assert (found["codebook"], found["codebook_name"], found["codebook_size"]) == (codebook.digest[:16], BOOK, 2000)
    assert (found["kind"], found["max_features"], found["iterations"], found["pixels"]) == ("sift", 300, 5000, 5.0)
    assert found["sent"] == pytest.approx(4 * math.exp(12) / (4 * math.exp(12) + 1996))
    raw, naive = records[0], records[5]
    assert (raw.parameters["epsilon"], raw.parameters["sent"]) == (None, 1.0)
    assert "codebook" not in raw.parameters
    assert naive.parameters["sent"] == pytest.approx(math.exp(10) / 2.0**1023 / 2)
    quantised = records[10].parameters
    assert (quantised["epsilon"], quantised["sent"], quantised["subset_size"]) == (None, 1.0, 1)


def test_a_resumed_run_equals_one_run_and_does_nothing_twice(
    dataset: HPatches, codebook: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    schemes = make_schemes("sift", {BOOK: codebook}, [8], [2])
    whole = run_resumable(dataset, schemes, SETTINGS, tmp_path / "whole.jsonl")
    path = tmp_path / "parts.jsonl"
    append_records(path, whole[:23])
    path.write_bytes(path.read_bytes()[:-30])  # the last one is torn
    measured: list[Record] = []
    real = words._record

    def counting(*arguments: object) -> Record:
        measured.append(real(*arguments))  # type: ignore[arg-type]
        return measured[-1]

    monkeypatch.setattr(words, "_record", counting)
    reports: list[tuple[int, int]] = []
    resumed = run_resumable(dataset, schemes, SETTINGS, path, lambda done, total: reports.append((done, total)))
    assert resumed == whole
    assert path.read_bytes() == (tmp_path / "whole.jsonl").read_bytes()
    assert measured == whole[22:]
    assert (reports[0], reports[-1]) == ((22, 30), (30, 30))
    assert run_resumable(dataset, schemes[:1], SETTINGS, path) == whole[:5]
    assert len(measured) == 8
    assert len(read_records(path)) == 30


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (replace(SETTINGS, seed=1), "seed 0, not 1"),
        (replace(SETTINGS, max_features=299), "max_features 300, not 299"),
        (replace(SETTINGS, iterations=4999), "iterations 5000, not 4999"),
        (replace(SETTINGS, kind="rootsift"), "kind sift, not rootsift"),
    ],
)
def test_other_settings_do_not_mix(
    dataset: HPatches, records: list[Record], tmp_path: Path, other: Settings, message: str
) -> None:
    path = tmp_path / "records.jsonl"
    append_records(path, records[:1])
    before = path.read_bytes()
    with pytest.raises(InputError, match=message):
        run_resumable(dataset, [Scheme()], other, path)
    assert path.read_bytes() == before


def test_a_codebook_keeps_its_name_and_another_one_is_measured_anew(
    dataset: HPatches, codebook: Database, records: list[Record], tmp_path: Path
) -> None:
    path = tmp_path / "records.jsonl"
    append_records(path, records)
    schemes = make_schemes("sift", {"renamed": codebook}, [12], [1])
    with pytest.raises(InputError, match="codebook_name"):
        run_resumable(dataset, schemes, SETTINGS, path)
    other = Database(builtin("sift").values[2000:3000], "sift")
    again = run_resumable(dataset, make_schemes("sift", {BOOK: other}, [12], [1], []), SETTINGS, path)
    assert again[:10] == records[:10]
    assert {record.parameters["codebook"] for record in again[10:]} == {other.digest[:16]}
    assert len(read_records(path)) == len(records) + 15


def test_an_image_without_features_has_no_homography(tmp_path: Path, codebook: Database) -> None:
    draw_turned_views(tmp_path / "drawn" / "one", degrees=2, growth=0)
    cv2.imwrite(str(tmp_path / "drawn" / "one" / "2.png"), np.full((240, 320), 128, np.uint8))
    schemes = make_schemes("sift", {BOOK: codebook}, [12], [2])
    records = list(run(load_hpatches(tmp_path / "drawn"), schemes, SETTINGS))
    blank = [record for record in records if record.parameters["image"] == 2]
    assert len(blank) == 6
    assert all(record.value == (0, 0, 0, 0, FARTHEST, 0) for record in blank)


def test_schemes_that_cannot_be(codebook: Database) -> None:
    books = {BOOK: codebook}
    with pytest.raises(InputError, match="always there"):
        make_schemes("sift", books, [math.inf])
    with pytest.raises(InputError, match="epsilon must be a number above 0"):
        make_schemes("sift", books, [0.0])
    with pytest.raises(InputError, match="subset_size"):
        make_schemes("sift", books, [10], [2000])
    with pytest.raises(InputError, match="rootsift codebook"):
        make_schemes("rootsift", books)
    with pytest.raises(InputError, match="the same"):
        make_schemes("sift", {"a": codebook, "b": codebook})
    for wrong in (0, 2**31, 1.5):
        with pytest.raises(InputError, match="iterations"):
            Settings(iterations=wrong)  # type: ignore[arg-type]
    assert len(make_schemes("sift", books)) == 2 + 1 + 4 * 5
    assert len(make_schemes("sift", books, [10, 10.0], [2, 2])) == 4
    assert [scheme.name for scheme in make_schemes("sift", {})] == ["raw", "naive-10"]


def test_a_real_pair(real_data: Path) -> None:
    scenes = load_hpatches(real_data / "homography_seqs").scenes
    graf = tuple(scene for scene in scenes if scene.name == "oxford_graf")
    schemes = make_schemes("sift", {"built-in": builtin("sift")}, [12], [2], [])
    settings = Settings(max_features=1000, iterations=20_000)
    found = next(run(HPatches("real", graf), schemes[-1:], settings))
    assert found.scheme == "subset-12-2"
    assert named(found)["correct"] == 1
    assert named(found)["right inliers"] > 50
