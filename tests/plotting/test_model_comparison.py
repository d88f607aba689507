"""Models side by side: each in the frame of the first, or said not to be aligned."""

from dataclasses import replace

import numpy as np
import pytest

from featveil.core import InputError, Pose
from featveil.geometry.models import SparseModel, empty_model
from featveil.metrics import move_points
from featveil.plotting.model_comparison import draw_models
from featveil.plotting.pictures import Picture
from rooms import Room

SIZE = (200, 150)


def moved(model: SparseModel) -> SparseModel:
    """The same map in a world of another unit and origin."""
    shift = np.array([5.0, -3.0, 2.0])
    places = {name: 4 * view.pose.centre + shift for name, view in model.views.items()}
    views = {
        name: replace(view, pose=Pose(view.pose.rotation, -view.pose.rotation @ places[name]))
        for name, view in model.views.items()
    }
    return replace(model, views=views, points=move_points(model.points, (4.0, np.eye(3), shift)))


def halves(picture: Picture) -> tuple[Picture, Picture]:
    """Both models, without the captions below."""
    width, height = SIZE
    return picture[:height, :width], picture[:height, -width:]


def drawn(picture: Picture) -> int:
    """Pixels that are not paper."""
    return int((picture != picture[0, 0]).any(axis=2).sum())


def test_a_moved_model_looks_the_same(room: Room) -> None:
    one, two = halves(draw_models({"raw": room.map, "private": moved(room.map)}, SIZE))
    assert drawn(one) > 500
    assert np.abs(one.astype(int) - two).mean() < 1


def test_one_model_alone(room: Room) -> None:
    assert draw_models({"raw": room.map}, SIZE).shape[1] == SIZE[0]


def test_a_model_that_cannot_be_aligned_is_empty(room: Room) -> None:
    two_views = replace(room.map, views=dict(list(room.map.views.items())[:2]))
    strange = replace(room.map, views={f"other/{name}": view for name, view in room.map.views.items()})
    for other in (two_views, strange, empty_model()):
        one, two = halves(draw_models({"raw": room.map, "private": other}, SIZE))
        assert drawn(one) > 500 and drawn(two) == 0


def test_the_first_needs_points(room: Room) -> None:
    with pytest.raises(InputError, match="points and cameras"):
        draw_models({"raw": empty_model(), "private": room.map}, SIZE)
