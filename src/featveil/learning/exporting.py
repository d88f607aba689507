"""A trained inverter -> one ONNX file that runs without torch: the computation of `Inverter.forward`, node by node.

And back: weights of such a file, for a training that begins with them.
"""

# By hand rather than by torch's exporter (2.13 with onnxscript 0.7, tried on the small U-Net). That one makes a graph
# which is as good: opset 18, any number of features and size of picture, the same bytes each time. But it takes 20 s
# instead of 0.1 s and two more packages (10 MB, beta). Its files have 11.3 MB instead of 5.6 MB, as halving the weights
# and casting them back would still be ours, and 126 kB of them are stack traces with the paths of this machine, to be
# taken out again. And what `read_weights` needs to begin with files that were written so far is this list of nodes.

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor, nn

from featveil.core.errors import MissingExtraError
from featveil.core.files import replacing
from featveil.learning.encodings import FORMAT, STRIDES, Encoding
from featveil.learning.inverter_networks import SLOPE, Inverter, Plain

try:
    import onnx
    from onnx import TensorProto, helper, numpy_helper
except ImportError as error:
    raise MissingExtraError("onnx", "learning") from error

_OPSET, _IR = 18, 10  # versions that onnxruntime 1.19 reads
_SMALLEST = 64  # numbers, below which weights stay float32
_LARGEST_HALF = 2.0  # larger weights multiply small differences, for which float16 is too coarse


def export_inverter(path: Path, network: Inverter, encoding: Encoding, card: dict[str, Any]) -> None:
    """Write the network with how it reads features and its card.

    Raises InputError when the disk refuses the file.
    """
    model = make_graph(network, encoding.columns)
    for key, value in {"format": FORMAT, "encoding": json.dumps(encoding.to_json()), "card": json.dumps(card)}.items():
        model.metadata_props.add(key=key, value=value)
    with replacing(path) as temporary:
        temporary.write_bytes(model.SerializeToString())


def make_graph(network: Inverter, columns: int) -> onnx.ModelProto:
    """The model with inputs rows (n, columns), cells (n, levels), frame (1, h / 32, w / 32), and output image.

    Weights are stored as float16 unless some are large, and computed with as float32.
    """
    nodes = _Nodes()
    image = _paint(nodes, network)
    nodes.nodes.append(helper.make_node("Identity", [image], ["image"]))
    inputs = [
        helper.make_tensor_value_info("rows", TensorProto.FLOAT, ["n", columns]),
        helper.make_tensor_value_info("cells", TensorProto.INT64, ["n", len(STRIDES)]),
        helper.make_tensor_value_info("frame", TensorProto.FLOAT, [1, "down", "across"]),
    ]
    output = helper.make_tensor_value_info("image", TensorProto.FLOAT, [1, 3, "height", "width"])
    graph = helper.make_graph(nodes.nodes, "inverter", inputs, [output], nodes.weights)
    return helper.make_model(
        graph, producer_name="featveil", opset_imports=[helper.make_opsetid("", _OPSET)], ir_version=_IR
    )


def read_weights(content: bytes, network: Inverter) -> dict[str, Tensor]:
    """What a file of `make_graph` holds for each parameter of `network`, by its name, whatever its shape.

    For files that were checked before: onnx alone would follow references to other files.
    """
    nodes = _Nodes()
    _paint(nodes, network)
    names = {id(parameter): name for name, parameter in network.named_parameters()}
    stored = {tensor.name: tensor for tensor in onnx.load_model_from_string(content).graph.initializer}
    weights = {names[id(tensor)]: stored[place] for place, tensor in nodes.places.items() if place in stored}
    return {name: torch.from_numpy(numpy_helper.to_array(value).astype(np.float32)) for name, value in weights.items()}


class _Nodes:
    """Nodes and weights of a graph, each known by a name; methods return that of what they add."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []
        self.places: dict[str, Tensor] = {}  # which weights are of which parameter

    def add(self, operator: str, *inputs: str, **attributes: Any) -> str:
        name = f"{operator}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(operator, list(inputs), [name], **attributes))
        return name

    def numbers(self, values: ArrayLike, dtype: type[np.generic] = np.int64) -> str:
        name = f"numbers_{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.asarray(values, dtype), name))
        return name

    def weight(self, tensor: Tensor) -> str:
        values = tensor.detach().float().cpu().numpy()
        self.places[f"numbers_{len(self.weights)}"] = tensor
        if values.size < _SMALLEST or np.abs(values).max() > _LARGEST_HALF:
            return self.numbers(values, np.float32)
        return self.add("Cast", self.numbers(values, np.float16), to=TensorProto.FLOAT)

    def linear(self, taken: str, layer: nn.Module) -> str:
        parameters = (self.weight(layer.get_parameter(name)) for name in ("weight", "bias"))
        return self.add("Gemm", taken, *parameters, transB=1)

    def convolution(self, taken: str, layer: nn.Module) -> str:
        assert isinstance(layer, nn.Conv2d) and layer.bias is not None
        pads = [int(edge) for edge in layer.padding] * 2
        strides, shape = list(layer.stride), list(layer.kernel_size)
        weights = self.weight(layer.weight), self.weight(layer.bias)
        return self.add("Conv", taken, *weights, pads=pads, strides=strides, kernel_shape=shape)

    def rectified(self, taken: str) -> str:
        return self.add("LeakyRelu", taken, alpha=SLOPE)

    def gelu(self, taken: str) -> str:
        erf = self.add("Erf", self.add("Mul", taken, self.numbers(np.sqrt(0.5), np.float32)))
        half = self.add("Mul", taken, self.numbers(0.5, np.float32))
        return self.add("Mul", half, self.add("Add", erf, self.numbers(1.0, np.float32)))

    def part(self, taken: str, start: int, end: int, axis: int) -> str:
        return self.add("Slice", taken, *(self.numbers([value]) for value in (start, end, axis)))

    def block(self, taken: str, block: Any) -> str:
        """What `Plain` or `Residual` makes of a grid."""
        if isinstance(block, Plain):
            inner = self.convolution(self.rectified(taken), block.first)
            return self.add("Add", taken, self.convolution(self.rectified(inner), block.second))
        for narrow, middle, wide in zip(block.narrow, block.middle, block.wide, strict=True):
            inner = self.convolution(self.rectified(taken), narrow)
            inner = self.convolution(self.rectified(inner), middle)
            taken = self.add("Add", taken, self.convolution(self.rectified(inner), wide))
        return taken


def _paint(nodes: _Nodes, network: Inverter) -> str:
    read = _read(nodes, network)
    shape = nodes.add("Shape", "frame")
    levels: list[str] = []
    for place, encoder in enumerate(network.encoders):
        grid = _scattered(nodes, nodes.linear(read, network.scatters[place]), shape, place)
        if place:
            grid = nodes.add("Add", grid, nodes.convolution(levels[-1], network.downs[place - 1]))
        levels.append(nodes.block(grid, encoder))
    picture = levels.pop()
    twice = nodes.numbers([1, 1, 2, 2], np.float32)
    for up, decoder in zip(reversed(network.ups), reversed(network.decoders), strict=True):
        grid = nodes.convolution(picture, up)
        grid = nodes.add(
            "Resize", grid, "", twice, mode="nearest", coordinate_transformation_mode="asymmetric", nearest_mode="floor"
        )
        picture = nodes.block(nodes.add("Add", grid, levels.pop()), decoder)
    painted = nodes.convolution(picture, network.painter)
    shuffled = nodes.add("DepthToSpace", painted, blocksize=STRIDES[0], mode="CRD")
    return nodes.add("Add", shuffled, nodes.numbers(0.5, np.float32))


def _read(nodes: _Nodes, network: Inverter) -> str:
    first, _, second, _, norm = network.reader
    assert isinstance(norm, nn.LayerNorm)
    read = nodes.gelu(nodes.linear(nodes.gelu(nodes.linear("rows", first)), second))
    weights = nodes.weight(norm.weight), nodes.weight(norm.bias)
    return nodes.add("LayerNormalization", read, *weights, axis=-1, epsilon=norm.eps)


def _scattered(nodes: _Nodes, values: str, shape: str, place: int) -> str:
    """The grid (1, width, rows, columns) of a level, with values (n, width) added up in their cells."""
    step = nodes.numbers([STRIDES[-1] // STRIDES[place]])
    rows, columns = (nodes.add("Mul", nodes.part(shape, axis, axis + 1, 0), step) for axis in (1, 2))
    width = nodes.part(nodes.add("Shape", values), 1, 2, 0)
    one = nodes.numbers([1])
    count = nodes.add("Add", nodes.add("Mul", rows, columns), one)  # the last is of features without a cell
    zero = helper.make_tensor("zero", TensorProto.FLOAT, [1], [0.0])
    empty = nodes.add("ConstantOfShape", nodes.add("Concat", count, width, axis=0), value=zero)
    cells = nodes.add("Expand", nodes.part("cells", place, place + 1, 1), nodes.add("Shape", values))
    filled = nodes.add("ScatterElements", empty, cells, values, axis=0, reduction="add")
    grid = nodes.part(filled, 0, -1, 0)
    grid = nodes.add("Reshape", grid, nodes.add("Concat", one, rows, columns, width, axis=0))
    return nodes.add("Transpose", grid, perm=[0, 3, 1, 2])
