"""The lint names what is known to be broken, by an attack that exists, applies and works; and nothing else."""

import itertools
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from featveil.attacks import ATTACKS, Knowledge, attack
from featveil.core import Features, Points, PrivacyError, PrivateFeatures, SecureRandomness
from featveil.databases import Database, builtin
from featveil.defenses import (
    DEFENSES,
    STRATEGIES,
    Concealer,
    Gate,
    Identity,
    Lifting,
    Metric,
    Naive,
    Subset,
    Weakness,
    lint,
    privatize,
    refuse,
    summarize_weaknesses,
)
from featveil.defenses.subset import subset_coin
from featveil.metrics import align
from featveil.metrics.leakage import guess_distances
from networks import random_network
from sketches import LOOSE, builtin_sketch
from victims import picture

KINDS = ("sift", "rootsift", "hardnet")


class Named:
    """A defense of which the lint knows no more than the name."""

    def __init__(self, name: str) -> None:
        self.name = name

    def spec(self) -> dict[str, str]:
        return {"name": self.name}


def attacks_on(kind: str, defense: Any, keep_geometry: bool = False, apart: bool = False) -> list[str | None]:
    return [weakness.attack for weakness in lint(kind, defense, keep_geometry=keep_geometry, apart=apart)]


def every_defense() -> list[Any]:
    liftings = [Lifting(strategy, m, allow_line=True) for strategy in STRATEGIES for m in (1, 4, 16, 20)]
    epsilons = (1.0, 11.0, 50.0, 1000.0)
    words = [made(epsilon, k) for made in (Subset, Metric) for epsilon in epsilons for k in (1, 4)]
    return [*liftings, *words, *map(Naive, epsilons), Subset(math.inf), Identity()]


@pytest.mark.parametrize("kind", KINDS)
def test_every_named_attack_is_there_and_takes_such_releases(kind: str) -> None:
    sample = Features(Points(builtin("sift").points()[:2]), "sift")
    sent = {name: type(privatize(sample, made).descriptors) for name, made in _cheap().items()}
    named = set()
    for defense, keep_geometry, apart in itertools.product(every_defense(), (False, True), (False, True)):
        for weakness in lint(kind, defense, keep_geometry=keep_geometry, apart=apart):
            assert weakness.attack is not None and weakness.attack in ATTACKS
            assert sent[defense.spec()["name"]] in ATTACKS[weakness.attack].breaks
            assert weakness.choice in weakness.message and weakness.advice in weakness.message
            assert f"the {weakness.attack} attack" in weakness.message and "\n" not in weakness.message
            named.add(weakness.attack)
    everywhere = {"read", "mean", "database", "posterior"}
    assert named == everywhere | ({"vertex", "overlap", "posterior-overlap"} if kind != "hardnet" else set()) | (
        {"lattice"} if kind == "sift" else set()
    )


def _cheap() -> dict[str, Any]:
    bounded = ("subset", "metric", "naive")
    known = ("identity", "lifting", *bounded)
    return {name: DEFENSES[name](epsilon=1.0) if name in bounded else DEFENSES[name]() for name in known}


def test_lifting_by_kind_strategy_and_dimension() -> None:
    assert attacks_on("sift", Lifting()) == ["lattice", "vertex", "database", "overlap"]
    assert attacks_on("rootsift", Lifting()) == ["vertex", "database", "overlap"]
    assert attacks_on("hardnet", Lifting()) == ["database"]
    assert attacks_on("rootsift", Lifting("random")) == ["vertex", "mean", "overlap"]
    assert attacks_on("hardnet", Lifting("hybrid", 4, random_share=1.0)) == ["mean"]
    assert attacks_on("rootsift", Lifting("adversarial", 16), apart=True) == ["vertex", "database"]
    assert attacks_on("rootsift", Lifting("adversarial", 17), apart=True) == ["database"]
    assert attacks_on("sift", Lifting("adversarial", 17), apart=True) == ["lattice", "database"]


def test_behind_a_concealer_only_what_does_not_depend_on_looks() -> None:
    network = random_network()
    assert attacks_on("sift", Concealer(network)) == ["unconceal"]
    assert attacks_on("sift", Concealer(network, Lifting())) == ["unconceal"]
    assert attacks_on("sift", Concealer(network, Lifting(dimension=1, allow_line=True))) == ["database", "unconceal"]
    assert attacks_on("sift", Concealer(network, Subset(10.0)), keep_geometry=True) == []
    assert attacks_on("sift", Concealer(network, Subset(11.0))) == ["posterior"]
    assert attacks_on("sift", Concealer(network, Metric(49.0))) == ["posterior"]
    with pytest.raises(PrivacyError, match="the unconceal attack learns the way back"):
        refuse(lint("sift", Concealer(network), keep_geometry=False))
    with pytest.raises(PrivacyError, match=r"lifting behind a concealer: the unconceal attack .* let the subset"):
        refuse(lint("sift", Concealer(network, Lifting()), keep_geometry=False))


def test_a_line_is_the_worst() -> None:
    line = lint("rootsift", Lifting("random", 1, allow_line=True), keep_geometry=False)
    assert (line[0].choice, [found.attack for found in line]) == ("lifting to lines", ["vertex", "mean", "overlap"])
    assert attacks_on("hardnet", Lifting("adversarial", 1, allow_line=True)) == ["database", "database"]
    assert attacks_on("hardnet", Lifting("random", 1, allow_line=True)) == ["mean", "mean"]
    assert "lines" not in str(lint("rootsift", Lifting("random", 2), keep_geometry=False))


def test_a_database_of_ones_own_is_still_one_but_not_everyones() -> None:
    own = Database(np.random.default_rng(0).random((64, 128), np.float32), "sift", 4)
    for database, everyones in ((None, True), (own, False)):
        found = lint("sift", Lifting(database=database), keep_geometry=False)
        assert ("everyone has" in next(weakness.choice for weakness in found if weakness.attack == "database")) == (
            everyones
        )


@pytest.mark.parametrize(
    ("made", "largest", "name"), [(Subset, 10, "posterior"), (Metric, 28, "posterior"), (Naive, 700, "read")]
)
def test_large_epsilons(made: Any, largest: float, name: str) -> None:
    for kind in ("sift", "rootsift"):
        assert attacks_on(kind, made(float(largest))) == []
        assert attacks_on(kind, made(largest + 0.001)) == [name]
    assert f"epsilon {largest + 5}" in lint("sift", made(largest + 5), keep_geometry=False)[0].choice


def test_the_limit_of_naive_is_where_true_descriptors_begin_to_be_sent() -> None:
    assert subset_coin(700.0, 256**128, 1).probability < 1e-4 < subset_coin(701.0, 256**128, 1).probability


def test_overlapping_sets_of_words_only_where_that_was_measured() -> None:
    assert attacks_on("sift", Subset(8.0, 4), keep_geometry=True) == ["posterior-overlap"]
    assert attacks_on("sift", Subset(14.0, 4), keep_geometry=True) == ["posterior", "posterior-overlap"]
    assert attacks_on("sift", Subset(8.0, 4), keep_geometry=True, apart=True) == []
    assert attacks_on("sift", Subset(8.0, 4)) == []
    assert attacks_on("sift", Subset(8.0, 1), keep_geometry=True) == []
    assert attacks_on("sift", Subset(6.0, 4), keep_geometry=True) == []
    assert attacks_on("sift", Metric(8.0, 4), keep_geometry=True) == []


@pytest.mark.parametrize("keep_geometry", [False, True])
def test_of_hardened_lifting_only_overlaps_and_of_others_nothing_is_known(keep_geometry: bool) -> None:
    for kind in KINDS:
        assert attacks_on(kind, Named("new"), keep_geometry) == []
        assert attacks_on(kind, Named("hardened"), keep_geometry, apart=True) == []
    assert attacks_on("sift", Named("hardened"), keep_geometry) == ["overlap"]
    assert attacks_on("hardnet", Named("hardened"), keep_geometry) == []
    found = lint("sift", Named("hardened"), keep_geometry=keep_geometry)[0]  # type: ignore[arg-type]
    assert "%" not in found.finding, "the figures are those of lifting"
    assert ("scale" in found.choice) == ("scale" in found.advice) == keep_geometry


@pytest.mark.parametrize("kind", ["sift", "rootsift"])
@pytest.mark.parametrize(
    ("strategy", "dimension"), [("sub-hybrid", 1), ("random", 1), ("sub-hybrid", 2), ("random", 2)]
)
def test_the_named_attacks_work(kind: str, strategy: str, dimension: int) -> None:
    """But for overlap, which takes a picture full of features. Drawn pictures are harder than photographs for some."""
    raw, defense = picture(0, kind), Lifting(strategy, dimension, allow_line=True)
    private = privatize(raw, defense, rng=np.random.default_rng(0)).take(np.arange(0, 400, 25))
    hidden = align(private, raw).points
    assert (guess_distances(np.roll(hidden.values, 1, axis=0), hidden) < 0.3).mean() < 0.1
    knowledge = Knowledge(lifting_database=builtin(kind))
    for name in attacks_on(kind, defense, apart=True):
        guess = attack(private, ATTACKS[str(name)](), knowledge, np.random.default_rng(0))
        assert (guess_distances(guess.values, hidden) < 0.3).mean() > 0.4, name


class Purse:
    """Counts what it is charged."""

    charged = 0

    def charge(self, private: PrivateFeatures, label: str = "") -> float:
        self.charged += 1
        return 0.0


def test_strict_releases() -> None:
    raw, purse = picture(0, "sift", 20), Purse()
    for defense, words in ((Lifting(), "lattice"), (Identity(), "read"), (Subset(11.0), "posterior")):
        with pytest.raises(PrivacyError, match=f"known to be broken.*the {words} attack"):
            privatize(raw, defense, account=purse, strict=True)
    assert purse.charged == 0
    assert len(privatize(raw, Subset(8.0), account=purse, strict=True)) == len(raw)
    assert purse.charged == 1


def test_strict_releases_draw_from_the_operating_system() -> None:
    raw = picture(0, "sift", 20)
    with pytest.raises(PrivacyError, match="generator with a seed"):
        privatize(raw, Subset(8.0), rng=np.random.default_rng(), strict=True)
    assert len(privatize(raw, Subset(8.0), rng=SecureRandomness(), strict=True)) == len(raw)
    assert len(privatize(raw, Subset(8.0), rng=np.random.default_rng(0))) == len(raw)


def test_strict_releases_without_keypoints_do_not_overlap() -> None:
    for raw in (picture(0, "sift", 20), Features(picture(0, "sift", 20).descriptors, "sift")):
        with pytest.raises(PrivacyError) as caught:
            privatize(raw, Lifting(), strict=True)
        assert ("overlap" in str(caught.value)) == (raw.keypoints is not None)


def test_in_one_line() -> None:
    first, second, third = (Weakness(f"choice {n}", f"a{n}", f"finds {n}", f"do {n}") for n in (1, 2, 3))
    seedy = Weakness("seed", None, "repeats", "let be")
    refuse([])
    assert summarize_weaknesses([]) == ""
    assert summarize_weaknesses([first]) == "choice 1: the a1 attack finds 1"
    assert summarize_weaknesses([first, first, second, third]) == "choice 1: the a1 attack finds 1; 2 more: a2, a3"
    assert summarize_weaknesses([seedy]) == "seed: repeats"
    assert summarize_weaknesses([first, seedy]).endswith("; 1 more: seed")
    with pytest.raises(PrivacyError, match=r"broken: choice 1: the a1 attack finds 1; do 1$"):
        refuse([first, first])
    with pytest.raises(PrivacyError, match=r"\(1\) choice 1.*do 1 \(2\) choice 2.*do 2$"):
        refuse(iter([first, second]))


def choices_of(gate: Gate, keep_geometry: bool = False, kind: str = "sift") -> list[str]:
    return [weakness.choice for weakness in lint(kind, gate, keep_geometry=keep_geometry, apart=True)]


class TestGates:
    def test_a_calibrated_gate_has_no_weakness_of_its_own(self) -> None:
        assert choices_of(Gate(builtin_sketch())) == []

    def test_what_comes_after_it_has_the_weaknesses_that_it_has_alone(self) -> None:
        sketch = builtin_sketch()
        for then in (Lifting(), Lifting("random", 2), Lifting("random", 1, allow_line=True)):
            for kept in (False, True):
                alone = lint("sift", then, keep_geometry=kept)
                assert [
                    one for one in lint("sift", Gate(sketch, then=then), keep_geometry=kept) if one in alone
                ] == alone
        raw = lint("sift", Gate(sketch, then=Identity()), keep_geometry=False)
        assert [weakness.attack for weakness in raw] == ["read"]

    def test_a_distance_that_lets_foreign_content_pass(self) -> None:
        sketch = builtin_sketch()
        loose = replace(LOOSE, foreign=(0.0, 0.15))
        wide = replace(sketch, calibration=loose)
        assert choices_of(Gate(wide)) == ["tau 0.5 of a gate"]
        assert "15 % of what has nothing to do with the map" in lint("sift", Gate(wide), keep_geometry=False)[0].message
        assert choices_of(Gate(wide, tau=0.2)) == []  # 3.75 % pass there
        assert choices_of(Gate(wide, tau=0.3)) == ["tau 0.3 of a gate"]

    def test_a_distance_that_was_not_calibrated(self) -> None:
        sketch = builtin_sketch()
        for calibration in (None, replace(LOOSE, foreign=None, corpus=0)):
            (weakness,) = lint("sift", Gate(replace(sketch, calibration=calibration), tau=0.3), keep_geometry=False)
            assert "was not calibrated" in weakness.choice
        stricter = replace(LOOSE, contrast=0.9, background="ab" * 32)
        for contrast, weaknesses in ((0.8, 0), (0.95, 1)):
            gate = Gate(replace(sketch, calibration=stricter), contrast=contrast)
            assert len(choices_of(gate)) == weaknesses

    def test_geometry_is_not_needed(self) -> None:
        assert choices_of(Gate(builtin_sketch()), keep_geometry=True) == ["scale and orientation after a gate"]

    def test_decoys_are_as_few_as_the_points(self) -> None:
        """The limit is where one word of 16,384 is guessed as often as one of the sketch's points."""
        sketch = builtin_sketch(64)
        limit = 10 - math.log(16_384 / 64)
        assert choices_of(Gate(sketch, then=Subset(limit - 0.01, 1))) == []
        (weakness,) = lint("sift", Gate(sketch, then=Subset(limit + 0.01, 1)), keep_geometry=False)
        assert "among 64 points" in weakness.choice and "in 58 % of cases" in weakness.finding

    def test_what_is_said_of_decoys_is_about_the_sets_that_are_sent(self) -> None:
        gate = Gate(builtin_sketch(64), then=Subset(6, 4))
        (weakness,) = lint("sift", gate, keep_geometry=False)
        assert weakness.finding == "the true point is among the 4 that are sent in 96 % of cases"
