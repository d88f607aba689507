"""The public `extract` function: files, arrays, kinds; and real photographs."""

from pathlib import Path

import cv2
import numpy as np
import pytest

from featveil.core import InputError
from featveil.extractors import EXTRACTORS, extract, image_files


@pytest.fixture
def texture() -> np.ndarray:
    coarse = np.random.default_rng(3).integers(0, 256, (30, 30, 3), np.uint8)
    return np.kron(coarse, np.ones((4, 4, 1), np.uint8))


@pytest.mark.parametrize("kind", EXTRACTORS)
def test_a_file_and_its_pixels_give_the_same(kind: str, texture: np.ndarray, tmp_path: Path) -> None:
    path = tmp_path / "texture.png"
    cv2.imwrite(str(path), cv2.cvtColor(texture, cv2.COLOR_RGB2BGR))
    from_pixels = extract(texture, kind, max_features=40)
    assert 0 < len(from_pixels) <= 40
    assert from_pixels.kind == kind
    for same in (extract(path, kind, max_features=40), extract(str(path), kind, max_features=40)):
        assert np.array_equal(same.descriptors.values, from_pixels.descriptors.values)


def test_unknown_kind_lists_the_known_ones(texture: np.ndarray) -> None:
    with pytest.raises(InputError, match="sift, rootsift"):
        extract(texture, kind="orb")


def test_no_features_is_no_error() -> None:
    assert len(extract(np.zeros((30, 30), np.uint8))) == 0


def test_real_photographs(real_data: Path) -> None:
    folder = real_data / "homography_seqs" / "oxford_graf"
    features = extract(image_files(folder)[0], kind="rootsift")
    assert len(features) == 2048
    assert features.keypoints is not None
    assert features.image_size is not None
    assert (features.keypoints.xy > 0).all()
    assert (features.keypoints.xy < features.image_size).all()
