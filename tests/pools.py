"""Pools for tests: real descriptors of the demo's second picture and of the built-in database."""

import numpy as np

from featveil.core.arrays import Float32
from featveil.databases import builtin
from featveil.stores.pool import Pool


def descriptors(start: int = 0, count: int = 4000, kind: str = "sift") -> Float32:
    """Some descriptors of the built-in database, which stand for those of photographs."""
    return builtin(kind).points()[start : start + count]


def memory_pool(seed: int = 0, start: int = 8000, count: int = 4000, kind: str = "sift") -> Pool:
    """A pool that is the same for the same arguments."""
    return Pool.in_memory(descriptors(start, count, kind), kind, np.random.default_rng(seed))
