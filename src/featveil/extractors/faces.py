"""Picture -> faces -> Features: dlib's frontal face detector (HOG) and landmarks (Kazemi and Sullivan, CVPR 2014).

These are raw templates: they name the person, and a face can be rebuilt from them. Privatize them before they leave
the device. The landmark model learned from iBUG 300-W, whose licence excludes commercial use.
"""

import importlib.util
import threading
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

import cv2
import numpy as np

from featveil.core import Features, InputError, MissingExtraError, Points
from featveil.core.arrays import Float32, Float64, floats
from featveil.extractors.images import Image, check_image, read_image

if TYPE_CHECKING:
    from featveil.extractors.face_networks import FaceNetwork

Box = tuple[float, float, float, float]
Which = Literal["one", "largest", "all"]

SIDE = 112
# Where ArcFace (Deng et al., CVPR 2019) wants the landmarks in a picture of 112 x 112.
ARCFACE = np.array([[38.2946, 51.6963], [73.5318, 51.5014], [56.0252, 71.7366], [41.5493, 92.3655], [70.7299, 92.2041]])

_LONGEST = 1600  # pixels a side of what is searched for faces
# Folds of cloth score just above 0. Beside a sure face they are dropped; a weak face that is alone is kept.
_WEAK = 0.1
_detecting = threading.Lock()  # the detector keeps the picture within itself, and lets other threads run meanwhile


@dataclass(frozen=True, eq=False)
class Face:
    """Where a face is: `box` (left, top, width, height) in pixels, and five `landmarks` (5, 2).

    Landmarks are the left and right eye, the tip of the nose, the left and right corner of the mouth, left and right
    as seen in the picture; the centre of the first pixel is (0, 0), as in OpenCV.
    """

    box: Box
    landmarks: Float32 = field(repr=False)

    def __post_init__(self) -> None:
        left, top, width, height = floats("the box of a face", self.box, (4,), np.float64).tolist()
        if min(width, height) <= 0:
            raise InputError(f"the box of a face has a width and height above 0, got {width:g} x {height:g}")
        object.__setattr__(self, "box", (left, top, width, height))
        object.__setattr__(self, "landmarks", floats("the landmarks of a face", self.landmarks, (5, 2)))


def find_faces(image: Image) -> list[Face]:
    """The faces seen from the front in a uint8 image (h, w, 3) or (h, w), largest box first; maybe none.

    Faces of 80 pixels or more are found, in a picture of at most 800 pixels a side those of 40. A picture of more
    than 1600 is searched in a copy of that size. Raises InputError for another array, MissingExtraError without dlib.
    """
    image = _rgb(image)
    return [Face(box, _landmarks(image, box)) for box in _boxes(image)]


def one_face(image: Image, largest: bool = False) -> Face:
    """The only face of an image, or its `largest`. Raises InputError when there is none, or more than one."""
    return _chosen(find_faces(image), "largest" if largest else "one")[0]


def faces_of(image: str | Path | Image, network: "FaceNetwork", which: Which = "one") -> Features:
    """Templates (n, d) of unit norm, without keypoints, of the faces in an image file or a uint8 array.

    "one" and "largest" give one row or raise InputError; "all" gives the largest face first, and n = 0 without faces.
    """
    if which not in get_args(Which):
        raise InputError(f"which must be one of {', '.join(get_args(Which))}, got {which!r}")
    picture = read_image(image) if isinstance(image, str | Path) else check_image(image)
    rows = network.describe(picture, _chosen(find_faces(picture), which))
    return Features(Points(rows), network.kind, image_size=(picture.shape[1], picture.shape[0]))


def align(image: Image, face: Face, template: Float64 = ARCFACE, side: int = SIDE) -> Image:
    """The face as uint8 RGB (side, side, 3), its landmarks as near to `template` (5, 2) as a similarity brings them.

    What lies outside the image is black. Raises InputError for landmarks that are all in one place.
    """
    image, transform = _rgb(image), similarity(face.landmarks, template)
    # Bilinear interpolation alone would skip pixels. OpenCV's halving keeps the centre of the first pixel at (0, 0).
    while np.hypot(*transform[:, 0]) <= 0.5 and max(image.shape[:2]) > 1:
        image, transform = np.asarray(cv2.pyrDown(image), np.uint8), transform * [2, 2, 1]
    try:
        return np.asarray(cv2.warpAffine(image, transform, (side, side), flags=cv2.INTER_LINEAR), np.uint8)
    except cv2.error as error:
        size = f"{image.shape[1]} x {image.shape[0]}"
        raise InputError(f"no face can be cut from an image of {size} pixels: scale it down first") from error


def similarity(source: Float32 | Float64, target: Float64) -> Float64:
    """The turn, scale and shift (2, 3) that brings points (n, 2) nearest to others, by least squares (Umeyama, 1991).

    In the plane that is linear: with points as complex numbers, target = a source + b. Raises InputError for points
    that are all in one place.
    """
    moved, fixed = (np.asarray(points, np.float64) @ np.array([1, 1j]) for points in (source, target))
    spread = moved - moved.mean()
    squared = np.vdot(spread, spread).real
    if not squared > 0:
        raise InputError("the landmarks of a face are all in one place: it cannot be aligned")
    a = np.vdot(spread, fixed - fixed.mean()) / squared
    b = fixed.mean() - a * moved.mean()
    return np.array([[a.real, -a.imag, b.real], [a.imag, a.real, b.imag]])


def import_dlib() -> Any:
    """The module dlib; raises MissingExtraError without it."""
    try:
        import dlib
    except ImportError as error:
        raise _missing() from error
    return dlib


def model_file(name: str) -> Path:
    """A file of face_recognition_models; raises MissingExtraError without it.

    That package is found, not imported: it imports pkg_resources, which setuptools no longer has.
    """
    spec = importlib.util.find_spec("face_recognition_models")
    folders = (spec and spec.submodule_search_locations) or []
    for path in (Path(folder) / "models" / name for folder in folders):
        if path.is_file():
            return path
    raise _missing()


def _missing() -> MissingExtraError:
    return MissingExtraError("dlib-bin and face_recognition_models", "faces")


def _chosen(faces: list[Face], which: Which) -> list[Face]:
    if which == "all":
        return faces
    if not faces:
        raise InputError("no face was found in the picture: use a sharp one that shows a larger face from the front")
    if which == "one" and len(faces) > 1:
        advice = "crop the picture, or take the largest with --largest (featveil face extract: or all with --all)"
        raise InputError(f"{len(faces)} faces were found: {advice}")
    return faces[:1]


def _rgb(image: Image) -> Image:
    image = check_image(image)
    return np.ascontiguousarray(image if image.ndim == 3 else np.repeat(image[:, :, None], 3, axis=2))


def _boxes(image: Image) -> list[Box]:
    """The boxes of faces, largest first, ties by place so that no run differs."""
    height, width = image.shape[:2]
    shrunk = min(1.0, _LONGEST / max(height, width))
    size = max(1, round(width * shrunk)), max(1, round(height * shrunk))
    searched = cv2.resize(image, size, interpolation=cv2.INTER_AREA) if shrunk < 1 else image
    detector = _detector()
    with _detecting:
        places, scores, _ = detector.run(searched, 0, 0.0)
        if not places and 2 * max(size) <= _LONGEST:
            places, scores, _ = detector.run(searched, 1, 0.0)  # enlarged twice
    across, down = width / size[0], height / size[1]
    boxes = [
        (place.left() * across, place.top() * down, place.width() * across, place.height() * down)
        for place, score in zip(places, scores, strict=True)
        if score >= _WEAK * max(scores)
    ]
    return sorted(boxes, key=lambda box: (-box[2] * box[3], box))


def _landmarks(image: Image, box: Box) -> Float32:
    """The five landmarks (5, 2) of the face in `box`, of the 68 that dlib finds in the full picture."""
    left, top, width, height = box
    edges = (left, top, left + width - 1, top + height - 1)
    shape = _predictor()(image, import_dlib().rectangle(*(round(edge) for edge in edges)))
    points = np.array([(point.x, point.y) for point in shape.parts()], np.float64)
    eyes = points[36:42].mean(axis=0), points[42:48].mean(axis=0)
    return np.stack([*eyes, points[30], points[48], points[54]]).astype(np.float32)


@cache
def _detector() -> Any:
    return import_dlib().get_frontal_face_detector()


@cache
def _predictor() -> Any:
    return import_dlib().shape_predictor(str(model_file("shape_predictor_68_face_landmarks.dat")))
