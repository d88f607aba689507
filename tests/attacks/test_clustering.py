"""The clustering attack tells the hidden descriptor by what no other subspace shares, and says when none was met."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from featveil.attacks import Guess, Knowledge, attack
from featveil.attacks.chance import Chance
from featveil.attacks.clustering import Clustering, _cluster
from featveil.attacks.subspaces import meeting_pairs
from featveil.core import Features, InputError, Points, PrivateFeatures, Subspaces
from featveil.core.arrays import Float64
from featveil.databases import Database, builtin
from featveil.defenses import Lifting, privatize
from featveil.extractors import extract
from featveil.metrics import align, guess_distances
from reference import reference_matrix
from victims import lifted, own_database, picture, truth_of

SAME = Clustering(auxiliary="same-image")
OTHERS = Clustering(auxiliary="other-images")


def public() -> Database:
    """Real descriptors that are neither the victim's nor among the entries that lifting may have drawn."""
    return own_database()


def database(part: int) -> Database:
    """300 entries of the built-in database, none of them in another part."""
    return Database(builtin("sift").values[300 * part : 300 * (part + 1)], "sift", 1)


def release(drawn_from: Database, seed: int = 0, count: int = 200, dimension: int = 4) -> PrivateFeatures:
    features = picture(0).take(np.arange(count))
    lifting = Lifting("hybrid", dimension, database=drawn_from)
    return privatize(features, lifting, rng=np.random.default_rng(seed))


def unrelated(drawn_from: Database, seed: int = 1, count: int = 200) -> PrivateFeatures:
    """A release of descriptors that have nothing to do with the victim's."""
    values = builtin("sift").unit(np.arange(9000, 9000 + count))
    return privatize(
        Features(Points(values), "sift"), Lifting("hybrid", 4, database=drawn_from), rng=np.random.default_rng(seed)
    )


def broken(
    private: PrivateFeatures, method: Clustering = SAME, others: tuple[PrivateFeatures, ...] = (), seed: int = 0
) -> Guess:
    return attack(private, method, Knowledge(database=public(), others=others), np.random.default_rng(seed))


def errors(private: PrivateFeatures, guess: Guess) -> Float64:
    truth = align(private, picture(0)).points
    return guess_distances(guess.values, truth)


def subspaces(private: PrivateFeatures) -> Subspaces:
    assert isinstance(private.descriptors, Subspaces)
    return private.descriptors


@pytest.mark.parametrize(("dimension", "median", "near"), [(2, 0.45, 0.6), (4, 0.6, 0.4), (8, 0.7, 0.3)])
def test_beats_chance_where_confounders_are_shared(dimension: int, median: float, near: float) -> None:
    private = lifted("sub-hybrid", dimension)
    truth = truth_of(private).truth
    assert truth is not None
    guess = broken(private)
    distances = guess_distances(guess.values, truth)[guess.answered]
    assert np.median(distances) < median and (distances < 0.5).mean() > near
    blind = attack(private, Chance(), Knowledge(database=public()), np.random.default_rng(0))
    assert (guess_distances(blind.values, truth) < 0.5).mean() < 0.1


def test_the_score_tells_more_than_the_clusters() -> None:
    """With the same centres, subspaces that share confounders find the right one more often than those that do not."""
    private = release(database(0))
    with_shared = broken(private)
    without = broken(private, OTHERS, (unrelated(database(1)),))
    assert with_shared.answered.mean() > 0.9
    assert not without.answered.any()
    assert (errors(private, with_shared) < 0.5).mean() > (errors(private, without) < 0.5).mean() + 0.1


def test_other_images_help_where_they_drew_the_same_entries() -> None:
    private = release(database(0))
    same = broken(private, OTHERS, (unrelated(database(0)), unrelated(database(1))))
    assert same.answered.mean() > 0.9
    assert np.median(errors(private, same)) < 0.65


def test_both_is_the_lower_score_of_the_two() -> None:
    private, other = release(database(0), count=60), unrelated(database(0), count=40)
    answered = broken(private).answered | broken(private, OTHERS, (other,)).answered
    both = broken(private, Clustering(), (other,))
    assert broken(private).answered.mean() < 0.9
    np.testing.assert_array_equal(both.answered, answered)
    np.testing.assert_array_equal(broken(private, Clustering()).values, broken(private).values)


def test_is_the_score_of_the_paper() -> None:
    """Of the centres of a run, the one farthest from all subspaces at distance zero, found in plain loops."""
    private = release(database(0), count=60)
    flats = subspaces(private)
    centres, made = SAME._centres(flats, public(), 3, np.random.default_rng(0))
    assert made.all()
    distances = reference_matrix(flats, flats)
    guess = broken(private)
    for i in range(len(flats)):
        meeting = [j for j in range(len(flats)) if j != i and distances[i, j] < 1e-4]
        assert guess.answered[i] == bool(meeting)
        if meeting:
            table = reference_matrix(Points(centres[i]), flats.take(np.array(meeting)))
            np.testing.assert_array_equal(guess.values[i], centres[i, table.min(axis=1).argmax()])


def test_centres_are_those_of_the_paper() -> None:
    """Eq. 2 in plain loops, from the clusters of the same run."""
    private = release(database(0), count=10)
    flats, entries = subspaces(private), public().points()
    distances = reference_matrix(flats, Points(entries[:300]))
    own = Database(public().values[:300], "sift", 1)
    centres, _ = Clustering(neighbours=20)._centres(flats, own, 3, np.random.default_rng(0))
    order = np.argsort(distances, axis=1)[:, :20]
    members = _cluster(own.unit(order), 3, np.random.default_rng(0))
    for i in range(10):
        for k in range(3):
            total, weight = np.zeros(128), 0.0
            for place in np.flatnonzero(members[i, k]):
                index = order[i, place]
                total += entries[index] / distances[i, index]
                weight += 1 / distances[i, index]
            offset, basis = flats.offset[i].astype(np.float64), flats.basis[i].astype(np.float64)
            expected = offset + basis.T @ (basis @ (total / weight - offset))
            np.testing.assert_allclose(centres[i, k], expected, atol=2e-4)


def test_finds_the_pairs_that_share_an_entry() -> None:
    """All pairs of more subspaces than are compared at a time, and only those."""
    drawn_from = database(0)
    flats = subspaces(release(drawn_from, count=60))
    many = flats.take(np.tile(np.arange(60), 11)[:640])
    inside = reference_matrix(flats, drawn_from.as_points) < 1e-4
    assert (inside.sum(axis=1) == 2).all()
    share = inside.astype(int) @ inside.T.astype(int) > 0
    shared = np.tile(share, (11, 11))[:640, :640]
    np.fill_diagonal(shared, False)
    found = np.zeros_like(shared)
    for i, j in meeting_pairs(many, many):
        assert not found[i, j].any()
        found[i, j] = True
    np.testing.assert_array_equal(found, shared)
    elsewhere = np.zeros((640, 60), bool)
    for i, j in meeting_pairs(many, flats):
        elsewhere[i, j] = True
    np.testing.assert_array_equal(elsewhere, np.tile(share, (11, 1))[:640])


def test_the_same_release_again_tells_nothing() -> None:
    private = release(database(0), count=60)
    copy = replace(private, descriptors=private.descriptors.take(np.arange(60)[::-1]))
    guess = broken(private, Clustering(), (private, copy))
    alone = broken(private)
    np.testing.assert_array_equal(guess.answered, alone.answered)
    np.testing.assert_array_equal(guess.values, alone.values)


def test_separate_groups_become_separate_clusters() -> None:
    rng = np.random.default_rng(0)
    groups = np.repeat(np.arange(4), [3, 5, 8, 14])
    centres = np.eye(16, dtype=np.float32)[groups]
    entries = centres + 0.05 * rng.standard_normal((50, 30, 16)).astype(np.float32)
    entries /= np.linalg.norm(entries, axis=2, keepdims=True)
    members = _cluster(entries.astype(np.float32), 4, rng)
    np.testing.assert_array_equal(members, np.broadcast_to(groups == np.arange(4)[:, None], members.shape))


def test_fewer_entries_than_clusters() -> None:
    private = lifted("sub-hybrid", 8).take(np.arange(50))
    few = Database(public().values[:3], "sift", 1)
    guess = attack(private, SAME, Knowledge(database=few), np.random.default_rng(0))
    assert len(guess) == 50
    repeated = Database(public().values[np.repeat([0, 1], 30)], "sift", 1)
    guess = attack(private, SAME, Knowledge(database=repeated), np.random.default_rng(0))
    truth = truth_of(lifted("sub-hybrid", 8)).truth
    assert truth is not None
    assert np.median(guess_distances(guess.values, truth.take(np.arange(50)))) < 1.2


def test_one_feature_and_repeated_features() -> None:
    private = release(database(0), count=60)
    assert not broken(private.take(np.array([3]))).answered.any()
    assert not broken(private.take(np.full(5, 3))).answered.any()


def test_random_lifting_leaves_nothing_to_choose() -> None:
    private = lifted("random", 4)
    truth = truth_of(private).truth
    assert truth is not None
    guess = broken(private)
    assert guess.answered.all()
    assert np.median(guess_distances(guess.values, truth)) < 0.2


def test_a_seed_repeats_a_run() -> None:
    private = release(database(0), count=60)
    np.testing.assert_array_equal(broken(private, seed=3).values, broken(private, seed=3).values)
    assert (broken(private, seed=3).values != broken(private, seed=4).values).any()


def test_bad_input_is_refused() -> None:
    private = release(database(0), count=20)
    with pytest.raises(InputError, match="auxiliary other-images needs others: private images"):
        broken(private, OTHERS)
    with pytest.raises(InputError, match="auxiliary other-images needs others: private images"):
        broken(private, OTHERS, (private.take(np.arange(0)),))
    with pytest.raises(InputError, match="auxiliary must be one of same-image, other-images, both, got 'all'"):
        Clustering(auxiliary="all")
    with pytest.raises(InputError, match="neighbours must be a whole number of at least 1"):
        Clustering(neighbours=0)
    raw = replace(private, descriptors=picture(0).descriptors.take(np.arange(20)))
    with pytest.raises(InputError, match="this attack is on subspaces, not on Points"):
        broken(private, Clustering(), (raw,))
    without = replace(private, defense={"name": "other"})
    with pytest.raises(InputError, match="does not say how many directions are random"):
        broken(without)


def test_an_empty_image_among_others_is_left_out() -> None:
    private = release(database(0), count=20)
    nothing = private.take(np.empty(0, np.int64))
    np.testing.assert_array_equal(broken(private, Clustering(), (nothing,)).values, broken(private).values)


def test_a_photograph(real_data: Path) -> None:
    photos = real_data / "photos"
    raw = extract(sorted((photos / "urban100").glob("*.jpg"))[0], "sift", 500)
    private = privatize(raw, Lifting("sub-hybrid", 4), rng=np.random.default_rng(0))
    own = np.concatenate(
        [extract(path).descriptors.values for path in sorted((photos / "bsds500_val").glob("*.jpg"))[:6]]
    )
    known = Knowledge(database=Database.from_array(own, "sift", 1, rng=np.random.default_rng(0)))
    guess = attack(private, SAME, known, np.random.default_rng(0))
    distances = guess_distances(guess.values, align(private, raw).points)[guess.answered]
    assert guess.answered.mean() > 0.7 and (distances < 0.5).mean() > 0.35
