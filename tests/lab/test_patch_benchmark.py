"""The benchmark of patch descriptors: raw, chance and other transforms; resumed; on drawn and on real data."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import cv2
import numpy as np
import pytest

from featveil.core import InputError, Points
from featveil.core.records import Record, append_records
from featveil.datasets import HPatches, PatchSet, load_hpatches, load_phototour
from featveil.extractors import SiftDescriber, make_describer
from featveil.lab import patch_benchmark
from featveil.lab.patch_benchmark import (
    FPR,
    MEASURES,
    PatchSettings,
    PatchSources,
    Transform,
    chance,
    raw,
    run_resumable,
)
from featveil.pipelines.patches_parts.patch_photos import build_from_photos
from featveil.pipelines.patches_parts.patch_sets import PatchRecipe
from scenes import draw_turned_views
from textures import texture

SETTINGS = PatchSettings(max_patches=40, pairs=1000, queries=40)
BOTH: Mapping[str, Transform] = {"raw": raw, "chance": chance}


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> PatchSources:
    """Two drawn scenes and a small patch set."""
    folder = tmp_path_factory.mktemp("data")
    for number in range(2):
        draw_turned_views(folder / "drawn" / f"v_{number}", seed=number)
        cv2.imwrite(str(folder / f"{number}.png"), texture(number))
    photos = {path.name: path for path in folder.glob("*.png")}
    build_from_photos(photos, folder / "small", PatchRecipe(views=2, max_features=50, pairs=200))
    return PatchSources(load_hpatches(folder / "drawn"), [load_phototour(folder / "small")])


def values(records: list[Record], scheme: str) -> dict[tuple[str, str], float]:
    """By measure and level."""
    return {
        (str(record.parameters["measure"]), str(record.parameters["level"])): record.value
        for record in records
        if record.scheme == scheme and isinstance(record.value, float)
    }


def test_raw_descriptors_beat_chance_on_every_measure(sources: PatchSources, tmp_path: Path) -> None:
    records = run_resumable(sources, SiftDescriber(), BOTH, SETTINGS, tmp_path / "r.jsonl")
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


def test_a_transform_is_put_after_the_descriptor(sources: PatchSources, tmp_path: Path) -> None:
    def turned(points: Points) -> Points:
        return Points(points.values[:, ::-1].copy())

    def shorter(points: Points) -> Points:
        return Points(points.values[:, :16].copy())

    schemes = {"raw": raw, "turned": turned, "shorter": shorter}
    records = run_resumable(sources, SiftDescriber(), schemes, SETTINGS, tmp_path / "r.jsonl")
    whole, same, part = (values(records, scheme) for scheme in schemes)
    assert same == pytest.approx(whole, abs=1e-4)
    assert np.mean([part[one, "hard"] for one in MEASURES]) < np.mean([whole[one, "hard"] for one in MEASURES]) - 0.05


def test_chance_repeats_for_the_same_descriptors() -> None:
    some, others = (Points(np.random.default_rng(seed).random((5, 8)).astype(np.float32)) for seed in (0, 1))
    assert np.array_equal(chance(some).values, chance(some).values)
    assert not np.allclose(chance(some).values, chance(others).values)
    assert np.allclose(np.linalg.norm(chance(some).values, axis=1), 1)


def test_a_resumed_run_equals_one_run(sources: PatchSources, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = run_resumable(sources, SiftDescriber(), BOTH, SETTINGS, tmp_path / "whole.jsonl")
    assert len(whole) == 2 * 9
    append_records(tmp_path / "part.jsonl", whole[:7])
    measured: list[object] = []
    real = patch_benchmark._record
    monkeypatch.setattr(patch_benchmark, "_record", lambda *given: measured.append(given) or real(*given))  # type: ignore[func-returns-value]
    assert run_resumable(sources, SiftDescriber(), BOTH, SETTINGS, tmp_path / "part.jsonl") == whole
    assert (tmp_path / "part.jsonl").read_bytes() == (tmp_path / "whole.jsonl").read_bytes()
    assert len(measured) == 11
    monkeypatch.setattr(patch_benchmark, "scene_patches", None)  # nothing is cut or described again
    assert run_resumable(sources, SiftDescriber(), BOTH, SETTINGS, tmp_path / "whole.jsonl") == whole


def test_kinds_share_a_file_and_settings_do_not_mix(sources: PatchSources, tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    only = PatchSources(None, sources.sets)
    first = run_resumable(only, SiftDescriber(), {"raw": raw}, SETTINGS, path)
    second = run_resumable(only, SiftDescriber("rootsift"), {"raw": raw}, SETTINGS, path)
    assert [record.parameters["kind"] for record in first + second] == ["sift", "rootsift"]
    before = path.read_bytes()
    for other, message in (
        (replace(SETTINGS, seed=1), "seed 0, not 1"),
        (replace(SETTINGS, pairs=7), "pairs 1000, not 7"),
    ):
        with pytest.raises(InputError, match=message):
            run_resumable(only, SiftDescriber(), {"raw": raw}, other, path)
    weights = tmp_path / "w.pth"
    weights.write_bytes(b"one")
    stored = replace(first[0], parameters={**first[0].parameters, "kind": "hardtfeat", "weights": "0" * 16})
    append_records(path, [stored])
    with pytest.raises(InputError, match="made with weights 0000000000000000"):
        run_resumable(only, make_describer("hardtfeat", weights), {"raw": raw}, SETTINGS, path)
    assert path.read_bytes().startswith(before)


def test_sources_that_cannot_be(sources: PatchSources) -> None:
    assert sources.sequences is not None
    one = sources.sets[0]
    with pytest.raises(InputError, match="nothing to measure"):
        PatchSources()
    with pytest.raises(InputError, match="at least two"):
        PatchSources(HPatches("one", sources.sequences.scenes[:1]))
    with pytest.raises(InputError, match="called small"):
        PatchSources(None, [one, one])
    with pytest.raises(InputError, match="no file of pairs"):
        PatchSources(None, [PatchSet("bare", one.folder, one.points)])
    for wrong in ({"max_patches": 1}, {"pairs": 4}, {"queries": 0}, {"seed": -1}):
        with pytest.raises(InputError, match=next(iter(wrong))):
            PatchSettings(**wrong)


def test_real_sequences(real_data: Path, tmp_path: Path) -> None:
    every = load_hpatches(real_data / "homography_seqs")
    few = HPatches("few", tuple(scene for scene in every.scenes if scene.name in ("oxford_graf", "oxford_leuven")))
    settings = PatchSettings(max_patches=150, pairs=5000, queries=100)
    found = {}
    for kind in ("sift", "rootsift"):
        records = run_resumable(PatchSources(few), make_describer(kind), BOTH, settings, tmp_path / "r.jsonl")
        found[kind] = values(records, "raw")
        assert max(values(records, "chance").values()) < 0.3
    assert found["sift"]["matching", "easy"] > 0.6 and found["sift"]["verification inter", "easy"] > 0.9
    assert found["rootsift"]["matching", "hard"] > found["sift"]["matching", "hard"] > 0.15
