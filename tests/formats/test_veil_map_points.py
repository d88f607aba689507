"""Points of a map in `.veil` files, format version 2: small, and refused in every way in which they could be wrong."""

import json
import struct
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from featveil.core import (
    FormatError,
    Guarantee,
    InputError,
    Keypoints,
    MapPoints,
    Points,
    PrivateFeatures,
    Spec,
    Subspaces,
)
from featveil.formats import veil

SKETCH, MODEL = "0123456789abcdef" * 4, "fedcba9876543210" * 4
SENT = MapPoints(np.array([[-1, 5], [7, 9], [2, 99]]), SKETCH, MODEL, 100)
XY = Keypoints(np.array([[1, 2], [3, 4], [5, 6]], np.float32))
SPEC: Spec = {"name": "gate", "tau": 0.35}
GATED = Guarantee("map-known", None, "image", 0.35)
GOOD = veil.encode(PrivateFeatures(SENT, "sift", SPEC, GATED, XY, (640, 480)))

Change = Callable[[dict[str, Any], dict[str, Any]], object]


def changed(change: Change, points: object = None) -> bytes:
    """GOOD with another header, other metadata or other points."""
    length = int.from_bytes(GOOD[:8], "little")
    header, body = json.loads(GOOD[8 : 8 + length]), GOOD[8 + length :]
    about = json.loads(header["__metadata__"]["featveil"])
    begin, end = header["map.points"]["data_offsets"]
    change(header, about)
    header["__metadata__"]["featveil"] = json.dumps(about)
    text = json.dumps(header).encode()
    if points is not None:
        body = body[:begin] + np.asarray(points, "<i4").tobytes() + body[end:]
    return struct.pack("<Q", len(text)) + text + body


def nothing(header: dict[str, Any], about: dict[str, Any]) -> None:
    """Change nothing."""


def of_map(**fields: object) -> Change:
    return lambda header, about: about["map"].update(fields)


def guaranteed(**fields: object) -> Change:
    return lambda header, about: about["guarantee"].update(fields)


def version_of(content: bytes) -> int:
    length = int.from_bytes(content[:8], "little")
    return int(json.loads(json.loads(content[8 : 8 + length])["__metadata__"]["featveil"])["version"])


def test_points_are_read_as_they_were() -> None:
    decoded = veil.decode(changed(nothing))
    assert isinstance(decoded, PrivateFeatures) and isinstance(decoded.descriptors, MapPoints)
    sent = decoded.descriptors
    assert sent.points.tolist() == SENT.points.tolist()
    assert (sent.sketch, sent.model, sent.model_points) == (SKETCH, MODEL, 100)
    assert (decoded.guarantee, decoded.defense, decoded.image_size) == (GATED, SPEC, (640, 480))
    assert veil.encode(decoded) == GOOD


def test_only_what_older_readers_do_not_know_is_of_version_2() -> None:
    """Points of a map, and the tau of a guarantee, whatever was sent."""
    plain = PrivateFeatures(
        Subspaces(np.zeros((1, 4), np.float32), np.eye(1, 4, dtype=np.float32)[None]),
        "sift",
        SPEC,
        Guarantee("empirical"),
    )
    behind = PrivateFeatures(plain.descriptors, "sift", SPEC, GATED)
    assert [version_of(one) for one in (GOOD, veil.encode(plain), veil.encode(behind))] == [2, 1, 2]
    again = veil.decode(veil.encode(behind))
    assert isinstance(again, PrivateFeatures) and again.guarantee == GATED


@pytest.mark.parametrize("epsilon", [None, 10.0])
def test_a_guarantee_with_an_epsilon_behind_the_gate(epsilon: float | None) -> None:
    unit: Any = "image" if epsilon is None else "descriptor"
    sent = PrivateFeatures(SENT, "sift", SPEC, Guarantee("map-known", epsilon, unit, 0.35), XY)
    again = veil.decode(veil.encode(sent))
    assert isinstance(again, PrivateFeatures) and again.guarantee == sent.guarantee


def test_a_feature_takes_few_bytes() -> None:
    sent = MapPoints(np.arange(3000).reshape(1000, 3), SKETCH, MODEL, 2**31)
    xy = Keypoints(np.zeros((1000, 2), np.float32))
    assert len(veil.encode(PrivateFeatures(sent, "sift", SPEC, GATED, xy))) < 20 * 1000 + 1500


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (changed(nothing, [[-1, 5], [7, 9], [2, 100]]), "outside the map"),
        (changed(nothing, [[-2, 5], [7, 9], [2, 9]]), "outside the map"),
        (changed(nothing, [[5, -1], [7, 9], [2, 9]]), "at least one point"),
        (changed(nothing, [[-1, -1], [7, 9], [2, 9]]), "at least one point"),
        (changed(nothing, [[9, 7], [7, 9], [2, 9]]), "rising order"),
        (changed(nothing, [[7, 7], [7, 9], [2, 9]]), "rising order"),
        (changed(of_map(points=99)), "outside the map"),
        (changed(of_map(points=0)), "1 to"),
        (changed(of_map(points=2**40)), "1 to"),
        (changed(of_map(points=100.0)), "1 to"),
        (changed(of_map(points=True)), "1 to"),
        (changed(of_map(sketch="xyz")), "digest"),
        (changed(of_map(sketch=SKETCH.upper())), "digest"),
        (changed(of_map(model=None)), "digest"),
        (changed(of_map(name="place")), "exactly sketch, model and points"),
        (changed(lambda header, about: about["map"].pop("model")), "exactly sketch, model and points"),
        (changed(lambda header, about: about.update(map=SKETCH)), "exactly sketch, model and points"),
        (changed(lambda header, about: about.pop("map")), "fields"),
        (changed(lambda header, about: about.update(codebook={})), "fields"),
        (changed(lambda header, about: about.update(version=1)), "came with format 2"),
        (changed(lambda header, about: about.update(version=3)), "newer featveil"),
        (changed(lambda header, about: about.update(representation="words")), "fields"),
        (changed(lambda header, about: about.update(content="raw")), "fields"),
        (changed(lambda header, about: header["map.points"].update(dtype="F32")), "I32"),
        (changed(lambda header, about: header["map.points"].update(shape=[6])), "shape"),
        (changed(lambda header, about: header["map.points"].update(shape=[6, 1])), None),
        (changed(lambda header, about: about["guarantee"].pop("tau")), "exactly kind, epsilon and unit"),
        (changed(guaranteed(tau=None)), "tau"),
        (changed(guaranteed(tau=0)), "tau"),
        (changed(guaranteed(tau=2.5)), "tau"),
        (changed(guaranteed(tau=True)), "tau"),
        (changed(guaranteed(tau="0.3")), "tau"),
        (changed(guaranteed(tau=10**400)), "tau"),
        (changed(guaranteed(kind="empirical")), "exactly kind, epsilon and unit"),
        (changed(guaranteed(epsilon=-1)), "epsilon"),
        (changed(guaranteed(unit="map")), "unit"),
        (GOOD[:-4], "take"),
    ],
)
def test_what_is_wrong_is_refused(content: bytes, complaint: str | None) -> None:
    with pytest.raises(FormatError, match=complaint) as caught:
        veil.decode(content)
    assert str(caught.value).isprintable() and len(str(caught.value)) < 200


def test_an_empirical_release_has_no_tau() -> None:
    with pytest.raises(InputError, match="tau"):
        Guarantee("empirical", tau=0.3)
    with pytest.raises(InputError, match="tau"):
        Guarantee("map-known")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(["map", "guarantee"]), st.sampled_from(["sketch", "model", "points", "tau", "epsilon"]), JSON)
def test_any_json_in_what_came_with_version_2(field: str, name: str, value: object) -> None:
    for change in (
        lambda header, about: about[field].update({name: value}),
        lambda header, about: about.update({field: value}),
    ):
        try:
            decoded = veil.decode(changed(change))
        except FormatError:
            continue
        assert veil.decode(veil.encode(decoded)).kind == "sift"


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 40), st.integers(1, 8), st.integers(0, 2**32 - 1))
def test_any_points_are_read_as_they_were(n: int, k: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    rows = [np.sort(rng.choice(1000, k, replace=False)) for _ in range(n)]
    points = np.array(rows, np.int64).reshape(n, k)
    points[np.arange(k) < rng.integers(0, k, (n, 1))] = -1
    sent = PrivateFeatures(MapPoints(points, SKETCH, MODEL, 1000), "sift", SPEC, GATED)
    again = veil.decode(veil.encode(sent)).descriptors
    assert isinstance(again, MapPoints) and np.array_equal(again.points, points)


def test_raw_points_stay_of_version_1() -> None:
    from featveil.core import Features

    assert version_of(veil.encode(Features(Points(np.ones((1, 4), np.float32)), "sift"))) == 1
