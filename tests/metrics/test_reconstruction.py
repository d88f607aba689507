"""How near pictures are: by the formulas, and only for pictures that can be compared."""

import math

import numpy as np
import pytest

from featveil.core import InputError
from featveil.metrics.reconstruction import Image, compare, structural_similarity
from reconstructions import slow_ssim


def picture(seed: int = 0, height: int = 20, width: int = 26) -> Image:
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), np.uint8)


def noisy(image: Image, amount: int) -> Image:
    noise = np.random.default_rng(1).integers(-amount, amount + 1, image.shape)
    return np.clip(image.astype(int) + noise, 0, 255).astype(np.uint8)


def test_the_measures_by_hand() -> None:
    truth = picture()
    guess = noisy(truth, 40)
    grey = [image.astype(float) @ [0.299, 0.587, 0.114] / 255 for image in (guess, truth)]
    difference = (grey[0] - grey[1]).ravel().tolist()
    mae = sum(abs(value) for value in difference) / len(difference)
    square = sum(value**2 for value in difference) / len(difference)
    likeness = compare(guess, truth)
    assert likeness.mae == pytest.approx(mae, abs=1e-12)
    assert likeness.psnr == pytest.approx(10 * math.log10(1 / square), abs=1e-9)
    assert likeness.ssim == pytest.approx(slow_ssim(grey[0], grey[1]), abs=1e-9)


def test_equal_pictures_are_perfect_and_others_are_not() -> None:
    truth = picture()
    assert compare(truth, truth) == pytest.approx((0, 1, 100))
    worse = [compare(noisy(truth, amount), truth) for amount in (5, 30, 120)]
    assert sorted(worse, key=lambda likeness: likeness.ssim, reverse=True) == worse
    assert sorted(worse, key=lambda likeness: likeness.mae) == worse
    assert sorted(worse, key=lambda likeness: likeness.psnr, reverse=True) == worse
    assert compare(picture(2), truth).ssim < 0.2


def test_what_is_opposite_is_worse_than_nothing() -> None:
    truth = picture()
    assert compare(255 - truth, truth).ssim < compare(np.full_like(truth, 127), truth).ssim


def test_colour_is_not_looked_at() -> None:
    grey = np.repeat(picture()[:, :, :1], 3, axis=2)
    tinted = grey.astype(float)
    tinted[:, :, 0] += 0.587 * 20
    tinted[:, :, 1] -= 0.299 * 20
    inside = (tinted >= 0).all(axis=2) & (tinted <= 255).all(axis=2)
    grey[~inside] = 128
    tinted[~inside] = 128
    likeness = compare(np.rint(tinted).astype(np.uint8), grey)
    assert likeness.mae < 0.003 and likeness.ssim > 0.99


def test_pictures_at_the_smallest_size() -> None:
    image = picture(height=11, width=11)
    assert compare(image, image).ssim == pytest.approx(1)
    grey = image[:, :, 0] / 255
    assert structural_similarity(grey, grey[::-1]) == pytest.approx(slow_ssim(grey, grey[::-1]), abs=1e-9)


@pytest.mark.parametrize(
    ("guess", "reason"),
    [
        (picture(height=21), "of one size"),
        (picture()[:, :, 0], "of one size"),
        (picture().astype(np.float32), "of one size"),
    ],
)
def test_what_cannot_be_compared_is_refused(guess: Image, reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        compare(guess, picture())


def test_other_layouts_and_tiny_pictures_are_refused() -> None:
    transparent = np.zeros((20, 20, 4), np.uint8)
    with pytest.raises(InputError, match="RGB"):
        compare(transparent, transparent)
    with pytest.raises(InputError, match="at least 11 pixels"):
        compare(picture(height=10), picture(height=10))
