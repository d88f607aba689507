"""Speed of face templates: identifying one among many, and verifying all pairs of a benchmark, in one run.

    python benchmarks/faces.py [--people 100000] [--dimension 4] [--pairs 6000] [--repeat 30] [--json FILE]

The first rows look a private template up among raw and among private ones, 128 numbers each. The distance pass computes
the squared distance to each and keeps nothing; identifying does that, keeps the nearest and makes sure that it is. Both
run right after another, on one thread, so that a noisy machine disturbs them alike; the ratio is the median over the
repetitions. The templates are made up, and share confounders as those of a database of 10,000 faces do. A ratio above
its limit is marked, not an error. The last row hides and compares all pairs of one configuration,
subspace-to-subspace, in one call.
"""

import argparse
import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

import numpy as np

from featveil.core import Flats, Points
from featveil.core.arrays import Float32
from featveil.databases import Database
from featveil.defenses import Lifting
from featveil.distances import Gallery, pair_distances
from featveil.distances.search import compare
from featveil.distances.threads import one_thread_each, single_threaded

SIZE = 128
LIMIT = 1.2
OTHERS = 10_000


@dataclass(frozen=True)
class Row:
    """One comparison: medians in milliseconds, and the ratio of the second to the first."""

    name: str
    pass_ms: float
    identify_ms: float
    ratio: float
    limit: float = LIMIT

    def __str__(self) -> str:
        mark = "  ABOVE" if self.ratio > self.limit else ""
        return (
            f"{self.name:40s} distance pass {self.pass_ms:7.2f} ms, identify {self.identify_ms:7.2f} ms,"
            f" ratio {self.ratio:5.2f}, at most {self.limit}{mark}"
        )


def elapsed(work: Callable[[], object]) -> float:
    """Milliseconds that `work` takes."""
    start = time.perf_counter()
    work()
    return 1000 * (time.perf_counter() - start)


def unit_vectors(count: int, rng: np.random.Generator) -> Float32:
    """Directions drawn evenly."""
    values = rng.standard_normal((count, SIZE), dtype=np.float32)
    values /= np.linalg.norm(values, axis=1, keepdims=True)
    return values


def lifting_among(others: Float32, dimension: int) -> Lifting:
    """What hides templates among `others`."""
    return Lifting("hybrid", dimension, database=Database.from_array(others, "face", parts=1))


def identify(name: str, query: Flats, entries: Flats, repeat: int) -> Row:
    """Time the search of `query` among `entries` beside the bare distances of the same pairs."""
    gallery, walker = Gallery(entries), compare(query, entries).walker
    gallery.nearest(query), walker.matrix(slice(0, 1))  # prepares and compiles
    with single_threaded(), one_thread_each():
        times = [
            (elapsed(lambda: walker.matrix(slice(0, 1))), elapsed(lambda: gallery.nearest(query)))
            for _ in range(repeat)
        ]
    passes, found = zip(*times, strict=True)
    return Row(name, median(passes), median(found), median(both / bare for bare, both in times))


def verify(count: int, lifting: Lifting, rng: np.random.Generator) -> float:
    """Seconds to hide both sides of `count` pairs and to compare them."""
    faces = unit_vectors(2 * count, rng)
    places = np.arange(count)

    def work() -> None:
        first, second = (lifting.privatize(Points(part), rng) for part in (faces[:count], faces[count:]))
        pair_distances(first, second, places, places)

    work()
    return elapsed(work) / 1000


def main() -> None:
    """Measure, print a table, and write JSON where asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--people", type=int, default=100_000)
    parser.add_argument("--dimension", type=int, default=4)
    parser.add_argument("--pairs", type=int, default=6000)
    parser.add_argument("--repeat", type=int, default=30)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    rng = np.random.default_rng(0)
    people = Points(unit_vectors(options.people, rng))
    lifting = lifting_among(unit_vectors(OTHERS, rng), options.dimension)
    query = lifting.privatize(Points(unit_vectors(1, rng)), rng)
    rows = []
    for name, entries in (("raw", people), ("private", lifting.privatize(people, rng))):
        rows.append(identify(f"1 private among {options.people} {name}", query, entries, options.repeat))
        print(rows[-1], flush=True)
    seconds = verify(options.pairs, lifting, rng)
    print(f"{options.pairs} pairs, both sides hidden and compared: {seconds:.2f} s")
    if options.json:
        found = {"dimension": options.dimension, "rows": [asdict(row) for row in rows], "verify_seconds": seconds}
        options.json.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
