"""Files of face descriptors: what they hold, round trips, and files that are damaged or mean harm."""

import io
import struct
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from featveil.core import DatasetError, FormatError, InputError
from featveil.core.arrays import Float32
from featveil.datasets import face_sets as module
from featveil.datasets.face_sets import FaceSet, load_faces, person_of, save_faces, without_suffix

DIGEST = "0123456789ab" + "c" * 52
NAMES = ("Abel_0001", "Abel_0002", "Bea_0001", "Cy/1.jpg")


@pytest.fixture
def values() -> Float32:
    rows = np.random.default_rng(0).standard_normal((4, 6))
    return np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True), np.float32)


def stored(folder: Path, compress: bool = False, **arrays: Any) -> Path:
    """An .npz file as others write it."""
    path = folder / "faces.npz"
    (np.savez_compressed if compress else np.savez)(path, **arrays)
    return path


def header(descr: str, shape: str, body: bytes = b"") -> bytes:
    """An array as a file, with whatever its header claims."""
    text = f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}, }}".ljust(117) + "\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text.encode() + body


def zipped(folder: Path, **members: bytes) -> Path:
    path = folder / "crafted.npz"
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members.items():
            archive.writestr(f"{name}.npy", content)
    return path


def as_bytes(array: Any) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def patched(path: Path, signature: bytes, offset: int, layout: str, value: int) -> None:
    """Overwrite a field of the first header with that `signature`."""
    content = bytearray(path.read_bytes())
    struct.pack_into(layout, content, content.index(signature) + offset, value)
    path.write_bytes(content)


class Bomb:
    """Makes a file when it is unpickled."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.marker,)


def test_everything_a_file_may_hold(tmp_path: Path, values: Float32) -> None:
    path = stored(
        tmp_path,
        embedding=values,
        names=np.array(NAMES),
        model=np.array(DIGEST),
        gender=np.array([0, 0, 1, 1], np.uint8),
        glasses=np.array([True, False, False, True]),
        norm=np.ones(4, np.float16),  # not whole numbers
        whole=np.arange(3),  # not one for each
        first=np.array([0, 1]),
        second=np.array([1, 2]),
        same=np.array([True, False]),
        fold=np.array([0, 1], np.uint8),
    )
    found = load_faces(path)
    assert (len(found), found.size, found.names, found.model) == (4, 6, NAMES, DIGEST)
    assert found.kind == "face-0123456789ab"
    np.testing.assert_allclose(found.values, values, atol=1e-7)
    assert found.values.dtype == np.float32 and not found.values.flags.writeable
    assert sorted(found.attributes) == ["gender", "glasses"]
    assert found.attribute("gender").tolist() == [0, 0, 1, 1]
    assert found.attribute("glasses").tolist() == [1, 0, 0, 1]
    assert {name: array.tolist() for name, array in found.pairs.items()} == {
        "first": [0, 1],
        "second": [1, 2],
        "same": [1, 0],
        "fold": [0, 1],
    }
    assert found.people.tolist() == ["Abel", "Abel", "Bea", "Cy"]


@pytest.mark.parametrize("called", ["embedding", "embeddings", "descriptors"])
@pytest.mark.parametrize("names", ["names", "files"])
def test_other_names_of_the_arrays(tmp_path: Path, values: Float32, called: str, names: str) -> None:
    arrays: dict[str, Any] = {called: values, names: np.array(NAMES)}
    found = load_faces(stored(tmp_path, **arrays))
    assert found.names == NAMES and not found.attributes
    np.testing.assert_allclose(found.values, values, atol=1e-7)


@pytest.mark.parametrize("suffix", [".npy", ".NPY"])
def test_a_plain_array(tmp_path: Path, values: Float32, suffix: str) -> None:
    path = tmp_path / f"faces{suffix}"
    path.write_bytes(as_bytes(values.astype(np.float64)))
    found = load_faces(path, "face-mine")
    assert (found.names, found.kind, found.model) == (("0", "1", "2", "3"), "face-mine", None)
    np.testing.assert_allclose(found.values, values, atol=1e-7)
    assert load_faces(path).kind == "face"


def test_the_model_in_a_file_decides_the_kind(tmp_path: Path, values: Float32) -> None:
    assert load_faces(stored(tmp_path, embedding=values), "face-mine").kind == "face-mine"
    told = stored(tmp_path, embedding=values, model=np.array(DIGEST))
    assert load_faces(told, "face-mine").kind == "face-0123456789ab"


@pytest.mark.parametrize("model", ["0" * 63, "A" * 64, "0" * 65, 5, ["0" * 64], "0" * 64 + "\n"])
def test_models_that_are_no_digest(tmp_path: Path, values: Float32, model: Any) -> None:
    with pytest.raises(DatasetError, match="64 lower-case hexadecimal digits"):
        load_faces(stored(tmp_path, embedding=values, model=np.array(model)))


@pytest.mark.parametrize("names", [np.array([b"a", b"b", "ü".encode(), b"d"]), np.array([["a"], ["b"], ["ü"], ["d"]])])
def test_names_as_bytes_or_in_a_column(tmp_path: Path, values: Float32, names: Any) -> None:
    assert load_faces(stored(tmp_path, embedding=values, names=names)).names == ("a", "b", "ü", "d")


@pytest.mark.parametrize(
    "names",
    [
        np.array(["a", "b", "c", "a"]),
        np.array(["a", "b", "c"]),
        np.array(["a", "b", "c", "d", "e"]),
        np.array("a"),
        np.array([0.5, 1, 2, 3]),
        np.array([b"a", b"b", b"\xff", b"d"]),
        np.zeros(4, "V0"),
    ],
)
def test_names_that_cannot_be(tmp_path: Path, values: Float32, names: Any) -> None:
    with pytest.raises(DatasetError, match=r"names"):
        load_faces(stored(tmp_path, embedding=values, names=names))


@pytest.mark.parametrize("factor", [1e-40, 1e-25, 1.0, 512.0, 1e25, 3e37])
def test_rows_are_brought_to_norm_one_at_any_scale(values: Float32, factor: float) -> None:
    found = FaceSet((values.astype(np.float64) * factor).astype(np.float32), NAMES, "face")
    np.testing.assert_allclose(np.linalg.norm(found.values, axis=1), 1, atol=1e-6)
    np.testing.assert_allclose(found.values, values, atol=1e-4 if factor == 1e-40 else 1e-6)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ([], "rows"),
        (np.ones((2, 2, 2)), "rows"),
        (np.ones((0, 6)), "rows"),
        (np.ones((4, 0)), "rows"),
        (np.array(1.0), "rows"),
        ([["a", "b"]], "real numbers"),
        (np.ones((2, 2), complex), "real numbers"),
        (np.ones((2, 2), "M8[s]"), "real numbers"),
        (np.zeros((2, 2), [("a", "f4"), ("b", "i4")]), "real numbers"),
        (np.full((2, 2), np.nan), "NaN"),
        (np.full((2, 2), -np.inf), "NaN"),
        (np.full((2, 2), 1e300), "too large"),
        ([[1, 2], [0, 0]], "face descriptor 1 has zero norm"),
    ],
)
def test_descriptors_that_cannot_be(tmp_path: Path, change: Any, message: str) -> None:
    path = tmp_path / "faces.npy"
    path.write_bytes(as_bytes(np.asarray(change)))
    for one in (path, stored(tmp_path, embedding=np.asarray(change))):
        with pytest.raises(DatasetError, match=message) as caught:
            load_faces(one)
        assert str(one) in str(caught.value)


def test_a_file_of_something_else(tmp_path: Path, values: Float32) -> None:
    with pytest.raises(DatasetError, match="expected an array called embedding or"):
        load_faces(stored(tmp_path, vectors=values))


@pytest.mark.parametrize("wrong", [np.array(["a"]), np.array([0.0]), np.array([np.nan]), np.array([2**63], np.uint64)])
def test_pairs_and_attributes_that_are_no_whole_numbers(tmp_path: Path, values: Float32, wrong: Any) -> None:
    with pytest.raises(DatasetError, match="second"):
        load_faces(stored(tmp_path, embedding=values, second=wrong))
    with pytest.raises(DatasetError, match="attribute age holds values outside"):
        load_faces(stored(tmp_path, embedding=values, age=np.full(4, 2**64 - 1, np.uint64)))


def test_what_is_not_an_array_is_left_aside(tmp_path: Path, values: Float32) -> None:
    path = stored(tmp_path, embedding=values)
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("README.txt", "hello")
        archive.writestr("gender", "neither is this")
    assert not load_faces(path).attributes


def test_missing_files_and_folders(tmp_path: Path) -> None:
    for path in (tmp_path / "no.npz", tmp_path / "no.npy", tmp_path, str(tmp_path / "a\0b.npz")):
        with pytest.raises(InputError, match="there is no file"):
            load_faces(path)


@pytest.mark.parametrize("called", ["embedding", "names", "gender"])
def test_nothing_is_unpickled(tmp_path: Path, values: Float32, called: str) -> None:
    marker = tmp_path / "ran"
    bombs = np.full(4, None, object)
    bombs[0] = Bomb(marker)
    path = stored(tmp_path, **({"embedding": values} | {called: bombs}))
    with np.load(path, allow_pickle=True) as content:
        content[called]
    assert marker.exists()  # it would go off
    marker.unlink()
    with pytest.raises(FormatError, match="plain arrays"):
        load_faces(path)
    plain = tmp_path / "plain.npy"
    np.save(plain, bombs, allow_pickle=True)
    pickled = tmp_path / "pickled.npy"
    bombs.dump(pickled)
    for one in (plain, pickled):
        with pytest.raises(FormatError, match="plain arrays"):
            load_faces(one)
    assert not marker.exists()


@pytest.mark.parametrize("compress", [True, False])
def test_files_that_end_early_are_refused(tmp_path: Path, values: Float32, compress: bool) -> None:
    path = stored(tmp_path, compress, embedding=values, names=np.array(NAMES))
    whole, cut = path.read_bytes(), tmp_path / "cut.npz"
    for length in [0, 1, 3, 4, *range(10, len(whole), 41), len(whole) - 1]:
        cut.write_bytes(whole[:length])
        with pytest.raises(FormatError, match=r"cut\.npz is not a readable"):
            load_faces(cut)
    plain = tmp_path / "cut.npy"
    for length in (0, 1, 5, 60, len(as_bytes(values)) - 1):
        plain.write_bytes(as_bytes(values)[:length])
        with pytest.raises(FormatError, match=r"cut\.npy is not a readable"):
            load_faces(plain)


def test_damage_anywhere_is_one_clear_error_or_none(tmp_path: Path) -> None:
    rows = np.random.default_rng(1).standard_normal((9, 6))
    whole = stored(tmp_path, True, embedding=rows).read_bytes()
    path, refused = tmp_path / "damaged.npz", 0
    for place in range(0, len(whole), 2):
        content = bytearray(whole)
        content[place] ^= (0x01, 0x20, 0xFF)[place % 3]
        path.write_bytes(content)
        try:
            load_faces(path)
        except (FormatError, DatasetError):  # the name of its only array may have changed
            refused += 1
    assert refused > len(whole) / 4  # times and the like may change


@pytest.mark.parametrize(
    ("signature", "offset", "layout", "value"),
    [
        (b"PK\x01\x02", 8, "<H", 1),  # encrypted
        (b"PK\x01\x02", 10, "<H", 99),  # packed in an unknown way
        (b"PK\x01\x02", 24, "<I", 10),  # fewer bytes than there are
        (b"PK\x01\x02", 6, "<H", 255),  # of a later version
        (b"PK\x05\x06", 16, "<I", 0),  # its directory is somewhere else
    ],
)
def test_archives_that_lie(
    tmp_path: Path, values: Float32, signature: bytes, offset: int, layout: str, value: int
) -> None:
    path = stored(tmp_path, True, embedding=np.tile(values, (9, 1)))
    assert len(load_faces(path)) == 36
    patched(path, signature, offset, layout, value)
    with pytest.raises(FormatError, match="not a readable"):
        load_faces(path)


@pytest.mark.parametrize(
    ("descr", "shape"),
    [
        ("'<f4'", f"({10**30}, 2)"),
        ("'<f4'", f"({2**40}, {2**40})"),
        ("'<f4'", f"({2**62},)"),
        ("'<f4'", "(-1, 2)"),
        ("'<f4'", "(2.0, 2)"),
        ("'<f4'", "5"),
        ("'<f4'", "(" * 40),
        ("'|O'", "(1, 2)"),
        ("[('a', '|O')]", "(1, 2)"),
        ("'zz'", "(1, 2)"),
        ("7", "(1, 2)"),
        ("__import__('os')", "(1, 2)"),
    ],
)
def test_arrays_with_impossible_headers(tmp_path: Path, descr: str, shape: str) -> None:
    content, plain = header(descr, shape, b"a" * 16), tmp_path / "plain.npy"
    plain.write_bytes(content)
    for path in (plain, zipped(tmp_path, embedding=content)):
        with pytest.raises(FormatError, match="not a readable"):
            load_faces(path)


def test_arrays_that_take_no_room_are_not_walked(tmp_path: Path, values: Float32) -> None:
    """A billion rows without columns, or names without letters, are no bytes in a file: walking them takes hours."""
    many = f"({10**12},"
    with pytest.raises(DatasetError, match="rows"):
        load_faces(zipped(tmp_path, embedding=header("'<f4'", f"{many} 0)")))
    with pytest.raises(DatasetError, match="as many names"):
        load_faces(zipped(tmp_path, embedding=as_bytes(values), names=header("'<U0'", f"{many})")))
    with pytest.raises(DatasetError, match="real numbers"):
        load_faces(zipped(tmp_path, embedding=header("'<U0'", "(100000, 100000)")))


def test_a_file_of_the_other_format(tmp_path: Path, values: Float32) -> None:
    archive, plain = stored(tmp_path, embedding=values), tmp_path / "other.npy"
    plain.write_bytes(archive.read_bytes())
    archive.write_bytes(as_bytes(values))
    for path in (plain, archive):
        with pytest.raises(FormatError, match="not a readable"):
            load_faces(path)


def test_a_file_that_unpacks_to_too_much_is_not_unpacked(
    tmp_path: Path, values: Float32, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = stored(tmp_path, True, embedding=values, filler=np.zeros(10**6))
    unpacked = 8 * 10**6 + 4 * 24 + 2 * 128
    assert path.stat().st_size < unpacked / 100
    monkeypatch.setattr(module, "_LARGEST", unpacked)
    assert len(load_faces(path)) == 4
    monkeypatch.setattr(module, "_LARGEST", unpacked - 1)
    monkeypatch.delattr(np, "load")
    with pytest.raises(FormatError, match="unpacks to more than 0 GiB: split it"):
        load_faces(path)


def test_round_trip(tmp_path: Path, values: Float32) -> None:
    pairs = {"first": np.array([0]), "second": np.array([3]), "same": np.array([1]), "fold": np.array([7])}
    faces = FaceSet(values, NAMES, "face-0123456789ab", {"gender": np.array([0, -1, 2, 2**40])}, pairs, DIGEST)
    path = tmp_path / "own.npz"
    for _ in range(2):  # replacing the first
        save_faces(faces, path)
    found = load_faces(path)
    assert (found.names, found.kind, found.model) == (faces.names, faces.kind, faces.model)
    np.testing.assert_allclose(found.values, faces.values, atol=1e-7)
    assert found.attribute("gender").tolist() == [0, -1, 2, 2**40]
    assert {name: array.tolist() for name, array in found.pairs.items()} == {
        name: array.tolist() for name, array in pairs.items()
    }
    assert [one.name for one in tmp_path.iterdir()] == ["own.npz"]


def test_round_trip_without_anything_else(tmp_path: Path, values: Float32) -> None:
    save_faces(FaceSet(values, NAMES, "face"), tmp_path / "own.npz")
    found = load_faces(tmp_path / "own.npz", "face-mine")
    assert (found.kind, found.model, found.attributes, found.pairs) == ("face-mine", None, {}, {})


@pytest.mark.parametrize("name", ["file", "allow_pickle", "embedding", "names", "files", "model", "first", "fold"])
def test_attributes_that_an_archive_cannot_tell_apart(tmp_path: Path, values: Float32, name: str) -> None:
    with pytest.raises(InputError, match=f"cannot be called '{name}'"):
        save_faces(FaceSet(values, NAMES, "face", {name: np.arange(4)}), tmp_path / "own.npz")
    assert list(tmp_path.iterdir()) == []


def test_a_disk_that_refuses_leaves_the_old_file(tmp_path: Path) -> None:
    resource = pytest.importorskip("resource", reason="limits of the operating system")
    path = tmp_path / "own.npz"
    path.write_bytes(b"old")
    rows = np.random.default_rng(2).standard_normal((500, 100)).astype(np.float32)
    faces = FaceSet(rows, tuple(map(str, range(500))), "face")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, limits[1]))
    try:
        with pytest.raises(InputError, match=r"cannot write .*own\.npz: File too large"):
            save_faces(faces, path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert path.read_bytes() == b"old"
    assert [one.name for one in tmp_path.iterdir()] == ["own.npz"]
    with pytest.raises(InputError, match="does not exist: create it first"):
        save_faces(faces, tmp_path / "no" / "own.npz")


def test_some_of_the_faces(values: Float32) -> None:
    pairs = {name: np.array([0]) for name in ("first", "second", "same", "fold")}
    faces = FaceSet(values, NAMES, "face", {"gender": np.array([5, 6, 7, 8])}, pairs, DIGEST)
    some = faces.take(np.array([3, 1]))
    assert (some.names, some.kind, some.model, some.pairs) == (("Cy/1.jpg", "Abel_0002"), "face", DIGEST, {})
    np.testing.assert_allclose(some.values, values[[3, 1]], atol=1e-7)
    assert some.attribute("gender").tolist() == [8, 6]
    with pytest.raises(InputError, match="no face descriptor"):
        faces.take(np.array([], np.int64))
    with pytest.raises(InputError, match="different names"):
        faces.take(np.array([1, 1]))


def test_an_unknown_attribute_says_which_there_are(values: Float32) -> None:
    faces = FaceSet(values, NAMES, "face", {"gender": np.zeros(4, np.int64), "race": np.ones(4, np.int64)})
    with pytest.raises(DatasetError, match="no attribute 'age': there are gender, race"):
        faces.attribute("age")
    with pytest.raises(DatasetError, match="there are none"):
        FaceSet(values, NAMES, "face").attribute("gender")


def test_sets_that_cannot_be(values: Float32) -> None:
    with pytest.raises(InputError, match="4 face descriptors need as many different names"):
        FaceSet(values, NAMES[:3], "face")
    with pytest.raises(InputError, match="different names"):
        FaceSet(values, ("a", "b", "c", "a"), "face")
    with pytest.raises(InputError, match="descriptor kind"):
        FaceSet(values, NAMES, "Face")
    with pytest.raises(InputError, match=r"attribute gender must have shape \(4\)"):
        FaceSet(values, NAMES, "face", {"gender": np.zeros(3, np.int64)})
    with pytest.raises(InputError, match="attribute gender must hold whole numbers"):
        FaceSet(values, NAMES, "face", {"gender": np.zeros(4)})  # type: ignore[dict-item]


def test_a_set_shows_neither_descriptors_nor_names(values: Float32) -> None:
    shown = repr(FaceSet(values, NAMES, "face", {"gender": np.zeros(4, np.int64)}))
    assert shown == "FaceSet(kind='face', model=None)"


@pytest.mark.parametrize(
    ("name", "person"),
    [
        ("Abel_Pacheco_0001", "Abel_Pacheco"),
        ("Abel_Pacheco_0001.jpg", "Abel_Pacheco"),
        ("lfw/Abel_Pacheco/Abel_Pacheco_0001.jpg", "Abel_Pacheco"),
        ("someone/1.png", "someone"),
        ("/1.png", "1"),
        ("portrait.JPG", "portrait"),
        ("Abel_001", "Abel_001"),
        ("Abel_00001", "Abel_00001"),
        ("0001", "0001"),
        ("George_W._Bush_0001", "George_W._Bush"),
        ("J.Lo_0001", "J.Lo"),
        ("J.Z_0001.jpg", "J.Z"),
        ("", ""),
    ],
)
def test_who_is_on_a_photograph(name: str, person: str) -> None:
    assert person_of(name) == person


@pytest.mark.parametrize(
    ("name", "bare"),
    [("a/b.jpg", "a/b"), ("a.b/c", "a.b/c"), ("a.TIFF", "a"), (".jpg", ".jpg"), ("v1.2", "v1.2"), ("..", "..")],
)
def test_only_suffixes_of_pictures_come_off(name: str, bare: str) -> None:
    assert without_suffix(name) == bare


def test_one_descriptor_is_a_row(tmp_path: Path) -> None:
    path = tmp_path / "face.npy"
    path.write_bytes(as_bytes(np.array([3.0, 4.0])))
    np.testing.assert_allclose(load_faces(path).values, [[0.6, 0.8]], rtol=1e-6)
    with pytest.raises(DatasetError, match="rows"):
        load_faces(stored(tmp_path, embedding=np.array([3.0, 4.0])))
