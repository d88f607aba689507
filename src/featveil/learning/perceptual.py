"""What a network that was trained to recognise photographs sees in a picture: for perceptual losses.

VGG16 as the papers have it (layers 2, 9 and 16, counted from one with activations and pooling: after the activations
of its first, fourth and seventh convolution), or the first eleven blocks of EfficientNet-lite0, which pads and scales
as TensorFlow does. Weights come from a file that the user has.
"""

from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from featveil.core.errors import FormatError, InputError

_Scaling = tuple[tuple[float, float, float], tuple[float, float, float]]  # means and deviations of red, green, blue

_VGG_SCALING: _Scaling = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
_VGG = (64, 64, 0, 128, 128, 0, 256, 256, 256)  # channels of each convolution; 0 halves the picture
_VGG_SEEN = (1, 8, 15)  # counted from zero
_LITE_SCALING: _Scaling = (127 / 255,) * 3, (128 / 255,) * 3
# Expansion, kernel, stride and channels of the blocks.
_LITE = (
    (1, 3, 1, 16),
    (6, 3, 2, 24),
    (6, 3, 1, 24),
    (6, 5, 2, 40),
    (6, 5, 1, 40),
    (6, 3, 2, 80),
    (6, 3, 1, 80),
    (6, 3, 1, 80),
    (6, 5, 1, 112),
    (6, 5, 1, 112),
    (6, 5, 1, 112),
)
_LITE_SEEN = (0, 2, 4, 10)


def load_weights(path: Path) -> dict[str, Tensor]:
    """The tensors of a file, read without running code in it: safetensors, or torch's own with weights only.

    Raises InputError when there is none and FormatError when it is something else.
    """
    if not path.is_file():
        raise InputError(f"there is no weights file {path}")
    try:
        if path.suffix == ".safetensors":
            return load_file(path)
        loaded: Any = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # torch raises many kinds, of which none is promised
        raise FormatError(f"{path} is no file of weights alone, or damaged") from error
    state = loaded.get("state_dict", loaded) if isinstance(loaded, dict) else None
    if not isinstance(state, dict) or not all(isinstance(value, Tensor) for value in state.values()):
        raise FormatError(f"{path} holds something else than weights by name")
    return state


def load_features(path: Path) -> nn.Module:
    """Pictures (b, 3, h, w) in 0 to 1 -> what each of some layers sees; its weights do not change.

    Raises as `load_weights` does, and FormatError for weights of another network or that are no numbers.
    """
    weights = load_weights(path)
    network: nn.Module = _Vgg() if "features.0.weight" in weights else _Lite()
    wanted = network.state_dict()
    kept = {name: weights[name] for name in wanted if name in weights}
    missing = [name for name in wanted if name not in kept and not name.endswith("num_batches_tracked")]
    if missing or any(kept[name].shape != wanted[name].shape for name in kept):
        raise FormatError(f"{path} holds weights of another network than VGG16 or EfficientNet-lite0")
    if not all(value.isfinite().all() for value in kept.values()):
        raise FormatError(f"{path} holds weights that are no numbers")
    network.load_state_dict(kept, strict=False)
    return network.eval().requires_grad_(False)


def _normalised(pictures: Tensor, scaling: _Scaling) -> Tensor:
    mean, deviation = (pictures.new_tensor(values).view(1, 3, 1, 1) for values in scaling)
    return (pictures - mean) / deviation


class _Vgg(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        before = 3
        for width in _VGG:
            layers += [nn.MaxPool2d(2)] if width == 0 else [nn.Conv2d(before, width, 3, padding=1), nn.ReLU()]
            before = width or before
        self.features = nn.Sequential(*layers)

    def forward(self, pictures: Tensor) -> list[Tensor]:
        seen, current = [], _normalised(pictures, _VGG_SCALING)
        for place, layer in enumerate(self.features):
            current = layer(current)
            if place in _VGG_SEEN:
                seen.append(current)
        return seen


class _Lite(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self._conv_stem = _Padded(3, 32, 3, stride=2, bias=False)
        self._bn0 = nn.BatchNorm2d(32, eps=1e-3)
        blocks, before = [], 32
        for expansion, kernel, stride, width in _LITE:
            blocks.append(_LiteBlock(before, expansion, kernel, stride, width))
            before = width
        self._blocks = nn.ModuleList(blocks)

    def forward(self, pictures: Tensor) -> list[Tensor]:
        current = nn.functional.relu6(self._bn0(self._conv_stem(_normalised(pictures, _LITE_SCALING))))
        seen = []
        for place, block in enumerate(self._blocks):
            current = block(current)
            if place in _LITE_SEEN:
                seen.append(current)
        return seen


class _Padded(nn.Conv2d):
    """A convolution that pads as TensorFlow does: of an odd number of pixels, the odd one is on the right and below."""

    def forward(self, grid: Tensor) -> Tensor:
        edges: list[int] = []
        for length, kernel, stride in zip(grid.shape[:1:-1], self.kernel_size[::-1], self.stride[::-1], strict=True):
            total = max((-(-length // stride) - 1) * stride + kernel - length, 0)
            edges += [total // 2, total - total // 2]
        return super().forward(nn.functional.pad(grid, edges))


class _LiteBlock(nn.Module):
    def __init__(self, before: int, expansion: int, kernel: int, stride: int, width: int) -> None:
        super().__init__()
        inner = before * expansion
        if expansion > 1:
            self._expand_conv = nn.Conv2d(before, inner, 1, bias=False)
            self._bn0 = nn.BatchNorm2d(inner, eps=1e-3)
        self._depthwise_conv = _Padded(inner, inner, kernel, stride, groups=inner, bias=False)
        self._bn1 = nn.BatchNorm2d(inner, eps=1e-3)
        self._project_conv = nn.Conv2d(inner, width, 1, bias=False)
        self._bn2 = nn.BatchNorm2d(width, eps=1e-3)
        self._expands, self._passes = expansion > 1, stride == 1 and before == width

    def forward(self, grid: Tensor) -> Tensor:
        inner = nn.functional.relu6(self._bn0(self._expand_conv(grid))) if self._expands else grid
        inner = nn.functional.relu6(self._bn1(self._depthwise_conv(inner)))
        projected: Tensor = self._bn2(self._project_conv(inner))
        return grid + projected if self._passes else projected
