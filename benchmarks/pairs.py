"""Speed of matching many pairs of images, private against raw through the same code, in one run.

    python benchmarks/pairs.py [--images 6] [--features 8000] [--repeat 5] [--photos FOLDER] [--json FILE]

The first row matches all pairs of a set of images, sub-hybrid with m = 2 on both sides, the second one private query
with m = 4 against 20 raw map images. Each pair is matched raw and private right after another, so that a noisy machine
disturbs both alike; the ratio is of the sums over all pairs, of elapsed and of processor time, and the median over the
repetitions. A ratio above its limit is marked, not an error, because machines are noisy. FEATVEIL_THREADS sets the
threads. Descriptors come from photographs (--photos, or FEATVEIL_DATA), else from the built-in database with noise.
"""

import argparse
import json
import os
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from itertools import combinations, product
from pathlib import Path
from statistics import median
from unittest.mock import patch

import numpy as np

from featveil.core import Features, Points, PrivateFeatures
from featveil.databases import builtin
from featveil.defenses import Lifting, privatize
from featveil.distances import nearest_pruned
from featveil.distances.threads import threads
from featveil.extractors import Sift, image_files, read_image
from featveil.matching import match_pairs
from featveil.matching import nearest_neighbours as nearest

MAP_IMAGES = 20
QUERY_FEATURES = 2000
NOISE = 0.05  # of each component, about what separates two views of a SIFT feature

Pairs = list[tuple[str, str]]
Side = Mapping[str, Features | PrivateFeatures]


@dataclass(frozen=True)
class Clock:
    """Seconds since some start."""

    elapsed: float
    processor: float

    @classmethod
    def now(cls) -> "Clock":
        """The time."""
        return cls(time.perf_counter(), time.process_time())

    def __add__(self, other: "Clock") -> "Clock":
        return Clock(self.elapsed + other.elapsed, self.processor + other.processor)

    def __sub__(self, other: "Clock") -> "Clock":
        return Clock(self.elapsed - other.elapsed, self.processor - other.processor)


@dataclass(frozen=True)
class Row:
    """One comparison: seconds that all pairs took, and ratios of private to raw with the most that they should be."""

    name: str
    pairs: int
    features: int
    raw_seconds: float
    private_seconds: float
    ratio: float
    processor_ratio: float
    limit: float

    def __str__(self) -> str:
        mark = "  ABOVE" if self.ratio > self.limit else ""
        return (
            f"{self.name:32s} {self.pairs:4d} pairs of {self.features} features: raw {self.raw_seconds:7.2f} s, private"
            f" {self.private_seconds:7.2f} s, ratio {self.ratio:5.2f} elapsed, {self.processor_ratio:5.2f} processor,"
            f" at most {self.limit}{mark}"
        )


def default_photos() -> Path:
    """Overlapping photographs of the real data, which may be absent."""
    data = Path(os.environ.get("FEATVEIL_DATA", Path(__file__).parents[2] / "shared" / "data"))
    return data / "strecha" / "castle-P30" / "images"


def raw_images(photos: Path, images: int, count: int) -> dict[str, Features]:
    """`count` features of each of `images` images."""
    if not photos.is_dir():
        return dict(_made_up(images, count))
    sift = Sift("sift", count, contrast_threshold=0.005)
    found = {path.name: sift.extract(read_image(path)) for path in image_files(photos)[:images]}
    if len(found) < images or min(map(len, found.values())) < count:
        sys.exit(f"there are not {images} images of {count} features in {photos}: give larger ones")
    return found


def _made_up(images: int, count: int) -> Iterator[tuple[str, Features]]:
    """Views of one scene: the same descriptors in another order, with noise."""
    rng = np.random.default_rng(0)
    entries = builtin("sift").points()
    for number in range(images):
        values = np.abs(entries[rng.permutation(len(entries))[:count]] + NOISE * rng.standard_normal((count, 128)))
        values /= np.linalg.norm(values, axis=1, keepdims=True)
        yield f"{number}.jpg", Features(Points(values.astype(np.float32)), "sift")


def compare(pairs: Pairs, raw: tuple[Side, Side], private: tuple[Side, Side]) -> tuple[Clock, Clock]:
    """Time of all pairs, raw and private, each pair in turn."""
    runs = [match_pairs(pairs, first.__getitem__, second.__getitem__) for first, second in (raw, private)]
    spent = [Clock(0, 0), Clock(0, 0)]
    for _ in pairs:
        for place, run in enumerate(runs):
            start = Clock.now()
            next(run)
            spent[place] += Clock.now() - start
    return spent[0], spent[1]


def measure(
    name: str, limit: float, pairs: Pairs, sides: tuple[tuple[Side, Side], tuple[Side, Side]], repeat: int
) -> Row:
    """Compare `sides`, raw and private, `repeat` times, after one pair of each that compiles the kernels."""
    compare(pairs[:1], *sides)
    times = [compare(pairs, *sides) for _ in range(repeat)]
    return Row(
        name,
        len(pairs),
        len(next(iter(sides[0][0].values()))),
        median(raw.elapsed for raw, _ in times),
        median(private.elapsed for _, private in times),
        median(private.elapsed / raw.elapsed for raw, private in times),
        median(private.processor / raw.processor for raw, private in times),
        limit,
    )


def all_pairs(raw: dict[str, Features], repeat: int) -> Row:
    """Every image with every other; raises AssertionError unless each pair went through the pruned kernel, twice."""
    private = {name: privatize(features, Lifting("sub-hybrid", 2)) for name, features in raw.items()}
    pairs = list(combinations(raw, 2))
    with patch.object(nearest, "nearest_pruned", wraps=nearest_pruned) as pruned:
        row = measure("all pairs, sub-hybrid m = 2", 8, pairs, ((raw, raw), (private, private)), repeat)
    assert pruned.call_count == 2 * (1 + repeat * len(pairs)), "the pruned kernel did not run for every pair"
    return row


def one_query(raw: dict[str, Features], repeat: int) -> Row:
    """The first image, private, against the others as they are."""
    query, *others = raw
    private = {query: privatize(raw[query], Lifting("sub-hybrid", 4))}
    pairs = list(product([query], others))
    return measure("query, sub-hybrid m = 4", 5.5, pairs, ((raw, raw), (private, raw)), repeat)


def main() -> None:
    """Measure, print a table, and write JSON where asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=6, help="30 for the full set")
    parser.add_argument("--features", type=int, default=8000)
    parser.add_argument("--repeat", type=int, default=1, help="of all pairs; the query is repeated five times as often")
    parser.add_argument("--photos", type=Path, default=default_photos())
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    print(f"{threads()} threads, {'photographs' if options.photos.is_dir() else 'made-up descriptors'}", flush=True)
    rows = [all_pairs(raw_images(options.photos, options.images, options.features), options.repeat)]
    print(rows[0], flush=True)
    rows.append(one_query(raw_images(options.photos, MAP_IMAGES + 1, QUERY_FEATURES), 5 * options.repeat))
    print(rows[1])
    if options.json:
        options.json.write_text(json.dumps({"threads": threads(), "rows": [asdict(row) for row in rows]}, indent=1))


if __name__ == "__main__":
    main()
