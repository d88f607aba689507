"""Patch sets from single photographs: keypoints tracked through views of them that are known exactly.

Each photograph is warped and changed in light several times; SIFT finds keypoints anew in each view, and the known
homography tells which of them show one point. So position, scale and orientation have a real detector's errors.
Photographs of one place show a point several times, which nobody knows here: use their COLMAP model (`patch_models`).
"""

import logging
from collections.abc import Iterator, Mapping
from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray

from featveil.core import FeatveilError, InputError, Keypoints
from featveil.core.arrays import Float64
from featveil.core.resuming import Report
from featveil.core.seeding import generator
from featveil.datasets.phototour_writing import check_target
from featveil.extractors import Sift, read_image
from featveil.extractors.images import Image
from featveil.extractors.patch_cutting import corners_of, frames_of, inside, whole
from featveil.pipelines.patches_parts.patch_sets import Block, BuiltPatches, PatchRecipe, write_blocks
from featveil.pipelines.patches_parts.patch_tracks import alike, choose_apart, redetected
from featveil.pipelines.patches_parts.patch_views import move, project, random_view

_MORE = 4  # times as many detections in a view: the order of strength changes with the light
_log = logging.getLogger(__name__)


def build_from_photos(
    images: Mapping[str, Path],
    out: str | Path,
    recipe: PatchRecipe,
    overwrite: bool = False,
    report: Report = lambda done, total: None,
) -> BuiltPatches:
    """Write a patch set of photographs, by name, to the folder `out`: all of it or nothing.

    Equal photographs and recipes give equal files. A photograph that cannot be read, or of which no point is found
    twice, is logged and left out. `report` is called with photographs (done, total). Raises InputError when all are.
    """
    check_target(Path(out), overwrite)
    chosen = {name: path for name, path in sorted(images.items()) if recipe.keeps(name)}
    if not chosen:
        raise InputError(
            f"none of the {len(images)} photographs is in the part {recipe.part}: use more, or another share"
        )
    return write_blocks(_blocks(chosen, recipe, report), out, recipe, {"made_from": "photographs"}, overwrite)


def _blocks(images: Mapping[str, Path], recipe: PatchRecipe, report: Report) -> Iterator[Block]:
    """The patches of one photograph after the other; points are numbered through."""
    numbered = 0
    report(0, len(images))
    for done, (name, path) in enumerate(images.items(), start=1):
        try:
            patches, points = photo_patches(scaled(read_image(path), recipe.longest_side), name, recipe)
        except FeatveilError as error:
            _log.warning("%s is left out: %s", name, error)
        else:
            if len(points):
                yield patches, points + numbered
                numbered += int(points.max()) + 1
            else:
                _log.warning("%s is left out: no point was found again in a view of it", name)
        report(done, len(images))


def photo_patches(image: Image, name: str, recipe: PatchRecipe) -> Block:
    """The patches (k, 64, 64) of one photograph and its views, and which point each shows (k,), numbered from 0."""
    size = (image.shape[1], image.shape[0])
    base = _apart(_keypoints(image, _MORE * recipe.max_features), size, recipe.max_features)
    cut, points = [recipe.cut(image, base, name)], [np.arange(len(base))]
    for number in range(recipe.views if len(base) else 0):
        view = random_view(image, generator(recipe.seed, "view", name, str(number)))
        detected = _keypoints(view.image, _MORE * recipe.max_features)
        detected = detected.take(np.flatnonzero(_shown(detected, view.homography, size)))
        pairs = redetected(project(base, view.homography), detected)
        cut.append(recipe.cut(view.image, detected.take(pairs[:, 1]), name, str(number)))
        points.append(pairs[:, 0])
    patches, shown = np.concatenate(cut), np.concatenate(points)
    _, compact, sizes = np.unique(shown, return_inverse=True, return_counts=True)
    often = sizes[compact] > 1
    return patches[often], np.unique(shown[often], return_inverse=True)[1].astype(np.int64)


def scaled(image: Image, longest_side: int) -> Image:
    """The image, scaled down where it is larger."""
    scale = longest_side / max(image.shape[:2])
    if scale >= 1:
        return image
    size = [max(1, round(side * scale)) for side in (image.shape[1], image.shape[0])]
    return np.asarray(cv2.resize(image, size, interpolation=cv2.INTER_AREA), np.uint8)


def _keypoints(image: Image, most: int) -> Keypoints:
    keypoints = Sift(max_features=most).extract(image).keypoints
    assert keypoints is not None
    return keypoints


def _apart(keypoints: Keypoints, size: tuple[int, int], most: int) -> Keypoints:
    """The strongest keypoints whose patch lies in the image and of which no two are alike."""
    kept = keypoints.take(np.flatnonzero(whole(frames_of(keypoints), size)))
    return kept.take(choose_apart(alike(kept), np.arange(len(kept)))[:most])


def _shown(keypoints: Keypoints, homography: Float64, size: tuple[int, int]) -> NDArray[np.bool_]:
    """Which keypoints (n,) of a view have a patch that lies in the view and shows nothing but the photograph."""
    corners = corners_of(frames_of(keypoints))
    inverse = np.asarray(np.linalg.inv(homography), np.float64)
    back = move(inverse, corners.reshape(-1, 2)).reshape(-1, 4, 2)
    return inside(corners, size) & inside(back, size)
