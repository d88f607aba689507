"""The hole in a gated query is where nothing was sent, and nowhere if everything was."""

from dataclasses import replace

import numpy as np
import pytest

from featveil.core import Guarantee, InputError, Keypoints, MapPoints, PrivateFeatures
from featveil.core.arrays import Float64
from featveil.geometry.silhouettes import find_hole
from rooms import Room

BOX = 110, 70, 210, 170  # left, top, right, bottom


def gated(room: Room, name: str, hidden: bool) -> PrivateFeatures:
    """What a view shows of the map, as a gate would send it; `hidden`: not what lies in the box."""
    view = room.map.views[name]
    left, top, right, bottom = BOX
    inside = (view.xy >= (left, top)).all(axis=1) & (view.xy < (right, bottom)).all(axis=1)
    rows = np.flatnonzero((view.points >= 0) & ~(inside & hidden))
    shown = MapPoints(view.points[rows, None], "a" * 64, room.map.digest, len(room.map.points))
    guarantee = Guarantee("map-known", tau=0.3)
    size = room.scene.cameras[name].width, room.scene.cameras[name].height
    return PrivateFeatures(shown, "sift", {"name": "gate"}, guarantee, Keypoints(view.xy[rows]), size)


def shares(room: Room, hidden: bool) -> Float64:
    """How much of the box, and of the rest, is called a hole."""
    name = room.names[2]
    hole = find_hole(gated(room, name, hidden), room.map.views[name].pose, room.map.views[name].camera, room.map)
    assert np.array_equal(hole.mask, hole.score > 0)
    camera = room.scene.cameras[name]
    mask = hole.at_size(camera.width, camera.height) > 0
    assert mask.shape == (camera.height, camera.width)
    left, top, right, bottom = BOX
    box = np.zeros_like(mask)
    box[top:bottom, left:right] = True
    return np.array([mask[box].mean(), mask[~box].mean()])


def test_what_was_held_back_leaves_a_hole(room: Room) -> None:
    inside, outside = shares(room, hidden=True)
    assert inside > 0.5 and outside < 0.2
    assert shares(room, hidden=False)[0] < 0.2


def test_what_is_refused(room: Room) -> None:
    name = room.names[2]
    view, query = room.map.views[name], gated(room, name, False)
    with pytest.raises(InputError, match="another map"):
        find_hole(query, view.pose, view.camera, replace(room.map, points=room.map.points[:0], views={}))
    away = replace(view.pose, translation=-view.pose.translation, rotation=view.pose.rotation)
    with pytest.raises(InputError, match="in view"):
        find_hole(query, replace(away, translation=np.array([0.0, 0.0, -1e6])), view.camera, room.map)
    with pytest.raises(InputError, match="gated query"):
        find_hole(replace(query, keypoints=None, image_size=None), view.pose, view.camera, room.map)
