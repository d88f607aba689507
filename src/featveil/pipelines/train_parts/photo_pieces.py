"""Pieces of photographs and their features, kept in files that are mapped into memory.

The pieces are pixels of the photographs: nobody but their owner may read the folder.
"""

import hashlib
import json
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from featveil.core import Features, InputError, Keypoints, Points
from featveil.extractors.images import Image

Part = Literal["training", "validation", "test"]

SIDE = 256


@dataclass(frozen=True, eq=False)
class Piece:
    """A picture (256, 256, 3) and its features."""

    image: Image
    features: Features


class Pieces:
    """All pieces of one part, read when asked for. Raises InputError for a folder that is damaged."""

    def __init__(self, folder: Path, kind: str, part: Part) -> None:
        self.kind = kind
        self._shards = [_Shard(path) for path in sorted(folder.glob("shard-*"))]
        self._places = [
            (shard, row) for shard in self._shards for row in range(len(shard.images)) if shard.parts[row] == part
        ]

    def __len__(self) -> int:
        return len(self._places)

    def __getitem__(self, place: int) -> Piece:
        shard, row = self._places[place]
        start, end = shard.starts[row], shard.starts[row + 1]
        table = np.array(shard.keypoints[start:end])
        keypoints = Keypoints(table[:, :2], table[:, 2], table[:, 3], table[:, 4])
        values = np.array(shard.descriptors[start:end], np.float32)
        return Piece(np.array(shard.images[row]), Features(Points(values), self.kind, keypoints, (SIDE, SIDE)))

    def digest(self) -> str:
        """Of the names of all pieces and the numbers of their features: other photographs have another one."""
        counts = [[shard.names[row], int(shard.starts[row + 1] - shard.starts[row])] for shard, row in self._places]
        return hashlib.sha256(json.dumps(counts).encode()).hexdigest()

    def names(self) -> list[str]:
        """The photographs of this part."""
        return sorted({shard.names[row] for shard, row in self._places})


def write_shard(target: Path, pieces: Sequence[Piece], facts: dict[str, Any]) -> None:
    """Write pieces, and their `parts` and `names`, to a new folder, whole or not at all. Raises InputError."""
    temporary = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
    try:
        counts = [len(piece.features) for piece in pieces]
        size = pieces[0].features.descriptors.size if pieces else 1
        empty = np.empty((0, SIDE, SIDE, 3), np.uint8)
        np.save(temporary / "images.npy", np.stack([piece.image for piece in pieces]) if pieces else empty)
        np.save(temporary / "starts.npy", np.concatenate([[0], np.cumsum(counts)]).astype(np.int64))
        np.save(temporary / "keypoints.npy", _joined([_table(piece.features) for piece in pieces], 5))
        values = [piece.features.descriptors.values for piece in pieces]
        np.save(temporary / "descriptors.npy", _joined(values, size).astype(np.float16))
        (temporary / "pieces.json").write_text(json.dumps(facts), encoding="utf-8")
        temporary.replace(target)
    except OSError as error:
        raise InputError(f"cannot write {target}: {error.strerror or error}") from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _joined(parts: list[Any], columns: int) -> NDArray[Any]:
    return np.concatenate(parts) if parts else np.empty((0, columns), np.float32)


def _table(features: Features) -> NDArray[np.float32]:
    keypoints = features.keypoints
    assert keypoints is not None and keypoints.scale is not None
    assert keypoints.orientation is not None and keypoints.response is not None
    return np.column_stack([keypoints.xy, keypoints.scale, keypoints.orientation, keypoints.response])


class _Shard:
    def __init__(self, folder: Path) -> None:
        names = ("images", "starts", "keypoints", "descriptors")
        try:
            arrays = [np.load(folder / f"{name}.npy", mmap_mode="r", allow_pickle=False) for name in names]
            facts = json.loads((folder / "pieces.json").read_text(encoding="utf-8"))
            self.parts, self.names = list(facts["parts"]), list(facts["names"])
        except (OSError, EOFError, ValueError, KeyError, TypeError) as error:
            raise InputError(f"{folder} is damaged: delete it, and it is made again") from error
        self.images, self.starts, self.keypoints, self.descriptors = arrays
        ends = int(self.starts[-1]) if self.starts.size else -1
        lengths = {len(self.images), len(self.starts) - 1, len(self.parts), len(self.names)}
        if len(lengths) != 1 or {len(self.keypoints), len(self.descriptors)} != {ends}:
            raise InputError(f"{folder} is damaged: delete it, and it is made again")
