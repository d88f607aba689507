"""Inverter files: what they read, and that damaged, foreign and hostile ones are refused before they are run."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="networks: pip install 'featveil[learning]'")
onnx = pytest.importorskip("onnx", reason="exporting: pip install 'featveil[learning]'")

from onnx import TensorProto, helper, numpy_helper  # noqa: E402

from featveil.core import Features, FeatveilError, FormatError, InputError, Keypoints, Points, Subspaces  # noqa: E402
from featveil.core.features import PrivateFeatures  # noqa: E402
from featveil.core.guarantees import Guarantee  # noqa: E402
from featveil.inverters import load_inverter  # noqa: E402
from featveil.learning.encodings import Encoding  # noqa: E402
from small_inverters import ENCODING, SIZE, export_tiny, some_features  # noqa: E402

Change = Callable[[Any], None]


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny inverter. Do not change it."""
    path = tmp_path_factory.mktemp("inverters") / "good.onnx"
    export_tiny(path)
    return path


def changed(good: Path, path: Path, change: Change) -> Path:
    model = onnx.load(good)
    change(model)
    path.write_bytes(model.SerializeToString())
    return path


def with_metadata(key: str, value: str | None) -> Change:
    """Metadata with another value, or without it."""

    def change(model: Any) -> None:
        kept = [(entry.key, entry.value) for entry in model.metadata_props if entry.key != key]
        del model.metadata_props[:]
        for name, text in [*kept, *([] if value is None else [(key, value)])]:
            model.metadata_props.add(key=name, value=text)

    return change


def encoded(**fields: Any) -> Change:
    return with_metadata("encoding", json.dumps({**ENCODING.to_json(), **fields}))


def test_an_inverter_that_is_left_alone_works(good: Path, tmp_path: Path) -> None:
    same = changed(good, tmp_path / "same.onnx", lambda model: None)
    features = some_features(20, 50, 40)
    assert np.array_equal(load_inverter(same).invert(features), load_inverter(str(good)).invert(features))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (with_metadata("format", None), "format featveil-inverter-1"),
        (with_metadata("format", "featveil-inverter-2"), "format featveil-inverter-1"),
        (with_metadata("encoding", None), "encoding is not valid JSON"),
        (with_metadata("encoding", "[]"), "encoding is not a JSON object"),
        (with_metadata("encoding", "[" * 100_000), "encoding is not valid JSON"),
        (with_metadata("card", None), "card is not valid JSON"),
        (with_metadata("card", '"a text"'), "card is not a JSON object"),
        (with_metadata("card", '{"ssim": NaN}'), "card is not valid JSON"),
        (encoded(more=1), "encoding has other fields"),
        (encoded(kind="../x"), "a descriptor kind is"),
        (encoded(size="8"), "whole numbers"),
        (encoded(size=2**40), "does not read the 1099511627783 numbers a feature"),
        (encoded(size=SIZE + 1), f"does not read the {SIZE + 8} numbers a feature that it says"),
        (encoded(representation="subspaces", count=3), "does not read the 39 numbers"),
        (encoded(representation="pictures"), "representation must be one of"),
        (encoded(codebook="a" * 64), "codebook"),
    ],
)
def test_other_metadata_is_refused(good: Path, tmp_path: Path, change: Change, message: str) -> None:
    path = changed(good, tmp_path / "a.onnx", change)
    with pytest.raises(FormatError, match=f"a.onnx is no usable inverter: .*{message}"):
        load_inverter(path)


def external(location: str, **more: str) -> Change:
    """The first large tensor in another file."""

    def change(model: Any) -> None:
        tensor = next(tensor for tensor in model.graph.initializer if len(tensor.raw_data) > 100)
        tensor.ClearField("raw_data")
        tensor.data_location = TensorProto.EXTERNAL
        for key, value in {"location": location, **more}.items():
            tensor.external_data.add(key=key, value=value)

    return change


@pytest.mark.parametrize("location", ["weights.bin", "./weights.bin", "{here}", "*/_ORT_MEM_ADDR_/*", ""])
def test_weights_in_another_file_are_refused(
    good: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, location: str
) -> None:
    (tmp_path / "weights.bin").write_bytes(os.urandom(1 << 20))
    monkeypatch.chdir(tmp_path)
    where = location.replace("{here}", str(tmp_path / "weights.bin"))
    path = changed(good, tmp_path / "a.onnx", external(where, offset="4096", length="4096"))
    with pytest.raises(FormatError, match="its weights are in another file"):
        load_inverter(path)


def test_weights_in_another_file_are_found_wherever_they_are(good: Path, tmp_path: Path) -> None:
    hidden = TensorProto(name="hidden", data_type=TensorProto.FLOAT, dims=[4])
    hidden.data_location = TensorProto.EXTERNAL
    hidden.external_data.add(key="location", value="weights.bin")

    def in_attribute(model: Any) -> None:
        model.graph.node.add().CopyFrom(helper.make_node("Constant", [], ["unused"], value=hidden))

    def in_tensors(model: Any) -> None:
        node = model.graph.node.add(op_type="Constant", output=["unused"])
        attribute = node.attribute.add(name="values", type=onnx.AttributeProto.TENSORS)
        attribute.tensors.add().CopyFrom(hidden)

    for change in (in_attribute, in_tensors):
        with pytest.raises(FormatError, match="its weights are in another file"):
            load_inverter(changed(good, tmp_path / "a.onnx", change))


def test_a_field_that_others_read_as_another_one_is_refused(good: Path, tmp_path: Path) -> None:
    """Some readers keep 32 bits of a field's number: 13 + 2^29 is the place of external data to them."""
    content = good.read_bytes()
    for key in ((13 + 2**29) << 3 | 2, 2):
        written = bytearray()
        while key >= 0x80:
            written.append(key & 0x7F | 0x80)
            key >>= 7
        (tmp_path / "a.onnx").write_bytes(content + bytes([*written, key, 0]))
        with pytest.raises(FormatError, match="it is damaged"):
            load_inverter(tmp_path / "a.onnx")


def test_loops_sparse_weights_and_trainings_are_refused(good: Path, tmp_path: Path) -> None:
    def loop(model: Any) -> None:
        body = helper.make_graph([], "body", [], [])
        model.graph.node.add().CopyFrom(helper.make_node("Loop", ["", ""], ["unused"], body=body))

    def sparse(model: Any) -> None:
        values = numpy_helper.from_array(np.ones(1, np.float32), "s")
        places = numpy_helper.from_array(np.zeros(1, np.int64), "i")
        model.graph.sparse_initializer.add().CopyFrom(helper.make_sparse_tensor(values, places, [9]))

    def training(model: Any) -> None:
        model.training_info.add()

    def function(model: Any) -> None:
        node = helper.make_node("Identity", ["x"], ["y"])
        model.functions.add().CopyFrom(
            helper.make_function("mine", "f", ["x"], ["y"], [node], [helper.make_opsetid("", 18)])
        )

    refused = {loop: "a graph within a node", sparse: "sparse", training: "more than a network"}
    for change, message in (refused | {function: "more than a network"}).items():
        with pytest.raises(FormatError, match=message):
            load_inverter(changed(good, tmp_path / "a.onnx", change))


def test_another_architecture_is_refused(tmp_path: Path, good: Path) -> None:
    def written(inputs: list[Any], outputs: list[Any], nodes: list[Any]) -> Path:
        model = helper.make_model(
            helper.make_graph(nodes, "g", inputs, outputs), opset_imports=[helper.make_opsetid("", 18)], ir_version=10
        )
        for entry in onnx.load(good).metadata_props:
            model.metadata_props.add(key=entry.key, value=entry.value)
        (tmp_path / "a.onnx").write_bytes(model.SerializeToString())
        return tmp_path / "a.onnx"

    def tensor(name: str, kind: int, shape: list[Any] | None) -> Any:
        return helper.make_tensor_value_info(name, kind, shape)

    rows = tensor("rows", TensorProto.FLOAT, ["n", ENCODING.columns])
    cells = tensor("cells", TensorProto.INT64, ["n", 5])
    frame = tensor("frame", TensorProto.FLOAT, [1, "h", "w"])
    image = tensor("image", TensorProto.FLOAT, None)
    same = [helper.make_node("Identity", ["rows"], ["image"])]
    for inputs, outputs, nodes in (
        ([rows], [image], same),
        ([rows, cells, frame, tensor("more", TensorProto.FLOAT, [1])], [image], same),
        ([rows, tensor("cells", TensorProto.FLOAT, ["n", 5]), frame], [image], same),
        (
            [rows, cells, frame],
            [tensor("picture", TensorProto.FLOAT, None)],
            [helper.make_node("Identity", ["rows"], ["picture"])],
        ),
    ):
        with pytest.raises(FormatError, match="another architecture"):
            load_inverter(written(inputs, outputs, nodes))
    wide = tensor("rows", TensorProto.FLOAT, ["n", "any"])
    with pytest.raises(FormatError, match="does not read the 15 numbers"):
        load_inverter(written([wide, cells, frame], [image], same))
    # What looks like an inverter and is none paints no picture.
    impostor = load_inverter(written([rows, cells, frame], [image], same))
    with pytest.raises(FormatError, match=r"paints \(20, 15\), which is no picture"):
        impostor.invert(some_features(20, 50, 40))


def test_damaged_and_foreign_files_are_refused(good: Path, tmp_path: Path) -> None:
    whole, path = good.read_bytes(), tmp_path / "a.onnx"
    noise = np.random.default_rng(0)
    for content in (
        b"",
        b"\x00",
        b"no network",
        whole[:-1000],
        whole[:100],
        whole[100:],
        noise.bytes(5000),
        b"\xff" * 99,
    ):
        path.write_bytes(content)
        with pytest.raises(FormatError, match=r"a\.onnx is no usable inverter"):
            load_inverter(path)
    with pytest.raises(InputError, match=r"there is no inverter .*train one"):
        load_inverter(tmp_path / "none.onnx")
    with pytest.raises(InputError, match="there is no inverter"):
        load_inverter(tmp_path)


def test_any_byte_that_is_changed_gives_an_inverter_or_one_error(good: Path, tmp_path: Path) -> None:
    whole, path = bytearray(good.read_bytes()), tmp_path / "a.onnx"
    rng, features, refused = np.random.default_rng(0), some_features(5, 32, 32), 0
    # Structure, not weights: those are most of the file, and any value of theirs is a network.
    ends = [place for place in range(len(whole)) if place < 1500 or place > len(whole) - 4000]
    for place in rng.choice(ends, 30, replace=False):
        damaged = whole.copy()
        damaged[place] ^= int(rng.integers(1, 256))
        path.write_bytes(damaged)
        try:
            assert load_inverter(path).invert(features).shape == (32, 32, 3)
        except FeatveilError:
            refused += 1
    assert refused > 3


def test_a_file_that_is_too_large_is_not_read(tmp_path: Path) -> None:
    with (tmp_path / "a.onnx").open("wb") as file:
        file.truncate(2**28 + 1)
    with pytest.raises(FormatError, match="too large for an inverter"):
        load_inverter(tmp_path / "a.onnx")


def test_features_that_it_does_not_read_are_refused(good: Path) -> None:
    inverter, features = load_inverter(good), some_features(4, 50, 40)
    points, keypoints = features.descriptors, features.keypoints
    with pytest.raises(InputError, match="trained on sift, the features are rootsift"):
        inverter.invert(Features(points, "rootsift", keypoints, (50, 40)))
    with pytest.raises(InputError, match="needs keypoints and the size"):
        inverter.invert(Features(points, "sift", None, (50, 40)))
    with pytest.raises(InputError, match="needs keypoints and the size"):
        inverter.invert(Features(points, "sift", keypoints))
    with pytest.raises(InputError, match=r"up to 4096 pixels a side are painted, got 4097 x 40"):
        inverter.invert(Features(points, "sift", keypoints, (4097, 40)))
    with pytest.raises(InputError, match=r"up to 4096 pixels"):
        inverter.invert(Features(points, "sift", keypoints, (1, 2**24)))
    basis = np.eye(SIZE, dtype=np.float32)[None, :2].repeat(4, axis=0)
    subspaces = Subspaces(points.values, basis)
    private = PrivateFeatures(subspaces, "sift", {"name": "lifting"}, Guarantee("empirical"), keypoints, (50, 40))
    with pytest.raises(InputError, match="representation points, the features have subspaces"):
        inverter.invert(private)
    wide = Points(np.ones((4, SIZE + 1), np.float32))
    with pytest.raises(InputError, match=f"size {SIZE}, the features have {SIZE + 1}"):
        inverter.invert(Features(wide, "sift", keypoints, (50, 40)))


def test_geometry_that_it_cannot_do_without(tmp_path: Path) -> None:
    export_tiny(tmp_path / "a.onnx", Encoding("sift", SIZE, geometry="full"))
    inverter, features = load_inverter(tmp_path / "a.onnx"), some_features(4, 50, 40)
    assert inverter.invert(features).shape == (40, 50, 3)
    assert features.keypoints is not None
    with pytest.raises(InputError, match="scale, orientation and response"):
        inverter.invert(Features(features.descriptors, "sift", features.keypoints.positions_only(), (50, 40)))


def test_hostile_features_give_a_picture_and_no_warning(good: Path) -> None:
    huge = np.full(3, np.finfo(np.float32).max)
    places = np.array([[1e30, -1e30], [-3, 9], [20, 20]], np.float32)
    values = np.array([[1e12] * SIZE, [-1e12] * SIZE, [1e-15] * SIZE], np.float32)
    features = Features(Points(values), "sift", Keypoints(places, huge, huge, huge), (50, 40))
    assert load_inverter(good).invert(features).shape == (40, 50, 3)
