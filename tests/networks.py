"""Concealing networks for tests: random ones, as wide as it takes or so narrow that they lose what they are given."""

from functools import cache
from pathlib import Path

import numpy as np

from featveil.core import ConcealingNetwork
from featveil.formats.network_files import save_network


@cache
def random_network(hidden: int = 256, seed: int = 0, rank: int | None = None, kind: str = "sift") -> ConcealingNetwork:
    """A network of random weights; of `rank` 0 it gives the same for every descriptor."""
    rng, d = np.random.default_rng(seed), 128
    output = rng.normal(size=(d, hidden)) / np.sqrt(hidden)
    if rank is not None:
        span = np.linalg.qr(rng.normal(size=(d, max(rank, 1))))[0][:, :rank]
        output = span @ (span.T @ output)
    return ConcealingNetwork(
        (rng.normal(size=(hidden, d)) / 3).astype(np.float32),
        (rng.normal(size=hidden) / 10).astype(np.float32),
        output.astype(np.float32),
        (rng.normal(size=d) / 100).astype(np.float32),
        kind,
        1.0,
        {"data": "none"},
    )


@cache
def identity_network(kind: str = "sift") -> ConcealingNetwork:
    """A network that leaves non-negative descriptors as they are."""
    eye, zero = np.eye(128, dtype=np.float32), np.zeros(128, np.float32)
    return ConcealingNetwork(eye, zero, eye, zero, kind)


def write_network(path: Path, network: ConcealingNetwork | None = None) -> Path:
    """`network`, or the usual random one, in a file."""
    network = network or random_network()
    weights = (network.hidden_weight, network.hidden_bias, network.output_weight, network.output_bias)
    save_network(path, *weights, network.kind, network.lambda_, network.card)
    return path
