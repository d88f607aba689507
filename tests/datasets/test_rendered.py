"""The rendered room: its pixels are where its cameras say, and it can be matched."""

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from featveil.core import InputError, Pose
from featveil.core.arrays import Float64
from featveil.datasets import RenderedScene, render_scene, rendered
from featveil.datasets.textures import Picture
from featveil.extractors import extract, read_image
from featveil.matching import match
from posed_scenes import on_surfaces, project

DOTS, SIDE, HEIGHT = 320, 3.6, 2.7


@pytest.fixture(scope="module")
def room() -> RenderedScene:
    return render_scene()


@pytest.fixture(scope="module")
def small() -> RenderedScene:
    return render_scene(3, (64, 48), seed=3)


def test_names_sizes_and_cameras(room: RenderedScene) -> None:
    assert list(room.images) == list(room.cameras) == list(room.poses) == [f"view{i:02d}.png" for i in range(12)]
    assert all(image.shape == (360, 480, 3) and image.dtype == np.uint8 for image in room.images.values())
    assert all(camera.model == "PINHOLE" for camera in room.cameras.values())


def test_matched_features_agree_with_the_true_poses(room: RenderedScene) -> None:
    features = {name: extract(image, max_features=800) for name, image in room.images.items()}
    assert min(map(len, features.values())) >= 600
    errors = []
    for first, second in pairwise(features):
        xy = [features[name].keypoints.xy.astype(np.float64) for name in (first, second)]  # type: ignore[union-attr]
        rows, columns = match(features[first], features[second], ratio=0.8).indices.T
        surface = on_surfaces(xy[0][rows], room.cameras[first], room.poses[first])
        there = project(surface, room.cameras[second], room.poses[second])
        off = np.linalg.norm(there - xy[1][columns], axis=1)
        assert len(off) >= 200, (first, second)
        assert (off < 2).mean() > 0.9, (first, second)
        errors.append(np.median(off))
    assert max(errors) < 0.5
    assert np.mean(errors) < 0.25


def _dots(size: tuple[int, int], rng: np.random.Generator) -> Picture:
    """Soft white dots on black, a grid of centres 40 pixels apart beginning at (30.3, 30.3) from the corner."""
    across, down = ((np.arange(side) + 0.5 - 30.3 + 20) % 40 - 20 for side in size)
    grey = 255 * np.exp(-(across[None, :] ** 2 + down[:, None] ** 2) / (2 * 1.5**2))
    return np.repeat(np.rint(grey).astype(np.uint8)[:, :, None], 3, axis=2)


def _dot_places(wall: str) -> Float64:
    """Where these dots are in the world, away from the other planes, where one would be cut."""
    across = np.arange(30.3, SIDE * DOTS, 40) / DOTS
    down = np.arange(30.3, (SIDE if wall == "floor" else HEIGHT) * DOTS, 40) / DOTS
    a, b = (axis.ravel() for axis in np.meshgrid(across, down))
    nothing = np.zeros_like(a)
    places = np.column_stack(
        {
            "right": [nothing, a, HEIGHT - b],
            "left": [SIDE - a, nothing, HEIGHT - b],
            "floor": [SIDE - a, b, nothing],
        }[wall]
    )
    return np.asarray(places[(places > 0.15).sum(axis=1) == 2])


def _centroid(image: Picture, place: Float64, reach: int = 7) -> Float64:
    """The centre of the brightness around a place, the centre of the first pixel being (0.5, 0.5)."""
    left, top = (int(axis) - reach for axis in place)
    patch = image[top : top + 2 * reach + 1, left : left + 2 * reach + 1, 0].astype(np.float64)
    rows, columns = np.mgrid[: len(patch), : len(patch)]
    centre = np.array([(patch * columns).sum(), (patch * rows).sum()]) / patch.sum()
    return np.asarray(centre + np.array([left + 0.5, top + 0.5]))


def test_a_point_of_a_plane_lands_where_the_camera_says(monkeypatch: pytest.MonkeyPatch) -> None:
    for function in ("draw_posters", "draw_books", "draw_terrazzo"):
        monkeypatch.setattr(rendered, function, _dots)
    monkeypatch.setattr(rendered, "shade", lambda picture, to_world, light: picture)
    scene = render_scene(views=2, size=(960, 720))
    for name, image in scene.images.items():
        for wall in ("right", "left", "floor"):
            places = project(_dot_places(wall), scene.cameras[name], scene.poses[name])
            inside = places[((places > 10) & (places < np.array([950, 710]))).all(axis=1)]
            assert len(inside) > 30
            errors = [np.linalg.norm(_centroid(image, place) - place) for place in inside]
            assert np.median(errors) < 0.05, (name, wall)
            assert np.max(errors) < 0.1, (name, wall)


def test_every_pixel_shows_a_surface(room: RenderedScene) -> None:
    border = np.array([[x, y] for x in np.linspace(0, 480, 9) for y in np.linspace(0, 360, 7)])
    for name, pose in room.poses.items():
        points = on_surfaces(border, room.cameras[name], pose)
        assert (points >= -1e-9).all(), name
        assert (points <= np.array([SIDE, SIDE, HEIGHT])).all(), name


def test_the_seed_decides(small: RenderedScene) -> None:
    again, other = (render_scene(3, (64, 48), seed) for seed in (3, 4))
    for name, image in small.images.items():
        assert np.array_equal(image, again.images[name])
        assert not np.array_equal(image, other.images[name])
        assert np.array_equal(small.poses[name].translation, again.poses[name].translation)


def test_few_views_stand_close_together(small: RenderedScene) -> None:
    def azimuth(pose: Pose) -> float:
        return float(np.degrees(np.arctan2(pose.centre[1], pose.centre[0])))

    turns = np.diff([azimuth(pose) for pose in small.poses.values()])
    np.testing.assert_allclose(turns, 6)


def test_writing_and_reading_back(tmp_path: Path, small: RenderedScene) -> None:
    written = small.write(tmp_path / "new" / "folder")
    assert written.name == "rendered-room"
    assert sorted(path.name for path in (tmp_path / "new" / "folder").iterdir()) == list(small.images)
    for name, path in written.images.items():
        assert np.array_equal(read_image(path), small.images[name])
    assert written.poses == small.poses
    assert written.cameras == small.cameras


@pytest.mark.parametrize(
    ("views", "size"), [(1, (64, 48)), (0, (64, 48)), (101, (64, 48)), (2, (31, 48)), (2, (64, 5000))]
)
def test_bad_requests(views: int, size: tuple[int, int]) -> None:
    with pytest.raises(InputError, match=r"must be (2|32) to"):
        render_scene(views, size)


def test_a_folder_that_is_a_file(tmp_path: Path, small: RenderedScene) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot make folder"):
        small.write(tmp_path / "file")
