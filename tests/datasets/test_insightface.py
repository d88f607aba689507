"""Validation sets in pickles: plain ones are read as every Python writes them, and no pickle is ever run."""

import datetime
import os
import pickle
import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest

from featveil.core import FormatError, InputError
from featveil.datasets import insightface as module
from featveil.datasets.insightface import AlignedPairs, load_bin

PICTURES = [b"one", b"two", b"", b"\x00\xff" * 200, b"one", b"five"]
SAME = [True, False, True]
REFUSED = "is refused: a validation set is a pickle of plain lists of bytes and booleans only"
NOT_PLAIN = "is refused: expected a list of pictures as bytes and one of booleans"


class Bomb:
    """Makes a folder when it is unpickled."""

    def __init__(self, marker: Path) -> None:
        self.marker = str(marker)

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (self.marker,)


def written(folder: Path, content: bytes) -> Path:
    path = folder / "set.bin"
    path.write_bytes(content)
    return path


def text(one: bytes) -> bytes:
    """A str of Python 2: SHORT_BINSTRING or BINSTRING."""
    return b"U" + bytes([len(one)]) + one if len(one) < 256 else b"T" + struct.pack("<i", len(one)) + one


def python2(pictures: list[bytes], same: list[bool], protocol: int) -> bytes:
    """What Python 2 wrote by protocols 1 and 2, where text was bytes."""
    flags = (b"\x89", b"\x88") if protocol == 2 else (b"I00\n", b"I01\n")
    first = b"]q\x00(" + b"".join(text(one) + b"q" + bytes([place + 1]) for place, one in enumerate(pictures)) + b"e"
    second = b"]r\x00\x01\x00\x00(" + b"".join(flags[one] for one in same) + b"e"
    if protocol == 2:
        return b"\x80\x02" + first + second + b"\x86q\xff."
    return b"(" + first + second + b"tq\xff."


def encoded(image: Any, suffix: str = ".png") -> bytes:
    return cv2.imencode(suffix, image)[1].tobytes()


def png_header(width: int, height: int) -> bytes:
    """The start of a picture that claims to be that large."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(b"")) + chunk(b"IEND", b"")


@pytest.mark.parametrize("protocol", [3, 4, 5])
@pytest.mark.parametrize("outer", [tuple, list])
def test_what_python_3_writes(tmp_path: Path, protocol: int, outer: Callable[[Any], Any]) -> None:
    found = load_bin(written(tmp_path, pickle.dumps(outer([PICTURES, SAME]), protocol)))
    assert found.pictures == tuple(PICTURES)
    assert found.same.dtype == np.bool_ and found.same.tolist() == SAME


@pytest.mark.parametrize("protocol", [0, 1, 2])
def test_old_protocols_of_python_3_need_a_call_for_bytes_and_are_refused(tmp_path: Path, protocol: int) -> None:
    content = pickle.dumps((PICTURES, SAME), protocol)
    assert b"_codecs" in content
    with pytest.raises(FormatError, match=REFUSED):
        load_bin(written(tmp_path, content))


@pytest.mark.parametrize("protocol", [1, 2])
def test_what_python_2_wrote(tmp_path: Path, protocol: int) -> None:
    content = python2(PICTURES, SAME, protocol)
    assert pickle.loads(content, encoding="bytes") == (PICTURES, SAME)  # noqa: S301 - written above
    found = load_bin(written(tmp_path, content))
    assert found.pictures == tuple(PICTURES) and found.same.tolist() == SAME


def test_many_pictures_come_in_batches_and_repeated_ones_from_the_memo(tmp_path: Path) -> None:
    shared = b"the same object"
    pictures, same = [shared, bytes([1]), *[shared] * 4998], [place % 3 == 0 for place in range(2500)]
    content = pickle.dumps((pictures, same), 4)
    assert content.count(shared) == 1 and content.count(b"e") > 4  # batches of a thousand
    found = load_bin(written(tmp_path, content))
    assert found.pictures == tuple(pictures) and found.same.tolist() == same


@pytest.mark.parametrize(
    "content",
    [
        b"(lp0\nC\x01aaC\x01ba(lp9\nI01\na\x86.",  # LIST, APPEND, PUT
        b"(](C\x01aC\x01be](\x88et.",  # TUPLE
        b"](C\x01aC\x01be]\x88a\x86.",
        b"]r\xff\xff\xff\xff(C\x01aC\x01be]p" + b"9" * 4000 + b"\n(\x88e\x86.",  # the largest places in the memo
        b"]\x94(C\x01a\x94C\x01b\x94e]\x94(\x88e\x86\x94.",  # MEMOIZE
        b"\x80\x04\x95\xff\xff\xff\xff\xff\xff\xff\xff](C\x01aC\x01be](\x88e\x86.",  # a frame that lies about its size
        b"](B\x01\x00\x00\x00a\x8e\x01\x00\x00\x00\x00\x00\x00\x00be](\x88e\x86.",  # BINBYTES, BINBYTES8
        b"](C\x01aC\x01be](\x88e\x86.and more that nobody reads",
    ],
)
def test_other_ways_to_write_plain_lists(tmp_path: Path, content: bytes) -> None:
    found = load_bin(written(tmp_path, content))
    assert (found.pictures, found.same.tolist()) == ((b"a", b"b"), [True])


@pytest.mark.parametrize("protocol", range(6))
@pytest.mark.parametrize("place", ["whole", "picture", "label", "beside"])
def test_no_code_runs(tmp_path: Path, protocol: int, place: str) -> None:
    marker = tmp_path / "ran"
    bomb = Bomb(marker)
    hostile = {
        "whole": bomb,
        "picture": ([b"a", bomb], [True]),
        "label": ([b"a", b"b"], [bomb]),
        "beside": ([b"a", b"b"], [True], bomb),
    }[place]
    content = pickle.dumps(hostile, protocol)
    with pytest.raises(FormatError, match=REFUSED):
        load_bin(written(tmp_path, content))
    assert not marker.exists()
    pickle.loads(content)  # noqa: S301 - our own bomb, to show that it is live
    assert marker.exists()


def test_code_before_the_lists_or_after_a_whole_set_does_not_run(tmp_path: Path) -> None:
    marker = tmp_path / "ran"
    bomb = b"cos\nmkdir\nX" + struct.pack("<I", len(str(marker))) + str(marker).encode() + b"\x85R0"
    whole = pickle.dumps((PICTURES, SAME), 3)
    for content in (bomb + whole, whole[:-1] + bomb + b".", whole[:5] + bomb + whole[5:]):
        with pytest.raises(FormatError, match=REFUSED):
            load_bin(written(tmp_path, content))
        assert not marker.exists()
        assert pickle.loads(content) == (PICTURES, SAME)  # noqa: S301 - our own bomb, to show that it is live
        marker.rmdir()


@pytest.mark.parametrize(
    ("opcode", "name"),
    [
        (b"cos\nsystem\n", "GLOBAL"),
        (b"C\x02osC\x06system\x93", "STACK_GLOBAL"),
        (b"\x82\x01", "EXT1"),
        (b"\x83\x01\x00", "EXT2"),
        (b"\x84\x01\x00\x00\x00", "EXT4"),
        (b"(ios\nsystem\n", "INST"),
        (b"(C\x01ao", "OBJ"),
        (b"C\x01a)R", "REDUCE"),
        (b"C\x01a)\x81", "NEWOBJ"),
        (b"C\x01a))\x92", "NEWOBJ_EX"),
        (b"C\x01aC\x01ab", "BUILD"),
        (b"Pname\n", "PERSID"),
        (b"C\x01aQ", "BINPERSID"),
        (b"}", "EMPTY_DICT"),
        (b"(d", "DICT"),
        (b"]C\x01aC\x01as", "SETITEM"),
        (b"](C\x01aC\x01au", "SETITEMS"),
        (b"\x8f", "EMPTY_SET"),
        (b"](\x90", "ADDITEMS"),
        (b"(\x91", "FROZENSET"),
        (b"\x97", "NEXT_BUFFER"),
        (b"]\x98", "READONLY_BUFFER"),
        (b"N", "NONE"),
        (b"K\x01", "BININT1"),
        (b"M\x01\x00", "BININT2"),
        (b"J\x01\x00\x00\x00", "BININT"),
        (b"I1\n", "INT"),
        (b"I2\n", "INT"),
        (b"L1L\n", "LONG"),
        (b"\x8a\x01\x01", "LONG1"),
        (b"\x8b\x01\x00\x00\x00\x01", "LONG4"),
        (b"F1.0\n", "FLOAT"),
        (b"G" + bytes(8), "BINFLOAT"),
        (b"\x8c\x01a", "SHORT_BINUNICODE"),
        (b"X\x01\x00\x00\x00a", "BINUNICODE"),
        (b"\x8d\x01\x00\x00\x00\x00\x00\x00\x00a", "BINUNICODE8"),
        (b"V1\n", "UNICODE"),
        (b"S'a'\n", "STRING"),
        (b"\x96\x01\x00\x00\x00\x00\x00\x00\x00a", "BYTEARRAY8"),
        (b"C\x01a2", "DUP"),
        (b"C\x01a0", "POP"),
        (b"(1", "POP_MARK"),
    ],
)
def test_every_other_opcode_is_refused_wherever_it_stands(tmp_path: Path, opcode: bytes, name: str) -> None:
    whole = pickle.dumps((PICTURES, SAME), 3)
    for content in (opcode + b".", opcode + whole, whole[:5] + opcode + whole[5:], whole[:-1] + opcode + b"."):
        with pytest.raises(FormatError, match=REFUSED) as caught:
            load_bin(written(tmp_path, content))
        assert str(caught.value.__cause__) == f"opcode {name}"


@pytest.mark.parametrize(
    "hostile",
    [
        (np.zeros((2, 4), np.uint8), [True]),
        ([np.zeros(4, np.uint8)] * 2, [True]),
        ([b"a", b"b"], np.array([True])),
        ([b"a", b"b"], [np.True_]),
        {"pictures": [b"a", b"b"], "same": [True]},
        ([b"a", b"b"], [1]),
        ([b"a", b"b"], [None]),
        ([b"a", "b"], [True]),
        ([b"a", bytearray(b"b")], [True]),
        ([b"a", b"b"], {True}),
        ([b"a", b"b"], [datetime.date(2020, 1, 1)]),
    ],
)
@pytest.mark.parametrize("protocol", [3, 5])
def test_other_objects_are_refused(tmp_path: Path, hostile: Any, protocol: int) -> None:
    with pytest.raises(FormatError, match=REFUSED):
        load_bin(written(tmp_path, pickle.dumps(hostile, protocol)))


CYCLIC: list[Any] = [b"a"]
CYCLIC.append(CYCLIC)


@pytest.mark.parametrize(
    "plain",
    [
        ((b"a", b"b"), [True]),
        ([b"a", b"b"], (True,)),
        ([b"a", [b"b"]], [True]),
        ([b"a", b"b"], [[True]]),
        ([b"a", b"b"], [b"c"]),
        ([True, False], [True]),
        ([b"a", b"b"], []),
        ([], []),
        (CYCLIC, [True]),
        ([b"a", b"b"], CYCLIC),
        b"ab",
        [[True], [b"a", b"b"]],
    ],
)
def test_plain_data_of_another_shape(tmp_path: Path, plain: Any) -> None:
    with pytest.raises(FormatError, match=NOT_PLAIN):
        load_bin(written(tmp_path, pickle.dumps(plain, 4)))


@pytest.mark.parametrize("plain", [[], True, b"abc", ([b"a", b"b"],), ([b"a", b"b"], [True], [True]), CYCLIC[:1]])
def test_not_two_parts(tmp_path: Path, plain: Any) -> None:
    with pytest.raises(FormatError, match="is refused"):
        load_bin(written(tmp_path, pickle.dumps(plain, 4)))


@pytest.mark.parametrize("count", [1, 3, 4])
def test_wrong_counts(tmp_path: Path, count: int) -> None:
    with pytest.raises(FormatError, match=f"has {count} pictures for 1 pairs: expected two for each"):
        load_bin(written(tmp_path, pickle.dumps(([b"a"] * count, [True]), 4)))


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\x06.",  # no opcode at all
        b".",
        b"(.",
        b"]].",  # two things left
        b"e.",
        b"a.",
        b"]a.",
        b"]e.",
        b"t.",
        b"l.",
        b"]\x86.",
        b"q\x00.",
        b"\x94.",
        b"h\x00.",
        b"]p\n.",
        b"]pnone\n.",
        b"]p" + b"9" * 5000 + b"\n.",
        b"gnone\n.",
        b"j\xff\xff\xff\xff.",
        b"C\x01a(C\x01be.",  # appending to bytes
        b"((e.",  # and to a mark
        b"Iyes\n.",
        b"T\xff\xff\xff\xffa.",  # -1 bytes
        b"B\xff\xff\xff\xffa.",  # 4 GiB
        b"\x8e\xff\xff\xff\xff\xff\xff\xff\x7fa.",  # 8 EiB
        b"\x8b\xff\xff\xff\x7f.",
        b"(" * 100_000 + b"t" * 100_000 + b".",  # deep
        b"]" * 100_000 + b"a" * 99_999 + b".",
    ],
)
def test_pickles_that_python_could_not_run_either_or_that_are_deep(tmp_path: Path, content: bytes) -> None:
    with pytest.raises(FormatError, match="is refused"):
        load_bin(written(tmp_path, content))


@pytest.mark.parametrize("content", [pickle.dumps((PICTURES, SAME), 4), python2(PICTURES, SAME, 1)])
def test_files_that_end_early_are_refused(tmp_path: Path, content: bytes) -> None:
    for length in [*range(0, len(content), 9), len(content) - 1]:
        with pytest.raises(FormatError, match=REFUSED):
            load_bin(written(tmp_path, content[:length]))


def test_damage_anywhere_is_another_set_or_one_clear_error(tmp_path: Path) -> None:
    content, refused, rng = pickle.dumps(([b"a", b"b"], [True]), 4), 0, np.random.default_rng(0)
    for place in range(len(content)):
        for value in rng.permutation(256)[:16]:
            damaged = bytearray(content)
            damaged[place] = value
            try:
                found = load_bin(written(tmp_path, bytes(damaged)))
                assert len(found.pictures) == 2 * len(found.same)
            except FormatError:
                refused += 1
    assert refused > 10 * len(content)


def test_too_many_opcodes_are_not_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content = b"](C\x01aC\x01be](\x88e\x86."
    monkeypatch.setattr(module, "_MOST_OPCODES", 11)
    assert len(load_bin(written(tmp_path, content)).pictures) == 2
    monkeypatch.setattr(module, "_MOST_OPCODES", 10)
    with pytest.raises(FormatError, match=REFUSED):
        load_bin(written(tmp_path, content))


def test_files_that_are_missing_or_too_large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for path in (tmp_path, tmp_path / "no.bin"):
        with pytest.raises(InputError, match="cannot read"):
            load_bin(path)
    content = pickle.dumps(([b"a", b"b"], [True]), 4)
    monkeypatch.setattr(module, "_LARGEST_FILE", len(content))
    monkeypatch.setattr(module, "_MOST_PICTURES", 2)
    assert len(load_bin(written(tmp_path, content)).pictures) == 2
    monkeypatch.setattr(module, "_MOST_PICTURES", 1)
    with pytest.raises(FormatError, match="2 pictures"):
        load_bin(written(tmp_path, content))
    monkeypatch.setattr(module, "_LARGEST_FILE", len(content) - 1)
    with pytest.raises(FormatError, match="larger than any validation set"):
        load_bin(written(tmp_path, content))


def test_pairs_are_neighbours_in_ten_folds() -> None:
    same = np.arange(25) % 2 == 0
    found = AlignedPairs((b"",) * 50, same).pairs()
    assert found.first.tolist() == list(range(0, 50, 2)) and found.second.tolist() == list(range(1, 51, 2))
    assert found.same.tolist() == same.tolist()
    assert (np.diff(found.fold) >= 0).all() and sorted(set(found.fold)) == list(range(10))
    assert set(np.bincount(found.fold)) == {2, 3}
    with pytest.raises(InputError, match="both some of one person"):
        AlignedPairs((b"",) * 4, np.array([True, True])).pairs()


def test_crops_are_rgb() -> None:
    blue_green_red = np.empty((112, 112, 3), np.uint8)
    blue_green_red[:] = (10, 120, 240)
    blue_green_red[:56] = (200, 30, 60)
    for crop in AlignedPairs((encoded(blue_green_red),) * 2, np.array([True])).crops():
        assert crop.dtype == np.uint8 and crop.shape == (112, 112, 3) and crop.flags.c_contiguous
        assert crop[100, 5].tolist() == [240, 120, 10] and crop[5, 100].tolist() == [60, 30, 200]


@pytest.mark.parametrize("suffix", [".jpg", ".bmp", ".webp"])
def test_crops_of_other_formats_and_of_grey(suffix: str) -> None:
    grey = np.full((112, 112), 77, np.uint8)
    (crop,) = AlignedPairs((encoded(grey, suffix),), np.array([True])).crops()
    assert crop.shape == (112, 112, 3) and np.abs(crop.astype(int) - 77).max() <= 2


@pytest.mark.parametrize(
    ("picture", "found"),
    [
        (b"", "no picture"),
        (b"not a picture", "no picture"),
        (encoded(np.zeros((112, 112, 3), np.uint8))[:60], "no picture"),
        (encoded(np.zeros((112, 111, 3), np.uint8)), "a picture of 111 x 112 pixels"),
        (encoded(np.zeros((224, 112), np.uint8)), "a picture of 112 x 224 pixels"),
        (encoded(np.zeros((1, 1, 3), np.uint8)), "a picture of 1 x 1 pixels"),
        (png_header(2**16, 2**16), "no picture"),
        (png_header(2**31 - 1, 2**31 - 1), "no picture"),
        (encoded(np.zeros((112, 112, 3), np.uint8)) + bytes(2**18), "no picture"),
    ],
)
def test_entries_that_are_no_face_come_to_light_in_their_turn(picture: bytes, found: str) -> None:
    good = encoded(np.zeros((112, 112, 3), np.uint8))
    crops = AlignedPairs((good, picture), np.array([True])).crops()
    assert next(crops).shape == (112, 112, 3)
    with pytest.raises(FormatError, match=f"entry 1 is {found}, not a face of 112 x 112"):
        next(crops)


def test_a_set_does_not_show_its_pictures() -> None:
    assert "secret" not in repr(AlignedPairs((b"secret", b"secret"), np.array([True])))
