"""Weights of VGG16, as far as perceptual losses look at it, for tests with torch."""

from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor

# Channels of VGG16's convolutions, 0 for pooling, in the order of torchvision's `features`; more follow there.
VGG16 = (64, 64, 0, 128, 128, 0, 256, 256, 256, 0, 512)


def vgg16(seed: int = 0) -> dict[str, Tensor]:
    """Random weights named as torchvision names them."""
    torch.manual_seed(seed)
    made, before, place = {}, 3, 0
    for width in VGG16:
        if width:
            made[f"features.{place}.weight"] = torch.randn(width, before, 3, 3) / (3 * before**0.5)
            made[f"features.{place}.bias"] = torch.randn(width) / 10
            before = width
        place += 2 if width else 1
    made["classifier.6.bias"] = torch.randn(1000)
    return made


def write_vgg16(path: Path, seed: int = 0) -> Path:
    """The same in a safetensors file."""
    save_file(vgg16(seed), path)
    return path
