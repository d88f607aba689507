"""HPatches sequences (Balntas et al., CVPR 2017): six images of a plane and their homographies.

    root/scene/1.ppm ... 6.ppm     (or .png, .jpg, .jpeg)
    root/scene/H_1_2 ... H_1_6     nine numbers as text: pixels of image 1 to pixels of image k

The files count pixels from the centre of the first one (0, 0); our keypoints have it at (0.5, 0.5). The
homographies here are converted: they apply to `Keypoints.xy`.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from featveil.core import DatasetError
from featveil.core.arrays import Float64
from featveil.datasets.matrices import read_matrix

IMAGES = (1, 2, 3, 4, 5, 6)
_SUFFIXES = (".ppm", ".png", ".jpg", ".jpeg")
_CHANGES = {"i_": "illumination", "v_": "viewpoint"}


@dataclass(frozen=True, eq=False)
class ImagePair:
    """Image 1 and image `number` of a scene; `homography` (3, 3) takes keypoints of the first there."""

    scene: str
    number: int
    first: Path
    second: Path
    homography: Float64


@dataclass(frozen=True, eq=False)
class Scene:
    """One sequence: `images` by number, and the pairs of image 1 with each other one."""

    name: str
    images: dict[int, Path]
    pairs: tuple[ImagePair, ...]

    @property
    def change(self) -> str | None:
        """What changes, where the name says it (i_ or v_): "illumination" or "viewpoint"."""
        return _CHANGES.get(self.name[:2])


@dataclass(frozen=True, eq=False)
class HPatches:
    """All scenes of a folder, sorted by name."""

    name: str
    scenes: tuple[Scene, ...]

    def pairs(self) -> Iterator[ImagePair]:
        """Every image pair, scene by scene."""
        for scene in self.scenes:
            yield from scene.pairs


def load_hpatches(root: str | Path) -> HPatches:
    """The dataset in `root`, one folder a scene. Images are not read yet.

    Raises DatasetError when there is no scene, or one lacks an image or a homography.
    """
    root = Path(root)
    if not root.is_dir():
        raise DatasetError(f"{root} is not a folder: name the folder that holds the scenes")
    if (root / "H_1_2").is_file():
        raise DatasetError(f"{root} is one scene: name the folder that holds the scenes")
    folders = sorted(path for path in root.iterdir() if path.is_dir() and not path.name.startswith("."))
    if not folders:
        raise DatasetError(f"no scene in {root}: expected folders with 1.ppm to 6.ppm and H_1_2 to H_1_6")
    return HPatches(root.resolve().name, tuple(_scene(folder) for folder in folders))


def _scene(folder: Path) -> Scene:
    images = {number: _image(folder, number) for number in IMAGES}
    pairs = [
        ImagePair(folder.name, number, images[1], images[number], _homography(folder / f"H_1_{number}"))
        for number in IMAGES[1:]
    ]
    return Scene(folder.name, images, tuple(pairs))


def _image(folder: Path, number: int) -> Path:
    files = [path for suffix in _SUFFIXES if (path := folder / f"{number}{suffix}").is_file()]
    if not files:
        raise DatasetError(f"scene {folder} lacks image {number}: expected {number}.ppm, .png or .jpg")
    if len(files) > 1:
        names = " and ".join(path.name for path in files)
        raise DatasetError(f"scene {folder} has both {names}: keep one of them")
    return files[0]


def _homography(path: Path) -> Float64:
    """The (3, 3) matrix of a file, for keypoints whose first pixel centre is (0.5, 0.5)."""
    if not path.is_file():
        raise DatasetError(f"scene {path.parent} lacks {path.name}, the homography from image 1")
    matrix = read_matrix(path)
    if np.linalg.matrix_rank(matrix) < 3:
        raise DatasetError(f"{path} is not a homography: the matrix cannot be inverted")
    to_ours = np.array([[1, 0, 0.5], [0, 1, 0.5], [0, 0, 1]])
    return np.asarray(to_ours @ matrix @ np.linalg.inv(to_ours), np.float64)
