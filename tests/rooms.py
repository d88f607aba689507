"""The rendered room, mapped once for all tests: six small views with their features, matches, database and model.

The world is in metres. The cameras stand about 0.3 m apart and 3 m from the corner that they look at.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path

import numpy as np

from featveil.core import Features, Matches
from featveil.core.arrays import Float32
from featveil.datasets import RenderedScene, render_scene
from featveil.defenses import Lifting, Subset, privatize
from featveil.extractors import extract
from featveil.formats import hloc, private_hloc
from featveil.gate import Sketch
from featveil.gate.sketch_building import Observations, build_sketch
from featveil.gate.thresholds import calibrate
from featveil.geometry.map_images import MapImage, map_image
from featveil.geometry.match_database import Pair, add_matches, write_images
from featveil.geometry.models import SparseModel
from featveil.geometry.sfm import Mapping3D, build_map
from featveil.geometry.two_view import Verified, verify
from featveil.matching import match_pairs
from featveil.pipelines.map_parts.observed import facts_of, foreign_to, observations
from hloc_lists import write_queries

VIEWS, SIZE, FEATURES = 6, (320, 240), 500

# One seed and the true intrinsics, so that a test can be repeated and is not about calibration.
STEADY = Mapping3D(refine_intrinsics=False, seed=0)


@dataclass(frozen=True, eq=False)
class Room:
    """Views by name with cameras and true poses in `scene`, their raw `features` and the `matches` of all pairs.

    `database` has them verified and `model` is the folder of the map made of it. Copy these two before changing them.
    """

    scene: RenderedScene
    features: dict[str, Features]
    matches: dict[Pair, Matches]
    database: Path
    verified: Verified
    model: Path
    map: SparseModel

    @property
    def names(self) -> list[str]:
        """The views in the order in which the cameras stand."""
        return list(self.features)

    def xy(self, name: str) -> Float32:
        """The keypoints (n, 2) of a view."""
        keypoints = self.features[name].keypoints
        assert keypoints is not None
        return keypoints.xy

    def images(self, names: Iterable[str]) -> dict[str, MapImage]:
        """Some views as a database takes them, with their true cameras."""
        return {name: map_image(self.features[name], self.scene.cameras[name], name) for name in names}

    def pairs(self, names: Iterable[str]) -> dict[Pair, Matches]:
        """The matches among some views."""
        return {pair: self.matches[pair] for pair in combinations(sorted(names), 2)}

    def write(self, path: Path, names: Iterable[str]) -> None:
        """A new database of some views and their matches, not verified."""
        chosen = sorted(names)
        write_images(path, self.images(chosen))
        add_matches(path, self.pairs(chosen).items())


def map_room(folder: Path) -> Room:
    """Render, extract, match, verify and map; takes about 3 s."""
    scene = render_scene(VIEWS, SIZE)
    features = {name: extract(image, max_features=FEATURES) for name, image in scene.images.items()}
    pairs = list(combinations(features, 2))
    matches = dict(match_pairs(pairs, features.__getitem__, features.__getitem__, ratio=0.8))
    database, model = folder / "database.db", folder / "model"
    images = {name: map_image(found, scene.cameras[name], name) for name, found in features.items()}
    write_images(database, images)
    add_matches(database, matches.items())
    verified = verify(database, seed=0)
    return Room(scene, features, matches, database, verified, model, build_map(database, model, STEADY))


def sketch_room(room: Room, size: int | None = None) -> Sketch:
    """What a device knows of the room, calibrated; its views are of one place, so foreign content is from elsewhere."""

    def seen() -> Iterable[Observations]:
        return observations(room.map, room.features.__getitem__, room.names)

    sketch = build_sketch(facts_of(room.map, "sift", "the room"), seen, size)
    return replace(sketch, calibration=calibrate(sketch, seen(), foreign_to("sift")))


@dataclass(frozen=True)
class RoomFiles:
    """The room on disk: `images`, true `cameras`, and features of each: `raw`, `lifted` (m = 2), `words` (k = 4)."""

    images: Path
    cameras: Path
    raw: Path
    lifted: Path
    words: Path


def write_files(room: Room, images: Path, folder: Path) -> RoomFiles:
    """Write the features and cameras of a room, whose `images` are written already, to `folder`."""
    made = RoomFiles(images, *(folder / name for name in ("cameras.txt", "raw.h5", "lifted.h5", "words.h5")))
    write_queries(made.cameras, room.scene.cameras)
    hloc.write_features(made.raw, room.features.items())
    for path, defense in ((made.lifted, Lifting("sub-hybrid", 2)), (made.words, Subset(10, 4))):
        seeds = np.random.default_rng(0).spawn(len(room.features))
        sent = zip(room.features.items(), seeds, strict=True)
        private_hloc.write(path, ((name, privatize(found, defense, rng=seed)) for (name, found), seed in sent))
    return made
