"""Networks that turn features at keypoints back into a picture.

A small MLP reads each feature; its output is scattered to grids of five sizes, and a U-shaped network paints. No dense
map of descriptors is ever built. Two architectures (ninjadesc.txt, 5.2): "unet", pairs of convolutions, and "uresnet",
bottlenecks of a ResNet in encoder and decoder.

And rows at mean 0 and spread 1 for training, and networks that read them as they are afterwards. A concealer may send
descriptors that hardly differ: all that they tell is in the last digits. A network that is trained on them as they are
learns next to nothing, which is no privacy: whoever subtracts the mean sees the rest.
"""

import copy
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal, Self, cast, get_args

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from featveil.core.arrays import Float32
from featveil.core.errors import InputError
from featveil.learning.encodings import STRIDES

Architecture = Literal["unet", "uresnet"]

WIDTHS = {"small": (24, 48, 96, 160, 224), "paper": (64, 128, 256, 512, 512)}
_HIDDEN = 256
SLOPE = 0.1
_CONSTANT = 1e-6  # a column that varies less is left as it is


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
        added: Tensor = self.second(inner)
        return grid + added


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


@dataclass(frozen=True, eq=False)
class Standard:
    """The `mean` (c,) and the `spread` (c,) of each column of rows."""

    mean: Float32
    spread: Float32

    @classmethod
    def of(cls, rows: Float32) -> Self:
        """Those of `rows` (n, c); columns that do not vary keep their values."""
        mean, spread = rows.mean(axis=0, dtype=np.float64), rows.std(axis=0, dtype=np.float64)
        varies = spread > _CONSTANT
        return cls(
            np.where(varies, mean, 0).astype(np.float32),
            np.where(varies, spread, 1).astype(np.float32),
        )

    def apply(self, rows: Float32) -> Float32:
        """Rows (n, c) at this standard."""
        return (rows - self.mean) / self.spread

    def folded(self, network: Inverter) -> Inverter:
        """The network that makes of rows as they are what `network` makes of standardised ones."""
        folded = copy.deepcopy(network)
        weight, bias = _first_layer(folded)
        mean, spread = (torch.from_numpy(values.astype(np.float64)) for values in (self.mean, self.spread))
        with torch.no_grad():
            plain = weight.cpu().double() / spread
            bias.copy_(bias.cpu().double() - plain @ mean)
            weight.copy_(plain)
        return folded

    def unfold(self, network: Inverter) -> None:
        """Let a network that was trained on rows as they are read standardised ones."""
        weight, bias = _first_layer(network)
        mean, spread = (torch.from_numpy(values.astype(np.float64)) for values in (self.mean, self.spread))
        with torch.no_grad():
            plain = weight.cpu().double()
            bias.copy_(bias.cpu().double() + plain @ mean)
            weight.copy_(plain * spread)


def _first_layer(network: Inverter) -> tuple[torch.Tensor, torch.Tensor]:
    first = network.reader[0]
    assert isinstance(first, nn.Linear)
    return first.weight, first.bias
