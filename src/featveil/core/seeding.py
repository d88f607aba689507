"""Seeded generators of a study's draws: each has its own, the same on every machine, unrelated to all others."""

import hashlib

import numpy as np

from featveil.core import InputError


def check_seed(seed: int) -> None:
    """Raise InputError unless `seed` is a whole number of at least 0 and below 2^63."""
    if type(seed) is not int or not 0 <= seed < 2**63:
        raise InputError(f"seed must be a whole number of at least 0 and below 2^63, got {seed!r:.40}")


def generator(seed: int, *names: str) -> np.random.Generator:
    """The generator of what `names` name together, for example a file and an attack on it."""
    return _generator(seed, "/".join(f"{len(name)}:{name}" for name in names))


def image_generator(seed: int, scene: str, image: int, scheme: str) -> np.random.Generator:
    """The generator of one image of a scene under one scheme."""
    return _generator(seed, f"{len(scene)}:{scene}/{image}/{scheme}")


def _generator(seed: int, key: str) -> np.random.Generator:
    words = np.frombuffer(hashlib.sha256(key.encode()).digest(), np.dtype("<u4"))
    return np.random.default_rng([seed, *(int(word) for word in words)])
