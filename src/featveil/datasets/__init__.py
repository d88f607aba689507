"""files -> samples: one file per layout."""

from pathlib import Path

from featveil.datasets.hpatches import HPatches, ImagePair, Scene, load_hpatches
from featveil.datasets.photo_folders import load_photos
from featveil.datasets.phototour import PatchPairs, PatchSet, load_phototour
from featveil.datasets.phototour_writing import write_phototour
from featveil.datasets.private_content import Content, contents, paste, private_rows
from featveil.datasets.rendered import RenderedScene, render_scene
from featveil.datasets.scenes import MapScene
from featveil.datasets.strecha import has_strecha, load_strecha

__all__ = [
    "Content",
    "HPatches",
    "ImagePair",
    "MapScene",
    "PatchPairs",
    "PatchSet",
    "RenderedScene",
    "Scene",
    "contents",
    "load_hpatches",
    "load_map_scenes",
    "load_photos",
    "load_phototour",
    "load_strecha",
    "paste",
    "private_rows",
    "render_scene",
    "write_phototour",
]


def load_map_scenes(folder: str | Path) -> list[MapScene]:
    """The scenes of a folder: one with true cameras, a folder of such, or photographs of one place without poses.

    Raises DatasetError when it is none of these, or one is incomplete.
    """
    return load_strecha(folder) if has_strecha(folder) else [load_photos(folder)]
