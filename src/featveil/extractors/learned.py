"""Learned descriptors at SIFT keypoints: HardTFeat, HardNet (Mishchuk et al., 2017), SOSNet (Tian et al., 2019).

These are raw descriptors: the picture can be rebuilt from them. Privatize them before they leave the device.
"""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from featveil.core import Features
from featveil.extractors.describers import NetworkDescriber
from featveil.extractors.images import Image
from featveil.extractors.patch_cutting import cut_patches
from featveil.extractors.sift import CONTRAST, Sift


@dataclass(frozen=True)
class LearnedPatches:
    """Patches at the strongest SIFT keypoints, described by a network with the weights in a file.

    `network` is hardtfeat, hardnet or sosnet, and the kind of the features. Raises InputError for another one, or
    when there is no such file; the file is read when the first image is.
    """

    network: str
    weights: Path
    max_features: int = 2048
    contrast_threshold: float = CONTRAST

    def __post_init__(self) -> None:
        object.__setattr__(self, "weights", Path(self.weights))
        self._detector()
        NetworkDescriber(self.network, self.weights)

    def extract(self, image: Image) -> Features:
        """Features of a uint8 image (h, w) or RGB (h, w, 3), strongest first; n = 0 when there is none.

        Raises InputError for another kind of array, or weights of another network.
        """
        features = self._detector().extract(image)
        assert features.keypoints is not None
        described = self._describer.describe(cut_patches(image, features.keypoints))
        return Features(described, self.network, features.keypoints, features.image_size)

    def _detector(self) -> Sift:
        return Sift(max_features=self.max_features, contrast_threshold=self.contrast_threshold)

    @cached_property
    def _describer(self) -> NetworkDescriber:
        return NetworkDescriber(self.network, self.weights)
