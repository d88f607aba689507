"""featveil retrieve: gated views of the rendered room vote for the views that see the same."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import featveil as fv
from featveil.core import Guarantee, MapPoints, PrivateFeatures
from featveil.formats import private_hloc
from featveil.formats.pairs import read_pairs
from featveil.geometry.models import SparseModel, View
from featveil.pipelines.map_parts.localizer import Localizer
from featveil.pipelines.map_parts.votes import ImageVotes
from rooms import Room, RoomFiles, sketch_room


@pytest.fixture(scope="module")
def gated(room: Room, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All views, gated, in one private file. Do not change it."""
    gate, path = fv.Gate(sketch_room(room)), tmp_path_factory.mktemp("gated") / "gated.h5"
    private_hloc.write(path, ((name, fv.privatize(features, gate)) for name, features in room.features.items()))
    return path


def query(model: SparseModel, points: list[list[int]], then: str | None = None) -> PrivateFeatures:
    """A gated query that names these points, and what came after the gate."""
    shown = MapPoints(np.array(points), "ab" * 32, model.digest, len(model.points))
    return PrivateFeatures(shown, "sift", {"name": "gate", "then": then}, Guarantee("map-known", tau=0.3))


def small_map(room: Room, *seen: list[int]) -> SparseModel:
    """A map of ten points and the images a, b, c..., each with those that it sees."""
    camera, pose = room.scene.cameras[room.names[0]], room.scene.poses[room.names[0]]
    views = {
        name: View(camera, pose, np.zeros((len(points), 2), np.float32), np.array(points))
        for name, points in zip("abcdef", seen, strict=False)
    }
    return SparseModel(views, np.zeros((10, 3)), np.ones(10, np.int64), np.zeros(10))


def shared(room: Room, one: str, other: str) -> int:
    """How many points of the map both views see."""
    a, b = (room.map.views[name].points for name in (one, other))
    return len(np.intersect1d(a[a >= 0], b[b >= 0]))


def test_views_that_share_points_come_first(ran: Any, room: Room, gated: Path, tmp_path: Path) -> None:
    """The view with most votes shares about as many points as any, and the one that shares least is not named."""
    out = tmp_path / "pairs.txt"
    shown = ran("retrieve", gated, "--model", room.model, "--out", out, "--top", 3)
    assert shown["out"] == str(out) and shown["pairs"] == len(out.read_text().splitlines())
    assert list(shown["queries"]) == room.names
    for name, images in shown["queries"].items():
        counts = {other: shared(room, name, other) for other in room.names if other != name}
        named = [image["image"] for image in images]
        assert counts[named[0]] > 0.8 * max(counts.values())
        assert len(named) == 3 and {name, min(counts, key=counts.__getitem__)}.isdisjoint(named)
        votes = [image["votes"] for image in images]
        assert votes == sorted(votes, reverse=True)
    assert {frozenset(pair) for pair in read_pairs(out)} == {
        frozenset((name, image["image"])) for name, images in shown["queries"].items() for image in images
    }


def test_files_and_folders(run: Any, room: Room, gated: Path, tmp_path: Path) -> None:
    (tmp_path / "q").mkdir()
    for name in room.names[:2]:
        fv.save(private_hloc.read(gated, name), tmp_path / "q" / f"{name}.veil")
    fv.save(private_hloc.read(gated, room.names[2]), tmp_path / "one.veil")
    command = ("retrieve", tmp_path / "q", tmp_path / "one.veil", "--model", room.model, "--out", tmp_path / "p.txt")
    result = run(*command, "--top", 1)
    assert result.exit_code == 0, result.output
    rows = [line.split() for line in result.stdout.splitlines()]
    assert rows[0] == ["query", "images", "most", "votes"]
    assert [row[:2] for row in rows[1:]] == [[room.names[0], "1"], [room.names[1], "1"], ["one", "1"]]
    assert rows[3][2] == room.names[2]  # under another name a view is found in the map itself


def test_in_python(room: Room, gated: Path) -> None:
    private = private_hloc.read(gated, room.names[3])
    images = Localizer(room.model).retrieve(private, 2)
    assert images[0] == room.names[3] and len(images) == 2


def test_decoys_vote_too(room: Room) -> None:
    """Of four numbers for each feature one is right at best; what the others give by chance is taken off."""
    gate = fv.Gate(sketch_room(room), then=fv.Subset(8.0, 4))
    for name in room.names:
        private = fv.privatize(room.features[name], gate, rng=np.random.default_rng(0))
        assert ImageVotes(room.map).rank(private)[0][0] == name


class TestVotes:
    def test_candidates_share_a_vote_and_points_share_it_out(self, room: Room) -> None:
        model = small_map(room, [0, 1], [1, 2], [2, 3, 4, 5, 6, 7, 8, 9])
        ranked = dict(ImageVotes(model).rank(query(model, [[-1, 0], [0, 1], [-1, 1]])))
        assert ranked == pytest.approx({"a": 1.5 + 0.75, "b": 0.75})  # point 0 is seen by a alone, point 1 by both

    def test_an_image_that_sees_all_gains_nothing_from_decoys(self, room: Room) -> None:
        model = small_map(room, list(range(10)), [0], [1])
        every = ImageVotes(model).rank(query(model, [[number] for number in range(10)], "subset"))
        assert dict(every) == pytest.approx({"a": 0, "b": 0, "c": 0})
        (first, votes), (second, fewer) = ImageVotes(model).rank(query(model, [[0], [0]], "subset"))
        assert (first, second) == ("b", "a") and votes > 0 > fewer  # c sees none of it
        assert all(votes == 1 for _, votes in ImageVotes(model).rank(query(model, [[0], [0]])))

    def test_a_point_that_an_image_saw_twice_counts_once(self, room: Room) -> None:
        twice, once = (small_map(room, seen, [5]) for seen in ([0, 0, -1], [0, -1]))
        (one,), (two,) = (ImageVotes(model).rank(query(model, [[0]])) for model in (once, twice))
        assert one == two


def test_what_is_refused(refused: Any, room: Room, files: RoomFiles, gated: Path, image: Path, tmp_path: Path) -> None:
    command = ("--model", room.model, "--out", tmp_path / "pairs.txt")
    assert "query 'view00.png': it names no points of a map" in refused("retrieve", files.lifted, *command)
    assert "it names no points" in refused("retrieve", files.raw, *command)
    assert "holds no gated query" in refused("retrieve", image, *command)
    assert "does not exist" in refused("retrieve", tmp_path / "no.veil", *command)
    assert "two queries are called" in refused("retrieve", gated, gated, *command)
    private = private_hloc.read(gated, room.names[0])
    other = fv.PrivateFeatures(
        MapPoints(private.descriptors.points, "ab" * 32, "cd" * 32, len(room.map.points)),  # type: ignore[union-attr]
        "sift",
        private.defense,
        private.guarantee,
        private.keypoints,
    )
    fv.save(other, tmp_path / "other.veil")
    assert "changed since the sketch was built" in refused("retrieve", tmp_path / "other.veil", *command)
    for wrong, message in (
        (tmp_path, "name a .txt file"),
        (tmp_path / "pairs.h5", "name a .txt file"),
        (tmp_path / "no" / "pairs.txt", "create it first"),
        (room.model / "images.txt", "would lie in the model"),
    ):
        assert message in refused("retrieve", gated, "--model", room.model, "--out", wrong)
    assert "holds no COLMAP model" in refused("retrieve", gated, "--model", files.images, *command[2:])
