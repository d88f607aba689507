"""Networks that turn features at keypoints back into a picture.

A small MLP reads each feature; its output is scattered to grids of five sizes, and a U-shaped network paints. No dense
map of descriptors is ever built. Two architectures (ninjadesc.txt, 5.2): "unet", pairs of convolutions, and "uresnet",
bottlenecks of a ResNet in encoder and decoder.
"""

from itertools import pairwise
from typing import Any, Literal, cast, get_args

import torch
from torch import Tensor, nn
from torch.nn import functional

from featveil.core.errors import InputError
from featveil.learning.encodings import STRIDES

Architecture = Literal["unet", "uresnet"]

WIDTHS = {"small": (24, 48, 96, 160, 224), "paper": (64, 128, 256, 512, 512)}
_HIDDEN = 256
SLOPE = 0.1


class Inverter(nn.Module):
    """Rows of features and their cells -> pictures (b, 3, h, w), unbounded but trained towards 0..1."""

    def __init__(self, columns: int, architecture: Architecture = "unet", size: str = "small") -> None:
        super().__init__()
        widths = WIDTHS[size]
        block: Any = {"unet": Plain, "uresnet": Residual}[architecture]
        self.reader = nn.Sequential(
            nn.Linear(columns, _HIDDEN), nn.GELU(), nn.Linear(_HIDDEN, _HIDDEN), nn.GELU(), nn.LayerNorm(_HIDDEN)
        )
        self.scatters = nn.ModuleList(nn.Linear(_HIDDEN, width) for width in widths)
        self.encoders = nn.ModuleList(block(width) for width in widths)
        pairs = list(pairwise(widths))
        self.downs = nn.ModuleList(nn.Conv2d(fine, coarse, 2, stride=2) for fine, coarse in pairs)
        self.ups = nn.ModuleList(nn.Conv2d(coarse, fine, 1) for fine, coarse in pairs)
        self.decoders = nn.ModuleList(block(width) for width in widths[:-1])
        self.painter = nn.Conv2d(widths[0], 3 * STRIDES[0] ** 2, 3, padding=1)

    def forward(self, rows: Tensor, cells: Tensor, frame: Tensor) -> Tensor:
        """`rows` (n, c) of all pictures, `cells` (n, levels), `frame` (b, h / 32, w / 32) for its shape only.

        The cells of picture i start at i times the cells of a picture; features without a cell are one past the last.
        """
        read = self.reader(rows)
        pictures, down, across = frame.shape[0], frame.shape[1], frame.shape[2]
        levels, current = [], None
        for place, (scatter, encoder) in enumerate(zip(self.scatters, self.encoders, strict=True)):
            step = STRIDES[-1] // STRIDES[place]
            values = scatter(read)
            grid = values.new_zeros((pictures * down * step * across * step + 1, values.shape[1]))
            grid = grid.scatter_add(0, cells[:, place : place + 1].expand(-1, values.shape[1]), values)[:-1]
            grid = grid.view(pictures, down * step, across * step, -1).permute(0, 3, 1, 2)
            current = encoder(grid if current is None else grid + self.downs[place - 1](current))
            levels.append(current)
        picture = levels.pop()
        for up, decoder in zip(reversed(self.ups), reversed(self.decoders), strict=True):
            picture = functional.interpolate(up(picture), scale_factor=2.0, mode="nearest")
            picture = decoder(picture + levels.pop())
        painted: Tensor = functional.pixel_shuffle(self.painter(picture), STRIDES[0])
        return painted + 0.5


def make_inverter(columns: int, architecture: str, size: str, seed: int) -> Inverter:
    """A new network, the same one for the same seed; raises InputError for another architecture or size."""
    check_architecture(architecture, size)
    torch.manual_seed(seed)
    return Inverter(columns, cast(Architecture, architecture), size)


def check_architecture(architecture: str, size: str) -> None:
    """Raise InputError unless there are such networks."""
    if architecture not in get_args(Architecture):
        raise InputError(f"architecture must be one of {', '.join(get_args(Architecture))}, got {architecture!r:.40}")
    if size not in WIDTHS:
        raise InputError(f"size must be one of {', '.join(WIDTHS)}, got {size!r:.40}")


class Plain(nn.Module):
    """Two convolutions, added to what came in: without that way past them training at a useful rate diverges."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(width, width, 3, padding=1)
        self.second = nn.Conv2d(width, width, 3, padding=1)
        _quieten(self.second)

    def forward(self, grid: Tensor) -> Tensor:
        """Of the same shape."""
        inner = functional.leaky_relu(self.first(functional.leaky_relu(grid, SLOPE)), SLOPE)
        made: Tensor = self.second(inner)
        return grid + made


class Residual(nn.Module):
    """Two bottlenecks of three convolutions, as in a ResNet-50, each with a way past it."""

    def __init__(self, width: int) -> None:
        super().__init__()
        inner = width // 2
        self.narrow = nn.ModuleList(nn.Conv2d(width, inner, 1) for _ in range(2))
        self.middle = nn.ModuleList(nn.Conv2d(inner, inner, 3, padding=1) for _ in range(2))
        self.wide = nn.ModuleList(nn.Conv2d(inner, width, 1) for _ in range(2))
        for wide in self.wide:
            _quieten(wide)

    def forward(self, grid: Tensor) -> Tensor:
        """Of the same shape."""
        for narrow, middle, wide in zip(self.narrow, self.middle, self.wide, strict=True):
            inner = functional.leaky_relu(narrow(functional.leaky_relu(grid, SLOPE)), SLOPE)
            grid = grid + wide(functional.leaky_relu(middle(inner), SLOPE))
        return grid


def _quieten(layer: nn.Module) -> None:
    """Let a block begin as nearly nothing but its way past."""
    with torch.no_grad():
        layer.get_parameter("weight").mul_(0.1)
