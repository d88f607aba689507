"""Features -> picture: which inverter fits, and what is made of guesses."""

from dataclasses import replace

import numpy as np
import pytest

from featveil.attacks import Guess
from featveil.core import Features, InputError, Points, PrivateFeatures
from featveil.databases import Database, builtin
from featveil.datasets.board import views
from featveil.defenses import Concealer, Identity, Lifting, Subset, privatize
from featveil.extractors import extract, read_image
from featveil.inverters import builtin_inverter
from featveil.learning.encodings import Encoding
from featveil.metrics.reconstruction import compare
from featveil.pipelines import painters as module
from featveil.pipelines.painters import (
    at_size,
    check_reads_raw,
    load_painter,
    paint,
    picture_size,
    raw_painter,
    recovered,
    resized,
    training_command,
    view,
)
from networks import random_network
from painters import fed, grey_painter
from victims import lifted, picture


def test_the_built_in_inverter_has_a_digest() -> None:
    painter = load_painter()
    assert painter.inverter is builtin_inverter("sift") and len(painter.digest) == 64
    assert painter.reads_geometry and not painter.needs_geometry


def test_a_misfit_names_the_way_to_an_inverter_that_fits() -> None:
    trained = "--defense lifting --strategy sub-hybrid --dimension 4'"
    told = f"points, the features have subspaces; train one, 'featveil train inverter .*{trained}.*--attack"
    with pytest.raises(InputError, match=told):
        paint(lifted(), grey_painter())
    five = grey_painter(Encoding("sift", representation="subspaces", count=5))
    with pytest.raises(InputError, match=r"grey.onnx does not fit: .* count 5, the features have 4"):
        paint(lifted(), five)
    rng = np.random.default_rng(0)
    words = privatize(picture(count=20), Subset(10.0, 2), rng=rng)
    with pytest.raises(InputError, match="--defense subset --epsilon 10 --subset-size 2'"):
        paint(words, grey_painter())
    with pytest.raises(InputError, match="kind rootsift, the features have sift; train one, 'featveil train inverter"):
        paint(picture(count=20), grey_painter(Encoding("rootsift")))


def test_the_command_that_trains_an_inverter_behind_a_concealer() -> None:
    private = privatize(
        picture(count=20), Concealer(random_network(), Lifting("random", 2)), rng=np.random.default_rng(0)
    )
    assert training_command(private).endswith(
        "--extractor sift --defense concealer --then lifting --strategy random --dimension 2 --concealer FILE"
    )
    usual = privatize(picture(count=20), Concealer(), rng=np.random.default_rng(0))
    assert training_command(usual).endswith("--extractor sift --defense concealer")


def test_the_command_names_a_database_of_ones_own() -> None:
    own = Database.from_array(np.random.default_rng(0).random((64, 128), np.float32), "sift")
    private = privatize(picture(count=20), Subset(10.0, 2, own), rng=np.random.default_rng(0))
    assert training_command(private).endswith("--defense subset --epsilon 10 --subset-size 2 --database FILE")


def test_word_sets_are_read_with_their_codebook() -> None:
    words = privatize(picture(count=20), Subset(10.0, 2), rng=np.random.default_rng(0))
    codebook = str(words.defense["codebook"])
    fitting = grey_painter(Encoding("sift", representation="words", count=2, codebook=codebook))
    with pytest.raises(InputError, match="with their codebook"):
        paint(words, fitting)


def test_an_inverter_of_sift_reads_rootsift_too() -> None:
    sift, rootsift, painter = picture(count=50), picture(kind="rootsift", count=50), grey_painter()
    paint(sift, painter)
    paint(rootsift, painter)
    first, second = (feed["rows"] for feed in fed(painter))
    np.testing.assert_allclose(first, second, atol=1e-4)
    check_reads_raw(painter, "rootsift")


def test_guesses_stand_at_the_released_keypoints_and_are_never_nothing() -> None:
    private = lifted(count=20)
    values = np.tile(np.linspace(-1, 1, 128, dtype=np.float32), (20, 1))
    values[3] = 0
    features = recovered(private, Guess.all_of(values))
    assert features.keypoints is private.keypoints and features.image_size == private.image_size
    assert np.array_equal(features.descriptors.values[0], values[0]) and values[3].max() == 0
    assert len(set(features.descriptors.values[3])) == 1


def test_what_is_recovered_behind_a_concealer_is_of_the_raw_kind() -> None:
    private = privatize(picture(count=20), Concealer(random_network()), rng=np.random.default_rng(0))
    features = recovered(private, Guess.all_of(np.ones((20, 128), np.float32)))
    assert private.kind != "sift" and features.kind == "sift"


def test_an_inverter_of_private_features_does_not_read_recovered_ones() -> None:
    with pytest.raises(InputError, match="reads sift subspaces, and recovered are raw sift descriptors"):
        check_reads_raw(grey_painter(Encoding("sift", representation="subspaces", count=4)), "sift")
    with pytest.raises(InputError, match="reads hardnet points"):
        check_reads_raw(grey_painter(Encoding("hardnet")), "sift")


def test_features_at_another_size_of_the_image() -> None:
    whole = picture(count=50)
    assert whole.image_size is not None and whole.keypoints is not None
    half = at_size(whole, (whole.image_size[0] // 2, whole.image_size[1] // 2))
    assert half.keypoints is not None and half.keypoints.scale is not None and whole.keypoints.scale is not None
    np.testing.assert_allclose(half.keypoints.xy, whole.keypoints.xy / 2, rtol=0.01)
    np.testing.assert_allclose(half.keypoints.scale, whole.keypoints.scale / 2, rtol=0.01)
    assert paint(half, grey_painter()).shape == (half.image_size[1], half.image_size[0], 3)  # type: ignore[index]
    placeless = Features(Points(np.ones((2, 128), np.float32)), "sift")
    assert at_size(placeless, (64, 64)) is placeless
    with pytest.raises(InputError, match="needs keypoints"):
        paint(placeless, grey_painter())


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
    monkeypatch.setattr(module, "paint", lambda features, painter: seen.append(features))
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
    monkeypatch.setattr(module, "load_painter", lambda path, kind: sift)
    with pytest.raises(InputError, match="reads sift points, and recovered are raw hardnet descriptors"):
        raw_painter("hardnet")
