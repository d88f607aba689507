"""Inverters that paint one grey and keep what they were fed, for tests of what reaches an inverter."""

from typing import Any

import numpy as np

from featveil.core import Spec
from featveil.inverters import Inverter
from featveil.learning.encodings import STRIDES, Encoding
from featveil.pipelines.painters import Painter

RAW = Encoding("sift", geometry="either")


class Session:
    """Stands in for onnxruntime's: the grey is the mean of all numbers it reads, so other features give another."""

    def __init__(self) -> None:
        self.fed: list[dict[str, Any]] = []

    def run(self, names: list[str], feed: dict[str, Any]) -> list[Any]:
        """One picture."""
        self.fed.append(feed)
        _, down, across = feed["frame"].shape
        side = STRIDES[-1]
        grey = 0.5 + 0.5 * np.tanh(feed["rows"].mean())
        return [np.full((1, 3, down * side, across * side), grey, np.float32)]


def grey_painter(
    encoding: Encoding = RAW, defense: Spec | None = None, name: str = "grey.onnx", **card: Any
) -> Painter:
    """Trained, as its card says, on `defense`, by default none; its digest is that of its name."""
    told = {"defense": {"name": "identity"} if defense is None else defense, **card}
    return Painter(name, name.encode().hex().ljust(64, "0"), Inverter(encoding, told, Session()))


def fed(painter: Painter) -> list[dict[str, Any]]:
    """What a grey painter has read so far."""
    session = painter.inverter._session
    assert isinstance(session, Session)
    return session.fed
