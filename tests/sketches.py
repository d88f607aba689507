"""Small sketches of maps that were never made: descriptors with made-up tracks."""

import dataclasses

import numpy as np

from featveil.core import Points
from featveil.core.arrays import Float32
from featveil.databases import Database, builtin
from featveil.gate import Calibration, Sketch
from featveil.gate.sketch_building import MapFacts, Observations, build_sketch

MODEL = "0123456789abcdef" * 4
LOOSE = Calibration(0.5, 0.9, None, None, (0.1, 0.5), (0.1, 0.9), (0.1, 0.8), (0.0, 0.04), 100, 100)


def sketch_of(descriptors: Float32, size: int | None = None, images: int = 3, kind: str = "sift") -> Sketch:
    """Each of `descriptors` (p, d) is a point that all `images` see, with a little noise; calibrated loosely."""
    rng = np.random.default_rng(0)
    points = np.arange(len(descriptors))
    noisy = [descriptors + rng.normal(0, 0.003, descriptors.shape) for _ in range(images)]
    seen = [Observations(image, points, Points(values.astype(np.float32))) for image, values in enumerate(noisy)]
    sketch = build_sketch(MapFacts(MODEL, len(points), images, kind, "a test"), lambda: seen, size)
    return dataclasses.replace(sketch, calibration=LOOSE)


def other_background() -> Database:
    """Descriptors that are not in `builtin_sketch`."""
    return Database.from_array(builtin("sift").points()[-500:], "sift", 1, rng=np.random.default_rng(0))


def builtin_sketch(count: int = 64) -> Sketch:
    """Of the first descriptors of the built-in database."""
    return sketch_of(builtin("sift").points()[:count])
