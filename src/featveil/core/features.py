"""Features that never leave the device, and private features that may.

The two are unrelated types on purpose: sending or attacking raw features is a type error.
"""

import re
from dataclasses import dataclass, field, replace
from typing import Self

import numpy as np

from featveil.core.arrays import Float32, Integers, floats, integers
from featveil.core.descriptors import Descriptors, Points
from featveil.core.errors import InputError
from featveil.core.guarantees import Guarantee

SpecValue = str | int | float | bool | None
Spec = dict[str, SpecValue]

_KIND = re.compile(r"[a-z0-9][a-z0-9_.+-]{0,63}")
_LARGEST_SIDE = 2**24


@dataclass(frozen=True, eq=False, repr=False)
class Keypoints:
    """Where features are: `xy` (n, 2) in COLMAP's convention (centre of the first pixel = 0.5, 0.5).

    `scale` (n,) is the Gaussian scale sigma in pixels (COLMAP's scale, half of OpenCV's size), `orientation` (n,) in
    degrees from the x axis towards the y axis, `response` (n,) the detector's strength. The last three are optional,
    because they leak by themselves.
    """

    xy: Float32
    scale: Float32 | None = None
    orientation: Float32 | None = None
    response: Float32 | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "xy", floats("keypoint positions", self.xy, (None, 2)))
        for name in ("scale", "orientation", "response"):
            value = getattr(self, name)
            if value is not None:
                object.__setattr__(self, name, floats(f"keypoint {name}", value, (len(self.xy),)))

    def __repr__(self) -> str:
        return f"Keypoints(n={len(self)})"

    def __len__(self) -> int:
        return len(self.xy)

    def take(self, indices: Integers) -> Self:
        """The keypoints at `indices`, in that order."""
        values = (self.scale, self.orientation, self.response)
        return type(self)(self.xy[indices], *(None if value is None else value[indices] for value in values))

    def positions_only(self) -> Self:
        """The same keypoints without scale, orientation and response."""
        return type(self)(self.xy)


@dataclass(frozen=True, eq=False)
class Features:
    """Raw features of one image (or face templates, without keypoints). These never leave the device.

    `kind` names the descriptor ("sift", "rootsift", ...); `image_size` is (width, height) in pixels; `labels` (n,)
    are attribute labels for strategies that balance an attribute.
    """

    descriptors: Points
    kind: str
    keypoints: Keypoints | None = None
    image_size: tuple[int, int] | None = None
    labels: Integers | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        _check_common(self.descriptors, self.kind, self.keypoints, self.image_size)
        norms = np.linalg.norm(self.descriptors.values, axis=1)
        if (norms == 0).any():
            raise InputError(f"descriptor {int(np.argmin(norms))} has zero norm: remove it first")
        if self.labels is not None:
            object.__setattr__(self, "labels", integers("labels", self.labels, (len(self.descriptors),)))

    def __len__(self) -> int:
        return len(self.descriptors)

    def take(self, indices: Integers) -> Self:
        """The features at `indices`, in that order."""
        keypoints = None if self.keypoints is None else self.keypoints.take(indices)
        labels = None if self.labels is None else self.labels[indices]
        return type(self)(self.descriptors.take(indices), self.kind, keypoints, self.image_size, labels)


@dataclass(frozen=True, eq=False)
class PrivateFeatures:
    """What may be sent: private descriptors, the public part of the keypoints, the defense and its guarantee.

    `defense` names the method and its parameters; it never holds a seed or a descriptor.
    """

    descriptors: Descriptors
    kind: str
    defense: Spec
    guarantee: Guarantee
    keypoints: Keypoints | None = None
    image_size: tuple[int, int] | None = None

    def __post_init__(self) -> None:
        _check_common(self.descriptors, self.kind, self.keypoints, self.image_size)

    def __len__(self) -> int:
        return len(self.descriptors)

    def take(self, indices: Integers) -> Self:
        """The features at `indices`, in that order."""
        keypoints = None if self.keypoints is None else self.keypoints.take(indices)
        return replace(self, descriptors=self.descriptors.take(indices), keypoints=keypoints)


def sent_by(spec: Spec) -> str:
    """The name of the defense that made what is sent: of a concealer with another one after it, that one."""
    return str(spec.get("then") or spec.get("name"))


def check_kind(kind: str) -> None:
    """Raise InputError unless `kind` is a plain lower-case name."""
    if not isinstance(kind, str) or not _KIND.fullmatch(kind):
        raise InputError("a descriptor kind is 1 to 64 lower-case letters, digits, '.', '_', '+' or '-'")


def _check_common(
    descriptors: Descriptors, kind: str, keypoints: Keypoints | None, image_size: tuple[int, int] | None
) -> None:
    check_kind(kind)
    if keypoints is not None and len(keypoints) != len(descriptors):
        raise InputError(f"{len(keypoints)} keypoints do not fit {len(descriptors)} descriptors")
    if image_size is not None and not all(0 < side <= _LARGEST_SIDE for side in image_size):
        raise InputError(f"image size must be (width, height) in pixels, got {image_size}")
