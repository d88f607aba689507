"""Images or raw features -> descriptors that have nothing to do with a map, to calibrate and to audit with."""

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from featveil.core.errors import FeatveilError, InputError
from featveil.pipelines.sources import FEATURES_OF_IMAGE, has_features, named_images

if TYPE_CHECKING:
    from featveil.core import Features, Points

_FOREIGN_OF_IMAGE = 256  # descriptors of a foreign image, evenly chosen

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Wanted:
    """Kind and size of the descriptors that are wanted."""

    kind: str
    size: int


def more_foreign(paths: tuple[Path, ...], wanted: Wanted) -> "list[Points]":
    """Descriptors of each image at `paths`; raises InputError where there are none, or others than are wanted."""
    more = [points for path in paths for points in _foreign_points(path, wanted)]
    if paths and not more:
        raise InputError(f"there are no features at {paths[0]}")
    return more


def _foreign_points(path: Path, wanted: Wanted) -> "Iterator[Points]":
    """Descriptors of each of the images, or of the features, at `path`."""
    import numpy as np

    for features in _foreign_features(path, wanted.kind):
        points = features.descriptors
        if (features.kind, points.size) != (wanted.kind, wanted.size):
            raise InputError(f"{path} holds {features.kind} descriptors of size {points.size}, not {wanted.kind}")
        if len(points):
            some = min(len(points), _FOREIGN_OF_IMAGE)
            yield points.take(np.linspace(0, len(points) - 1, some).astype(np.int64))


def _foreign_features(path: Path, kind: str) -> "Iterator[Features]":
    from featveil.core import Features
    from featveil.extractors import EXTRACTORS, extract
    from featveil.formats.collections import open_collection

    if path.exists() and has_features(path):
        stored = open_collection(path, kind)
        for name in stored.names:
            features = stored.read(name)
            if not isinstance(features, Features):
                raise InputError(f"{path} holds private features: a calibration takes raw ones")
            yield features
        return
    if kind not in EXTRACTORS:
        raise InputError(f"{path} has no {kind} features by itself: name a file of them (--foreign)")
    for image in named_images([path]).values():
        try:
            yield extract(image, kind, FEATURES_OF_IMAGE)
        except FeatveilError as error:
            if not path.is_dir():
                raise
            logger.warning(f"left out {image}: {error}")
