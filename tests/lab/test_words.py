"""The task of word sets on a drawn scene whose homographies are known."""

import math
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import cv2
import numpy as np
import pytest

from featveil.core import InputError, MissingExtraError, WordSets
from featveil.core.records import Parameter, Record, append_records, read_records
from featveil.databases import Database, builtin
from featveil.datasets import HPatches, load_hpatches
from featveil.extractors import extract
from featveil.lab.bench import Measured, Study, headings_and_cells
from featveil.lab.scene_studies import RAW, Settings, WordImages, check_iterations, subsets
from featveil.lab.words import (
    BENCH,
    COLUMNS,
    Compared,
    Options,
    Released,
    _Sent,
    draw,
    make_schemes,
    measure,
    tables_of,
)
from featveil.lab.words import study as study_of
from featveil.matching import WordMatcher
from featveil.metrics import FARTHEST
from scenes import draw_turned_views

SETTINGS = Settings(max_features=300)
ITERATIONS = 5000
BOOK = "few (2,000)"


def study(
    dataset: HPatches,
    books: dict[str, Database],
    epsilons: list[float],
    sizes: list[int],
    nearest: Sequence[int] = (2, 4),
    settings: Settings = SETTINGS,
    iterations: int = ITERATIONS,
) -> Study[Compared]:
    schemes = make_schemes("sift", books, epsilons, sizes)
    names = {book.digest: name for name, book in books.items()}
    return study_of(dataset, Released(schemes, names, nearest), settings, iterations)


def raw_only(dataset: HPatches, settings: Settings = SETTINGS, iterations: int = ITERATIONS) -> Study[Compared]:
    return study_of(dataset, Released([RAW], {}, ()), settings, iterations)


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
    return list(BENCH.measured(study(dataset, {BOOK: codebook}, [12, 4], [1, 4], [4])))


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
    (scheme,) = subsets(codebook, [12], [4])
    released = _Sent(WordImages(dataset.scenes[0], SETTINGS, ITERATIONS), scheme)
    private = released.private(2)
    assert isinstance(private, WordSets)
    reference = extract(dataset.scenes[0].images[1], "sift", 300).descriptors
    slow = WordMatcher(codebook, "vocabulary").match(reference, private)
    np.testing.assert_array_equal(released.candidates(2, "vocabulary").indices, slow.indices)


def test_records_say_how_they_were_made(records: list[Record], codebook: Database) -> None:
    record = next(record for record in records if record.scheme == "subset-12-4")
    assert (record.task, record.dataset, record.seed, record.metric) == ("words", "drawn", 0, BENCH.metric)
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
    dataset: HPatches, codebook: Database, tmp_path: Path
) -> None:
    wanted = study(dataset, {BOOK: codebook}, [8], [2])
    whole = BENCH.resume(wanted, tmp_path / "whole.jsonl")
    path = tmp_path / "parts.jsonl"
    append_records(path, whole[:23])
    path.write_bytes(path.read_bytes()[:-30])  # the last one is torn
    measured: list[Measured] = []

    def counting(one: Compared) -> Measured:
        measured.append(measure(one))
        return measured[-1]

    counted, reports = replace(BENCH, measure=counting), list[tuple[int, int]]()
    assert counted.resume(wanted, path, lambda done, total: reports.append((done, total))) == whole
    assert path.read_bytes() == (tmp_path / "whole.jsonl").read_bytes()
    assert [one.value for one in measured] == [record.value for record in whole[22:]]
    assert (reports[0], reports[-1]) == ((22, 30), (30, 30))
    assert counted.resume(raw_only(dataset), path) == whole[:5]
    assert len(measured) == 8
    assert len(read_records(path)) == 30


@pytest.mark.parametrize(
    ("other", "iterations", "message"),
    [
        (replace(SETTINGS, seed=1), ITERATIONS, "seed 0, not 1"),
        (replace(SETTINGS, max_features=299), ITERATIONS, "max_features 300, not 299"),
        (SETTINGS, 4999, "iterations 5000, not 4999"),
        (replace(SETTINGS, kind="rootsift"), ITERATIONS, "kind sift, not rootsift"),
    ],
)
def test_other_settings_do_not_mix(
    dataset: HPatches, records: list[Record], tmp_path: Path, other: Settings, iterations: int, message: str
) -> None:
    path = tmp_path / "records.jsonl"
    append_records(path, records[:1])
    before = path.read_bytes()
    with pytest.raises(InputError, match=message):
        BENCH.resume(raw_only(dataset, other, iterations), path)
    assert path.read_bytes() == before


def test_a_codebook_keeps_its_name_and_another_one_is_measured_anew(
    dataset: HPatches, codebook: Database, records: list[Record], tmp_path: Path
) -> None:
    path = tmp_path / "records.jsonl"
    append_records(path, records)
    with pytest.raises(InputError, match="codebook_name"):
        BENCH.resume(study(dataset, {"renamed": codebook}, [12], [1]), path)
    other = Database(builtin("sift").values[2000:3000], "sift")
    again = BENCH.resume(study(dataset, {BOOK: other}, [12], [1], []), path)
    assert again[:10] == records[:10]
    assert {record.parameters["codebook"] for record in again[10:]} == {other.digest[:16]}
    assert len(read_records(path)) == len(records) + 15


def test_an_image_without_features_has_no_homography(tmp_path: Path, codebook: Database) -> None:
    draw_turned_views(tmp_path / "drawn" / "one", degrees=2, growth=0)
    cv2.imwrite(str(tmp_path / "drawn" / "one" / "2.png"), np.full((240, 320), 128, np.uint8))
    records = list(BENCH.measured(study(load_hpatches(tmp_path / "drawn"), {BOOK: codebook}, [12], [2])))
    blank = [record for record in records if record.parameters["image"] == 2]
    assert len(blank) == 6
    assert all(record.value == (0, 0, 0, 0, FARTHEST, 0) for record in blank)


def test_schemes_that_cannot_be(codebook: Database, tmp_path: Path) -> None:
    books = {BOOK: codebook}
    with pytest.raises(InputError, match="always there"):
        make_schemes("sift", books, [math.inf], [1])
    with pytest.raises(InputError, match="epsilon must be a number above 0"):
        make_schemes("sift", books, [0.0], [1])
    with pytest.raises(InputError, match="subset_size"):
        make_schemes("sift", books, [10], [2000])
    with pytest.raises(InputError, match="rootsift codebook"):
        make_schemes("rootsift", books, [10], [1])
    with pytest.raises(InputError, match="the same"):
        make_schemes("sift", {"a": codebook, "b": codebook}, [10], [1])
    for wrong in (0, 2**31, 1.5):
        with pytest.raises(InputError, match="iterations"):
            check_iterations(wrong)  # type: ignore[arg-type]
    usual = Options(tmp_path, tmp_path)
    assert len(make_schemes("sift", books, usual.epsilons, usual.subset_sizes)) == 2 + 1 + 4 * 5
    assert len(make_schemes("sift", books, [10, 10.0], [2, 2])) == 4
    assert [scheme.name for scheme in make_schemes("sift", {}, [10], [1])] == ["raw", "naive-10"]


def test_a_real_pair(real_data: Path) -> None:
    scenes = load_hpatches(real_data / "homography_seqs").scenes
    graf = tuple(scene for scene in scenes if scene.name == "oxford_graf")
    released = Released(subsets(builtin("sift"), [12], [2]), {}, [])
    wanted = study_of(HPatches("real", graf), released, Settings(max_features=1000), 20_000)
    found = next(BENCH.measured(wanted))
    assert found.scheme == "subset-12-2"
    assert named(found)["correct"] == 1
    assert named(found)["right inliers"] > 50


METRIC = "candidates, right candidates, inliers, right inliers, corner error, correct"
GOOD, BAD = (100.0, 50.0, 45.0, 40.0, 1.5, 1.0), (0.0, 0.0, 0.0, 0.0, 1e6, 0.0)


def record(
    mechanism: str, epsilon: float | None = None, k: int | None = None, book: str | None = None, **changed: object
) -> Record:
    """A record such as the task writes; `changed` are other parameters, or its value."""
    value = changed.pop("value", GOOD)
    parameters: dict[str, Parameter] = {"rule": "vocabulary" if k else "nearest", "features": [500, 1000]}
    parameters |= {"mechanism": mechanism, "epsilon": epsilon, "sent": 0.75, "kind": "sift", "max_features": 9}
    parameters |= {"iterations": 10_000, "pixels": 5.0}
    if k is not None:
        parameters |= {"subset_size": k, "codebook_name": book, "codebook": f"digest-of-{book}"}
    name = "-".join(str(part) for part in (mechanism, epsilon, k) if part is not None)
    return Record(
        "words",
        "drawn",
        name,
        METRIC,
        value,  # type: ignore[arg-type]
        "count",
        100,
        0,
        {},
        parameters=parameters | changed,  # type: ignore[arg-type]
    )


RECORDS = [
    record("raw", sent=1.0),
    record("naive", 10.0, sent=1e-304, value=BAD),
    record("quantised", k=1, book="a (9)"),
    record("subset", 10.0, 2, "a (9)", rule="nearest"),
    record("subset", 10.0, 2, "a (9)"),
    record("subset", 10.0, 2, "a (9)", value=BAD, features=[500, 2000]),
    record("subset", 10.0, 4, "a (9)"),
    record("subset", 12.0, 4, "a (9)"),
    record("quantised", k=1, book="b (8)"),
    record("subset", 10.0, 2, "b (8)"),
]


def test_rows_are_means_over_pairs() -> None:
    row = next(row for row in BENCH.summarize(RECORDS) if row.pairs == 2)
    assert (row.mechanism, row.codebook, row.rule, row.epsilon, row.subset_size) == (
        "subset",
        "a (9)",
        "vocabulary",
        10,
        2,
    )
    assert (row.features, row.image_epsilon) == (1500, 15_000)
    assert (row.candidates, row.inliers, row.right_inliers, row.correct) == (50, 22.5, 20, 0.5)
    assert row.right_share == 0.25  # the mean of the pairs, one of which has no candidates


def test_every_codebook_has_a_table_with_both_end_points() -> None:
    tables = tables_of(BENCH.summarize(RECORDS))
    assert list(tables) == ["a (9)", "b (8)"]
    found = [(row.mechanism, row.epsilon, row.subset_size, row.rule) for row in tables["a (9)"]]
    assert found == [
        ("raw", None, None, "nearest"),
        ("naive", 10, None, "nearest"),
        ("quantised", None, 1, "vocabulary"),
        ("subset", 10, 2, "vocabulary"),
        ("subset", 10, 4, "vocabulary"),
        ("subset", 12, 4, "vocabulary"),
        ("subset", 10, 2, "nearest"),
    ]
    assert [row.mechanism for row in tables["b (8)"]] == ["raw", "naive", "quantised", "subset"]
    assert list(tables_of(BENCH.summarize(RECORDS[:2]))) == [""]


def test_cells_have_both_epsilons() -> None:
    headings, cells = headings_and_cells(COLUMNS, BENCH.summarize(RECORDS))
    assert headings[2:4] == ["epsilon", "epsilon an image"]
    assert cells[0] == ("raw", "nearest", "inf", "inf", "", "1.000", "100", "50.0", "45", "40", "100", "1")
    assert cells[1] == ("naive", "nearest", "10", "10,000", "", "1e-304", "0", "0.0", "0", "0", "0", "1")
    assert cells[3] == ("subset", "vocabulary", "10", "15,000", "2", "0.750", "50", "25.0", "22", "20", "50", "2")


def test_markdown_has_a_section_a_codebook() -> None:
    text = BENCH.markdown(RECORDS)
    assert text.count("\n| raw | nearest | inf | inf |") == text.count("\n| naive |") == 2
    assert "## Codebook a (9), digest digest-of-a (9)" in text
    assert "10,000 iterations at 5 px" in text
    assert "Without a codebook" in BENCH.markdown(RECORDS[:1])


def test_records_of_something_else() -> None:
    one = RECORDS[0]
    for wrong in (
        replace(one, task="matching"),
        replace(one, value=1.0),
        replace(one, metric="accuracy"),
        replace(one, parameters={}),
    ):
        with pytest.raises(InputError, match=r"not one of words|lacks some"):
            BENCH.summarize([wrong])
    for damaged in (replace(one, value=(1.0,)), replace(one, parameters={**one.parameters, "features": 3})):
        with pytest.raises(InputError, match="damaged"):
            BENCH.summarize([damaged])
    with pytest.raises(InputError, match="no record"):
        BENCH.markdown([])


@pytest.mark.parametrize("records", [RECORDS, RECORDS[:1], RECORDS[2:3], RECORDS[4:5]])
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
