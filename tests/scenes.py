"""Small drawn scenes in HPatches layout, for tasks that need images with known homographies."""

from pathlib import Path

import cv2
import numpy as np


def draw_turned_views(folder: Path, seed: int = 0, degrees: float = 4, growth: float = 0.03) -> None:
    """A blurred random texture, and five views of it, each turned and grown a little more than the one before."""
    folder.mkdir(parents=True)
    noise = cv2.GaussianBlur(np.random.default_rng(seed).random((240, 320)).astype(np.float32), (0, 0), 3)
    texture = cv2.normalize(noise, None, 0, 255, cv2.NORM_MINMAX).astype(np.uint8)  # type: ignore[call-overload]
    cv2.imwrite(str(folder / "1.png"), texture)
    for number in range(2, 7):
        turn = cv2.getRotationMatrix2D((160, 120), degrees * number, 1 + growth * number)
        homography = np.vstack([turn, [1e-5 * number, 0, 1]])
        cv2.imwrite(str(folder / f"{number}.png"), cv2.warpPerspective(texture, homography, (320, 240)))
        np.savetxt(folder / f"H_1_{number}", homography)


def draw_equal_views(folder: Path) -> None:
    """Six times the same random texture: every homography is the identity."""
    folder.mkdir(parents=True)
    noise = cv2.GaussianBlur(np.random.default_rng(0).random((120, 160)) * 255, (0, 0), 2)
    for number in range(1, 7):
        cv2.imwrite(str(folder / f"{number}.png"), (noise * 3 - 255).clip(0, 255).astype(np.uint8))
        np.savetxt(folder / f"H_1_{number}", np.eye(3))
