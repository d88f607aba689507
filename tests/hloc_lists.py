"""Text files of hloc that featveil only reads, or only writes, the other way round."""

from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np
from scipy.spatial.transform import Rotation

from featveil.core import Camera, Pose
from featveil.formats.lists import read_entries, write_entries


def write_pairs(path: Path, pairs: Iterable[tuple[str, str]]) -> None:
    """Names of two images a line."""
    write_entries(path, pairs)


def write_queries(path: Path, cameras: Mapping[str, Camera]) -> None:
    """`name MODEL width height parameters...`"""
    write_entries(path, ((name, own.model, own.width, own.height, *own.parameters) for name, own in cameras.items()))


def read_poses(path: Path) -> dict[str, Pose]:
    """`name qw qx qy qz tx ty tz`"""
    poses = {}
    for _, (name, *words) in read_entries(path):
        w, x, y, z, *translation = (float(word) for word in words)
        poses[name] = Pose(Rotation.from_quat([x, y, z, w]).as_matrix(), np.array(translation))
    return poses
