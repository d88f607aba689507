"""Damaged and hostile `.veil` files: each must end in a FormatError, without a large allocation."""

import copy
import json
import struct
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from damaged_tensors import Change, header_changed, joined, metadata_changed, parts
from featveil.core import (
    Features,
    FormatError,
    Guarantee,
    Keypoints,
    Points,
    PrivateFeatures,
    Spec,
    Subspaces,
)
from featveil.formats import veil

N, D, M = 4, 8, 2


def valid_private() -> bytes:
    rng = np.random.default_rng(0)
    basis = np.linalg.qr(rng.normal(size=(N, D, M)))[0].transpose(0, 2, 1)
    descriptors = Subspaces(rng.normal(size=(N, D)).astype(np.float32), basis)
    keypoints = Keypoints(rng.uniform(0, 9, (N, 2)).astype(np.float32))
    spec: Spec = {"name": "lifting", "dimension": M}
    return veil.encode(PrivateFeatures(descriptors, "sift", spec, Guarantee("empirical"), keypoints, (9, 9)))


def valid_raw() -> bytes:
    points = Points(np.random.default_rng(0).normal(size=(N, D)).astype(np.float32))
    return veil.encode(Features(points, "sift", None, (9, 9), np.arange(N)))


PRIVATE, RAW = valid_private(), valid_raw()


def with_header(change: Change, content: bytes = PRIVATE) -> bytes:
    return header_changed(change, content)


def with_about(change: Change, content: bytes = PRIVATE) -> bytes:
    return metadata_changed(change, content, "featveil")


def with_value(name: str, value: float, content: bytes = PRIVATE) -> bytes:
    header, body = parts(content)
    begin = header[name]["data_offsets"][0]
    return joined(header, body[:begin] + struct.pack("<f", value) + body[begin + 4 :])


def with_entry(name: str, content: bytes = PRIVATE, **fields: object) -> bytes:
    return with_header(lambda header: header[name].update(fields), content)


def renamed(old: str, new: str, content: bytes = PRIVATE) -> bytes:
    return with_header(lambda header: header.update({new: header.pop(old)}), content)


def overlapping() -> bytes:
    """Two tensors of one shape at the same place, the freed bytes cut off."""
    header, body = parts(PRIVATE)
    taken = [name for name in header if name.startswith("subspaces")]
    for name in taken:
        header[name].update(shape=[N, D], data_offsets=[0, N * D * 4])
    header["keypoints.xy"].update(data_offsets=[N * D * 4, N * D * 4 + N * 8])
    return joined(header, body[: N * D * 4 + N * 8])


def empty_and_huge() -> bytes:
    """No feature, hence no byte, but descriptors of an absurd size."""
    header = copy.deepcopy(parts(RAW)[0])
    header["points.values"].update(shape=[0, 2**31], data_offsets=[0, 0])
    header["labels"].update(shape=[0], data_offsets=[0, 0])
    return joined(header, b"")


def about_text(content: bytes = PRIVATE) -> str:
    return str(parts(content)[0]["__metadata__"]["featveil"])


LENGTH = int.from_bytes(PRIVATE[:8], "little")
EVERY = 2**63

ATTACKS: dict[str, bytes] = {
    "empty": b"",
    "shorter than a length": PRIVATE[:7],
    "header length past the end": struct.pack("<Q", len(PRIVATE)) + PRIVATE[8:],
    "header length of 2^64 - 1": struct.pack("<Q", 2**64 - 1) + PRIVATE[8:],
    "oversized header": joined(json.dumps(parts(PRIVATE)[0]).encode() + b" " * 2**16, parts(PRIVATE)[1]),
    "header of zero bytes": struct.pack("<Q", 0) + PRIVATE[8 + LENGTH :],
    "header is no JSON": joined(b"{" * 9, b""),
    "header is UTF-16": joined(json.dumps(parts(PRIVATE)[0]).encode("utf-16"), parts(PRIVATE)[1]),
    "header is not UTF-8": joined(b'{"\xff":1}', b""),
    "header starts with a space": joined(b" " + json.dumps(parts(PRIVATE)[0]).encode(), parts(PRIVATE)[1]),
    "header is a list": joined([], b""),
    "header is deeply nested": joined(b'{"a":' + b"[" * 60_000, b""),
    "header has a number of 60,000 digits": joined(b'{"a":' + b"9" * 60_000 + b"}", b""),
    "header has a duplicate key": joined(b'{"__metadata__":{},"__metadata__":{}}', b""),
    "header only": joined({}, b""),
    "no metadata": with_header(lambda header: header.pop("__metadata__")),
    "metadata is a list": with_header(lambda header: header.update(__metadata__=[])),
    "metadata of someone else": with_header(lambda header: header.update(__metadata__={"format": "pt"})),
    "metadata with an extra key": with_header(lambda header: header["__metadata__"].update(format="np")),
    "metadata is no text": with_header(lambda header: header["__metadata__"].update(featveil={})),
    "metadata is no JSON": with_header(lambda header: header["__metadata__"].update(featveil="{")),
    "metadata is a number": with_header(lambda header: header["__metadata__"].update(featveil="1")),
    "metadata holds NaN": with_about(lambda about: about.update(defense={"share": float("nan")})),
    "metadata has a duplicate": with_header(
        lambda header: header["__metadata__"].update(featveil=about_text().replace("{", '{"version":1,', 1))
    ),
    "no version": with_about(lambda about: about.pop("version")),
    "version 0": with_about(lambda about: about.update(version=0)),
    "version true": with_about(lambda about: about.update(version=True)),
    "version text": with_about(lambda about: about.update(version="1")),
    "version of the future": with_about(lambda about: about.update(version=3)),
    "version of 4,000 digits": with_about(lambda about: about.update(version=10**4000)),
    "content unknown": with_about(lambda about: about.update(content="public")),
    "content is a list": with_about(lambda about: about.update(content=["raw"])),
    "field missing": with_about(lambda about: about.pop("kind")),
    "field unknown": with_about(lambda about: about.update(note="hello")),
    "raw with a guarantee": with_about(lambda about: about.update(guarantee=None), RAW),
    "raw that claims to be private": with_about(
        lambda about: about.update(content="private", defense={}, guarantee={"kind": "none"}), RAW
    ),
    "representation unknown": with_about(lambda about: about.update(representation="words")),
    "representation is a list": with_about(lambda about: about.update(representation=[])),
    "representation of other tensors": with_about(lambda about: about.update(representation="points")),
    "raw subspaces": with_about(lambda about: about.update(representation="subspaces"), RAW),
    "kind with a path": with_about(lambda about: about.update(kind="../sift")),
    "kind is a number": with_about(lambda about: about.update(kind=1)),
    "image size of one": with_about(lambda about: about.update(image_size=[9])),
    "image size of floats": with_about(lambda about: about.update(image_size=[9.0, 9.0])),
    "image size of booleans": with_about(lambda about: about.update(image_size=[True, True])),
    "image size of zero": with_about(lambda about: about.update(image_size=[0, 9])),
    "image size is huge": with_about(lambda about: about.update(image_size=[10**400, 9])),
    "image size is a text": with_about(lambda about: about.update(image_size="99")),
    "defense is a list": with_about(lambda about: about.update(defense=[])),
    "defense with a seed": with_about(lambda about: about.update(defense={"seed": 1})),
    "defense is nested": with_about(lambda about: about.update(defense={"a": {"b": 1}})),
    "defense of infinity": with_about(lambda about: about.update(defense={"a": 1e300})).replace(b"1e+300", b"1e+999"),
    "defense with an escape": with_about(lambda about: about.update(defense={"name": "\x1b[2J"})),
    "defense with half a character": with_about(lambda about: about.update(defense={"name": "\ud800"})),
    "defense with a long name": with_about(lambda about: about.update(defense={"a" * 999: []})),
    "guarantee is a text": with_about(lambda about: about.update(guarantee="local-dp")),
    "guarantee unknown": with_about(lambda about: about["guarantee"].update(kind="total")),
    "guarantee kind is a list": with_about(lambda about: about["guarantee"].update(kind=[])),
    "guarantee without epsilon": with_about(lambda about: about["guarantee"].update(kind="local-dp")),
    "guarantee with a text": with_about(lambda about: about["guarantee"].update(kind="local-dp", epsilon="1")),
    "guarantee with a boolean": with_about(lambda about: about["guarantee"].update(kind="local-dp", epsilon=True)),
    "guarantee of 10^400": with_about(lambda about: about["guarantee"].update(kind="local-dp", epsilon=10**400)),
    "guarantee of -1": with_about(lambda about: about["guarantee"].update(kind="local-dp", epsilon=-1)),
    "guarantee unit unknown": with_about(lambda about: about["guarantee"].update(unit="pixel")),
    "tensor entry is a list": with_header(lambda header: header.update({"keypoints.xy": []})),
    "tensor entry lacks a key": with_header(lambda header: header["keypoints.xy"].pop("dtype")),
    "tensor entry has a key too many": with_entry("keypoints.xy", stride=1),
    "tensor missing": renamed("subspaces.offset", "subspaces.origin"),
    "scale without positions": with_entry("keypoints.xy", shape=[N * 2]).replace(b"keypoints.xy", b"keypoints.scale"),
    "labels in private features": renamed("keypoints.xy", "labels"),
    "raw descriptors beside private ones": renamed("keypoints.xy", "points.values"),
    "extra tensor without bytes": with_header(
        lambda header: header.update(extra={"dtype": "F32", "shape": [0], "data_offsets": [0, 0]})
    ),
    "type F64": with_entry("keypoints.xy", dtype="F64", shape=[N, 1]),
    "type F16": with_entry("keypoints.xy", dtype="F16", shape=[N, 4]),
    "type I64 for positions": with_entry("keypoints.xy", dtype="I64", shape=[N, 1]),
    "type F32 for labels": with_entry("labels", RAW, dtype="F32", shape=[N * 2]),
    "type is a list": with_entry("keypoints.xy", dtype=["F32"]),
    "shape is huge": with_entry("keypoints.xy", shape=[EVERY, EVERY]),
    "shape is negative": with_entry("keypoints.xy", shape=[-N, -2]),
    "shape of floats": with_entry("keypoints.xy", shape=[float(N), 2.0]),
    "shape of booleans": with_entry("keypoints.xy", shape=[True, N * 2]),
    "shape of rank 4": with_entry("keypoints.xy", shape=[1, 1, N, 2]),
    "shape is a number": with_entry("keypoints.xy", shape=N * 2),
    "shape is turned": with_entry("keypoints.xy", shape=[2, N]),
    "shape of other length": with_entry("keypoints.xy", shape=[N * 2, 1]),
    "shape of a scalar": with_entry("labels", RAW, shape=[]),
    "empty and huge": empty_and_huge(),
    "empty, huge and overflowing": empty_and_huge().replace(b"2147483648", b"4611686018427387904"),
    "offsets past the end": with_entry("keypoints.xy", data_offsets=[10**6, 10**6 + N * 8]),
    "offsets backwards": with_entry("keypoints.xy", data_offsets=[N * 8, 0]),
    "offsets negative": with_entry("keypoints.xy", data_offsets=[-N * 8, 0]),
    "offsets of one": with_entry("keypoints.xy", data_offsets=[0]),
    "offsets are huge": with_entry("keypoints.xy", data_offsets=[EVERY, EVERY + N * 8]),
    "overlapping tensors": overlapping(),
    "a hole at the end": PRIVATE + b"\0",
    "a hole at the start": joined(parts(PRIVATE)[0], b"\0" * 4 + parts(PRIVATE)[1]),
    "NaN in the basis": with_value("subspaces.basis", float("nan")),
    "infinite offset": with_value("subspaces.offset", float("inf")),
    "NaN position": with_value("keypoints.xy", float("nan")),
    "NaN descriptor": with_value("points.values", float("nan"), RAW),
    "basis is not orthonormal": with_value("subspaces.basis", 3.0),
    "basis overflows": with_value("subspaces.basis", 3e38),
    "basis is all huge": joined(parts(PRIVATE)[0], np.full(len(parts(PRIVATE)[1]) // 4, -3e38, "<f4").tobytes()),
    "zero descriptor": joined(parts(RAW)[0], bytes(len(parts(RAW)[1]))),
}


@pytest.mark.parametrize("content", ATTACKS.values(), ids=ATTACKS.keys())
def test_attack_is_refused(content: bytes) -> None:
    assert content not in (PRIVATE, RAW)
    tracemalloc.start()
    try:
        with pytest.raises(FormatError) as caught:
            veil.decode(content)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    message = str(caught.value)
    assert "\n" not in message
    assert message.isprintable()
    assert len(message) < 200
    assert peak < 2**21


def test_newer_version_says_upgrade() -> None:
    with pytest.raises(FormatError, match=r"newer featveil .*upgrade"):
        veil.decode(ATTACKS["version of the future"])


@pytest.mark.parametrize("content", [PRIVATE, RAW], ids=["private", "raw"])
def test_cut_off_anywhere_is_refused(content: bytes) -> None:
    for length in range(len(content)):
        with pytest.raises(FormatError):
            veil.decode(content[:length])


def outcome(content: bytes) -> str:
    """Decode and encode again, or be refused; any other error fails the test."""
    try:
        features = veil.decode(content)
    except FormatError:
        return "refused"
    veil.decode(veil.encode(features))
    return "read"


@settings(max_examples=400, deadline=None)
@given(
    st.sampled_from([PRIVATE, RAW]),
    st.lists(st.tuples(st.integers(0, 10**6), st.integers(1, 255)), max_size=4),
)
def test_flipped_bits_are_refused_or_harmless(content: bytes, flips: list[tuple[int, int]]) -> None:
    damaged = bytearray(content)
    for place, bits in flips:
        damaged[place % len(damaged)] ^= bits
    assert outcome(bytes(damaged)) in ("read", "refused")


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=300))
def test_random_bytes_are_refused(content: bytes) -> None:
    assert outcome(content) == "refused"
    assert outcome(joined(b"{" + content + b"}", content)) == "refused"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
FIELDS = ["version", "content", "kind", "image_size", "representation", "defense", "guarantee"]


@settings(max_examples=300, deadline=None)
@given(st.sampled_from([PRIVATE, RAW]), st.sampled_from(FIELDS), JSON)
def test_any_json_in_any_field(content: bytes, field: str, value: object) -> None:
    assert outcome(with_about(lambda about: about.update({field: value}), content)) in ("read", "refused")


@settings(max_examples=300, deadline=None)
@given(
    st.sampled_from(["keypoints.xy", "subspaces.basis"]),
    st.sampled_from(["dtype", "shape", "data_offsets"]),
    JSON,
)
def test_any_json_in_any_tensor_entry(name: str, field: str, value: object) -> None:
    assert outcome(with_header(lambda header: header[name].update({field: value}))) in ("read", "refused")
