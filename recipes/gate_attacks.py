"""Attacks a gate on photographs of a mapped place, and prints what docs/threat-model.md says of it.

SCENE is a scene of Strecha's (fountain-P11 or castle-P30). The query is left out of the map. `only` names studies:
read, decoys, hole, probing, decoding, linking. Pictures that are pasted in or planted come with scikit-image.

Example: python recipes/gate_attacks.py strecha/castle-P30 0016.jpg maps/ read decoys
"""

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from skimage import data

import featveil as fv
from featveil.attacks import Chance, Knowledge, Overlap, Read
from featveil.attacks.read_parts.map_descriptors import likeliest_points
from featveil.core import Features, Points, PrivateFeatures
from featveil.databases import builtin
from featveil.datasets import load_map_scenes
from featveil.defenses.subset import subset_coin
from featveil.extractors import extract, read_image
from featveil.gate import Sketch
from featveil.gate.background import background_distances, usual_background
from featveil.gate.map_sketch import unit
from featveil.gate.probing import audit_sketch, plant
from featveil.gate.sketch_building import build_sketch
from featveil.gate.thresholds import calibrate
from featveil.geometry.silhouettes import find_hole
from featveil.lab.localization_parts.localization_maps import MapsWithout
from featveil.lab.scene_studies import RAW, SceneReleases, Settings
from featveil.metrics import align, guess_distances
from featveil.pipelines.map_parts.localizer import Localizer
from featveil.pipelines.map_parts.observed import facts_of, foreign_to, observations

SIZES = (16, 32, None)  # bytes of an entry; None: exact
FEATURES = 2000
BOXES = ((500, 350, 400), (900, 500, 250), (200, 100, 500))  # left, top, side
COUNTS = (20, 100, 400)  # descriptors that are planted


class Place:
    """A scene, its map without one image, and sketches of that."""

    def __init__(self, folder: Path, query: str, maps: Path) -> None:
        self.scene, self.query = load_map_scenes(folder)[0], query
        releases = SceneReleases(self.scene, Settings())
        self.raw = releases.raw
        self.model = MapsWithout(releases, 20, maps / self.scene.name).without(query, RAW)
        self.image = read_image(folder / "images" / query)
        self.sketches = {size: self.sketch(size) for size in SIZES}

    def observations(self) -> list[Any]:
        return list(observations(self.model, self.raw, sorted(self.model.views)))

    def sketch(self, size: int | None, images: range | None = None) -> Sketch:
        seen = [one for one in self.observations() if images is None or one.image in images]
        sketch = build_sketch(facts_of(self.model, "sift"), lambda: seen, size)
        return replace(sketch, calibration=calibrate(sketch, seen, foreign_to("sift")))

    def release(self, features: Features, size: int | None = 16, **options: Any) -> PrivateFeatures:
        gate = fv.Gate(self.sketches[size], **options)
        return fv.privatize(features, gate, rng=np.random.default_rng(0), keep_geometry=True)


def read(place: Place) -> Iterator[str]:
    """How near the map's own descriptors come to those of the query."""
    raw = place.raw(place.query)
    for size, sketch in place.sketches.items():
        private = place.release(raw, size)
        truth = align(private, raw).points
        yield f"{size} B: sent {len(private)} of {len(raw)}"
        for method in (Read(), Overlap(), Chance()):
            known = Knowledge(sketch=sketch, database=builtin("sift"))
            away = guess_distances(fv.attack(private, method, known, np.random.default_rng(0)).values, truth)
            shares = ", ".join(f"{(away < limit).mean():.3f} below {limit}" for limit in (0.2, 0.3, 0.5))
            yield f"  {method.name}: mean {away.mean():.3f}, median {np.median(away):.3f}, {shares}"


def decoys(place: Place) -> Iterator[str]:
    """How often the right one of a set of the subset mechanism is told."""
    raw, sketch = place.raw(place.query), place.sketches[16]
    true = in_order(place.release(raw, candidates=1))[:, 0]
    for epsilon in (6.0, 8.0, 10.0):
        for k in (2, 4, 16):
            sets = in_order(place.release(raw, then=fv.Subset(epsilon, k)))
            coin = float(subset_coin(epsilon, len(sketch.known), k).probability)
            right = (likeliest_points(sets, sketch) == true).mean()
            best = f"{right:.3f} by images of the map, {coin:.3f} are in their set"
            yield f"epsilon {epsilon:g}, k {k}: {coin / k:.3f} right blindly, {best}"


def in_order(private: PrivateFeatures) -> np.ndarray:
    keypoints = private.keypoints
    return private.descriptors.points[np.lexsort((*keypoints.xy.T, keypoints.orientation, keypoints.scale))]


def hole(place: Place) -> Iterator[str]:
    """How well the outline of a pasted portrait is seen."""
    camera = place.scene.cameras[place.query]
    for left, top, side in BOXES:
        box = np.s_[top : top + side, left : left + side]
        private = place.release(extract(pasted(place.image, data.astronaut(), left, top, side), "sift", FEATURES))
        pose = Localizer(place.model).locate(private, camera).pose
        mask = find_hole(private, pose, camera, place.model).at_size(camera.width, camera.height) > 0
        true = np.zeros_like(mask)
        true[box] = True
        yield f"side {side}: IoU {(mask & true).sum() / (mask | true).sum():.3f}, mask {mask.mean():.3f} of the picture"


def probing(place: Place) -> Iterator[str]:
    """How often a planted thing is told, and whether an audit minds."""
    things = {
        "portrait": data.astronaut()[:300, 120:420],
        "cat": data.chelsea(),
        "page": np.repeat(data.page()[..., None], 3, axis=2),
        "cup": data.coffee(),
    }
    seen = {"": extract(place.image, "sift", FEATURES)}
    for name, picture in things.items():
        for left, top, side in BOXES[:2]:
            shown = pasted(place.image, another(picture, 100 + side), left, top, side)
            seen[f"{name} {side}"] = extract(shown, "sift", FEATURES)
    sketch, corpus, background = place.sketches[16], foreign_to("sift").corpus, usual_background("sift")
    known = sketch.calibration
    for name in ("portrait", "page"):
        secret = extract(another(things[name], 1), "sift", FEATURES).descriptors
        for count in COUNTS:
            for disguise in ("none", "tracks"):
                planted = plant(sketch, secret.take(np.arange(min(count, len(secret)))), disguise)
                gate = fv.Gate(planted)
                sent = {key: fv.privatize(one, gate).descriptors.points for key, one in seen.items()}
                answers = {key: int((one >= sketch.model_points).any(axis=1).sum()) for key, one in sent.items()}
                with_it = [number for key, number in answers.items() if key.startswith(name)]
                without = max(number for key, number in answers.items() if not key.startswith(name))
                audit = audit_sketch(planted, corpus, known.tau, known.contrast, background)
                yield (
                    f"{name}, {count} planted, disguise {disguise}: answers {with_it}, at most {without} without it;"
                    f" audit: {audit.reasons or 'accepted'}"
                )
    yield f"an honest sketch: {audit_sketch(sketch, corpus, known.tau, known.contrast, background)}"


def pasted(image: np.ndarray, picture: np.ndarray, left: int, top: int, side: int) -> np.ndarray:
    image = image.copy()
    image[top : top + side, left : left + side] = cv2.resize(picture, (side, side), interpolation=cv2.INTER_AREA)
    return image


def another(image: np.ndarray, seed: int) -> np.ndarray:
    """Another picture of the same thing: larger or smaller, tilted, in another light, with noise."""
    rng = np.random.default_rng(seed)
    factor = rng.uniform(0.7, 1.3)
    image = cv2.resize(image, None, fx=factor, fy=factor)
    height, width = image.shape[:2]
    corners = np.float32([[0, 0], [width, 0], [width, height], [0, height]])
    moved = corners + np.float32(rng.uniform(-0.08, 0.08, (4, 2)) * (width, height))
    tilt = cv2.getPerspectiveTransform(corners, moved)
    image = cv2.warpPerspective(image, tilt, (width, height), borderMode=cv2.BORDER_REPLICATE)
    light = (image / 255.0) ** rng.uniform(0.7, 1.4) * rng.uniform(0.7, 1.1) + rng.normal(0, 0.01, image.shape)
    return np.clip(light * 255, 0, 255).astype(np.uint8)


def decoding(place: Place) -> Iterator[str]:
    """How far entries are from the descriptors that they were made of, where a point has one in an image."""
    seen = place.observations()
    points, values = (
        np.concatenate([one.points for one in seen]),
        np.concatenate([unit(one.descriptors) for one in seen]),
    )
    images = np.repeat([one.image for one in seen], [len(one.points) for one in seen])
    own, first, count = np.unique(points * len(seen) + images, return_index=True, return_counts=True)
    for size, sketch in place.sketches.items():
        entries, at, same = np.unique(sketch.points * len(seen) + sketch.images, return_index=True, return_counts=True)
        single = np.intersect1d(own[count == 1], entries[same == 1])
        decoded = sketch.entries.decode(at[np.searchsorted(entries, single)])
        away = np.linalg.norm(decoded - values[first[np.searchsorted(own, single)]], axis=1)
        yield f"{size} B: median {np.median(away):.3f}, 90 % below {np.quantile(away, 0.9):.3f}"


def linking(place: Place) -> Iterator[str]:
    """How many entries of a sketch of some images are near to one of the other images."""
    count = len(place.model.views)
    first, second = (place.sketch(16, range(start, count, 2)) for start in range(2))
    values = Points(first.entries.decode(np.arange(0, len(first), -(-len(first) // 2000))))
    passed = second.look_up(values, 0.35)
    away = background_distances(unit(values.take(passed.rows)), usual_background("sift"))
    yield f"{(passed.distances[:, 0] <= 0.8 * away).sum() / len(values):.3f} within 0.35 and contrast 0.8"


STUDIES = {one.__name__: one for one in (read, decoys, hole, probing, decoding, linking)}

if __name__ == "__main__":
    folder, query, maps, *only = sys.argv[1:]
    place = Place(Path(folder), query, Path(maps))
    for name in only or STUDIES:
        print(f"{name}: {STUDIES[name].__doc__}")
        for line in STUDIES[name](place):
            print(f"  {line}", flush=True)
