"""Draws the descriptors of real photographs that an audit gives to the attacker and to the devices' pools.

They are not clustered or averaged, a few of each photograph; half of them are in each of two parts.

Example: python recipes/draw_real_descriptors.py photos/ src/featveil/audit/data/real-descriptors.safetensors
"""

import sys
from pathlib import Path

import numpy as np

from featveil.databases import Database, save_database
from featveil.extractors import extract, image_files

SIZE = 16_384
rng = np.random.default_rng(16)


def main(folder: Path, target: Path) -> None:
    """Take as many descriptors of each photograph, at random among its 1000 strongest; no photograph in both parts."""
    files = image_files(folder)
    each = -(-SIZE // len(files)) + 2
    halves: list[list[np.ndarray]] = [[], []]
    for number, path in enumerate(files):
        values = extract(path, "sift", 1000).descriptors.values
        halves[number % 2].append(values[rng.permutation(len(values))[:each]])
    parts = [np.concatenate(half)[: SIZE // 2] for half in halves]
    ordered = [Database.from_array(part, "sift", 1, rng=rng).values for part in parts]
    card = {
        "about": "descriptors of real photographs, as they are",
        "photographs": len(files),
        "from": folder.name,
        "licence": "made from photographs for non-commercial research",
    }
    save_database(Database(np.concatenate(ordered), "sift", 2, card=card), target)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
