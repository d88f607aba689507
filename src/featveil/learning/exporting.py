"""A trained inverter -> one ONNX file that runs without torch; weights are stored as float16, computed in float32."""

import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from featveil.core.errors import MissingExtraError
from featveil.core.files import replacing
from featveil.learning.encodings import FORMAT, Encoding
from featveil.learning.inverter_networks import Inverter


def export_inverter(path: Path, network: Inverter, encoding: Encoding, card: dict[str, Any]) -> None:
    """Write the network with how it reads features and its card.

    Raises MissingExtraError without onnx, InputError when the disk refuses the file.
    """
    check_exportable()
    from featveil.learning.graphs import make_graph

    model = make_graph(network, encoding.columns)
    for key, value in {"format": FORMAT, "encoding": json.dumps(encoding.to_json()), "card": json.dumps(card)}.items():
        model.metadata_props.add(key=key, value=value)
    with replacing(path) as temporary:
        temporary.write_bytes(model.SerializeToString())


def check_exportable() -> None:
    """Raise MissingExtraError unless a network can be exported: better before hours of training than after."""
    if find_spec("onnx") is None:
        raise MissingExtraError("onnx", "learning")
    import featveil.learning.graphs  # noqa: F401  before hours of training, during which its file may change
