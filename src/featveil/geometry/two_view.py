"""Matches -> verified matches: which of a database's image pairs show the same scene, and which matches agree."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from featveil.core import FormatError, InputError
from featveil.geometry.colmap import pycolmap, random_seed
from featveil.geometry.match_database import opened

_BATCH = 8 * (os.cpu_count() or 1)  # pairs after which COLMAP stores what it found and looks for Ctrl-C


@dataclass(frozen=True)
class Verification:
    """How COLMAP checks an image pair by RANSAC on its epipolar geometry.

    A pair counts with at least `min_inliers` matches that agree, and at least `min_inlier_ratio` of all (Dusmanu et
    al. 2021 ask for 0.1). `iterations` is the most that RANSAC tries, `max_error` how far off a match may be in pixels.
    """

    min_inliers: int = 15
    min_inlier_ratio: float = 0.1
    iterations: int = 10_000
    max_error: float = 4.0

    def __post_init__(self) -> None:
        if self.min_inliers < 1 or not 0 <= self.min_inlier_ratio <= 1:
            raise InputError("verification needs at least 1 inlier and a ratio from 0 to 1")
        if not 1 <= self.iterations <= 10_000_000 or not self.max_error > 0:
            raise InputError("iterations are 1 to 10,000,000, and the largest error is above 0")


# Of word sets, whose candidates are chosen by their neighbours. Wrong ones run along with each other, too: between
# images of different places up to 72 agreed, and up to 21 % where more than a hundred were supported
# (benchmarks/elsewhere.py), so that a wrong pair still passes now and then.
OF_CANDIDATES = Verification(min_inliers=40, min_inlier_ratio=0.2, iterations=30_000)


@dataclass(frozen=True)
class Verified:
    """How many pairs passed, now or before, and how many matches agree in them together."""

    pairs: int
    matches: int


def verify(path: str | Path, options: Verification = Verification(), seed: int | None = None) -> Verified:
    """Check all matched pairs of the database at `path` that were not checked yet; the result is stored there.

    Raises InputError when there is no database, and FormatError when it is damaged.
    """
    module = pycolmap()
    two_view = module.TwoViewGeometryOptions(
        min_num_inliers=options.min_inliers,
        min_inlier_ratio=options.min_inlier_ratio,
        detect_watermark=False,
        ransac=ransac_options(options.iterations, options.max_error, options.min_inlier_ratio, seed),
    )
    with opened(path) as database:
        _check(database, path)
    module.geometric_verification(
        path,
        pairing_options=module.ExistingMatchedPairingOptions(batch_size=_BATCH),
        two_view_geometry_options=two_view,
    )
    with opened(path) as database:
        inliers = [int(count) for count in database.read_two_view_geometry_num_inliers()[1]]
    return Verified(sum(count > 0 for count in inliers), sum(inliers))


def _check(database: Any, path: str | Path) -> None:
    """Read what COLMAP is about to read: an error in its threads, or a match beyond the keypoints, ends the process."""
    cameras = {camera.camera_id for camera in database.read_all_cameras()}
    counts = {}
    for image in database.read_all_images():
        keypoints = database.read_keypoints(image.image_id)
        if image.camera_id not in cameras or keypoints.shape[1] not in (0, 2, 4, 6):
            raise FormatError(f"image {image.name!r} in {path} has no camera, or no keypoints as COLMAP writes them")
        counts[image.image_id] = len(keypoints)
    checked = set(database.read_two_view_geometry_num_inliers()[0])
    for pair in set(database.read_num_matches()[0]) - checked:
        one, two = pycolmap().pair_id_to_image_pair(pair)
        matches = database.read_matches(one, two)
        if len(matches) and (matches.max(axis=0) >= (counts[one], counts[two])).any():
            raise FormatError(f"matches in {path} name keypoints that are not there")


def ransac_options(iterations: int, max_error: float, min_inlier_ratio: float, seed: int | None) -> dict[str, Any]:
    """RANSAC that stops when it is confident that no better model has at least that ratio of inliers."""
    return {
        "max_error": max_error,
        "max_num_trials": iterations,
        "min_num_trials": min(100, iterations),
        "min_inlier_ratio": max(min_inlier_ratio, 1e-6),
        "confidence": 0.9999,
        "random_seed": random_seed(seed),
    }
