"""How long matching takes, as ratios to the matrix product that it cannot do without, in one run.

Every figure is CPU time on one thread, and each repetition measures the reference right before the method, so that a
noisy machine disturbs both alike. The reference of subspaces with n x n pairs is the product of (n (m + 1)) x d and
d x (n (m + 1)) matrices by the same BLAS library that the method uses.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from statistics import median

import numpy as np

from featveil.core import Flats, Points, SecureRandomness
from featveil.core.arrays import Float32
from featveil.defenses.lifting import Lifting
from featveil.distances import matrix, nearest_both_ways, nearest_pruned
from featveil.distances.threads import one_thread_each, single_threaded

# Rows of the reference product that are computed at a time, to bound its memory.
_STRIP = 2**26


@dataclass(frozen=True)
class Timing:
    """`seconds` of a method, and its `ratio` to the `reference` measured beside it."""

    method: str
    n: int
    dimension: int
    seconds: float
    reference: str
    ratio: float


def measure(
    first: Points, second: Points, dimensions: tuple[int, ...], repeat: int = 3, kind: str = "sift"
) -> Iterator[Timing]:
    """Time every matching method on two sets of raw descriptors, lifted to each of `dimensions`."""
    n, d = len(first), first.size
    raw = Clock(lambda: nearest_both_ways(first, second, 2), lambda: matrix(first, second), repeat)
    yield Timing("point-point, both ways", n, 0, raw.seconds, "point-point matrix", raw.ratio)
    for m in dimensions:
        lifting = Lifting("sub-hybrid", m).for_kind(kind)
        rng = np.random.default_rng(0)
        a, b = lifting.privatize(first, rng), lifting.privatize(second, rng)
        yield from _one_dimension(_Case(first, second, a, b, m, n, d), repeat)
    yield _lifting(first, repeat, kind)


@dataclass(frozen=True)
class _Case:
    first: Points
    second: Points
    a: Flats
    b: Flats
    m: int
    n: int
    d: int


def _one_dimension(case: _Case, repeat: int) -> Iterator[Timing]:
    m, n, d = case.m, case.n, case.d
    product = f"matrix product of {m + 1}n x {m + 1}n"
    both = Clock(lambda: nearest_both_ways(case.a, case.b, 2), _product(n * (m + 1), n * (m + 1), d), repeat)
    yield Timing("subspace-subspace, both ways", n, m, both.seconds, product, both.ratio)
    if n >= 4000 and m <= 8:
        pruned = Clock(lambda: nearest_pruned(case.a, case.b, 2), _product(n * (m + 1), n * (m + 1), d), repeat)
        yield Timing("subspace-subspace, pruned rows", n, m, pruned.seconds, product, pruned.ratio)
    one = Clock(lambda: nearest_both_ways(case.a, case.second, 2), _product(n * (m + 1), n, d), repeat)
    yield Timing("point-subspace, both ways", n, m, one.seconds, f"matrix product of {m + 1}n x n", one.ratio)
    raw = "point-point, both ways"
    for name, other in (("subspace-subspace, both ways", case.b), ("point-subspace, both ways", case.second)):
        clock = Clock(
            partial(nearest_both_ways, case.a, other), partial(nearest_both_ways, case.first, case.second), repeat
        )
        yield Timing(name, n, m, clock.seconds, raw, clock.ratio)


def _lifting(points: Points, repeat: int, kind: str) -> Timing:
    """Lifting 10,000 descriptors, against the two factorisations that its equations call for.

    Those are of the initial directions and of the redrawn basis (Eq. 10), as batched LAPACK calls.
    """
    count, m = 10_000, 4
    raw = Points(np.resize(points.values, (count, points.size)))
    lifting, secure = Lifting("sub-hybrid", m).for_kind(kind), SecureRandomness()
    directions = np.random.default_rng(0).standard_normal((2, count, points.size, m))
    clock = Clock(lambda: lifting.privatize(raw, secure), lambda: np.linalg.qr(directions), repeat)
    return Timing("lifting", count, m, clock.seconds, "two QR factorisations each", clock.ratio)


def _product(rows: int, columns: int, d: int) -> Callable[[], object]:
    rng = np.random.default_rng(0)
    left = rng.random((rows, d), np.float32)
    right = rng.random((columns, d), np.float32)
    strip = max(1, min(rows, _STRIP // columns))
    out = np.empty((strip, columns), np.float32)

    def run() -> Float32:
        for start in range(0, rows, strip):
            part = left[start : start + strip]
            np.dot(part, right.T, out=out[: len(part)])
        return out

    return run


class Clock:
    """Median CPU seconds of `method` and of its ratio to `reference`, after a warm-up call of each."""

    def __init__(self, method: Callable[[], object], reference: Callable[[], object], repeat: int) -> None:
        with single_threaded(), one_thread_each():
            reference()
            method()
            pairs = [(cpu_seconds(reference), cpu_seconds(method)) for _ in range(repeat)]
        self.seconds = median(own for _, own in pairs)
        self.ratio = median(own / other for other, own in pairs)


def cpu_seconds(call: Callable[[], object]) -> float:
    """CPU time of one call."""
    start = time.process_time()
    call()
    return time.process_time() - start
