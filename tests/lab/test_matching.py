"""The matching task on a drawn scene whose homographies are known."""

import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import cv2
import numpy as np
import pytest

from featveil.audit.schemes import Scheme
from featveil.core import ConcealingNetwork, InputError, MissingExtraError
from featveil.core.records import Parameter, Record, append_records, read_records
from featveil.datasets import HPatches, load_hpatches
from featveil.defenses import Concealer, Lifting
from featveil.lab.bench import Measured, headings_and_cells, silent
from featveil.lab.matching import BENCH, COLUMNS, MatchingRow, Options, Pair, draw, matching, measure, rows_of, study
from featveil.lab.scene_studies import RAW, Settings, lifted
from networks import identity_network, random_network
from scenes import draw_turned_views

SETTINGS = Settings(max_features=300)


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> HPatches:
    root = tmp_path_factory.mktemp("data") / "drawn"
    draw_turned_views(root / "v_one")
    return load_hpatches(root)


def mean_at(records: list[Record], threshold: int, scheme: str, distance: str) -> float:
    chosen = [
        record.value for record in records if (record.scheme, record.parameters["distance"]) == (scheme, distance)
    ]
    assert len(chosen) == 5
    return float(np.mean([value[threshold - 1] for value in chosen if isinstance(value, tuple)]))


def test_raw_and_lifted_features_find_the_homography(dataset: HPatches) -> None:
    schemes = [RAW, *lifted("sift", [4], ["random", "adversarial"])]
    records = list(BENCH.measured(study(dataset, schemes, SETTINGS)))
    assert Counter(record.scheme for record in records) == {"raw": 5, "random-4": 10, "adversarial-4": 10}
    raw = mean_at(records, 3, "raw", "point-to-point")
    assert raw > 0.85
    assert abs(mean_at(records, 3, "random-4", "point-to-subspace") - raw) < 0.05
    assert abs(mean_at(records, 3, "random-4", "subspace-to-subspace") - raw) < 0.05
    # 300 x 300 features draw 4 of 16,384 entries each: shared entries make wrong matches of distance 0.
    assert mean_at(records, 3, "adversarial-4", "subspace-to-subspace") < raw - 0.05
    assert mean_at(records, 3, "raw", "point-to-point") <= mean_at(records, 10, "raw", "point-to-point")


def test_pixel_centres_are_where_the_homography_says(dataset: HPatches) -> None:
    # Half a pixel of convention error would be visible at 1 px under rotation and scaling.
    assert mean_at(list(BENCH.measured(study(dataset, [RAW], SETTINGS))), 1, "raw", "point-to-point") > 0.7


def test_wrong_homographies_are_not_found(tmp_path: Path) -> None:
    draw_turned_views(tmp_path / "drawn" / "v_one")
    for number in range(2, 7):
        np.savetxt(tmp_path / "drawn" / "v_one" / f"H_1_{number}", [[1, 0, 60], [0, 1, 40], [0, 0, 1]])
    records = list(BENCH.measured(study(load_hpatches(tmp_path / "drawn"), [RAW], SETTINGS)))
    assert mean_at(records, 10, "raw", "point-to-point") < 0.1


def test_records_say_how_they_were_made(dataset: HPatches) -> None:
    scheme = lifted("rootsift", [2])[0]
    record = next(BENCH.measured(study(dataset, [scheme], Settings("rootsift", 100, 3))))
    assert (record.task, record.dataset, record.scheme, record.seed) == (
        "matching",
        "drawn",
        "sub-hybrid-2",
        3,
    )
    found = record.parameters
    assert (found["scene"], found["image"], found["change"]) == ("v_one", 2, "viewpoint")
    assert (found["strategy"], found["dimension"], found["kind"]) == ("sub-hybrid", 2, "rootsift")
    assert found["features"] == [100, 100]
    assert isinstance(scheme.defense, Lifting) and scheme.defense.database is not None
    assert found["database"] == scheme.defense.database.digest[:16]
    assert 0 < record.count <= 100


def test_a_resumed_run_equals_one_run_and_does_nothing_twice(dataset: HPatches, tmp_path: Path) -> None:
    schemes = [RAW, *lifted("sift", [2], ["sub-adversarial", "random"])]
    whole = BENCH.resume(study(dataset, schemes, SETTINGS), tmp_path / "whole.jsonl")
    path = tmp_path / "parts.jsonl"
    append_records(path, whole[:8])
    path.write_bytes(path.read_bytes()[:-30])  # the eighth is torn
    measured: list[Measured] = []

    def counting(pair: Pair) -> Measured:
        measured.append(measure(pair))
        return measured[-1]

    reports: list[tuple[int, int]] = []
    counted = replace(BENCH, measure=counting)
    resumed = counted.resume(study(dataset, schemes, SETTINGS), path, lambda done, total: reports.append((done, total)))
    assert resumed == whole
    assert path.read_bytes() == (tmp_path / "whole.jsonl").read_bytes()
    assert [one.value for one in measured] == [record.value for record in whole[7:]]
    assert reports[0] == (7, 25)
    assert reports[-1] == (25, 25)
    assert BENCH.resume(study(dataset, schemes, SETTINGS), path) == whole
    assert len(measured) == len(whole) - 7


def test_a_smaller_request_takes_its_part_of_the_file(dataset: HPatches, tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    BENCH.resume(study(dataset, [RAW, *lifted("sift", [2], ["random"])], SETTINGS), path)
    assert [record.scheme for record in BENCH.resume(study(dataset, [RAW], SETTINGS), path)] == ["raw"] * 5
    assert len(read_records(path)) == 15


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (Settings(max_features=300, seed=1), "seed 0, not 1"),
        (Settings(max_features=299), "max_features 300, not 299"),
        (Settings("rootsift", 300), "kind sift, not rootsift"),
    ],
)
def test_other_settings_do_not_mix(dataset: HPatches, tmp_path: Path, other: Settings, message: str) -> None:
    path = tmp_path / "records.jsonl"
    append_records(path, [next(BENCH.measured(study(dataset, [RAW], SETTINGS)))])
    before = path.read_bytes()
    with pytest.raises(InputError, match=message):
        BENCH.resume(study(dataset, [RAW], other), path)
    assert path.read_bytes() == before


def test_an_image_without_features_counts_as_zero(tmp_path: Path) -> None:
    draw_turned_views(tmp_path / "drawn" / "one")
    cv2.imwrite(str(tmp_path / "drawn" / "one" / "2.png"), np.full((240, 320), 128, np.uint8))
    schemes = [RAW, *lifted("sift", [2], ["random"])]
    records = list(BENCH.measured(study(load_hpatches(tmp_path / "drawn"), schemes, SETTINGS)))
    blank = [record for record in records if record.parameters["image"] == 2]
    assert [record.count for record in blank] == [0, 0, 0]
    assert all(record.value == (0.0,) * 10 for record in blank)


def test_schemes_that_cannot_be(dataset: HPatches, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="attribute labels"):
        lifted("sift", [2], ["hybrid+"])
    with pytest.raises(InputError, match="unknown lifting strategy"):
        lifted("sift", [2], ["best"])
    with pytest.raises(InputError, match="--dimensions"):
        Options(tmp_path, tmp_path, dimensions=())
    with pytest.raises(InputError, match="seed"):
        Settings(seed=-1)
    every = matching(Options(dataset.scenes[0].images[1].parents[1], tmp_path), silent)
    assert len({case.scheme for case in every.cases()}) == 21


def concealed(network: ConcealingNetwork) -> Scheme:
    return Scheme(network.name, Concealer(network))


def test_concealed_descriptors_are_matched_with_concealed_ones(dataset: HPatches) -> None:
    same, mixed, blind = identity_network(), random_network(), random_network(rank=0)
    schemes = [RAW, *(concealed(network) for network in (same, mixed, blind))]
    records = list(BENCH.measured(study(dataset, schemes, SETTINGS)))
    raw = mean_at(records, 3, "raw", "point-to-point")
    assert mean_at(records, 3, same.name, "point-to-point") == pytest.approx(raw, abs=1e-3)
    assert abs(mean_at(records, 3, mixed.name, "point-to-point") - raw) < 0.1
    assert mean_at(records, 3, blind.name, "point-to-point") < 0.1
    told = next(record for record in records if record.scheme == mixed.name).parameters
    assert told["strategy"] == mixed.name == f"concealer-1-{mixed.digest[:8]}"
    assert (told["dimension"], told["lambda"], told["network"]) == (0, 1.0, mixed.digest[:16])


def test_another_network_of_the_same_name_does_not_mix(dataset: HPatches, tmp_path: Path) -> None:
    BENCH.resume(study(dataset, [concealed(random_network())], SETTINGS), tmp_path / "r.jsonl")
    told = (tmp_path / "r.jsonl").read_text(encoding="utf-8").replace(random_network().digest[:16], "0" * 16)
    (tmp_path / "r.jsonl").write_text(told, encoding="utf-8")
    with pytest.raises(InputError, match="made with network 0000"):
        BENCH.resume(study(dataset, [concealed(random_network())], SETTINGS), tmp_path / "r.jsonl")


def test_a_learned_descriptor_is_known_by_its_weights(dataset: HPatches, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch", reason="networks: pip install 'featveil[learning]'")
    from featveil.learning.patch_networks import HardTFeat

    for seed in range(2):
        torch.manual_seed(seed)
        torch.save(HardTFeat().state_dict(), tmp_path / f"{seed}.pth")
    first, second = (Settings("hardtfeat", 30, weights=tmp_path / f"{seed}.pth") for seed in range(2))
    records = BENCH.resume(study(dataset, [RAW], first), tmp_path / "r.jsonl")
    assert mean_at(records, 10, "raw", "point-to-point") > 0.3
    assert len(str(records[0].parameters["weights"])) == 16 and records[0].parameters["kind"] == "hardtfeat"
    with pytest.raises(InputError, match="made with weights"):
        BENCH.resume(study(dataset, [RAW], second), tmp_path / "r.jsonl")


def test_a_real_pair(real_data: Path) -> None:
    root = real_data / "homography_seqs"
    scenes = tuple(scene for scene in load_hpatches(root).scenes if scene.name == "oxford_graf")
    record = next(BENCH.measured(study(HPatches("real", scenes), [RAW], Settings(max_features=500))))
    assert isinstance(record.value, tuple)
    assert record.value[2] > 0.6


_RAMP = tuple(step / 10 for step in range(1, 11))


def record(strategy: str, dimension: int, distance: str, image: int = 2, value: object = _RAMP) -> Record:
    """A record such as the task writes."""
    parameters: dict[str, Parameter] = {
        "strategy": strategy,
        "dimension": dimension,
        "distance": distance,
        "image": image,
    }
    return Record(
        "matching",
        "drawn",
        f"{strategy}-{dimension}",
        BENCH.metric,
        value,  # type: ignore[arg-type]
        "share",
        100 * image,
        0,
        {},
        parameters={**parameters, "kind": "sift", "max_features": 9},
    )


RECORDS = [
    record("random", 16, "subspace-to-subspace"),
    record("random", 2, "subspace-to-subspace"),
    record("random", 2, "point-to-subspace"),
    record("random", 2, "point-to-subspace", 4, (0.0,) * 10),
    record("raw", 0, "point-to-point"),
]


def test_rows_are_means_over_pairs_with_raw_first() -> None:
    rows = BENCH.summarize(RECORDS)
    assert [(row.strategy, row.dimension, row.distance) for row in rows] == [
        ("raw", 0, "point-to-point"),
        ("random", 2, "point-to-subspace"),
        ("random", 16, "subspace-to-subspace"),
        ("random", 2, "subspace-to-subspace"),
    ]
    assert (rows[1].pairs, rows[1].matches) == (2, 300)
    assert rows[1].at(10) == 0.5
    assert rows[1].right == pytest.approx((200 * 0.3 + 400 * 0) / 2)  # of pairs, not of the mean accuracy
    assert rows[0].at(3) == 0.3


def test_cells_are_percent() -> None:
    headings, cells = headings_and_cells(COLUMNS, BENCH.summarize(RECORDS[:1]))
    assert headings[3:7] == ["MMA@1", "MMA@3", "MMA@5", "MMA@10"]
    assert cells[0] == ("random", "16", "subspace-to-subspace", "10.0", "30.0", "50.0", "100.0", "200", "60", "1")


def test_markdown_has_a_line_a_scheme_and_parts_by_change() -> None:
    plain = BENCH.markdown(RECORDS)
    assert plain.count("\n| ") == 2 + 4
    assert "illumination" not in plain
    light = replace(RECORDS[0], parameters={**RECORDS[0].parameters, "change": "illumination"})
    assert "change in illumination" in BENCH.markdown([light, *RECORDS])
    assert rows_of([light, *RECORDS], "illumination")[0].pairs == 1


def test_records_of_something_else() -> None:
    for wrong in (
        replace(RECORDS[0], task="faces"),
        replace(RECORDS[0], value=1.0),
        replace(RECORDS[0], parameters={}),
    ):
        with pytest.raises(InputError, match=r"not one of matching|lacks some"):
            BENCH.summarize([wrong])
    with pytest.raises(InputError, match="no record"):
        BENCH.markdown([])


RAW_ROW = MatchingRow("raw", 0, "point-to-point", (0.5,) * 10, 5, 10.0, 4.0)
ROWS = [
    RAW_ROW,
    MatchingRow("random", 2, "point-to-subspace", (0.4,) * 10, 5, 10.0, 4.0),
    MatchingRow("sub-hybrid", 16, "subspace-to-subspace", (0.3,) * 10, 5, 10.0, 4.0),
]


@pytest.mark.parametrize("rows", [ROWS, [RAW_ROW], ROWS[1:]])
def test_a_picture_is_written(tmp_path: Path, rows: list[MatchingRow]) -> None:
    pytest.importorskip("matplotlib")
    draw(rows, tmp_path / "curve.png", "a title")
    assert (tmp_path / "curve.png").read_bytes().startswith(b"\x89PNG")
    assert [path.name for path in tmp_path.iterdir()] == ["curve.png"]


def test_without_matplotlib_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(MissingExtraError, match=r"featveil\[plots\]"):
        draw(ROWS, tmp_path / "curve.png")
    assert list(tmp_path.iterdir()) == []
