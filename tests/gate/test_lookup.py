"""Looking features up: as brute force does it in double precision, whatever is pruned, split or reduced on the way."""

from typing import Any

import numpy as np
import pytest

from featveil.core import InputError, Points
from featveil.core.arrays import Float32, Float64, Integers
from featveil.databases import builtin
from featveil.gate import Sketch, lookup, map_sketch
from featveil.gate.lookup import Passed
from featveil.gate.sketch_building import MapFacts, Observations, build_sketch
from sketches import MODEL, sketch_of

BASE = builtin("sift").points()


def noisy(rng: np.random.Generator, rows: Integers, spread: float) -> Float32:
    return np.asarray(np.abs(BASE[rows] + rng.normal(0, spread, (len(rows), 128))), np.float32)


@pytest.fixture(scope="module", params=[16, None])
def sketch(request: pytest.FixtureRequest) -> Sketch:
    """1,500 entries of 500 points that three images see, quantised or exact."""
    rng = np.random.default_rng(1)
    points = np.arange(500)
    seen = [Observations(image, points, Points(noisy(rng, points, 0.02))) for image in range(3)]
    return build_sketch(MapFacts(MODEL, 500, 3, "sift"), lambda: seen, request.param)


def brute(sketch: Sketch, values: Float32) -> Float64:
    """Distances (n, e) of the descriptors at norm 1 from what the entries stand for."""
    exact = values.astype(np.float64)
    exact /= np.linalg.norm(exact, axis=1, keepdims=True)
    decoded = sketch.entries.decode(slice(None)).astype(np.float64)
    return np.asarray(np.linalg.norm(exact[:, None] - decoded[None], axis=2))


def check(sketch: Sketch, values: Float32, tau: float, k: int) -> Passed:
    """Look up, and compare with all distances; returns what passed."""
    passed, every = sketch.look_up(Points(values), tau, k), brute(sketch, values)
    nearest = every.min(axis=1)
    clear = np.abs(nearest - tau) > 1e-5  # beyond what single precision decides
    assert set(passed.rows) - set(np.flatnonzero(~clear)) == set(np.flatnonzero((nearest <= tau) & clear))
    assert (np.diff(passed.rows) > 0).all()
    for row, entries, distances in zip(passed.rows, passed.entries, passed.distances, strict=True):
        there = entries >= 0
        assert there[0] and not (there[1:] & ~there[:-1]).any() and np.isinf(distances[~there]).all()
        assert distances[there] == pytest.approx(every[row, entries[there]], abs=1e-5)
        assert (np.diff(distances[there]) >= 0).all() and (distances[there] <= tau + 1e-5).all()
        points = sketch.points[entries[there]]
        assert len(set(points)) == len(points)
        by_point = np.full(sketch.model_points, np.inf)
        np.minimum.at(by_point, sketch.points, every[row])
        best = np.sort(by_point)[:k]
        best = best[best <= tau - 1e-5]
        assert len(best) <= len(points) and distances[there][: len(best)] == pytest.approx(best, abs=1e-5)
    return passed


@pytest.mark.parametrize("k", [1, 3])
@pytest.mark.parametrize("tau", [0.15, 0.4, 0.9, 2.0])
def test_as_brute_force(sketch: Sketch, tau: float, k: int) -> None:
    rng = np.random.default_rng(2)
    values = np.concatenate([noisy(rng, np.arange(0, 500, 7), 0.03), noisy(rng, np.arange(2000, 2080), 0)])
    passed = check(sketch, values, tau, k)
    assert len(passed) == len(values) if tau == 2.0 else 0 < len(passed) < len(values) if tau == 0.4 else True


@pytest.mark.parametrize(
    ("place", "sizes"),
    [
        (lookup, {"_ROWS": 7, "_COLUMNS": 32}),
        (lookup, {"_AXES": 1}),
        (lookup, {"_AXES": 128}),
        (map_sketch, {"_BLOCK": 13}),
        (map_sketch, {"_AT_HAND": 0, "_BLOCK": 100}),
    ],
    ids=["blocks", "one axis", "all axes", "decoded", "decoded each time"],
)
def test_sizes_of_blocks_change_nothing(
    place: Any, sizes: dict[str, int], sketch: Sketch, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = noisy(np.random.default_rng(3), np.arange(0, 500, 5), 0.05)
    before = sketch.look_up(Points(values), 0.7, 3)
    for name, size in sizes.items():
        monkeypatch.setattr(place, name, size)
    fresh = Sketch(sketch.entries, sketch.points, sketch.images, "sift", MODEL, 500, 3)
    after = check(fresh, values, 0.7, 3)
    assert (after.rows == before.rows).all() and (after.entries == before.entries).all()
    assert after.distances == pytest.approx(before.distances, abs=1e-6)


def test_equally_near_entries_come_in_their_order() -> None:
    """Four points with the same descriptor, twice each: of each point the first entry, and the first points."""
    values = np.repeat(np.eye(1, 8, dtype=np.float32), 4, axis=0)
    seen = [Observations(image, np.arange(4), Points(values)) for image in range(2)]
    sketch = build_sketch(MapFacts(MODEL, 4, 2, "other"), lambda: seen, None)
    passed = sketch.look_up(Points(values[:1]), 0.1, 3)
    assert passed.entries.tolist() == [[0, 2, 4]] and sketch.points[passed.entries[0]].tolist() == [0, 1, 2]


def test_nothing_passes_and_nothing_is_asked() -> None:
    sketch = sketch_of(np.eye(4, 8, dtype=np.float32))
    for values in (np.eye(8, dtype=np.float32)[6:], np.empty((0, 8), np.float32)):
        passed = sketch.look_up(Points(values), 0.5, 2)
        assert len(passed) == 0 and passed.entries.shape == (0, 2)


def test_the_norm_of_a_feature_does_not_matter(sketch: Sketch) -> None:
    values = noisy(np.random.default_rng(4), np.arange(50), 0.03)
    one, other = (sketch.look_up(Points(scale * values), 0.4) for scale in (1, 512))
    assert (one.rows == other.rows).all() and (one.entries == other.entries).all()


@pytest.mark.parametrize("own", [True, False])
def test_nearest_elsewhere(sketch: Sketch, own: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the image of each feature, its entries do not count."""
    rng = np.random.default_rng(5)
    values, images = noisy(rng, np.arange(0, 500, 9), 0.02), rng.integers(0, 3, 56)
    every = brute(sketch, values)
    if own:
        every[images[:, None] == sketch.images] = np.inf
    for sizes in ((2048, 512), (10, 33)):
        monkeypatch.setattr(map_sketch, "_ROWS", sizes[0])
        monkeypatch.setattr(map_sketch, "_COLUMNS", sizes[1])
        distances, entries = sketch.nearest_elsewhere(Points(values), images if own else None)
        assert distances == pytest.approx(every.min(axis=1), abs=2e-4)
        assert every[np.arange(len(values)), entries] == pytest.approx(every.min(axis=1), abs=2e-4)
        assert not own or (sketch.images[entries] != images).all()


def test_what_is_refused(sketch: Sketch) -> None:
    other, zero = Points(np.ones((1, 64), np.float32)), Points(np.zeros((1, 128), np.float32))
    for look in (lambda points: sketch.look_up(points, 0.3), lambda points: sketch.nearest_elsewhere(points)):
        with pytest.raises(InputError, match="size"):
            look(other)
        with pytest.raises(InputError, match="zero norm"):
            look(zero)
    for tau in (0, -1, 2.1, float("nan"), True, "0.3"):
        with pytest.raises(InputError, match="tau"):
            sketch.look_up(Points(np.ones((1, 128), np.float32)), tau)  # type: ignore[arg-type]
