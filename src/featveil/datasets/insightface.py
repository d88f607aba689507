"""InsightFace's validation sets (lfw.bin, cfp_ff.bin, cfp_fp.bin, agedb_30.bin): aligned faces and which pairs match.

Such a file is a pickle of two lists: 2n pictures as bytes, and n booleans. A pickle is a program, so it is not run by
Python's machine: the one below knows lists, tuples, bytes and booleans, and refuses a file at the first other opcode.
"""

import pickletools
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from featveil.core import FormatError, InputError
from featveil.datasets.face_pairs import FOLDS, FacePairs
from featveil.extractors.faces import SIDE

_LARGEST_FILE = 2**31
_MOST_PICTURES = 1_000_000
_MOST_OPCODES = 8 * _MOST_PICTURES  # an entry takes two or three; an empty list, of one byte, takes 56 in memory
_LARGEST_PICTURE = 2**18  # bytes of one encoded picture: what unpacks to a thousand times as much still fits in memory
_NOTHING = ("PROTO", "FRAME", "STOP")
_BYTES = ("BINBYTES", "SHORT_BINBYTES", "BINBYTES8", "BINSTRING", "SHORT_BINSTRING")
_TUPLES = {"EMPTY_TUPLE": 0, "TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}
_MARK = object()


@dataclass(frozen=True, eq=False, repr=False)
class AlignedPairs:
    """Encoded `pictures` of faces, 2n of them; pictures 2i and 2i + 1 are `same[i]`, the same person or not."""

    pictures: tuple[bytes, ...]
    same: NDArray[np.bool_]

    def pairs(self) -> FacePairs:
        """The pairs as rows of the pictures, in ten folds of neighbours, as this field evaluates them."""
        rows = np.arange(len(self.same))
        return FacePairs(2 * rows, 2 * rows + 1, self.same, rows * FOLDS // len(rows))

    def crops(self) -> Iterator[NDArray[np.uint8]]:
        """The pictures as uint8 RGB (112, 112, 3); raises FormatError for one that cannot be decoded."""
        import cv2

        for place, encoded in enumerate(self.pictures):
            image = None
            if 0 < len(encoded) <= _LARGEST_PICTURE:
                with suppress(cv2.error):  # a picture that claims too many pixels
                    image = cv2.imdecode(np.frombuffer(encoded, np.uint8), cv2.IMREAD_COLOR)
            if image is None or image.shape[:2] != (SIDE, SIDE):
                content = "no picture" if image is None else f"a picture of {image.shape[1]} x {image.shape[0]} pixels"
                raise FormatError(f"entry {place} is {content}, not a face of {SIDE} x {SIDE}")
            yield np.ascontiguousarray(image[:, :, ::-1])


def load_bin(path: str | Path) -> AlignedPairs:
    """Read a validation set.

    Raises InputError for a missing file and FormatError for anything but plain lists of bytes and booleans.
    """
    path = Path(path)
    try:
        if path.stat().st_size > _LARGEST_FILE:
            raise FormatError(f"{path} is larger than any validation set")
        content = path.read_bytes()
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from error
    try:
        pictures, same = _plain(content)
    except (ValueError, TypeError, IndexError, KeyError, StopIteration) as error:
        raise FormatError(
            f"{path} is refused: a validation set is a pickle of plain lists of bytes and booleans only"
        ) from error
    whole = isinstance(pictures, list) and isinstance(same, list) and all(type(entry) is bytes for entry in pictures)
    if not whole or not same or not all(type(entry) is bool for entry in same):
        raise FormatError(f"{path} is refused: expected a list of pictures as bytes and one of booleans")
    if len(pictures) != 2 * len(same) or len(pictures) > _MOST_PICTURES:
        raise FormatError(f"{path} has {len(pictures)} pictures for {len(same)} pairs: expected two for each")
    return AlignedPairs(tuple(pictures), np.array(same, np.bool_))


def _plain(content: bytes) -> Any:
    """What a pickle of plain data holds; raises ValueError at the first opcode of any other kind."""
    stack: list[Any] = []
    memo: dict[int, Any] = {}
    for count, (opcode, value, _) in enumerate(pickletools.genops(content)):
        if count >= _MOST_OPCODES:
            raise ValueError("too many opcodes")
        name, argument = opcode.name, cast(Any, value)
        if name in _BYTES:
            stack.append(argument if isinstance(argument, bytes) else argument.encode("latin-1"))
        elif name in ("NEWTRUE", "NEWFALSE"):
            stack.append(name == "NEWTRUE")
        elif name == "INT" and type(argument) is bool:  # how old pickles write booleans
            stack.append(argument)
        elif name == "MARK":
            stack.append(_MARK)
        elif name == "EMPTY_LIST":
            stack.append([])
        elif name in ("LIST", "TUPLE"):
            entries = _since_mark(stack)
            stack.append(entries if name == "LIST" else tuple(entries))
        elif name in _TUPLES:
            start = len(stack) - _TUPLES[name]
            entries = stack[start:]
            del stack[start:]
            stack.append(tuple(entries))
        elif name in ("APPEND", "APPENDS"):
            added = [stack.pop()] if name == "APPEND" else _since_mark(stack)
            _list(stack[-1]).extend(added)
        elif name in ("PUT", "BINPUT", "LONG_BINPUT", "MEMOIZE"):
            memo[len(memo) if name == "MEMOIZE" else int(argument)] = stack[-1]
        elif name in ("GET", "BINGET", "LONG_BINGET"):
            stack.append(memo[int(argument)])
        elif name not in _NOTHING:
            raise ValueError(f"opcode {name}")
    (whole,) = stack
    return whole


def _since_mark(stack: list[Any]) -> list[Any]:
    """Take what was pushed since the last mark, and the mark itself."""
    place = next(index for index in range(len(stack) - 1, -1, -1) if stack[index] is _MARK)
    entries = stack[place + 1 :]
    del stack[place:]
    return entries


def _list(value: Any) -> list[Any]:
    if type(value) is not list:
        raise TypeError("only lists are appended to")
    return value
