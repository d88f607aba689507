"""A trained inverter -> one ONNX file that runs without torch; weights are stored as float16, computed in float32."""

import contextlib
import io
import json
import logging
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch

from featveil.core.errors import MissingExtraError
from featveil.core.files import replacing
from featveil.learning.encodings import STRIDES, Encoding
from featveil.learning.inversion import Inverter

_FORMAT = "featveil-inverter-1"
_SMALLEST = 64  # numbers, below which a tensor stays float32


def export_inverter(path: Path, network: Inverter, encoding: Encoding, card: dict[str, Any]) -> None:
    """Write the network with how it reads features and its card; raises MissingExtraError without onnx."""
    model = _graph(network.eval().cpu(), encoding)
    _halve(model)
    for key, value in {"format": _FORMAT, "encoding": encoding.to_json(), "card": card}.items():
        model.metadata_props.add(key=key, value=value if isinstance(value, str) else json.dumps(value))
    with replacing(path) as temporary:
        temporary.write_bytes(model.SerializeToString())


def check_exportable() -> None:
    """Raise MissingExtraError unless a network can be exported: better before hours of training than after."""
    try:
        import onnx  # noqa: F401
        import onnxscript  # noqa: F401
    except ImportError as error:
        raise MissingExtraError("onnx and onnxscript", "learning") from error


def _graph(network: Inverter, encoding: Encoding) -> Any:
    """The ONNX model, for any number of features and any size of the picture."""
    check_exportable()
    features, frame = 7, torch.zeros(1, 3, 2)
    cells = torch.zeros(features, len(STRIDES), dtype=torch.int64)
    dynamic = torch.export.Dim.DYNAMIC
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()), _quiet("torch.onnx"):
        warnings.simplefilter("ignore")
        program = torch.onnx.export(
            network,
            (torch.randn(features, encoding.columns), cells, frame),
            input_names=["rows", "cells", "frame"],
            output_names=["image"],
            opset_version=18,
            dynamo=True,
            verbose=False,
            dynamic_shapes={"rows": {0: dynamic}, "cells": {0: dynamic}, "frame": {1: dynamic, 2: dynamic}},
        )
    assert program is not None
    return program.model_proto


@contextlib.contextmanager
def _quiet(name: str) -> Any:
    logger = logging.getLogger(name)
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)


def _halve(model: Any) -> None:
    """Store large float32 tensors as float16 and cast them when the network is loaded."""
    import onnx
    from onnx import helper, numpy_helper

    casts = []
    for tensor in model.graph.initializer:
        values = numpy_helper.to_array(tensor)
        if values.dtype != np.float32 or values.size < _SMALLEST:
            continue
        name = tensor.name
        tensor.CopyFrom(numpy_helper.from_array(values.astype(np.float16), f"{name}_half"))
        casts.append(helper.make_node("Cast", [f"{name}_half"], [name], to=onnx.TensorProto.FLOAT))
    nodes = [*casts, *model.graph.node]
    del model.graph.node[:]
    model.graph.node.extend(nodes)
