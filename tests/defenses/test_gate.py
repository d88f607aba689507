"""The gate: what the map does not know leaves no trace, and what it knows is sent as numbers of its points."""

import json
from dataclasses import replace
from fractions import Fraction
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from executions import executions
from featveil.core import (
    Features,
    Guarantee,
    InputError,
    Keypoints,
    MapPoints,
    NotFittedError,
    NotMappedError,
    Points,
    SecureRandomness,
    Subspaces,
)
from featveil.core.arrays import Float32
from featveil.databases import builtin
from featveil.defenses import Gate, Hardened, Identity, Lifting, Subset, lying_apart, privatize
from featveil.defenses.gate import FOREIGN_TIMES, MIN_SHARE
from featveil.defenses.subset import subset_coin
from featveil.defenses.support import SUPPORTS
from featveil.formats.veil import decode, encode
from featveil.gate import Sketch
from featveil.gate.background import foreign_descriptors, foreign_share
from featveil.gate.map_sketch import Exact
from featveil.gate.signing import create_key, sign
from pools import memory_pool
from sketches import LOOSE, MODEL, builtin_sketch, other_background, sketch_of

SKETCH = builtin_sketch(200)
KNOWN = builtin("sift").points()[:200]
OTHERS = other_background()
TAU = 0.2


def gate(**options: Any) -> Gate:
    given: dict[str, Any] = {"tau": TAU, "background": OTHERS, "min_share": 0, "min_features": 1}
    return Gate(SKETCH, **given | options)


def known(rng: np.random.Generator, n: int) -> Float32:
    """Descriptors of norm 1 that are near those of the map: within TAU, or a little beyond."""
    values = KNOWN[rng.integers(0, len(KNOWN), n)] + rng.normal(0, 0.012, (n, 128))
    return np.asarray(values / np.linalg.norm(values, axis=1, keepdims=True), np.float32)


def foreign(rng: np.random.Generator, n: int) -> Float32:
    """Descriptors that are farther than TAU from the sketch: half of them only just."""
    far = rng.normal(size=(n, 128)).astype(np.float32)
    near = known(rng, n)
    away = far - (far * near).sum(axis=1, keepdims=True) * near
    away /= np.linalg.norm(away, axis=1, keepdims=True)
    values = np.where(rng.random((n, 1)) < 0.5, near + 0.35 * away, far)
    values /= np.linalg.norm(values, axis=1, keepdims=True)
    distances = np.linalg.norm(values[:, None] - SKETCH.entries.decode(slice(None)), axis=2).min(axis=1)
    return np.asarray(values[distances > TAU + 1e-3], np.float32)


def photograph(descriptors: Float32, xy: Float32) -> Features:
    return Features(Points(descriptors), "sift", Keypoints(xy), (640, 480))


def positions(rng: np.random.Generator, n: int) -> Float32:
    return np.asarray(rng.uniform(1, 400, (n, 2)), np.float32)


@pytest.mark.parametrize("support", SUPPORTS)
@given(st.integers(0, 2**32 - 1))
@settings(max_examples=20, deadline=None)
def test_features_beyond_tau_leave_no_trace(support: str, seed: int) -> None:
    """The claim: photographs that differ in such features only have equal releases, whatever the support."""
    rng = np.random.default_rng(seed)
    inside, places = known(rng, 40), positions(rng, 40)
    releases = []
    for _ in range(2):
        outside = foreign(rng, int(rng.integers(0, 30)))
        values = np.concatenate([inside, outside])
        xy = np.concatenate([places, positions(rng, len(outside))])
        order = rng.permutation(len(values))
        releases.append(privatize(photograph(values[order], xy[order]), gate(support=support)))
    assert encode(releases[0]) == encode(releases[1])


class Untied:
    """Its first draws, which decide ties of positions, are apart from all others: each feature has one, sent or not."""

    def __init__(self) -> None:
        self.ties, self.others = iter([np.random.default_rng(0)]), np.random.default_rng(1)

    def integers(self, low: int, high: int, size: tuple[int, ...]) -> Any:
        return next(self.ties, self.others).integers(low, high, size=size)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.others, name)


@pytest.mark.parametrize(
    "then", [lambda: None, Identity, Lifting, lambda: Subset(6, 4), lambda: Hardened(4, 16, memory_pool())]
)
def test_what_follows_sees_only_what_passed(then: Any) -> None:
    """With the usual limits, many features, and their geometry: releases are equal whatever is farther than tau."""
    rng = np.random.default_rng(9)
    inside, outside = known(rng, 150), foreign(rng, 900)
    values, xy = np.concatenate([inside, outside]), positions(rng, 150 + len(outside))
    scale = np.ones(len(values), np.float32)
    raw = Features(Points(values), "sift", Keypoints(xy, scale, 0 * scale, scale), (640, 480))
    usual = Gate(SKETCH, TAU, background=OTHERS)
    one, other = (
        privatize(raw.take(np.arange(n)), replace(usual, then=then()), keep_geometry=True, rng=Untied())
        for n in (150, len(values))
    )
    assert len(one) > 0 and encode(one) == encode(other)


def test_features_beyond_tau_do_not_push_others_away() -> None:
    """Of features that lie apart too: strong ones on top of others, that do not pass, would win against them."""
    rng = np.random.default_rng(0)
    inside, outside = known(rng, 60), foreign(rng, 60)
    values, xy = np.concatenate([inside, outside]), positions(rng, 60)
    xy = np.concatenate([xy, xy[: len(outside)] + 1])
    scale, response = np.ones(len(values), np.float32), np.ones(len(values), np.float32)
    scale[60:], response[60:] = 3, 2
    keypoints = Keypoints(xy, scale, np.zeros_like(scale), response)
    raw = Features(Points(values), "sift", keypoints, (640, 480))
    one, other = (privatize(raw.take(np.arange(n)), gate(), apart=True) for n in (60, len(values)))
    assert encode(one) == encode(other)
    assert len(lying_apart(raw.take(np.arange(60)))) < 60 and 0 < len(one) < len(privatize(raw, gate()))


def test_the_check_of_the_claim_can_fail() -> None:
    """One feature within tau more, and the releases differ."""
    rng = np.random.default_rng(0)
    values, xy = known(rng, 41), positions(rng, 41)
    one, other = (privatize(photograph(values[:n], xy[:n]), gate()) for n in (40, 41))
    assert encode(one) != encode(other)


def test_without_support_each_feature_is_decided_by_itself() -> None:
    rng = np.random.default_rng(1)
    values, xy = np.concatenate([known(rng, 30), foreign(rng, 30)]), positions(rng, 60)[:60]
    xy = xy[: len(values)]
    whole = privatize(photograph(values, xy), gate())
    assert whole.keypoints is not None and isinstance(whole.descriptors, MapPoints)
    together = {
        (*place, *numbers)
        for place, numbers in zip(whole.keypoints.xy.tolist(), whole.descriptors.points.tolist(), strict=True)
    }
    alone = set()
    for row in range(len(values)):
        try:
            sent = privatize(photograph(values[row : row + 1], xy[row : row + 1]), gate())
        except NotMappedError:
            continue
        assert sent.keypoints is not None and isinstance(sent.descriptors, MapPoints)
        alone.add((*sent.keypoints.xy[0].tolist(), *sent.descriptors.points[0].tolist()))
    assert together == alone and 0 < len(alone) < len(values)


def test_what_is_sent_is_numbers_and_positions_and_nothing_else() -> None:
    rng = np.random.default_rng(2)
    raw = photograph(known(rng, 50), positions(rng, 50))
    sent = privatize(raw, gate())
    assert isinstance(sent.descriptors, MapPoints)
    assert (sent.descriptors.sketch, sent.descriptors.model) == (SKETCH.digest, SKETCH.model)
    assert sent.guarantee == Guarantee("map-known", None, "image", TAU)
    content = encode(sent)
    assert len(content) < 20 * len(sent) + 1500
    assert not any(row.tobytes() in content for row in raw.descriptors.values)
    decoded = decode(content)
    assert encode(decoded) == content and decoded.descriptors.points.tolist() == sent.descriptors.points.tolist()  # type: ignore[union-attr]


def test_a_feature_names_the_nearest_points() -> None:
    sent = privatize(Features(Points(KNOWN[:100]), "sift"), gate(candidates=1, tau=0.1))
    assert isinstance(sent.descriptors, MapPoints)
    assert (sent.descriptors.points[:, 0] == np.arange(100)).all()
    several = privatize(Features(Points(KNOWN[:100]), "sift"), gate(candidates=3, tau=0.6))
    assert isinstance(several.descriptors, MapPoints)
    assert all(row in numbers for row, numbers in enumerate(several.descriptors.points.tolist()))
    assert (several.descriptors.points[:, 1:] > several.descriptors.points[:, :-1]).mean() > 0.2


@pytest.mark.parametrize("scale", [0.01, 1.0, 512.0])
def test_the_norm_of_descriptors_does_not_matter(scale: float) -> None:
    rng = np.random.default_rng(3)
    values, xy = np.concatenate([known(rng, 30), foreign(rng, 30)]), positions(rng, 60)
    one = privatize(photograph(values, xy[: len(values)]), gate())
    other = privatize(photograph(values * np.float32(scale), xy[: len(values)]), gate())
    assert encode(one) == encode(other)


def test_a_background_takes_away_what_every_place_has() -> None:
    """Features that are in the background too pass only without contrast; a larger contrast lets more pass."""
    rng = np.random.default_rng(4)
    common = builtin("sift").points()[-500:][:40]
    values = np.concatenate([KNOWN[:40], common])
    sketch = sketch_of(values)
    raw = Features(Points(values + rng.normal(0, 0.001, values.shape).astype(np.float32)), "sift")
    sent = {
        contrast: len(privatize(raw, replace(gate(contrast=contrast), sketch=sketch))) for contrast in (0.1, 0.5, 1.0)
    }
    assert sent[0.1] <= sent[0.5] <= sent[1.0] <= 41 < 80
    assert sent[1.0] > 30


def test_foreign_passers_are_scattered_and_lack_support() -> None:
    """Two groups of points, each seen by an image of its own: a few features of one among many of the other fall."""
    rng = np.random.default_rng(5)
    sketch = replace(SKETCH, images=np.where(SKETCH.points < 100, 0, 1), model_images=12)
    values = np.concatenate([KNOWN[:60], KNOWN[150:153]])
    raw = photograph(values, positions(rng, 63))
    for support, few in (("none", 3), ("neighbours", 0)):
        sent = privatize(raw, replace(gate(support=support, candidates=1), sketch=sketch))
        assert isinstance(sent.descriptors, MapPoints)
        assert int((sent.descriptors.points >= 150).sum()) == few
        assert len(sent) - few == 60


def test_covisible_keeps_the_four_images_of_most_votes() -> None:
    rng = np.random.default_rng(6)
    sketch = replace(SKETCH, images=SKETCH.points % 8, model_images=8)
    values = np.concatenate([KNOWN[:64:8], KNOWN[1:64:8], KNOWN[2:64:8], KNOWN[3:64:8], KNOWN[4:20:8]])
    sent = privatize(photograph(values, positions(rng, len(values))), replace(gate(support="covisible"), sketch=sketch))
    assert isinstance(sent.descriptors, MapPoints)
    assert {row[-1] % 8 for row in sent.descriptors.points.tolist()} == {0, 1, 2, 3}


def test_neighbours_need_positions() -> None:
    with pytest.raises(InputError, match="positions"):
        privatize(Features(Points(KNOWN[:40]), "sift"), gate(support="neighbours"))


class TestNotAMappedPlace:
    """Too little passes: nothing is sent."""

    def test_share(self) -> None:
        rng = np.random.default_rng(7)
        values = np.concatenate([known(rng, 5), foreign(rng, 120)])
        raw = photograph(values, positions(rng, len(values)))
        with pytest.raises(NotMappedError, match="not a mapped place"):
            privatize(raw, gate(min_share=0.2))
        assert len(privatize(raw, gate(min_share=0.01))) >= 1

    def test_number(self) -> None:
        raw = Features(Points(KNOWN[:11]), "sift")
        with pytest.raises(NotMappedError, match="12"):
            privatize(raw, gate(min_features=12))

    def test_the_account_is_not_charged(self) -> None:
        class Account:
            def charge(self, private: object, label: str = "") -> float:
                raise AssertionError("nothing is released")

        with pytest.raises(NotMappedError):
            privatize(Features(Points(KNOWN[:5]), "sift"), gate(min_features=12, then=Subset(5, 2)), account=Account())

    def test_it_has_an_exit_code_of_its_own(self) -> None:
        assert NotMappedError.exit_code not in (0, 1, InputError.exit_code)


class TestThen:
    """What becomes of what passed."""

    def test_raw_or_lifted_descriptors_of_what_passed(self) -> None:
        rng = np.random.default_rng(8)
        inside, outside = KNOWN[:30], foreign(rng, 30)
        raw = photograph(np.concatenate([outside, inside]), positions(rng, 30 + len(outside)))
        for then, kind in ((Identity(), Points), (Lifting(), Subspaces), (Hardened(4, 16, memory_pool()), Subspaces)):
            sent = privatize(raw, gate(then=then))
            assert isinstance(sent.descriptors, kind) and len(sent) == 30
            assert sent.guarantee == Guarantee("map-known", None, "image", TAU)
            assert sent.defense["name"] == "gate" and sent.defense["then"] == then.spec()["name"]
            assert encode(decode(encode(sent))) == encode(sent)
        plain = privatize(raw, gate(then=Identity()))
        assert isinstance(plain.descriptors, Points)
        assert {row.tobytes() for row in plain.descriptors.values} == {row.tobytes() for row in inside}

    def test_numbers_under_the_subset_mechanism(self) -> None:
        sent = privatize(Features(Points(KNOWN), "sift"), gate(then=Subset(3, 4), tau=0.1))
        assert isinstance(sent.descriptors, MapPoints) and sent.descriptors.candidates == 4
        assert sent.guarantee == Guarantee("map-known", 3.0, "descriptor", 0.1)
        assert sent.guarantee.compose(len(sent)).epsilon == 3.0 * len(sent)
        shown = sum(row in numbers for row, numbers in enumerate(sent.descriptors.points.tolist())) / 200
        expected = float(Subset(3, 4, OTHERS).coin.probability)  # of 500 words; 200 make it likelier
        assert expected < shown < 0.7

    def test_decoys_are_points_that_the_sketch_knows(self) -> None:
        tile = SKETCH.take(np.flatnonzero(SKETCH.points % 3 == 0))
        sent = privatize(Features(Points(KNOWN[::3]), "sift"), replace(gate(then=Subset(1, 2)), sketch=tile))
        assert isinstance(sent.descriptors, MapPoints)
        assert (sent.descriptors.points % 3 == 0).all() and len(np.unique(sent.descriptors.points)) > 40

    def test_no_codebook_after_a_gate(self) -> None:
        with pytest.raises(InputError, match="codebook"):
            gate(then=Subset(3, 4, OTHERS))
        with pytest.raises(InputError, match="after a gate"):
            gate(then="lifting")


def test_no_output_tells_inputs_apart_by_more_than_epsilon() -> None:
    """Every sequence of draws is run: the numbers of a feature that passed, for each point that it may show."""
    epsilon, size, k = 1.0, 5, 2
    sketch = sketch_of(KNOWN[:size], images=1)
    mechanism = replace(gate(then=Subset(epsilon, k), tau=0.1), sketch=sketch)
    outputs = [frozenset(chosen) for chosen in combinations(range(size), k)]
    every = []
    for point in range(size):
        shares = dict.fromkeys(outputs, Fraction(0))
        one = Points(KNOWN[point : point + 1])

        def draw(tape: Any, one: Points = one) -> Any:
            sent = mechanism.release(one, None, tape)[1]
            assert isinstance(sent, MapPoints)
            return sent.points[0]

        for numbers, weight in executions(draw, subset_coin(epsilon, size, k)):
            shares[frozenset(numbers.tolist())] += weight
        assert sum(shares.values()) == 1
        every.append(shares)
    worst = max(a[output] / b[output] for output in outputs for a in every for b in every)
    assert 1 < float(worst) <= np.exp(epsilon)


class TestAHostileSketch:
    """What a server may not do with its sketch."""

    def test_a_tau_that_lets_everything_pass_is_refused(self) -> None:
        wide = replace(SKETCH, calibration=replace(LOOSE, tau=1.9))
        with pytest.raises(InputError, match="lets nearly everything pass"):
            privatize(Features(Points(KNOWN), "sift"), Gate(wide))

    def test_a_sketch_of_what_every_place_has_is_refused(self) -> None:
        """Its entries are the background's, shorter or not: shorter ones would be nearer to everything than that is."""
        common = builtin("sift").points()
        points, images = np.arange(len(common)), np.zeros(len(common), np.int64)
        for length in (0.7, 0.9, 1.0):
            entries = Exact((length * common).astype(np.float16))
            much = replace(LOOSE, tau=0.8)
            asking = Sketch(entries, points, images, "sift", MODEL, len(common), 1, "", much)
            with pytest.raises(InputError, match="would pass at this sketch's own tau"):
                Gate(asking).for_kind("sift")

    def test_short_entries_are_no_nearer(self) -> None:
        assert isinstance(SKETCH.entries, Exact)
        short = replace(SKETCH, entries=Exact((SKETCH.entries.values.astype(np.float32) / 2).astype(np.float16)))
        raw = Features(Points(np.concatenate([KNOWN, OTHERS.points()])), "sift")
        sent = [
            replace(gate(), sketch=sketch).release(raw.descriptors, None, SecureRandomness())
            for sketch in (SKETCH, short)
        ]
        assert sent[0][0].tolist() == sent[1][0].tolist()

    def test_the_least_share_grows_with_what_passes_of_foreign_content(self) -> None:
        for stated, least in ((0.01, MIN_SHARE), (0.04, 0.04 * FOREIGN_TIMES)):
            sketch = replace(SKETCH, calibration=replace(LOOSE, foreign=(0.0, stated)))
            assert Gate(sketch).for_kind("sift").min_share == pytest.approx(least)
        foreign = foreign_descriptors("sift").values
        mixed = sketch_of(np.concatenate([KNOWN, foreign[:: len(foreign) // 250]]))
        mixed = replace(mixed, calibration=None)
        ready = Gate(mixed, tau=0.1, contrast=1.0, background=OTHERS).for_kind("sift")
        share = foreign_share(mixed, 0.1, 1.0, ready.background)
        assert share is not None and share > MIN_SHARE / FOREIGN_TIMES
        assert ready.min_share == pytest.approx(FOREIGN_TIMES * share)
        assert replace(gate(), sketch=mixed, min_share=0.02).for_kind("sift").min_share == 0.02

    def test_a_sketch_cannot_switch_the_background_off(self) -> None:
        assert LOOSE.contrast is None
        ready = Gate(SKETCH).for_kind("sift")
        assert ready.contrast == 1.0 and ready.background is builtin("sift")

    def test_another_background_than_it_was_calibrated_with(self) -> None:
        stated = replace(SKETCH, calibration=replace(LOOSE, contrast=0.9, background=builtin("sift").digest))
        with pytest.raises(InputError, match="calibrated with background"):
            Gate(stated, background=OTHERS).for_kind("sift")
        assert Gate(stated, background=OTHERS, contrast=0.9).for_kind("sift").background is OTHERS

    def test_equal_entries_do_not_take_much_memory(self) -> None:
        sketch = sketch_of(np.repeat(KNOWN[:1], 3000, axis=0))
        sent = privatize(Features(Points(np.repeat(KNOWN[:1], 2000, axis=0)), "sift"), replace(gate(), sketch=sketch))
        assert len(sent) == 2000

    def test_a_pinned_key(self, tmp_path: Any) -> None:
        public = create_key(tmp_path / "key")
        create_key(tmp_path / "other")
        raw, signed = Features(Points(KNOWN), "sift"), sign(SKETCH, tmp_path / "key")
        assert signed.digest == SKETCH.digest and signed.signature is not None
        for signer in (public, str(public), signed.signature.key):
            assert len(privatize(raw, Gate(signed, background=OTHERS, signer=signer))) > 100
        for sketch, reason in (
            (SKETCH, "not signed"),
            (sign(SKETCH, tmp_path / "other"), "not with"),
            (replace(signed, source="altered"), "altered"),
        ):
            with pytest.raises(InputError, match=reason):
                Gate(sketch, background=OTHERS, signer=str(public))


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"tau": 0}, "tau"),
        ({"tau": 2.5}, "tau"),
        ({"tau": float("nan")}, "tau"),
        ({"contrast": 0}, "contrast"),
        ({"contrast": 1.5}, "contrast"),
        ({"candidates": 0}, "candidates"),
        ({"support": "all"}, "support"),
        ({"min_share": 2}, "min_share"),
        ({"min_features": 0}, "min_features"),
        ({"sketch": "place.sketch"}, "load_sketch"),
        ({"background": "database"}, "Database"),
        ({"then": Subset(1, 200)}, "subset_size"),
        ({"signer": 5}, "signer"),
        ({"tau": 10**5000}, "tau"),
        ({"contrast": -(10**5000)}, "contrast"),
        ({"candidates": 10**5000}, "candidates"),
        ({"support": 10**5000}, "support"),
        ({"min_share": 10**5000}, "min_share"),
        ({"min_features": 10**5000}, "min_features"),
        ({"tau": True}, "tau"),
        ({"tau": np.float32("nan")}, "tau"),
        ({"tau": "0.3"}, "tau"),
        ({"contrast": np.array([0.5])}, "contrast"),
    ],
)
def test_bad_settings(options: dict[str, Any], reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        Gate(**{"sketch": SKETCH, **options})


def test_a_release_asks_the_background_whether_or_not_it_was_made_ready() -> None:
    points = Points(np.concatenate([KNOWN[:20], OTHERS.points()[:20]]))
    usual = Gate(sketch_of(points.values), tau=0.1, background=OTHERS, min_share=0, min_features=1)
    rows, _ = usual.release(points, None, SecureRandomness())
    assert rows.tolist() == usual.for_kind("sift").release(points, None, SecureRandomness())[0].tolist()
    assert rows.tolist() == list(range(20))


@pytest.mark.parametrize("kind", [np.float16, np.float32, np.float64])
def test_numbers_of_numpy(kind: Any) -> None:
    made = Gate(SKETCH, tau=kind(0.5), contrast=kind(0.75))
    assert (made.tau, made.contrast) == (0.5, 0.75) and {type(made.tau), type(made.contrast)} == {float}
    json.dumps(made.spec())
    known = replace(LOOSE, tau=kind(0.5), contrast=kind(1), background=OTHERS.digest)
    assert len(replace(SKETCH, calibration=known).digest) == 64


def test_features_that_do_not_fit_the_sketch() -> None:
    with pytest.raises(InputError, match="the sketch holds sift"):
        privatize(Features(Points(KNOWN), "rootsift"), gate())
    with pytest.raises(InputError, match="size 128"):
        gate().release(Points(KNOWN[:, :64]), None, SecureRandomness())
    with pytest.raises(NotFittedError, match="sketch build"):
        privatize(Features(Points(KNOWN), "sift"), Gate())
    with pytest.raises(InputError, match="state a tau"):
        Gate(replace(SKETCH, calibration=None)).for_kind("sift")
    with pytest.raises(InputError, match=r"featveil\.privatize"):
        gate().privatize(Points(np.concatenate([KNOWN[:5], -KNOWN[:5]])), SecureRandomness())
