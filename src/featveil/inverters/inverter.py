"""A trained inverter in one ONNX file: the graph, and beside it how features are read and its card.

An ONNX graph is data that onnxruntime interprets; a file that refers to other files, or has loops, is refused.
"""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from featveil.core import FeatveilError, FormatError, InputError, Keypoints, PrivateFeatures
from featveil.core.arrays import Float32
from featveil.core.features import Features
from featveil.formats.tensors import read_json_object
from featveil.inverters.contents import check_contents
from featveil.learning.encodings import FORMAT, STRIDES, Encoding, cells

Image = NDArray[np.uint8]

_LARGEST_FILE = 2**28
_LARGEST_SIDE = 4096
_INPUTS = {"rows": "tensor(float)", "cells": "tensor(int64)", "frame": "tensor(float)"}
_OUTPUTS = {"image": "tensor(float)"}


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
        by_scale = self.encoding.reads_all(keypoints)
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
    try:
        content = path.read_bytes()
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}") from error
    try:
        return _loaded(content)
    except (FormatError, ValueError) as error:  # ValueError: a text that is none
        hint = "" if path.suffix == ".onnx" else " (inverters are .onnx files)"
        raise FormatError(f"{path} is no usable inverter: {error}{hint}") from error


def _loaded(content: bytes) -> Inverter:
    check_contents(content)
    session = _session(content)
    metadata = session.get_modelmeta().custom_metadata_map
    if metadata.get("format") != FORMAT:
        raise FormatError(f"its metadata does not say format {FORMAT}")
    try:
        encoding = Encoding(**read_json_object(metadata.get("encoding", ""), "encoding"))
    except TypeError as error:
        raise FormatError("its encoding has other fields") from error
    card = read_json_object(metadata.get("card", ""), "card")
    inputs = {entry.name: entry for entry in session.get_inputs()}
    outputs = {entry.name: entry.type for entry in session.get_outputs()}
    if {name: entry.type for name, entry in inputs.items()} != _INPUTS or outputs != _OUTPUTS:
        raise FormatError("it has another architecture")
    columns = inputs["rows"].shape[1:]
    if columns != [encoding.columns]:
        raise FormatError(f"it does not read the {encoding.columns} numbers a feature that it says")
    return Inverter(encoding, card, session)


def _session(content: bytes) -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    try:
        return onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime has no public base class of its errors
        raise FormatError("onnxruntime cannot read it") from error
