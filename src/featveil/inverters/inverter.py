"""A trained inverter in one ONNX file: the graph, and beside it how features are read and its card.

An ONNX graph is data that onnxruntime interprets; a file with references to other files is refused.
"""

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from featveil.core import FeatveilError, FormatError, InputError, Keypoints, PrivateFeatures
from featveil.core.arrays import Float32
from featveil.core.features import Features
from featveil.learning.encodings import STRIDES, Encoding, cells

Image = NDArray[np.uint8]

FORMAT = "featveil-inverter-1"
_LARGEST_FILE = 2**28
_LARGEST_SIDE = 4096
_INPUTS = {"rows", "cells", "frame"}


@dataclass(frozen=True, eq=False, repr=False)
class Inverter:
    """A network that paints what features saw; `encoding` is what it reads, `card` how it was made."""

    encoding: Encoding
    card: dict[str, Any]
    _session: Any

    def __repr__(self) -> str:
        return f"Inverter({self.encoding.kind}, {self.encoding.representation}, {self.encoding.geometry})"

    def invert(self, features: Features | PrivateFeatures, words: Float32 | None = None) -> Image:
        """The picture (h, w, 3) uint8 RGB, of the size of the image that the features are of.

        `words` (K, d) is the codebook of word sets. Raises InputError for features of another kind or representation,
        without keypoints, or of no image size.
        """
        if features.kind != self.encoding.kind:
            raise InputError(f"this inverter was trained on {self.encoding.kind}, the features are {features.kind}")
        if features.keypoints is None or features.image_size is None:
            raise InputError("an inverter needs keypoints and the size of the image")
        width, height = features.image_size
        if max(width, height) > _LARGEST_SIDE:
            raise InputError(f"pictures of up to {_LARGEST_SIDE} pixels a side are painted, got {width} x {height}")
        rows = self.encoding.rows(features.descriptors, features.keypoints, words)
        return self._paint(rows, features.keypoints, width, height)

    def _paint(self, rows: Float32, keypoints: Keypoints, width: int, height: int) -> Image:
        coarsest = STRIDES[-1]
        across, down = math.ceil(width / coarsest), math.ceil(height / coarsest)
        by_scale = self.encoding.geometry != "positions"
        feed = {
            "rows": rows,
            "cells": cells(keypoints, across * coarsest, down * coarsest, by_scale),
            "frame": np.zeros((1, down, across), np.float32),
        }
        try:
            painted = self._session.run(["image"], feed)[0]
        except Exception as error:  # onnxruntime has no public base class of its errors
            raise FeatveilError("the network of this inverter cannot be run on these features") from error
        if painted.shape != (1, 3, down * coarsest, across * coarsest):
            raise FormatError(f"the network paints {painted.shape}, which is no picture of these features")
        picture = np.rint(255 * np.clip(np.nan_to_num(painted[0], nan=0.5), 0, 1)).astype(np.uint8)
        return np.ascontiguousarray(picture.transpose(1, 2, 0)[:height, :width])


def load_inverter(path: str | Path) -> Inverter:
    """The inverter in a file. Raises InputError when there is none, FormatError when it is something else."""
    path = Path(path)
    if not path.is_file():
        raise InputError(f"there is no inverter {path}: train one with 'featveil train inverter'")
    if path.stat().st_size > _LARGEST_FILE:
        raise FormatError(f"{path} is too large for an inverter")
    session = _session(path)
    told = session.get_modelmeta().custom_metadata_map
    if told.get("format") != FORMAT:
        raise FormatError(f"{path} is no inverter of featveil (format {FORMAT})")
    try:
        encoding = Encoding(**json.loads(told["encoding"]))
        card = json.loads(told["card"])
    except (KeyError, TypeError, ValueError) as error:
        raise FormatError(f"{path} does not say how it reads features, or wrongly") from error
    if {entry.name for entry in session.get_inputs()} != _INPUTS or not isinstance(card, dict):
        raise FormatError(f"{path} has another architecture than an inverter's")
    columns = next(entry for entry in session.get_inputs() if entry.name == "rows").shape[1]
    if columns != encoding.columns:
        raise FormatError(f"{path} reads {columns} numbers a feature, but says {encoding.columns}")
    return Inverter(encoding, card, session)


def _session(path: Path) -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    try:
        # From memory: tensors that name other files cannot be resolved, and are refused.
        return onnxruntime.InferenceSession(path.read_bytes(), options, providers=["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime has no public base class of its errors
        raise FormatError(f"{path} is no ONNX network, or damaged") from error
