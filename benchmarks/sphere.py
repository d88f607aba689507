"""What comparing subspaces on the unit sphere gains and costs: right matches with and without it.

    python benchmarks/sphere.py HPATCHES/ [--strategy sub-hybrid] [--max-features 1000] [--scenes 7] [--json FILE]

Matches are mutual nearest neighbours; right ones lie within 3 px of where the true homography puts them. Figures are
means over all image pairs, among them those that happen to draw the same sub-database. Every image is lifted once for
each dimension, as in `featveil bench matching`. Time is processor time of matching alone, on the sphere as a multiple
of that by plain distance, the median over pairs.
"""

import argparse
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from featveil.core import Flats
from featveil.core.seeding import image_generator
from featveil.datasets import Scene, load_hpatches
from featveil.defenses import STRATEGIES, Lifting
from featveil.lab.matching import DISTANCES
from featveil.lab.scene_studies import Images, Settings
from featveil.matching import NearestMatcher
from featveil.metrics import transfer_errors

PIXELS = 3
DIMENSIONS = (2, 4, 8, 16)


@dataclass(frozen=True)
class Outcome:
    """Of one image pair: matches found, right ones among them, and the processor time it took in seconds."""

    found: int
    right: int
    seconds: float


def measure(images: Images, sides: tuple[Flats, Flats], place: int, on_sphere: bool) -> Outcome:
    """Match image 1 with that of the pair at `place`."""
    pair = images.scene.pairs[place]
    start = time.process_time()
    matches = NearestMatcher(on_sphere=on_sphere).match(*sides)
    seconds = time.process_time() - start
    errors = transfer_errors(matches, images.keypoints(1), images.keypoints(pair.number), pair.homography)
    return Outcome(len(matches), int((errors <= PIXELS).sum()), seconds)


def run_scene(scene: Scene, strategy: str, settings: Settings) -> dict[tuple[str, int, bool], list[Outcome]]:
    """Outcomes of all pairs of a scene, by distance, dimension (0 is raw) and whether on the sphere."""
    images = Images(scene, settings)
    raw = images[1].descriptors
    numbers = [pair.number for pair in scene.pairs]
    places = range(len(numbers))
    outcomes = {("raw", 0, False): [measure(images, (raw, images[numbers[k]].descriptors), k, False) for k in places]}
    for dimension in DIMENSIONS:
        lifting = Lifting(strategy, dimension).for_kind(settings.kind)
        name = f"{strategy}-{dimension}"
        lifted = {
            number: lifting.privatize(
                images[number].descriptors, image_generator(settings.seed, scene.name, number, name)
            )
            for number in (1, *numbers)
        }
        for distance in DISTANCES:
            first = raw if distance == "point-to-subspace" else lifted[1]
            for on_sphere in (False, True):
                made = [measure(images, (first, lifted[numbers[k]]), k, on_sphere) for k in places]
                outcomes[distance, dimension, on_sphere] = made
    return outcomes


def table(outcomes: dict[tuple[str, int, bool], list[Outcome]]) -> list[dict[str, object]]:
    """One row for each distance and dimension."""

    def mean(key: tuple[str, int, bool], values: str) -> float:
        return float(np.mean([getattr(outcome, values) for outcome in outcomes[key]]))

    raw = mean(("raw", 0, False), "right")
    print(f"raw: {raw:.0f} right matches a pair, {len(outcomes['raw', 0, False])} pairs")
    rows: list[dict[str, object]] = []
    for distance in DISTANCES:
        for dimension in DIMENSIONS:
            plain, sphere = (distance, dimension, False), (distance, dimension, True)
            row: dict[str, object] = {"distance": distance, "dimension": dimension, "raw": raw}
            parts = []
            for name, key in (("plain", plain), ("on sphere", sphere)):
                right, found = mean(key, "right"), mean(key, "found")
                row[name] = {"right": right, "share of raw": right / raw, "found": found}
                parts.append(f"{name} {right:6.1f} right = {right / raw:6.1%} of raw, of {found:6.1f} found")
            both = zip(outcomes[sphere], outcomes[plain], strict=True)
            row["time"] = float(np.median([slow.seconds / fast.seconds for slow, fast in both]))
            print(f"{distance:22s} m = {dimension:2d}  {'   '.join(parts)}   time x {row['time']:.1f}", flush=True)
            rows.append(row)
    return rows


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, print a table, and write JSON where asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dataset", type=Path)
    parser.add_argument("--strategy", choices=tuple(STRATEGIES), default="sub-hybrid")
    parser.add_argument("--max-features", type=int, default=1000)
    parser.add_argument("--scenes", type=int)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args(arguments)
    settings = Settings(max_features=options.max_features)
    total: dict[tuple[str, int, bool], list[Outcome]] = {}
    for scene in load_hpatches(options.dataset).scenes[: options.scenes]:
        for key, outcomes in run_scene(scene, options.strategy, settings).items():
            total.setdefault(key, []).extend(outcomes)
    rows = table(total)
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
