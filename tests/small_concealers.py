"""Descriptors, half of which tell a point and half how bright it is, and a source of them. For tests with torch."""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from featveil.core.arrays import Float32, Floats
from featveil.learning.concealer_presets import Preset, Stage
from featveil.learning.training import Sample
from featveil.metrics.patch_ranking import false_positive_rate
from small_inverters import ENCODING, SIZE, TINY, some_sample

COLUMNS = ENCODING.columns
SMALL = Preset(Stage(4, 1e-2, pairs=12), Stage(3, 1e-2, pieces=1), Stage(4, 3e-3, 12, 1), inverter=TINY)

_HALF = SIZE // 2
_FRAME = (32, 32, 60)  # width, height, keypoints


def descriptors(points: Floats, bright: Floats) -> Float32:
    """Of unit norm (n, 8): the first half tells the point, the second where between dark and bright it is."""
    angle = np.pi * bright / 2
    shades = np.stack([np.cos(angle), np.sin(angle), np.cos(3 * angle), np.sin(3 * angle)], axis=1)
    values = np.concatenate([points / np.linalg.norm(points, axis=1, keepdims=True), shades], axis=1)
    return np.asarray(values / np.linalg.norm(values, axis=1, keepdims=True), np.float32)


def piece(number: int) -> Sample:
    """Pictures with the same keypoints: a pattern and its negative, another and its. Descriptors tell which it is."""
    sample, rng = some_sample(number // 2, *_FRAME), np.random.default_rng(number)
    image = 255 - sample.image if number % 2 else sample.image
    keypoints = some_sample(0, *_FRAME)
    y, x = np.divmod(keypoints.cells[:, 0], image.shape[1] // 2)
    rows = np.array(keypoints.rows)
    rows[:, :SIZE] = descriptors(rng.standard_normal((len(rows), _HALF)), image[2 * y, 2 * x, 0] / 255)
    return Sample(rows, keypoints.cells, image)


@dataclass
class SomeSource:
    """Points, as bright in one image as in another, and a few pictures; `asked` is what steps asked for."""

    photographs: list[Sample] = field(default_factory=lambda: [piece(number) for number in range(4)])
    asked: list[tuple[str, int]] = field(default_factory=list)
    noise: float = 0.1

    def pairs(self, step: int, count: int) -> tuple[Float32, Float32]:
        """Other points at every step."""
        self.asked.append(("pairs", step))
        return self._drawn(np.random.default_rng([1, step]), count)

    def pieces(self, step: int, count: int) -> list[Sample]:
        """Another picture at every step."""
        self.asked.append(("pieces", step))
        return [self.photographs[(step + place) % len(self.photographs)] for place in range(count)]

    def false_rate(self, conceal: Callable[[Float32], Float32]) -> float:
        """FPR95 on points that no step has."""
        first, second = (conceal(values) for values in self._drawn(np.random.default_rng(2), 500))
        others = np.roll(second, 1, axis=0)
        distances = np.concatenate([np.linalg.norm(first - seen, axis=1) for seen in (second, others)])
        return false_positive_rate(distances, np.arange(len(distances)) < len(first))

    def _drawn(self, rng: np.random.Generator, count: int) -> tuple[Float32, Float32]:
        points, bright = rng.standard_normal((count, _HALF)), rng.random(count)
        views = (points + self.noise * rng.standard_normal(points.shape) for _ in range(2))
        first, second = (descriptors(view, bright + self.noise * rng.standard_normal(count)) for view in views)
        return first, second
