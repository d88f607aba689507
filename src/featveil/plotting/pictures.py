"""Matches -> a picture: two images side by side with lines between them, by OpenCV alone."""

import base64
from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray

from featveil.core import InputError, Keypoints
from featveil.core.arrays import Float32
from featveil.core.files import replacing

Picture = NDArray[np.uint8]
Mask = NDArray[np.bool_]
Color = tuple[int, int, int]

_GREEN: Color = (46, 204, 113)
_FAINT: Color = (255, 138, 101)
_PAPER: Color = (38, 42, 51)
_DOT: Color = (150, 190, 255)
_GAP = 8
_HEIGHT = 600
_WIDEST = 2400
_MOST_LINES = 160  # more of them hide the images


@dataclass(frozen=True, eq=False)
class Panel:
    """One side of a picture: where its features are, and the uint8 RGB image (h, w, 3) if it is known."""

    xy: Float32
    image: Picture | None = None
    image_size: tuple[int, int] | None = None

    @property
    def size(self) -> tuple[int, int]:
        """(width, height): of the image, as stated, or just large enough for the features."""
        if self.image is not None:
            return self.image.shape[1], self.image.shape[0]
        if self.image_size is not None:
            return self.image_size
        reach = self.xy.max(axis=0) if len(self.xy) else (1, 1)
        return max(1, int(np.ceil(reach[0]))), max(1, int(np.ceil(reach[1])))


def panel(
    keypoints: Keypoints | None, image: Picture | None = None, image_size: tuple[int, int] | None = None
) -> Panel:
    """A side of a picture; raises InputError without keypoints or for an image of another size."""
    if keypoints is None:
        raise InputError("these features have no keypoints, so matches of them cannot be drawn")
    side = Panel(keypoints.xy, image, image_size)
    if image_size is not None and side.size != tuple(image_size):
        raise InputError(
            f"the features are of an image of {image_size[0]} x {image_size[1]} pixels, the image given has"
            f" {side.size[0]} x {side.size[1]}: give the image they were extracted from"
        )
    return side


def draw_matches(a: Panel, b: Panel, pairs: NDArray[np.int64], agree: Mask, caption: str = "") -> Picture:
    """uint8 RGB: both panels at one height, agreeing `pairs` (k, 2) in green, the others faint below them.

    Every match has its two dots; lines are drawn for at most 160 of each sort, evenly chosen.
    """
    left, right, scales = _side_by_side(a, b)
    canvas = np.hstack([left, np.full((left.shape[0], _GAP, 3), 255, np.uint8), right])
    start = a.xy[pairs[:, 0]] * scales[0]
    end = b.xy[pairs[:, 1]] * scales[1] + np.array([left.shape[1] + _GAP, 0])
    for chosen, color, opacity in ((~agree, _FAINT, 0.25), (agree, _GREEN, 0.5)):
        rows = np.flatnonzero(chosen)
        if len(rows) > _MOST_LINES:
            rows = rows[np.linspace(0, len(rows) - 1, _MOST_LINES).astype(np.int64)]
        canvas = _lines(canvas, start[rows], end[rows], color, opacity)
        for x, y in _fixed(np.concatenate([start[chosen], end[chosen]])):
            cv2.circle(canvas, (x, y), 36, color, -1, cv2.LINE_AA, 4)
    return _captioned(canvas, caption) if caption else canvas


def draw_keypoints(side: Panel) -> Picture:
    """uint8 RGB: the positions of all features on an empty sheet, or on the image where it is known."""
    return _drawn(side, min(1.0, _HEIGHT / side.size[1], _WIDEST / side.size[0]), dots=True)


def write_picture(picture: Picture, path: str | Path) -> None:
    """Write uint8 RGB as PNG or JPEG, by the name's ending; raises InputError for another ending."""
    suffix = Path(path).suffix.lower()
    if suffix not in (".png", ".jpg", ".jpeg"):
        raise InputError(f"cannot write a picture as {Path(path).name}: use a name ending in .png or .jpg")
    content = encoded(picture, suffix)
    with replacing(path) as temporary:
        temporary.write_bytes(content)


def encoded(picture: Picture, suffix: str = ".jpg") -> bytes:
    """The bytes of an image file of `suffix`."""
    options = [cv2.IMWRITE_JPEG_QUALITY, 88] if suffix != ".png" else []
    _, content = cv2.imencode(suffix, cv2.cvtColor(picture, cv2.COLOR_RGB2BGR), options)
    return content.tobytes()


@dataclass(frozen=True)
class EmbeddedPicture:
    """What an <img> of a page that loads nothing needs: the picture itself, and its size, so that nothing jumps."""

    src: str
    width: int
    height: int


def embedded(picture: Picture) -> EmbeddedPicture:
    """The picture as a JPEG within the page."""
    content = base64.b64encode(encoded(picture)).decode("ascii")
    return EmbeddedPicture(f"data:image/jpeg;base64,{content}", picture.shape[1], picture.shape[0])


def _side_by_side(a: Panel, b: Panel) -> tuple[Picture, Picture, tuple[float, float]]:
    """Both panels drawn at one height, and their scales."""
    height = min(_HEIGHT, max(a.size[1], b.size[1]))
    shared = height * (a.size[0] / a.size[1] + b.size[0] / b.size[1])
    height = max(1, round(height * min(1.0, _WIDEST / shared)))
    scales = (height / a.size[1], height / b.size[1])
    return _drawn(a, scales[0]), _drawn(b, scales[1]), scales


def _drawn(side: Panel, scale: float, dots: bool = False) -> Picture:
    # The sizes a stranger's file states may be extreme: they must not decide how much memory is taken.
    size = [min(max(1, round(length * scale)), _WIDEST) for length in side.size]
    if side.image is None:
        drawn = np.full((size[1], size[0], 3), _PAPER, np.uint8)
    else:
        way = cv2.INTER_AREA if scale < 1 else cv2.INTER_LINEAR
        drawn = np.asarray(cv2.resize(side.image, size, interpolation=way), np.uint8)
    if side.image is None or dots:
        for x, y in _fixed(side.xy * scale):
            cv2.circle(drawn, (x, y), 24, _DOT, -1, cv2.LINE_AA, 4)
    return drawn


def _lines(canvas: Picture, start: Float32, end: Float32, color: Color, opacity: float) -> Picture:
    if len(start) == 0:
        return canvas
    over = canvas.copy()
    ends = np.stack([_fixed(start), _fixed(end)], axis=1)
    for (x0, y0), (x1, y1) in ends:
        cv2.line(over, (x0, y0), (x1, y1), color, 1, cv2.LINE_AA, 4)
    return np.asarray(cv2.addWeighted(over, opacity, canvas, 1 - opacity, 0), np.uint8)


def _fixed(xy: Float32) -> NDArray[np.int32]:
    """OpenCV's fixed-point pixels: 1/16 px steps, the centre of the first pixel at 0.

    Far outliers, which a stranger's file may hold, are pulled in to what fits its whole numbers.
    """
    return np.asarray(np.rint(np.clip(xy - 0.5, -1e6, 1e6) * 16), np.int32)


def _captioned(canvas: Picture, caption: str) -> Picture:
    band = np.full((38, canvas.shape[1], 3), 255, np.uint8)
    size = 0.62
    width = cv2.getTextSize(caption, cv2.FONT_HERSHEY_SIMPLEX, size, 1)[0][0]
    size *= min(1.0, (canvas.shape[1] - 20) / max(width, 1))
    cv2.putText(band, caption, (10, 25), cv2.FONT_HERSHEY_SIMPLEX, size, (40, 40, 40), 1, cv2.LINE_AA)
    return np.vstack([canvas, band])
