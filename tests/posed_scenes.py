"""Rendered views on disk in the layout of Strecha's scenes, where their pixels are in the room, and any poses."""

import json
from pathlib import Path
from typing import Any

import numpy as np

from featveil.core import Camera, Pose
from featveil.core.arrays import Float64
from featveil.datasets import RenderedScene


def write_strecha(scene: RenderedScene, folder: Path) -> None:
    """Write `images/` and `cameras.json`; the file has the centre of the first pixel at (0, 0)."""
    scene.write(folder / "images")
    (folder / "cameras.json").write_text(
        json.dumps({name: entry(scene.cameras[name], scene.poses[name]) for name in scene.images})
    )


def entry(camera: Camera, pose: Pose) -> dict[str, Any]:
    """One camera of the file."""
    focal_x, focal_y, centre_x, centre_y = camera.parameters
    return {
        "K": [[focal_x, 0, centre_x - 0.5], [0, focal_y, centre_y - 0.5], [0, 0, 1]],
        "R_world_to_cam": pose.rotation.tolist(),
        "t_world_to_cam": pose.translation.tolist(),
        "width": camera.width,
        "height": camera.height,
    }


def matrix(camera: Camera) -> Float64:
    """The calibration matrix (3, 3) of a PINHOLE camera."""
    focal_x, focal_y, centre_x, centre_y = camera.parameters
    return np.array([[focal_x, 0, centre_x], [0, focal_y, centre_y], [0, 0, 1]])


def project(points: Float64, camera: Camera, pose: Pose) -> Float64:
    """Where world points (n, 3) are in the image, (n, 2)."""
    seen = (points @ pose.rotation.T + pose.translation) @ matrix(camera).T
    return np.asarray(seen[:, :2] / seen[:, 2:])


def on_surfaces(pixels: Float64, camera: Camera, pose: Pose) -> Float64:
    """The points (n, 3) of the room's planes x = 0, y = 0, z = 0 that a camera sees at `pixels` (n, 2), one by one."""
    points = []
    for x, y in pixels.tolist():
        ray = pose.rotation.T @ np.linalg.solve(matrix(camera), [x, y, 1])
        depths = [-pose.centre[axis] / ray[axis] for axis in range(3) if ray[axis] < 0]
        points.append(pose.centre + min(depths) * ray)
    return np.array(points)


def random_pose(rng: np.random.Generator) -> Pose:
    """A camera turned in any way, about one unit from the origin."""
    rotation = np.linalg.qr(rng.normal(size=(3, 3)))[0]
    return Pose(rotation * np.sign(np.linalg.det(rotation)), rng.normal(size=3))
