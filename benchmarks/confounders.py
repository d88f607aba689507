"""How often the ranker of the discriminator attack tells a real descriptor from its confounders, by their origin.

    python benchmarks/confounders.py VICTIMS/ --attacker PHOTOS/ [--alike PHOTOS/] [--kind sift] [--images 6]
        [--confounders 4] [--json F]

Each list is a descriptor of a victim and confounders of one origin; the ranker learns from lists made alike of the
attacker's photographs. Chance is one in as many as a list has. No subspace is involved: this is what the confounders
themselves give away, whatever hides the descriptor among them. With --alike, the attacker has photographs of the
victims' sort (a city, say), and learns what tells them from those that confounders are drawn from.
"""

import argparse
import json
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from featveil.attacks.discriminator_parts.ranking import distinguish
from featveil.audit.victims import own_database, read_victims
from featveil.core.arrays import Float32
from featveil.databases import builtin
from featveil.databases.entries import unit_rows
from featveil.defenses.balance import Balance

Draw = Callable[[Float32, Float32], Float32]


def lists(photographs: Sequence[Float32], pool: Float32, draw: Draw) -> Float32:
    """Each descriptor of `photographs` (n, d) before its confounders, drawn from `pool`: (n, confounders + 1, d)."""
    return np.concatenate([np.concatenate([real[:, None], draw(real, pool)], axis=1) for real in photographs])


def means(confounders: int, averaged: int, rng: np.random.Generator) -> Draw:
    """Confounders that are means of `averaged` members of the pool, drawn blindly."""

    def draw(real: Float32, pool: Float32) -> Float32:
        drawn = pool[rng.integers(0, len(pool), size=(len(real), confounders, averaged))]
        return unit_rows(drawn.mean(axis=2))

    return draw


def main() -> None:
    """Measure, print a table, and write JSON where asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("victims", type=Path)
    parser.add_argument("--attacker", type=Path, nargs="+", required=True)
    parser.add_argument("--alike", type=Path)
    parser.add_argument("--kind", choices=("sift", "rootsift"), default="sift")
    parser.add_argument("--images", type=int, default=6)
    parser.add_argument("--confounders", type=int, default=4)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    rng = np.random.default_rng(0)
    hidden = descriptors(options.victims, options.kind, options.images)
    own = own_database(options.attacker, options.kind, 40_000).as_points.values
    reference, examples, others = own[:10_000], own[10_000:13_000], own[13_000:]
    learned_from = [examples] if options.alike is None else descriptors(options.alike, options.kind, 30)
    balance, blind = Balance(options.kind), means(options.confounders, 1, rng)
    origins: dict[str, tuple[Float32, Draw]] = {
        "entries of a clustered database": (builtin(options.kind).points(), blind),
        "means of two real descriptors": (others, means(options.confounders, 2, rng)),
        "real descriptors of other photographs": (others, blind),
        "real descriptors, balanced": (
            others,
            lambda real, pool: pool[balance.choose(real, pool, options.confounders, rng)],
        ),
    }
    rows: list[dict[str, object]] = []
    for name, (pool, draw) in origins.items():
        half = len(pool) // 2
        tested, learned = lists(hidden, pool[:half], draw), lists(learned_from, pool[half:], draw)
        found = distinguish(tested, learned, reference, options.kind, rng)
        print(f"{name:40s} {found.success:6.1%}  chance {found.chance:.0%}  n={found.count}", flush=True)
        rows.append({"kind": options.kind, "origin": name, "success": found.success, "chance": found.chance})
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1))


def descriptors(folder: Path, kind: str, images: int) -> list[Float32]:
    """Of each of up to `images` photographs."""
    return [features.descriptors.values for features in read_victims(folder, kind, images, 500).values()]


if __name__ == "__main__":
    main()
