"""How often the ranker of the discriminator attack tells a real descriptor from its confounders, by their origin.

    python benchmarks/confounders.py VICTIMS/ --attacker PHOTOS/ [--kind sift] [--images 6] [--confounders 4] [--json F]

Each list is a descriptor of a victim and confounders of one origin; the ranker learns from lists made alike of the
attacker's photographs. Chance is one in as many as a list has. No subspace is involved: this is what the confounders
themselves give away, whatever hides the descriptor among them.
"""

import argparse
import json
from pathlib import Path

import numpy as np

from featveil.attacks.ranking import distinguish
from featveil.core.arrays import Float32
from featveil.databases import builtin
from featveil.databases.database import unit_rows
from featveil.tasks.victims import own_database, read_victims


def lists(real: Float32, pool: Float32, confounders: int, averaged: int, rng: np.random.Generator) -> Float32:
    """Each of `real` (n, d) before `confounders` means of `averaged` members of `pool`: (n, confounders + 1, d)."""
    drawn = pool[rng.integers(0, len(pool), size=(len(real), confounders, averaged))]
    return np.concatenate([real[:, None], unit_rows(drawn.mean(axis=2))], axis=1)


def main() -> None:
    """Measure, print a table, and write JSON where asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("victims", type=Path)
    parser.add_argument("--attacker", type=Path, nargs="+", required=True)
    parser.add_argument("--kind", choices=("sift", "rootsift"), default="sift")
    parser.add_argument("--images", type=int, default=6)
    parser.add_argument("--confounders", type=int, default=4)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    rng = np.random.default_rng(0)
    victims = read_victims(options.victims, options.kind, options.images, 500)
    hidden = np.concatenate([features.descriptors.values for features in victims.values()])
    own = own_database(options.attacker, options.kind, 40_000).as_points.values
    reference, examples, others = own[:10_000], own[10_000:13_000], own[13_000:]
    centres = builtin(options.kind).points()
    origins = {
        "entries of a clustered database": (centres, 1),
        "means of two real descriptors": (others, 2),
        "real descriptors of other photographs": (others, 1),
    }
    rows: list[dict[str, object]] = []
    for name, (pool, averaged) in origins.items():
        half = len(pool) // 2
        tested = lists(hidden, pool[:half], options.confounders, averaged, rng)
        learned = lists(examples, pool[half:], options.confounders, averaged, rng)
        found = distinguish(tested, learned, reference, options.kind, rng)
        print(f"{name:40s} {found.success:6.1%}  chance {found.chance:.0%}  n={found.count}", flush=True)
        rows.append({"kind": options.kind, "origin": name, "success": found.success, "chance": found.chance})
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
