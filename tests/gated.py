"""A gated release of a picture whose place is in a map, with tracks in groups of images, and what it hides."""

from functools import cache

import numpy as np

from featveil.core import Features, Points, PrivateFeatures
from featveil.core.arrays import Float32
from featveil.defenses import Gate, privatize
from featveil.defenses.gate import Then
from featveil.gate import Sketch
from featveil.gate.sketch_building import MapFacts, Observations, build_sketch
from sketches import LOOSE, MODEL, other_background
from victims import picture

COUNT = 600
NOISE = 0.02  # of a component: views of one point are about 0.23 apart
GROUPS, VIEWS = 8, 3  # of images of the map that see the same, and images of each


def near(values: Float32, rng: np.random.Generator, noise: float = NOISE) -> Float32:
    """Other views of `values` (n, d): with noise, still histograms."""
    moved = np.maximum(values + rng.normal(0, noise, values.shape), 0)
    return np.asarray(moved / np.linalg.norm(moved, axis=1, keepdims=True), np.float32)


@cache
def place(size: int | None = None, noise: float = NOISE) -> Sketch:
    """A map: features of the picture are the points that the first images see, others see other things."""
    rng = np.random.default_rng(0)
    own = picture(0, "sift", COUNT).descriptors.values
    other = rng.gamma(0.3, size=(COUNT * (GROUPS - 1), 128)).astype(np.float32)
    values = near(np.concatenate([own, other]), rng, 0)
    points = np.arange(len(values))
    seen = []
    for image in range(GROUPS * VIEWS):
        some = points[image // VIEWS * COUNT :][:COUNT]
        seen.append(Observations(image, some, Points(near(values[some], rng, noise))))
    sketch = build_sketch(MapFacts(MODEL, len(points), len(seen), "sift"), lambda: seen, size)
    return Sketch(sketch.entries, sketch.points, sketch.images, "sift", MODEL, len(points), len(seen), "", LOOSE)


@cache
def gated(
    then: Then | None = None,
    candidates: int = 3,
    size: int | None = None,
    keep_geometry: bool = True,
    noise: float = NOISE,
) -> tuple[PrivateFeatures, Features]:
    """A release of the picture as another photograph of the place shows it, and its raw features."""
    raw, rng = picture(0, "sift", COUNT), np.random.default_rng(1)
    seen = Features(Points(near(raw.descriptors.values, rng, noise)), "sift", raw.keypoints, raw.image_size)
    others, tau = other_background(), 25 * noise
    gate = Gate(place(size, noise), tau=tau, contrast=1.0, background=others, candidates=candidates, then=then)
    return privatize(seen, gate, rng=np.random.default_rng(2), keep_geometry=keep_geometry), seen
