"""The three tasks of HPatches (Balntas et al., CVPR 2017): arrays of descriptors -> mean average precision.

Verification: tell pairs of one patch from pairs of two, of one scene ("intra") or of two ("inter"), with five of these
for each of those. Matching: find each patch of image 1 in another image by its nearest neighbour. Retrieval: find the
five other views of a patch among the patches of all other scenes.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy.spatial.distance import cdist

from featveil.core import InputError
from featveil.core.arrays import Float32, Float64, Integers
from featveil.metrics import average_precision

Negatives = Literal["intra", "inter"]

_NEGATIVES = 5  # for each positive


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
    found = []
    for scene in scenes:
        for other in scene.values[1:]:
            distances = cdist(scene.values[0], other)
            nearest = distances.argmin(axis=1)
            rows = np.arange(len(nearest))
            # Equal distances are nobody's nearest neighbour: argmin would give the first, which may be the right one.
            unique = (distances == distances[rows, nearest][:, None]).sum(axis=1) == 1
            found.append(average_precision(distances[rows, nearest], (nearest == rows) & unique, len(rows)))
    return float(np.mean(found))


def retrieval(scenes: Sequence[SceneDescriptors], queries: int, rng: np.random.Generator) -> float:
    """Mean average precision over up to `queries` patches of image 1, drawn at random from all."""
    _check(scenes, 2)
    every = np.concatenate([np.full(scene.values.shape[1], place) for place, scene in enumerate(scenes)])
    rows = np.concatenate([np.arange(scene.values.shape[1]) for scene in scenes])
    references = np.concatenate([scene.values[0] for scene in scenes])
    chosen = np.sort(rng.permutation(len(every))[:queries])
    found = []
    for place in np.unique(every[chosen]):
        here, others = chosen[every[chosen] == place], references[every != place]
        wrong = cdist(references[here], others)
        views = scenes[place].values[1:, rows[here]].transpose(1, 0, 2)
        right = np.linalg.norm(views - references[here][:, None], axis=2)
        labels = np.repeat([True, False], [right.shape[1], wrong.shape[1]])
        found += [average_precision(one, labels) for one in np.concatenate([right, wrong], axis=1)]
    return float(np.mean(found))


def _taken(scenes: Sequence[SceneDescriptors], scene: Integers, image: Integers, row: Integers) -> Float64:
    """Descriptors (k, d) by scene, image and row (k,)."""
    made = np.empty((len(scene), scenes[0].values.shape[2]))
    for place in np.unique(scene):
        here = np.flatnonzero(scene == place)
        made[here] = scenes[place].values[image[here], row[here]]
    return made


def _check(scenes: Sequence[SceneDescriptors], least: int) -> None:
    if len(scenes) < least:
        raise InputError(f"this takes at least {least} scenes, got {len(scenes)}")
    if any(scene.values.ndim != 3 or scene.values.shape[0] != 6 or scene.values.shape[1] < 2 for scene in scenes):
        raise InputError("descriptors of a scene have shape (6, n, d) with n at least 2")
