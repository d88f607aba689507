"""Inversion networks and samples so small that training a few steps takes a moment, for tests with torch and onnx."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch

from featveil.core import Features, Keypoints, Points
from featveil.learning.encodings import Encoding, cells
from featveil.learning.inverter_networks import WIDTHS, Inverter, make_inverter
from featveil.learning.training import Sample

TINY = "tiny"
SIZE = 8  # of descriptors
ENCODING = Encoding("sift", SIZE, geometry="either")

WIDTHS[TINY] = (8, 8, 8, 8, 8)
torch.set_num_threads(1)  # threads cost more than such networks do, and add up in another order each time


def tiny_inverter(columns: int = ENCODING.columns, architecture: str = "unet", seed: int = 0) -> Inverter:
    """A network of a few thousand weights."""
    return make_inverter(columns, architecture, TINY, seed)


def some_features(n: int, width: int, height: int, seed: int = 0, size: int = SIZE) -> Features:
    """Random descriptors at random places, of all scales."""
    rng = np.random.default_rng(seed)
    xy = (rng.uniform(0, 1, (n, 2)) * (width, height)).astype(np.float32)
    rest = (rng.uniform(least, most, n).astype(np.float32) for least, most in ((0.5, 20), (0, 360), (0, 0.1)))
    values = (rng.gamma(1, size=(n, size)) + 0.01).astype(np.float32)
    return Features(Points(values), "sift", Keypoints(xy, *rest), (width, height))


def some_sample(seed: int = 0, width: int = 64, height: int = 64, n: int = 40) -> Sample:
    """Features at places whose descriptors tell how bright the picture is there."""
    features = some_features(n, width, height, seed)
    assert features.keypoints is not None
    xy, values = features.keypoints.xy, np.array(features.descriptors.values)
    bright = (np.sin(xy[:, 0] / 9 + seed) + np.cos(xy[:, 1] / 7)) / 4 + 0.5
    values[:, 0] = 20 * bright
    columns, rows = np.meshgrid(np.arange(width) + 0.5, np.arange(height) + 0.5)
    picture = (np.sin(columns / 9 + seed) + np.cos(rows / 7)) / 4 + 0.5
    image = np.repeat(np.rint(255 * picture).astype(np.uint8)[:, :, None], 3, axis=2)
    return Sample(
        ENCODING.rows(Points(values), features.keypoints), cells(features.keypoints, width, height, True), image
    )


@dataclass
class SomeSamples:
    """A few pictures to train on and one to validate on; `seen` are the steps that were asked for."""

    training: Sequence[Sample] = field(default_factory=lambda: [some_sample(seed) for seed in range(3)])
    validation: Sequence[Sample] = field(default_factory=lambda: [some_sample(9)])
    seen: list[int] = field(default_factory=list)

    def batch(self, step: int, count: int) -> Sequence[Sample]:
        """Another part of the pictures at every step."""
        self.seen.append(step)
        return [self.training[(step + place) % len(self.training)] for place in range(count)]


def export_tiny(path: Path, encoding: Encoding = ENCODING, architecture: str = "unet", seed: int = 0) -> Inverter:
    """Write a tiny untrained inverter, and return the network that it is of."""
    from featveil.learning.exporting import export_inverter  # which needs onnx

    network = tiny_inverter(encoding.columns, architecture, seed)
    export_inverter(path, network, encoding, {"note": "untrained"})
    return network
