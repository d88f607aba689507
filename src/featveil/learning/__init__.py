"""Networks, losses, training: the only home of torch. What runs without torch (encodings) imports none of it."""

from importlib.util import find_spec

from featveil.core.errors import MissingExtraError


def require_torch() -> None:
    """Raise MissingExtraError unless torch is installed; cheap, it is not imported."""
    _require("torch")


def require_onnx() -> None:
    """Raise MissingExtraError unless inverters can be exported: better before hours of training than after."""
    _require("onnx")


def _require(package: str) -> None:
    if find_spec(package) is None:
        raise MissingExtraError(package, "learning")
