"""Sketches from observations, parts of them, and the whole of parts."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from featveil.core import InputError, Points
from featveil.core.arrays import Float32, Integers
from featveil.databases import builtin
from featveil.gate import Exact, Quantised, Sketch
from featveil.gate.sketch_building import MapFacts, Observations, build_sketch, merge_sketches, tiles
from sketches import LOOSE, MODEL, sketch_of

BASE = builtin("sift").points()


def observed(tracks: list[list[int]], seed: int = 0) -> list[Observations]:
    """What each image sees of the points of a map: the descriptors in the database of that number, a little off."""
    rng = np.random.default_rng(seed)
    return [
        Observations(image, np.array(points, np.int64), Points(descriptors(points, rng)))
        for image, points in enumerate(tracks)
    ]


def descriptors(points: list[int], rng: np.random.Generator) -> Float32:
    near = BASE[np.array(points, np.int64)].reshape(-1, 128) + rng.normal(0, 0.01, (len(points), 128))
    return np.asarray(near, np.float32)


def chain(images: int = 8, points: int = 300) -> list[list[int]]:
    """Each image sees as many points as the next, and shares half of them with it."""
    return [list(range(points // 2 * image, points // 2 * image + points)) for image in range(images)]


def built(tracks: list[list[int]], size: int | None = 16, **facts: Any) -> Sketch:
    seen = observed(tracks)
    most = 1 + max(max(points, default=0) for points in tracks)
    stated: dict[str, Any] = {"digest": MODEL, "points": most, "images": len(tracks), "kind": "sift"}
    return build_sketch(MapFacts(**(stated | facts)), lambda: seen, size)


def rows_of(sketch: Sketch) -> set[tuple[int, int, bytes]]:
    decoded = sketch.entries.decode(slice(None))
    return {
        (p, i, d.tobytes()) for p, i, d in zip(sketch.points.tolist(), sketch.images.tolist(), decoded, strict=True)
    }


def test_every_observation_is_an_entry() -> None:
    tracks = chain()
    sketch = built(tracks)
    pairs = sorted((point, image) for image, points in enumerate(tracks) for point in points)
    assert list(zip(sketch.points.tolist(), sketch.images.tolist(), strict=True)) == pairs
    assert isinstance(sketch.entries, Quantised) and sketch.entries.bytes == 16


@pytest.mark.parametrize(("size", "largest"), [(8, 0.45), (16, 0.35), (32, 0.25), (None, 0.001)])
def test_entries_stand_for_their_descriptors(size: int | None, largest: float) -> None:
    """Quantisers see the map's descriptors themselves; the more bytes, the nearer."""
    tracks = chain()
    sketch, seen = built(tracks, size), observed(tracks)
    entries = sketch.entries.decode(slice(None))
    apart = []
    for one in seen:
        values = one.descriptors.values / np.linalg.norm(one.descriptors.values, axis=1, keepdims=True)
        rows = np.flatnonzero(sketch.images == one.image)
        apart.append(np.linalg.norm(entries[rows] - values, axis=1))
    assert np.concatenate(apart).mean() < largest


def test_few_entries_are_kept_as_they_are() -> None:
    assert isinstance(built([list(range(500)), list(range(500))]).entries, Exact)
    assert isinstance(built([list(range(600)), list(range(600))]).entries, Quantised)


@pytest.mark.parametrize("size", [3, 7, 100])
def test_any_size_of_descriptors_and_entries(size: int) -> None:
    rng = np.random.default_rng(0)
    seen = [Observations(0, np.arange(1100), Points(rng.normal(size=(1100, 10)).astype(np.float32)))]
    sketch = build_sketch(MapFacts(MODEL, 1100, 1, "other"), lambda: seen, size)
    assert sketch.size == 10 and sketch.entries.bytes == min(size, 10)
    assert sketch.entries.decode(slice(None)).shape == (1100, 10)


def test_equal_observations_count_once_and_their_order_does_not_matter() -> None:
    rng = np.random.default_rng(0)
    points = np.array([5, 3, 3, 4])
    values = BASE[[5, 3, 3, 4]]
    orders = [rng.permutation(4) for _ in range(5)]
    made = {
        build_sketch(
            MapFacts(MODEL, 9, 1, "sift"),
            lambda order=order: [Observations(0, points[order], Points(values[order]))],  # type: ignore[misc]
            None,
        ).digest
        for order in orders
    }
    assert len(made) == 1
    sketch = build_sketch(MapFacts(MODEL, 9, 1, "sift"), lambda: [Observations(0, points, Points(values))], None)
    assert sketch.points.tolist() == [3, 4, 5]


def test_images_that_see_nothing() -> None:
    sketch = built([[], list(range(10)), []], points=10)
    assert sketch.seen.tolist() == [1] and sketch.model_images == 3


def test_what_is_refused() -> None:
    with pytest.raises(InputError, match="nothing to sketch"):
        built([[], []], points=3)
    with pytest.raises(InputError, match="another map"):
        built([[1, 2, 3]], points=3)
    for size in (0, 257, 1.5, True):
        with pytest.raises(InputError, match="1 to 256 bytes"):
            built([[1, 2]], size)  # type: ignore[arg-type]
    seen = [Observations(n, np.arange(3), Points(np.ones((3, 4 + n), np.float32))) for n in range(2)]
    with pytest.raises(InputError, match="several sizes"):
        build_sketch(MapFacts(MODEL, 3, 2, "sift"), lambda: seen)
    with pytest.raises(InputError, match="zero norm"):
        build_sketch(MapFacts(MODEL, 3, 1, "sift"), lambda: [Observations(0, np.arange(1), _zero())])
    for later in (1, 3):
        passes = iter([observed([[0, 1], [0, 1]]), observed([[0, 1]] * later)])
        with pytest.raises(InputError, match="changed while it was read"):
            build_sketch(MapFacts(MODEL, 3, 3, "sift"), lambda passes=passes: next(passes))  # type: ignore[misc]


def _zero() -> Points:
    return Points(np.zeros((1, 4), np.float32))


@given(
    st.lists(st.lists(st.integers(0, 30), max_size=12, unique=True), min_size=1, max_size=9).filter(any),
    st.integers(1, 10),
)
@settings(max_examples=60, deadline=None)
def test_the_union_of_tiles_is_the_whole(tracks: list[list[int]], most: int) -> None:
    whole = replace(built(tracks, points=31), calibration=LOOSE)
    parts = list(tiles(whole, most))
    assert merge_sketches(parts).digest == whole.digest
    assert merge_sketches([*reversed(parts), whole]).digest == whole.digest
    sees = {image for part in parts for image in part.seen.tolist()}
    assert sees == set(whole.seen.tolist()) and len(parts) >= len(sees) / most
    for part in parts:
        assert part.calibration == LOOSE and part.signature is None and part.model == whole.model
        assert rows_of(part) <= rows_of(whole)
        for point in part.known:  # all or nothing of a point
            assert (part.points == point).sum() == (whole.points == point).sum()


def test_images_that_share_points_go_together() -> None:
    """Two places that share nothing, with their images in turn: no tile is of both."""
    tracks = [[point + 100 * (image % 2) for point in range(20 + image)] for image in range(8)]
    groups = [set(part.seen.tolist()) for part in tiles(built(tracks), 4)]
    assert sorted(map(sorted, groups)) == [[0, 2, 4, 6], [1, 3, 5, 7]]
    for most in (0, -1, 1.5, True):
        with pytest.raises(InputError, match="at least one image"):
            next(tiles(built(tracks), most))  # type: ignore[arg-type]


@pytest.mark.parametrize("size", [16, None])
def test_merged_tiles_of_quantised_sketches(size: int | None) -> None:
    whole = built(chain(), size)
    assert merge_sketches(list(tiles(whole, 3))).digest == whole.digest


def test_a_calibration_stays_where_all_carry_it() -> None:
    whole = replace(built(chain(4)), calibration=LOOSE)
    one, two = tiles(whole, 2)
    assert merge_sketches([one, two]).calibration == LOOSE
    for other in (None, replace(LOOSE, tau=0.4)):
        assert merge_sketches([one, replace(two, calibration=other)]).calibration is None


def test_only_sketches_of_one_map_are_merged() -> None:
    one = built(chain(4))
    others: list[tuple[Sketch, str]] = [
        (replace(one, model=MODEL[::-1]), "different maps"),
        (replace(one, model_points=10**6), "different maps"),
        (replace(one, kind="rootsift"), "rootsift"),
        (built(chain(4), 32), "quantised differently"),
        (built(chain(4), None), "quantised differently"),
    ]
    for other, message in others:
        with pytest.raises(InputError, match=message):
            merge_sketches([one, other])
    with pytest.raises(InputError, match="no sketch"):
        merge_sketches([])


def test_values_of_a_sketch_are_checked() -> None:
    sketch = sketch_of(np.eye(4, 8, dtype=np.float32))

    def changed(**fields: Any) -> Sketch:
        return replace(sketch, **fields)

    wrong: list[tuple[dict[str, Any], str]] = [
        ({"points": sketch.points[::-1]}, "order"),
        ({"points": sketch.points[:-1]}, "shape"),
        ({"points": sketch.points + 1}, "another map"),
        ({"images": _negative(sketch.images)}, "another map"),
        ({"model_images": 2**24 + 1}, "1 to"),
        ({"source": "two\nlines"}, "printable"),
        ({"model": "abc"}, "digest"),
        ({"kind": "SIFT"}, "kind"),
    ]
    for fields, message in wrong:
        with pytest.raises(InputError, match=message):
            changed(**fields)


def _negative(images: Integers) -> Integers:
    return images - 1
