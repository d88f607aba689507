"""Draws the descriptors that sketches are calibrated with: of photographs that the built-in database was not made of.

Example: python recipes/draw_foreign_descriptors.py photos/ src/featveil/gate/data/foreign-descriptors.safetensors
"""

import sys
from pathlib import Path

import numpy as np

from featveil.databases import Database, save_database
from featveil.extractors import extract, image_files

FOLDERS = ("bsds500_val", "sunhays80", "urban100")
SIZE = 8192
rng = np.random.default_rng(25)


def main(folder: Path, target: Path) -> None:
    """Take as many descriptors of each photograph, at random among its 1000 strongest."""
    files = [path for name in FOLDERS for path in image_files(folder / name)]
    each = -(-SIZE // len(files)) + 4
    parts = []
    for path in files:
        values = extract(path, "sift", 1000).descriptors.values
        parts.append(values[rng.permutation(len(values))[:each]])
    card = {
        "about": "descriptors of real photographs, as they are",
        "photographs": len(files),
        "from": ", ".join(FOLDERS),
        "licence": "made from photographs for non-commercial research, and some under CC",
    }
    values = np.concatenate(parts)
    values = values[rng.permutation(len(values))[:SIZE]]
    save_database(Database.from_array(values, "sift", 1, rng=rng, card=card), target)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
