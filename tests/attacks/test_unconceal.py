"""Undoing a concealer: alone, and after attacks on what another defense made of concealed descriptors."""

from functools import cache

import numpy as np
import pytest

from featveil.attacks import ATTACKS, Chance, Guess, Knowledge, Posterior, Read, Relift, Unconceal, attack, needs_of
from featveil.attacks.unconceal import in_two_steps
from featveil.attacks.unconceal_parts.inverse import Inverse
from featveil.core import ConcealingNetwork, InputError, Points, PrivateFeatures, Subspaces
from featveil.core.arrays import Float64
from featveil.databases import Database, builtin, conceal_database
from featveil.defenses import Concealer, Lifting, Subset, privatize
from featveil.distances import matrix
from featveil.metrics import align, guess_distances, ranks
from networks import identity_network, random_network
from victims import lifted, own_database, picture

COUNT = 60
QUICK = Unconceal(examples=3000, features=256, steps=25)


@cache
def concealed(network: ConcealingNetwork, then: Lifting | Subset | None = None, seed: int = 0) -> PrivateFeatures:
    return privatize(picture(count=COUNT), Concealer(network, then), rng=np.random.default_rng(seed))


@cache
def own() -> Database:
    return own_database(near_victim=False)


def distances(guess: Guess, private: PrivateFeatures, network: ConcealingNetwork) -> Float64:
    return guess_distances(guess.values, align(private, picture(count=COUNT), network).points)


def known(network: ConcealingNetwork, **more: object) -> Knowledge:
    return Knowledge(database=own(), network=network, **more)  # type: ignore[arg-type]


def test_a_wide_network_is_undone_exactly() -> None:
    private = concealed(random_network(512))
    guess = attack(private, QUICK, known(random_network(512)))
    away = distances(guess, private, random_network(512))
    assert np.median(away) < 1e-3
    assert (away < 0.3).all()
    assert guess.answered.all() and "by search" in guess.note
    assert guess.released is not None and (guess.released == private.descriptors.values).all()  # type: ignore[union-attr]


def test_a_narrow_network_is_undone_as_far_as_it_keeps_anything() -> None:
    rng = np.random.default_rng(0)
    found = []
    for rank in (64, 16):
        network = random_network(256, rank=rank)
        private = concealed(network)
        guess = attack(private, QUICK, known(network))
        away = distances(guess, private, network)
        blind = distances(attack(private, Chance(), known(network), rng), private, network)
        truth = align(private, picture(count=COUNT), network).points
        found.append((away.mean(), np.median(ranks(guess.values, truth)), (away < 0.5).mean(), (blind < 0.5).mean()))
    assert found[0][0] < 0.4 and found[0][1] == 1 and found[0][2] > 0.9
    assert found[0][0] < found[1][0]
    assert found[1][1] <= 3


def test_where_the_network_keeps_nothing_it_is_as_good_as_chance() -> None:
    network = random_network(256, rank=0)
    private = concealed(network)
    guess = attack(private, QUICK, known(network))
    truth = align(privatize(picture(count=COUNT), Concealer(random_network())), picture(count=COUNT)).points
    assert (guess_distances(guess.values, truth) < 0.5).mean() <= 0.05
    place = ranks(guess.values, truth)
    assert 0.35 * COUNT < place.mean() < 0.65 * COUNT  # one guess for all: it is near to none of them


def test_a_network_that_does_nothing_hides_nothing() -> None:
    network = identity_network()
    private = concealed(network)
    assert np.median(distances(attack(private, QUICK, known(network)), private, network)) < 1e-3
    assert np.median(distances(attack(private, Read(), Knowledge()), private, network)) < 1e-3


def test_read_takes_what_was_sent_at_face_value() -> None:
    network = random_network()
    private = concealed(network)
    guess = attack(private, Read(), Knowledge())
    assert guess.released is None
    blind = attack(private, Chance(), known(network), np.random.default_rng(0))
    assert np.median(distances(guess, private, network)) > np.median(distances(blind, private, network))


def test_chance_is_a_raw_descriptor() -> None:
    network = random_network()
    guess = attack(concealed(network), Chance(), known(network), np.random.default_rng(0))
    entries = {value.tobytes() for value in own().points()}
    assert all(value.tobytes() in entries for value in guess.values)


def test_two_lifts_of_a_concealed_descriptor_give_the_raw_one() -> None:
    network, lifting = random_network(512), Lifting("sub-hybrid", 4)
    private, again = concealed(network, lifting), concealed(network, lifting, 1)
    guess = attack(private, Relift(), known(network, repeats=(again,)))
    hidden = align(private, picture(count=COUNT), network)
    assert guess.released is not None
    first = guess_distances(guess.released, Points(network.apply(hidden.points.values)))
    assert np.median(first) < 1e-3
    assert np.median(guess_distances(guess.values, hidden.points)) < 0.05
    assert "concealer undone" in guess.note


def test_a_word_that_is_named_is_looked_up_raw() -> None:
    network = random_network()
    private = concealed(network, Subset(60.0, 1))
    guess = attack(private, Posterior(), known(network, codebook=builtin()))
    assert guess.words is not None
    assert np.allclose(guess.values, builtin().unit(guess.words), atol=1e-6)
    assert guess.released is not None
    assert np.allclose(guess.released, conceal_database(builtin(), network).unit(guess.words), atol=1e-6)
    assert "at most 100.0% right" in guess.note  # the bound of what follows the concealer


def test_what_matched_is_looked_up_in_a_raw_reference() -> None:
    network = random_network()
    private = concealed(network)
    guess = attack(private, ATTACKS["inlier"](), known(network, reference=picture(1, count=400)))
    reference = picture(1, count=400).descriptors.values
    assert guess.answered.sum() >= 5
    nearest = np.linalg.norm(guess.values[guess.answered][:, None] - reference[None], axis=2).min(axis=1)
    assert nearest.max() < 1e-5


def test_subspaces_are_searched_through_the_network() -> None:
    network, some = random_network(512), np.arange(12)
    private = concealed(network, Lifting("sub-hybrid", 2))
    truth = align(private, picture(count=COUNT), network).points.take(some)
    known_better = known(network, lifting_database=conceal_database(builtin(), network))
    found = []
    for knowledge in (known(network), known_better):
        guess = attack(private.take(some), Unconceal(3000, 256, 40, 4), knowledge, np.random.default_rng(0))
        found.append(guess_distances(guess.values, truth))
        assert guess.released is not None
        assert matrix(Points(guess.released), private.take(some).descriptors).diagonal().max() < 1e-3
    assert (found[0] < 0.3).mean() > 0.6
    assert (found[1] < 0.3).mean() >= (found[0] < 0.3).mean()


def test_subspaces_of_a_network_that_keeps_nothing_tell_nothing() -> None:
    network = random_network(256, rank=0)
    private = privatize(picture(count=COUNT), Concealer(network, Lifting("random", 2)), rng=np.random.default_rng(0))
    some, guesser = np.arange(20), Unconceal(1000, 64, 10, 2)
    guess = attack(private.take(some), guesser, known(network), np.random.default_rng(0))
    assert (guess_distances(guess.values, picture(count=COUNT).descriptors.take(some)) < 0.5).mean() <= 0.05


@pytest.mark.parametrize("name", ["nearest", "database", "clustering", "mean", "oracle", "discriminator"])
def test_attacks_on_subspaces_work_behind_a_concealer(name: str) -> None:
    network = random_network(256)
    private = concealed(network, Lifting("sub-hybrid", 2)).take(np.arange(12))
    truth = align(concealed(network, Lifting("sub-hybrid", 2)), picture(count=COUNT), network).take(np.arange(12))
    knowledge = known(network, lifting_database=builtin(), truth=truth.points)
    guess = attack(private, ATTACKS[name](), knowledge, np.random.default_rng(0))
    assert guess.released is not None
    assert np.allclose(np.linalg.norm(guess.values, axis=1), 1, atol=1e-3)
    assert guess.values.min() >= 0
    if name == "oracle":
        hidden = network.apply(truth.points.values)
        assert np.linalg.norm(guess.released - hidden, axis=1).mean() < 0.5


def test_it_says_what_is_missing_or_wrong() -> None:
    network = random_network()
    private = concealed(network)
    assert isinstance(lifted().descriptors, Subspaces)
    for knowledge, message in (
        (Knowledge(database=own()), "needs network: the concealing network, which is in every client"),
        (Knowledge(network=network), "needs database"),
        (known(random_network(seed=1)), "give the one that was used"),
        (Knowledge(database=own_database("rootsift"), network=network), "holds rootsift descriptors"),
    ):
        with pytest.raises(InputError, match=message):
            attack(private, QUICK, knowledge)
    with pytest.raises(InputError, match="attack chance needs network"):
        attack(private, Chance(), Knowledge(database=own()))
    with pytest.raises(InputError, match="these were not concealed"):
        plain = PrivateFeatures(
            picture(count=COUNT).descriptors, "sift", {"name": "identity"}, private.guarantee, private.keypoints
        )
        attack(plain, QUICK, known(network))
    with pytest.raises(InputError, match="steps must be a whole number"):
        Unconceal(steps=0)


def test_what_is_needed_behind_a_concealer() -> None:
    private = concealed(random_network())
    assert needs_of(private, ATTACKS["mean"]()) == ("network", "database")
    assert needs_of(private, Read()) == () and not in_two_steps(private, Read())
    assert needs_of(lifted(), ATTACKS["mean"]()) == ()


def test_a_tiny_database_still_gives_an_answer() -> None:
    network = random_network()
    few = Database(builtin().values[:3], "sift", 1)
    inverse = Inverse.learn(few, network, 100, 16, 5)
    assert inverse(network.apply(few.points()[:2])).shape == (2, 128)
    assert inverse(np.empty((0, 128), np.float32)).shape == (0, 128)


def test_descriptors_with_signs_are_not_cut() -> None:
    rng = np.random.default_rng(0)
    values = rng.normal(size=(800, 128)).astype(np.float32)
    network = random_network(512, kind="toy")
    inverse = Inverse.learn(Database(values, "toy", 1), network, 600, 128, 25)
    unit = values[:20] / np.linalg.norm(values[:20], axis=1, keepdims=True)
    guess = inverse(network.apply(unit))
    assert guess.min() < -0.05
    assert np.median(np.linalg.norm(guess - unit, axis=1)) < 0.5
