"""image -> Features: one file per extractor, and the registry of descriptor kinds."""

from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from featveil.core import Features, InputError
from featveil.extractors.images import Image, image_files, read_image
from featveil.extractors.sift import Sift

__all__ = ["EXTRACTORS", "Extractor", "Sift", "extract", "image_files", "read_image"]


class Extractor(Protocol):
    """Finds and describes features in a uint8 image (h, w) or RGB (h, w, 3)."""

    def extract(self, image: Image) -> Features:
        """The features, strongest first; n = 0 when there is none."""
        ...


EXTRACTORS: dict[str, Callable[[int], Extractor]] = {
    "sift": lambda max_features: Sift("sift", max_features),
    "rootsift": lambda max_features: Sift("rootsift", max_features),
}


def extract(image: str | Path | Image, kind: str = "sift", max_features: int = 2048) -> Features:
    """The strongest features of an image file, or of a uint8 array (h, w) or RGB (h, w, 3); n may be 0.

    Raises InputError when the image cannot be read or `kind` is unknown.
    """
    if kind not in EXTRACTORS:
        raise InputError(f"unknown descriptor kind {kind!r}: use one of {', '.join(EXTRACTORS)}")
    extractor = EXTRACTORS[kind](max_features)
    return extractor.extract(read_image(image) if isinstance(image, str | Path) else image)
