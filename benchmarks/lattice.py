"""Time of the lattice attack and how much it recovers: CPU time a descriptor, one thread.

    python benchmarks/lattice.py [--features 40] [--dimensions 2 4 8 16] [--strategy sub-hybrid] [--images A B ...]

Exact are the guesses that are the hidden descriptor; the attack knows no database. A row above its limit is marked, not
an error, because machines are noisy. Descriptors come from photographs (--images, or FEATVEIL_DATA), else from the
demo's picture. Half precision is what a float16 file would hold, with rows made orthonormal again.
"""

import argparse
import json
import os
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
from threadpoolctl import threadpool_limits

from featveil.attacks import Knowledge, attack
from featveil.attacks.lattice import Lattice
from featveil.attacks.lattice_parts.precision import HALF, SINGLE
from featveil.core import Features, PrivateFeatures, Subspaces
from featveil.datasets.board import views
from featveil.defenses import STRATEGIES, Lifting, privatize
from featveil.extractors import extract, read_image
from featveil.metrics import align
from featveil.metrics.leakage import EXACT, guess_distances

LIMITS = {(4, "single"): 50.0}  # milliseconds a descriptor


def default_images() -> list[Path]:
    """A few photographs that the built-in database was not made of, if they are there."""
    data = Path(os.environ.get("FEATVEIL_DATA", Path(__file__).parents[2] / "shared" / "data"))
    return sorted((data / "photos" / "urban100").glob("*"))[::25]


def halved(private: PrivateFeatures) -> PrivateFeatures:
    """The release as it comes from a float16 file."""
    assert isinstance(private.descriptors, Subspaces)
    basis = private.descriptors.basis.astype(np.float16).astype(np.float64)
    rows = np.linalg.qr(basis.transpose(0, 2, 1)).Q.transpose(0, 2, 1).astype(np.float32)
    return replace(private, descriptors=Subspaces(private.descriptors.offset.astype(np.float16), rows))


def measure(raw: Features, lifting: Lifting, count: int, stored: str) -> tuple[float, float]:
    """Seconds and exactly recovered ones of `count` descriptors of one image."""
    rng = np.random.default_rng(0)
    whole = privatize(raw, lifting, rng=rng)
    whole = whole.take(rng.permutation(len(whole))[:count])
    truth = align(whole, raw).points
    private, precision = (whole, SINGLE) if stored == "single" else (halved(whole), HALF)
    start = time.process_time()
    guess = attack(private, Lattice(precision), Knowledge(), rng)
    return time.process_time() - start, float((guess_distances(guess.values, truth) < EXACT).sum())


def main() -> None:
    """Measure, print a table, and write JSON where asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--features", type=int, default=40, help="descriptors measured of all images together")
    parser.add_argument("--dimensions", type=int, nargs="+", default=[2, 4, 8, 16])
    parser.add_argument("--strategy", choices=tuple(STRATEGIES), default="sub-hybrid")
    parser.add_argument("--images", type=Path, nargs="+", default=default_images())
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    images = [extract(read_image(image), "sift", 2000) for image in options.images] or [
        extract(views()[0], "sift", 2000)
    ]
    each = max(1, options.features // len(images))
    if min(map(len, images)) < each:
        sys.exit(f"these images have fewer than {each} features: give larger ones")
    measure(images[0], Lifting(options.strategy, 2), 1, "single")  # loads what is loaded once
    rows: list[dict[str, object]] = []
    for dimension in options.dimensions:
        for stored in ("single", "half"):
            parts = [measure(raw, Lifting(options.strategy, dimension), each, stored) for raw in images]
            count = each * len(images)
            milliseconds, exact = 1e3 * sum(part[0] for part in parts) / count, sum(part[1] for part in parts) / count
            most = LIMITS.get((dimension, stored))
            mark = "" if most is None else f"at most {most:g}" + ("  ABOVE" if milliseconds > most else "")
            print(
                f"{options.strategy:16s} m={dimension:<3d} {stored:7s} n={count:<5d} {milliseconds:8.1f} ms each"
                f"  exact {exact:6.1%}  {mark}",
                flush=True,
            )
            names = ("strategy", "dimension", "stored", "count", "milliseconds", "exact", "limit")
            values = (options.strategy, dimension, stored, count, milliseconds, exact, most)
            rows.append(dict(zip(names, values, strict=True)))
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    with threadpool_limits(1):
        main()
