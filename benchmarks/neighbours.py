"""How much the support of neighbours helps: candidates of word sets that are right, before and after.

    python benchmarks/neighbours.py SCENE [--max-features 2000] [--json FILE]

SCENE has true cameras. Every image is matched with the next ones as long as they overlap, private on both sides. A
candidate counts as right when it lies within 3 pixels of the true epipolar line; wrong ones do by luck, too, so the
share that does after the ends were dealt to other starts is printed beside.
"""

import argparse
import json
from dataclasses import asdict, dataclass
from math import inf
from pathlib import Path

import numpy as np

from featveil.core import Camera, Pose, PrivateFeatures
from featveil.core.arrays import Float32, Float64
from featveil.databases import builtin
from featveil.datasets import MapScene, load_strecha
from featveil.defenses import Subset, privatize
from featveil.extractors import extract
from featveil.geometry.neighbours import well_supported
from featveil.matching import match

PIXELS = 3.0
STEPS = (1, 2, 3)  # how many images further the other one is
SCHEMES = ((inf, 1), (12.0, 2), (10.0, 2), (10.0, 4), (10.0, 8))


@dataclass(frozen=True)
class Row:
    """Means over image pairs: candidates, those kept, and percent right before, after and by luck; right ones kept."""

    epsilon: float
    words: int
    step: int
    pairs: int
    candidates: float
    kept: float
    right_before: float
    right_after: float
    right_by_luck: float
    right_kept: float

    def __str__(self) -> str:
        name = "quantised" if self.epsilon == inf else f"epsilon {self.epsilon:g}, k = {self.words}"
        return (
            f"{name:18s} {self.step} further, {self.pairs} pairs: {self.candidates:7.0f} candidates, right"
            f" {self.right_before:4.1f} % -> {self.right_after:4.1f} % of {self.kept:5.0f} kept"
            f" ({self.right_by_luck:.1f} % by luck); {self.right_kept:3.0f} % of the right ones kept"
        )


def epipolar_distances(scene: MapScene, pair: tuple[str, str], xy_a: Float32, xy_b: Float32) -> Float64:
    """How far positions (k, 2) in the second image are from the epipolar lines of those in the first, in pixels."""
    first, second = pair
    matrix = _fundamental(scene.cameras[first], scene.poses[first], scene.cameras[second], scene.poses[second])
    lines = np.column_stack([xy_a, np.ones(len(xy_a))]) @ matrix.T
    ends = np.column_stack([xy_b, np.ones(len(xy_b))])
    return np.asarray(np.abs((lines * ends).sum(axis=1)) / np.hypot(lines[:, 0], lines[:, 1]))


def _fundamental(camera_a: Camera, pose_a: Pose, camera_b: Camera, pose_b: Pose) -> Float64:
    rotation = pose_b.rotation @ pose_a.rotation.T
    x, y, z = pose_b.translation - rotation @ pose_a.translation
    cross = np.array([[0, -z, y], [z, 0, -x], [-y, x, 0]])
    inverse_a, inverse_b = (np.linalg.inv(_intrinsics(camera)) for camera in (camera_a, camera_b))
    return np.asarray(inverse_b.T @ cross @ rotation @ inverse_a)


def _intrinsics(camera: Camera) -> Float64:
    focal_x, focal_y, centre_x, centre_y = camera.parameters
    return np.array([[focal_x, 0, centre_x], [0, focal_y, centre_y], [0, 0, 1]])


def measure(scene: MapScene, sent: dict[str, PrivateFeatures], step: int, scheme: tuple[float, int]) -> Row:
    """All pairs of images that are `step` apart."""
    names, counts = sorted(sent), []
    rng = np.random.default_rng(0)
    for pair in zip(names, names[step:], strict=False):
        a, b = sent[pair[0]], sent[pair[1]]
        assert a.keypoints is not None and b.keypoints is not None
        found = match(a, b).indices
        xy_a, xy_b = a.keypoints.xy[found[:, 0]], b.keypoints.xy[found[:, 1]]
        right = epipolar_distances(scene, pair, xy_a, xy_b) < PIXELS
        luck = epipolar_distances(scene, pair, xy_a, xy_b[rng.permutation(len(xy_b))]) < PIXELS
        kept = well_supported(xy_a, xy_b)
        counts.append([len(found), kept.sum(), right.sum(), (right & kept).sum(), luck.sum()])
    candidates, kept_sum, right_sum, both, lucky = np.array(counts, np.float64).sum(axis=0)
    shares = 100 * np.array([right_sum / candidates, both / max(kept_sum, 1), lucky / candidates])
    # Of those near their line, as many as luck gives are not right ones.
    true_before, true_after = right_sum - lucky, both - kept_sum * lucky / candidates
    return Row(
        scheme[0],
        scheme[1],
        step,
        len(counts),
        candidates / len(counts),
        kept_sum / len(counts),
        float(shares[0]),
        float(shares[1]),
        float(shares[2]),
        float(100 * true_after / max(true_before, 1)),
    )


def main() -> None:
    """Measure, print a row for each scheme and step, and write JSON where asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scene", type=Path)
    parser.add_argument("--max-features", type=int, default=2000)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    (scene,) = load_strecha(options.scene)
    raw = {name: extract(path, max_features=options.max_features) for name, path in scene.images.items()}
    rows = []
    for scheme in SCHEMES:
        defense = Subset(*scheme, builtin("sift"))
        sent = {name: privatize(found, defense) for name, found in raw.items()}
        for step in STEPS:
            rows.append(measure(scene, sent, step, scheme))
            print(rows[-1], flush=True)
    if options.json:
        options.json.write_text(json.dumps([asdict(row) for row in rows], indent=1))


if __name__ == "__main__":
    main()
