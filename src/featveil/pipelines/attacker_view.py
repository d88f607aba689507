"""What someone sees who takes the guesses of an attack for raw features and has an inverter: a picture for a page."""

import math
from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray

from featveil.attacks import Guess
from featveil.core import Features, InputError, PrivateFeatures
from featveil.pipelines.invert import Painter, at_size, check_reads_raw, load_painter, paint, recovered

Image = NDArray[np.uint8]
Size = tuple[int, int]

# Inverters are trained on small pieces of photographs, with all their features. A photograph whose strongest features
# lie further apart is painted smaller, so that there are about as many of them as the inverter is used to.
_PIXELS = 300  # for each feature
_SHORTEST, _LONGEST = 256, 800  # of the long side


def raw_painter(kind: str, path: Path | None = None) -> Painter:
    """The inverter of raw descriptors of `kind` in a file, or the built-in one; that of SIFT serves RootSIFT too.

    Raises InputError when there is none, or the file has one of something else.
    """
    painter = load_painter(path, kind)
    check_reads_raw(painter, kind)
    return painter


def picture_size(raw: Features | PrivateFeatures) -> Size:
    """(width, height) of the pictures of what is released of `raw`, none larger than the image.

    Raises InputError where the size of the image is not known.
    """
    if raw.image_size is None:
        raise InputError("the size of the image is not known")
    width, height = raw.image_size
    longest = math.sqrt(_PIXELS * len(raw) / (width * height)) * max(width, height)
    factor = min(1.0, min(max(longest, _SHORTEST), _LONGEST) / max(width, height))
    return max(1, round(width * factor)), max(1, round(height * factor))


def view(seen: PrivateFeatures, guess: Guess, painter: Painter, size: Size) -> Image:
    """The picture (h, w, 3) of `size` that `painter` makes of guesses at all features.

    Raises InputError as `paint` does.
    """
    return paint(at_size(recovered(seen, guess), size), painter)


def resized(image: Image, size: Size) -> Image:
    """The image itself at that size, to compare with."""
    return np.asarray(cv2.resize(image, size, interpolation=cv2.INTER_AREA), np.uint8)
