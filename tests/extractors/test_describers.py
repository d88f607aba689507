"""Descriptors of patches: SIFT on a patch is SIFT in the image, and mistakes with networks are named."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from featveil.core import Features, InputError, MissingExtraError
from featveil.extractors import NetworkDescriber, Sift, SiftDescriber, image_files, make_describer, read_image
from featveil.extractors.images import Image
from featveil.extractors.patch_cutting import Patches, cut_patches, frames_of, whole
from textures import texture


def whole_patches(image: Image) -> tuple[Features, Patches]:
    """The features of an image whose patch is whole, and the patches."""
    features = Sift(max_features=600).extract(image)
    assert features.keypoints is not None and features.image_size is not None
    kept = features.take(np.flatnonzero(whole(frames_of(features.keypoints), features.image_size)))
    assert kept.keypoints is not None
    return kept, cut_patches(image, kept.keypoints)


def cosines(features: Features, patches: Patches) -> np.ndarray:
    described = make_describer("sift").describe(patches).values
    return np.asarray((described * features.descriptors.values).sum(axis=1))


def test_sift_of_a_patch_is_sift_in_the_image() -> None:
    features, patches = whole_patches(texture())
    assert len(patches) > 100
    similarity = cosines(features, patches)
    assert similarity.mean() > 0.99 and np.percentile(similarity, 5) > 0.97
    assert cosines(features, patches[::-1]).mean() < 0.8
    assert cosines(features, np.rot90(patches, axes=(1, 2)).copy()).mean() < 0.8


@pytest.mark.parametrize("scene", ["oxford_graf", "oxford_leuven"])
def test_sift_of_real_patches(real_data: Path, scene: str) -> None:
    features, patches = whole_patches(read_image(image_files(real_data / "homography_seqs" / scene)[0]))
    similarity = cosines(features, patches)
    assert similarity.mean() > 0.995 and np.percentile(similarity, 5) > 0.985


def test_unit_norm_and_rootsift() -> None:
    patches = whole_patches(texture())[1][:20]
    sift, root = (make_describer(kind).describe(patches).values.astype(np.float64) for kind in ("sift", "rootsift"))
    for values in (sift, root):
        assert np.abs(np.linalg.norm(values, axis=1) - 1).max() < 1e-6
    assert np.abs(np.sqrt(sift / sift.sum(axis=1, keepdims=True)) - root).max() < 1e-6


def test_a_flat_patch_favours_no_component() -> None:
    values = SiftDescriber().describe(np.full((2, 64, 64), 77, np.uint8)).values
    assert np.allclose(values, 1 / np.sqrt(128))


def test_no_patches() -> None:
    assert SiftDescriber().describe(np.empty((0, 64, 64), np.uint8)).values.shape == (0, 128)


def test_kinds_and_weights_that_do_not_fit(tmp_path: Path) -> None:
    (tmp_path / "some.pth").write_bytes(b"x")
    with pytest.raises(InputError, match="sift, rootsift, hardtfeat"):
        make_describer("orb")
    with pytest.raises(InputError, match="sift has no weights"):
        make_describer("sift", tmp_path / "some.pth")
    with pytest.raises(InputError, match="give its weights file"):
        make_describer("hardnet")
    with pytest.raises(InputError, match="there is no weights file"):
        make_describer("hardnet", tmp_path / "none.pth")
    with pytest.raises(InputError, match="unknown patch network"):
        NetworkDescriber("tfeat", tmp_path / "some.pth")


def test_digests_tell_weights_apart(tmp_path: Path) -> None:
    for name, content in (("a", b"one"), ("b", b"one"), ("c", b"two")):
        (tmp_path / name).write_bytes(content)
    a, b, c = (make_describer("hardtfeat", tmp_path / name).digest for name in "abc")
    assert a == b != c and a is not None and len(a) == 16
    assert make_describer("sift").digest is None


def test_nothing_imports_torch_before_a_network_is_used() -> None:
    modules = "featveil.extractors, featveil.cli, featveil.datasets, featveil.lab.patches"
    code = f"import sys, {modules}; print('torch' in sys.modules, 'kornia' in sys.modules)"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert shown.split() == ["False", "False"]


def test_without_torch_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "some.pth").write_bytes(b"x")
    monkeypatch.delitem(sys.modules, "featveil.learning.patch_networks", raising=False)
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(MissingExtraError, match=r"torch.*featveil\[learning\]"):
        make_describer("hardtfeat", tmp_path / "some.pth").describe(np.zeros((1, 64, 64), np.uint8))
