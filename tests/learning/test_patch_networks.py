"""Networks that describe patches: the same numbers as by hand, and only weights that are theirs."""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="networks: pip install 'featveil[learning]'")

from safetensors.torch import save_file  # noqa: E402
from scipy.signal import correlate2d  # noqa: E402

from featveil.core import InputError, MissingExtraError  # noqa: E402
from featveil.core.arrays import Float64  # noqa: E402
from featveil.extractors import Sift, image_files, make_describer, read_image  # noqa: E402  # noqa: E402
from featveil.extractors.patch_cutting import Patches, cut_patches  # noqa: E402
from featveil.learning.patch_networks import HardTFeat, load_patch_network  # noqa: E402
from textures import texture  # noqa: E402


@pytest.fixture
def state() -> dict[str, Any]:
    """Random weights of HardTFeat."""
    torch.manual_seed(0)
    return dict(HardTFeat().state_dict())


@pytest.fixture
def weights(state: dict[str, Any], tmp_path: Path) -> Path:
    """The same in a file as torch writes it, with the filters that come with the published ones."""
    torch.save({"epoch": 2, "state_dict": {**state, "SIFT.gx.0.weight": torch.zeros(1)}}, tmp_path / "net.pth")
    return tmp_path / "net.pth"


@pytest.fixture(scope="module")
def patches() -> Patches:
    image = texture()
    keypoints = Sift(max_features=40).extract(image).keypoints
    assert keypoints is not None
    return cut_patches(image, keypoints)


def by_hand(patch: Patches, state: dict[str, Any]) -> Float64:
    """HardTFeat of one patch, layer by layer."""
    arrays = {name: value.numpy().astype(np.float64) for name, value in state.items()}
    small = patch.astype(np.float64).reshape(32, 2, 32, 2).mean(axis=(1, 3))
    planes = [(small - small.mean()) / small.std(ddof=1)]

    def convolved(name: str) -> Float64:
        kernels, bias = arrays[f"{name}.weight"], arrays[f"{name}.bias"]
        sums = [
            sum(correlate2d(plane, kernel, "valid") for plane, kernel in zip(planes, of_one, strict=True))
            for of_one in kernels
        ]
        return np.asarray(np.tanh(np.stack(sums) + bias[:, None, None]))

    first = convolved("features.0")
    planes = list(first.reshape(32, 13, 2, 13, 2).max(axis=(2, 4)))
    planes = list(convolved("features.3"))
    described = convolved("classifier.1").reshape(-1)
    return np.asarray(described / np.linalg.norm(described))


def test_the_same_numbers_as_by_hand(state: dict[str, Any], weights: Path, patches: Patches) -> None:
    described = load_patch_network("hardtfeat", weights).describe(patches[:2])
    for row, patch in zip(described, patches, strict=False):
        assert np.abs(row - by_hand(patch, state)).max() < 1e-5


def test_both_kinds_of_file_give_the_same(state: dict[str, Any], weights: Path, patches: Patches) -> None:
    save_file(state, weights.with_suffix(".safetensors"))
    a, b = (make_describer("hardtfeat", weights.with_suffix(suffix)) for suffix in (".pth", ".safetensors"))
    assert np.array_equal(a.describe(patches).values, b.describe(patches).values)


def test_brightness_and_contrast_do_not_matter(weights: Path, patches: Patches) -> None:
    describer = make_describer("hardtfeat", weights)
    dim = np.rint(patches * 0.5 + 40).astype(np.uint8)
    likeness = (describer.describe(patches).values * describer.describe(dim).values).sum(axis=1)
    assert likeness.min() > 0.999
    assert np.abs(np.linalg.norm(describer.describe(patches).values, axis=1) - 1).max() < 1e-5


def test_batches_do_not_matter(weights: Path, patches: Patches, monkeypatch: pytest.MonkeyPatch) -> None:
    network = load_patch_network("hardtfeat", weights)
    whole = network.describe(patches)
    monkeypatch.setattr("featveil.learning.patch_networks._BATCH", 7)
    assert np.abs(network.describe(patches) - whole).max() < 1e-6
    assert network.describe(patches[:0]).shape == (0, 128)


class Hostile:
    """Runs code where it is unpickled."""

    def __reduce__(self) -> tuple[Any, ...]:
        return (Path.touch, (Path("hostile-was-here"),))


def test_files_that_are_no_weights(
    state: dict[str, Any], weights: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    nan = {**state, "features.0.bias": torch.full((32,), float("nan"))}
    wide = {**state, "features.0.bias": torch.zeros(33)}
    fewer = {name: value for name, value in state.items() if name != "features.0.bias"}
    for number, content in enumerate(
        ({"state_dict": Hostile()}, [1], {1: 2}, wide, fewer, nan, {"state_dict": state} | {"x": Hostile()})
    ):
        torch.save(content, tmp_path / f"{number}.pth")
    (tmp_path / "cut.pth").write_bytes(weights.read_bytes()[:5000])
    (tmp_path / "text.pth").write_text("no weights")
    (tmp_path / "text.safetensors").write_text("no weights")
    (tmp_path / "empty.pth").write_bytes(b"")
    for path in sorted(tmp_path.iterdir()):
        if path != weights:
            with pytest.raises(InputError, match=path.name):
                load_patch_network("hardtfeat", path)
    assert not (tmp_path / "hostile-was-here").exists()


@pytest.mark.parametrize("name", ["hardnet", "sosnet"])
def test_networks_of_kornia(name: str, weights: Path, patches: Patches, tmp_path: Path) -> None:
    feature = pytest.importorskip("kornia.feature")
    torch.manual_seed(1)
    module = {"hardnet": feature.HardNet, "sosnet": feature.SOSNet}[name](pretrained=False).eval()
    torch.save({"state_dict": module.state_dict()}, tmp_path / "k.pth")
    described = make_describer(name, tmp_path / "k.pth").describe(patches[:3]).values
    small = patches[:3].reshape(3, 1, 32, 2, 32, 2).mean(axis=(3, 5), dtype=np.float64)
    with torch.inference_mode():
        expected = module(torch.from_numpy(small.astype(np.float32))).numpy()
    assert np.abs(described - expected).max() < 1e-4
    with pytest.raises(InputError, match=f"no weights of {name}"):
        load_patch_network(name, weights)
    with pytest.raises(InputError, match="no weights of hardtfeat"):
        load_patch_network("hardtfeat", tmp_path / "k.pth")


def test_without_kornia_the_extra_is_named(weights: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "kornia", None)
    with pytest.raises(MissingExtraError, match="kornia"):
        load_patch_network("hardnet", weights)
    assert load_patch_network("hardtfeat", weights).describe(np.zeros((1, 64, 64), np.uint8)).shape == (1, 128)


def test_published_weights_match_views_of_a_scene(real_data: Path) -> None:
    file = real_data / "weights" / "hardtfeat" / "HardTFeat.pth"
    image = read_image(image_files(real_data / "homography_seqs" / "oxford_graf")[0])
    keypoints = Sift(max_features=100).extract(image).keypoints
    assert keypoints is not None
    plain, dim = cut_patches(image, keypoints), cut_patches(np.rint(image * 0.6 + 10).astype(np.uint8), keypoints)
    describer = make_describer("hardtfeat", file)
    likeness = describer.describe(plain).values @ describer.describe(dim).values.T
    assert (likeness.argmax(axis=1) == np.arange(100)).mean() > 0.95
    for other in ("tfeat/tfeat-liberty.params", "affnet/AffNet.pth"):
        with pytest.raises(InputError, match="no weights of hardtfeat"):
            load_patch_network("hardtfeat", real_data / "weights" / other)
