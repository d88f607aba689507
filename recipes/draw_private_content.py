"""Makes the private content that comes with featveil: pictures that no map has, to paste into photographs.

The portraits, the cat, the cup and the rocket are pictures of scikit-image that are in the public domain or under CC0;
the letter is drawn here. src/featveil/datasets/data/private/README.md names source and licence of each.

Example: python recipes/draw_private_content.py src/featveil/datasets/data/private
"""

import sys
from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray
from skimage import data

Picture = NDArray[np.uint8]

SIDE = 360  # of the longer side, in pixels
QUALITY = 88
INK = (58, 48, 46)
LINES = (
    ("Sample Bank plc, Example Road 12", 0.62, 64),
    ("Mrs. Jane Doe", 0.6, 132),
    ("7 Mill Lane, Sampletown", 0.6, 162),
    ("Account 4711 0815 2342   October 2026", 0.55, 226),
    ("03  Rent, flat 2b              -940.00", 0.55, 276),
    ("05  Dr. Example, cardiology     -68.50", 0.55, 306),
    ("09  Pharmacy at the bridge      -23.97", 0.55, 336),
    ("14  Salary, Works Council     +2318.44", 0.55, 366),
    ("21  Solicitor Quick & Jury     -410.00", 0.55, 396),
    ("28  Transfer to M. Doe         -150.00", 0.55, 426),
    ("Balance                       +1762.31", 0.6, 476),
    ("Please keep this letter secret: 8841-X", 0.55, 530),
)


def letter() -> Picture:
    """A bank statement of nobody, RGB."""
    rng = np.random.default_rng(25)
    grain = cv2.GaussianBlur(rng.normal(0, 9, (620, 480, 3)).astype(np.float32), (0, 0), 1.2)
    sheet = np.clip(np.array((238, 235, 226), np.float32) + grain, 0, 255).astype(np.uint8)
    cv2.rectangle(sheet, (0, 0), (479, 619), (196, 190, 178), 6)
    cv2.circle(sheet, (418, 66), 30, (150, 40, 44), 5, cv2.LINE_AA)
    cv2.line(sheet, (404, 80), (432, 52), (150, 40, 44), 5, cv2.LINE_AA)
    cv2.line(sheet, (28, 92), (452, 92), (150, 40, 44), 2, cv2.LINE_AA)
    for text, scale, foot in LINES:
        cv2.putText(sheet, text, (28, foot), cv2.FONT_HERSHEY_DUPLEX, scale, INK, 1, cv2.LINE_AA)
    strokes = np.array([(250 + 7 * step, 580 + 15 * np.sin(step * 1.7) * (1 - step / 30)) for step in range(24)])
    cv2.polylines(sheet, [strokes.astype(np.int32)], False, (40, 60, 160), 2, cv2.LINE_AA)
    return sheet


def pictures() -> dict[str, Picture]:
    """Each content by its name, RGB or grey."""
    return {
        "portrait": data.astronaut()[:400, 70:390],
        "photographer": data.camera()[40:400, 60:360],
        "letter": letter(),
        "cat": data.chelsea()[:, 60:400],
        "cup": data.coffee()[20:380, 100:560],
        "rocket": data.rocket()[20:400, 180:440],
    }


def main(folder: Path) -> None:
    """Write them as JPEG files."""
    for name, picture in pictures().items():
        bgr = picture[:, :, ::-1] if picture.ndim == 3 else picture
        scale = SIDE / max(bgr.shape[:2])
        small = cv2.resize(np.ascontiguousarray(bgr), None, fx=scale, fy=scale, interpolation=cv2.INTER_AREA)
        cv2.imwrite(str(folder / f"{name}.jpg"), small, [cv2.IMWRITE_JPEG_QUALITY, QUALITY])


if __name__ == "__main__":
    main(Path(sys.argv[1]))
