"""The value type: what it accepts, how it splits, what its digest covers."""

import hashlib
import struct
from typing import Any

import numpy as np
import pytest

from featveil.core import InputError
from featveil.databases import Database
from featveil.databases.entries import quantized, unit_rows


@pytest.fixture
def rows() -> np.ndarray:
    return np.random.default_rng(0).random((50, 8)).astype(np.float32)


@pytest.mark.parametrize(("count", "parts"), [(50, 16), (50, 1), (50, 50), (16, 16), (17, 4)])
def test_parts_are_disjoint_even_and_cover(rows: np.ndarray, count: int, parts: int) -> None:
    database = Database(rows[:count], "face", parts)
    pieces = [np.arange(count)[database.part(i)] for i in range(parts)]
    assert np.concatenate(pieces).tolist() == list(range(count))
    sizes = [len(piece) for piece in pieces]
    assert max(sizes) - min(sizes) <= 1
    for outside in (-1, parts):
        with pytest.raises(InputError, match=f"parts 0 to {parts - 1}"):
            database.part(outside)


def test_rows_have_unit_norm_and_are_read_only(rows: np.ndarray) -> None:
    for database in (Database(rows * 30, "face"), Database.from_array(rows, "sift")):
        points = database.points()
        assert points.dtype == np.float32
        np.testing.assert_allclose(np.linalg.norm(points, axis=1), 1, atol=1e-6)
        some = np.array([[3, 1], [4, 1]])
        np.testing.assert_array_equal(database.unit(some), points[some])
        np.testing.assert_array_equal(database.unit(database.part(2)), points[database.part(2)])
        with pytest.raises(ValueError, match="read-only"):
            database.values[0, 0] = 1


def test_the_array_given_is_copied(rows: np.ndarray) -> None:
    for values in (rows, (rows * 255).astype(np.uint8)):
        database = Database(values, "x")
        before = database.values.copy()
        values[:] = 0
        np.testing.assert_array_equal(database.values, before)


def test_sift_is_stored_in_bytes_with_little_error(rows: np.ndarray) -> None:
    descriptors = np.random.default_rng(1).random((200, 128)).astype(np.float32)
    stored = quantized(descriptors)
    assert stored.dtype == np.uint8
    exact = np.rint(512 * descriptors.astype(np.float64) / np.linalg.norm(descriptors, axis=1)[:, None])
    assert np.abs(np.minimum(exact, 255) - stored).max() <= 1
    assert (unit_rows(stored) * unit_rows(descriptors)).sum(axis=1).min() > 0.999
    assert Database.from_array(rows, "sift").values.dtype == np.uint8
    assert Database.from_array(rows, "face").values.dtype == np.float32
    assert Database.from_array((rows * 99).astype(np.uint8), "face").values.dtype == np.uint8
    with pytest.raises(InputError, match="negative"):
        Database.from_array(-rows, "sift")


def test_from_array_permutes_rows_together_with_labels() -> None:
    values = np.arange(1, 401, dtype=np.float32)[:, None] * np.ones(3, np.float32)
    seeded = [Database.from_array(values, "face", labels=np.arange(400), rng=np.random.default_rng(5)) for _ in "ab"]
    assert seeded[0].digest == seeded[1].digest
    secure = [Database.from_array(values, "face", labels=np.arange(400)) for _ in "ab"]
    assert secure[0].digest != secure[1].digest
    for database in (*seeded, *secure):
        assert database.labels is not None
        np.testing.assert_array_equal(database.values[:, 0], database.labels + 1)
        assert sorted(database.labels) == list(range(400))
        # A contiguous part of unpermuted entries would span 25 labels; of permuted ones nearly all 400.
        assert np.ptp(database.labels[database.part(0)]) > 100


def test_digest_changes_with_any_content(rows: np.ndarray) -> None:
    labels = np.arange(50)
    original = Database(rows, "face", 10, labels)
    touched, relabelled = rows.copy(), labels.copy()
    touched[49, 7] = np.nextafter(touched[49, 7], np.float32(2))
    relabelled[-1] = 7
    others = [
        Database(touched, "face", 10, labels),
        Database(rows, "face", 10, relabelled),
        Database(rows, "face", 10),
        Database(rows, "face", 9, labels),
        Database(rows, "faces", 10, labels),
        Database(rows[::-1], "face", 10, labels),
        Database(rows.reshape(100, 4), "face", 10),
        Database(rows.reshape(25, 16), "face", 10),
        Database(rows.view(np.uint8), "face", 10),
    ]
    digests = {database.digest for database in [original, *others]}
    assert len(digests) == 1 + len(others)
    wide: Any = rows.astype(np.float64)
    same = Database(wide, "face", 10, labels, card={"source": "x"})
    assert same.digest == original.digest
    assert len(original.digest) == 64


def test_digest_is_the_documented_one() -> None:
    database = Database(np.array([[1, 2], [3, 4]], np.uint8), "sift", 2, np.array([0, 1]))
    header = b'{"dtype": "uint8", "kind": "sift", "labels": "int64", "parts": 2, "shape": [2, 2]}\n'
    content = header + bytes([1, 2, 3, 4]) + struct.pack("<qq", 0, 1)
    assert database.digest == hashlib.sha256(content).hexdigest()


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (np.zeros((3, 4), np.uint8), "row 0 is zero"),
        (np.array([[1.0, 2], [0, 0]]), "row 1 is zero"),
        (np.array([[1.0, np.nan]]), "NaN"),
        (np.array([[1e30, 1e30]]), "out of range"),
        (np.empty((0, 4)), "at least one entry"),
        (np.empty((4, 0), np.uint8), "at least one entry"),
        (np.ones(4), "shape"),
        (np.ones(4, np.uint8), "shape"),
        (np.array([["a"]]), "real numbers"),
        (np.array([[None]]), "real numbers"),
    ],
)
def test_unusable_values_are_refused(values: np.ndarray, message: str) -> None:
    with pytest.raises(InputError, match=message):
        Database(values, "face", 1)
    with pytest.raises(InputError, match=message):
        Database.from_array(values, "face", 1)


def test_unfitting_labels_parts_and_kind_are_refused(rows: np.ndarray) -> None:
    with pytest.raises(InputError, match="labels"):
        Database(rows, "face", labels=np.arange(49))
    with pytest.raises(InputError, match="whole numbers"):
        Database(rows, "face", labels=np.ones(50))  # type: ignore[arg-type]
    with pytest.raises(InputError, match="labels"):
        Database.from_array(rows, "face", labels=np.arange(51))
    for parts in (0, 51, -1):
        with pytest.raises(InputError, match="1 to 50 parts"):
            Database(rows, "face", parts)
    with pytest.raises(InputError, match="kind"):
        Database(rows, "Face!")
