"""Makes the faces of the demo: averages of people to hide among and to attack with, and the astronaut's photograph.

Each of the averages is the mean of at least three similar photographs of one gender and race, so that nobody's own
descriptor is in the file. The astronaut is Eileen Collins (NASA, public domain), from scikit-image; beside the
photograph as it is there are six changed copies of it.

Example: python recipes/draw_demo_faces.py utk_arcface_y1_128.npz arcface.onnx src/featveil/demo/data/
"""

import sys
from pathlib import Path

import cv2
import numpy as np
from skimage.data import astronaut

from featveil.databases.kmeans import spherical_kmeans
from featveil.datasets.face_sets import FaceSet, load_faces
from featveil.extractors.face_networks import OnnxNetwork
from featveil.extractors.faces import align, one_face

FEWEST = 3
EACH = 10  # photographs an average has on average


def averages(faces: FaceSet) -> dict[str, np.ndarray]:
    """Means of similar photographs, with the labels that all of each have."""
    rows, genders, races = [], [], []
    for gender in np.unique(faces.attribute("gender")):
        for race in np.unique(faces.attribute("race")):
            chosen = np.flatnonzero((faces.attribute("gender") == gender) & (faces.attribute("race") == race))
            values = faces.values[chosen]
            centres = spherical_kmeans(values, len(values) // EACH, 20, 0).centroids
            own = (values @ centres.T).argmax(axis=1)
            kept = centres[np.bincount(own, minlength=len(centres)) >= FEWEST]
            rows.append(kept)
            genders += [gender] * len(kept)
            races += [race] * len(kept)
    made = np.concatenate(rows).astype(np.float16)
    order = np.random.default_rng(0).permutation(len(made))
    names = np.array([f"average_{number:04d}" for number in range(len(made))])
    return {
        "embedding": made[order],
        "names": names,
        "gender": np.array(genders, np.int8)[order],
        "race": np.array(races, np.int8)[order],
    }


def copies(photograph: np.ndarray) -> dict[str, np.ndarray]:
    """The photograph as it is, and changed."""
    height, width = photograph.shape[:2]
    turned = cv2.warpAffine(photograph, cv2.getRotationMatrix2D((width / 2, height / 2), 10, 1), (width, height))
    small = cv2.resize(photograph, None, fx=0.4, fy=0.4, interpolation=cv2.INTER_AREA)
    noisy = photograph + np.random.default_rng(0).normal(0, 15, photograph.shape)
    coded = cv2.imencode(".jpg", photograph[:, :, ::-1], [cv2.IMWRITE_JPEG_QUALITY, 15])[1]
    return {
        "as it is": photograph,
        "mirrored": np.ascontiguousarray(photograph[:, ::-1]),
        "darkened": (photograph * 0.4).astype(np.uint8),
        "blurred": cv2.GaussianBlur(photograph, (0, 0), 2),
        "turned": turned,
        "small": small,
        "with noise": noisy.clip(0, 255).astype(np.uint8),
        "poor JPEG": np.ascontiguousarray(cv2.imdecode(coded, cv2.IMREAD_COLOR)[:, :, ::-1]),
    }


def main(people: Path, model: Path, out: Path) -> None:
    """Write demo-faces.npz, demo-astronaut.npz and demo-astronaut.jpg."""
    np.savez_compressed(out / "demo-faces.npz", **averages(load_faces(people)))
    network = OnnxNetwork(model)
    pictures = copies(astronaut())
    faces = {name: one_face(picture, largest=True) for name, picture in pictures.items()}
    values = np.concatenate([network.describe(pictures[name], [face]) for name, face in faces.items()])
    np.savez_compressed(out / "demo-astronaut.npz", embedding=values, names=np.array(list(pictures)))
    crops = [align(pictures[name], face) for name, face in faces.items()]
    cv2.imwrite(str(out / "demo-astronaut.jpg"), np.hstack(crops)[:, :, ::-1], [cv2.IMWRITE_JPEG_QUALITY, 88])


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:4]))
