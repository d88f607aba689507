"""The tasks of HPatches (Balntas et al., CVPR 2017): patches of image sequences, and how well descriptors do on them.

Regions are found in image 1, one a place, with one orientation. For each other image they are disturbed at random
(moved, scaled, turned, stretched), to stand for a detector's errors, and then carried over by the homography, so that
what is compared is the description alone. Two levels of disturbance, easy and hard: their median overlap with the
undisturbed region is what HPatches states for its own, 0.85 and 0.72. Regions reach 7.5 sigma here, 5 there.

Verification: tell pairs of one patch from pairs of two, of one scene ("intra") or of two ("inter"), with five of these
for each of those. Matching: find each patch of image 1 in another image by its nearest neighbour. Retrieval: find the
five other views of a patch among the patches of all other scenes.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy.spatial.distance import cdist

from featveil.core import InputError, Keypoints
from featveil.core.arrays import Float32, Float64, Integers
from featveil.core.seeding import generator
from featveil.datasets import Scene
from featveil.extractors import Sift, read_image
from featveil.extractors.patch_cutting import Patches, cut_frames, frames_of, whole
from featveil.metrics import average_precision
from featveil.pipelines.patches_parts.patch_tracks import ALIKE_TURNED, alike, choose_apart
from featveil.pipelines.patches_parts.patch_views import jacobians, move

Negatives = Literal["intra", "inter"]

_DETECTED = 4000
_NEGATIVES = 5  # for each positive


@dataclass(frozen=True)
class Disturbance:
    """Largest disturbances: degrees, shares of half a patch, octaves of scale, octaves between the two axes."""

    degrees: float
    shift: float
    growth: float
    stretch: float


LEVELS = {"easy": Disturbance(9, 0.13, 0.13, 0.18), "hard": Disturbance(18, 0.27, 0.27, 0.36)}


@dataclass(frozen=True, eq=False)
class ScenePatches:
    """`reference` (n, 64, 64) of image 1, and for each level those of the other images (5, n, 64, 64)."""

    name: str
    reference: Patches
    others: dict[str, Patches]


def scene_patches(scene: Scene, max_patches: int, seed: int) -> ScenePatches:
    """The patches of a scene whose regions lie within all its images: at most `max_patches`, the strongest.

    Raises InputError when an image cannot be read or fewer than two are left.
    """
    images = {number: read_image(path) for number, path in scene.images.items()}
    sizes = {number: (image.shape[1], image.shape[0]) for number, image in images.items()}
    keypoints = _regions(Sift(max_features=_DETECTED).extract(images[1]).keypoints)
    reference = frames_of(keypoints)
    frames = {
        (level, pair.number): carried(
            disturbed(reference, LEVELS[level], generator(seed, "disturbed", scene.name, level, str(pair.number))),
            pair.homography,
        )
        for level in LEVELS
        for pair in scene.pairs
    }
    seen = whole(reference, sizes[1])
    for (_, number), carried_over in frames.items():
        seen &= whole(carried_over, sizes[number])
    rows = np.flatnonzero(seen)[:max_patches]
    if len(rows) < 2:
        raise InputError(f"scene {scene.name} has fewer than two regions that all its images show: leave it out")
    others = {
        level: np.stack([cut_frames(images[pair.number], frames[level, pair.number][rows]) for pair in scene.pairs])
        for level in LEVELS
    }
    return ScenePatches(scene.name, cut_frames(images[1], reference[rows]), others)


def disturbed(frames: Float64, most: Disturbance, rng: np.random.Generator) -> Float64:
    """Frames (n, 2, 3) moved, scaled, turned and stretched along any direction, each at random up to `most`."""
    n = len(frames)
    turn, along = np.deg2rad(rng.uniform(-most.degrees, most.degrees, n)), rng.uniform(0, np.pi, n)
    growth, stretch = rng.uniform(-most.growth, most.growth, n), rng.uniform(-most.stretch, most.stretch, n)
    shift = rng.uniform(-most.shift, most.shift, (n, 2))
    axes = np.zeros((n, 2, 2))
    axes[:, 0, 0], axes[:, 1, 1] = 2 ** (growth + stretch / 2), 2 ** (growth - stretch / 2)
    inner = _rotations(turn - along) @ axes @ _rotations(along)
    change = np.zeros((n, 3, 3))
    change[:, :2, :2], change[:, :2, 2], change[:, 2, 2] = inner, shift, 1
    return np.asarray(frames @ change, np.float64)


def carried(frames: Float64, homography: Float64) -> Float64:
    """Frames (n, 2, 3) where a homography puts them, to first order around their centres."""
    centres = frames[:, :, 2]
    linear = jacobians(homography, centres) @ frames[:, :, :2]
    return np.concatenate([linear, move(homography, centres)[:, :, None]], axis=2)


def _regions(keypoints: Keypoints | None) -> Keypoints:
    """One keypoint a place, the strongest first."""
    assert keypoints is not None
    return keypoints.take(choose_apart(alike(keypoints, ALIKE_TURNED), np.arange(len(keypoints))))


def _rotations(angles: Float64) -> Float64:
    cosine, sine = np.cos(angles), np.sin(angles)
    return np.stack([np.stack([cosine, -sine], axis=1), np.stack([sine, cosine], axis=1)], axis=1)


@dataclass(frozen=True, eq=False)
class SceneDescriptors:
    """`values` (6, n, d): descriptors of n regions in image 1 and in the five others at one level of disturbance."""

    name: str
    values: Float32


def verification(
    scenes: Sequence[SceneDescriptors], negatives: Negatives, pairs: int, rng: np.random.Generator
) -> float:
    """Average precision of telling a fifth of `pairs` positives from `pairs` negatives; scenes count equally."""
    _check(scenes, 2 if negatives == "inter" else 1)
    counts = np.array([scene.values.shape[1] for scene in scenes])
    scene = rng.integers(0, len(scenes), pairs)
    row = rng.integers(0, counts[scene])
    image, turn = rng.integers(0, 6, pairs), rng.integers(1, 6, pairs)
    other_image = (image + turn) % 6
    other_scene, other_row = scene, (row + rng.integers(1, counts[scene])) % counts[scene]
    if negatives == "inter":
        other_scene = (scene + rng.integers(1, len(scenes), pairs)) % len(scenes)
        other_row = rng.integers(0, counts[other_scene])
    alike = slice(0, -(-pairs // _NEGATIVES))
    first = _taken(scenes, scene, image, row)
    apart = np.linalg.norm(first - _taken(scenes, other_scene, other_image, other_row), axis=1)
    together = np.linalg.norm(first[alike] - _taken(scenes, scene[alike], other_image[alike], row[alike]), axis=1)
    right = np.repeat([True, False], [len(together), len(apart)])
    return average_precision(np.concatenate([together, apart]), right)


def matching(scenes: Sequence[SceneDescriptors]) -> float:
    """Mean over scenes and images of the average precision of nearest neighbours; patches not found are missed."""
    _check(scenes, 1)
    precisions = []
    for scene in scenes:
        for other in scene.values[1:]:
            distances = cdist(scene.values[0], other)
            nearest = distances.argmin(axis=1)
            rows = np.arange(len(nearest))
            # Equal distances are nobody's nearest neighbour: argmin would give the first, which may be the right one.
            unique = (distances == distances[rows, nearest][:, None]).sum(axis=1) == 1
            precisions.append(average_precision(distances[rows, nearest], (nearest == rows) & unique, len(rows)))
    return float(np.mean(precisions))


def retrieval(scenes: Sequence[SceneDescriptors], queries: int, rng: np.random.Generator) -> float:
    """Mean average precision over up to `queries` patches of image 1, drawn at random from all."""
    _check(scenes, 2)
    every = np.concatenate([np.full(scene.values.shape[1], place) for place, scene in enumerate(scenes)])
    rows = np.concatenate([np.arange(scene.values.shape[1]) for scene in scenes])
    references = np.concatenate([scene.values[0] for scene in scenes])
    chosen = np.sort(rng.permutation(len(every))[:queries])
    precisions = []
    for place in np.unique(every[chosen]):
        here, others = chosen[every[chosen] == place], references[every != place]
        wrong = cdist(references[here], others)
        views = scenes[place].values[1:, rows[here]].transpose(1, 0, 2)
        right = np.linalg.norm(views - references[here][:, None], axis=2)
        labels = np.repeat([True, False], [right.shape[1], wrong.shape[1]])
        precisions += [average_precision(one, labels) for one in np.concatenate([right, wrong], axis=1)]
    return float(np.mean(precisions))


def _taken(scenes: Sequence[SceneDescriptors], scene: Integers, image: Integers, row: Integers) -> Float64:
    """Descriptors (k, d) by scene, image and row (k,)."""
    taken = np.empty((len(scene), scenes[0].values.shape[2]))
    for place in np.unique(scene):
        here = np.flatnonzero(scene == place)
        taken[here] = scenes[place].values[image[here], row[here]]
    return taken


def _check(scenes: Sequence[SceneDescriptors], least: int) -> None:
    if len(scenes) < least:
        raise InputError(f"this takes at least {least} scenes, got {len(scenes)}")
    if any(scene.values.ndim != 3 or scene.values.shape[0] != 6 or scene.values.shape[1] < 2 for scene in scenes):
        raise InputError("descriptors of a scene have shape (6, n, d) with n at least 2")
