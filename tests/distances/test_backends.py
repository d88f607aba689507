"""Compiled functions are remembered by what they do, and another backend is one class and one name."""

from typing import Any

import numba
import numpy as np
import pytest

from featveil.core import InputError
from featveil.core.arrays import Float32
from featveil.distances import Gallery, backends, matrix, nearest, nearest_both_ways, nearest_pruned
from featveil.distances.backends import MARGIN, NEAR_PARALLEL, UNSURE, Columns, Frames, Rows, Walker, compiling
from featveil.distances.backends.numba_parts import keeping
from reference import random_descriptors

STEP = 1
inner: compiling.Kernel = compiling.unbound


def add(x: Any) -> None:
    x[0] += STEP


def twice(x: Any) -> None:
    inner(x)
    inner(x)


def test_generated_code_is_named_after_its_text() -> None:
    one = compiling.compiled("add", "def add(x):\n    x[0] += 1\n")
    two = compiling.compiled("add", "def add(x):\n    x[0] += 2\n")
    values = np.zeros(1)
    one(values)
    two(values)
    assert values[0] == 3
    assert one.__name__ != two.__name__


def test_specialised_functions_are_named_after_what_is_bound() -> None:
    one, two = compiling.specialised(add), compiling.specialised(add, STEP=2)
    outer_one, outer_two = (compiling.specialised(twice, inner=step) for step in (one, two))
    values = np.zeros(1)
    outer_one(values)
    assert values[0] == 2
    outer_two(values)
    assert values[0] == 6
    assert len({function.__qualname__ for function in (one, two, outer_one, outer_two)}) == 4
    assert compiling.specialised(add, STEP=2).__qualname__ == two.__qualname__


def test_a_template_cannot_be_called_as_it_is() -> None:
    with pytest.raises(NotImplementedError):
        twice(np.zeros(1))


def test_a_change_deep_inside_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    keep: Any = keeping.keep_columns
    before = compiling._fingerprint(keep.py_func)
    monkeypatch.setattr(keeping, "MARGIN", np.float32(1))
    assert compiling._fingerprint(keep.py_func) != before
    monkeypatch.undo()
    monkeypatch.setattr(keeping, "_list", keeping.insert)
    assert compiling._fingerprint(keep.py_func) != before


def test_without_a_folder_to_cache_in_it_still_compiles(monkeypatch: pytest.MonkeyPatch) -> None:
    original: Any = numba.njit

    def njit(**options: object) -> object:
        if options.get("cache"):
            raise RuntimeError("cannot cache function: no locator available")
        return original(**options)

    monkeypatch.setattr(numba, "njit", njit)
    double = compiling.jit(compiling.REORDER)(lambda x: 2 * x)
    assert double(4) == 8


class PlainWalker:
    """The smallest backend: all pairs at once, in NumPy."""

    walks = 0

    def __init__(self, first: Frames, second: Frames) -> None:
        type(self).walks += 1
        self.first, self.second = first, second

    def against(self, first: Frames) -> Walker:
        return PlainWalker(first, self.second)

    def stripes(self) -> list[slice]:
        return [slice(start, min(start + 50, len(self.first))) for start in range(0, len(self.first), 50)]

    def matrix(self, stripe: slice) -> Float32:
        point, own = self.first.stack[stripe, 0], self.first.stack[stripe, 1:]
        other, directions = self.second.stack[:, 0], self.second.stack[:, 1:]
        squared = self.first.norms[stripe, None] + self.second.norms[None] - 2 * point @ other.T
        c, a = np.einsum("id,jkd->ijk", point, directions), np.einsum("ipd,jd->ijp", own, other)
        if self.first.complementary or self.second.complementary:
            return np.asarray(squared + (c**2).sum(axis=2) + (a**2).sum(axis=2), np.float32).clip(0)
        g = np.einsum("ipd,jkd->ijpk", own, directions)
        u = a + np.einsum("ijpk,ijk->ijp", g, c)
        n = np.eye(own.shape[1]) - g @ g.swapaxes(2, 3)
        apart = np.linalg.eigvalsh(n).min(axis=2, initial=1) >= NEAR_PARALLEL
        n[~apart] = np.eye(own.shape[1])
        squared = squared - (c**2).sum(axis=2) - np.einsum("ijp,ijp->ij", u, np.linalg.solve(n, u[..., None])[..., 0])
        return np.where(apart, squared.clip(0), UNSURE).astype(np.float32)

    def nearest(self, k: int) -> Rows:
        squared = self.matrix(slice(0, len(self.first)))
        order = np.argsort(squared, axis=1)[:, :k].astype(np.int32)
        room = (0, 0), (0, k - order.shape[1])
        values = np.pad(np.take_along_axis(squared, order, axis=1), room, constant_values=backends.FAR)
        return Rows(values, np.pad(order, room, constant_values=-1))

    def nearest_both_ways(self, k: int) -> tuple[Rows, Columns]:
        squared = self.matrix(slice(0, len(self.first)))
        two = np.sort(np.pad(squared, ((0, 1), (0, 0)), constant_values=backends.FAR), axis=0)
        best = squared.argmin(axis=0).astype(np.int32)
        return self.nearest(k), Columns(two[0], two[1], best, np.argwhere(squared <= two[0] + MARGIN), True)

    def nearest_pruned(self, bounds: Walker, k: int, spare: int) -> Rows:
        return self.nearest(k + spare)


@pytest.fixture
def plain(monkeypatch: pytest.MonkeyPatch) -> type[PlainWalker]:
    monkeypatch.setattr(backends, "BACKENDS", {**backends.BACKENDS, "plain": f"{__name__}:PlainWalker"})
    monkeypatch.setattr(PlainWalker, "walks", 0)
    return PlainWalker


@pytest.mark.parametrize(("m1", "m2"), [(0, 0), (0, 3), (3, 0), (2, 2), (4, 2), (9, 10), (0, 20)])
def test_another_backend_gives_the_same_answers(
    m1: int, m2: int, plain: type[PlainWalker], monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(m1 + m2)
    a, b = random_descriptors(70, m1, rng), random_descriptors(90, m2, rng)
    again = np.concatenate([np.arange(70), np.arange(5)])  # ties, which float64 decides
    a, same = a.take(again), m1 == m2
    b = b if not same else a.take(rng.permutation(75))  # and pairs that float32 cannot compare
    answers = []
    for name in ("numba", "plain"):
        monkeypatch.setenv("FEATVEIL_BACKEND", name)
        both, back = nearest_both_ways(a, b, 3)
        searches = [both, nearest(a, b, 3), nearest_pruned(a, b, 3), Gallery(b).nearest(a, 3)]
        answers.append((searches, back, matrix(a, b)))
    assert plain.walks > 0
    (searches, back, distances), (expected, expected_back, expected_distances) = answers
    for one, other in zip(searches, expected, strict=True):
        np.testing.assert_array_equal(one.indices, other.indices)
        np.testing.assert_allclose(one.distances, other.distances, atol=2e-5)
    np.testing.assert_array_equal(back, expected_back)
    np.testing.assert_allclose(distances, expected_distances, atol=2e-5)


def test_a_backend_that_does_not_exist_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEATVEIL_BACKEND", "abacus")
    rng = np.random.default_rng(0)
    with pytest.raises(InputError, match=r"abacus.*numba"):
        matrix(random_descriptors(2, 1, rng), random_descriptors(2, 1, rng))
