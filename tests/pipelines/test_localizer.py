"""Placing queries in the room's map: whose features they are matched with, and what is refused or has no pose."""

import shutil
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from featveil.core import Features, Guarantee, InputError, Keypoints, MapPoints, Points, PrivateFeatures
from featveil.databases import Database, builtin
from featveil.defenses import Lifting, Subset, privatize
from featveil.formats import hloc
from featveil.geometry.absolute_pose import Localized, PoseSearch
from featveil.matching import MatchOptions, as_words
from featveil.metrics import align_poses, pose_errors
from featveil.pipelines.map_parts import localizer as localizing
from featveil.pipelines.map_parts.localizer import LocalizeOptions, Localizer
from featveil.pipelines.map_parts.map_building import Read
from rooms import Room

HOW = LocalizeOptions(search=PoseSearch(seed=0))


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def words(features: Features, subset_size: int = 2, seed: int = 0) -> PrivateFeatures:
    return privatize(features, Subset(10, subset_size), rng=rng(seed))


def locate(
    room: Room, query: Features | PrivateFeatures, how: LocalizeOptions = HOW, read: Read | None = None
) -> Localized:
    """The third view in the map, matched with the others."""
    name = room.names[2]
    others = [other for other in room.names if other != name]
    return Localizer(room.map, read or room.features.__getitem__, how).locate(
        query, room.scene.cameras[name], True, others
    )


def check(room: Room, located: Localized, metres: float, degrees: float, query: str = "") -> None:
    """Against the true pose: the map is turned to the room first."""
    assert located.pose is not None, located.reason
    name = query or room.names[2]
    others = {other: pose for other, pose in room.scene.poses.items() if other != name}
    aligned = align_poses({**room.map.poses, name: located.pose}, others)[name]
    turned, moved = pose_errors(aligned, room.scene.poses[name])
    assert moved < metres and turned < degrees


def test_raw_lifted_and_word_queries(room: Room) -> None:
    """Small images with 500 features; test_whole_chain.py has the accuracy of larger ones."""
    raw = room.features[room.names[2]]
    check(room, locate(room, raw), 0.01, 0.3)
    check(room, locate(room, privatize(raw, Lifting("sub-hybrid", 2), rng=rng())), 0.01, 0.3)
    check(room, located := locate(room, words(raw)), 0.02, 0.5)
    assert located.by_chance is not None and locate(room, raw).by_chance is None


def test_neighbours_leave_few_of_the_candidates(room: Room) -> None:
    query = words(room.features[room.names[2]], 4)
    few, every = (locate(room, query, replace(HOW, neighbours=chosen)) for chosen in (True, False))
    assert few.correspondences < 0.7 * every.correspondences
    assert few.inliers > 0.7 * few.correspondences and every.inliers < 0.6 * every.correspondences


@pytest.mark.parametrize("named", [True, False])
def test_queries_in_a_map_of_words(room: Room, named: bool) -> None:
    """Words on either side give many candidates: a raw query gets the same care as one of words."""
    sent = {name: words(features, seed=seed) for seed, (name, features) in enumerate(room.features.items(), start=1)}
    raw = room.features[room.names[2]]
    query = words(raw) if named else raw
    located = locate(room, query, read=sent.__getitem__)
    check(room, located, 0.05, 1)
    assert located.by_chance is not None
    every = locate(room, query, replace(HOW, neighbours=False), sent.__getitem__)
    assert located.correspondences < every.correspondences


def test_a_feature_that_shows_fewer_points_than_others_names_these_only(room: Room) -> None:
    numbers = np.array([[-1, -1, 5], [1, 2, 4], [-1, 0, 7]])
    shown = MapPoints(numbers, "a" * 64, room.map.digest, len(room.map.points))
    xy = np.array([[1, 2], [3, 4], [5, 6]], np.float32)
    query = PrivateFeatures(shown, "sift", {"name": "gate"}, Guarantee("map-known", tau=0.3), Keypoints(xy), (64, 48))
    named = Localizer(room.map).named(query)
    assert named.points.tolist() == [5, 1, 2, 4, 0, 7]
    assert named.keypoints.tolist() == [0, 1, 1, 1, 2, 2]
    assert (named.xy == xy[named.keypoints]).all()
    assert (named.xyz == room.map.points[named.points]).all()


def test_a_query_of_another_place_has_no_pose(room: Room) -> None:
    """Its descriptors are anyone's; twelve of so few matches never agree, and those of words no more than by chance."""
    there = room.features[room.names[2]]
    foreign = replace(there, descriptors=Points(rng().permuted(there.descriptors.values, axis=1)))
    lost = locate(room, foreign, replace(HOW, matching=MatchOptions(ratio=0.8)))
    assert lost.pose is None and lost.reason
    for how in (HOW, replace(HOW, neighbours=False)):
        astray = locate(room, words(foreign, 4), how)
        assert astray.pose is None and astray.reason


def test_features_of_the_map_are_read_and_named_once(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    read: Counter[str] = Counter()
    named: Counter[str] = Counter()

    def counted(name: str) -> Features:
        read[name] += 1
        return room.features[name]

    def counted_words(features: Features, codebook: Database) -> PrivateFeatures:
        named["all"] += 1
        return as_words(features, codebook)

    monkeypatch.setattr(localizing, "as_words", counted_words)
    localizer = Localizer(room.map, counted, HOW)
    raw, camera = room.features[room.names[2]], room.scene.cameras[room.names[2]]
    for query in (raw, raw, words(raw), words(raw)):
        localizer.locate(query, camera, True, room.names[3:])
    assert set(read) == set(room.names[3:]) and set(read.values()) == {2}  # as they are, and by their words
    assert named["all"] == 3


def test_another_order_of_the_map_s_features_does_not_matter(room: Room) -> None:
    turned = {name: features.take(rng().permutation(len(features))) for name, features in room.features.items()}
    check(room, locate(room, room.features[room.names[2]], read=turned.__getitem__), 0.01, 0.3)


def test_what_is_refused(room: Room) -> None:
    raw, camera = room.features[room.names[2]], room.scene.cameras[room.names[2]]
    localizer = Localizer(room.map, room.features.__getitem__)
    with pytest.raises(InputError, match="image 'no' is not in the map"):
        localizer.locate(raw, camera, True, ["no"])
    with pytest.raises(InputError, match="the query has no keypoints"):
        localizer.locate(replace(raw, keypoints=None), camera, True, room.names)
    with pytest.raises(InputError, match="cannot match rootsift with sift"):
        localizer.locate(replace(raw, kind="rootsift"), camera, True, room.names)
    bare = Localizer(room.map, lambda name: replace(room.features[name], keypoints=None))
    with pytest.raises(InputError, match="have no keypoints, which localization needs"):
        bare.locate(raw, camera, True, room.names)
    mixed = Localizer(room.map, lambda name: raw)
    with pytest.raises(InputError, match="are not those of the model"):
        mixed.locate(raw, camera, True, room.names)


def test_words_of_another_codebook(room: Room) -> None:
    book = Database(builtin("sift").values[:2000], "sift")
    raw = room.features[room.names[2]]
    query = privatize(raw, Subset(10, 2, book), rng=rng())
    with pytest.raises(InputError, match="give that codebook"):
        locate(room, query)
    check(room, locate(room, query, replace(HOW, matching=MatchOptions(codebook=book))), 0.05, 1)
    with pytest.raises(InputError, match="use the same file"):
        locate(room, words(raw), replace(HOW, matching=MatchOptions(codebook=book)))


def test_without_images_of_the_map(room: Room) -> None:
    raw, camera = room.features[room.names[2]], room.scene.cameras[room.names[2]]
    located = Localizer(room.map, room.features.__getitem__).locate(raw, camera, True, [])
    assert located.pose is None and located.reason.startswith("0 matches")


def test_a_folder_says_it_all(room: Room, tmp_path: Path) -> None:
    """The map, the features beside it and all of its images; a query may come without a camera."""
    folder = tmp_path / "map"
    shutil.copytree(room.model, folder)
    bare = Localizer(folder)
    with pytest.raises(InputError, match="no features beside it"):
        bare.images  # noqa: B018  they are looked for when they are needed
    with pytest.raises(InputError, match="no features beside it"):
        bare.locate(room.features[room.names[0]])
    hloc.write_features(folder / "features.h5", [(name, room.features[name]) for name in room.names[1:]])
    localizer = Localizer(folder, options=HOW)
    assert sorted(localizer.images) == room.names[1:]
    query = room.features[room.names[0]]
    check(room, localizer.locate(query, room.scene.cameras[room.names[0]]), 0.01, 0.3, room.names[0])
    assert localizer.locate(query).pose is not None
    with pytest.raises(InputError, match="camera"):
        localizer.locate(replace(query, image_size=None))


def test_where_features_of_the_map_come_from(room: Room, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="features of its images"):
        Localizer(room.map).locate(room.features[room.names[0]])
    hloc.write_features(tmp_path / "others.h5", [("other", room.features[room.names[0]])])
    with pytest.raises(InputError, match="none of the 6 images"):
        Localizer(room.map, tmp_path / "others.h5").locate(room.features[room.names[0]])
    assert len(Localizer(room.model, room.features.__getitem__).images) == 6


def test_a_query_that_names_too_many_points(room: Room) -> None:
    """Each costs time of the server, and no device sends so many."""
    known = len(room.map.points)
    count = localizing._MOST_NAMED // known + 1
    named = MapPoints(np.tile(np.arange(known), (count, 1)), "ab" * 32, room.map.digest, known)
    places = Keypoints(np.ones((count, 2), np.float32))
    query = PrivateFeatures(
        named, "sift", {"name": "gate"}, Guarantee("map-known", None, "image", 0.4), places, (640, 480)
    )
    with pytest.raises(InputError, match="more than"):
        Localizer(room.map).locate(query)
