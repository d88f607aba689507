"""How far apart keypoints must lie: features that are left, and what attacks on hardened lifting find of them.

    python benchmarks/reach.py VICTIMS/ --pool PHOTOS/ --attacker PHOTOS/ [--reaches 1,2,3,4.5,6] [--geometry]
        [--unlike 0.6] [--images 3] [--kind sift] [--json F]

Of hardened lifting with 4 confounders to dimension 16. With --geometry the attacker sees scale and orientation, too:
what an attacker could find who infers them.
"""

import argparse
import json
from pathlib import Path

import numpy as np

from featveil.attacks import ATTACKS, Knowledge
from featveil.audit.victims import own_database, read_victims
from featveil.defenses import Hardened, lying_apart, privatize
from featveil.defenses.selection import UNLIKE
from featveil.metrics import align
from featveil.pipelines.scoring import score_attack
from featveil.stores.pool import Pool


def main() -> None:
    """Measure, print a table, and write JSON where asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("victims", type=Path)
    parser.add_argument("--pool", type=Path, required=True)
    parser.add_argument("--attacker", type=Path, nargs="+", required=True)
    parser.add_argument("--reaches", default="1,2,3,4.5,6")
    parser.add_argument("--geometry", action="store_true")
    parser.add_argument("--unlike", type=float, default=UNLIKE)
    parser.add_argument("--images", type=int, default=3)
    parser.add_argument("--kind", choices=("sift", "rootsift"), default="sift")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    victims = list(read_victims(options.victims, options.kind, options.images, 1000).values())
    pool = own_database([options.pool], options.kind, 40_000).as_points.values
    known = Knowledge(database=own_database(options.attacker, options.kind, 40_000))
    rows: list[dict[str, object]] = []
    for reach in map(float, options.reaches.split(",")):
        found: dict[str, list[tuple[int, float]]] = {"overlap": [], "discriminator": []}
        for number, raw in enumerate(victims):
            rng = np.random.default_rng(number)
            few = lying_apart(raw, reach, options.unlike)
            device = Pool.in_memory(pool[number :: len(victims)], options.kind, rng)
            private = privatize(few, Hardened(pool=device), keep_geometry=options.geometry, rng=rng)
            for name, counted in found.items():
                leakage = score_attack(private, align(private, few), ATTACKS[name](), known, rng).leakage
                counted.append((leakage.count, leakage.below_near))
        features = sum(count for count, _ in found["overlap"])
        shares = {name: sum(n * near for n, near in counted) / features for name, counted in found.items()}
        share = features / sum(map(len, victims))
        listed = "  ".join(f"{name} {near:6.1%}" for name, near in shares.items())
        print(f"reach {reach:4g}  features kept {share:6.1%}  {listed}  n={features}", flush=True)
        rows.append({"reach": reach, "kept": share, "geometry": options.geometry, **shares})
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
