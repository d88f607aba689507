"""files -> samples: one file per layout."""

from featveil.datasets.hpatches import HPatches, ImagePair, Scene, load_hpatches

__all__ = ["HPatches", "ImagePair", "Scene", "load_hpatches"]
