"""Speed of lifting and matching, as ratios measured in one run: CPU time, one thread.

    python benchmarks/kernels.py [--features 1000 4200] [--dimensions 2 4 8 16] [--images A B] [--json FILE]

Measured are nearest neighbours both ways (subspaces against subspaces, points against subspaces, points against
points), pruned nearest neighbours, and lifting. The reference is the matrix product that a method cannot do without,
or the same method on points, or for lifting two QR factorisations. Each row names it, and the most that the ratio
should be; a row above that is marked, not an error, because machines are noisy. Ratios hardly depend on the number of
features (8000 take a quarter of an hour), unless both sides happen to draw the same sub-database, as they do of 4000 at
m = 4: then many pairs are almost parallel. The memory that matching adds at its peak comes first.

Descriptors are SIFT features of two overlapping photographs (--images, or FEATVEIL_DATA), else of two views of a
rendered room. The built-in database would be a special case: its entries are what they are hidden among.
"""

import argparse
import json
import os
import resource
import sys
from dataclasses import asdict
from pathlib import Path

import numpy as np

from featveil.core import Points, Subspaces
from featveil.datasets.rendered import render_scene
from featveil.distances import nearest_both_ways
from featveil.extractors import Sift, read_image
from featveil.lab.runtime import Timing, measure

LIMITS = {
    ("subspace-subspace, both ways", "product", 2): 1.15,
    ("subspace-subspace, both ways", "product", 4): 1.15,
    ("subspace-subspace, both ways", "product", 8): 1.15,
    ("subspace-subspace, both ways", "product", 16): 1.3,
    ("subspace-subspace, pruned rows", "product", 2): 0.5,
    ("subspace-subspace, pruned rows", "product", 4): 0.5,
    ("point-subspace, both ways", "product", 2): 1.1,
    ("point-subspace, both ways", "product", 4): 1.1,
    ("point-subspace, both ways", "product", 8): 1.1,
    ("point-subspace, both ways", "product", 16): 1.1,
    ("subspace-subspace, both ways", "points", 2): 10,
    ("subspace-subspace, both ways", "points", 4): 27,
    ("subspace-subspace, both ways", "points", 8): 90,
    ("point-subspace, both ways", "points", 2): 3.5,
    ("point-subspace, both ways", "points", 4): 5.5,
    ("point-subspace, both ways", "points", 8): 10,
    ("lifting", "qr", 4): 3,
}


ROOM = (1280, 960)  # pixels of a rendered view, which has 8000 features
MANY = 2000  # features from which on a measurement is not repeated, and m = 16 left out: it would take minutes


def limit(timing: Timing) -> float | None:
    """The most that this ratio should be."""
    reference = "product" if "product" in timing.reference else "qr" if "QR" in timing.reference else "points"
    return LIMITS.get((timing.method, reference, timing.dimension))


def descriptors(images: list[Path], count: int) -> tuple[Points, Points]:
    """Two sets of `count` raw SIFT descriptors."""
    views = [read_image(image) for image in images] or render_scene(2, ROOM).images.values()
    sets = [Sift("sift", count, contrast_threshold=0.01).extract(view) for view in views]
    if min(map(len, sets)) < count:
        sys.exit(f"these images have fewer than {count} features: give larger ones")
    return sets[0].descriptors, sets[1].descriptors


def default_images() -> list[Path]:
    """Two overlapping photographs of the real data, if it is there."""
    data = Path(os.environ.get("FEATVEIL_DATA", Path(__file__).parents[2] / "shared" / "data"))
    return sorted((data / "strecha" / "castle-P30" / "images").glob("*.jpg"))[:2]


def streaming_memory(n: int = 20_000, m: int = 2) -> float:
    """Megabytes that matching n x n subspaces adds to the process at its peak."""
    rng = np.random.default_rng(0)
    basis = np.linalg.qr(rng.standard_normal((n, 128, m))).Q.transpose(0, 2, 1).astype(np.float32)
    sets = [Subspaces(rng.standard_normal((n, 128)).astype(np.float32), basis) for _ in range(2)]
    nearest_both_ways(sets[0].take(np.arange(100)), sets[1].take(np.arange(100)))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    nearest_both_ways(sets[0], sets[1])
    return (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024


def main() -> None:
    """Measure, print a table, and write JSON where asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--features", type=int, nargs="+", default=[1000, 4200])
    parser.add_argument("--dimensions", type=int, nargs="+", help=f"default: 2 4 8, and 16 up to {MANY} features")
    parser.add_argument("--images", type=Path, nargs=2, default=default_images())
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    memory = streaming_memory()
    print(f"memory of both-ways matching at 20000 x 20000, m = 2: {memory:.0f} MB (at most 1000)")
    rows: list[dict[str, object]] = []
    for count in options.features:
        first, second = descriptors(options.images, count)
        repeat = 1 if count > MANY else 9
        dimensions = options.dimensions or ([2, 4, 8] if count > MANY else [2, 4, 8, 16])
        for timing in measure(first, second, tuple(dimensions), repeat):
            most = limit(timing)
            mark = "" if most is None else f"at most {most}" + ("  ABOVE" if timing.ratio > most else "")
            print(
                f"{timing.method:31s} n={timing.n:<6d} m={timing.dimension:<3d} {1e3 * timing.seconds:10.1f} ms"
                f"  {timing.ratio:8.3f} of {timing.reference:32s} {mark}",
                flush=True,
            )
            rows.append({**asdict(timing), "limit": most})
    if options.json:
        options.json.write_text(json.dumps({"memory_mb": memory, "timings": rows}, indent=1))


if __name__ == "__main__":
    main()
