"""Database files: what comes back, and what is refused."""

import errno
import json
import struct
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy
from numpy.typing import NDArray

from featveil.core import FormatError, InputError
from featveil.databases import Database, load_database, save_database


@pytest.fixture
def database() -> Database:
    values = np.random.default_rng(0).integers(1, 255, (40, 8)).astype(np.uint8)
    return Database(values, "sift", 4, np.arange(40), {"source": "noise", "images": 3})


@pytest.fixture
def path(tmp_path: Path, database: Database) -> Path:
    save_database(database, tmp_path / "x.safetensors")
    return tmp_path / "x.safetensors"


def write(path: Path, tensors: dict[str, NDArray[np.generic]], **changes: object) -> None:
    """A file with the right description, apart from `changes` (None removes an entry)."""
    about = {"version": 1, "kind": "sift", "parts": 4, "digest": "0" * 64, "card": {}} | changes
    about = {key: value for key, value in about.items() if value is not None}
    path.write_bytes(safetensors.numpy.save(tensors, {"featveil.database": json.dumps(about)}))


def test_round_trip(database: Database, path: Path) -> None:
    read = load_database(path, digest=database.digest.upper())
    np.testing.assert_array_equal(read.values, database.values)
    np.testing.assert_array_equal(read.labels, database.labels)
    assert (read.kind, read.parts, read.card) == (database.kind, database.parts, database.card)
    assert read.digest == database.digest
    assert not read.values.flags.writeable


def test_round_trip_of_floats_without_labels(tmp_path: Path) -> None:
    database = Database.from_array(np.random.default_rng(0).normal(size=(30, 5)), "face")
    save_database(database, tmp_path / "f.safetensors")
    read = load_database(tmp_path / "f.safetensors")
    assert read.labels is None
    assert read.values.dtype == np.float32
    np.testing.assert_array_equal(read.values, database.values)


def test_equal_databases_give_equal_files(database: Database, path: Path) -> None:
    save_database(database, path.with_name("again"))
    assert path.with_name("again").read_bytes() == path.read_bytes()


def test_every_changed_byte_of_content_is_found(path: Path) -> None:
    good = path.read_bytes()
    start = 8 + struct.unpack("<Q", good[:8])[0]
    for position in range(start, len(good), 7):
        path.write_bytes(good[:position] + bytes([good[position] ^ 1]) + good[position + 1 :])
        with pytest.raises(FormatError, match=r"damaged|altered"):
            load_database(path)


def test_changed_header_bytes_never_give_another_database(database: Database, path: Path) -> None:
    good = path.read_bytes()
    header = 8 + struct.unpack("<Q", good[:8])[0]
    for position in range(header):
        path.write_bytes(good[:position] + bytes([good[position] ^ 1]) + good[position + 1 :])
        with suppress(FormatError):
            assert load_database(path).digest == database.digest


@pytest.mark.parametrize("length", [0, 4, 8, 20, 200, -1])
def test_cut_off_files_are_refused(path: Path, length: int) -> None:
    path.write_bytes(path.read_bytes()[:length])
    with pytest.raises(FormatError):
        load_database(path)


def test_hostile_headers_are_refused(path: Path) -> None:
    def file(header: bytes, body: bytes = b"") -> None:
        path.write_bytes(struct.pack("<Q", len(header)) + header + body)

    huge = {"values": {"dtype": "U8", "shape": [2**62, 2**62], "data_offsets": [0, 8]}}
    far = {"values": {"dtype": "U8", "shape": [4, 2], "data_offsets": [0, 2**60]}}
    for content in (huge, far):
        file(json.dumps(content).encode(), b"12345678")
        with pytest.raises(FormatError):
            load_database(path)
    file(b"[" * 100_000)
    with pytest.raises(FormatError):
        load_database(path)
    path.write_bytes(struct.pack("<Q", 2**63) + b"{}")
    with pytest.raises(FormatError, match="1 MiB"):
        load_database(path)
    values: NDArray[np.generic] = np.ones((4, 2), np.uint8)
    path.write_bytes(safetensors.numpy.save({"values": values}, {"featveil.database": "[" * 100_000}))
    with pytest.raises(FormatError, match="description"):
        load_database(path)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"version": 2}, "format 2"),
        ({"kind": None}, "kind"),
        ({"kind": "NO KIND"}, "damaged"),
        ({"parts": 5}, "damaged"),
        ({"parts": 0}, "damaged"),
        ({"parts": True}, "parts"),
        ({"parts": "4"}, "parts"),
        ({"digest": None}, "digest"),
        ({"card": []}, "card"),
        ({}, "altered"),
    ],
)
def test_wrong_descriptions_are_refused(path: Path, changes: dict[str, object], message: str) -> None:
    write(path, {"values": np.ones((4, 2), np.uint8)}, **changes)
    with pytest.raises(FormatError, match=message):
        load_database(path)


@pytest.mark.parametrize(
    "tensors",
    [
        {},
        {"other": np.ones((4, 2), np.uint8)},
        {"values": np.ones((4, 2), np.uint8), "extra": np.ones(1)},
        {"values": np.ones((4, 2))},
        {"values": np.ones(8, np.uint8)},
        {"values": np.zeros((4, 2), np.uint8)},
        {"values": np.full((4, 2), np.nan, np.float32)},
        {"values": np.ones((4, 2), np.uint8), "labels": np.ones(4)},
        {"values": np.ones((4, 2), np.uint8), "labels": np.arange(3)},
    ],
)
def test_wrong_tensors_are_refused(path: Path, tensors: dict[str, NDArray[np.generic]]) -> None:
    write(path, tensors)
    with pytest.raises(FormatError, match=r"x\.safetensors"):
        load_database(path)


def test_another_digest_than_expected(path: Path, database: Database) -> None:
    with pytest.raises(InputError, match=f"has digest {database.digest}, expected {'a' * 64}"):
        load_database(path, digest="a" * 64)


def test_missing_file_and_folder(tmp_path: Path, database: Database) -> None:
    for absent in (tmp_path / "none.safetensors", tmp_path):
        with pytest.raises(InputError, match="no database file"):
            load_database(absent)
    with pytest.raises(InputError, match="does not exist"):
        save_database(database, tmp_path / "no" / "x.safetensors")


def test_a_full_disk_leaves_the_old_file(path: Path, database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(self: Path, data: bytes) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(InputError, match="No space left"):
        save_database(Database(database.values, "sift", 2), path)
    assert load_database(path).digest == database.digest
    assert list(path.parent.iterdir()) == [path]


def test_a_card_too_large_to_be_read_back_is_not_written(tmp_path: Path, database: Database) -> None:
    large = Database(database.values, "sift", 4, card={"source": "x" * 2**20})
    with pytest.raises(InputError, match="card"):
        save_database(large, tmp_path / "large.safetensors")
