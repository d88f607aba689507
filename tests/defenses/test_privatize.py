from typing import Any

import numpy as np
import pytest

from featveil.core import (
    ChangesKind,
    Defense,
    Features,
    InputError,
    Keypoints,
    Points,
    PrivacyError,
    PrivateFeatures,
    base_kind,
)
from featveil.databases import builtin
from featveil.defenses import DEFENSES, privatize
from featveil.distances import matrix
from featveil.formats.veil import decode, encode
from networks import random_network
from pools import memory_pool

BOUNDED = ("naive", "subset", "metric")


def features(n: int = 6, kind: str = "sift") -> Features:
    xy = np.arange(2 * n, dtype=np.float32).reshape(n, 2)
    ones = np.ones(n, np.float32)
    return Features(Points(builtin("sift").points()[:n]), kind, Keypoints(xy, ones, ones, ones), (64, 48))


def make(name: str) -> Any:
    """The defense with as few settings as it takes."""
    if name == "hardened":
        return DEFENSES[name](pool=memory_pool())
    if name == "concealer":
        return DEFENSES[name](random_network())
    return DEFENSES[name](epsilon=10.0) if name in BOUNDED else DEFENSES[name]()


@pytest.mark.parametrize("name", DEFENSES)
class TestEveryDefense:
    """The contract: listing a defense in the registry tests it."""

    def test_release_keeps_order_kind_size_and_positions_only(self, name: str) -> None:
        raw = features()
        private = privatize(raw, make(name))
        assert isinstance(private, PrivateFeatures)
        assert len(private) == len(raw)
        assert (base_kind(private.kind), private.image_size) == (raw.kind, raw.image_size)
        assert (private.kind == raw.kind) != isinstance(make(name), ChangesKind)
        assert private.keypoints is not None
        assert raw.keypoints is not None
        assert (private.keypoints.xy == raw.keypoints.xy).all()
        assert private.keypoints.scale is None
        assert private.keypoints.orientation is None
        assert private.keypoints.response is None

    def test_geometry_only_on_request(self, name: str) -> None:
        private = privatize(features(), make(name), keep_geometry=True)
        assert private.keypoints is not None
        assert private.keypoints.scale is not None

    def test_spec_has_a_name_and_no_seed(self, name: str) -> None:
        spec = privatize(features(), make(name), rng=np.random.default_rng(5)).defense
        assert spec["name"] == name
        assert not any("seed" in key for key in spec)
        assert all(isinstance(value, str | int | float | bool | None) for value in spec.values())

    def test_a_seeded_study_repeats(self, name: str) -> None:
        defense: Defense = make(name).for_kind("sift")
        points = features().descriptors
        first, second = (defense.privatize(points, np.random.default_rng(5)) for _ in range(2))
        for field in ("values", "offset", "basis", "words"):
            if hasattr(first, field):
                assert (getattr(first, field) == getattr(second, field)).all()

    def test_releases_never_touch_a_seedable_generator(self, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
        def refuse(*_: object) -> None:
            raise AssertionError("a release must draw from the operating system")

        defense = make(name)
        for source in ("default_rng", "random", "rand", "uniform"):
            monkeypatch.setattr(np.random, source, refuse)
        privatize(features(), defense)

    def test_it_claims_an_epsilon_exactly_where_one_is_proved(self, name: str) -> None:
        private = privatize(features(), make(name))
        assert (private.guarantee.epsilon == 10.0) == (name in BOUNDED)
        if name != "identity":
            decoded = decode(encode(private))
            assert isinstance(decoded, PrivateFeatures)
            assert (decoded.guarantee, decoded.defense) == (private.guarantee, private.defense)

    def test_nothing_comes_back_when_the_account_is_short(self, name: str) -> None:
        charged: list[PrivateFeatures] = []

        class Short:
            def charge(self, private: PrivateFeatures, label: str = "") -> float:
                charged.append(private)
                raise PrivacyError("nothing left")

        with pytest.raises(PrivacyError, match="nothing left"):
            privatize(features(), make(name), account=Short())
        assert len(charged) == 1

    def test_an_image_without_features(self, name: str) -> None:
        empty = Features(Points(np.empty((0, 128), np.float32)), "sift")
        assert len(privatize(empty, make(name))) == 0


def test_what_hides_nothing_is_not_written_as_private() -> None:
    with pytest.raises(PrivacyError, match="hide nothing"):
        encode(privatize(features(), DEFENSES["identity"]()))


def test_a_name_is_not_a_defense() -> None:
    with pytest.raises(InputError, match="expected a defense"):
        privatize(features(), "sub-hybrid")  # type: ignore[arg-type]


def test_private_features_cannot_be_privatized_again() -> None:
    private = privatize(features(), DEFENSES["lifting"]())
    with pytest.raises(InputError, match="expected raw Features"):
        privatize(private, DEFENSES["lifting"]())  # type: ignore[arg-type]


def test_the_order_is_that_of_positions_and_tells_nothing_of_the_response() -> None:
    rng = np.random.default_rng(0)
    xy = rng.integers(0, 3, (200, 2)).astype(np.float32)
    response = np.sort(rng.random(200).astype(np.float32))[::-1]
    raw = Features(Points(builtin("sift").points()[:200]), "sift", Keypoints(xy, response=response))
    private = privatize(raw, DEFENSES["lifting"](), keep_geometry=True)
    assert private.keypoints is not None and private.keypoints.response is not None
    order = np.array([int(np.argmax(response == value)) for value in private.keypoints.response])
    assert (xy[order] == private.keypoints.xy).all()
    assert (np.diff(private.keypoints.xy @ np.array([1, 10])) >= 0).all()
    distances = matrix(raw.descriptors.take(order), private.descriptors).diagonal()
    assert distances.max() < 1e-2 * np.linalg.norm(raw.descriptors.values, axis=1).min()
    same_place = np.diff(private.keypoints.xy @ np.array([1, 10])) == 0
    falling = np.diff(private.keypoints.response)[same_place] < 0
    assert 0.2 < falling.mean() < 0.8  # always true in the detector's order


def test_features_without_keypoints_keep_their_order() -> None:
    raw = Features(Points(builtin("sift").points()[:50]), "sift")
    distances = matrix(raw.descriptors, privatize(raw, DEFENSES["lifting"]("random")).descriptors)
    assert (distances.argmin(axis=1) == np.arange(50)).all()
