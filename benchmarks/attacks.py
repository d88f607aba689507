"""Speed of the database and the clustering attack, as ratios to the distances they cannot do without, in one run.

    python benchmarks/attacks.py [--features 10000] [--entries 256000] [--dimensions 2 4] [--json FILE]

CPU time on one thread, each method measured right after its reference. The reference of the database attack is the
point-to-subspace pass that finds the confounders and no more; that of the search for subspaces that meet is the pass
that finds the two nearest of each. Beside both, the matrix product alone. A row above its limit is marked, not an
error, because machines are noisy. Descriptors are entries of the built-in database with noise.
"""

import argparse
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from featveil.attacks import Knowledge
from featveil.attacks.clustering import Clustering
from featveil.attacks.database import DatabaseAttack
from featveil.attacks.subspaces import meeting_pairs
from featveil.core import Features, Points, PrivateFeatures, Subspaces
from featveil.core.arrays import Float32
from featveil.databases import Database, builtin
from featveil.defenses import Lifting, privatize
from featveil.distances import nearest
from featveil.distances.threads import one_thread_each, single_threaded
from featveil.lab.runtime import Timing, cpu_seconds

LIMITS = {"database attack": 1.5, "subspaces that meet": 1.0}
_PRODUCT = 2**26  # numbers of the reference product that are held at a time
_WARM = 40  # features that compile everything


@dataclass(frozen=True)
class AttackTiming(Timing):
    """Also the ratio to the bare matrix product."""

    of_product: float


def noisy(count: int, rng: np.random.Generator) -> Float32:
    """Descriptors (count, 128) that resemble the built-in entries."""
    entries = builtin("sift").values
    chosen = entries[rng.integers(0, len(entries), count)] + rng.normal(0, 12, (count, 128))
    made = np.clip(chosen, 0, None).astype(np.float32)
    return np.asarray(made / np.linalg.norm(made, axis=1, keepdims=True))


def product(rows: int, columns: int) -> float:
    """Seconds of the product of (rows, 128) and (128, columns) matrices."""
    left, right = np.ones((rows, 128), np.float32), np.ones((columns, 128), np.float32)
    strip = max(1, _PRODUCT // columns)
    out = np.empty((strip, columns), np.float32)
    return sum(
        cpu_seconds(lambda part=left[start : start + strip]: np.dot(part, right.T, out=out[: len(part)]))  # type: ignore[misc]
        for start in range(0, rows, strip)
    )


def database_attack(private: PrivateFeatures, database: Database) -> Iterator[AttackTiming]:
    """The whole attack on all features, against one pass over the database."""
    subspaces, method, known = flats(private), DatabaseAttack(), Knowledge(lifting_database=database)
    n, m = len(subspaces), subspaces.dimension
    # With fewer wanted than there are zeros, float64 would have to break their ties.
    wanted = m - int(str(private.defense["random_directions"])) + 2

    def run(features: PrivateFeatures) -> object:
        return method.run(features, known, np.random.default_rng(0))

    few = np.arange(_WARM)
    run(private.take(few)), nearest(subspaces.take(few), database.as_points, wanted)
    bare = product(n * (m + 1), len(database))
    reference = cpu_seconds(lambda: nearest(subspaces, database.as_points, wanted))
    own = cpu_seconds(lambda: run(private))
    yield AttackTiming("database attack", n, m, own, f"nearest {wanted} entries", own / reference, own / bare)


def clustering_attack(private: PrivateFeatures, database: Database) -> Iterator[AttackTiming]:
    """The search for subspaces that meet against one pass over all pairs; then the whole attack."""
    subspaces, method, known = flats(private), Clustering(), Knowledge(database=database)
    n, m = len(subspaces), subspaces.dimension

    def search(flat: Subspaces) -> object:
        return sum(len(rows) for rows, _ in meeting_pairs(flat, flat))

    few = np.arange(_WARM)
    search(subspaces.take(few)), nearest(subspaces.take(few), subspaces, 2)
    method.run(private.take(few), known, np.random.default_rng(0))
    bare = product(n * (m + 1), n * (m + 1))
    reference = cpu_seconds(lambda: nearest(subspaces, subspaces, 2))
    own = cpu_seconds(lambda: search(subspaces))
    yield AttackTiming("subspaces that meet", n, m, own, "nearest 2 subspaces", own / reference, own / bare)
    whole = cpu_seconds(lambda: method.run(private, known, np.random.default_rng(0)))
    yield AttackTiming("clustering attack", n, m, whole, "subspaces that meet", whole / own, whole / bare)


def flats(private: PrivateFeatures) -> Subspaces:
    """The subspaces of a lifted release."""
    if not isinstance(private.descriptors, Subspaces):
        raise TypeError("lifting makes subspaces")
    return private.descriptors


def main() -> None:
    """Measure, print a table, and write JSON where asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--features", type=int, default=10_000)
    parser.add_argument("--entries", type=int, default=256_000)
    parser.add_argument("--dimensions", type=int, nargs="+", default=[2, 4])
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    rng = np.random.default_rng(0)
    database = Database.from_array(noisy(options.entries, rng), "sift", 16, rng=rng)
    own_database = Database.from_array(noisy(options.entries // 16, rng), "sift", 1, rng=rng)
    features = Features(Points(noisy(options.features, rng)), "sift")
    rows: list[dict[str, object]] = []
    with single_threaded(), one_thread_each():
        for m in options.dimensions:
            private = privatize(features, Lifting("sub-hybrid", m, database=database), rng=rng)
            for measure, known in ((database_attack, database), (clustering_attack, own_database)):
                for timing in measure(private, known):
                    most = LIMITS.get(timing.method)
                    mark = "" if most is None else f"at most {most}" + ("  ABOVE" if timing.ratio > most else "")
                    print(
                        f"{timing.method:20s} n={timing.n:<6d} m={timing.dimension:<3d} {timing.seconds:8.2f} s"
                        f"  {timing.ratio:6.3f} of {timing.reference:20s} {timing.of_product:6.3f} of the product"
                        f"  {mark}",
                        flush=True,
                    )
                    rows.append({**asdict(timing), "limit": most})
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
