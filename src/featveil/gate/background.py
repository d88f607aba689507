"""Descriptors that every place has: a feature as near to these as to a map says nothing of the map.

The background is public, such as the built-in database. It only ever takes features away from what a gate lets pass.
"""

from functools import lru_cache
from pathlib import Path

import faiss
import numpy as np

from featveil.core import Points
from featveil.core.arrays import Float32
from featveil.databases import Database, builtin, load_database
from featveil.databases.entries import QUANTIZED_KINDS, unit_rows
from featveil.gate.lookup import Passed
from featveil.gate.map_sketch import Sketch, unit

_FOREIGN = Path(__file__).parent / "data" / "foreign-descriptors.safetensors"
_ASKED = 1000  # foreign descriptors that a device looks up
CONTRASTS = (0.8, 0.85, 0.9, 0.95, 1.0)  # that a calibration chooses from


def usual_background(kind: str) -> Database | None:
    """The built-in database of `kind`; None where there is none."""
    return builtin(kind) if kind in QUANTIZED_KINDS else None


def foreign_descriptors(kind: str) -> Points:
    """Descriptors of `kind`, sift or rootsift, of photographs that the built-in database was not made of."""
    values = load_database(_FOREIGN).points()
    if kind == "rootsift":
        values = unit_rows(np.sqrt(values / values.sum(axis=1, keepdims=True)))
    return Points(values)


def background_distances(values: Float32, background: Database) -> Float32:
    """How far (n,) each of `values` (n, d) of norm 1 is from the nearest entry of the background."""
    squared, _ = _index(background).search(np.ascontiguousarray(values, np.float32), 1)
    return np.asarray(np.sqrt(np.maximum(squared[:, 0], 0)), np.float32)


def contrasting(passed: Passed, points: Points, contrast: float | None, background: Database | None) -> Passed:
    """Those of `passed` that are nearer to the sketch than `contrast` times as far from the background."""
    if contrast is None or background is None or len(passed) == 0:
        return passed
    away = background_distances(unit(points.take(passed.rows)), background)
    return passed.take(np.flatnonzero(passed.distances[:, 0] <= contrast * away))


@lru_cache(maxsize=4)
def foreign_share(sketch: Sketch, tau: float, contrast: float | None, background: Database | None) -> float | None:
    """The share of bundled foreign descriptors that a device's gate would let pass; None for kinds without any."""
    if sketch.kind not in QUANTIZED_KINDS:
        return None
    every = foreign_descriptors(sketch.kind)
    if every.size != sketch.size:
        return None
    some = every.take(np.linspace(0, len(every) - 1, min(len(every), _ASKED)).astype(np.int64))
    return len(contrasting(sketch.look_up(some, tau), some, contrast, background)) / len(some)


@lru_cache(maxsize=4)
def _index(background: Database) -> faiss.IndexFlatL2:
    index = faiss.IndexFlatL2(background.size)
    index.add(background.points())
    return index
