"""Sketch files: what is written is read; damaged or hostile ones end in a FormatError, without a large allocation."""

import struct
import tracemalloc
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from damaged_tensors import Change, header_changed, joined, metadata_changed, parts
from featveil.core import FormatError, InputError
from featveil.gate import Calibration, Exact, Quantised, Signature, Sketch, load_sketch, save_sketch, sketch_files
from featveil.gate.sketch_files import decode_sketch, encode_sketch
from sketches import LOOSE, MODEL, sketch_of

N, D, BYTES = 40, 10, 4


def small(quantised: bool = True) -> Sketch:
    """Entries of random bytes: four parts of three components, of which the last two are padding."""
    rng = np.random.default_rng(0)
    codes = rng.integers(0, 256, (N, BYTES), np.uint8)
    centroids = rng.normal(0, 0.3, (BYTES, 256, 3)).astype(np.float16)
    values = rng.normal(0, 0.3, (N, D)).astype(np.float16)
    points, images = np.sort(rng.integers(0, 30, N)), rng.integers(0, 5, N)
    entries = Quantised(codes, centroids, D) if quantised else Exact(values)
    calibration = replace(LOOSE, contrast=0.9, background=MODEL)
    signature = Signature(MODEL, MODEL * 2)
    return Sketch(entries, points, images, "sift", MODEL, 300, 5, "a place", calibration, signature)


QUANTISED, EXACT = (encode_sketch(small(quantised)) for quantised in (True, False))


def with_header(change: Change, content: bytes = QUANTISED) -> bytes:
    return header_changed(change, content)


def with_about(change: Change, content: bytes = QUANTISED) -> bytes:
    return metadata_changed(change, content, "featveil.sketch")


def with_calibration(**fields: object) -> bytes:
    return with_about(lambda about: about["calibration"].update(fields))


def with_model(**fields: object) -> bytes:
    return with_about(lambda about: about["model"].update(fields))


def fitted(content: bytes) -> Sketch:
    """As it is read where somebody made the digest fit."""
    return sketch_files._decoded(content)[0]


def with_text(old: str, new: str) -> bytes:
    """Of the metadata as they are written, where JSON would not write them."""
    header, body = parts(QUANTISED)
    text = header["__metadata__"]["featveil.sketch"]
    assert old in text
    header["__metadata__"]["featveil.sketch"] = text.replace(old, new, 1)
    return joined(header, body)


def with_entry(name: str, content: bytes = QUANTISED, **fields: object) -> bytes:
    return with_header(lambda header: header[name].update(fields), content)


def with_value(name: str, value: bytes, content: bytes = QUANTISED, place: int = 0) -> bytes:
    header, body = parts(content)
    begin = header[name]["data_offsets"][0] + place * len(value)
    return joined(header, body[:begin] + value + body[begin + len(value) :])


def small_sketch_of_many_points() -> bytes:
    """A map of 10^9 points, of which the file has 40: allowed, and no reason to take memory for the others."""
    return with_model(points=10**9)


ATTACKS: dict[str, bytes] = {
    "empty": b"",
    "cut off": QUANTISED[:-1],
    "a byte too many": QUANTISED + b"\0",
    "header length of 2^64 - 1": struct.pack("<Q", 2**64 - 1) + QUANTISED[8:],
    "header deeply nested": joined(b'{"a":' + b"[" * 60_000, b""),
    "header with a duplicate": joined(b'{"__metadata__":{},"__metadata__":{}}', b""),
    "no metadata": with_header(lambda header: header.pop("__metadata__")),
    "metadata of a .veil file": with_header(lambda header: header.update(__metadata__={"featveil": "{}"})),
    "metadata deeply nested": with_text('"a place"', "[" * 5000 + "]" * 5000),
    "metadata with a duplicate": with_text('"kind"', '"kind":"sift","kind"'),
    "version 0": with_about(lambda about: about.update(version=0)),
    "version true": with_about(lambda about: about.update(version=True)),
    "version of the future": with_about(lambda about: about.update(version=2)),
    "version of 400 digits": with_about(lambda about: about.update(version=10**400)),
    "version of 5,000 digits": with_text('"version":1', '"version":1' + "0" * 5000),
    "field missing": with_about(lambda about: about.pop("source")),
    "field unknown": with_about(lambda about: about.update(note="hello")),
    "kind with a path": with_about(lambda about: about.update(kind="../sift")),
    "kind is a list": with_about(lambda about: about.update(kind=["sift"])),
    "size of another quantiser": with_about(lambda about: about.update(size=13)),
    "size 0": with_about(lambda about: about.update(size=0)),
    "size true": with_about(lambda about: about.update(size=True)),
    "size of 400 digits": with_about(lambda about: about.update(size=10**400)),
    "size of other values": with_about(lambda about: about.update(size=D - 1), EXACT),
    "source with an escape": with_about(lambda about: about.update(source="\x1b[2J")),
    "source too long": with_about(lambda about: about.update(source="a" * 257)),
    "source is null": with_about(lambda about: about.update(source=None)),
    "model is a text": with_about(lambda about: about.update(model=MODEL)),
    "model without a digest": with_about(lambda about: about["model"].pop("digest")),
    "model's digest of capitals": with_model(digest=MODEL.upper()),
    "model of fewer points": with_model(points=10),
    "model of -1 points": with_model(points=-1),
    "model of 10^400 points": with_model(points=10**400),
    "model of 2^40 points": with_model(points=2**40),
    "model of 300.0 points": with_model(points=300.0),
    "model of true points": with_model(points=True),
    "model of fewer images": with_model(images=2),
    "model of 2^31 images": with_model(images=2**31),
    "calibration is a list": with_about(lambda about: about.update(calibration=[])),
    "calibration without tau": with_about(lambda about: about["calibration"].pop("tau")),
    "tau above 2": with_calibration(tau=2.5),
    "tau 0": with_calibration(tau=0),
    "tau -1": with_calibration(tau=-1),
    "tau true": with_calibration(tau=True),
    "tau a text": with_calibration(tau="0.3"),
    "tau null": with_calibration(tau=None),
    "tau of 400 digits": with_calibration(tau=10**400),
    "tau NaN": with_text('"tau":0.5', '"tau":NaN'),
    "tau infinite": with_text('"tau":0.5', '"tau":1e999'),
    "target 0": with_calibration(target=0),
    "target 2": with_calibration(target=2),
    "contrast 1.5": with_calibration(contrast=1.5),
    "contrast without background": with_calibration(background=None),
    "background without contrast": with_calibration(contrast=None),
    "background is a number": with_calibration(background=1),
    "taus fall": with_calibration(taus=[0.5, 0.1]),
    "taus empty": with_calibration(taus=[], passes=[], right=[], foreign=[]),
    "taus nested": with_calibration(taus=[[0.1], 0.5]),
    "taus null": with_calibration(taus=None),
    "a share above 1": with_calibration(passes=[0.1, 1.1]),
    "a share too few": with_calibration(right=[0.1]),
    "a share of foreign ones below 0": with_calibration(foreign=[-0.1, 0.1]),
    "queries of -1": with_calibration(queries=-1),
    "queries of 400 digits": with_calibration(queries=10**400),
    "queries a fraction": with_calibration(queries=1.5),
    "signature is a text": with_about(lambda about: about.update(signature="signed")),
    "signature without key": with_about(lambda about: about["signature"].pop("key")),
    "signature too short": with_about(lambda about: about["signature"].update(value=MODEL)),
    "signature a list": with_about(lambda about: about["signature"].update(key=[MODEL])),
    "tensor missing": with_header(lambda header: header.pop("entries.images")),
    "tensor of points": with_header(lambda header: header.update(positions=header.pop("entries.images"))),
    "codes are no bytes": with_entry("entries.codes", dtype="U16", shape=[N, BYTES // 2]),
    "codes of one axis": with_entry("entries.codes", shape=[N * BYTES]),
    "codes of no entry": with_entry("entries.codes", shape=[0, 2**39], data_offsets=[0, 0]),
    "centroids turned": with_entry("quantiser.centroids", shape=[256, BYTES, 3]),
    "centroids of no component": with_entry("quantiser.centroids", shape=[BYTES, 256, 0], data_offsets=[0, 0]),
    "centroids are whole numbers": with_entry("quantiser.centroids", dtype="U16"),
    "centroid NaN": with_value("quantiser.centroids", struct.pack("<e", float("nan"))),
    "centroid infinite": with_value("quantiser.centroids", struct.pack("<e", float("inf"))),
    "centroid too large": with_value("quantiser.centroids", struct.pack("<e", 1000.0)),
    "value NaN": with_value("entries.values", struct.pack("<e", float("nan")), EXACT),
    "image outside the map": with_value("entries.images", b"\xff"),
    "points do not rise": with_value("points.steps", b"\0", place=1),
    "a point outside the map": with_value("points.steps", b"\xff" * 5, place=0),
    "a point without entry": with_value("points.counts", b"\0"),
    "more entries than codes": with_value("points.counts", b"\xff"),
    "counts are halves": with_entry("points.counts", dtype="F16"),
}


@pytest.mark.parametrize("quantised", [True, False])
def test_what_is_written_is_read(tmp_path: Path, quantised: bool) -> None:
    sketch, path = small(quantised), tmp_path / "a.sketch"
    save_sketch(sketch, path)
    again = load_sketch(path, sketch.digest.upper())
    assert again.digest == sketch.digest and again.card() == sketch.card() and again.signature == sketch.signature
    assert np.array_equal(again.entries.decode(slice(None)), sketch.entries.decode(slice(None)))
    assert np.array_equal(again.points, sketch.points) and np.array_equal(again.images, sketch.images)
    assert encode_sketch(again) == path.read_bytes()


def test_the_digest_is_of_everything_but_the_signature() -> None:
    sketch = small()
    assert replace(sketch, signature=None).digest == sketch.digest
    images = sketch.images.copy()
    images[0] += 1
    codes = sketch.entries.codes.copy()  # type: ignore[union-attr]
    codes[0, 0] ^= 1
    others = [
        replace(sketch, images=images),
        replace(sketch, entries=replace(sketch.entries, codes=codes)),  # type: ignore[arg-type]
        replace(sketch, source="another"),
        replace(sketch, model_points=301),
        replace(sketch, kind="rootsift"),
        replace(sketch, calibration=None),
    ]
    assert len({sketch.digest, *(other.digest for other in others)}) == 1 + len(others)


@pytest.mark.parametrize("content", ATTACKS.values(), ids=ATTACKS.keys())
def test_attack_is_refused(content: bytes) -> None:
    assert content not in (QUANTISED, EXACT)
    tracemalloc.start()
    try:
        with pytest.raises(FormatError) as caught:
            fitted(content)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    message = str(caught.value)
    assert message.isprintable() and len(message) < 300
    assert peak < 2**21


def test_the_numbers_that_a_card_states_take_no_memory() -> None:
    tracemalloc.start()
    try:
        sketch = fitted(small_sketch_of_many_points())
        assert sketch.model_points == 10**9 and len(sketch) == N and sketch.digest and sketch.known.max() < 300
        assert tracemalloc.get_traced_memory()[1] < 2**21
    finally:
        tracemalloc.stop()


def outcome(content: bytes) -> str:
    """Whether it is read or refused; everything else is an error of the test, and so is much memory."""
    tracemalloc.start()
    try:
        try:
            sketch = fitted(content)
        except FormatError:
            return "refused"
        # What was read is whole: it can be used, and written again.
        assert len(sketch.digest) == 64 and decode_sketch(encode_sketch(sketch)).digest == sketch.digest
        return "read"
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 2**20 + 64 * len(content)


def test_thousands_of_damaged_files() -> None:
    """Bytes changed, cut off, added and moved, most of them in the header."""
    rng = np.random.default_rng(0)
    counts = {"read": 0, "refused": 0}
    for number in range(4000):
        content = bytearray((QUANTISED, EXACT)[number % 2])
        header = 8 + int.from_bytes(content[:8], "little")
        kind, reach = rng.integers(0, 5), header if rng.random() < 0.7 else len(content)
        place = int(rng.integers(0, reach))
        if kind == 0:
            content[place] ^= 1 << int(rng.integers(0, 8))
        elif kind == 1:
            content[place : place + 4] = rng.bytes(4)
        elif kind == 2:
            del content[place : place + int(rng.integers(1, 64))]
        elif kind == 3:
            content[place:place] = rng.bytes(int(rng.integers(1, 64)))
        else:
            other = int(rng.integers(0, reach))
            content[place : place + 8] = content[other : other + 8]
        counts[outcome(bytes(content))] += 1
    assert counts["refused"] > 2000 and counts["read"] > 100  # changed codes make another sketch, with another digest


def test_changed_content_has_another_digest(tmp_path: Path) -> None:
    """It is refused; where somebody makes the digest fit, it is not taken for the sketch that was pinned."""
    sketch, path = small(), tmp_path / "a.sketch"
    changed = with_value("entries.codes", bytes([int(sketch.entries.codes[0, 0]) ^ 1]))  # type: ignore[union-attr]
    path.write_bytes(changed)
    with pytest.raises(FormatError, match="digest"):
        load_sketch(path)
    path.write_bytes(with_about(lambda about: about.update(digest=fitted(changed).digest), changed))
    assert load_sketch(path).digest != sketch.digest
    with pytest.raises(InputError, match="expected"):
        load_sketch(path, sketch.digest)


@pytest.mark.parametrize("stated", [None, 1, [], "", "0" * 64])
def test_another_digest(stated: object) -> None:
    with pytest.raises(FormatError, match="digest"):
        decode_sketch(with_about(lambda about: about.update(digest=stated)))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
FIELDS = ("version", "digest", "kind", "size", "model", "source", "calibration", "signature")


@settings(max_examples=300, deadline=None)
@given(st.sampled_from([QUANTISED, EXACT]), st.sampled_from(FIELDS), JSON)
def test_any_json_in_any_field(content: bytes, field: str, value: object) -> None:
    assert outcome(with_about(lambda about: about.update({field: value}), content)) in ("read", "refused")


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(["calibration", "model", "signature"]), st.integers(0, 9), JSON)
def test_any_json_within_a_field(name: str, place: int, value: object) -> None:
    def change(about: dict[str, Any]) -> None:
        names = sorted(about[name])
        about[name][names[place % len(names)]] = value

    assert outcome(with_about(change)) in ("read", "refused")


@settings(max_examples=300, deadline=None)
@given(
    st.sampled_from(["entries.codes", "quantiser.centroids", "points.steps", "points.counts", "entries.images"]),
    st.sampled_from(["dtype", "shape", "data_offsets"]),
    JSON,
)
def test_any_json_in_any_tensor_entry(name: str, field: str, value: object) -> None:
    assert outcome(with_header(lambda header: header[name].update({field: value}))) in ("read", "refused")


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_any_sketch_is_read_as_it_was(data: st.DataObject) -> None:
    count, size = data.draw(st.integers(1, 50)), data.draw(st.integers(1, 20))
    seed, points = data.draw(st.integers(0, 2**32 - 1)), data.draw(st.sampled_from([1, 200, 70_000, 2**31]))
    rng = np.random.default_rng(seed)
    width = data.draw(st.integers(1, size))
    part = -(-size // width)
    if width * part >= size + width or data.draw(st.booleans()):
        entries: Any = Exact(rng.normal(0, 0.3, (count, size)).astype(np.float16))
    else:
        codes = rng.integers(0, 256, (count, width), np.uint8)
        entries = Quantised(codes, rng.normal(0, 0.3, (width, 256, part)).astype(np.float16), size)
    images = data.draw(st.sampled_from([1, 300, 2**24]))
    numbers = np.sort(rng.integers(0, points, count)), rng.integers(0, images, count)
    sketch = Sketch(entries, *numbers, "sift", MODEL, points, images)
    assert decode_sketch(encode_sketch(sketch)).digest == sketch.digest


def test_what_cannot_be_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match="not there"):
        load_sketch(tmp_path / "none.sketch")
    with pytest.raises(InputError, match="a folder"):
        load_sketch(tmp_path)
    (tmp_path / "bad.sketch").write_bytes(b"nothing")
    with pytest.raises(FormatError, match=r"bad\.sketch is not a usable sketch"):
        load_sketch(tmp_path / "bad.sketch")
    save_sketch(small(), tmp_path / "a.sketch")
    monkeypatch.setattr(sketch_files, "MAX_BYTES", 100)
    with pytest.raises(FormatError, match="more than 100 bytes"):
        load_sketch(tmp_path / "a.sketch")
    with pytest.raises(FormatError, match="more than 100 bytes"):
        decode_sketch(bytes(101))
    with pytest.raises(InputError, match="make tiles"):
        encode_sketch(small())


@pytest.mark.parametrize("failure", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_an_interrupted_save_leaves_the_old_file(
    failure: BaseException, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, write = tmp_path / "a.sketch", Path.write_bytes
    save_sketch(small(), path)
    before = path.read_bytes()

    def write_half(self: Path, content: bytes) -> int:
        write(self, content[: len(content) // 2])
        raise failure

    monkeypatch.setattr(Path, "write_bytes", write_half)
    with pytest.raises(InputError if isinstance(failure, OSError) else KeyboardInterrupt):
        save_sketch(sketch_of(np.eye(8, dtype=np.float32)), path)
    assert path.read_bytes() == before and list(tmp_path.iterdir()) == [path]


def test_a_calibration_between_its_lines() -> None:
    known = Calibration(0.4, 0.9, None, None, (0.2, 0.4), (0.5, 0.9), (0.4, 0.8), None, 10, 0)
    assert known.at(known.passes, 0.3) == pytest.approx(0.7) and known.at(known.passes, 0.5) == 0.9
