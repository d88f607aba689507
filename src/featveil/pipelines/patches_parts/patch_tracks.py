"""Which detections show one point, and which are too alike to be called two: the ranges of PhotoTour.

Two detections match within 5 pixels of the patch, 0.25 octaves of scale and 22.5 degrees. Two points of one image are
alike within 10 pixels of the patch, 0.5 octaves and 45 degrees: of such, one is kept, or pairs of the two would be
called different and look the same.
"""

from dataclasses import dataclass

import numpy as np
from scipy.spatial import cKDTree

from featveil.core import Keypoints
from featveil.core.arrays import Float64, Integers
from featveil.extractors.patch_cutting import REACH, SIDE

_PIXEL = 2 * REACH / SIDE  # of a patch, in sigmas


@dataclass(frozen=True)
class Range:
    """How far apart two detections may be: pixels of the patch, octaves of scale, degrees."""

    pixels: float
    octaves: float
    degrees: float


SAME = Range(5, 0.25, 22.5)
ALIKE = Range(10, 0.5, 45)
ALIKE_TURNED = Range(10, 0.5, 360)


def jittered(keypoints: Keypoints, share: float, rng: np.random.Generator) -> Keypoints:
    """Keypoints moved, grown and turned at random, each by at most a `share` of the range SAME."""
    assert keypoints.scale is not None and keypoints.orientation is not None
    n = len(keypoints)
    way, far = 2 * np.pi * rng.random(n), share * SAME.pixels * _PIXEL * keypoints.scale * np.sqrt(rng.random(n))
    xy = keypoints.xy + (far * np.stack([np.cos(way), np.sin(way)])).T
    scale = keypoints.scale * 2 ** (share * SAME.octaves * rng.uniform(-1, 1, n))
    orientation = keypoints.orientation + share * SAME.degrees * rng.uniform(-1, 1, n)
    return Keypoints(*(np.asarray(one, np.float32) for one in (xy, scale, orientation % 360)))


def redetected(expected: Keypoints, detected: Keypoints) -> Integers:
    """Pairs (k, 2) of an expected keypoint and the detection nearest to it in the range SAME, each used once."""
    pairs, apart = _within(expected, detected, SAME)
    order = np.argsort(apart, kind="stable")
    taken: tuple[set[int], set[int]] = set(), set()
    kept = []
    for place in order.tolist():
        first, second = pairs[place].tolist()
        if first not in taken[0] and second not in taken[1]:
            taken[0].add(first)
            taken[1].add(second)
            kept.append(place)
    return pairs[np.sort(np.array(kept, np.int64))]


def alike(keypoints: Keypoints, limits: Range = ALIKE) -> Integers:
    """Pairs (k, 2) of keypoints of one image, first below second, that are too alike."""
    pairs, _ = _within(keypoints, keypoints, limits)
    return pairs[pairs[:, 0] < pairs[:, 1]]


def choose_apart(pairs: Integers, order: Integers) -> Integers:
    """Of the things in `order`, those that come first and of which no two are one of `pairs` (k, 2)."""
    neighbours: dict[int, list[int]] = {}
    for first, second in pairs.tolist():
        neighbours.setdefault(first, []).append(second)
        neighbours.setdefault(second, []).append(first)
    kept: set[int] = set()
    for one in order.tolist():
        if not any(other in kept for other in neighbours.get(one, [])):
            kept.add(one)
    return np.array([one for one in order.tolist() if one in kept], np.int64)


def _within(a: Keypoints, b: Keypoints, limits: Range) -> tuple[Integers, Float64]:
    """Pairs (k, 2) of keypoints in range, and how far apart each is: the sum of its three shares of the range."""
    nothing = np.empty((0, 2), np.int64), np.empty(0)
    if not len(a) or not len(b):
        return nothing
    assert a.scale is not None and b.scale is not None and a.orientation is not None and b.orientation is not None
    radius = limits.pixels * _PIXEL * a.scale.astype(np.float64)
    near = cKDTree(b.xy).query_ball_point(a.xy, radius, return_sorted=True)
    counts = np.array([len(one) for one in near])
    if not counts.any():
        return nothing
    first, second = np.repeat(np.arange(len(a)), counts), np.concatenate([np.array(one, np.int64) for one in near])
    moved = np.linalg.norm(a.xy[first].astype(np.float64) - b.xy[second], axis=1) / radius[first]
    grown = np.abs(np.log2(a.scale[first].astype(np.float64) / b.scale[second])) / limits.octaves
    turn = (a.orientation[first].astype(np.float64) - b.orientation[second] + 180) % 360 - 180
    turned = np.abs(turn) / limits.degrees
    inside = (moved <= 1) & (grown <= 1) & (turned <= 1)
    return np.column_stack([first, second])[inside], (moved + grown + turned)[inside]
