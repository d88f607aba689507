from dataclasses import replace
from fractions import Fraction
from itertools import combinations, product

import numpy as np
import pytest

from executions import executions
from featveil.attacks import Knowledge, attack
from featveil.attacks.posterior import Posterior, posterior_bound, subset_optimum
from featveil.attacks.posterior_parts.likelihoods import Source
from featveil.attacks.posterior_parts.source_words import likeliest, source_of
from featveil.core import Guarantee, InputError, Keypoints, Points, PrivateFeatures, WordSets
from featveil.core.arrays import Float64, Integers
from featveil.databases import Database, builtin, nearest_words
from featveil.defenses import Metric, Subset, privatize
from featveil.metrics import align
from victims import lifted, own_database, picture, strangers

Table = dict[tuple[int, ...], list[float]]  # of each set, its probability given each word


def book(size: int) -> Database:
    return Database(np.eye(size, 8, dtype=np.float32) + 0.1, "tiny", 1)


def common(codebook: Database, counts: list[int]) -> Database:
    """The attacker's descriptors, of which word w has counts[w]."""
    return Database(np.repeat(codebook.points(), counts, axis=0), "tiny", 1)


def released(
    sets: object, mechanism: Subset | Metric, xy: object = None, codebook: Database | None = None
) -> PrivateFeatures:
    """A release that holds the given sets."""
    words = codebook or mechanism.codebook
    assert words is not None
    made = WordSets(np.asarray(sets), words.digest, len(words))
    keypoints = None if xy is None else Keypoints(xy)  # type: ignore[arg-type]
    return PrivateFeatures(made, words.kind, mechanism.spec(), mechanism.guarantee(), keypoints)


def every_execution(mechanism: Subset) -> Table:
    """Of the sampler that ships."""
    assert mechanism.codebook is not None
    size = len(mechanism.codebook)
    made: dict[tuple[int, ...], list[Fraction]] = {}
    for word in range(size):

        def draw(tape: object, word: int = word) -> tuple[int, ...]:
            return tuple(mechanism.hide(np.array([word]), tape).words[0].tolist())  # type: ignore[arg-type]

        for sets, weight in executions(draw, mechanism.coin):
            made.setdefault(sets, [Fraction(0)] * size)[word] += weight
    return {sets: [float(share) for share in shares] for sets, shares in made.items()}


def success_and_optimum(mechanism: Subset, knowledge: Knowledge, releases: int) -> tuple[float, float, Float64]:
    """How often Posterior is right, how often the best guess is, and the prior; over all outputs."""
    table = every_execution(mechanism)
    prior = source_of(knowledge, Posterior().smoothing).prior
    outputs = list(product(table, repeat=releases))
    joint = np.array([prior * np.prod([table[sets] for sets in output], axis=0) for output in outputs])
    assert joint.sum() == pytest.approx(1)
    seen, *repeats = (released([output[place] for output in outputs], mechanism) for place in range(releases))
    known = Knowledge(codebook=knowledge.codebook, database=knowledge.database, repeats=tuple(repeats))
    guess = attack(seen, Posterior(), known)
    assert guess.words is not None
    return float(joint[np.arange(len(outputs)), guess.words].sum()), float(joint.max(axis=1).sum()), prior


@pytest.mark.parametrize("epsilon", [0.3, 1.5, 4.0])
@pytest.mark.parametrize("counts", [None, [9, 0, 3, 1, 0]])
@pytest.mark.parametrize(("k", "releases"), [(1, 1), (2, 1), (4, 1), (1, 2), (2, 2)])
def test_no_guess_is_right_more_often(k: int, releases: int, counts: list[int] | None, epsilon: float) -> None:
    codebook = book(5)
    database = None if counts is None else common(codebook, counts)
    mechanism = Subset(epsilon, k, codebook)
    found, optimum, prior = success_and_optimum(mechanism, Knowledge(codebook=codebook, database=database), releases)
    assert found == pytest.approx(optimum, rel=1e-12)
    assert found <= posterior_bound(releases * epsilon, prior) * (1 + 1e-12)
    if releases == 1:
        assert subset_optimum(epsilon, k, prior) == pytest.approx(optimum, rel=1e-12)
    if (k, releases, counts) == (1, 1, None):
        assert found == pytest.approx(posterior_bound(epsilon, prior), rel=1e-12)
        assert found == pytest.approx(np.exp(epsilon) / (np.exp(epsilon) + 4), rel=1e-12)


def test_epsilons_of_releases_add_up() -> None:
    codebook = book(5)
    found, _, prior = success_and_optimum(Subset(1.5, 2, codebook), Knowledge(codebook=codebook), 3)
    assert posterior_bound(1.5, prior) < found <= posterior_bound(4.5, prior)


@pytest.mark.parametrize("counts", [None, [9, 0, 3, 1, 0]])
def test_a_tiny_epsilon_leaves_chance(counts: list[int] | None) -> None:
    codebook = book(5)
    knowledge = Knowledge(codebook=codebook, database=None if counts is None else common(codebook, counts))
    found, _, prior = success_and_optimum(Subset(1e-9, 2, codebook), knowledge, 2)
    assert found == pytest.approx(prior.max(), rel=1e-8)


def test_without_randomness_the_word_is_read() -> None:
    codebook = book(6)
    seen = released([[3], [0], [3]], Subset(np.inf, 1, codebook))
    repeat = released([[1, 3], [0, 2], [3, 5]], Subset(np.inf, 2, codebook))
    guess = attack(seen, Posterior(), Knowledge(codebook=codebook, repeats=(repeat,)))
    assert guess.words is not None and guess.words.tolist() == [3, 0, 3]
    np.testing.assert_array_equal(guess.values, codebook.unit(np.array([3, 0, 3])))


@pytest.mark.parametrize("size", [16384, 256_000])
def test_bounds_of_large_codebooks(size: int) -> None:
    uniform = np.full(size, 1 / size)
    for epsilon in (0.001, 6.0, 10.0, 16.0, 900.0):
        bound = posterior_bound(epsilon, uniform)
        assert subset_optimum(epsilon, 1, uniform) == pytest.approx(bound, rel=1e-9)
        assert 1 / size < subset_optimum(epsilon, 8, uniform) < bound
    assert posterior_bound(1.0, np.array([1.0])) == 1
    assert posterior_bound(1.0, np.array([1.0, 0.0])) == 1
    for prior in ([0.5, 0.6], [1.5, -0.5], [[1.0]], [np.nan, 1.0]):
        with pytest.raises(InputError, match="prior must be probabilities"):
            posterior_bound(1.0, np.array(prior))


def test_the_bound_is_noted_and_counts_all_releases() -> None:
    codebook = book(5)
    seen, repeat = released([[3], [0]], Subset(1.0, 1, codebook)), released([[3], [1]], Subset(0.5, 1, codebook))
    alone = attack(seen, Posterior(), Knowledge(codebook=codebook))
    allowed = "at most {:.1%} right by any attack on each feature's own words, of epsilon {:g}"
    reached = np.e / (np.e + 4)
    assert alone.note == f"{allowed.format(reached, 1)}; {reached:.1%} by the best one on sets of 1"
    both = attack(seen, Posterior(), Knowledge(codebook=codebook, repeats=(repeat,)))
    assert both.note == allowed.format(np.exp(1.5) / (np.exp(1.5) + 4), 1.5)


# Metric mechanism


def metric_world(epsilon: float, k: int) -> tuple[Metric, Source]:
    rng = np.random.default_rng(4)
    codebook = Database(rng.random((6, 3), np.float32) + 0.05, "tiny", 1)
    database = Database(rng.random((40, 3), np.float32) + 0.05, "tiny", 1)
    return Metric(epsilon, k, codebook), source_of(Knowledge(codebook=codebook, database=database), 0.5)


def metric_table(mechanism: Metric, points: Points) -> tuple[Integers, Float64]:
    """All sets, and their probability given each point, from the whole numbers that the mechanism draws with."""
    weights = mechanism.weights(points).astype(np.float64)
    sets = np.array(list(combinations(range(weights.shape[1]), mechanism.subset_size)))
    heaviest = weights[:, sets].max(axis=2)
    return sets, heaviest / heaviest.sum(axis=1, keepdims=True)


@pytest.mark.parametrize("epsilon", [2.0, 20.0, 400.0])
@pytest.mark.parametrize(("k", "releases"), [(1, 1), (3, 1), (2, 2)])
def test_metric_sets_are_weighed_by_the_descriptors_that_may_have_made_them(
    k: int, releases: int, epsilon: float
) -> None:
    mechanism, source = metric_world(epsilon, k)
    sets, shares = metric_table(mechanism, source.points)
    outputs = np.array(list(product(range(len(sets)), repeat=releases)))
    of_points = source.weights[:, None] * np.prod([shares[:, outputs[:, place]] for place in range(releases)], axis=0)
    joint = np.zeros((len(outputs), len(source.codebook)))
    np.add.at(joint.T, source.words, of_points)
    seen, *repeats = (released(sets[outputs[:, place]], mechanism) for place in range(releases))
    words, logs = likeliest(seen, repeats, source, len(source.codebook))
    expected = np.take_along_axis(np.log(joint / joint.sum(axis=1, keepdims=True)), words, axis=1)
    np.testing.assert_allclose(logs[:, :-1], expected, atol=0.02)  # the mechanism rounds distances to steps
    assert (np.diff(logs[:, :-1], axis=1) <= 0).all()
    found = joint[np.arange(len(outputs)), words[:, 0]].sum()
    assert found == pytest.approx(joint.max(axis=1).sum(), rel=1e-3)


def test_metric_likelihood_tells_more_than_the_released_word() -> None:
    """A common word near the released one is the better guess where epsilon is small."""
    mechanism, source = metric_world(2.0, 1)
    sets, shares = metric_table(mechanism, source.points)
    words = likeliest(released(sets, mechanism), (), source, 1)[0][:, 0]
    joint = np.zeros((len(sets), len(source.codebook)))
    np.add.at(joint.T, source.words, source.weights[:, None] * shares)
    naive = joint[np.arange(len(sets)), sets[:, 0]].sum()
    assert joint[np.arange(len(sets)), words].sum() > 1.2 * naive


# Which set of a repeat belongs to which feature


def test_sets_at_a_shared_position_are_shared() -> None:
    codebook, xy = book(5), [[1.0, 2.0], [1.0, 2.0], [3.0, 4.0]]
    mechanism = Subset(1.3, 2, codebook)
    inside, outside = np.exp(mechanism.epsilon), 1.0
    seen = released([[0, 1], [2, 3], [0, 4]], mechanism, xy)
    again = [[0, 2], [2, 4], [1, 4]]
    expected = np.empty((3, 5))
    for feature, owned in enumerate(([0, 1], [0, 1], [2])):
        for word in range(5):
            alone = inside if word in seen.descriptors.words[feature] else outside  # type: ignore[union-attr]
            mean = np.mean([inside if word in again[place] else outside for place in owned])
            expected[feature, word] = alone * mean
    expected /= expected.sum(axis=1, keepdims=True)
    source = source_of(Knowledge(codebook=codebook), 1.0)
    for order in ([0, 1, 2], [1, 0, 2]):
        words, logs = likeliest(seen, [released(np.array(again)[order], mechanism, xy)], source, 5)
        np.testing.assert_allclose(np.exp(logs[:, :-1]), np.take_along_axis(expected, words, axis=1), rtol=1e-9)


def test_a_feature_that_a_repeat_lacks_keeps_its_own_set() -> None:
    codebook = book(5)
    mechanism = Subset(2.0, 1, codebook)
    seen = released([[1], [2]], mechanism, [[1, 1], [2, 2]])
    repeat = released([[4]], mechanism, [[2, 2]])
    source = source_of(Knowledge(codebook=codebook), 1.0)
    alone, logs = likeliest(seen, (), source, 5)
    words, both = likeliest(seen, [repeat], source, 5)
    np.testing.assert_allclose(both[0], logs[0], rtol=1e-9)
    assert sorted(words[1, :2].tolist()) == [2, 4]
    assert alone[1, 0] == 2


def test_words_beside_the_likeliest_count_once() -> None:
    codebook = book(5)
    seen = released([[1, 3]], Subset(2.0, 2, codebook))
    source = source_of(Knowledge(codebook=codebook, database=common(codebook, [4, 0, 1, 0, 0])), 1.0)
    words, logs = likeliest(seen, (), source, 2, np.array([[4, 3, 4]]))
    assert words.tolist() == [[1, 3, 4, 3, 4]]
    full = dict(zip(*(part[0].tolist() for part in likeliest(seen, (), source, 5)), strict=False))
    np.testing.assert_allclose(logs[0, :3], [full[1], full[3], full[4]], rtol=1e-9)
    assert (logs[0, 3:5] < -600).all()
    assert np.exp(logs[0]).sum() == pytest.approx(1)


# Photographs


def true_words(private: PrivateFeatures) -> tuple[Integers, Integers]:
    """The words of picture 0 that can be told, and of which features they are."""
    truth = align(private, picture(0))
    known = np.flatnonzero(truth.certain)
    return nearest_words(truth.points.take(known), builtin("sift"))[0], known


def rate(private: PrivateFeatures, **knowledge: object) -> float:
    words, known = true_words(private)
    guess = attack(private, Posterior(), Knowledge(codebook=builtin("sift"), **knowledge))  # type: ignore[arg-type]
    assert guess.words is not None and guess.answered.all()
    return float((guess.words[known] == words).mean())


def test_a_picture_is_named_as_often_as_the_mechanism_allows_and_more_with_each_release() -> None:
    mechanism = Subset(10.0, 4)
    releases = [privatize(picture(0), mechanism, rng=np.random.default_rng(seed)) for seed in range(4)]
    optimum = subset_optimum(10.0, 4, np.full(16384, 1 / 16384))
    once = rate(releases[0])
    assert once == pytest.approx(optimum, abs=0.08)
    assert rate(releases[0], repeats=tuple(releases[1:2])) > once + 0.3
    assert rate(releases[0], repeats=tuple(releases[1:])) > 0.9
    dealt = tuple(strangers(release, np.random.default_rng(9)) for release in releases[1:])
    assert rate(releases[0], repeats=dealt) < once + 0.05


def test_a_small_epsilon_is_not_broken() -> None:
    private = privatize(picture(0), Subset(2.0, 4), rng=np.random.default_rng(0))
    assert rate(private) < 0.02
    assert rate(private, database=own_database(near_victim=False)) < 0.02


# Bad input


def test_refusals() -> None:
    codebook, other = book(5), book(6)
    mechanism = Subset(1.0, 1, codebook)
    seen = released([[1]], mechanism, [[1, 1]])
    known = Knowledge(codebook=codebook)
    with pytest.raises(InputError, match="give the codebook that they were made with"):
        attack(seen, Posterior(), Knowledge(codebook=other))
    with pytest.raises(InputError, match="needs codebook"):
        attack(seen, Posterior(), Knowledge())
    with pytest.raises(InputError, match="is on word sets"):
        attack(lifted(), Posterior(), Knowledge(codebook=builtin("sift")))
    for spec in ({"name": "mystery", "epsilon": 1.0}, {"name": "metric", "epsilon": None}, {}):
        with pytest.raises(InputError, match="how word sets were made"):
            made = PrivateFeatures(seen.descriptors, "tiny", spec, Guarantee("none"))  # type: ignore[arg-type]
            attack(made, Posterior(), known)
    for epsilon in ("ten", -1.0, float("nan")):
        with pytest.raises(InputError, match="epsilon must be"):
            made = PrivateFeatures(seen.descriptors, "tiny", {"name": "subset", "epsilon": epsilon}, Guarantee("none"))
            attack(made, Posterior(), known)
    larger = replace(seen, image_size=(9, 9))
    shorter = released([[1], [2]], mechanism)
    for repeat in (released([[1]], mechanism, [[5, 1]]), shorter, released([[1]], mechanism), larger):
        with pytest.raises(InputError, match="repeat"):
            attack(seen, Posterior(), Knowledge(codebook=codebook, repeats=(repeat,)))
    with pytest.raises(InputError, match="words have size 8, descriptors 3"):
        attack(
            seen, Posterior(), Knowledge(codebook=codebook, database=Database(np.ones((2, 3), np.float32), "tiny", 1))
        )
    for smoothing in (0, -1.0, float("inf"), True, "1"):
        with pytest.raises(InputError, match="smoothing must be"):
            Posterior(smoothing)  # type: ignore[arg-type]
