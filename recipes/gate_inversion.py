"""What an inverter that knows the place paints of a gated query with a portrait in it.

`prepare` writes the photographs of the map in five versions each, to train on, their features, and the query with a
portrait. `compare` says how near pictures come to the query, and to the portrait alone.

Example:
    python recipes/gate_inversion.py prepare strecha/castle-P30/images/ 0015.jpg place/
    featveil sketch build maps/castle-P30/raw/without-0015.jpg --features place/features --out place/map.sketch
    featveil train inverter --images place/photos --out place/gate.onnx --defense gate --sketch place/map.sketch \
        --start built-in --minutes 14 --threads 1 --max-features 2000
    featveil privatize place/query.png --defense gate --sketch place/map.sketch --max-features 2000 --out place/q.veil
    featveil invert place/q.veil --sketch place/map.sketch --size 597 --out place/read.png
    featveil invert place/q.veil --sketch place/map.sketch --inverter place/gate.onnx --size 597 --out place/direct.png
    featveil invert place/query.png --max-features 2000 --size 597 --out place/raw.png
    python recipes/gate_inversion.py compare place/query.png place/raw.png place/read.png place/direct.png
"""

import sys
from pathlib import Path

import cv2
import numpy as np

import featveil as fv
from featveil.datasets.private_content import contents, paste
from featveil.extractors import image_files, read_image
from featveil.extractors.images import Image
from featveil.metrics.reconstruction import compare
from featveil.pipelines.painters import blank, resized

SHARE, PLACE = 0.1, (0.45, 0.8)


def prepare(photographs: Path, query: str, target: Path) -> None:
    """Everything but the query is what the server has."""
    (target / "photos").mkdir(parents=True)
    (target / "features").mkdir()
    for path in image_files(photographs):
        image = read_image(path)
        if path.name == query:
            write(target / "query.png", with_portrait(image)[0])
            continue
        fv.save(fv.extract(path, max_features=2000), target / "features" / f"{path.name}.veil")
        for number, version in enumerate(versions(image)):
            write(target / "photos" / f"{path.stem}-{number}.jpg", version)


def versions(image: Image) -> list[Image]:
    """The photograph, smaller, brighter, and turned, larger and darker."""
    height, width = image.shape[:2]
    turned = cv2.warpAffine(image, cv2.getRotationMatrix2D((width / 2, height / 2), 6, 1.15), (width, height))
    smaller = [cv2.resize(image, None, fx=factor, fy=factor, interpolation=cv2.INTER_AREA) for factor in (0.8, 0.65)]
    brighter, darker = (np.clip(light * one, 0, 255).astype(np.uint8) for light, one in ((1.15, image), (0.85, turned)))
    return [image, *smaller, darker, brighter]


def with_portrait(image: Image) -> tuple[Image, np.ndarray]:
    portrait = next(one for one in contents() if one.name == "portrait")
    return paste(image, portrait.picture, SHARE, PLACE)


def score(query: Path, pictures: list[Path]) -> None:
    """Of the whole picture, and of the portrait; a grey picture is the floor."""
    image = read_image(query)
    seen = {path.stem: read_image(path) for path in pictures}
    height, width = next(iter(seen.values())).shape[:2]
    mask = cv2.resize(with_portrait(image)[1].astype(np.uint8), (width, height), interpolation=cv2.INTER_NEAREST)
    rows, columns = np.flatnonzero(mask.any(axis=1)), np.flatnonzero(mask.any(axis=0))
    portrait = np.s_[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]
    truth = resized(image, (width, height))
    for name, picture in {**seen, "grey": blank(truth)}.items():
        for part, region in (("whole", np.s_[:, :]), ("portrait", portrait)):
            near = compare(np.ascontiguousarray(picture[region]), np.ascontiguousarray(truth[region]))
            print(f"{name:8s} {part:9s} SSIM {near.ssim:.3f}  MAE {near.mae:.3f}")


def write(path: Path, image: Image) -> None:
    cv2.imwrite(str(path), image[:, :, ::-1])


if __name__ == "__main__":
    step, *given = sys.argv[1:]
    if step == "prepare":
        prepare(Path(given[0]), given[1], Path(given[2]))
    else:
        score(Path(given[0]), list(map(Path, given[1:])))
