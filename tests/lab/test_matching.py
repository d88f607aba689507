"""The matching task on a drawn scene whose homographies are known."""

from collections import Counter
from pathlib import Path

import cv2
import numpy as np
import pytest

from featveil.core import InputError
from featveil.core.records import Record, append_records, read_records
from featveil.datasets import HPatches, load_hpatches
from featveil.defenses import Lifting
from featveil.lab import matching
from featveil.lab.matching import Scheme, Settings, make_schemes, run, run_resumable
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
    schemes = make_schemes("sift", ["random", "adversarial"], [4])
    records = list(run(dataset, schemes, SETTINGS))
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
    assert mean_at(list(run(dataset, [Scheme()], SETTINGS)), 1, "raw", "point-to-point") > 0.7


def test_wrong_homographies_are_not_found(tmp_path: Path) -> None:
    draw_turned_views(tmp_path / "drawn" / "v_one")
    for number in range(2, 7):
        np.savetxt(tmp_path / "drawn" / "v_one" / f"H_1_{number}", [[1, 0, 60], [0, 1, 40], [0, 0, 1]])
    records = list(run(load_hpatches(tmp_path / "drawn"), [Scheme()], SETTINGS))
    assert mean_at(records, 10, "raw", "point-to-point") < 0.1


def test_records_say_how_they_were_made(dataset: HPatches) -> None:
    scheme = make_schemes("rootsift", ["sub-hybrid"], [2])[1]
    record = next(run(dataset, [scheme], Settings("rootsift", 100, 3)))
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
    assert scheme.lifting is not None
    assert scheme.lifting.database is not None
    assert found["database"] == scheme.lifting.database.digest[:16]
    assert 0 < record.count <= 100


def test_a_resumed_run_equals_one_run_and_does_nothing_twice(
    dataset: HPatches, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    schemes = make_schemes("sift", ["sub-adversarial", "random"], [2])
    whole = run_resumable(dataset, schemes, SETTINGS, tmp_path / "whole.jsonl")
    path = tmp_path / "parts.jsonl"
    append_records(path, whole[:8])
    path.write_bytes(path.read_bytes()[:-30])  # the eighth is torn
    measured: list[Record] = []
    real = matching._record

    def counting(*arguments: object) -> Record:
        measured.append(real(*arguments))  # type: ignore[arg-type]
        return measured[-1]

    monkeypatch.setattr(matching, "_record", counting)
    reports: list[tuple[int, int]] = []
    resumed = run_resumable(dataset, schemes, SETTINGS, path, lambda done, total: reports.append((done, total)))
    assert resumed == whole
    assert path.read_bytes() == (tmp_path / "whole.jsonl").read_bytes()
    assert measured == whole[7:]
    assert reports[0] == (7, 25)
    assert reports[-1] == (25, 25)
    assert run_resumable(dataset, schemes, SETTINGS, path) == whole
    assert len(measured) == len(whole) - 7


def test_a_smaller_request_takes_its_part_of_the_file(dataset: HPatches, tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    run_resumable(dataset, make_schemes("sift", ["random"], [2]), SETTINGS, path)
    assert [record.scheme for record in run_resumable(dataset, [Scheme()], SETTINGS, path)] == ["raw"] * 5
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
    append_records(path, [next(run(dataset, [Scheme()], SETTINGS))])
    before = path.read_bytes()
    with pytest.raises(InputError, match=message):
        run_resumable(dataset, [Scheme()], other, path)
    assert path.read_bytes() == before


def test_an_image_without_features_counts_as_zero(tmp_path: Path) -> None:
    draw_turned_views(tmp_path / "drawn" / "one")
    cv2.imwrite(str(tmp_path / "drawn" / "one" / "2.png"), np.full((240, 320), 128, np.uint8))
    records = list(run(load_hpatches(tmp_path / "drawn"), make_schemes("sift", ["random"], [2]), SETTINGS))
    blank = [record for record in records if record.parameters["image"] == 2]
    assert [record.count for record in blank] == [0, 0, 0]
    assert all(record.value == (0.0,) * 10 for record in blank)


def test_schemes_that_cannot_be() -> None:
    with pytest.raises(InputError, match="attribute labels"):
        make_schemes("sift", ["hybrid+"])
    with pytest.raises(InputError, match="unknown lifting strategy"):
        make_schemes("sift", ["best"])
    with pytest.raises(InputError, match="unknown distance"):
        make_schemes("sift", ["random"], [2], ["near"])
    with pytest.raises(InputError, match="seed"):
        Settings(seed=-1)
    assert len(make_schemes("sift")) == 21


def test_concealed_descriptors_are_matched_with_concealed_ones(dataset: HPatches) -> None:
    same, mixed, blind = identity_network(), random_network(), random_network(rank=0)
    schemes = [Scheme(), *(Scheme(network=network) for network in (same, mixed, blind))]
    records = list(run(dataset, schemes, SETTINGS))
    raw = mean_at(records, 3, "raw", "point-to-point")
    assert mean_at(records, 3, same.name, "point-to-point") == pytest.approx(raw, abs=1e-3)
    assert abs(mean_at(records, 3, mixed.name, "point-to-point") - raw) < 0.1
    assert mean_at(records, 3, blind.name, "point-to-point") < 0.1
    told = next(record for record in records if record.scheme == mixed.name).parameters
    assert told["strategy"] == mixed.name == f"concealer-1-{mixed.digest[:8]}"
    assert (told["dimension"], told["lambda"], told["network"]) == (0, 1.0, mixed.digest[:16])


def test_another_network_of_the_same_name_does_not_mix(dataset: HPatches, tmp_path: Path) -> None:
    run_resumable(dataset, [Scheme(network=random_network())], SETTINGS, tmp_path / "r.jsonl")
    told = (tmp_path / "r.jsonl").read_text(encoding="utf-8").replace(random_network().digest[:16], "0" * 16)
    (tmp_path / "r.jsonl").write_text(told, encoding="utf-8")
    with pytest.raises(InputError, match="made with network 0000"):
        run_resumable(dataset, [Scheme(network=random_network())], SETTINGS, tmp_path / "r.jsonl")
    with pytest.raises(InputError, match="conceals and then lifts"):
        Scheme(Lifting("random", 2), network=random_network())


def test_a_learned_descriptor_is_known_by_its_weights(dataset: HPatches, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch", reason="networks: pip install 'featveil[learning]'")
    from featveil.learning.patch_networks import HardTFeat

    for seed in range(2):
        torch.manual_seed(seed)
        torch.save(HardTFeat().state_dict(), tmp_path / f"{seed}.pth")
    first, second = (Settings("hardtfeat", 30, weights=tmp_path / f"{seed}.pth") for seed in range(2))
    records = run_resumable(dataset, [Scheme()], first, tmp_path / "r.jsonl")
    assert mean_at(records, 10, "raw", "point-to-point") > 0.3
    assert len(str(records[0].parameters["weights"])) == 16 and records[0].parameters["kind"] == "hardtfeat"
    with pytest.raises(InputError, match="made with weights"):
        run_resumable(dataset, [Scheme()], second, tmp_path / "r.jsonl")


def test_a_real_pair(real_data: Path) -> None:
    root = real_data / "homography_seqs"
    scenes = tuple(scene for scene in load_hpatches(root).scenes if scene.name == "oxford_graf")
    record = next(run(HPatches("real", scenes), [Scheme()], Settings(max_features=500)))
    assert isinstance(record.value, tuple)
    assert record.value[2] > 0.6
