"""Exported networks: what onnxruntime paints is what torch paints, in a file of half the size that needs no torch."""

import importlib
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="networks: pip install 'featveil[learning]'")
onnx = pytest.importorskip("onnx", reason="exporting: pip install 'featveil[learning]'")

from featveil.core import Features, Keypoints, MissingExtraError, Points  # noqa: E402
from featveil.core.arrays import Float32  # noqa: E402
from featveil.inverters import load_inverter  # noqa: E402
from featveil.learning.encodings import Encoding, cells  # noqa: E402
from featveil.learning.exporting import export_inverter, make_graph  # noqa: E402
from featveil.learning.inverter_networks import Inverter, make_inverter  # noqa: E402
from small_inverters import ENCODING, SIZE, export_tiny, some_features, tiny_inverter  # noqa: E402

Exported = dict[str, tuple[Path, Inverter]]


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Exported:
    """A file of each architecture, and the network it is of."""
    folder = tmp_path_factory.mktemp("exported")
    paths = {architecture: folder / f"{architecture}.onnx" for architecture in ("unet", "uresnet")}
    return {name: (path, export_tiny(path, architecture=name)) for name, path in paths.items()}


def by_torch(network: Inverter, features: Features) -> Float32:
    """The picture (h, w, 3) in 0 to 255, of a frame of whole cells that is cut."""
    assert features.keypoints is not None and features.image_size is not None
    width, height = features.image_size
    across, down = -(-width // 32), -(-height // 32)
    rows = ENCODING.rows(features.descriptors, features.keypoints)
    places = cells(features.keypoints, 32 * across, 32 * down, True)
    with torch.inference_mode():
        painted = network.eval()(torch.from_numpy(rows), torch.from_numpy(places), torch.zeros(1, down, across))
    return np.asarray(255 * painted[0].clamp(0, 1).permute(1, 2, 0).numpy()[:height, :width], np.float32)


@pytest.mark.parametrize("architecture", ["unet", "uresnet"])
@pytest.mark.parametrize(
    ("n", "width", "height"), [(1, 32, 32), (7, 64, 96), (60, 100, 33), (300, 257, 129), (2, 1, 1), (900, 320, 240)]
)
def test_the_file_paints_what_torch_paints(
    exported: Exported, architecture: str, n: int, width: int, height: int
) -> None:
    path, network = exported[architecture]
    features = some_features(n, width, height, seed=n)
    painted, expected = load_inverter(path).invert(features), by_torch(network, features)
    assert painted.shape == (height, width, 3)
    assert np.abs(painted - expected).max() <= 1
    if n > 50:
        assert expected.std() > 3
        other = load_inverter(path).invert(some_features(n, width, height, seed=n + 1))
        assert np.abs(other - expected).max() > 10


def test_no_features_and_features_beyond_the_edge(exported: Exported) -> None:
    path, _ = exported["unet"]
    none = Features(Points(np.empty((0, SIZE), np.float32)), "sift", Keypoints(np.empty((0, 2), np.float32)), (40, 40))
    assert load_inverter(path).invert(none).shape == (40, 40, 3)
    xy = np.array([[-5, 3], [41, 39.9], [1e9, -1e9]], np.float32)
    beyond = Features(some_features(3, 40, 40).descriptors, "sift", Keypoints(xy), (40, 40))
    rows = ENCODING.rows(beyond.descriptors, Keypoints(xy))
    assert np.isfinite(rows).all()
    assert load_inverter(path).invert(beyond).shape == (40, 40, 3)


def test_positions_alone_are_read_as_such(exported: Exported) -> None:
    path, _ = exported["unet"]
    features = some_features(80, 64, 64)
    assert features.keypoints is not None
    xy, scale = features.keypoints.xy, features.keypoints.scale
    only = Features(features.descriptors, "sift", Keypoints(xy), (64, 64))
    some = Features(features.descriptors, "sift", Keypoints(xy, scale), (64, 64))
    inverter = load_inverter(path)
    assert np.array_equal(inverter.invert(only), inverter.invert(some))
    assert not np.array_equal(inverter.invert(only), inverter.invert(features))


def test_weights_are_stored_in_half_unless_that_would_lose_them(exported: Exported) -> None:
    model = onnx.load(exported["unet"][0])
    kept = [tensor for tensor in model.graph.initializer if tensor.data_type == onnx.TensorProto.FLOAT]
    halved = [tensor for tensor in model.graph.initializer if tensor.data_type == onnx.TensorProto.FLOAT16]
    assert max(np.prod(tensor.dims) for tensor in kept) < 64 <= min(np.prod(tensor.dims) for tensor in halved)
    assert sum(np.prod(tensor.dims) for tensor in halved) > 50_000
    onnx.checker.check_model(model, full_check=True)
    network = tiny_inverter()
    with torch.no_grad():
        network.painter.weight[0, 0, 0, 0] = 1e6
    large = [onnx.numpy_helper.to_array(tensor) for tensor in make_graph(network, ENCODING.columns).graph.initializer]
    painters = [values for values in large if values.shape == tuple(network.painter.weight.shape)]
    assert [values.dtype for values in painters] == [np.float32] and painters[0].max() == 1e6


def test_the_small_network_is_exported_and_half_as_large(tmp_path: Path) -> None:
    network = make_inverter(135, "unet", "small", 0)
    export_inverter(tmp_path / "a.onnx", network, Encoding("sift"), {})
    weights = sum(value.numel() for value in network.parameters())
    assert 2 * weights < (tmp_path / "a.onnx").stat().st_size < 2.1 * weights


def test_the_network_stays_as_it_was(tmp_path: Path) -> None:
    network = export_tiny(tmp_path / "a.onnx", seed=4)
    assert network.training
    before = tiny_inverter(seed=4).state_dict()
    assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())


def test_the_card_and_the_encoding_come_back(exported: Exported) -> None:
    path, _ = exported["uresnet"]
    inverter = load_inverter(path)
    assert inverter.card == {"note": "untrained"} and inverter.encoding == ENCODING
    assert repr(inverter) == "Inverter(sift, points, either)"


def test_networks_of_subspaces_and_words_are_files_too(tmp_path: Path) -> None:
    for encoding in (Encoding("sift", SIZE, "subspaces", 3), Encoding("sift", SIZE, "words", 2, codebook="a" * 64)):
        export_tiny(tmp_path / "a.onnx", encoding)
        assert load_inverter(tmp_path / "a.onnx").encoding == encoding


def test_the_file_is_run_without_torch(exported: Exported) -> None:
    path, _ = exported["unet"]
    code = f"""
import sys
for name in ("torch", "onnx"):
    sys.modules[name] = None  # importing it fails
import numpy as np
from featveil.core import Features, Keypoints, Points
from featveil.inverters import load_inverter
features = Features(Points(np.ones((5, {SIZE}))), "sift", Keypoints(np.full((5, 2), 9.0)), (50, 40))
print(load_inverter({str(path)!r}).invert(features).shape)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout == "(40, 50, 3)\n", done.stderr


def test_without_onnx_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnx", None)
    monkeypatch.delitem(sys.modules, "featveil.learning.exporting")
    with pytest.raises(MissingExtraError, match=r"needs onnx.*featveil\[learning\]"):
        importlib.import_module("featveil.learning.exporting")
