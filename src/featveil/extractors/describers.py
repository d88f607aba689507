"""Patches -> Points: descriptors of single patches, by SIFT or by a network whose weights the user gives.

These are raw descriptors: the picture can be rebuilt from them. Privatize them before they leave the device.
"""

import hashlib
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import cv2
import numpy as np

from featveil.core import InputError, MissingExtraError, Points
from featveil.core.arrays import Float32
from featveil.extractors.patch_cutting import REACH, Patches, check_patches
from featveil.extractors.sift import SiftKind, unit_descriptors

if TYPE_CHECKING:
    from featveil.learning.patch_networks import PatchNetwork

NETWORKS = ("hardtfeat", "hardnet", "sosnet")

# OpenCV rounds the place of a keypoint to whole pixels, so the side is odd. Sigma is then 1.67 pixels, about the 1.6
# of the first layer of SIFT's scale space.
_SIDE = 25
_BORDER = 8
_LARGEST_WEIGHTS = 2**30


class PatchDescriber(Protocol):
    """Describes patches alike, wherever they come from."""

    @property
    def kind(self) -> str:
        """The name of the descriptors."""
        ...

    @property
    def digest(self) -> str | None:
        """What tells two sets of weights apart; None where there are none."""
        ...

    def describe(self, patches: Patches) -> Points:
        """Descriptors (n, d) of unit norm for uint8 patches (n, 64, 64); all values equal where one says nothing."""
        ...


@dataclass(frozen=True)
class SiftDescriber:
    """OpenCV's SIFT at the centre of each patch: what SIFT gives at the patch's keypoint in the image."""

    kind: SiftKind = "sift"

    @property
    def digest(self) -> None:
        """SIFT has no weights."""
        return

    def describe(self, patches: Patches) -> Points:
        """Descriptors (n, 128)."""
        sift, sigma = cv2.SIFT.create(), _SIDE / (2 * REACH)
        middle = _BORDER + (_SIDE - 1) / 2
        keypoint = [cv2.KeyPoint(middle, middle, 2 * sigma, 0, 0, 0)]  # no response, octave 0
        values = np.zeros((len(check_patches(patches)), 128), np.float32)
        for place, patch in enumerate(patches):
            small = cv2.resize(patch, (_SIDE, _SIDE), interpolation=cv2.INTER_AREA)
            padded = cv2.copyMakeBorder(small, _BORDER, _BORDER, _BORDER, _BORDER, cv2.BORDER_REPLICATE)
            values[place] = sift.compute(padded, keypoint)[1][0]
        return _unit(unit_descriptors(values, self.kind)[0])


@dataclass(frozen=True)
class NetworkDescriber:
    """A network of NETWORKS with the weights in a file, which is read when the first patch is described.

    Raises InputError for an unknown network or a missing file.
    """

    kind: str
    weights: Path

    def __post_init__(self) -> None:
        if self.kind not in NETWORKS:
            raise InputError(f"unknown patch network {self.kind!r}: use one of {', '.join(NETWORKS)}")
        object.__setattr__(self, "weights", Path(self.weights))
        if not self.weights.is_file():
            raise InputError(f"there is no weights file {self.weights}")
        if self.weights.stat().st_size > _LARGEST_WEIGHTS:
            raise InputError(f"{self.weights} is larger than {_LARGEST_WEIGHTS >> 20} MB: no weights of {self.kind}")

    @cached_property
    def digest(self) -> str:
        """The first 16 digits of the file's SHA-256."""
        try:
            with self.weights.open("rb") as file:
                return hashlib.file_digest(file, "sha256").hexdigest()[:16]
        except OSError as error:
            raise InputError(f"cannot read {self.weights}: {error.strerror}") from error

    def describe(self, patches: Patches) -> Points:
        """Descriptors (n, 128). Raises InputError when the weights are of another network."""
        return _unit(self._network.describe(check_patches(patches)))

    @cached_property
    def _network(self) -> "PatchNetwork":
        try:
            from featveil.learning.patch_networks import load_patch_network
        except ImportError as error:
            raise MissingExtraError("torch", "learning") from error
        return load_patch_network(self.kind, self.weights)


def make_describer(kind: str, weights: str | Path | None = None) -> PatchDescriber:
    """The describer of `kind`: sift, rootsift, or a network with its weights file.

    Raises InputError for an unknown kind, and where weights are missing or not wanted.
    """
    if kind in NETWORKS:
        if weights is None:
            raise InputError(f"{kind} is a network: give its weights file")
        return NetworkDescriber(kind, Path(weights))
    if kind not in ("sift", "rootsift"):
        raise InputError(f"unknown patch descriptor {kind!r}: use one of sift, rootsift, {', '.join(NETWORKS)}")
    if weights is not None:
        raise InputError(f"{kind} has no weights: leave the weights file out, or name one of {', '.join(NETWORKS)}")
    return SiftDescriber("sift" if kind == "sift" else "rootsift")


def _unit(values: Float32) -> Points:
    """Points of unit norm; what has no direction, as that of a flat patch, gets the one that favours no component."""
    norms = np.linalg.norm(values.astype(np.float64), axis=1, keepdims=True)
    even = np.float32(1 / np.sqrt(values.shape[1]))
    return Points(np.where(norms > 0, values / np.where(norms > 0, norms, 1), even).astype(np.float32))
