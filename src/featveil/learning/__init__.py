"""Networks, losses, training: the only home of torch. What runs without torch (encodings) imports none of it."""

from importlib.util import find_spec

from featveil.core.errors import MissingExtraError


def require_torch() -> None:
    """Raise MissingExtraError unless torch is installed; cheap, it is not imported."""
    if find_spec("torch") is None:
        raise MissingExtraError("torch", "learning")
