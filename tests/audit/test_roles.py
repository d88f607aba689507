"""Who has which photographs, pairs with a known homography, and pools that share nothing."""

import logging
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest

from featveil.audit.request import Attacker, Request, Settings, Source, grid, with_identity
from featveil.audit.roles import bundled, prepare
from featveil.audit.schemes import Devices, Scheme, Victim
from featveil.audit.victims import Dataset, descriptors_of, find_photographs
from featveil.core import DatasetError, Features, InputError
from featveil.core.arrays import Float32
from featveil.databases import Database, builtin, save_database
from featveil.matching import match
from featveil.metrics import transfer_errors
from featveil.stores.pool import Pool
from scenes import draw_turned_views
from victims import picture

SETTINGS = Settings(max_features=60)


def draw_photographs(folder: Path, count: int) -> Path:
    """Different textures, named 0.png to 9.png."""
    folder.mkdir()
    for number in range(count):
        noise = np.random.default_rng(number).integers(0, 256, (30, 40), np.uint8)
        cv2.imwrite(str(folder / f"{number}.png"), cv2.resize(noise, (160, 120), interpolation=cv2.INTER_CUBIC))
    return folder


def hardened(confounders: int = 2) -> Scheme:
    (scheme,) = grid({"name": "hardened", "confounders": confounders, "dimension": 4}, "sift")
    return scheme


def request(*sources: Source, **changes: Any) -> Request:
    schemes = tuple(with_identity([hardened()]))
    usual: dict[str, Any] = {
        "schemes": schemes,
        "sources": sources,
        "settings": SETTINGS,
        "methods": (),
        "private": None,
    }
    return Request(**usual | changes)


@pytest.fixture
def read_files(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Which files were read for descriptors, one list a call."""
    calls: list[list[str]] = []

    def spying(files: list[Path], *others: Any) -> Float32:
        calls.append([path.name for path in files])
        return descriptors_of(files, *others)

    monkeypatch.setattr("featveil.audit.roles.descriptors_of", spying)
    return calls


def right_matches(dataset: Dataset) -> list[tuple[int, float]]:
    """Of each victim how many matches are right, and by how much these are off in the middle."""
    errors_of = []
    for victim in dataset.victims:
        assert victim.features.keypoints is not None and victim.second_view.keypoints is not None
        assert victim.homography is not None
        matches = match(victim.features, victim.second_view)
        errors = transfer_errors(matches, victim.features.keypoints, victim.second_view.keypoints, victim.homography)
        errors_of.append((int((errors < 3).sum()), float(np.median(errors[errors < 3]))))
    return errors_of


def test_a_folder_is_split_into_victims_attacker_and_pool(tmp_path: Path, read_files: list[list[str]]) -> None:
    folder = draw_photographs(tmp_path / "mine", 9)
    audit = prepare(request(Source(folder, "mine", 3)))
    assert [victim.name for victim in audit.datasets[0].victims] == ["0.png", "3.png", "6.png"]
    assert sorted(read_files) == [["1.png", "4.png", "7.png"], ["2.png", "5.png", "8.png"]]
    ours = {row.tobytes() for row in np.rint(512 * bundled("sift", 0)).astype(np.uint8)}
    assert len(audit.attacker) > len(ours)
    assert ours & {row.tobytes() for row in audit.attacker.values}


def test_pairs_of_a_folder_have_the_homography_that_made_them(tmp_path: Path) -> None:
    folder = draw_photographs(tmp_path / "mine", 2)
    (dataset,) = prepare(request(Source(folder, "mine"))).datasets
    for right, off in right_matches(dataset):
        assert right > 15 and off < 0.4


def test_the_built_in_pictures_have_theirs() -> None:
    (dataset,) = prepare(request()).datasets
    assert [victim.name for victim in dataset.victims] == ["board-1.jpg"]
    ((right, off),) = right_matches(dataset)
    assert right > 15 and off < 0.3


def test_scenes_are_recognised_and_give_images_1_and_3(tmp_path: Path, read_files: list[list[str]]) -> None:
    for number in range(5):
        draw_turned_views(tmp_path / "scenes" / f"v_{number}", number)
    audit = prepare(request(Source(tmp_path / "scenes", "scenes", 2)))
    (dataset,) = audit.datasets
    assert [victim.name for victim in dataset.victims] == ["v_0/1.png", "v_2/1.png"]
    assert all(right > 15 and off < 0.5 for right, off in right_matches(dataset))
    turned = 3 * 4.0
    angle = np.degrees(np.arctan2(-dataset.victims[0].homography[1, 0], dataset.victims[0].homography[0, 0]))  # type: ignore[index]
    assert angle == pytest.approx(turned, abs=1)
    images = [f"{number}.png" for number in range(1, 7)]
    assert sorted(map(len, read_files)) == [6, 12] and read_files[0] == images * 2  # a scene stays together


def test_one_scene_is_not_a_folder_of_photographs(tmp_path: Path) -> None:
    draw_turned_views(tmp_path / "scenes" / "v_0")
    with pytest.raises(DatasetError, match="is one scene"):
        find_photographs([Source(tmp_path / "scenes" / "v_0", "one")])


def test_damaged_photographs_are_named_and_the_rest_goes_on(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = draw_photographs(tmp_path / "mine", 3)
    (folder / "1.png").write_bytes((folder / "1.png").read_bytes()[:99])
    cv2.imwrite(str(folder / "2.png"), np.full((60, 60), 128, np.uint8))
    with caplog.at_level(logging.WARNING):
        (dataset,) = prepare(request(Source(folder, "mine"))).datasets
    assert [victim.name for victim in dataset.victims] == ["0.png"]
    assert "1.png" in caplog.text and "2.png: it has no feature" in caplog.text
    (folder / "0.png").unlink()
    with pytest.raises(InputError, match="no photograph of mine has features"):
        prepare(request(Source(folder, "mine")))


def test_named_folders_serve_only_their_role(tmp_path: Path, read_files: list[list[str]]) -> None:
    folders = [draw_photographs(tmp_path / name, 3) for name in ("mine", "attacker", "pool")]
    save_database(Database(builtin().values[:50], "sift"), tmp_path / "own.safetensors")
    given = Attacker(database=tmp_path / "own.safetensors")
    audit = prepare(request(Source(folders[0], "mine", 1), attacker=given, pool=(folders[2],)))
    assert len(audit.attacker) == 50 and read_files == [["0.png", "1.png", "2.png"]]
    assert len(audit.pool) < 4000  # nothing is added to it
    with_photos = prepare(request(Source(folders[0], "mine", 1), attacker=Attacker((folders[1],), size=70)))
    assert len(with_photos.attacker) == 70


@pytest.mark.parametrize(
    ("attacker", "pool", "harm"),
    [
        ("mine", "pool", "the attacker would have what is hidden"),
        ("mine/inside", "pool", "the attacker would have what is hidden"),
        ("attacker", ".", "a pool would hold what is hidden"),
        ("attacker", "attacker", "the attacker would have what the devices' pools hold"),
    ],
)
def test_roles_that_share_photographs_are_refused(tmp_path: Path, attacker: str, pool: str, harm: str) -> None:
    for name in ("mine", "mine/inside", "attacker", "pool"):
        (tmp_path / name).mkdir()
    with pytest.raises(InputError, match=f"share photographs: {harm}"):
        prepare(
            request(
                Source(tmp_path / "mine", "mine"), attacker=Attacker((tmp_path / attacker,)), pool=(tmp_path / pool,)
            )
        )


def test_datasets_inside_each_other_are_refused(tmp_path: Path) -> None:
    folder = draw_photographs(tmp_path / "mine", 1)
    with pytest.raises(InputError, match="share photographs: what is hidden in one dataset"):
        prepare(request(Source(folder, "mine"), Source(tmp_path, "all")))


@pytest.mark.parametrize("kind", ["sift", "rootsift"])
def test_bundled_descriptors_come_in_two_parts(kind: str) -> None:
    first, second = bundled(kind, 0), bundled(kind, 1)
    for part in (first, second):
        assert len(part) > 4000 and part.min() >= 0
        assert np.allclose(np.linalg.norm(part, axis=1), 1, atol=1e-5)
    assert not {row.tobytes() for row in first} & {row.tobytes() for row in second}
    usual = np.mean([(row == 0).mean() for row in picture(0, kind).descriptors.values])
    assert abs((first == 0).mean() - usual) < 0.15


def pools_of(
    values: Float32, victims: list[Victim], monkeypatch: pytest.MonkeyPatch
) -> dict[tuple[str, int], set[bytes]]:
    """What the pool of each device of each victim holds."""
    pools: list[Float32] = []
    real = Pool.in_memory

    def spying(values: Float32, kind: str, rng: np.random.Generator) -> Pool:
        pools.append(values)
        return real(values, kind, rng)

    monkeypatch.setattr(Pool, "in_memory", spying)
    devices = Devices(values, "sift", victims, hardened(), 0)
    parts = {}
    for victim in victims:
        for number in (0, -1, 1):
            devices.equip(hardened(), victim, number)
            if number < 1:
                parts[victim.name, number] = {row.tobytes() for row in pools[-1]}
    assert len(pools) == 2 * len(victims)  # a second release is by the same device
    return parts


def features(count: int) -> Features:
    return picture().take(np.arange(count))


def test_devices_share_nothing_while_there_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    victims = [Victim(name, features(10), features(12)) for name in "ab"]
    many = np.unique(np.random.default_rng(0).random((4 * 2 * 2 * 12, 128), np.float32), axis=0)
    parts = pools_of(many, victims, monkeypatch)
    assert Devices(many, "sift", victims, hardened(), 0).strangers
    assert sum(map(len, parts.values())) == len(set().union(*parts.values())) == len(many)


def test_victims_by_themselves_share_few_descriptors(monkeypatch: pytest.MonkeyPatch) -> None:
    victims = [Victim(name, features(10), features(12)) for name in "ab"]
    few = np.random.default_rng(0).random((4 * 2 * 2 * 12 - 1, 128), np.float32)
    parts = pools_of(few, victims, monkeypatch)
    assert not Devices(few, "sift", victims, hardened(), 0).strangers
    assert parts["a", 0] == parts["b", 0] and parts["a", -1] == parts["b", -1]
    assert not parts["a", 0] & parts["a", -1] and len(parts["a", 0] | parts["a", -1]) == len(few)


def test_a_pool_that_is_too_small_is_refused_before_anything_is_measured(tmp_path: Path) -> None:
    pool = draw_photographs(tmp_path / "pool", 1)
    with pytest.raises(
        InputError, match=r"the pools of hardened-40-50 need 4800 descriptors, \d+ are there: name more"
    ):
        (scheme,) = grid({"name": "hardened", "confounders": 40, "dimension": 50}, "sift")
        prepare(request(schemes=tuple(with_identity([scheme])), pool=(pool,)))
