from dataclasses import replace

import numpy as np
import pytest

from featveil.core import Points, Subspaces
from featveil.core.arrays import Float32
from featveil.databases import builtin
from featveil.defenses import Lifting
from featveil.distances import nearest, nearest_pruned, pruning
from featveil.distances.backends import Frames, walker
from featveil.distances.frames import frame
from reference import random_descriptors


@pytest.mark.parametrize(("m1", "m2"), [(2, 2), (4, 4), (4, 0), (0, 3), (12, 12)])
@pytest.mark.parametrize("axes", [4, 48])
def test_equals_the_full_search_on_real_descriptors(m1: int, m2: int, axes: int) -> None:
    rng = np.random.default_rng(m1 + axes)
    entries = builtin("sift").points()
    sets = []
    for m, part in ((m1, slice(0, 300)), (m2, slice(200, 600))):  # a third of the rows have an exact partner
        points = Points(entries[part])
        sets.append(Lifting("random", m).privatize(points, rng) if m else points)
    a, b = sets
    full, pruned = nearest(a, b, 2), nearest_pruned(a, b, 2, axes)
    assert (full.indices == pruned.indices).all()
    assert np.allclose(full.distances, pruned.distances, atol=1e-6)


def test_few_bounds_are_low() -> None:
    """Count the pairs whose bound lies below the final second best: few, on descriptors with a spectrum."""
    rng = np.random.default_rng(0)
    entries = builtin("sift").points()
    a = Lifting("random", 2).privatize(Points(entries[:200]), rng)
    b = Lifting("random", 2).privatize(Points(entries[100:1100]), rng)
    pair = frame(a, b)
    axes = pruning._principal_axes(pair.first, pair.second, 48)
    projected = walker(pruning._projected(pair.first, axes), pruning._projected(pair.second, axes))
    bounds = np.concatenate([projected.matrix(stripe) for stripe in projected.stripes()])
    second = (nearest(a, b, 2).distances[:, 1] / pair.scale) ** 2
    assert (bounds < second[:, None]).mean() < 0.3
    true = np.concatenate([walker(pair.first, pair.second).matrix(s) for s in projected.stripes()])
    assert (bounds <= true + 1e-5).all()


def test_bound_holds_where_projection_loses_rank() -> None:
    rng = np.random.default_rng(1)
    a, b = random_descriptors(20, 6, rng, 16), random_descriptors(30, 6, rng, 16)
    assert isinstance(a, Subspaces)
    assert (nearest_pruned(a, b, 2, axes=3).indices == nearest(a, b, 2).indices).all()


def test_pairs_with_a_high_bound_are_not_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """Entries whose bound is made too high are missed, though they are nearest: nobody computed their distances."""
    rng = np.random.default_rng(0)
    entries = builtin("sift").points()
    a = Lifting("random", 2).privatize(Points(entries[:100]), rng)
    b = Lifting("random", 2).privatize(Points(entries[:1000]), rng)
    hidden, real = nearest(a, b, 1).indices[:, 0], pruning._projected

    def raised(frames: Frames, axes: Float32) -> Frames:
        seen = real(frames, axes)
        if len(frames) == len(a):
            return seen
        stack, norms = seen.stack.copy(), seen.norms.copy()
        stack[hidden, 0] *= 100
        norms[hidden] *= 100**2
        return replace(seen, stack=stack, norms=norms)

    assert (nearest_pruned(a, b, 1, 48).indices[:, 0] == hidden).all()
    monkeypatch.setattr(pruning, "_projected", raised)
    assert not np.isin(nearest_pruned(a, b, 1, 48).indices, hidden).any()
