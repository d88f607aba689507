"""Building a map from the room's features: what is matched, what is kept when it stops, and what does not mix."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from colmap_databases import connected
from featveil.core import Camera, Features, InputError, PrivateFeatures, WordSets
from featveil.databases import builtin
from featveil.defenses import Lifting, Subset, privatize
from featveil.geometry.match_database import Pair, matched_pairs, stored_images
from featveil.geometry.models import read_model
from featveil.geometry.two_view import OF_CANDIDATES, Verification, Verified
from featveil.matching import MatchOptions, as_words, match
from featveil.pipelines.map_parts import map_building
from featveil.pipelines.map_parts.map_building import (
    DATABASE,
    MapOptions,
    all_pairs,
    build_map,
    match_and_verify,
    supported,
)
from interruptions import Watched
from rooms import STEADY, Room

HOW = MapOptions(MatchOptions(ratio=0.8), mapping=STEADY)


def watched(
    monkeypatch: pytest.MonkeyPatch, stop_at: int = 0, error: type[BaseException] = KeyboardInterrupt
) -> Watched:
    """Counts the pairs that are matched."""
    return Watched(monkeypatch, "featveil.pipelines.map_parts.map_building.match", match, stop_at, error)


def built(room: Room, out: Path, names: Sequence[str] | None = None) -> map_building.BuiltMap:
    return build_map(names or room.names, room.features.__getitem__, out, cameras=room.scene.cameras, options=HOW)


def test_the_same_map_as_step_by_step(room: Room, tmp_path: Path) -> None:
    stages: list[tuple[str, int, int]] = []
    result = build_map(
        room.names,
        room.features.__getitem__,
        tmp_path / "new" / "map",
        cameras=room.scene.cameras,
        options=HOW,
        report=lambda *stage: stages.append(stage),
    )
    assert result.pairs == 15 and result.verified == room.verified
    assert result.model.views.keys() == room.map.views.keys()
    assert (result.model.points == room.map.points).all()
    assert [stage for stage in stages if stage[0] == "matching"] == [("matching", done, 15) for done in range(16)]
    assert ("verifying", 0, 15) in stages and stages[-1] == ("mapping", 6, 6)
    stored = read_model(tmp_path / "new" / "map")
    assert sorted(stored.points.tolist()) == sorted(result.model.points.tolist())


def test_features_are_read_once_for_all_pairs(room: Room, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once for the keypoints, the first once more for the kind of its descriptors, and once for matching."""
    read: Counter[str] = Counter()

    def counted(name: str) -> Features:
        read[name] += 1
        return room.features[name]

    match_and_verify(room.names, counted, tmp_path, options=HOW)
    assert max(read.values()) <= 3 and sum(read.values()) <= 2 * len(room.names) + 1


def test_only_the_pairs_that_were_named(room: Room, tmp_path: Path) -> None:
    pairs: list[Pair] = [(room.names[1], room.names[0]), (room.names[1], room.names[2])]
    count, verified = match_and_verify(room.names, room.features.__getitem__, tmp_path, pairs=pairs, options=HOW)
    assert (count, verified.pairs) == (2, 2)
    assert matched_pairs(tmp_path / DATABASE) == {*pairs, *((two, one) for one, two in pairs)}
    assert stored_images(tmp_path / DATABASE) == set(room.names)


def test_no_descriptor_is_in_the_folder(room: Room, tmp_path: Path) -> None:
    built(room, tmp_path)
    with connected(tmp_path / DATABASE) as connection:
        assert connection.execute("SELECT count(*) FROM descriptors").fetchone() == (0,)
    content = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    for row in room.features[room.names[0]].descriptors.values:
        assert row.tobytes() not in content


def test_what_cannot_be_a_map(room: Room, tmp_path: Path) -> None:
    read, out = room.features.__getitem__, tmp_path / "map"
    for names in ([], room.names[:1]):
        with pytest.raises(InputError, match=f"at least two images, got {len(names)}"):
            build_map(names, read, out)
    with pytest.raises(InputError, match="the pairs name image 'no', which is none of the 6 images"):
        build_map(room.names, read, out, pairs=[(room.names[0], "no")])
    bare = Features(room.features[room.names[0]].descriptors, "sift")
    with pytest.raises(InputError, match="no keypoints, which mapping needs"):
        build_map(room.names, lambda name: bare, out)
    assert not (out / DATABASE).exists()


@pytest.mark.parametrize("batch", [1, 4, 100])
@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError])
def test_a_build_that_was_stopped_goes_on(
    room: Room, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: type[BaseException], batch: int
) -> None:
    """What was matched is kept, whatever the batch, and is not matched again; the result is the same."""
    monkeypatch.setattr(map_building, "_BATCH", batch)
    names = room.names[:5]
    watched(monkeypatch, 8, error)
    with pytest.raises(error):
        built(room, tmp_path, names)
    assert [path.name for path in tmp_path.iterdir()] == [DATABASE]
    assert len(matched_pairs(tmp_path / DATABASE)) == 2 * 7
    again = watched(monkeypatch)
    result = built(room, tmp_path, names)
    assert again.calls == 3
    assert result.pairs == result.verified.pairs == 10 and len(result.model.views) == 5
    again = watched(monkeypatch)
    assert (built(room, tmp_path, names).model.points == result.model.points).all()
    assert again.calls == 0


def test_images_can_be_added(room: Room, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert len(built(room, tmp_path, room.names[:4]).model.views) == 4
    more = watched(monkeypatch)
    assert len(built(room, tmp_path, room.names).model.views) == 6
    assert more.calls == len(all_pairs(room.names)) - len(all_pairs(room.names[:4]))


def test_a_folder_of_other_images_is_refused(room: Room, tmp_path: Path) -> None:
    built(room, tmp_path, room.names[:3])
    for others in (room.names[1:4], room.names[3:]):
        with pytest.raises(InputError, match="which is none of these: use another folder"):
            built(room, tmp_path, others)
    assert stored_images(tmp_path / DATABASE) == set(room.names[:3])
    assert read_model(tmp_path).views.keys() == set(room.names[:3])


def test_a_folder_of_other_features_or_cameras_is_refused(room: Room, tmp_path: Path) -> None:
    """Matches by index would lead to the wrong keypoints, and cameras that are given now would be left out."""
    names, cameras = room.names[:3], room.scene.cameras
    built(room, tmp_path, names)
    fewer = {name: room.features[name].take(np.arange(300)) for name in names}
    turned = {name: room.features[name].take(np.arange(500)[::-1]) for name in names}
    for others in (fewer, turned):
        with pytest.raises(InputError, match="has other keypoints in"):
            build_map(names, others.__getitem__, tmp_path, cameras=cameras)
    wrong = Camera("PINHOLE", 320, 240, (400.0, 400.0, 160.0, 120.0))
    for given in ({}, dict.fromkeys(names, wrong), {name: cameras[name] for name in names[1:]}):
        with pytest.raises(InputError, match="has another camera in"):
            build_map(names, room.features.__getitem__, tmp_path, cameras=given)


def test_candidates_of_words_are_those_that_neighbours_support(room: Room) -> None:
    a, b = (room.features[name] for name in room.names[:2])
    words = [privatize(side, Subset(10, 4), rng=np.random.default_rng(seed)) for seed, side in enumerate((a, b))]
    candidates = match(*words)
    kept = supported(candidates, *words)
    assert 20 < len(kept) < 0.3 * len(candidates)
    assert {*map(tuple, kept.indices.tolist())} < {*map(tuple, candidates.indices.tolist())}
    for one, two in ((words[0], b), (a, words[1])):
        assert len(supported(match(one, two), one, two)) < len(match(one, two))
    plain = match(a, b)
    assert supported(plain, a, b) is plain
    bare = [replace(side, keypoints=None) for side in words]
    assert supported(candidates, *bare) is candidates


def test_words_are_verified_more_strictly(room: Room, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    used: list[Verification] = []

    def verify(path: Path, options: Verification, seed: int | None) -> Verified:
        used.append(options)
        return Verified(0, 0)

    monkeypatch.setattr(map_building, "verify", verify)
    names = room.names[:2]
    sent: list[dict[str, Features] | dict[str, PrivateFeatures]] = [
        {name: room.features[name] for name in names},
        {name: privatize(room.features[name], Lifting()) for name in names},
        {name: as_words(room.features[name], builtin("sift")) for name in names},
    ]
    for number, features in enumerate(sent):
        match_and_verify(names, features.__getitem__, tmp_path / str(number))
    match_and_verify(names, sent[2].__getitem__, tmp_path / "3", options=MapOptions(verification=Verification(99)))
    assert used == [Verification(), Verification(), OF_CANDIDATES, Verification(99)]


def test_raw_features_by_their_words(room: Room) -> None:
    """`as_words` finds the candidates that matching raw features with word sets finds."""
    a, b = (room.features[name] for name in room.names[:2])
    named = as_words(a, builtin("sift"))
    assert isinstance(named.descriptors, WordSets) and named.descriptors.words.shape == (len(a), 1)
    assert named.keypoints is a.keypoints and named.guarantee.kind == "none" and named.image_size == a.image_size
    query = privatize(b, Subset(10, 2), rng=np.random.default_rng(0))
    assert (match(query, named).indices == match(query, a).indices).all()
