"""The inverter that comes with featveil: it shows what was photographed, and only because of the descriptors."""

import numpy as np
import pytest

from featveil.core import Features, InputError, Points
from featveil.datasets.board import views
from featveil.extractors import extract, read_image
from featveil.inverters import Inverter, builtin_inverter
from featveil.inverters.builtin_inverter import SIFT_FILE
from featveil.metrics.reconstruction import compare
from featveil.pipelines.train_parts.photo_samples import middle

PHOTO = views()[0]


@pytest.fixture(scope="module")
def inverter() -> Inverter:
    """The built-in one."""
    return builtin_inverter()


def test_it_is_small_reads_raw_sift_and_has_a_card(inverter: Inverter) -> None:
    assert SIFT_FILE.stat().st_size < 8e6
    encoding = inverter.encoding
    assert (encoding.kind, encoding.size, encoding.representation, encoding.geometry) == (
        "sift",
        128,
        "points",
        "either",
    )
    assert inverter.card
    assert builtin_inverter() is inverter


@pytest.mark.parametrize("full", [True, False])
def test_it_beats_a_grey_picture_and_random_descriptors(inverter: Inverter, full: bool) -> None:
    image = middle(read_image(PHOTO))
    features = extract(image, "sift", 1000)
    assert features.keypoints is not None
    keypoints = features.keypoints if full else features.keypoints.positions_only()
    shuffled = np.random.default_rng(0).permutation(len(features))
    seen = [
        Features(points, "sift", keypoints, (256, 256))
        for points in (features.descriptors, features.descriptors.take(shuffled))
    ]
    true, wrong = (compare(inverter.invert(one), image).ssim for one in seen)
    blank = compare(np.full_like(image, 127), image).ssim
    assert true > blank + 0.04 and true > wrong + 0.06
    assert wrong < blank + 0.02


def test_there_is_none_of_other_kinds() -> None:
    with pytest.raises(InputError, match=r"no built-in inverter of kind 'hardnet' \(only sift\): train one"):
        builtin_inverter("hardnet")


def test_no_features_are_a_picture_all_the_same(inverter: Inverter) -> None:
    none = extract(np.full((100, 130, 3), 90, np.uint8))
    assert len(none) == 0
    assert inverter.invert(none).shape == (100, 130, 3)
    with pytest.raises(InputError, match="size 128, the features have 64"):
        inverter.invert(Features(Points(np.ones((0, 64), np.float32)), "sift", none.keypoints, (130, 100)))
