"""image -> Features: one file per extractor, and the registry of descriptor kinds."""

from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from featveil.core import Features, InputError
from featveil.extractors.describers import NETWORKS, NetworkDescriber, PatchDescriber, SiftDescriber, make_describer
from featveil.extractors.images import Image, image_files, read_image
from featveil.extractors.learned import LearnedPatches
from featveil.extractors.patch_cutting import cut_patches
from featveil.extractors.sift import CONTRAST, Sift

__all__ = [
    "CONTRAST",
    "EXTRACTORS",
    "NETWORKS",
    "Extractor",
    "LearnedPatches",
    "NetworkDescriber",
    "PatchDescriber",
    "Sift",
    "SiftDescriber",
    "cut_patches",
    "extract",
    "image_files",
    "make_describer",
    "make_extractor",
    "read_image",
]


class Extractor(Protocol):
    """Finds and describes features in a uint8 image (h, w) or RGB (h, w, 3)."""

    def extract(self, image: Image) -> Features:
        """The features, strongest first; n = 0 when there is none."""
        ...


EXTRACTORS: dict[str, Callable[[int, float], Extractor]] = {
    "sift": lambda max_features, contrast: Sift("sift", max_features, contrast),
    "rootsift": lambda max_features, contrast: Sift("rootsift", max_features, contrast),
}


def make_extractor(
    kind: str, max_features: int = 2048, weights: str | Path | None = None, contrast_threshold: float = CONTRAST
) -> Extractor:
    """The extractor of `kind`: one of EXTRACTORS, or of NETWORKS with its `weights` file.

    A smaller `contrast_threshold` finds more keypoints, in flat areas too. Raises InputError for an unknown kind, and
    where weights are missing or not wanted.
    """
    if kind in NETWORKS:
        if weights is None:
            raise InputError(f"{kind} is a network: give its weights file")
        return LearnedPatches(kind, Path(weights), max_features, contrast_threshold)
    if kind not in EXTRACTORS:
        raise InputError(f"unknown descriptor kind {kind!r}: use one of {', '.join([*EXTRACTORS, *NETWORKS])}")
    if weights is not None:
        raise InputError(f"{kind} has no weights: leave the weights file out, or use one of {', '.join(NETWORKS)}")
    return EXTRACTORS[kind](max_features, contrast_threshold)


def extract(
    image: str | Path | Image,
    kind: str = "sift",
    max_features: int = 2048,
    weights: str | Path | None = None,
    contrast_threshold: float = CONTRAST,
) -> Features:
    """The strongest features of an image file, or of a uint8 array (h, w) or RGB (h, w, 3); n may be 0.

    A `kind` of NETWORKS needs its `weights` file, which is read each time: for many images, keep a `LearnedPatches`.
    Raises InputError when the image cannot be read or `kind` is unknown.
    """
    extractor = make_extractor(kind, max_features, weights, contrast_threshold)
    return extractor.extract(read_image(image) if isinstance(image, str | Path) else image)
