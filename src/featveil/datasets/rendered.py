"""A room made by code alone: two walls and a floor, seen by cameras whose places are known exactly.

The world is in metres with z up, and the corner of the room is its origin: the walls are x = 0 and y = 0, the floor is
z = 0. For tests and for showing what a map looks like; numbers measured on it say nothing about photographs.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np

from featveil.core import Camera, InputError, Pose
from featveil.core.arrays import Float64
from featveil.core.files import make_folder, replacing
from featveil.datasets.scenes import MapScene
from featveil.datasets.textures import Picture, draw_books, draw_posters, draw_terrazzo, shade

NAME = "rendered-room"

_SIDE, _HEIGHT = 3.6, 2.7  # of the room, in metres
_DOTS = 320  # texture pixels in a metre
_SAMPLES = 3  # a pixel is the mean of this many samples squared
_ARC = 60.0  # degrees around the corner that the cameras spread over
_STEP = 6.0  # degrees between neighbours at most, so that few views still overlap
_SMALLEST, _LARGEST = 32, 4096
_MOST_VIEWS = 100


@dataclass(frozen=True, eq=False)
class RenderedScene:
    """Views by name: uint8 RGB images (h, w, 3), their PINHOLE cameras and true poses, in metres."""

    images: Mapping[str, Picture]
    cameras: Mapping[str, Camera]
    poses: Mapping[str, Pose]

    def write(self, folder: str | Path) -> MapScene:
        """Write the images as PNG files into `folder`, made if missing, and return the scene that they are."""
        folder = Path(folder)
        make_folder(folder)
        paths = {name: folder / name for name in self.images}
        for name, path in paths.items():
            encoded = cv2.imencode(".png", cv2.cvtColor(self.images[name], cv2.COLOR_RGB2BGR))[1]
            with replacing(path) as temporary:
                temporary.write_bytes(encoded.tobytes())
        return MapScene(NAME, paths, self.cameras, self.poses)


def render_scene(views: int = 12, size: tuple[int, int] = (480, 360), seed: int = 0) -> RenderedScene:
    """The room from `views` places, as images of `size` (width, height) pixels; the same `seed` gives the same images.

    Raises InputError when there are fewer than two views or a side is not 32 to 4096 pixels.
    """
    if not 2 <= views <= _MOST_VIEWS:
        raise InputError(f"views must be 2 to {_MOST_VIEWS}, got {views}")
    if not all(_SMALLEST <= side <= _LARGEST for side in size):
        raise InputError(f"an image side must be {_SMALLEST} to {_LARGEST} pixels, got {size}")
    rng = np.random.default_rng(seed)
    surfaces = _surfaces(rng)
    width, height = size
    focal = 0.9 * max(size)
    camera = Camera("PINHOLE", width, height, (focal, focal, width / 2, height / 2))
    names = [f"view{number:02d}.png" for number in range(views)]
    poses = dict(zip(names, _poses(views, rng), strict=True))
    images = {name: _render(surfaces, camera, pose) for name, pose in poses.items()}
    return RenderedScene(images, dict.fromkeys(names, camera), poses)


def _surfaces(rng: np.random.Generator) -> list[tuple[Picture, Float64]]:
    """The textures of the planes x = 0, y = 0, z = 0, and for each the matrix (3, 3) from its pixels to the world.

    Texture pixels count from the corner of the texture, so the centre of the first is (0.5, 0.5).
    """
    side, height = round(_SIDE * _DOTS), round(_HEIGHT * _DOTS)
    dot = 1 / _DOTS
    right = np.array([[0, 0, 0], [dot, 0, 0], [0, -dot, _HEIGHT]])
    left = np.array([[-dot, 0, _SIDE], [0, 0, 0], [0, -dot, _HEIGHT]])
    floor = np.array([[-dot, 0, _SIDE], [0, dot, 0], [0, 0, 0]])
    posters, books, terrazzo = (
        draw((side, extent), rng)
        for draw, extent in ((draw_posters, height), (draw_books, height), (draw_terrazzo, side))
    )
    painted = []
    for texture, to_world, light in ((posters, right, 1.0), (books, left, 0.92), (terrazzo, floor, 0.85)):
        painted.append((shade(texture, to_world, light), to_world))
    return painted


def _poses(count: int, rng: np.random.Generator) -> list[Pose]:
    """Cameras on an arc around the corner, looking at it; distance, height, aim and roll vary a little."""
    step = min(_STEP, _ARC / (count - 1))
    azimuths = np.radians(45 + step * (np.arange(count) - (count - 1) / 2))
    poses = []
    for number, azimuth in enumerate(azimuths):
        distance, height = rng.uniform(3.0, 3.4), (1.25, 1.6, 1.4)[number % 3] + rng.uniform(-0.1, 0.1)
        centre = np.array([distance * np.cos(azimuth), distance * np.sin(azimuth), height])
        aim = np.array([0.5, 0.5, 0.75]) + rng.uniform(-0.15, 0.15, 3)
        poses.append(_looking(centre, aim, roll=np.radians(rng.uniform(-4, 4))))
    return poses


def _looking(centre: Float64, aim: Float64, roll: float) -> Pose:
    """A camera at `centre` (3,) that has `aim` (3,) in the middle of its image."""
    forward = (aim - centre) / np.linalg.norm(aim - centre)
    right = np.cross(forward, [0, 0, 1])
    right /= np.linalg.norm(right)
    down = np.cross(forward, right)
    turned = np.cos(roll) * right + np.sin(roll) * down
    rotation = np.array([turned, np.cross(forward, turned), forward])
    return Pose(rotation, -rotation @ centre)


def _render(surfaces: list[tuple[Picture, Float64]], camera: Camera, pose: Pose) -> Picture:
    """What a camera inside the room sees."""
    focal_x, focal_y, centre_x, centre_y = camera.parameters
    intrinsics = np.array([[focal_x, 0, centre_x], [0, focal_y, centre_y], [0, 0, 1]])
    width, height = camera.width * _SAMPLES, camera.height * _SAMPLES
    to_pixels = np.array([[1, 0, 0.5], [0, 1, 0.5], [0, 0, _SAMPLES]]) / _SAMPLES  # from indices of samples
    directions = pose.rotation.T @ np.linalg.inv(intrinsics) @ to_pixels
    # A ray meets plane i at the depth -centre[i] / direction[i]; the inverse is linear in the pixel, the largest wins.
    columns, rows = np.arange(width, dtype=np.float64), np.arange(height, dtype=np.float64)[:, None]
    nearness = [-(a * columns + b * rows + c) / place for (a, b, c), place in zip(directions, pose.centre, strict=True)]
    nearest = np.argmax(nearness, axis=0)
    samples = np.zeros((height, width, 3), np.uint8)
    for number, (texture, to_world) in enumerate(surfaces):
        to_camera = pose.rotation @ to_world + np.outer(pose.translation, [0, 0, 1])
        to_indices = np.array([[1, 0, -0.5], [0, 1, -0.5], [0, 0, 1]])
        back = to_indices @ np.linalg.inv(intrinsics @ to_camera) @ to_pixels
        seen = cv2.warpPerspective(texture, back, (width, height), flags=cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP)
        cv2.copyTo(seen, (nearest == number).astype(np.uint8), samples)
    return np.asarray(cv2.resize(samples, (camera.width, camera.height), interpolation=cv2.INTER_AREA), np.uint8)
