"""Learned descriptors at SIFT keypoints, from Python and from the command line."""

from pathlib import Path

import cv2
import numpy as np
import pytest
from typer.testing import CliRunner

import featveil as fv
from featveil.cli import app
from featveil.core import InputError
from featveil.extractors import LearnedPatches, Sift, extract, make_extractor
from textures import texture


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Random weights of HardTFeat."""
    torch = pytest.importorskip("torch", reason="networks: pip install 'featveil[learning]'")
    from featveil.learning.patch_networks import HardTFeat

    torch.manual_seed(0)
    path = tmp_path_factory.mktemp("weights") / "net.pth"
    torch.save(HardTFeat().state_dict(), path)
    return path


def test_keypoints_are_those_of_sift(weights: Path) -> None:
    image = texture()
    features, sift = LearnedPatches("hardtfeat", weights, 50).extract(image), Sift(max_features=50).extract(image)
    assert features.keypoints is not None and sift.keypoints is not None
    assert (features.kind, len(features), features.image_size) == ("hardtfeat", 50, sift.image_size)
    assert np.array_equal(features.keypoints.xy, sift.keypoints.xy)
    assert np.abs(np.linalg.norm(features.descriptors.values, axis=1) - 1).max() < 1e-5
    assert len(LearnedPatches("hardtfeat", weights).extract(np.full((50, 50), 9, np.uint8))) == 0
    assert len(LearnedPatches("hardtfeat", weights, 50, contrast_threshold=1.0).extract(image)) < 50


def test_by_the_public_function_and_the_command(weights: Path, tmp_path: Path) -> None:
    cv2.imwrite(str(tmp_path / "a.png"), texture())
    features = extract(tmp_path / "a.png", "hardtfeat", 30, weights)
    command = ["extract", tmp_path / "a.png", "--out", tmp_path / "a.veil", "--kind", "hardtfeat", "--weights", weights]
    result = CliRunner().invoke(app, [str(word) for word in (*command, "--max-features", 30)])
    assert result.exit_code == 0, result.output
    stored = fv.load(tmp_path / "a.veil")
    assert isinstance(stored, fv.Features) and stored.kind == "hardtfeat"
    assert np.array_equal(stored.descriptors.values, features.descriptors.values)


def test_what_does_not_fit(weights: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="give its weights"):
        make_extractor("hardtfeat")
    with pytest.raises(InputError, match="sift has no weights"):
        make_extractor("sift", weights=weights)
    with pytest.raises(InputError, match="sift, rootsift, hardtfeat"):
        make_extractor("orb", weights=weights)
    with pytest.raises(InputError, match="max_features"):
        LearnedPatches("hardtfeat", weights, 0)
    with pytest.raises(InputError, match="no weights file"):
        LearnedPatches("hardtfeat", tmp_path / "none.pth")
    result = CliRunner().invoke(app, ["privatize", str(tmp_path), "--out", str(tmp_path / "o"), "--kind", "hardtfeat"])
    assert result.exit_code == 2
