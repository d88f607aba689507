"""Drawn photographs on disk, chosen so that the split by content puts them where a test wants them."""

from functools import cache
from itertools import count
from pathlib import Path

import cv2
import numpy as np

from featveil.datasets.textures import draw_posters
from featveil.pipelines.train_parts.photo_pieces import Part
from featveil.pipelines.train_parts.photo_samples import part_of


@cache
def photograph(part: Part, number: int = 0, width: int = 300, height: int = 260) -> bytes:
    """The bytes of the PNG file number `number` of a `part`, full of features."""
    found = 0
    for seed in count():
        drawn = _drawn(seed // 400, width, height).copy()
        # Files are told apart by their content: one pixel makes another photograph of the same wall.
        drawn[0, 0] = (seed % 256, seed // 256 % 256, 0)
        content = cv2.imencode(".png", drawn)[1].tobytes()
        if part_of(content) == part:
            found += 1
            if found > number:
                return content
    raise AssertionError("unreachable")


@cache
def _drawn(seed: int, width: int, height: int) -> np.ndarray[tuple[int, ...], np.dtype[np.uint8]]:
    return draw_posters((width, height), np.random.default_rng(seed))


def write_photographs(folder: Path, **counts: int) -> Path:
    """So many photographs of each part in `folder`, called after it: training-0.png, ..."""
    folder.mkdir(parents=True, exist_ok=True)
    parts: tuple[Part, ...] = ("training", "validation", "test")
    for part in parts:
        for number in range(counts.get(part, 0)):
            (folder / f"{part}-{number}.png").write_bytes(photograph(part, number))
    return folder
