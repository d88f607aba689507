"""What the features of one image say of each other's candidates.

Real descriptors of one image resemble each other, and those of overlapping keypoints predict each other; confounders do
neither. Each feature's belief in its candidates is weighed with that evidence, again and again: candidates that are
like what others are believed to be gain, those that are like what others are believed not to be lose.
"""

from dataclasses import dataclass, fields
from typing import Self

import numpy as np
from numpy.typing import NDArray

from featveil.attacks.discriminator_parts.ranking import probabilities
from featveil.attacks.overlap_parts.overlapping import BINS, CELLS, Overlaps, find_overlaps, predict
from featveil.core import Keypoints, PrivateFeatures
from featveil.core.arrays import Float32, Float64, Integers
from featveil.databases.entries import QUANTIZED_KINDS

_LISTED = 8  # candidates of each feature that are weighed, the best by their own looks
_COMPARED = 256  # features that others are compared with, and
_USUAL = 2048  # descriptors of other images
_WIDTH = 0.2  # of the kernel; unrelated descriptors are about 1 apart
_FLOOR = 1e-6  # of a density, where nothing is near
_SHARPNESS = 20.0  # log odds by which a cosine of 1 exceeds one of 0, where a neighbour saw all of the window
_ROUNDS = 15
_BEHIND = 20.0  # log odds: candidates so far behind the best are no example of anything
_ROWS = 4096  # of pairs that are compared at a time


def in_context(
    values: Float64, scores: Float64, seen: PrivateFeatures, usual: Float32, rng: np.random.Generator
) -> Integers:
    """The best candidate (n,) of `values` (n, c, d), given their `scores` (n, c) as log odds and each other.

    `usual` (s, d) are real descriptors of other images, in random order: what is common among those tells little.
    Neighbours count for SIFT and RootSIFT with scales and orientations only; resemblance always does.
    """
    listed = np.argsort(-scores, axis=1, kind="stable")[:, :_LISTED]
    points = np.take_along_axis(values, listed[..., None], axis=1).astype(np.float32)
    own = np.take_along_axis(scores, listed, axis=1)
    possible = own > own[:, :1] - _BEHIND
    likeness = _Likeness.of(points, possible, usual, rng)
    neighbours = _Neighbours.of(points, seen.keypoints, seen.kind)
    belief = probabilities(own)
    weighed = own
    for _ in range(_ROUNDS):
        weighed = own + likeness.evidence(belief) + neighbours.evidence(belief)
        belief = probabilities(weighed)
    return np.take_along_axis(listed, weighed.argmax(axis=1)[:, None], axis=1)[:, 0]


@dataclass(frozen=True, eq=False, repr=False)
class _Likeness:
    """Kernel values (n * c, r * c) between all candidates and the `possible` ones of the features `others` (r,).

    `usual` (n * c,) is the density of descriptors of other images.
    """

    kernel: Float32
    others: Integers
    possible: NDArray[np.bool_]
    usual: Float32

    @classmethod
    def of(cls, points: Float32, possible: NDArray[np.bool_], usual: Float32, rng: np.random.Generator) -> Self:
        n, c, d = points.shape
        others = np.sort(rng.permutation(n)[:_COMPARED])
        rows = points.reshape(-1, d)
        kernel = _kernel(rows, points[others].reshape(-1, d))
        kernel[np.repeat(np.arange(n), c)[:, None] == np.repeat(others, c)] = 0
        return cls(kernel, others, possible[others], _kernel(rows, usual[:_USUAL]).mean(axis=1))

    def evidence(self, belief: Float64) -> Float64:
        """Log ratio (n, c) of the density of what is believed to be real in this image to that of all else."""
        real = np.where(self.possible, belief[self.others], 0)
        rest = np.where(self.possible, 1 - real, 0)
        if len(self.others) < 2:  # a feature is not compared with itself
            return np.zeros_like(belief)
        believed = self._density(real)
        against = (self._density(rest) + self.usual) / 2
        return np.asarray(np.log(believed + _FLOOR) - np.log(against + _FLOOR), np.float64).reshape(belief.shape)

    def _density(self, weights: Float64) -> Float32:
        total = max(float(weights.sum()), 1e-9)
        return np.asarray(self.kernel @ (weights.reshape(-1) / total).astype(np.float32))


def _kernel(rows: Float32, columns: Float32) -> Float32:
    kernel = rows @ columns.T
    kernel *= -2  # in place from here on: it is the largest array of the attack
    kernel += (rows**2).sum(axis=1)[:, None]
    kernel += (columns**2).sum(axis=1)
    np.maximum(kernel, 0, out=kernel)
    kernel /= -2 * _WIDTH**2
    return np.asarray(np.exp(kernel, out=kernel))


@dataclass(frozen=True, eq=False, repr=False)
class _Neighbours:
    """For pairs of overlapping keypoints, `gain` (p, c, c): how well each candidate of the second predicts each of the
    first, from 0 (perfectly) down.
    """

    first: Integers
    second: Integers
    gain: Float32

    @classmethod
    def of(cls, points: Float32, keypoints: Keypoints | None, kind: str) -> Self:
        c = points.shape[1]
        known = keypoints is not None and keypoints.scale is not None and keypoints.orientation is not None
        if keypoints is None or not known or kind not in QUANTIZED_KINDS or points.shape[2] != CELLS * BINS:
            nothing = np.empty(0, np.int64)
            return cls(nothing, nothing, np.empty((0, c, c), np.float32))
        seen = np.maximum(points, 0) ** 2 if kind == "rootsift" else points  # it is SIFT that is linear in the pixels
        overlaps = find_overlaps(keypoints)
        gain = np.empty((len(overlaps), c, c), np.float32)
        for start in range(0, len(overlaps), _ROWS):
            part = slice(start, start + _ROWS)
            gain[part] = _compare(seen, Overlaps(*(getattr(overlaps, field.name)[part] for field in fields(overlaps))))
        return cls(overlaps.first, overlaps.second, gain * (_SHARPNESS * overlaps.share[:, None, None]))

    def evidence(self, belief: Float64) -> Float64:
        """Log likelihood (n, c) of what the neighbours are believed to be, given each candidate."""
        message = np.log(np.maximum((np.exp(self.gain) @ belief[self.second][..., None])[..., 0], 1e-30))
        total = np.zeros_like(belief)
        np.add.at(total, self.first, message)
        return total


def _compare(points: Float32, overlaps: Overlaps) -> Float32:
    """Cosines minus 1 (p, c, c) of the first's candidates and their predictions, of what both keypoints saw."""
    own = points[overlaps.first]
    cosines = np.empty((len(overlaps), own.shape[1], own.shape[1]), np.float32)
    for place in range(own.shape[1]):
        predicted, weights = predict(points[:, place], overlaps)
        shared = (own @ (weights * predicted)[..., None])[..., 0]
        lengths = np.sqrt((weights[:, None] * own**2).sum(axis=2) * (weights * predicted**2).sum(axis=1)[:, None])
        cosines[:, :, place] = shared / np.maximum(lengths, 1e-9) - 1
    return cosines
