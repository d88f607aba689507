"""A set of images to build a map from, with cameras and poses as far as they are known."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from featveil.core import Camera, DatasetError, Pose


@dataclass(frozen=True, eq=False)
class MapScene:
    """Images of one place by name (a relative path with '/'), and the cameras and true poses of those that have them.

    `cameras` and `poses` may be empty. A pose is in the scene's own unit, metres where the layout says so.
    Raises DatasetError without images, and when a camera or pose belongs to none of them.
    """

    name: str
    images: Mapping[str, Path]
    cameras: Mapping[str, Camera]
    poses: Mapping[str, Pose]

    def __post_init__(self) -> None:
        if not self.images:
            raise DatasetError(f"scene {self.name} has no images")
        for role, given in (("camera", self.cameras), ("pose", self.poses)):
            unknown = sorted(given.keys() - self.images.keys())
            if unknown:
                raise DatasetError(f"scene {self.name} has a {role} for {unknown[0]}, which is none of its images")
