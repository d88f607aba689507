"""How often the images that a gated query votes for are those whose cameras stand nearest.

    python benchmarks/votes.py MODEL [--features FILE] [--top 5] [--json FILE]

Each image of the map in turn is a query: its observations are taken out of the sketch and of the tracks, its features
pass the gate, and the points that they name vote for the other images. It prints how many of the TOP images with most
votes are among the TOP nearest ones, and how many of as many at random would be.
"""

import argparse
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from statistics import mean

import numpy as np

from featveil.core import Features, MapPoints
from featveil.defenses import Gate, Subset, privatize
from featveil.formats.collections import Collection, open_collection
from featveil.gate import Calibration, Sketch
from featveil.gate.sketch_building import Observations, build_sketch
from featveil.gate.thresholds import calibrate
from featveil.geometry.models import SparseModel, read_model
from featveil.pipelines.map_parts.observed import facts_of, foreign_to, observations
from featveil.pipelines.map_parts.votes import ImageVotes

AFTER = {"numbers": None, "decoys, epsilon 10": Subset(10.0, 4), "decoys, epsilon 8": Subset(8.0, 4)}


def sketched(model: SparseModel, stored: Collection) -> tuple[Sketch, Calibration]:
    """The sketch of the whole map, and its calibration."""
    names = sorted(model.views)

    def seen() -> Iterator[Observations]:
        return observations(model, stored.read, names)

    sketch = build_sketch(facts_of(model, stored.read(names[0]).kind), seen)
    return sketch, calibrate(sketch, seen(), foreign_to(sketch.kind))


def without(model: SparseModel, name: str) -> SparseModel:
    """The map without what one of its images saw."""
    view = model.views[name]
    return replace(model, views={**model.views, name: replace(view, points=np.full_like(view.points, -1))})


def nearest(model: SparseModel, name: str, top: int) -> set[str]:
    """The images whose cameras stand nearest to that of `name`."""
    centre = model.views[name].pose.centre
    others = [other for other in model.views if other != name]
    return set(sorted(others, key=lambda other: float(np.linalg.norm(model.views[other].pose.centre - centre)))[:top])


def main() -> None:
    """Measure, print a line for each kind of release, and write JSON where asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--features", type=Path)
    parser.add_argument("--top", type=int, default=5)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    model = read_model(options.model)
    stored = open_collection(options.features or options.model / "features.h5")
    sketch, calibration = sketched(model, stored)
    names, among = sorted(model.views), dict[str, list[int]]()
    for number, name in enumerate(names):
        rest = replace(sketch.take(np.flatnonzero(sketch.images != number)), calibration=calibration)
        truth, left, raw = nearest(model, name, options.top), without(model, name), stored.read(name)
        assert isinstance(raw, Features)
        for kind, after in AFTER.items():
            sent = privatize(raw, Gate(rest, then=after, min_share=0, min_features=1))
            shown = sent.descriptors
            assert isinstance(shown, MapPoints)
            own = replace(sent, descriptors=replace(shown, model=left.digest))
            voted = [image for image, _ in ImageVotes(left).rank(own)[: options.top]]
            among.setdefault(kind, []).append(len(truth.intersection(voted)))
    figures = {kind: mean(counts) for kind, counts in among.items()}
    chance = options.top**2 / (len(names) - 1)
    for kind, figure in figures.items():
        print(
            f"{kind:<20} {figure:.2f} of the {options.top} nearest of {len(names) - 1} images, {chance:.2f} by chance"
        )
    if options.json:
        options.json.write_text(json.dumps({"top": options.top, "images": len(names), **figures}) + "\n")


if __name__ == "__main__":
    main()
