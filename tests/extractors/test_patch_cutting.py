"""Cutting patches: where they lie, which way they point, and that small ones of large regions do not alias."""

import numpy as np
import pytest

from featveil.core import InputError, Keypoints
from featveil.extractors.images import Image
from featveil.extractors.patch_cutting import (
    REACH,
    SIDE,
    check_patches,
    corners_of,
    cut_patches,
    frames_of,
    whole,
)
from textures import texture

ACROSS = (2 * np.arange(SIDE) + 1) / SIDE - 1  # u at the centre of each pixel


def keypoint(x: float, y: float, sigma: float, degrees: float = 0.0) -> Keypoints:
    return Keypoints(*(np.array(value, np.float32) for value in ([[x, y]], [sigma], [degrees])))


def ramp(along_y: bool = False) -> Image:
    """Every pixel has the brightness of its x (or y), rounded down: the pixel from 10 to 11 has 10."""
    image = np.tile(np.arange(200, dtype=np.uint8), (200, 1))
    return np.ascontiguousarray(image.T) if along_y else image


@pytest.mark.parametrize("sigma", [1.5, 4.0, 12.0])
def test_pixels_are_where_the_frame_says(sigma: float) -> None:
    # A keypoint at x is on a pixel of brightness x - 0.5.
    patch = cut_patches(ramp(), keypoint(100.5, 99.5, sigma))[0]
    expected = 100 + REACH * sigma * ACROSS
    assert np.abs(patch[SIDE // 2] - expected).max() < 1
    assert np.abs(patch.astype(int) - patch[0]).max() <= 1


@pytest.mark.parametrize(("degrees", "along_y", "sign"), [(90, True, 1), (270, True, -1), (180, False, -1)])
def test_the_first_axis_is_the_orientation(degrees: float, along_y: bool, sign: int) -> None:
    patch = cut_patches(ramp(along_y), keypoint(100.5, 100.5, 4.0, degrees))[0]
    assert np.abs(patch[10] - (100 + sign * REACH * 4 * ACROSS)).max() < 1


def test_large_regions_do_not_alias() -> None:
    stripes = np.tile(np.array([0, 255], np.uint8), (400, 200))
    patch = cut_patches(stripes, keypoint(200, 200, 20.0, 30))[0]
    assert np.abs(patch.astype(float) - 127.5).max() < 8
    fine = cut_patches(stripes, keypoint(200, 200, 1.0))[0]
    assert fine.min() < 30 and fine.max() > 225


def test_beyond_the_edge_the_last_pixels_go_on() -> None:
    at_the_corner = keypoint(0.5, 0.5, 2.0)
    patch = cut_patches(ramp(), at_the_corner)[0]
    assert patch[:, : SIDE // 2].max() == 0 and patch[:, -1].min() > 12
    assert not whole(frames_of(at_the_corner), (200, 200)).any()


def test_which_patches_are_whole() -> None:
    many = Keypoints(
        np.array([[15, 50], [14.9, 50], [50, 85], [50, 85.1], [50, 50]], np.float32),
        np.array([2, 2, 2, 2, 2], np.float32),
        np.array([0, 0, 0, 0, 45], np.float32),
    )
    assert whole(frames_of(many), (100, 100)).tolist() == [True, False, True, False, True]
    corners = corners_of(frames_of(many))[0]
    assert np.abs(corners - [[0, 35], [30, 35], [30, 65], [0, 65]]).max() < 1e-9


def test_colour_is_seen_as_grey_and_views_are_accepted() -> None:
    grey, key = texture(), keypoint(160, 120, 4.0, 20)
    colour = np.repeat(grey[:, :, None], 3, axis=2)
    assert np.array_equal(cut_patches(colour, key), cut_patches(grey, key))
    turned = grey[::-1, ::-1]
    assert np.array_equal(cut_patches(turned, key), cut_patches(turned.copy(), key))
    assert cut_patches(grey, key.take(np.empty(0, np.int64))).shape == (0, SIDE, SIDE)


@pytest.mark.parametrize("sigma", [1e-6, 1e30])
def test_extreme_scales_are_cut_in_bounded_time(sigma: float) -> None:
    patch = cut_patches(texture(), keypoint(100, 100, sigma))
    assert patch.shape == (1, SIDE, SIDE)


def test_keypoints_that_have_no_patch() -> None:
    with pytest.raises(InputError, match="positions only"):
        cut_patches(ramp(), Keypoints(np.zeros((1, 2), np.float32)))
    with pytest.raises(InputError, match="above 0"):
        cut_patches(ramp(), keypoint(5, 5, 0.0))


@pytest.mark.parametrize(
    "wrong", [np.zeros((2, 64, 64)), np.zeros((64, 64), np.uint8), np.zeros((1, 32, 32), np.uint8), []]
)
def test_arrays_that_are_no_patches(wrong: object) -> None:
    with pytest.raises(InputError, match="patches are a uint8 array"):
        check_patches(wrong)
