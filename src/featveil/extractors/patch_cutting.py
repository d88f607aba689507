"""Patches around keypoints: grey squares, turned and scaled as their keypoints are.

A frame (2, 3) says where a patch lies: image xy = frame @ (u, v, 1), with u and v from -1 to 1 across the patch.
"""

import cv2
import numpy as np
from numpy.typing import NDArray

from featveil.core import InputError, Keypoints
from featveil.core.arrays import Float64
from featveil.extractors.images import Image, check_image

Patches = NDArray[np.uint8]

SIDE = 64
REACH = 7.5  # sigmas from the centre of a patch to its edge: as far as a SIFT descriptor looks

_CORNERS = np.array([[-1, -1, 1], [1, -1, 1], [1, 1, 1], [-1, 1, 1]], np.float64)
# Patch pixel i is centred at u = (2 i + 1) / SIDE - 1.
_PIXELS = np.array([[2 / SIDE, 0, 1 / SIDE - 1], [0, 2 / SIDE, 1 / SIDE - 1], [0, 0, 1]])
_COARSEST = 24  # halvings that make any image a single pixel


def frames_of(keypoints: Keypoints) -> Float64:
    """The frames (n, 2, 3) of patches that reach 7.5 sigma from their keypoints; u points along the orientation.

    Raises InputError for keypoints without orientation or a positive scale.
    """
    if keypoints.scale is None or keypoints.orientation is None:
        raise InputError("patches need the scale and orientation of keypoints, and these have positions only")
    if len(keypoints) and keypoints.scale.min() <= 0:
        raise InputError("the scale of a keypoint must be above 0 to cut a patch there")
    angle, reach = np.deg2rad(keypoints.orientation.astype(np.float64)), REACH * keypoints.scale.astype(np.float64)
    cosine, sine = reach * np.cos(angle), reach * np.sin(angle)
    x, y = keypoints.xy.astype(np.float64).T
    return np.stack([np.stack([cosine, -sine, x], axis=1), np.stack([sine, cosine, y], axis=1)], axis=1)


def whole(frames: Float64, image_size: tuple[int, int]) -> NDArray[np.bool_]:
    """Which patches (n,) lie wholly within an image of (width, height)."""
    return inside(corners_of(frames), image_size)


def corners_of(frames: Float64) -> Float64:
    """Where the corners of patches are in the image, (n, 4, 2)."""
    return np.asarray(_CORNERS @ frames.transpose(0, 2, 1), np.float64)


def inside(outlines: Float64, image_size: tuple[int, int]) -> NDArray[np.bool_]:
    """Which outlines (n, k, 2) have all their points within an image of (width, height)."""
    return np.asarray(((outlines >= 0) & (outlines <= np.array(image_size))).all(axis=(1, 2)), np.bool_)


def cut_patches(image: Image, keypoints: Keypoints) -> Patches:
    """The patches (n, 64, 64) at keypoints of a uint8 image; beyond its edge the last pixels go on.

    Raises InputError for another kind of array, or keypoints without scale and orientation.
    """
    return cut_frames(image, frames_of(keypoints))


def cut_frames(image: Image, frames: Float64) -> Patches:
    """The patches (n, 64, 64) at `frames` (n, 2, 3), each from a copy of the image small enough not to alias."""
    image = check_image(image)
    copies = [cv2.cvtColor(image, cv2.COLOR_RGB2GRAY) if image.ndim == 3 else np.ascontiguousarray(image)]
    patches = np.empty((len(frames), SIDE, SIDE), np.uint8)
    for place, frame in enumerate(np.asarray(frames, np.float64) @ _PIXELS):
        step = max(float(np.sqrt(np.abs(np.linalg.det(frame[:, :2])))), 1e-6)
        level = int(np.clip(np.round(np.log2(step)), 0, _COARSEST))
        while len(copies) <= level:
            copies.append(cv2.pyrDown(copies[-1]))
        # OpenCV counts from the centre of the first pixel, and so does each halving.
        inward = (frame - [[0, 0, 0.5], [0, 0, 0.5]]) / 2**level
        cv2.warpAffine(
            copies[level],
            inward,
            (SIDE, SIDE),
            dst=patches[place],
            flags=cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP,
            borderMode=cv2.BORDER_REPLICATE,
        )
    return patches


def check_patches(patches: object) -> Patches:
    """Return `patches` if they are a uint8 array (n, 64, 64), else raise InputError."""
    if not isinstance(patches, np.ndarray) or patches.dtype != np.uint8 or patches.shape[1:] != (SIDE, SIDE):
        came = f"{patches.dtype} {patches.shape}" if isinstance(patches, np.ndarray) else type(patches).__name__
        raise InputError(f"patches are a uint8 array (n, {SIDE}, {SIDE}), got {came}")
    return patches
