"""What an inverter of raw descriptors makes of guesses."""

from dataclasses import replace

import numpy as np
import pytest

from featveil.attacks import Guess
from featveil.core import Features, InputError, PrivateFeatures
from featveil.databases import builtin
from featveil.datasets.board import views
from featveil.defenses import Identity, privatize
from featveil.extractors import extract, read_image
from featveil.metrics.reconstruction import compare
from featveil.pipelines import attacker_view
from featveil.pipelines.attacker_view import picture_size, raw_painter, resized, view


@pytest.fixture(scope="module")
def features() -> Features:
    return extract(views()[0], max_features=300)


def released(features: Features, geometry: bool = False) -> tuple[PrivateFeatures, Guess]:
    private = privatize(features, Identity(), keep_geometry=geometry)
    return private, Guess.all_of(private.descriptors.values)  # type: ignore[union-attr]


def test_raw_descriptors_show_more_than_random_ones() -> None:
    features = extract(views()[0], max_features=1000)
    size, painter = picture_size(features), raw_painter("sift")
    photograph = resized(read_image(views()[0]), size)
    private, guess = released(features)
    others = builtin("sift").unit(np.random.default_rng(0).permutation(len(builtin("sift")))[: len(features)])
    random = Guess.all_of(others)
    raw, floor = (view(private, one, painter, size) for one in (guess, random))
    assert raw.shape == photograph.shape == (size[1], size[0], 3)
    assert compare(raw, photograph).ssim > compare(floor, photograph).ssim + 0.02
    assert compare(raw, photograph).mae < compare(floor, photograph).mae


def test_pictures_are_as_large_as_their_features_allow(features: Features) -> None:
    def of(count: int, size: tuple[int, int]) -> tuple[int, int]:
        rows = np.arange(count) % len(features)
        return picture_size(replace(features.take(rows), image_size=size))

    assert of(300, (800, 600)) == (346, 260)  # 300 pixels a feature
    assert of(3, (800, 600)) == (256, 192) and of(3, (100, 50)) == (100, 50)
    assert of(300, (100, 50)) == (100, 50) and of(30_000, (8000, 6000)) == (800, 600)
    with pytest.raises(InputError, match="size of the image"):
        picture_size(replace(features, image_size=None))


def test_the_inverter_of_sift_serves_rootsift(features: Features) -> None:
    rooted = extract(views()[0], "rootsift", 300)
    size, painter = picture_size(features), raw_painter("rootsift")
    assert painter.inverter.encoding.kind == "sift"
    pictures = [view(*released(one), painter, size).astype(int) for one in (features, rooted)]
    assert np.abs(pictures[0] - pictures[1]).max() <= 3


def test_scales_shrink_with_the_picture(features: Features, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Features] = []
    monkeypatch.setattr(attacker_view, "paint", lambda features, painter: seen.append(features))
    for geometry in (True, False):
        view(*released(features, geometry), raw_painter("sift"), (400, 300))
    full, positions = (one.keypoints for one in seen)
    assert full is not None and positions is not None and full.scale is not None and positions.scale is None
    private, _ = released(features, geometry=True)
    assert private.keypoints is not None and private.keypoints.scale is not None
    assert np.allclose(full.xy, private.keypoints.xy / 2) and np.allclose(full.scale, private.keypoints.scale / 2)


def test_kinds_without_an_inverter_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match=r"no built-in inverter of kind 'hardnet'.*train one"):
        raw_painter("hardnet")
    sift = raw_painter("sift")
    monkeypatch.setattr(attacker_view, "load_painter", lambda path, kind: sift)
    with pytest.raises(InputError, match="reads sift points, and recovered are raw hardnet descriptors"):
        raw_painter("hardnet")
