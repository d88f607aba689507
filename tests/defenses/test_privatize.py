"""Every defense in the registry keeps the contract and the release invariants: listing it tests it."""

import importlib
import json
import os
import re
from itertools import count
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
from typer.testing import CliRunner

from featveil.cli import app
from featveil.core import (
    ChangesKind,
    Defense,
    Descriptors,
    Features,
    InputError,
    Keypoints,
    MapPoints,
    NotMappedError,
    Points,
    PrivacyError,
    PrivateFeatures,
    SecureRandomness,
    Selective,
    Subspaces,
    WordSets,
    base_kind,
)
from featveil.core.arrays import Float64
from featveil.databases import builtin
from featveil.defenses import privatize
from featveil.defenses.lifting import redraw
from featveil.distances import matrix
from featveil.formats.veil import decode, encode
from featveil.registry import DEFENSES
from networks import random_network
from pools import memory_pool
from sketches import builtin_sketch, other_background

# For parameters without a default, and those that stand for a file. A defense with another one adds it here.
GIVEN: dict[str, Any] = {
    "epsilon": 10.0,
    "pool": memory_pool,
    "network": random_network,
    "sketch": builtin_sketch,
    "background": other_background,
    "min_features": 1,
}


def features(n: int = 6, kind: str = "sift") -> Features:
    xy = np.arange(2 * n, dtype=np.float32).reshape(n, 2)
    ones = np.ones(n, np.float32)
    return Features(Points(builtin("sift").points()[:n]), kind, Keypoints(xy, ones, ones, ones), (64, 48))


def make(name: str) -> Any:
    """The defense with as few settings as it takes."""
    given = {field: GIVEN[field] for field in DEFENSES.parameters(name) if field in GIVEN}
    return DEFENSES[name](**{field: value() if callable(value) else value for field, value in given.items()})


def arrays(descriptors: Descriptors) -> list[Any]:
    """The numbers that are released."""
    match descriptors:
        case MapPoints():
            return [descriptors.points]
        case Points():
            return [descriptors.values]
        case Subspaces():
            return [descriptors.offset, descriptors.basis]
        case WordSets():
            return [descriptors.words]


def places(raw: Points, released: Subspaces) -> Float64:
    """Where in each subspace the descriptor sits, seen from its offset (n, m)."""
    away = raw.values.astype(np.float64) - released.offset
    return np.asarray(np.einsum("nmd,nd->nm", released.basis.astype(np.float64), away))


def alike(one: Float64, other: Float64) -> bool:
    """Whether the means of two samples (n, m) differ by no more than chance has it."""
    spread = np.sqrt((one.var(axis=0) + other.var(axis=0)) / len(one))
    return bool((np.abs(one.mean(axis=0) - other.mean(axis=0)) < 5 * spread + 1e-9).all())


@pytest.mark.parametrize("name", DEFENSES)
class TestEveryDefense:
    """The contract: listing a defense in the registry tests it."""

    def test_its_file_opens_with_what_it_hides_from_whom_and_what_breaks_it(self, name: str) -> None:
        opening = importlib.import_module(DEFENSES[name].__module__).__doc__ or ""
        assert re.search(r"(19|20)\d\d|\b[Oo]urs\b|beyond the paper", opening.split("\n\n")[0]), "where it comes from"
        for line in ("Hides", "From", "Does not hide", "Known breaks"):
            assert re.search(rf"^{line}: +\S", opening, re.MULTILINE), line

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
        assert type(first) is type(second)
        for one, other in zip(arrays(first), arrays(second), strict=True):
            assert (one == other).all()

    def test_releases_never_touch_a_seedable_generator(self, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
        def refuse(*_: object) -> None:
            raise AssertionError("a release must draw from the operating system")

        defense = make(name)
        for source in ("default_rng", "random", "rand", "uniform"):
            monkeypatch.setattr(np.random, source, refuse)
        privatize(features(), defense)

    def test_a_release_is_a_function_of_the_systems_bytes(self, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
        """The same bytes give the same release: nothing else is drawn from."""
        releases = []
        for seed in (1, 1, 2):
            monkeypatch.setattr(os, "urandom", np.random.default_rng(seed).bytes)
            releases.append(arrays(privatize(features(), make(name)).descriptors))
        assert all((one == other).all() for one, other in zip(releases[0], releases[1], strict=True))
        sent = make(name).for_kind("sift").privatize(features().descriptors, SecureRandomness())
        drawn = not isinstance(sent, Points | MapPoints)  # what a gate lets pass is sent as it is
        if drawn and "pool" not in DEFENSES.parameters(name):  # else draws follow from its secret
            assert any((one != other).any() for one, other in zip(releases[0], releases[2], strict=True))

    def test_the_release_does_not_depend_on_where_the_descriptor_sits(self, name: str) -> None:
        """Of subspaces: seen from offset and basis it lies as in a release that only the subspace is known to."""
        method, raw = make(name), Points(builtin("sift").points()[:800])
        if isinstance(method, Selective):
            return  # it sends numbers, or what another defense makes
        released = method.for_kind("sift").privatize(raw, np.random.default_rng(0))
        if not isinstance(released, Subspaces):
            return  # points have no place, and the words of a set are rising, whichever is the true one
        drawn = np.random.default_rng(1).uniform(-1, 1, (len(raw), released.dimension + 1, raw.size))
        offset, basis = redraw(released.offset.astype(np.float64), released.basis.astype(np.float64), drawn)
        one, other = places(raw, released), places(raw, Subspaces(offset.astype(np.float32), basis.astype(np.float32)))
        assert alike(np.sign(one), np.sign(other)) and alike(np.abs(one), np.abs(other))
        lengths = [np.linalg.norm(where, axis=1, keepdims=True) for where in (one, other)]
        assert alike(*lengths) and alike(np.abs(one) / lengths[0], np.abs(other) / lengths[1])
        centred = Subspaces(raw.values, released.basis)  # the check can fail: here the descriptor is the offset
        assert not alike(np.abs(one), np.abs(places(raw, centred)))

    def test_the_order_of_the_detector_does_not_show(self, name: str) -> None:
        raw, rng = features(40), np.random.default_rng(0)
        for order in (np.arange(40), np.arange(40)[::-1], rng.permutation(40)):
            private = privatize(raw.take(order), make(name))
            assert private.keypoints is not None and raw.keypoints is not None
            assert (private.keypoints.xy == raw.keypoints.xy).all()

    def test_a_claim_is_of_each_descriptor_and_adds_up_over_the_image(self, name: str) -> None:
        guarantee = make(name).guarantee()
        assert guarantee.unit == ("image" if guarantee.kind == "map-known" else "descriptor")
        whole = guarantee.compose(7)
        assert (whole.kind, whole.unit) == (guarantee.kind, "image")
        assert whole.epsilon == (None if guarantee.epsilon is None else 7 * guarantee.epsilon)

    def test_a_proved_bound_has_its_derivation_beside_the_code_and_an_exact_test(self, name: str) -> None:
        if make(name).guarantee().epsilon is None:
            return
        module = importlib.import_module(DEFENSES[name].__module__)
        proofs = re.findall(r"\b\w+\.md\b", module.__doc__ or "")
        assert proofs and module.__file__ is not None
        for proof in proofs:
            assert len(Path(module.__file__).with_name(proof).read_text(encoding="utf-8")) > 1000
        tests = Path(__file__).with_name(f"test_{name.replace('-', '_')}.py").read_text(encoding="utf-8")
        assert "Fraction(" in tests and "def test_no_output_tells_inputs_apart" in tests

    def test_a_command_shows_no_epsilon_without_that_of_the_image(self, name: str, tmp_path: Path) -> None:
        guarantee = make(name).guarantee()
        if guarantee.epsilon is None:
            return
        noise = np.random.default_rng(0).integers(0, 256, (60, 80), np.uint8)
        cv2.imwrite(str(tmp_path / "a.png"), cv2.resize(noise, (320, 240), interpolation=cv2.INTER_CUBIC))
        given = ["--defense", name, "--epsilon", "10", "--max-features", "20"]
        numbers = count()

        def run(*more: str) -> str:
            out = tmp_path / f"{next(numbers)}.veil"
            result = CliRunner().invoke(
                app, ["privatize", str(tmp_path / "a.png"), "--out", str(out), *given, *more], env={"COLUMNS": "200"}
            )
            assert result.exit_code == 0, result.output
            return result.stdout

        shown = json.loads(run("--json"))["guarantee"]
        assert (shown["kind"], shown["epsilon"], shown["image_epsilon"]) == (guarantee.kind, 10, 200)
        lines = [line for line in run().splitlines() if re.search(r"epsilon 10\b", line)]
        assert lines and all(re.search(r"\b200\b.*image", line) for line in lines)

    def test_it_claims_an_epsilon_exactly_where_one_is_proved(self, name: str) -> None:
        private = privatize(features(), make(name))
        assert private.guarantee == make(name).guarantee()
        assert private.guarantee.epsilon == (10.0 if "epsilon" in DEFENSES.parameters(name) else None)
        assert (private.guarantee.kind in ("local-dp", "metric-dp")) == (private.guarantee.epsilon is not None)
        assert (private.guarantee.kind == "none") == (name == "identity")
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
        if isinstance(make(name), Selective):
            with pytest.raises(NotMappedError, match="no features"):
                privatize(empty, make(name))
            return
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
