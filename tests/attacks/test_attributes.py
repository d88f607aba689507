import numpy as np
import pytest

from face_sets import population
from featveil.attacks.on_faces.attributes import TrainedLabels, canonical_features
from featveil.core import Flats, InputError, Points, Subspaces
from featveil.core.arrays import Integers
from featveil.databases import Database
from featveil.databases.nearest_labels import NearestLabels
from featveil.datasets.face_sets import FaceSet
from featveil.defenses import Lifting
from featveil.distances import matrix

ATTACKER, VICTIMS, LIFTING = (population(500, 1, seed=seed) for seed in (1, 2, 3))


def labels(faces: FaceSet) -> Integers:
    return faces.attribute("gender")


def hidden(faces: FaceSet, strategy: str, m: int, seed: int) -> Subspaces:
    database = Database.from_array(LIFTING.values, "face", 1, labels(LIFTING), np.random.default_rng(0))
    lifting = Lifting(strategy, m, database=database)
    return lifting.privatize(Points(faces.values), np.random.default_rng(seed), labels(faces))


def share_right(attacker: NearestLabels | TrainedLabels, seen: Flats) -> float:
    return float((attacker.predict(seen) == labels(VICTIMS)).mean())


def test_nearest_labels_are_the_votes_of_a_plain_loop() -> None:
    seen = hidden(VICTIMS, "hybrid", 4, 0)
    distances = matrix(seen, Points(ATTACKER.values))
    expected = []
    for row in distances:
        votes = labels(ATTACKER)[np.argsort(row, kind="stable")[:10]]
        ones = int(votes.sum())
        expected.append(int(ones > 5) if ones != 5 else None)
    found = NearestLabels(10).fit(Points(ATTACKER.values), labels(ATTACKER)).predict(seen)
    assert all(want is None or want == got for want, got in zip(expected, found, strict=True))
    assert None in expected


def test_equal_votes_go_to_the_nearer() -> None:
    known = Points(np.array([[1, 0], [2, 0], [3, 0], [4, 0]], np.float32))
    attacker = NearestLabels(4).fit(known, np.array([1, 0, 0, 1]))
    assert attacker.predict(Points(np.array([[0.9, 0]], np.float32))).tolist() == [1]
    assert attacker.predict(Points(np.array([[2.4, 0]], np.float32))).tolist() == [0]


@pytest.mark.parametrize("attacker", [NearestLabels(), TrainedLabels()])
def test_both_read_raw_descriptors(attacker: NearestLabels | TrainedLabels) -> None:
    fitted = attacker.fit(Points(ATTACKER.values), labels(ATTACKER))
    assert share_right(fitted, Points(VICTIMS.values)) > 0.9


@pytest.mark.parametrize("attacker", [NearestLabels(), TrainedLabels()])
def test_neither_reads_what_is_not_there(attacker: NearestLabels | TrainedLabels) -> None:
    shuffled = np.random.default_rng(0).permutation(labels(ATTACKER))
    assert 0.35 < share_right(attacker.fit(Points(ATTACKER.values), shuffled), Points(VICTIMS.values)) < 0.65


def test_canonical_features_do_not_depend_on_offset_and_basis() -> None:
    seen = hidden(VICTIMS, "hybrid", 4, 0).take(np.arange(20))
    rng = np.random.default_rng(0)
    turn = np.linalg.qr(rng.standard_normal((20, 4, 4)))[0]
    moved = seen.offset + np.einsum("nm,nmd->nd", rng.standard_normal((20, 4)), seen.basis)
    again = Subspaces(moved.astype(np.float32), (turn @ seen.basis).astype(np.float32))
    np.testing.assert_allclose(canonical_features(again), canonical_features(seen), atol=2e-5)


def test_inner_products_of_the_projectors_are_those_of_whole_matrices() -> None:
    seen = hidden(VICTIMS, "random", 3, 0).take(np.arange(2))
    features = canonical_features(seen)[:, seen.size :].astype(np.float64)
    projectors = []
    for offset, basis in zip(seen.offset, seen.basis, strict=True):
        spanning = np.linalg.qr(np.vstack([basis, offset]).T.astype(np.float64))[0]
        projectors.append(spanning @ spanning.T)
    assert features[0] @ features[1] == pytest.approx(float((projectors[0] * projectors[1]).sum()), abs=1e-4)
    assert features[0] @ features[0] == pytest.approx(4, abs=1e-4)


def test_a_trained_attacker_reads_off_which_label_is_missing() -> None:
    """hybrid+ with four confounders of the other label each: K-NN is misled, and being misled is information."""
    seen, own = hidden(VICTIMS, "hybrid+", 8, 0), hidden(ATTACKER, "hybrid+", 8, 1)
    assert share_right(NearestLabels().fit(Points(ATTACKER.values), labels(ATTACKER)), seen) < 0.35
    assert share_right(TrainedLabels().fit(own, labels(ATTACKER)), seen) > 0.8


def test_balanced_labels_tell_it_nothing() -> None:
    seen, own = hidden(VICTIMS, "balanced", 8, 0), hidden(ATTACKER, "balanced", 8, 1)
    assert 0.4 < share_right(TrainedLabels().fit(own, labels(ATTACKER)), seen) < 0.6
    assert 0.4 < share_right(NearestLabels().fit(Points(ATTACKER.values), labels(ATTACKER)), seen) < 0.65


def test_several_attributes_at_once_are_learned_as_each_by_itself() -> None:
    own = hidden(ATTACKER, "random", 2, 1)
    other = np.arange(len(own)) % 3
    together = TrainedLabels().fit_many(own, [labels(ATTACKER), other])
    seen = hidden(VICTIMS, "random", 2, 0)
    alone = TrainedLabels().fit(own, labels(ATTACKER))
    np.testing.assert_array_equal(together[0].predict(seen), alone.predict(seen))


@pytest.mark.parametrize("attacker", [NearestLabels(), TrainedLabels()])
def test_unusable_labels_are_refused(attacker: NearestLabels | TrainedLabels) -> None:
    points = Points(ATTACKER.values[:4])
    with pytest.raises(InputError, match="first"):
        attacker.predict(points)
    for wrong in ([0, 1], [0, 1, -1, 0], [0.5, 1, 0, 0]):
        with pytest.raises(InputError):
            attacker.fit(points, np.array(wrong))


def test_the_ridge_is_chosen_by_leaving_out_as_a_plain_loop_does() -> None:
    from featveil.attacks.on_faces import attributes

    rng = np.random.default_rng(0)
    features = rng.standard_normal((30, 50)).astype(np.float32)
    own = (features[:, 0] + rng.standard_normal(30) > 0).astype(np.int64)
    centred = features - features.mean(axis=0, dtype=np.float64)
    scale = float((centred**2).sum() / 30)

    def guess_without(row: int, ridge: float) -> int:
        kept = np.arange(30) != row
        middle = features[kept].mean(axis=0, dtype=np.float64)
        inner, targets = features[kept] - middle, np.eye(2)[own[kept]]
        usual = targets.mean(axis=0)
        weights = inner.T @ np.linalg.solve(inner @ inner.T + ridge * scale * np.eye(29), targets - usual)
        return int(((features[row] - middle) @ weights + usual).argmax())

    right = [sum(guess_without(row, ridge) == own[row] for row in range(30)) for ridge in attributes._RIDGES]
    best = attributes._RIDGES[int(np.argmax(right))]
    targets = np.eye(2)[own] - np.eye(2)[own].mean(axis=0)
    expected = centred.T @ np.linalg.solve(centred @ centred.T + best * scale * np.eye(30), targets)
    weights, _, _ = attributes._fitted(features, [own])[0]
    np.testing.assert_allclose(weights, expected, atol=1e-8)
