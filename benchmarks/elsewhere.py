"""How many candidates of word sets agree between images of different places: what a right pair must exceed.

    python benchmarks/elsewhere.py SCENE OTHER [--images 3]

Both scenes have true cameras. The first images of one are matched with those of the other, private on both sides; of
the candidates, those that their neighbours support are verified by COLMAP as `featveil map` does, without its limits.
"""

import argparse
from itertools import product
from math import inf
from pathlib import Path

import numpy as np

from featveil.core import Camera, PrivateFeatures
from featveil.databases import builtin
from featveil.datasets import load_strecha
from featveil.defenses import Subset, privatize
from featveil.extractors import extract
from featveil.geometry.colmap import pycolmap, to_colmap
from featveil.geometry.two_view import OF_CANDIDATES, ransac_options
from featveil.matching import match
from featveil.pipelines.map_parts.map_building import supported

SCHEMES = ((2000, inf, 1), (2000, 10.0, 4), (4000, 10.0, 4), (2000, 10.0, 8))  # features, epsilon, words


def agreeing(a: tuple[PrivateFeatures, Camera], b: tuple[PrivateFeatures, Camera]) -> tuple[int, int]:
    """How many supported candidates there are, and how many of them agree on one geometry."""
    found = supported(match(a[0], b[0]), a[0], b[0])
    options = pycolmap().TwoViewGeometryOptions(
        min_num_inliers=1,
        detect_watermark=False,
        ransac=ransac_options(OF_CANDIDATES.iterations, OF_CANDIDATES.max_error, 0.0, 0),
    )
    sides = []
    for features, camera in (a, b):
        assert features.keypoints is not None
        sides += [to_colmap(camera), features.keypoints.xy.astype(np.float64)]
    answer = pycolmap().estimate_two_view_geometry(*sides, found.indices.astype(np.uint32), options)
    return len(found), len(answer.inlier_matches)


def main() -> None:
    """Measure, and print a line for each scheme."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scenes", type=Path, nargs=2)
    parser.add_argument("--images", type=int, default=3)
    options = parser.parse_args()
    scenes = [load_strecha(folder)[0] for folder in options.scenes]
    for features, epsilon, words in SCHEMES:
        defense = Subset(epsilon, words, builtin("sift"))
        sent = [
            [
                (privatize(extract(scene.images[name], max_features=features), defense), scene.cameras[name])
                for name in sorted(scene.images)[: options.images]
            ]
            for scene in scenes
        ]
        found = [agreeing(a, b) for a, b in product(*sent)]
        shares = [100 * agree / most for most, agree in found if most > 100]
        name = (
            "quantised" if epsilon == inf else f"epsilon {epsilon:g} ({epsilon * features:,.0f} an image), k = {words}"
        )
        print(
            f"{features} features, {name}: {len(found)} pairs, {min(c for c, _ in found)} to {max(c for c, _ in found)}"
            f" supported, {min(a for _, a in found)} to {max(a for _, a in found)} agree"
            + (f", at most {max(shares):.0f} % where more than 100 are supported" if shares else ""),
            flush=True,
        )


if __name__ == "__main__":
    main()
