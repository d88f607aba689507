"""NinjaNet (ninjadesc.txt, 3.1) and the losses that it is trained with.

The paper gives the network as a figure only, and says: an MLP of N = 1 submodule, dropout 0.1, output of the size of
the base descriptor, normalised. Ours has one hidden layer, eight times as wide as the descriptor, and no batch
normalisation: patches and images go through it in turns, and their statistics differ.
"""

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from featveil.core.arrays import Float32

_DROPOUT = 0.1
_WIDER = 8
_MARGIN = 1.0
_NEIGHBOURS = 8  # of each descriptor, whose distances the regularisation compares
_TINY = 1e-8


class NinjaNet(nn.Module):
    """Descriptors (n, d) -> concealed ones (n, d) of unit norm."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.hidden = nn.Linear(size, _WIDER * size)
        self.output = nn.Linear(_WIDER * size, size)
        self.dropout = nn.Dropout(_DROPOUT)

    def forward(self, descriptors: Tensor) -> Tensor:
        """Of the same shape."""
        inner = self.dropout(functional.relu(self.hidden(descriptors)))
        return functional.normalize(self.output(inner), dim=1)

    def weights(self) -> tuple[Float32, Float32, Float32, Float32]:
        """Hidden weights and biases, output weights and biases."""
        tensors = (self.hidden.weight, self.hidden.bias, self.output.weight, self.output.bias)
        first, second, third, fourth = (tensor.detach().cpu().numpy().astype(np.float32) for tensor in tensors)
        return first, second, third, fourth


def utility_loss(anchors: Tensor, positives: Tensor, second_order: float = 1.0) -> Tensor:
    """Triplets with the hardest negative of the batch, and second-order similarity (eq. 2; Tian et al., 2019).

    Row i of `anchors` and of `positives` (n, d) show the same point, all others do not. Where all are equal it is 1: a
    base descriptor for which it stays above that collapses, unless `second_order` similarity weighs less.
    """
    across, within, beyond = (
        _distances(*pair) for pair in ((anchors, positives), (anchors, anchors), (positives, positives))
    )
    own = across.diagonal()
    barred = 10.0 * torch.eye(len(anchors), device=anchors.device)
    nearest = torch.minimum((across + barred).min(dim=0).values, (across + barred).min(dim=1).values)
    triplets = functional.relu(_MARGIN + own - nearest).square().mean()
    count = min(_NEIGHBOURS, len(anchors) - 1)
    near = torch.zeros_like(within, dtype=torch.bool)
    for distances in (within, beyond):
        chosen = (distances.detach() + barred).topk(count, largest=False).indices
        near.scatter_(1, chosen, value=True)
    differences = (within - beyond).square() * near
    return triplets + second_order * (differences.sum(dim=1) + _TINY).sqrt().mean()


def _distances(first: Tensor, second: Tensor) -> Tensor:
    """Euclidean distances (n, k) of rows of unit norm."""
    return (2 - 2 * first @ second.T).clamp_min(_TINY).sqrt()
