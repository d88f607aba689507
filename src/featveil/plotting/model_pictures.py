"""A sparse model -> a picture: points shaded by depth and cameras as small pyramids, by OpenCV alone.

Points take no colour from images: a coloured cloud shows the scene, and a private map has no images to colour it from.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray

from featveil.core import InputError
from featveil.core.arrays import Float64, floats
from featveil.core.cameras import Pose
from featveil.plotting.pictures import Color, Picture

_PAPER: Color = (24, 27, 34)
_INK: Color = (226, 230, 236)
_CAMERA: Color = (255, 178, 84)
_SHADES = ((250, 240, 190), (112, 196, 178), (52, 96, 140))  # of points: near, middle, far
_GAP = 8
_MARGIN = 0.94  # of the picture that the model may fill
_OUTLIERS = (2.0, 98.0)  # percentiles along each axis; what lies beyond does not decide the view
_FIELD = np.tan(np.radians(19.0))  # of half the longer side
_RAISED = (24.0, 62.0)  # degrees above the cameras: when all look the same way, when they look all around
_CORNERS = np.array([[0, 0, 0], [-0.6, -0.4, 1], [0.6, -0.4, 1], [0.6, 0.4, 1], [-0.6, 0.4, 1]])
_EDGES = ((0, 1), (0, 2), (0, 3), (0, 4), (1, 2), (2, 3), (3, 4), (4, 1))
_MOST_POINTS = 100_000  # more of them cover each other
_FINER = 2  # drawn larger and shrunk: OpenCV's smallest discs are crosses
_FRACTION_BITS = 4  # of OpenCV's fixed-point pixels


@dataclass(frozen=True, eq=False)
class View:
    """Where a model is looked at from: `pose` of the eye and `reach`, the tangents of half the field (across, down).

    `depths` (nearest, farthest) of the points and `camera_size` in the model's unit keep pictures comparable.
    """

    pose: Pose
    reach: tuple[float, float]
    depths: tuple[float, float]
    camera_size: float


def choose_view(points: Float64, poses: Mapping[str, Pose], size: tuple[int, int] = (900, 600)) -> View:
    """A view of `points` (n, 3) from behind and above the cameras, for a picture of `size` (width, height).

    All cameras and nearly all points fit; outliers of either do not count. To compare two models, align one with the
    other and draw both from one view. Raises InputError without points or without cameras.
    """
    points = floats("points", points, (None, 3), np.float64)
    if len(points) == 0 or not poses:
        raise InputError("a view is chosen from points and cameras: this model lacks one of them")
    rotation = _looking(list(poses.values()))
    places = points @ rotation.T
    low, high = np.percentile(places, _OUTLIERS, axis=0)
    inside = places[((places >= low) & (places <= high)).all(axis=1)]
    inside = inside if len(inside) else np.median(places, axis=0, keepdims=True)
    cameras = _without_strays(np.array([pose.centre for pose in poses.values()]))
    camera_size = _camera_size(cameras, inside)
    standing = (pose for pose in poses.values() if (pose.centre == cameras).all(axis=1).any())
    corners = np.concatenate([_pyramid(pose, camera_size) for pose in standing]) @ rotation.T
    reach = (_FIELD * size[0] / max(size), _FIELD * size[1] / max(size))
    eye = _eye(np.concatenate([inside, corners]), reach)
    nearest, farthest = np.percentile(places[:, 2] - eye[2], _OUTLIERS)
    return View(Pose(rotation, -eye), reach, (float(nearest), float(farthest)), camera_size)


def draw_model(
    points: Float64,
    poses: Mapping[str, Pose],
    size: tuple[int, int] = (900, 600),
    caption: str = "",
    view: View | None = None,
) -> Picture:
    """uint8 RGB of `size` (width, height): near points (n, 3) light, far ones dark, cameras in amber; a caption below.

    Without a `view` one is chosen for this model; with one, a model that failed and is empty can be drawn too.
    """
    points = floats("points", points, (None, 3), np.float64)
    view = choose_view(points, poses, size) if view is None else view
    canvas = np.full((_FINER * size[1], _FINER * size[0], 3), _PAPER, np.uint8)
    _draw_points(canvas, points, view)
    for pose in poses.values():
        _draw_camera(canvas, pose, view)
    canvas = np.asarray(cv2.resize(canvas, size, interpolation=cv2.INTER_AREA), np.uint8)
    return _captioned(canvas, caption, 1.0) if caption else canvas


def side_by_side(pictures: Sequence[Picture], captions: Sequence[str]) -> Picture:
    """Pictures of one height beside each other, each over its caption, which stays readable when all is shown small.

    Raises InputError when the heights differ or there is not one caption for each picture.
    """
    if not pictures or len(pictures) != len(captions) or len({len(picture) for picture in pictures}) != 1:
        raise InputError("expected pictures of one height, at least one, and a caption for each")
    shown = [_captioned(picture, caption, 1.5) for picture, caption in zip(pictures, captions, strict=True)]
    gap = np.full((len(shown[0]), _GAP, 3), 255, np.uint8)
    return np.hstack([part for picture in shown for part in (gap, picture)][1:])


def _looking(poses: Sequence[Pose]) -> Float64:
    """The rotation of an eye that looks where the cameras do on average, from above them."""
    down = _unit(np.sum([pose.rotation[1] for pose in poses], axis=0), poses[0].rotation[1])
    ahead = np.mean([pose.rotation[2] for pose in poses], axis=0)
    agreement = min(float(np.linalg.norm(ahead)), 1.0)
    level = _unit(ahead - (ahead @ down) * down, _across(down, poses[0].rotation[0]))
    raised = np.radians(_RAISED[1] + (_RAISED[0] - _RAISED[1]) * agreement)
    forward = np.cos(raised) * level + np.sin(raised) * down
    right = np.cross(down, level)
    return np.stack([right, np.cross(forward, right), forward])


def _across(axis: Float64, direction: Float64) -> Float64:
    """Some unit vector at a right angle to `axis`, for directions that cancel out."""
    left = np.cross(direction, axis)
    return _unit(left, np.cross(np.roll(direction, 1), axis))


def _unit(vector: Float64, otherwise: Float64) -> Float64:
    length = float(np.linalg.norm(vector))
    return vector / length if length > 1e-6 else otherwise / np.linalg.norm(otherwise)


def _without_strays(centres: Float64) -> Float64:
    """Camera centres without those that a bad registration put far away from the others."""
    away = np.linalg.norm(centres - np.median(centres, axis=0), axis=1)
    return np.asarray(centres[away <= 6 * np.median(away)])


def _camera_size(centres: Float64, points: Float64) -> float:
    """Half of what lies between neighbouring cameras, but neither tiny nor huge in the picture."""
    extent = float(np.ptp(np.concatenate([centres, points]), axis=0).max()) or 1.0
    apart = np.linalg.norm(centres[:, None] - centres[None], axis=2)
    between = np.sort(apart, axis=1)[:, 1] if len(centres) > 1 else np.array([extent])
    return float(np.clip(0.5 * np.median(between), 0.025 * extent, 0.06 * extent))


def _pyramid(pose: Pose, size: float) -> Float64:
    """Apex and the four corners of a camera (5, 3) in the world."""
    return np.asarray((size * _CORNERS - pose.translation) @ pose.rotation)


def _eye(places: Float64, reach: tuple[float, float]) -> Float64:
    """The nearest eye (3,) that sees all `places` (n, 3), all in axes along the view.

    A place x is seen at a depth z when |x - eye| <= reach (z - eye depth): the tightest of these bounds on either side
    meet in the eye, and the axis that needs more distance decides. On the other axis the places are centred.
    """
    depth = np.inf
    for axis, tangent in enumerate(reach):
        slope = _MARGIN * tangent
        over = (places[:, axis] - slope * places[:, 2]).max()
        under = (-places[:, axis] - slope * places[:, 2]).max()
        depth = min(depth, -(over + under) / (2 * slope))
    # No nearer than the nearest place, or a single one would be looked at from inside.
    depth = min(depth, places[:, 2].min() - 1e-3 * max(1.0, np.ptp(places[:, 2])))
    return np.array([*(_middle(places[:, axis], places[:, 2] - depth) for axis in range(2)), depth])


def _middle(along: Float64, depths: Float64) -> float:
    """Where to stand so that the outermost places are seen equally far out: Newton steps on a convex bound."""
    middle = float(np.median(along))
    for _ in range(8):
        tangents = (along - middle) / depths
        ends = [tangents.argmin(), tangents.argmax()]
        middle += float(tangents[ends].sum() / (1 / depths[ends]).sum())
    return middle


def _seen(places: Float64, view: View, canvas: Picture) -> tuple[Float64, Float64]:
    """Pixels (n, 2) of `places` in the world, and their depths (n,)."""
    at = places @ view.pose.rotation.T + view.pose.translation
    height, width = canvas.shape[:2]
    focal = min(width / view.reach[0], height / view.reach[1]) / 2
    depths = np.maximum(at[:, 2], 1e-9)
    return focal * at[:, :2] / depths[:, None] + np.array([width / 2, height / 2]), at[:, 2]


def _draw_points(canvas: Picture, points: Float64, view: View) -> None:
    if len(points) > _MOST_POINTS:
        points = points[np.linspace(0, len(points) - 1, _MOST_POINTS).astype(np.int64)]
    xy, depths = _seen(points, view, canvas)
    nearest, farthest = view.depths
    span = max(farthest - nearest, 1e-9 * abs(farthest), 1e-12)
    # A point between the eye and the model would be in the way; one far behind it is a wrong match.
    shown = (depths > nearest - span) & (depths < farthest + span) & _inside(xy, canvas)
    order = np.flatnonzero(shown)[np.argsort(-depths[shown])]
    share = np.clip((depths[order] - nearest) / span, 0, 1)
    colors = np.stack([np.interp(share, (0, 0.5, 1), band) for band in zip(*_SHADES, strict=True)], axis=1)
    radius = round(canvas.shape[1] / 900 * 1.8 * 2**_FRACTION_BITS)
    for (x, y), color in zip(_fixed(xy[order]), colors.tolist(), strict=True):
        cv2.circle(canvas, (x, y), radius, color, -1, cv2.LINE_AA, _FRACTION_BITS)


def _draw_camera(canvas: Picture, pose: Pose, view: View) -> None:
    xy, depths = _seen(_pyramid(pose, view.camera_size), view, canvas)
    if depths.min() <= 0 or not _inside(xy, canvas).any():
        return
    corners = _fixed(xy)
    over = canvas.copy()
    cv2.fillConvexPoly(over, corners[1:], _CAMERA, cv2.LINE_AA, _FRACTION_BITS)
    canvas[:] = cv2.addWeighted(over, 0.3, canvas, 0.7, 0)
    for start, end in _EDGES:
        cv2.line(canvas, corners[start].tolist(), corners[end].tolist(), _CAMERA, _FINER, cv2.LINE_AA, _FRACTION_BITS)


def _inside(xy: Float64, canvas: Picture) -> NDArray[np.bool_]:
    return np.asarray(((xy >= 0) & (xy < [canvas.shape[1], canvas.shape[0]])).all(axis=1))


def _fixed(xy: Float64) -> NDArray[np.int32]:
    """OpenCV's fixed-point pixels, the centre of the first one at 0."""
    return np.asarray(np.rint(np.clip(xy - 0.5, -1e6, 1e6) * 2**_FRACTION_BITS), np.int32)


def _captioned(canvas: Picture, caption: str, scale: float) -> Picture:
    band = np.full((round(38 * scale), canvas.shape[1], 3), _PAPER, np.uint8)
    size, weight = 0.62 * scale, round(scale)
    width = cv2.getTextSize(caption, cv2.FONT_HERSHEY_SIMPLEX, size, weight)[0][0]
    size *= min(1.0, (canvas.shape[1] - 20) / max(width, 1))
    place = (10, round(25 * scale))
    cv2.putText(band, caption, place, cv2.FONT_HERSHEY_SIMPLEX, size, _INK, weight, cv2.LINE_AA)
    return np.vstack([canvas, band])
