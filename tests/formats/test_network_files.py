"""Files of concealing networks: what comes back, and that damaged or hostile ones end in a FormatError."""

import json
import struct
import tracemalloc
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy
from hypothesis import given, settings
from hypothesis import strategies as st

from damaged_tensors import Change, header_changed, joined
from featveil.core import FormatError, InputError
from featveil.formats.network_files import load_network, save_network

H, D = 5, 3
CARD = {"data": "noise", "minutes": 2.5, "licence": "Apache-2.0"}


def weights() -> dict[str, Any]:
    rng = np.random.default_rng(0)
    tensors = {"hidden.weight": rng.normal(size=(H, D)), "hidden.bias": rng.normal(size=H)}
    tensors |= {"output.weight": rng.normal(size=(D, H)), "output.bias": rng.normal(size=D)}
    return {name: array.astype(np.float32) for name, array in tensors.items()}


def named() -> dict[str, Any]:
    return {name.replace(".", "_"): array for name, array in weights().items()}


def metadata() -> dict[str, str]:
    return {"format": "featveil-concealer-1", "kind": "toy", "lambda": "2.5", "card": json.dumps(CARD)}


def saved(path: Path) -> bytes:
    save_network(path, **named(), kind="toy", lambda_=2.5, card=CARD)
    return path.read_bytes()


def changed(change: Change) -> Callable[[bytes], bytes]:
    return partial(header_changed, change)


def with_texts(**texts: Any) -> Callable[[bytes], bytes]:
    return changed(lambda header: header["__metadata__"].update(texts))


def with_value(value: float) -> Callable[[bytes], bytes]:
    return lambda content: content[:-4] + struct.pack("<f", value)


ATTACKS: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda content: b"",
    "shorter than a length": lambda content: content[:7],
    "cut off": lambda content: content[:-1],
    "a byte too many": lambda content: content + b"\0",
    "header length of 2^64 - 1": lambda content: struct.pack("<Q", 2**64 - 1) + content[8:],
    "header of a megabyte": lambda content: joined(b"{" + b" " * 2**20 + b"}", b""),
    "header is no JSON": lambda content: joined(b"{" * 9, b""),
    "header is deeply nested": lambda content: joined(b'{"a":' + b"[" * 60_000, b""),
    "a pickle": lambda content: b"\x80\x04\x95\x10\x00\x00\x00\x00\x00\x00\x00\x8c\x02os\x8c\x06system\x93.",
    "a zip file, as torch writes": lambda content: b"PK\x03\x04" + content,
    "no metadata": changed(lambda header: header.pop("__metadata__")),
    "metadata of someone else": changed(lambda header: header.update(__metadata__={"format": "pt"})),
    "metadata is a list": changed(lambda header: header.update(__metadata__=[])),
    "metadata without a kind": changed(lambda header: header["__metadata__"].pop("kind")),
    "metadata with something else": with_texts(note="hello"),
    "format of the future": with_texts(format="featveil-concealer-2"),
    "kind is no text": with_texts(kind=7),
    "kind is no kind": with_texts(kind="T O Y"),
    "lambda is no number": with_texts(**{"lambda": "much"}),
    "lambda is not finite": with_texts(**{"lambda": "nan"}),
    "lambda has 60,000 digits": with_texts(**{"lambda": "9" * 40_000}),
    "card is no JSON": with_texts(card="{"),
    "card is a list": with_texts(card="[]"),
    "card is deeply nested": with_texts(card="[" * 40_000),
    "another digest": with_texts(digest="0" * 64),
    "a weight changed": with_value(0.25),
    "NaN": with_value(float("nan")),
    "infinite": with_value(float("inf")),
    "huge": with_value(3e38),
    "a tensor missing": changed(lambda header: header.pop("output.bias")),
    "a tensor of another name": changed(lambda header: header.update({"layers.0": header.pop("output.bias")})),
    "a tensor of whole numbers": changed(lambda header: header["output.bias"].update(dtype="I32")),
    "a shape that does not fit": changed(lambda header: header["hidden.weight"].update(shape=[D, H])),
    "an impossible shape": changed(lambda header: header["hidden.weight"].update(shape=[2**40, 2**40])),
    "no byte, but huge": changed(lambda header: header["hidden.bias"].update(shape=[0, 2**39], data_offsets=[0, 0])),
    "overlapping tensors": changed(lambda header: header["output.bias"].update(data_offsets=[0, 4 * D])),
}


@pytest.mark.parametrize("name", ATTACKS)
def test_a_hostile_file_is_refused_without_a_large_allocation(name: str, tmp_path: Path) -> None:
    path = tmp_path / "n.safetensors"
    path.write_bytes(ATTACKS[name](saved(path)))
    tracemalloc.start()
    try:
        with pytest.raises(FormatError, match=r"n\.safetensors is not a usable concealing network") as error:
            load_network(path)
        assert tracemalloc.get_traced_memory()[1] < 2**24
    finally:
        tracemalloc.stop()
    assert "\n" not in str(error.value) and len(str(error.value)) < 400


@settings(max_examples=150, deadline=None)
@given(place=st.integers(0, 2000), byte=st.integers(0, 255))
def test_changed_bytes_never_give_another_network(
    place: int, byte: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("networks") / "n.safetensors"
    good = saved(path)
    digest, place = load_network(path).digest, place % len(good)
    path.write_bytes(good[:place] + bytes([byte]) + good[place + 1 :])
    with suppress(FormatError):
        assert load_network(path).digest == digest


def test_round_trip(tmp_path: Path) -> None:
    network = save_network(tmp_path / "n.safetensors", **named(), kind="toy", lambda_=2.5, card=CARD)
    read = load_network(tmp_path / "n.safetensors", digest=network.digest.upper())
    assert (read.kind, read.lambda_, read.card, read.digest) == ("toy", 2.5, CARD, network.digest)
    assert not read.hidden_weight.flags.writeable
    values = np.random.default_rng(1).random((4, D)).astype(np.float32)
    assert (read.apply(values) == network.apply(values)).all()


def test_equal_networks_give_equal_files(tmp_path: Path) -> None:
    assert len({saved(tmp_path / f"{number}.safetensors") for number in range(4)}) == 1


def test_safetensors_reads_it_too(tmp_path: Path) -> None:
    saved(tmp_path / "n.safetensors")
    read = safetensors.numpy.load_file(tmp_path / "n.safetensors")
    assert all((read[name] == array).all() for name, array in weights().items())


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_a_file_of_other_hands_without_a_digest(dtype: Any, tmp_path: Path) -> None:
    arrays = {name: array.astype(dtype) for name, array in weights().items()}
    (tmp_path / "n.safetensors").write_bytes(safetensors.numpy.save(arrays, metadata()))
    read = load_network(tmp_path / "n.safetensors")
    assert read.hidden_weight.dtype == np.float32
    assert (read.hidden_weight == arrays["hidden.weight"].astype(np.float32)).all()


def test_another_architecture_is_named(tmp_path: Path) -> None:
    arrays = weights() | {"third.weight": np.ones((D, D), np.float32)}
    (tmp_path / "n.safetensors").write_bytes(safetensors.numpy.save(arrays, metadata()))
    with pytest.raises(FormatError, match=r"another architecture: expected tensors hidden\.weight"):
        load_network(tmp_path / "n.safetensors")


def test_what_is_missing_or_not_expected(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="there is no network file"):
        load_network(tmp_path / "n.safetensors")
    with pytest.raises(InputError, match="is a folder"):
        load_network(tmp_path)
    saved(tmp_path / "n.safetensors")
    with pytest.raises(InputError, match=r"has digest .* expected 00"):
        load_network(tmp_path / "n.safetensors", digest="0" * 64)


def test_what_cannot_be_saved(tmp_path: Path) -> None:
    path = tmp_path / "n.safetensors"
    for card, message in (({"a": float("nan")}, "finite"), ({"a": object()}, "texts"), ({"a": "x" * 2**17}, "fit")):
        with pytest.raises(InputError, match=message):
            save_network(path, **named(), kind="toy", lambda_=1.0, card=card)
    with pytest.raises(InputError, match="hidden bias"):
        save_network(path, **(named() | {"hidden_bias": np.ones(4)}), kind="toy", lambda_=1.0, card={})
    with pytest.raises(InputError, match="does not exist"):
        save_network(tmp_path / "no" / "n", **named(), kind="toy", lambda_=1.0, card={})
    assert not path.exists()
