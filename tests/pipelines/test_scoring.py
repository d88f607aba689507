"""One attack on one file, scored; the truth reaches only who declares it."""

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import pytest

from featveil.attacks import ATTACKS, Chance, Guess, Knowledge, Read
from featveil.core import InputError, Points, PrivateFeatures, Subspaces, WordSets
from featveil.databases import builtin, nearest_words
from featveil.defenses import Lifting, Subset, privatize
from featveil.metrics import align
from featveil.metrics.leakage import METRIC, UNIT
from featveil.pipelines.scoring import check_codebook, check_sketch, run_attack, scheme_name, score_attack
from gated import gated, place
from victims import lifted, own_database, picture


@dataclass(frozen=True)
class Told:
    """Answers what it was told; without the truth, zeros for every second feature and no answer for the others."""

    name: ClassVar[str] = "told"
    summary: ClassVar[str] = "answers what it was told"
    breaks: ClassVar[tuple[type, ...]] = (Points, Subspaces, WordSets)
    needs: ClassVar[tuple[str, ...]] = ("truth",)
    uses: ClassVar[tuple[str, ...]] = ()
    alone: ClassVar[bool] = True

    def run(self, seen: PrivateFeatures, knowledge: Knowledge, rng: np.random.Generator) -> Guess:
        if knowledge.truth is None:
            return Guess(np.zeros((len(seen), 128), np.float32), np.arange(len(seen)) % 2 == 0)
        return Guess.all_of(knowledge.truth.values)


@dataclass(frozen=True)
class Untold(Told):
    """The same without any claim to the truth."""

    needs: ClassVar[tuple[str, ...]] = ()


@dataclass(frozen=True)
class Words(Told):
    """Names the first word of every set."""

    needs: ClassVar[tuple[str, ...]] = ("codebook",)

    def run(self, seen: PrivateFeatures, knowledge: Knowledge, rng: np.random.Generator) -> Guess:
        assert isinstance(seen.descriptors, WordSets) and knowledge.codebook is not None
        words = seen.descriptors.words[:, 0]
        return Guess.all_of(knowledge.codebook.unit(words), words)


def generator() -> np.random.Generator:
    return np.random.default_rng(0)


def word_sets(epsilon: float, keep_geometry: bool = False) -> PrivateFeatures:
    return privatize(picture(), Subset(epsilon, 1), rng=generator(), keep_geometry=keep_geometry)


def test_only_who_declares_the_truth_is_told() -> None:
    assert run_attack(lifted(), picture(), Told(), Knowledge(), generator()).leakage.exact == 1
    blind = run_attack(lifted(), picture(), Untold(), Knowledge(), generator())
    assert (blind.leakage.exact, blind.leakage.answered) == (0, 0.5)
    assert blind.leakage.mean == pytest.approx(1)


def test_the_truth_in_the_knowledge_is_that_of_the_file() -> None:
    wrong = Knowledge(truth=Points(np.ones((len(lifted()), 128), np.float32)))
    assert run_attack(lifted(), picture(), Told(), wrong, generator()).leakage.exact == 1


def test_an_attack_beats_chance_where_it_should() -> None:
    known = Knowledge(database=own_database())
    found = {
        name: run_attack(lifted("random"), picture(), ATTACKS[name](), known, generator()).leakage
        for name in ("chance", "nearest")
    }
    assert found["chance"].mean > 0.9 and 100 < found["chance"].rank < 300
    assert found["nearest"].mean < 0.6 and found["nearest"].rank < 10
    assert found["nearest"].below_near > found["nearest"].below_close > found["chance"].below_near


def test_outcome_fits_itself() -> None:
    outcome = run_attack(lifted(), picture(), ATTACKS["nearest"](), Knowledge(database=own_database()), generator())
    assert len(outcome.guess) == len(outcome.distances) == outcome.leakage.count == len(lifted())
    assert outcome.leakage.mean == pytest.approx(outcome.distances.mean()) and outcome.seconds > 0
    values = outcome.leakage.measured()
    assert len(values) == len(METRIC.split(", ")) == len(UNIT.split(", "))
    named = dict(zip(METRIC.split(", "), values, strict=True))
    assert named["below 0.5"] == outcome.leakage.below_near and named["rank"] == outcome.leakage.rank
    assert named["median"] == outcome.leakage.median and named["answered"] == outcome.leakage.answered


def test_a_sample_is_ranked_among_all_features() -> None:
    truth, rows = align(lifted(), picture()), np.array([5])
    one = score_attack(lifted().take(rows), truth.take(rows), Chance(), Knowledge(database=own_database()), generator())
    assert one.leakage.count == 1 and one.leakage.rank > 20


def test_words_are_compared_with_the_nearest_word_of_the_truth() -> None:
    private, known = word_sets(8.0, keep_geometry=True), Knowledge(codebook=builtin())
    outcome = run_attack(private, picture(), Words(), known, generator())
    truth = align(private, picture())
    assert isinstance(private.descriptors, WordSets)
    right = private.descriptors.words[:, 0] == nearest_words(truth.points, builtin())[0]
    assert 0 < outcome.leakage.exact < 1
    assert outcome.leakage.exact == pytest.approx(right.mean()) and outcome.leakage.count == len(private)


def test_word_sets_at_one_position_are_not_scored() -> None:
    private, known = word_sets(40.0), Knowledge(codebook=builtin())
    outcome = run_attack(private, picture(), Words(), known, generator())
    keypoints = private.keypoints
    assert keypoints is not None
    alone = [(keypoints.xy == place).all(axis=1).sum() == 1 for place in keypoints.xy]
    assert outcome.leakage.count == len(outcome.distances) == sum(alone) < len(private) == len(outcome.guess)
    assert outcome.leakage.exact == 1


def test_nothing_certain_is_refused() -> None:
    private = word_sets(10.0)
    assert private.keypoints is not None
    together = np.flatnonzero((private.keypoints.xy[1:] == private.keypoints.xy[:-1]).all(axis=1))[:1]
    with pytest.raises(InputError, match="share their position"):
        run_attack(private.take(together), picture(), Words(), Knowledge(codebook=builtin()), generator())


def test_a_codebook_of_another_digest_is_refused() -> None:
    other = Knowledge(codebook=own_database())
    with pytest.raises(InputError, match="the word sets are of codebook"):
        run_attack(word_sets(10.0), picture(), Words(), other, generator())
    check_codebook(word_sets(10.0), Knowledge(codebook=builtin()))
    check_codebook(lifted(), other)


@pytest.mark.parametrize("count", [1, 2])
def test_few_features(count: int) -> None:
    few = lifted().take(np.arange(count))
    known = Knowledge(database=own_database())
    assert run_attack(few, picture(), ATTACKS["nearest"](), known, generator()).leakage.count == count


def test_what_cannot_be_attacked_or_scored_is_refused() -> None:
    known: dict[str, Any] = {"database": own_database()}
    with pytest.raises(InputError, match="no feature to attack"):
        run_attack(lifted().take(np.arange(0)), picture(), Chance(), Knowledge(**known), generator())
    with pytest.raises(InputError, match="needs database"):
        run_attack(lifted(), picture(), Chance(), Knowledge(), generator())
    with pytest.raises(InputError, match="give the features that were privatized"):
        run_attack(lifted(), picture(1), Chance(), Knowledge(**known), generator())
    with pytest.raises(InputError, match="the truth holds sift descriptors"):
        other = privatize(picture(0, "rootsift"), Lifting(), rng=generator())
        run_attack(other, picture(), Chance(), Knowledge(**known), generator())
    with pytest.raises(InputError, match="these are word sets"):
        run_attack(word_sets(10.0), picture(), ATTACKS["nearest"](), Knowledge(**known), generator())


def test_the_same_seed_gives_the_same_outcome() -> None:
    known = Knowledge(database=own_database())
    first, second = (run_attack(lifted(), picture(), Chance(), known, np.random.default_rng(4)) for _ in range(2))
    third = run_attack(lifted(), picture(), Chance(), known, np.random.default_rng(5))
    assert first.leakage == second.leakage != third.leakage


def test_names_of_gated_releases() -> None:
    assert scheme_name(gated()[0].defense) == "gate-0.5"
    assert scheme_name(gated(Subset(10.0, 2))[0].defense) == "gate-0.5-subset-10-2"
    assert scheme_name({**gated()[0].defense, "support": "both"}) == "gate-0.5-both"


def test_a_sketch_of_another_map_is_refused() -> None:
    private, raw = gated()
    known = Knowledge(sketch=replace(place(), model="f" * 64))
    with pytest.raises(InputError, match="the sketch is of ffffffff"):
        check_sketch(private, known)
    check_sketch(lifted(), known)
    assert run_attack(private, raw, Read(), Knowledge(sketch=place()), generator()).leakage.below_near > 0.8
