"""Other views of a photograph that are known exactly: a random homography, another light, sharpness and noise."""

from dataclasses import dataclass

import cv2
import numpy as np

from featveil.core import Keypoints
from featveil.core.arrays import Float64
from featveil.extractors.images import Image

_TURN = 45.0  # degrees
_GROWTH = 0.6  # octaves
_TILT = 1.0  # octaves of foreshortening: a plane seen at up to 60 degrees
_NEARNESS = 0.08  # of a side, by which each corner moves
_CONTRAST, _BRIGHTNESS, _GAMMA = (0.6, 1.4), (-35.0, 35.0), (-0.6, 0.6)  # gamma in octaves
_BLUR, _NOISE = 1.2, 7.0  # sigmas: pixels, grey levels
_TO_OURS = np.array([[1, 0, 0.5], [0, 1, 0.5], [0, 0, 1]])  # OpenCV has the centre of the first pixel at (0, 0)


@dataclass(frozen=True, eq=False)
class RandomView:
    """A uint8 image as large as the photograph; `homography` (3, 3) takes keypoints of the photograph there."""

    image: Image
    homography: Float64


def random_view(image: Image, rng: np.random.Generator) -> RandomView:
    """The photograph (h, w) or (h, w, 3) from another place and in another light."""
    height, width = image.shape[:2]
    homography = random_homography((width, height), rng)
    smallest = float(np.sqrt(abs(np.linalg.det(jacobians(homography, np.array([[width / 2, height / 2]]))[0]))))
    if smallest < 1:  # as a lens would, before it is sampled more coarsely
        image = np.asarray(cv2.GaussianBlur(image, (0, 0), max(0.5 * np.sqrt(smallest**-2 - 1), 0.1)), np.uint8)
    matrix = np.linalg.inv(_TO_OURS) @ homography @ _TO_OURS
    warped = cv2.warpPerspective(image, matrix, (width, height), borderMode=cv2.BORDER_REFLECT_101)
    return RandomView(change_light(np.asarray(warped, np.uint8), rng), homography)


def random_homography(image_size: tuple[int, int], rng: np.random.Generator) -> Float64:
    """For `Keypoints.xy`: about the middle a turn of up to 45 degrees, a growth of up to 0.6 octaves and a tilt."""
    sides = np.array(image_size, np.float64)
    corners = np.array([[0, 0], [1, 0], [1, 1], [0, 1]]) * sides
    growth, tilt = 2 ** rng.uniform(-_GROWTH, _GROWTH), 2 ** rng.uniform(0, _TILT)
    turn, along = _rotation(np.deg2rad(rng.uniform(-_TURN, _TURN))), _rotation(rng.uniform(0, np.pi))
    seen = growth * turn @ along.T @ np.diag([1, 1 / tilt]) @ along
    moved = (corners - sides / 2) @ seen.T + sides / 2 + rng.uniform(-_NEARNESS, _NEARNESS, (4, 2)) * sides
    return np.asarray(cv2.getPerspectiveTransform(corners.astype(np.float32), moved.astype(np.float32)), np.float64)


def _rotation(angle: float) -> Float64:
    return np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])


def change_light(image: Image, rng: np.random.Generator) -> Image:
    """Another gamma, contrast and brightness, then blur and noise, all drawn anew."""
    levels = np.arange(256) / 255
    curve = 255 * levels ** (2 ** rng.uniform(*_GAMMA))
    curve = (curve - 127.5) * rng.uniform(*_CONTRAST) + 127.5 + rng.uniform(*_BRIGHTNESS)
    changed = curve.astype(np.float32)[image]
    blur, noise = rng.uniform(0, _BLUR), rng.uniform(0, _NOISE)
    if blur > 0.3:
        changed = np.asarray(cv2.GaussianBlur(changed, (0, 0), blur), np.float32)
    changed = changed + noise * rng.standard_normal(changed.shape, dtype=np.float32)
    return np.asarray(np.clip(np.rint(changed), 0, 255), np.uint8)


def project(keypoints: Keypoints, homography: Float64) -> Keypoints:
    """Where a homography takes keypoints, how large they are there and which way they point."""
    assert keypoints.scale is not None and keypoints.orientation is not None
    xy = keypoints.xy.astype(np.float64)
    local = jacobians(homography, xy)
    angle = np.deg2rad(keypoints.orientation.astype(np.float64))
    along = np.einsum("nij,nj->ni", local, np.stack([np.cos(angle), np.sin(angle)], axis=1))
    scale = keypoints.scale * np.sqrt(np.abs(np.linalg.det(local)))
    orientation = np.rad2deg(np.arctan2(along[:, 1], along[:, 0])) % 360
    return Keypoints(*(np.asarray(one, np.float32) for one in (move(homography, xy), scale, orientation)))


def move(homography: Float64, xy: Float64) -> Float64:
    """Points (n, 2) moved by a homography (3, 3)."""
    moved = np.column_stack([xy, np.ones(len(xy))]) @ homography.T
    return np.asarray(moved[:, :2] / moved[:, 2:], np.float64)


def jacobians(homography: Float64, xy: Float64) -> Float64:
    """What a homography does next to each point (n, 2), to first order: (n, 2, 2)."""
    moved = np.column_stack([xy, np.ones(len(xy))]) @ homography.T
    target = moved[:, :2] / moved[:, 2:]
    above = homography[None, :2, :2] - target[:, :, None] * homography[None, 2:, :2]
    return np.asarray(above / moved[:, 2, None, None], np.float64)
