"""The way back through a concealing network, learned from descriptors that the adversary conceals itself.

Three ways are tried, and the one with the least error on descriptors that were held out is taken: the nearest concealed
descriptor that is known; a ridge regression on the concealed descriptor and random rectified features of it; and from
there a search for the descriptor that the network, which is public, turns into what was seen (refining.py).
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Self

import numpy as np

from featveil.attacks.discriminator_parts.candidates import precision_of
from featveil.attacks.unconceal_parts.refining import Expected, refine
from featveil.core import ConcealingNetwork, Points
from featveil.core.arrays import Float32, Float64, Floats
from featveil.databases import Database
from featveil.databases.entries import unit_rows
from featveil.distances import nearest

_SEED = 0x0C0D
_HELD_OUT, _REFINED = 1024, 64  # descriptors that ways are compared on; the search, which is slow, on few of them
_FEWEST = 32  # descriptors that a regression is learned from
_STRENGTHS = (1e-6, 1e-5, 1e-4, 1e-3, 1e-2)  # of the ridge, as a share of the mean square of a column
_SPREAD, _SHIFT = 1.5, 0.3  # of the random features of unit vectors
# A search that does not come as near to what it seeks is not believed: what it seeks is then a guess itself, and wrong.
# Measured with random networks: up to here the search is nearer to the truth than its start, from there on it is not.
_BELIEVED = 0.02
_ROWS = 4096
_NOTHING = 1e-6

Way = Callable[[Float32], Float32]


@dataclass(frozen=True, eq=False)
class Inverse:
    """Concealed descriptors (n, d) -> estimates of the raw ones; `described` says which way, and how well it did.

    `quick` is the best way that does not search.
    """

    way: Way
    described: str
    quick: Way

    def __call__(self, concealed: Float32) -> Float32:
        """Estimates (n, d) of norm 1."""
        return self.way(concealed)

    @classmethod
    def learn(cls, database: Database, network: ConcealingNetwork, examples: int, features: int, steps: int) -> Self:
        """From at most `examples` entries of a raw database, with `features` random ones and `steps` of the search."""
        rng = np.random.default_rng(_SEED)
        # Each once: a descriptor that is known must not be held out as well.
        raw = unit_rows(rng.permutation(np.unique(database.values, axis=0))[: examples + _HELD_OUT])
        held = min(_HELD_OUT, len(raw) // 5)
        known, asked = raw[held:], raw[:held]
        seen = network.apply(known)
        ways: dict[str, Way] = {"nearest": _Nearest(seen, known)}
        if len(known) >= _FEWEST and held:
            concealed = network.apply(asked)
            ways["regression"] = regression = _regression(seen, known, concealed, asked, features, rng)
            precision = precision_of(regression(concealed) - asked)
            ways["search"] = _Search(network, regression, precision, steps, regression.signed)
        errors = {name: _error(way, network, asked[:_REFINED]) for name, way in ways.items()} if held else {}
        best = min(errors, key=lambda name: errors[name]) if errors else "nearest"
        listed = ", ".join(f"{name} {error:.2f}" for name, error in errors.items())
        described = f"by {best}" + (f" (mean error on its own descriptors: {listed})" if listed else "")
        return cls(ways[best], described, ways.get("regression", ways["nearest"]))


@lru_cache(maxsize=4)  # learning takes longer than most attacks
def learned_inverse(
    database: Database, network: ConcealingNetwork, examples: int, features: int, steps: int
) -> Inverse:
    """`Inverse.learn`, once for each database and network."""
    return Inverse.learn(database, network, examples, features, steps)


@dataclass(frozen=True, eq=False)
class _Nearest:
    """The raw descriptor of the nearest concealed one."""

    seen: Float32
    known: Float32

    def __call__(self, concealed: Float32) -> Float32:
        return self.known[nearest(Points(concealed), Points(self.seen), 1).indices[:, 0]]


@dataclass(frozen=True, eq=False)
class _Regression:
    """A linear map of the concealed descriptor, rectified random directions of it, and 1."""

    directions: Float32
    shifts: Float32
    weights: Float32
    signed: bool

    def __call__(self, concealed: Float32) -> Float32:
        parts = [
            _columns(concealed[start : start + _ROWS], self.directions, self.shifts) @ self.weights
            for start in range(0, len(concealed), _ROWS)
        ]
        return plausible(np.concatenate(parts), self.signed) if parts else np.empty_like(concealed)


def _regression(
    seen: Float32, known: Float32, concealed: Float32, asked: Float32, features: int, rng: np.random.Generator
) -> _Regression:
    """The ridge regression from `seen` to `known` (s, d) of the strength that does best from `concealed` to `asked`."""
    d = seen.shape[1]
    directions = (rng.normal(size=(d, features)) * _SPREAD).astype(np.float32)
    shifts = (rng.normal(size=features) * _SHIFT).astype(np.float32)
    products, targets = np.zeros((d + features + 1, d + features + 1)), np.zeros((d + features + 1, d))
    for start in range(0, len(seen), _ROWS):
        columns = _columns(seen[start : start + _ROWS], directions, shifts)
        products += columns.T @ columns
        targets += columns.T @ known[start : start + _ROWS]
    signed, share = bool((known < 0).any()), float(products.trace()) / len(products)
    regressions = []
    for strength in _STRENGTHS:
        weights = np.linalg.solve(products + strength * share * np.eye(len(products)), targets).astype(np.float32)
        regressions.append(_Regression(directions, shifts, weights, signed))
    return min(regressions, key=lambda one: float(np.linalg.norm(one(concealed) - asked, axis=1).mean()))


def _columns(concealed: Float32, directions: Float32, shifts: Float32) -> Float32:
    rectified = np.maximum(concealed @ directions + shifts, 0) / np.float32(np.sqrt(max(len(shifts), 1)))
    return np.concatenate([concealed, rectified, np.ones((len(concealed), 1), np.float32)], axis=1)


@dataclass(frozen=True, eq=False)
class _Search:
    """From the estimate of `start`, whose errors have `precision` (d, d), to what the network turns into what was seen.

    Where that is nothing, the start is the answer.
    """

    network: ConcealingNetwork
    start: Way
    precision: Float64
    steps: int
    signed: bool

    def __call__(self, concealed: Float32) -> Float32:
        first = self.start(concealed)
        if len(first) == 0:
            return first
        start = first.astype(np.float64)
        expected = Expected(start, self.precision, self.signed)
        refined = plausible(refine(self.network, Points(concealed), start, expected, self.steps), self.signed)
        misfit = np.linalg.norm(self.network.apply(refined) - concealed, axis=1)
        return np.where((misfit < _BELIEVED)[:, None], refined, first)


def plausible(values: Floats, signed: bool) -> Float32:
    """`values` (n, d) at norm 1, without what is negative unless descriptors are `signed`; if nothing is left, even."""
    cut = values if signed else np.maximum(values, 0)
    norms = np.linalg.norm(cut, axis=1, keepdims=True)
    even = np.full_like(cut, 1 / np.sqrt(cut.shape[1]))
    return np.asarray(np.divide(cut, norms, out=even, where=norms > _NOTHING), np.float32)


def _error(way: Way, network: ConcealingNetwork, raw: Float32) -> float:
    return float(np.linalg.norm(way(network.apply(raw)) - raw, axis=1).mean())
