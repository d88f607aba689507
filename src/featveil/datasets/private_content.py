"""Content that no map has: pictures of people, papers and things, to paste into photographs of places.

What an adversary gets back of such content is a leak by any measure; what it gets back of the place may be in its map
anyway. `private_rows` tells the features of the two apart.
"""

from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray

from featveil.core import InputError, Keypoints
from featveil.core.arrays import Float64
from featveil.extractors import image_files, read_image
from featveil.extractors.images import Image, check_image

Mask = NDArray[np.bool_]

BUNDLED = Path(__file__).parent / "data" / "private"
SHARES = (0.04, 0.1, 0.2)  # of the photograph's area that content is pasted at
MARGIN = 6.0  # scales from the centre of a feature to the side of what its descriptor sees

_PLAIN_SCALE = 2.0  # pixels: that of keypoints that do not say theirs
_SMALLEST = 2  # pixels of a side


@dataclass(frozen=True, eq=False)
class Content:
    """A picture, uint8 RGB, and its name: that of its file, without the suffix."""

    name: str
    picture: Image


@dataclass(frozen=True, eq=False)
class Sides:
    """Which features (n,) show pasted content, and which show the photograph; those of the border show both.

    No feature is in `private` and in `mapped`, and one whose window straddles the border is in neither.
    """

    private: Mask
    mapped: Mask


def contents(folder: Path | None = None) -> list[Content]:
    """The images of a folder, or those that come with featveil, by the order of their names.

    Raises InputError for a folder without images, and for one that cannot be read.
    """
    files = image_files(BUNDLED if folder is None else folder)
    return [Content(path.stem, read_image(path)) for path in files]


def paste(image: Image, content: Image, share: float, place: tuple[float, float] = (0.5, 0.5)) -> tuple[Image, Mask]:
    """The image with `content` laid upon it upright, over `share` of its area, and the mask (h, w) of where it is.

    `place` says how far right and down: 0 is the left or upper border, 1 the right or lower one. Content that would be
    wider or higher than the image is made to fit, and takes less than `share`. Nothing hides the seam. Raises
    InputError for a share or a place that cannot be.
    """
    image, content = _coloured(image), _coloured(content)
    if not 0 < share < 1:
        raise InputError(f"content takes a share of the image's area, above 0 and below 1; got {share!r:.40}")
    if len(place) != 2 or not all(0 <= part <= 1 for part in place):
        raise InputError(f"the place of content is two shares from 0 to 1, got {place!r:.80}")
    height, width = image.shape[:2]
    scale = np.sqrt(share * height * width / (content.shape[0] * content.shape[1]))
    scale = min(scale, height / content.shape[0], width / content.shape[1])
    tall, wide = (max(round(side * scale), 1) for side in content.shape[:2])
    if min(tall, wide) < _SMALLEST:
        raise InputError(f"content of {wide} x {tall} pixels shows nothing: choose a larger share")
    laid = cv2.resize(content, (wide, tall), interpolation=cv2.INTER_AREA if scale < 1 else cv2.INTER_CUBIC)
    left, top = round(place[0] * (width - wide)), round(place[1] * (height - tall))
    pasted, mask = image.copy(), np.zeros((height, width), np.bool_)
    region = np.s_[top : top + tall, left : left + wide]
    pasted[region], mask[region] = laid, True
    return pasted, mask


def private_rows(keypoints: Keypoints, mask: Mask, margin: float = MARGIN) -> Sides:
    """Which features show what the mask (h, w) covers, and which show what it does not.

    A feature shows what its centre is in, if the border is farther than `margin` times its scale; without scales all
    count as 2 pixels. Raises InputError when a keypoint is outside of the mask.
    """
    height, width = mask.shape
    columns, rows = np.floor(keypoints.xy.astype(np.float64)).astype(np.int64).T
    if len(keypoints) and not (
        0 <= columns.min() <= columns.max() <= width and 0 <= rows.min() <= rows.max() <= height
    ):
        raise InputError(f"keypoints lie outside of a mask of {width} x {height} pixels: it is of another image")
    columns, rows = np.minimum(columns, width - 1), np.minimum(rows, height - 1)
    scale = np.full(len(keypoints), _PLAIN_SCALE) if keypoints.scale is None else keypoints.scale
    reach = margin * scale
    return Sides(_depth(mask)[rows, columns] > reach, _depth(~mask)[rows, columns] > reach)


def _depth(inside: Mask) -> Float64:
    """How far (h, w) each pixel that is inside is from the nearest one that is not, 0 for these."""
    if inside.all():
        return np.full(inside.shape, np.inf)
    return np.asarray(cv2.distanceTransform(inside.astype(np.uint8), cv2.DIST_L2, cv2.DIST_MASK_PRECISE), np.float64)


def _coloured(image: Image) -> Image:
    image = check_image(image)
    return image if image.ndim == 3 else np.asarray(cv2.cvtColor(image, cv2.COLOR_GRAY2RGB), np.uint8)
