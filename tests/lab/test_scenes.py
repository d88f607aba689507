"""What is sent of a scene's images: once each, seeded, and with pools that no two devices share."""

from pathlib import Path

import cv2
import numpy as np
import pytest

from featveil.audit.schemes import Scheme
from featveil.core import Features, InputError, PrivateFeatures, Subspaces, WordSets
from featveil.core.arrays import Float32
from featveil.databases import Database, builtin
from featveil.datasets import MapScene, load_strecha
from featveil.formats import veil
from featveil.lab import scene_studies as scenes
from featveil.lab.scene_studies import (
    RAW,
    SceneReleases,
    Settings,
    hardened,
    lifted,
    pool_descriptors,
    quantised,
    subsets,
)
from featveil.stores.pool import Pool

SETTINGS = Settings(max_features=60)
LIFTED = lifted("sift", [2])[0]


@pytest.fixture(scope="module")
def scene(strecha_room: Path) -> MapScene:
    return load_strecha(strecha_room)[0]


@pytest.fixture(scope="module")
def codebook() -> Database:
    return Database(builtin("sift").values[:2000], "sift")


def sent(releases: SceneReleases, name: str, scheme: Scheme) -> PrivateFeatures:
    found = releases.sent(name, scheme)
    assert isinstance(found, PrivateFeatures)
    return found


def test_schemes_by_name(codebook: Database) -> None:
    made = [*lifted("sift", [2, 4, 2]), quantised(codebook), *subsets(codebook, [10, 8.5], [2, 2]), *hardened()]
    assert [scheme.name for scheme in made] == [
        "sub-hybrid-2",
        "sub-hybrid-4",
        "quantised",
        "subset-10-2",
        "subset-8.5-2",
        "hardened-4-16",
        "hardened-4-16-apart",
    ]
    assert [scheme.apart for scheme in made] == [False] * 6 + [True]


def test_an_image_is_extracted_and_released_once(scene: MapScene, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[Path] = []

    def extract(path: Path, kind: str, max_features: int) -> Features:
        calls.append(path)
        return real(path, kind, max_features)

    real = scenes.extract  # type: ignore[attr-defined]
    monkeypatch.setattr(scenes, "extract", extract)
    releases, name = SceneReleases(scene, SETTINGS), "view01.png"
    assert releases.raw(name) is releases.raw(name) is releases.sent(name, RAW)
    assert releases.sent(name, LIFTED) is releases.sent(name, LIFTED)
    assert len(releases.raw(name)) == 60 and calls == [scene.images[name]]


def test_a_seed_gives_the_same_release_and_another_one_another(scene: MapScene, codebook: Database) -> None:
    for scheme in (LIFTED, *subsets(codebook, [10], [2])):
        one, two, other = (
            veil.encode(sent(SceneReleases(scene, Settings(max_features=60, seed=seed)), "view01.png", scheme))
            for seed in (0, 0, 1)
        )
        assert one == two != other


def test_a_release_is_the_same_whatever_was_released_before(scene: MapScene) -> None:
    """A study that was stopped goes on with the releases that it began with."""
    one, two = SceneReleases(scene, SETTINGS), SceneReleases(scene, SETTINGS)
    for name in scene.images:
        two.sent(name, lifted("sift", [4])[0])
    assert veil.encode(sent(one, "view03.png", LIFTED)) == veil.encode(sent(two, "view03.png", LIFTED))


def test_descriptors_are_as_the_scheme_hides_them(scene: MapScene, codebook: Database) -> None:
    releases = SceneReleases(scene, SETTINGS)
    subspaces = sent(releases, "view01.png", LIFTED).descriptors
    assert isinstance(subspaces, Subspaces) and subspaces.basis.shape == (60, 2, 128)
    for scheme, size in ((quantised(codebook), 1), (subsets(codebook, [10], [3])[0], 3)):
        words = sent(releases, "view01.png", scheme).descriptors
        assert isinstance(words, WordSets) and words.words.shape == (60, size)


def test_an_epsilon_comes_with_that_of_the_image(scene: MapScene, codebook: Database) -> None:
    releases, names = SceneReleases(scene, SETTINGS), sorted(scene.images)
    assert releases.epsilons(subsets(codebook, [10], [2])[0], names) == {"epsilon": 10, "image_epsilon": 600}
    for scheme in (RAW, LIFTED, quantised(codebook)):
        assert releases.epsilons(scheme, names) == {}


def test_each_device_has_a_part_of_the_pool(scene: MapScene, monkeypatch: pytest.MonkeyPatch) -> None:
    everything = builtin("sift").values[:2400].astype(np.float32)
    parts: list[set[bytes]] = []

    def in_memory(values: Float32, kind: str, rng: np.random.Generator) -> Pool:
        parts.append({row.tobytes() for row in values})
        return real(values, kind, rng)

    real = Pool.in_memory
    monkeypatch.setattr(Pool, "in_memory", in_memory)
    whole, apart = hardened()
    releases = SceneReleases(scene, SETTINGS, everything)
    for name in sorted(scene.images):
        found = sent(releases, name, whole)
        assert isinstance(found.descriptors, Subspaces) and len(found) == 60
    assert len(parts) == 6 and sum(map(len, parts)) == len(set().union(*parts)) == 2400
    assert 0 < len(sent(releases, "view01.png", apart)) < 60
    with pytest.raises(InputError, match="name photographs for it"):
        SceneReleases(scene, SETTINGS).sent("view01.png", whole)


def test_pools_of_photographs(strecha_room: Path) -> None:
    counted: list[tuple[int, int]] = []
    found = pool_descriptors(strecha_room / "images", "rootsift", lambda done, total: counted.append((done, total)))
    assert found.shape[1] == 128 and len(found) > 1000 and counted == [(done, 6) for done in range(1, 7)]


def test_an_image_without_features(tmp_path: Path) -> None:
    cv2.imwrite(str(tmp_path / "grey.png"), np.full((60, 80), 128, np.uint8))
    scene = MapScene("grey", {"grey.png": tmp_path / "grey.png"}, {}, {})
    with pytest.raises(InputError, match=r"image grey\.png of grey has no features"):
        SceneReleases(scene, SETTINGS).raw("grey.png")
