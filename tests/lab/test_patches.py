"""The bench of patch descriptors: raw, chance and other transforms; resumed; on drawn and on real data; its table."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import cv2
import numpy as np
import pytest

from featveil.core import InputError, Points
from featveil.core.records import Parameter, Record, append_records
from featveil.datasets import HPatches, PatchSet, load_hpatches, load_phototour
from featveil.extractors import SiftDescriber, make_describer
from featveil.lab import patches
from featveil.lab.bench import Measured, headings_and_cells
from featveil.lab.patches import (
    BENCH,
    FPR,
    MEASURES,
    Settings,
    Sources,
    Task,
    Transform,
    chance,
    columns_of,
    measure,
    raw,
    study,
)
from featveil.pipelines.patches_parts.patch_photos import build_from_photos
from featveil.pipelines.patches_parts.patch_sets import PatchRecipe
from scenes import draw_turned_views
from textures import texture

SETTINGS = Settings(max_patches=40, pairs=1000, queries=40)
BOTH: Mapping[str, Transform] = {"raw": raw, "chance": chance}


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Sources:
    """Two drawn scenes and a small patch set."""
    folder = tmp_path_factory.mktemp("data")
    for number in range(2):
        draw_turned_views(folder / "drawn" / f"v_{number}", seed=number)
        cv2.imwrite(str(folder / f"{number}.png"), texture(number))
    photos = {path.name: path for path in folder.glob("*.png")}
    build_from_photos(photos, folder / "small", PatchRecipe(views=2, max_features=50, pairs=200))
    return Sources(load_hpatches(folder / "drawn"), [load_phototour(folder / "small")])


def values(records: list[Record], scheme: str) -> dict[tuple[str, str], float]:
    """By measure and level."""
    return {
        (str(record.parameters["measure"]), str(record.parameters["level"])): record.value
        for record in records
        if record.scheme == scheme and isinstance(record.value, float)
    }


def test_raw_descriptors_beat_chance_on_every_measure(sources: Sources, tmp_path: Path) -> None:
    records = BENCH.resume(study(sources, SiftDescriber(), BOTH, SETTINGS), tmp_path / "r.jsonl")
    found, floor = values(records, "raw"), values(records, "chance")
    assert (
        found.keys() == floor.keys() == {(FPR, ""), *((one, level) for one in MEASURES for level in ("easy", "hard"))}
    )
    assert found.pop((FPR, "")) < 0.3 and floor.pop((FPR, "")) > 0.8
    assert all(found[key] > floor[key] + 0.2 for key in found)
    assert all(found[one, "easy"] > found[one, "hard"] for one in MEASURES)
    one = next(record for record in records if record.parameters["measure"] == "matching")
    assert (one.dataset, one.count, one.seed) == ("drawn", 5 * 80, 0)
    assert (one.parameters["kind"], one.parameters["weights"], one.parameters["max_patches"]) == ("sift", None, 40)


def test_a_transform_is_put_after_the_descriptor(sources: Sources, tmp_path: Path) -> None:
    def turned(points: Points) -> Points:
        return Points(points.values[:, ::-1].copy())

    def shorter(points: Points) -> Points:
        return Points(points.values[:, :16].copy())

    schemes = {"raw": raw, "turned": turned, "shorter": shorter}
    records = BENCH.resume(study(sources, SiftDescriber(), schemes, SETTINGS), tmp_path / "r.jsonl")
    whole, same, part = (values(records, scheme) for scheme in schemes)
    assert same == pytest.approx(whole, abs=1e-4)
    assert np.mean([part[one, "hard"] for one in MEASURES]) < np.mean([whole[one, "hard"] for one in MEASURES]) - 0.05


def test_chance_repeats_for_the_same_descriptors() -> None:
    some, others = (Points(np.random.default_rng(seed).random((5, 8)).astype(np.float32)) for seed in (0, 1))
    assert np.array_equal(chance(some).values, chance(some).values)
    assert not np.allclose(chance(some).values, chance(others).values)
    assert np.allclose(np.linalg.norm(chance(some).values, axis=1), 1)


def test_a_resumed_run_equals_one_run(sources: Sources, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = BENCH.resume(study(sources, SiftDescriber(), BOTH, SETTINGS), tmp_path / "whole.jsonl")
    assert len(whole) == 2 * 9
    append_records(tmp_path / "part.jsonl", whole[:7])
    measured: list[Measured] = []

    def counting(task: Task) -> Measured:
        measured.append(measure(task))
        return measured[-1]

    counted = replace(BENCH, measure=counting)
    assert counted.resume(study(sources, SiftDescriber(), BOTH, SETTINGS), tmp_path / "part.jsonl") == whole
    assert (tmp_path / "part.jsonl").read_bytes() == (tmp_path / "whole.jsonl").read_bytes()
    assert len(measured) == 11
    monkeypatch.setattr(patches, "scene_patches", None)  # nothing is cut or described again
    assert BENCH.resume(study(sources, SiftDescriber(), BOTH, SETTINGS), tmp_path / "whole.jsonl") == whole


def test_kinds_share_a_file_and_settings_do_not_mix(sources: Sources, tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    only = Sources(None, sources.sets)
    first = BENCH.resume(study(only, SiftDescriber(), {"raw": raw}, SETTINGS), path)
    second = BENCH.resume(study(only, SiftDescriber("rootsift"), {"raw": raw}, SETTINGS), path)
    assert [record.parameters["kind"] for record in first + second] == ["sift", "rootsift"]
    before = path.read_bytes()
    for other, message in (
        (replace(SETTINGS, seed=1), "seed 0, not 1"),
        (replace(SETTINGS, pairs=7), "pairs 1000, not 7"),
    ):
        with pytest.raises(InputError, match=message):
            BENCH.resume(study(only, SiftDescriber(), {"raw": raw}, other), path)
    weights = tmp_path / "w.pth"
    weights.write_bytes(b"one")
    stored = replace(first[0], parameters={**first[0].parameters, "kind": "hardtfeat", "weights": "0" * 16})
    append_records(path, [stored])
    with pytest.raises(InputError, match="made with weights 0000000000000000"):
        BENCH.resume(study(only, make_describer("hardtfeat", weights), {"raw": raw}, SETTINGS), path)
    assert path.read_bytes().startswith(before)


def test_sources_that_cannot_be(sources: Sources) -> None:
    assert sources.sequences is not None
    one = sources.sets[0]
    with pytest.raises(InputError, match="nothing to measure"):
        Sources()
    with pytest.raises(InputError, match="at least two"):
        Sources(HPatches("one", sources.sequences.scenes[:1]))
    with pytest.raises(InputError, match="called small"):
        Sources(None, [one, one])
    with pytest.raises(InputError, match="no file of pairs"):
        Sources(None, [PatchSet("bare", one.folder, one.points)])
    for wrong in ({"max_patches": 1}, {"pairs": 4}, {"queries": 0}, {"seed": -1}):
        with pytest.raises(InputError, match=next(iter(wrong))):
            Settings(**wrong)


def test_real_sequences(real_data: Path, tmp_path: Path) -> None:
    every = load_hpatches(real_data / "homography_seqs")
    few = HPatches("few", tuple(scene for scene in every.scenes if scene.name in ("oxford_graf", "oxford_leuven")))
    settings = Settings(max_patches=150, pairs=5000, queries=100)
    found = {}
    for kind in ("sift", "rootsift"):
        records = BENCH.resume(study(Sources(few), make_describer(kind), BOTH, settings), tmp_path / "r.jsonl")
        found[kind] = values(records, "raw")
        assert max(values(records, "chance").values()) < 0.3
    assert found["sift"]["matching", "easy"] > 0.6 and found["sift"]["verification inter", "easy"] > 0.9
    assert found["rootsift"]["matching", "hard"] > found["sift"]["matching", "hard"] > 0.15


def record(kind: str, scheme: str, measure: str, level: str, value: float, dataset: str = "seqs") -> Record:
    parameters: dict[str, Parameter] = {"kind": kind, "measure": measure, "level": level}
    parameters |= {"max_patches": 500, "queries": 1000}
    return Record("patches", dataset, scheme, measure, value, "share", 10, 0, {}, parameters=parameters)


@pytest.fixture
def records() -> list[Record]:
    records = []
    for scheme, factor in (("chance", 0.1), ("raw", 1.0)):
        records.append(record("sift", scheme, "FPR@95", "", 0.02 / factor, "liberty"))
        for level, value in (("easy", 0.8), ("hard", 0.4)):
            for place, name in enumerate(("verification intra", "verification inter", "matching", "retrieval")):
                records.append(record("sift", scheme, name, level, factor * (value + 0.02 * place)))
    return records


def cells_of(records: list[Record]) -> tuple[list[str], list[tuple[str, ...]]]:
    rows = BENCH.summarize(records)
    return headings_and_cells(columns_of(rows), rows)


def test_rows(records: list[Record]) -> None:
    raw, chance = BENCH.summarize(records)
    assert (raw.scheme, chance.scheme) == ("raw", "chance")
    assert raw.false_positives == {"liberty": 0.02}
    assert raw.precisions["verification easy"] == pytest.approx(0.81)
    assert raw.mean_of("verification") == pytest.approx(0.61)
    assert raw.mean_precision == pytest.approx((0.61 + 0.64 + 0.66) / 3)
    assert raw.mean_of("classification") is None


def test_the_table_has_every_number(records: list[Record]) -> None:
    headings, cells = cells_of(records)
    assert headings[:3] == ["descriptor", "scheme", "FPR@95 liberty"]
    assert headings[3:5] == ["verification easy", "verification hard"] and headings[-1] == "mean mAP"
    assert cells[0] == ("sift", "raw", "2.00", "81.00", "41.00", "84.00", "44.00", "86.00", "46.00", "63.67")
    means = [column.screen for column in columns_of(BENCH.summarize(records), means=True)]
    assert means[2:] == ["FPR@95\nliberty", "verification\nmAP", "matching\nmAP", "retrieval\nmAP", "mean\nmAP"]
    text = BENCH.markdown(records)
    assert "| sift | raw | 2.00 | 81.00" in text and "seed 0" in text and "random vectors" in text
    assert max(len(line) for line in text.splitlines() if not line.startswith("|")) <= 120


def test_what_was_not_measured_is_a_dash(records: list[Record]) -> None:
    only = [record("rootsift", "raw", "FPR@95", "", 0.01, "liberty"), *records]
    headings, cells = cells_of(only)
    assert cells[0] == ("rootsift", "raw", "1.00", *["-"] * 7)
    headings, cells = cells_of(only[:1])
    assert headings == ["descriptor", "scheme", "FPR@95 liberty"] and cells == [("rootsift", "raw", "1.00")]


def test_records_that_make_no_table(records: list[Record]) -> None:
    with pytest.raises(InputError, match="no record"):
        BENCH.markdown([])
    with pytest.raises(InputError, match="one measurement twice"):
        BENCH.summarize([*records, records[-1]])
    with pytest.raises(InputError, match="not one of patches"):
        BENCH.summarize([replace(records[0], task="matching")])
    with pytest.raises(InputError, match="damaged"):
        BENCH.summarize([replace(records[0], value=(0.5, 0.5))])
    with pytest.raises(InputError, match="two data sets"):
        BENCH.summarize([*records, record("sift", "raw", "matching", "easy", 0.5, "others")])
