"""Word sets in `.veil` files: small, and refused in every way in which they could be wrong."""

import json
import struct
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from featveil.core import FormatError, Guarantee, InputError, PrivateFeatures, WordSets
from featveil.formats import veil

DIGEST = "0123456789abcdef" * 4
SETS = WordSets(np.array([[0, 5], [7, 9], [2, 99]]), DIGEST, 100)
GOOD = veil.encode(PrivateFeatures(SETS, "sift", {"name": "subset"}, Guarantee("local-dp", 10.0)))


def changed(change: Callable[[dict[str, Any], dict[str, Any]], object], words: object = None) -> bytes:
    """GOOD with another header, other metadata or other words."""
    length = int.from_bytes(GOOD[:8], "little")
    header, body = json.loads(GOOD[8 : 8 + length]), GOOD[8 + length :]
    about = json.loads(header["__metadata__"]["featveil"])
    change(header, about)
    header["__metadata__"]["featveil"] = json.dumps(about)
    text = json.dumps(header).encode()
    if words is not None:
        body = np.asarray(words, "<i4").tobytes()
    return struct.pack("<Q", len(text)) + text + body


def nothing(header: dict[str, Any], about: dict[str, Any]) -> None:
    """Change nothing."""


def codebook(**fields: object) -> Callable[[dict[str, Any], dict[str, Any]], object]:
    return lambda header, about: about["codebook"].update(fields)


def test_the_helper_leaves_a_good_file_good() -> None:
    decoded = veil.decode(changed(nothing))
    assert isinstance(decoded.descriptors, WordSets)
    assert decoded.descriptors.words.tolist() == SETS.words.tolist()
    assert (decoded.descriptors.codebook, decoded.descriptors.codebook_size) == (DIGEST, 100)


def test_words_take_four_bytes() -> None:
    sets = WordSets(np.array([[0, 2**31 - 1]] * 1000), DIGEST, 2**31)
    content = veil.encode(PrivateFeatures(sets, "sift", {"name": "subset"}, Guarantee("local-dp", 10.0)))
    assert len(content) < 8 * 1000 + 1000
    words = veil.decode(content).descriptors
    assert isinstance(words, WordSets)
    assert words.words.max() == 2**31 - 1


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (changed(nothing, [[0, 5], [7, 9], [2, 100]]), "outside the codebook"),
        (changed(nothing, [[-1, 5], [7, 9], [2, 9]]), "outside the codebook"),
        (changed(nothing, [[5, 0], [7, 9], [2, 9]]), "rising order"),
        (changed(nothing, [[5, 5], [7, 9], [2, 9]]), "rising order"),
        (changed(codebook(size=99)), "outside the codebook"),
        (changed(codebook(size=0)), "1 to"),
        (changed(codebook(size=2**40)), "1 to"),
        (changed(codebook(size=100.0)), "1 to"),
        (changed(codebook(size=True)), "1 to"),
        (changed(codebook(digest="xyz")), "digest"),
        (changed(codebook(digest=DIGEST.upper())), "digest"),
        (changed(codebook(digest=None)), "digest"),
        (changed(codebook(name="book")), "exactly digest and size"),
        (changed(lambda header, about: about.update(codebook="book")), "exactly digest and size"),
        (changed(lambda header, about: about.pop("codebook")), "fields"),
        (changed(lambda header, about: about.update(representation="points")), "fields"),
        (changed(lambda header, about: about.update(content="raw")), "fields"),
        (changed(lambda header, about: header["words.indices"].update(dtype="F32")), "I32"),
        (changed(lambda header, about: header["words.indices"].update(shape=[6])), "shape"),
        (changed(lambda header, about: header["words.indices"].update(shape=[6, 1])), None),
        (GOOD[:-4], "take"),
    ],
)
def test_wrong_words_are_refused(content: bytes, complaint: str | None) -> None:
    if complaint is None:  # six sets of one word are as good as three of two
        assert len(veil.decode(content)) == 6
        return
    with pytest.raises(FormatError, match=complaint):
        veil.decode(content)


@pytest.mark.parametrize(
    ("words", "digest", "size"),
    [
        ([[0.5, 1.0]], DIGEST, 10),
        ([1, 2], DIGEST, 10),
        (np.empty((3, 0), int), DIGEST, 10),
        ([[0, 1, 2]], DIGEST, 2),
        ([[0, 1]], "short", 10),
        ([[0, 1]], DIGEST, "10"),
    ],
)
def test_word_sets_refuse_what_is_not(words: object, digest: object, size: object) -> None:
    with pytest.raises(InputError):
        WordSets(words, digest, size)  # type: ignore[arg-type]
