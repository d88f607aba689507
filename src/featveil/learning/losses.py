"""How far a painted picture is from the photograph: pictures (b, 3, h, w), range 0 to 1."""

from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional

from featveil.core.errors import InputError
from featveil.learning.perceptual import load_features

Loss = Callable[[Tensor, Tensor], Tensor]

_LUMA = (0.299, 0.587, 0.114)
_SIGMA, _REACH = 1.5, 5  # of the window of SSIM
_SCALES = 3


def make_loss(name: str, weights: Path | None = None) -> Loss:
    """The loss called `name`: "structure", or "perceptual" with the features of a network in the file `weights`.

    It computes where its pictures are. Raises InputError for another name and where weights are missing or not wanted,
    FormatError for weights that it cannot use.
    """
    match name:
        case "structure":
            if weights is not None:
                raise InputError("a structure loss takes no weights: --loss-weights belongs to the perceptual one")
            return structure_loss
        case "perceptual":
            if weights is None:
                raise InputError("a perceptual loss needs --loss-weights: a file of VGG16 or EfficientNet-lite0")
            features = load_features(weights)

            def perceptual_loss(painted: Tensor, truth: Tensor) -> Tensor:
                return (painted - truth).abs().mean() + perceptual_error(features.to(truth.device), painted, truth)

            return perceptual_loss
    raise InputError(f"loss must be structure or perceptual, got {name!r:.40}")


def perceptual_error(features: nn.Module, painted: Tensor, truth: Tensor) -> Tensor:
    """Mean square difference of what a network for photographs sees, summed over its layers.

    Equation 4 of ninjadesc.txt, with means in place of sums, so that the size of the pictures does not weigh it.
    """
    with torch.no_grad():
        theirs = features(truth)
    pairs = zip(features(painted), theirs, strict=True)
    return torch.stack([functional.mse_loss(one, other) for one, other in pairs]).sum()


def structure_loss(painted: Tensor, truth: Tensor) -> Tensor:
    """Absolute error, half of 1 - SSIM, and error of the gradients at three scales; the last two on luma."""
    ours, theirs = luma(painted), luma(truth)
    error = (painted - truth).abs().mean() + 0.5 * (1 - ssim(ours, theirs))
    return error + gradient_error(ours, theirs)


def luma(pictures: Tensor) -> Tensor:
    """Grey pictures (b, 1, h, w)."""
    weights = pictures.new_tensor(_LUMA).view(1, 3, 1, 1)
    return (pictures * weights).sum(1, keepdim=True)


def ssim(first: Tensor, second: Tensor) -> Tensor:
    """Mean structural similarity of grey pictures: Gaussian window of sigma 1.5, range 1 (Wang et al., 2004)."""
    offsets = torch.arange(-_REACH, _REACH + 1, dtype=first.dtype, device=first.device)
    window = torch.exp(-(offsets**2) / (2 * _SIGMA**2))
    window = window / window.sum()
    stacked = torch.cat([first, second, first * first, second * second, first * second], dim=1)
    kernel = window.expand(5, 1, -1)
    smooth = functional.conv2d(stacked, kernel.unsqueeze(2), groups=5)
    smooth = functional.conv2d(smooth, kernel.unsqueeze(3), groups=5)
    mean1, mean2, square1, square2, product = smooth.chunk(5, dim=1)
    c1, c2 = 0.01**2, 0.03**2
    covariance = product - mean1 * mean2
    variances = square1 - mean1**2 + square2 - mean2**2
    similarity = (2 * mean1 * mean2 + c1) * (2 * covariance + c2)
    return (similarity / ((mean1**2 + mean2**2 + c1) * (variances + c2))).mean()


def gradient_error(first: Tensor, second: Tensor) -> Tensor:
    """Mean absolute error of horizontal and vertical differences of grey pictures, over three scales."""
    difference = first - second
    total = difference.new_zeros(())
    for _ in range(_SCALES):
        across = (difference[..., 1:] - difference[..., :-1]).abs().mean()
        down = (difference[..., 1:, :] - difference[..., :-1, :]).abs().mean()
        total = total + across + down
        difference = functional.avg_pool2d(difference, 2)
    return total
