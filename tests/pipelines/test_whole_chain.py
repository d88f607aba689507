"""From pictures to poses: render, extract, privatize, match, verify, map, localize a view that the map has not seen.

Eight views of 480 x 360 pixels with 1000 features; the cameras stand about 0.35 m apart and 3 m from the corner. Words
are of the built-in codebook, two for each descriptor, with epsilon 10.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from featveil.core import Defense, Features, PrivateFeatures
from featveil.datasets import RenderedScene, render_scene
from featveil.defenses import Lifting, Subset, privatize
from featveil.extractors import extract
from featveil.geometry.absolute_pose import PoseSearch
from featveil.geometry.sfm import triangulate
from featveil.metrics import align_poses, pose_errors
from featveil.pipelines.map_parts.localizer import LocalizeOptions, Localizer
from featveil.pipelines.map_parts.map_building import DATABASE, BuiltMap, MapOptions, build_map
from rooms import STEADY

DEFENSES: dict[str, Defense | None] = {
    "raw": None,
    "lifted-2": Lifting("sub-hybrid", 2),
    "lifted-4": Lifting("sub-hybrid", 4),
    "words": Subset(10, 2),
}

Sent = Mapping[str, Features | PrivateFeatures]


@dataclass(frozen=True, eq=False)
class Chain:
    """What is sent of each view under each of DEFENSES, and the maps of all views but `query` that were made of it."""

    scene: RenderedScene
    query: str
    sent: dict[str, Sent]
    folder: Path
    maps: dict[str, BuiltMap]

    @property
    def others(self) -> list[str]:
        return [name for name in self.scene.images if name != self.query]


@pytest.fixture(scope="module")
def chain(tmp_path_factory: pytest.TempPathFactory) -> Chain:
    pytest.importorskip("pycolmap", reason="COLMAP itself: pip install 'featveil[colmap]'")
    scene = render_scene(8, (480, 360))
    raw = {name: extract(image, max_features=1000) for name, image in scene.images.items()}
    made = Chain(scene, sorted(raw)[4], {}, tmp_path_factory.mktemp("chain"), {})
    for scheme, defense in DEFENSES.items():
        sent: Sent = raw
        if defense is not None:
            seeds = np.random.default_rng(len(scheme)).spawn(len(raw))
            sent = {name: privatize(raw[name], defense, rng=seed) for name, seed in zip(raw, seeds, strict=True)}
        made.sent[scheme] = sent
        options, cameras = MapOptions(mapping=STEADY), {name: scene.cameras[name] for name in made.others}
        made.maps[scheme] = build_map(
            made.others, sent.__getitem__, made.folder / scheme, cameras=cameras, options=options
        )
    return made


# Measured with two sets of draws: 2, 4, 13 and 20 mm; 0.05, 0.08, 0.22 and 0.36 degrees; 1091, 1008, 908, 310 points.
@pytest.mark.parametrize(
    ("scheme", "metres", "degrees", "points"),
    [("raw", 0.01, 0.2, 900), ("lifted-2", 0.02, 0.4, 800), ("lifted-4", 0.05, 0.8, 700), ("words", 0.08, 1.2, 200)],
)
def test_a_map_has_every_camera_at_its_place(
    chain: Chain, scheme: str, metres: float, degrees: float, points: int
) -> None:
    made = chain.maps[scheme]
    assert made.model.views.keys() == set(chain.others)
    for name, pose in align_poses(made.model.poses, chain.scene.poses).items():
        turned, moved = pose_errors(pose, chain.scene.poses[name])
        assert moved < metres and turned < degrees, name
    assert len(made.model.points) > points and made.model.mean_error < 1


# Measured: at most 0.7 mm and 0.014 degrees in maps of raw or lifted features, 3.5 mm and 0.07 degrees in others.
@pytest.mark.parametrize(
    ("map_of", "query_of", "metres", "degrees", "inliers"),
    [
        ("raw", "raw", 0.003, 0.06, 600),
        ("raw", "lifted-2", 0.003, 0.06, 600),
        ("raw", "lifted-4", 0.003, 0.06, 600),
        ("lifted-2", "lifted-2", 0.003, 0.06, 500),
        ("lifted-4", "lifted-4", 0.003, 0.06, 450),
        ("raw", "words", 0.004, 0.08, 300),
        ("words", "words", 0.01, 0.2, 100),
        ("words", "raw", 0.01, 0.2, 120),
    ],
)
def test_a_view_that_was_left_out_is_localized(
    chain: Chain, tmp_path: Path, map_of: str, query_of: str, metres: float, degrees: float, inliers: int
) -> None:
    """In a map at the true poses, so that the error is that of the query alone."""
    poses = {name: chain.scene.poses[name] for name in chain.others}
    model = triangulate(chain.folder / map_of / DATABASE, poses, tmp_path / "model", STEADY)
    localizer = Localizer(model, chain.sent[map_of].__getitem__, LocalizeOptions(search=PoseSearch(seed=0)))
    query, camera = chain.sent[query_of][chain.query], chain.scene.cameras[chain.query]
    located = localizer.locate(query, camera, True, chain.others)
    assert located.pose is not None, located.reason
    turned, moved = pose_errors(located.pose, chain.scene.poses[chain.query])
    assert moved < metres and turned < degrees
    assert located.inliers > inliers


@pytest.mark.parametrize("scheme", DEFENSES)
def test_the_whole_chain_without_true_poses(chain: Chain, scheme: str) -> None:
    """A query in the map as it was built, and both turned to the room: within 3 cm and half a degree."""
    made = chain.maps[scheme]
    localizer = Localizer(made.model, chain.sent[scheme].__getitem__, LocalizeOptions(search=PoseSearch(seed=0)))
    query, camera = chain.sent[scheme][chain.query], chain.scene.cameras[chain.query]
    located = localizer.locate(query, camera, True, chain.others)
    assert located.pose is not None, located.reason
    true = {name: chain.scene.poses[name] for name in chain.others}
    placed = align_poses({**made.model.poses, chain.query: located.pose}, true)[chain.query]
    turned, moved = pose_errors(placed, chain.scene.poses[chain.query])
    assert moved < 0.03 and turned < 0.5
