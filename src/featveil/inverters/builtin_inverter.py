"""The inverter that comes with featveil."""

from functools import cache
from pathlib import Path

from featveil.core import InputError
from featveil.inverters.inverter import Inverter, load_inverter

SIFT_FILE = Path(__file__).parent / "data" / "sift-inverter.onnx"


@cache
def builtin_inverter(kind: str = "sift") -> Inverter:
    """The built-in inverter of raw `kind` descriptors, with or without scale and orientation of the keypoints.

    Raises InputError for another kind than sift.
    """
    if kind != "sift":
        raise InputError(
            f"there is no built-in inverter of kind {kind!r:.80} (only sift): "
            f"train one, 'featveil train inverter --images DIR --extractor {kind:.64} --out FILE'"
        )
    return load_inverter(SIFT_FILE)
