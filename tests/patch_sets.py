"""A small patch set, built from drawn pictures."""

from pathlib import Path

import cv2

from featveil.pipelines.patches_parts.patch_photos import build_from_photos
from featveil.pipelines.patches_parts.patch_sets import PatchRecipe
from textures import texture


def write_patches(folder: Path, pictures: int = 2, first: int = 0, features: int = 30) -> Path:
    """Matching patches of `pictures` drawn ones, which begin with number `first`; returns the folder."""
    drawn = folder.with_name(f"{folder.name}-pictures")
    drawn.mkdir(parents=True)
    for number in range(first, first + pictures):
        cv2.imwrite(str(drawn / f"{number}.png"), texture(number))
    recipe = PatchRecipe(views=2, max_features=features, pairs=100)
    build_from_photos({path.name: path for path in drawn.glob("*.png")}, folder, recipe)
    return folder
