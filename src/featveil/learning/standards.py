"""Rows at mean 0 and spread 1 for training, and networks that read them as they are afterwards.

A concealer may send descriptors that hardly differ: all that they tell is in the last digits. A network that is trained
on them as they are learns next to nothing, which is no privacy: whoever subtracts the mean sees the rest.
"""

import copy
from dataclasses import dataclass
from typing import Self

import numpy as np
import torch
from torch import nn

from featveil.core.arrays import Float32
from featveil.learning.inverter_networks import Inverter

_CONSTANT = 1e-6  # a column that varies less is left as it is


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
        made = copy.deepcopy(network)
        weight, bias = _first_layer(made)
        mean, spread = (torch.from_numpy(values.astype(np.float64)) for values in (self.mean, self.spread))
        with torch.no_grad():
            plain = weight.cpu().double() / spread
            bias.copy_(bias.cpu().double() - plain @ mean)
            weight.copy_(plain)
        return made

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
