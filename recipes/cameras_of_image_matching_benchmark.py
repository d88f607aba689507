"""Writes a scene of the Image Matching Benchmark (images/, calibration/*.h5) in the layout of Strecha's scenes.

Its units are not metres: errors of camera centres are in units of the scene.

Example: python recipes/cameras_of_image_matching_benchmark.py sfm_small/imb_reichstag/ reichstag/
"""

import json
import shutil
import sys
from pathlib import Path

import cv2
import h5py
import numpy as np


def main(source: Path, target: Path) -> None:
    """Copy the images, and write their cameras with pixels counted from the centre of the first one."""
    (target / "images").mkdir(parents=True)
    cameras = {}
    for image in sorted((source / "images").iterdir()):
        height, width = cv2.imread(str(image)).shape[:2]
        with h5py.File(source / "calibration" / f"calibration_{image.stem}.h5") as file:
            intrinsics, rotation, translation = (np.asarray(file[name], np.float64) for name in "KRT")
        intrinsics[:2, 2] -= 0.5
        cameras[image.name] = {
            "K": intrinsics.tolist(),
            "R_world_to_cam": rotation.tolist(),
            "t_world_to_cam": translation.tolist(),
            "width": width,
            "height": height,
        }
        shutil.copy(image, target / "images")
    (target / "cameras.json").write_text(json.dumps(cameras, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
