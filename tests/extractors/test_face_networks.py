"""Face networks: one person is near in changed pictures and far from others; files that are no network are refused."""

import hashlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest

from featveil.core import FormatError, InputError, MissingExtraError
from featveil.core.arrays import Float32
from featveil.core.features import check_kind
from featveil.extractors.face_networks import DlibNetwork, FaceNetwork, OnnxNetwork
from featveil.extractors.faces import align, faces_of, one_face
from featveil.extractors.images import Image, read_image

D = 5


@pytest.fixture(scope="module")
def arcface(real_data: Path) -> OnnxNetwork:
    """ArcFace's MobileFaceNet; the test is skipped, visibly, where it is absent."""
    path = real_data / "weights" / "arcface_mobilefacenet_y1" / "arcface_mobilefacenet_y1.onnx"
    if not path.is_file():
        pytest.skip(f"no {path.name} in the real data")
    return OnnxNetwork(path)


def rotated(image: Image, degrees: float) -> Image:
    height, width = image.shape[:2]
    turn = cv2.getRotationMatrix2D((width / 2, height / 2), degrees, 1)
    return np.asarray(cv2.warpAffine(image, turn, (width, height), borderMode=cv2.BORDER_REPLICATE), np.uint8)


COPIES: dict[str, Callable[[Image], Image]] = {
    "mirrored": lambda image: image[:, ::-1],
    "darkened": lambda image: np.asarray(image * 0.4, np.uint8),
    "blurred": lambda image: np.asarray(cv2.GaussianBlur(image, (0, 0), 2), np.uint8),
    "turned left": lambda image: rotated(image, 15),
    "turned right": lambda image: rotated(image, -15),
    "small": lambda image: np.asarray(cv2.resize(image, (256, 256), interpolation=cv2.INTER_AREA), np.uint8),
}


def template(image: Image, network: FaceNetwork) -> Float32:
    return np.asarray(faces_of(image, network, "largest").descriptors.values[0])


def distance(a: Float32, b: Float32) -> float:
    return float(np.linalg.norm(a - b))


def other_people(real_data: Path) -> list[Image]:
    """Two photographs of two other people."""
    folder = real_data / "photos"
    paths = [path for name in ("302003.jpg", "189080.jpg") for path in folder.rglob(name)]
    if len(paths) != 2:
        pytest.skip("no photographs of other people in the real data")
    return [read_image(path) for path in paths]


@pytest.mark.parametrize("name", COPIES)
def test_dlib_knows_a_face_again(astronaut: Image, name: str) -> None:
    network = DlibNetwork()
    assert distance(template(astronaut, network), template(COPIES[name](astronaut), network)) < 0.32


def test_dlib_tells_people_apart(astronaut: Image, real_data: Path) -> None:
    rows = [template(image, DlibNetwork()) for image in (astronaut, *other_people(real_data))]
    assert min(distance(a, b) for place, a in enumerate(rows) for b in rows[:place]) > 0.4


def test_what_a_dlib_template_is(astronaut: Image) -> None:
    network = DlibNetwork()
    faces = faces_of(astronaut, network)
    assert (len(faces), faces.descriptors.size, faces.kind) == (1, network.size, f"face-{network.digest[:12]}")
    assert abs(np.linalg.norm(faces.descriptors.values.astype(float)) - 1) < 1e-6
    assert len(network.digest) == 64
    assert network.describe(astronaut, []).shape == network.describe_crops([]).shape == (0, 128)
    with pytest.raises(InputError, match="aligned face"):
        network.describe_crops([astronaut])


def test_dlib_aligns_as_dlib_does(astronaut: Image) -> None:
    """Near the template of dlib's own chip by its 68 landmarks, from the picture or from an aligned crop."""
    import dlib

    from featveil.extractors.faces import model_file

    predictor = dlib.shape_predictor(str(model_file("shape_predictor_68_face_landmarks.dat")))
    network, face = DlibNetwork(), one_face(astronaut)
    left, top, width, height = (round(number) for number in face.box)
    shape = predictor(astronaut, dlib.rectangle(left, top, left + width - 1, top + height - 1))
    own = np.array(network._network.compute_face_descriptor(dlib.get_face_chip(astronaut, shape, 150, 0.25)))
    own /= np.linalg.norm(own)
    assert distance(own, network.describe(astronaut, [face])[0]) < 0.12
    assert distance(own, network.describe_crops([align(astronaut, face)])[0]) < 0.25


def test_without_the_extra_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "dlib", None)
    with pytest.raises(MissingExtraError, match=r"featveil\[faces\]"):
        DlibNetwork()


@pytest.mark.parametrize("name", COPIES)
def test_arcface_knows_a_face_again(astronaut: Image, arcface: OnnxNetwork, name: str) -> None:
    assert distance(template(astronaut, arcface), template(COPIES[name](astronaut), arcface)) < 0.7


def test_arcface_tells_people_apart(astronaut: Image, arcface: OnnxNetwork, real_data: Path) -> None:
    rows = [template(image, arcface) for image in (astronaut, *other_people(real_data))]
    assert min(distance(a, b) for place, a in enumerate(rows) for b in rows[:place]) > 1.1
    known = np.load(real_data / "faces" / "lfw_arcface_y1_128.npz")["embedding"].astype(np.float32)
    assert np.linalg.norm(known - rows[0], axis=1).min() > 1


def test_arcface_in_batches(astronaut: Image, arcface: OnnxNetwork) -> None:
    crop = align(astronaut, one_face(astronaut))
    crops = np.stack([np.roll(crop, shift, axis=1) for shift in range(-35, 35)])
    together = arcface.describe_crops(crops)
    alone = np.concatenate([arcface.describe_crops([crop]) for crop in crops[[0, 35, 69]]])
    assert together.shape == (70, arcface.size) and arcface.size == 128
    assert np.abs(together[[0, 35, 69]] - alone).max() < 1e-4


def write_onnx(path: Path, read: list[Any], given: list[Any], nodes: str = "mean", **changes: Any) -> Path:
    """A tiny network: the mean colour of a face times a matrix, or something that is no face network."""
    onnx = pytest.importorskip("onnx", reason="making a network: pip install 'featveil[learning]'")
    from onnx import TensorProto, helper, numpy_helper

    columns = given[-1] if isinstance(given[-1], int) else D
    weights = np.random.default_rng(0).normal(size=(3, columns)).astype(np.float32)
    type_ = changes.get("type", TensorProto.FLOAT)
    means = [
        helper.make_node("ReduceMean", ["faces", "axes"], ["means"], keepdims=0),
        helper.make_node("MatMul", ["means", "weights"], ["one"]),
    ]
    graphs = {
        "mean": [*means, helper.make_node("Identity", ["one"], ["templates"])],
        "zero": [*means, helper.make_node("Sub", ["one", "one"], ["templates"])],
        "twice": [*means, helper.make_node("Concat", ["one", "one"], ["templates"], axis=0)],
        "same": [helper.make_node("Identity", ["faces"], ["templates"])],
    }
    graph = helper.make_graph(
        graphs[nodes],
        "faces",
        [helper.make_tensor_value_info("faces", type_, read)] * changes.get("inputs", 1),
        [helper.make_tensor_value_info("templates", type_, given)],
        [numpy_helper.from_array(weights, "weights"), numpy_helper.from_array(np.array([2, 3]), "axes")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    outside = {"save_as_external_data": True, "size_threshold": 0} if changes.get("outside") else {}
    onnx.save_model(model, path, **outside)
    return path


def some_crops(n: int) -> Image:
    return np.random.default_rng(1).integers(0, 256, (n, 112, 112, 3), np.uint8) // np.arange(1, 4, dtype=np.uint8)


@pytest.mark.parametrize("length", ["n", None, 1])
@pytest.mark.parametrize("n", [0, 1, 2, 130])
def test_any_batch_and_a_fixed_one(tmp_path: Path, length: Any, n: int) -> None:
    network = OnnxNetwork(write_onnx(tmp_path / "net.onnx", [length, 3, 112, 112], [length, D]))
    crops = some_crops(n)
    expected = crops.mean(axis=(1, 2)) @ np.random.default_rng(0).normal(size=(3, D)).astype(np.float32)
    expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    for given in (crops, list(crops)):
        rows = network.describe_crops(given)
        assert rows.shape == (n, D) and rows.dtype == np.float32
        assert n == 0 or np.abs(rows - expected).max() < 1e-4


def test_an_output_that_says_one_and_gives_many(tmp_path: Path) -> None:
    """As InsightFace's files do."""
    network = OnnxNetwork(write_onnx(tmp_path / "net.onnx", ["n", 3, 112, 112], [1, D]))
    assert network.describe_crops(some_crops(3)).shape == (3, D)


def test_digest_size_and_kind(tmp_path: Path) -> None:
    path = write_onnx(tmp_path / "net.onnx", ["n", 3, 112, 112], ["n", D])
    network = OnnxNetwork(path)
    assert network.digest == hashlib.sha256(path.read_bytes()).hexdigest()
    assert (network.size, network.kind) == (D, f"face-{network.digest[:12]}")
    check_kind(network.kind)
    assert network == OnnxNetwork(Path(str(path)))
    assert "path" in repr(network) and "_loaded" not in repr(network)


def test_mean_and_scale(tmp_path: Path) -> None:
    path = write_onnx(tmp_path / "net.onnx", ["n", 3, 112, 112], ["n", D])
    crops, weights = some_crops(2), np.random.default_rng(0).normal(size=(3, D)).astype(np.float32)
    expected = (crops.mean(axis=(1, 2)) - 127.5) / 127.5 @ weights
    rows = OnnxNetwork(path, 127.5, 127.5).describe_crops(crops)
    assert np.abs(rows - expected / np.linalg.norm(expected, axis=1, keepdims=True)).max() < 1e-4
    for mean, scale, named in ((float("nan"), 1, "mean"), (0, 0, "scale"), (0, -1, "scale"), ("a", 1, "mean")):
        with pytest.raises(InputError, match=f"^{named} must be a number"):
            OnnxNetwork(path, mean, scale)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("read", "given", "changes", "message"),
    [
        (
            ["n", 112, 112, 3],
            ["n", 112, 112, 3],
            {"nodes": "same"},
            r"reads tensor\(float\) \['n', 112, 112, 3\], not floats \(n, 3, 112, 112",
        ),
        (["n", 3, 160, 160], ["n", D], {}, "not floats"),
        (["n", 3, "h", "w"], ["n", D], {}, "not floats"),
        ([8, 3, 112, 112], [8, D], {}, "not floats"),
        (["n", 3, 112, 112], ["n", 3, 112, 112], {"nodes": "same"}, r"gives tensor\(float\) .*not floats \(n, d\)"),
        (["n", 3, 112, 112], ["n", "d", "e", "f"], {"nodes": "same"}, "gives"),
        (["n", 3, 112, 112], ["n", 3, 112, 112], {"nodes": "same", "type": 11}, r"reads tensor\(double\)"),
        (["n", 3, 112, 112], ["n", D], {"outside": True}, "in another file"),
        (["n", 3, 112, 112], ["n", D], {"inputs": 2}, "damaged"),
    ],
)
def test_other_networks_are_refused(
    tmp_path: Path, read: list[Any], given: list[Any], changes: dict[str, Any], message: str
) -> None:
    path = write_onnx(tmp_path / "net.onnx", read, given, **changes)
    with pytest.raises(FormatError, match=message) as refused:
        OnnxNetwork(path)
    assert str(refused.value).startswith(f"{path} is no usable face network: ") and "\n" not in str(refused.value)


def test_what_is_no_onnx_file(tmp_path: Path) -> None:
    whole = write_onnx(tmp_path / "net.onnx", ["n", 3, 112, 112], ["n", D]).read_bytes()
    contents = {
        "text": b"no network\n",
        "empty": b"",
        "half": whole[: len(whole) // 2],
        "ort": b"\x18\0\0\0ORTM" + whole,
    }
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content)
        with pytest.raises(FormatError, match=r"damaged, cut off or no ONNX file$"):
            OnnxNetwork(tmp_path / name)
    for missing in (tmp_path / "none.onnx", tmp_path):
        with pytest.raises(InputError, match="there is no face network"):
            OnnxNetwork(missing)


def test_a_file_that_is_too_large(tmp_path: Path) -> None:
    with (tmp_path / "net.onnx").open("wb") as file:
        file.truncate(2**30 + 1)
    with pytest.raises(FormatError, match="larger than 1024 MB"):
        OnnxNetwork(tmp_path / "net.onnx")


def test_what_cannot_be_described(tmp_path: Path) -> None:
    network = OnnxNetwork(write_onnx(tmp_path / "net.onnx", ["n", 3, 112, 112], ["n", D]))
    for wrong in (np.zeros((112, 96, 3), np.uint8), np.zeros((112, 112, 3), np.float32), "crop"):
        with pytest.raises(InputError, match="an aligned face is a uint8 array"):
            network.describe_crops([wrong])  # type: ignore[list-item]
    zero = OnnxNetwork(write_onnx(tmp_path / "zero.onnx", ["n", 3, 112, 112], ["n", D], "zero"))
    with pytest.raises(InputError, match="nothing to tell"):
        zero.describe_crops(some_crops(2))
    twice = OnnxNetwork(write_onnx(tmp_path / "twice.onnx", ["n", 3, 112, 112], ["n", D], "twice"))
    with pytest.raises(FormatError, match=r"gives \(4, 5\) for 2 faces"):
        twice.describe_crops(some_crops(2))
