"""Rows and cells: what is equal is read as equal, what differs is not, and what does not fit is refused."""

import math
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from featveil.core import InputError, Keypoints, MapPoints, Points, Subspaces, WordSets
from featveil.core.arrays import Float32, Float64
from featveil.learning.encodings import STRIDES, Encoding, Geometry, canonical, cells, check_geometry, cosines

DIGEST, OTHER = "a" * 64, "b" * 64
D, M = 16, 3


def keypoints(n: int, full: bool = True, seed: int = 0) -> Keypoints:
    rng = np.random.default_rng(seed)
    xy = rng.uniform(0, 64, (n, 2)).astype(np.float32)
    if not full:
        return Keypoints(xy)
    rest = (rng.uniform(least, most, n).astype(np.float32) for least, most in ((0.5, 20), (0, 360), (0, 0.1)))
    return Keypoints(xy, *rest)


def flats(offset: Float64, basis: Float64) -> Subspaces:
    return Subspaces(offset.astype(np.float32), basis.astype(np.float32))


def subspaces(n: int, seed: int = 0) -> tuple[Float64, Float64]:
    rng = np.random.default_rng(seed)
    basis = np.linalg.qr(rng.normal(size=(n, D, M)))[0].transpose(0, 2, 1)
    return rng.normal(size=(n, D)), basis


def words(count: int = 30) -> Float32:
    return np.random.default_rng(5).gamma(1, size=(count, D)).astype(np.float32)


def test_equal_subspaces_give_equal_rows() -> None:
    offset, basis = subspaces(6)
    rng = np.random.default_rng(1)
    turn = np.linalg.qr(rng.normal(size=(6, M, M)))[0]
    moved = offset + np.einsum("nm,nmd->nd", rng.normal(size=(6, M)), basis)
    encoding, seen = Encoding("sift", D, "subspaces", M), keypoints(6)
    rows = encoding.rows(flats(offset, basis), seen)
    assert rows.shape == (6, encoding.columns) and rows.dtype == np.float32
    again = encoding.rows(flats(moved, turn @ basis), seen)
    assert np.allclose(rows, again, atol=2e-5)
    assert not np.allclose(rows, encoding.rows(flats(offset + 0.1, basis), seen), atol=1e-2)
    other = encoding.rows(flats(offset, subspaces(6, seed=2)[1]), seen)
    assert np.abs(rows - other).max(axis=1).min() > 0.1


def test_the_canonical_parameters_are_the_subspace_and_by_the_definition() -> None:
    offset, basis = subspaces(4)
    stack = canonical(flats(offset, basis)).astype(np.float64)
    for place in range(4):
        nearest, axes = stack[place, 0], stack[place, 1:]
        assert np.allclose(axes @ axes.T, np.eye(M), atol=1e-5)
        assert np.allclose(axes.T @ axes, basis[place].T @ basis[place], atol=1e-5)
        assert np.allclose(axes @ nearest, 0, atol=1e-5)
        away = nearest - offset[place]
        assert np.allclose(away - basis[place].T @ (basis[place] @ away), 0, atol=1e-5)
        # No other basis of the subspace is nearer to the fixed directions.
        distance = np.linalg.norm(axes - cosines(M, D))
        for seed in range(20):
            turn = np.linalg.qr(np.random.default_rng(seed).normal(size=(M, M)))[0]
            assert np.linalg.norm(turn @ axes - cosines(M, D)) >= distance


def test_points_are_roots_of_their_shares_with_their_signs() -> None:
    values = np.array([[4.0, 0, -1, 3], [0.2, 0.2, 0.2, 0.2]], np.float32)
    rows = Encoding("sift", 4).rows(Points(values), keypoints(2))
    slow = [[math.copysign(math.sqrt(4 * abs(x) / sum(map(abs, row))), x) for x in row] for row in values.tolist()]
    assert np.allclose(rows[:, :4], slow, atol=1e-6)
    assert np.allclose(np.mean(rows[:, :4] ** 2, axis=1), 1, atol=1e-6)
    scaled = Encoding("sift", 4).rows(Points(7 * values), keypoints(2))
    assert np.allclose(rows, scaled, atol=1e-6)


def test_word_sets_are_the_words_of_their_codebook() -> None:
    codebook, sets = words(), np.array([[0, 7], [3, 29]])
    encoding = Encoding("sift", D, "words", 2, codebook=DIGEST)
    rows = encoding.rows(WordSets(sets, DIGEST, 30), keypoints(2), codebook)
    single = Encoding("sift", D).rows(Points(codebook), keypoints(30))[:, :D]
    assert np.array_equal(rows[:, : 2 * D], single[sets].reshape(2, 2 * D))
    others = encoding.rows(WordSets(sets, DIGEST, 30), keypoints(2), codebook[::-1])
    assert not np.allclose(rows, others, atol=0.01)


def test_map_points_are_rows_of_their_table_and_nothing_where_there_is_none() -> None:
    table, shown = words(), MapPoints(np.array([[-1, 7], [3, 29]]), DIGEST, OTHER, 30)
    encoding = Encoding.of(shown, "sift", "positions", table)
    assert encoding == Encoding("sift", D, "words", 2, codebook=DIGEST)
    rows = encoding.rows(shown, keypoints(2), table)[:, : 2 * D].reshape(2, 2, D)
    alone = Encoding("sift", D).rows(Points(table[[7, 3, 29]]), keypoints(3))[:, :D]
    assert np.array_equal(rows[[0, 1, 1], [1, 0, 1]], alone)
    assert not rows[0, 0].any()
    with pytest.raises(InputError, match="29 words or points are known, the features are of 30"):
        encoding.rows(shown, keypoints(2), table[:29])


@pytest.mark.parametrize("geometry", ["positions", "full", "either"])
def test_geometry_is_what_was_asked_for(geometry: Geometry) -> None:
    seen, points = keypoints(5), Points(words(5))
    encoding = Encoding("sift", D, geometry=geometry)
    read = encoding.rows(points, seen)[:, D:]
    inside = np.mod(seen.xy, STRIDES[0]) / STRIDES[0] - 0.5
    assert np.allclose(read[:, :2], inside, atol=1e-6)
    assert seen.scale is not None and seen.orientation is not None and seen.response is not None
    angle = np.deg2rad(seen.orientation)
    columns = [np.ones(5), np.cos(angle), np.sin(angle), np.log2(seen.scale) - 1, 20 * seen.response]
    expected = np.zeros((5, 5)) if geometry == "positions" else np.column_stack(columns)
    assert np.allclose(read[:, 2:], expected, atol=1e-5)
    assert encoding.reads_all(seen) == (geometry != "positions")


def test_without_geometry_either_reads_positions_and_full_refuses() -> None:
    points, seen = Points(words(5)), keypoints(5, full=False)
    either = Encoding("sift", D, geometry="either").rows(points, seen)
    assert np.array_equal(either, Encoding("sift", D).rows(points, seen))
    with pytest.raises(InputError, match="scale, orientation and response"):
        Encoding("sift", D, geometry="full").rows(points, seen)


def test_a_part_of_the_geometry_is_none_of_it() -> None:
    seen = Keypoints(np.ones((3, 2), np.float32), scale=np.full(3, 9, np.float32))
    encoding = Encoding("sift", D, geometry="either")
    assert not encoding.reads_all(seen)
    assert np.array_equal(encoding.rows(Points(words(3)), seen), encoding.rows(Points(words(3)), seen.positions_only()))
    with pytest.raises(InputError, match="lack some"):
        Encoding("sift", D, geometry="full").rows(Points(words(3)), seen)


def test_absurd_geometry_of_a_file_stays_finite() -> None:
    huge = np.full(2, np.finfo(np.float32).max)
    seen = Keypoints(np.stack([huge, -huge]), huge, huge, -huge)
    assert np.isfinite(Encoding("sift", D, geometry="full").rows(Points(words(2)), seen)).all()
    places = cells(seen, 64, 64, True)
    assert (places >= 0).all()


def slow_cells(x: float, y: float, sigma: float, width: int, height: int) -> list[int]:
    """By the definition, one keypoint at a time: the finest level, and the one whose cells are as its size."""
    places = []
    for place, stride in enumerate(STRIDES):
        across, down = width // stride, height // stride
        column = min(max(math.floor(x / stride), 0), across - 1)
        row = min(max(math.floor(y / stride), 0), down - 1)
        coarsest = place == len(STRIDES) - 1
        lowest = 2.0 ** (place - 1)
        there = place == 0 or (lowest <= sigma and (coarsest or sigma < 2 * lowest))
        places.append(row * across + column if there else across * down)
    return places


def test_cells_of_every_level_edge_and_beyond() -> None:
    width, height = 96, 64
    places = [0.0, 0.5, 1.999, 2.0, 31.9, 32.0, 63.999, 64.0, 95.999, 96.0, 1000.0, -0.001, -50.0]
    sizes = [0.01, 0.5, 0.999, 1.0, 1.999, 2.0, 3.9, 4.0, 7.9, 8.0, 15.0, 16.0, 500.0]
    table = [(x, y, sigma) for x in places for y in places for sigma in sizes]
    xy, sigma = np.array([row[:2] for row in table], np.float32), np.array([row[2] for row in table], np.float32)
    placed = cells(Keypoints(xy, sigma), width, height, True)
    assert placed.tolist() == [
        slow_cells(float(x), float(y), float(s), width, height) for (x, y), s in zip(xy, sigma, strict=True)
    ]
    counts = [(width // stride) * (height // stride) for stride in STRIDES]
    assert (placed >= 0).all() and (placed <= counts).all()
    assert (placed[:, 0] < counts[0]).all()
    assert all((placed[:, level] < counts[level]).any() for level in range(len(STRIDES)))


def test_where_the_scale_is_not_known_all_have_one() -> None:
    seen = keypoints(40)
    unknown = cells(seen, 64, 64, False)
    assert np.array_equal(unknown, cells(seen.positions_only(), 64, 64, True))
    assert np.array_equal(unknown, cells(Keypoints(seen.xy, np.full(40, 1.5, np.float32)), 64, 64, True))
    assert not np.array_equal(unknown, cells(seen, 64, 64, True))


def test_no_features_are_no_rows() -> None:
    none = Keypoints(np.empty((0, 2), np.float32))
    assert Encoding("sift", D).rows(Points(np.empty((0, D), np.float32)), none).shape == (0, D + 7)
    assert cells(none, 64, 64, False).shape == (0, len(STRIDES))
    offset, basis = subspaces(1)
    assert Encoding("sift", D, "subspaces", M).rows(flats(offset[:0], basis[:0]), none).shape == (0, 4 * D + 7)


def test_encodings_of_descriptors() -> None:
    offset, basis = subspaces(2)
    assert Encoding.of(Points(words(2)), "sift", "full") == Encoding("sift", D, "points", 1, "full")
    assert Encoding.of(flats(offset, basis), "x", "either") == Encoding("x", D, "subspaces", M, "either")
    sets = WordSets(np.array([[0, 4]]), DIGEST, 30)
    assert Encoding.of(sets, "sift", "positions", words()) == Encoding("sift", D, "words", 2, codebook=DIGEST)
    with pytest.raises(InputError, match="with their codebook: give it"):
        Encoding.of(sets, "sift", "positions")


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (Encoding("rootsift", D), "trained on kind sift, the features have rootsift"),
        (Encoding("sift", 64), "trained on size 16, the features have 64"),
        (Encoding("sift", D, "subspaces", 2), "trained on representation points, the features have subspaces"),
    ],
)
def test_features_of_another_encoding_are_refused(other: Encoding, message: str) -> None:
    with pytest.raises(InputError, match=message):
        Encoding("sift", D).check(other)
    Encoding("sift", D).check(Encoding("sift", D, geometry="full"))  # of which rows speak


def test_other_dimensions_codebooks_and_sizes_are_refused_when_rows_are_made() -> None:
    offset, basis = subspaces(2)
    with pytest.raises(InputError, match="count 4, the features have 3"):
        Encoding("sift", D, "subspaces", 4).rows(flats(offset, basis), keypoints(2))
    sets = WordSets(np.array([[0, 4]]), OTHER, 30)
    with pytest.raises(InputError, match=r"codebook aaaaaaaaaaaa\.\.\., the features have bbbbbbbbbbbb"):
        Encoding("sift", D, "words", 2, codebook=DIGEST).rows(sets, keypoints(1), words())
    with pytest.raises(InputError, match="20 words or points are known, the features are of 30"):
        Encoding("sift", D, "words", 2, codebook=OTHER).rows(sets, keypoints(1), words(20))
    with pytest.raises(InputError, match="size 8"):
        Encoding("sift", 8).rows(Points(words(2)), keypoints(2))


def test_kinds_that_differ_at_their_end_are_told_apart() -> None:
    first, second = "sift+concealed-0123456789ab", "sift+concealed-0123456789ac"
    with pytest.raises(InputError, match=f"{first.replace('+', '.')}, .*{second.replace('+', '.')}"):
        Encoding(first, D).check(Encoding(second, D))


@pytest.mark.parametrize(
    "given",
    [
        {"kind": "Not a kind"},
        {"kind": 3},
        {"size": 0},
        {"size": 128.0},
        {"size": "128"},
        {"count": True},
        {"count": 2},
        {"representation": "images"},
        {"geometry": "all"},
        {"geometry": ["full"]},
        {"codebook": DIGEST},
        {"representation": "words"},
        {"representation": "words", "codebook": 5},
    ],
)
def test_impossible_encodings_are_refused(given: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        Encoding(**{"kind": "sift", **given})


def test_an_encoding_goes_through_json() -> None:
    encoding = Encoding("sift", D, "words", 2, "either", DIGEST)
    assert Encoding(**encoding.to_json()) == encoding


def test_encodings_need_no_torch() -> None:
    code = "import sys, featveil.learning.encodings; print('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"


def test_geometries() -> None:
    assert [check_geometry(name) for name in ("positions", "full", "either")] == ["positions", "full", "either"]
    with pytest.raises(InputError, match="positions, full, either, got 'all'"):
        check_geometry("all")
