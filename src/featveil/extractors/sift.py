"""SIFT (Lowe, IJCV 2004) and RootSIFT (Arandjelovic and Zisserman, CVPR 2012), as OpenCV finds them.

These are raw descriptors: the picture can be rebuilt from them. Privatize them before they leave the device.
"""

import math
from dataclasses import dataclass
from typing import Any, Literal, get_args

import cv2
import numpy as np
from numpy.typing import NDArray

from featveil.core import Features, InputError, Keypoints, Points
from featveil.core.arrays import Float32, Integers
from featveil.extractors.images import Image, check_image

SiftKind = Literal["sift", "rootsift"]

CONTRAST = 0.04  # OpenCV's own contrast threshold

_SIZE = 128


@dataclass(frozen=True)
class Sift:
    """OpenCV's SIFT detector and descriptor: at most `max_features` an image, the strongest ones.

    A larger `contrast_threshold` finds fewer features in flat areas, a larger `edge_threshold` more at edges.
    """

    kind: SiftKind = "sift"
    max_features: int = 2048
    contrast_threshold: float = CONTRAST
    edge_threshold: float = 10.0

    def __post_init__(self) -> None:
        if self.kind not in get_args(SiftKind):
            raise InputError(f"kind must be one of {', '.join(get_args(SiftKind))}, got {self.kind!r}")
        if type(self.max_features) is not int or not 1 <= self.max_features < 2**31:
            raise InputError(f"max_features must be a whole number of at least 1, got {self.max_features!r}")
        for name in ("contrast_threshold", "edge_threshold"):
            value = getattr(self, name)
            if not isinstance(value, int | float) or not math.isfinite(value) or value < 0:
                raise InputError(f"{name} must be a number of at least 0, got {value!r}")

    def extract(self, image: Image) -> Features:
        """Features of a uint8 image (h, w) or RGB (h, w, 3), strongest first, descriptors of unit norm.

        An image without features gives n = 0. Raises InputError for another kind of array.
        """
        image = check_image(image)
        detected, values = self._detect(image)
        values, described = unit_descriptors(values, self.kind)
        keypoints = _keypoints(detected)
        order = described[_strongest(keypoints, described, self.max_features)]
        height, width = image.shape[:2]
        return Features(
            Points(values[order]),
            self.kind,
            Keypoints(*(column[order] for column in keypoints)),
            (width, height),
        )

    def _detect(self, image: Image) -> tuple[Any, Float32]:
        # Without the precise upscale every keypoint is 0.243 px off towards the lower right.
        sift = cv2.SIFT.create(
            nfeatures=self.max_features,
            contrastThreshold=self.contrast_threshold,
            edgeThreshold=self.edge_threshold,
            enable_precise_upscale=True,
        )
        try:
            grey = cv2.cvtColor(image, cv2.COLOR_RGB2GRAY) if image.ndim == 3 else np.ascontiguousarray(image)
            detected, values = sift.detectAndCompute(grey, None)
        except (cv2.error, MemoryError) as error:
            size = f"{image.shape[1]} x {image.shape[0]}"
            raise InputError(f"SIFT failed on an image of {size} pixels: scale it down first") from error
        return detected, np.empty((0, _SIZE), np.float32) if values is None else np.asarray(values, np.float32)


def _keypoints(detected: Any) -> tuple[Float32, Float32, Float32, Float32]:
    """Positions (n, 2), scales, orientations and responses (n,) in the conventions of `Keypoints`."""
    xy = np.array([key.pt for key in detected], np.float64).reshape(-1, 2) + 0.5
    scale = np.array([key.size / 2 for key in detected], np.float32)
    orientation = np.array([key.angle for key in detected], np.float32)
    response = np.array([key.response for key in detected], np.float32)
    return xy.astype(np.float32), scale, orientation, response


def unit_descriptors(values: Float32, kind: SiftKind) -> tuple[Float32, Integers]:
    """Descriptors of unit norm, and the indices of those that can have one: a flat patch has all zeros."""
    exact: NDArray[np.float64] = values.astype(np.float64)
    sums = exact.sum(axis=1, keepdims=True)
    described = np.flatnonzero(sums[:, 0] > 0)
    if kind == "rootsift":
        unit = np.sqrt(exact / np.where(sums > 0, sums, 1))
    else:
        norms = np.linalg.norm(exact, axis=1, keepdims=True)
        unit = exact / np.where(norms > 0, norms, 1)
    return unit.astype(np.float32), described


def _strongest(keypoints: tuple[Float32, Float32, Float32, Float32], among: Integers, count: int) -> Integers:
    """Positions in `among` of the `count` strongest keypoints, ties broken by place so that no run differs.

    OpenCV keeps every keypoint that ties with the last one, so none is missing here.
    """
    xy, scale, orientation, response = (column[among] for column in keypoints)
    order = np.lexsort((orientation, scale, xy[:, 0], xy[:, 1], -response))
    return order[:count].astype(np.int64)
