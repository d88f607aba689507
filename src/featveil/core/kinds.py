"""Names of descriptor kinds: what a network concealed is of another kind than what it was given.

A concealed descriptor lies in a space of its own. Comparing it with a raw one, or with one of another network, means
nothing, and kinds keep them apart: sift+concealed-0123456789ab is SIFT after the network whose digest starts so.
"""

_FACE = "face"
_MARK = "+concealed-"
_DIGITS = 12  # of the network's digest


def face_kind(digest: str) -> str:
    """The kind of face descriptors that the network with that `digest` makes."""
    return f"{_FACE}-{digest[:_DIGITS]}"


def is_face(kind: str) -> bool:
    """Whether descriptors of `kind` are of faces: face by itself where the network is not known."""
    return kind == _FACE or kind.startswith(f"{_FACE}-")


def concealed_kind(kind: str, digest: str) -> str:
    """The kind of descriptors of `kind` after the network with that `digest`."""
    return f"{kind}{_MARK}{digest[:_DIGITS]}"


def is_concealed(kind: str) -> bool:
    """Whether descriptors of `kind` went through a concealing network."""
    return _MARK in kind


def base_kind(kind: str) -> str:
    """The kind of the raw descriptors behind those of `kind`; without a network that is `kind` itself."""
    return kind.partition(_MARK)[0]
