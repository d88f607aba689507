"""Patch sets of a COLMAP model, on the rendered room: what is tracked as one point is one point of the room."""

from dataclasses import replace
from pathlib import Path

import cv2
import numpy as np
import pytest

from featveil.core import InputError
from featveil.datasets import load_phototour
from featveil.extractors import make_describer
from featveil.geometry.models import SparseModel, empty_model
from featveil.metrics import false_positive_rate
from featveil.pipelines.patches_parts.patch_models import build_from_model
from featveil.pipelines.patches_parts.patch_sets import PatchRecipe
from rooms import Room

RECIPE = PatchRecipe(pairs=400, jitter=0)


@pytest.fixture
def images(strecha_room: Path) -> Path:
    return strecha_room / "images"


def test_tracks_are_points(room: Room, images: Path, tmp_path: Path) -> None:
    reports: list[tuple[int, int]] = []
    report = lambda done, total: reports.append((done, total))  # noqa: E731
    made = build_from_model(images, room.map, tmp_path / "a", RECIPE, report=report)
    assert (reports[0], reports[-1], made.images) == ((0, 12), (12, 12), 6)
    assert 50 < made.points <= len(room.map.points) and made.patches > 2.5 * made.points
    found = load_phototour(tmp_path / "a")
    assert found.pairs is not None and found.card["made_from"] == "COLMAP model"
    assert np.bincount(found.points).min() >= 2
    values = make_describer("sift").describe(found.read()).values
    distances = np.linalg.norm(values[found.pairs.first] - values[found.pairs.second], axis=1)
    assert false_positive_rate(distances, found.pairs.match) < 0.05
    build_from_model(str(images), room.map, tmp_path / "b", RECIPE)
    for path in (tmp_path / "a").iterdir():
        assert (tmp_path / "b" / path.name).read_bytes() == path.read_bytes()


def shuffled(model: SparseModel) -> SparseModel:
    """The same model with every view's points mixed up."""
    rng = np.random.default_rng(0)
    views = {}
    for name, view in model.views.items():
        points, tracked = view.points.copy(), np.flatnonzero(view.points >= 0)
        points[tracked] = rng.permutation(points[tracked])
        views[name] = replace(view, points=points)
    return replace(model, views=views)


def test_wrong_tracks_do_not_look_alike(room: Room, images: Path, tmp_path: Path) -> None:
    build_from_model(images, shuffled(room.map), tmp_path / "a", RECIPE)
    found = load_phototour(tmp_path / "a")
    assert found.pairs is not None
    values = make_describer("sift").describe(found.read()).values
    distances = np.linalg.norm(values[found.pairs.first] - values[found.pairs.second], axis=1)
    assert false_positive_rate(distances, found.pairs.match) > 0.7


def test_keypoints_without_a_detection_are_dropped(room: Room, images: Path, tmp_path: Path) -> None:
    whole = build_from_model(images, room.map, tmp_path / "whole", RECIPE)
    name = room.names[0]
    moved = replace(room.map.views[name], xy=room.map.views[name].xy + np.float32(7.3))
    model = replace(room.map, views={**room.map.views, name: moved})
    assert build_from_model(images, model, tmp_path / "part", RECIPE).patches < 0.95 * whole.patches


def test_parts_share_no_point(room: Room, images: Path, tmp_path: Path) -> None:
    counts = {}
    for part in ("all", "train", "test"):
        recipe = replace(RECIPE, part=part, test_share=0.3)
        counts[part] = build_from_model(images, room.map, tmp_path / part, recipe).points
    assert 0.1 * counts["all"] < counts["test"] < 0.5 * counts["all"] < counts["train"]


def test_what_cannot_be_built(room: Room, images: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    with pytest.raises(InputError, match="no registered image"):
        build_from_model(images, empty_model(), out, RECIPE)
    with pytest.raises(InputError, match="6 of 6 photographs of the model are not in"):
        build_from_model(tmp_path, room.map, out, RECIPE)
    (tmp_path / "inner").mkdir()
    outside = {f"../{name}": view for name, view in room.map.views.items()}
    for name in room.names:
        (tmp_path / name).write_bytes((images / name).read_bytes())
    with pytest.raises(InputError, match="are not in"):
        build_from_model(tmp_path / "inner", replace(room.map, views=outside), out, RECIPE)
    cv2.imwrite(str(tmp_path / room.names[1]), np.zeros((100, 100), np.uint8))
    with pytest.raises(InputError, match=r"another size than in the model \(320 x 240\)"):
        build_from_model(tmp_path, room.map, out, RECIPE)
    bare = {name: replace(view, points=np.full_like(view.points, -1)) for name, view in room.map.views.items()}
    with pytest.raises(InputError, match="fewer than two points"):
        build_from_model(images, replace(room.map, views=bare), out, RECIPE)
    assert not out.exists()
