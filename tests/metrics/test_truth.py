"""Whose descriptor is whose: a release is sorted, a raw file is not."""

from dataclasses import replace

import numpy as np
import pytest

from featveil.core import Features, InputError, Keypoints, Points, PrivateFeatures, Subspaces
from featveil.core.arrays import Float64, Integers
from featveil.databases import builtin
from featveil.defenses import Lifting, Naive, Subset, privatize
from featveil.metrics import align
from victims import lifted, picture


def scattered(n: int, together: int = 1, seed: int = 0, kind: str = "sift") -> Features:
    """Descriptors of the built-in database at random places, `together` of them at each."""
    rng = np.random.default_rng(seed)
    places = np.repeat(rng.random((-(-n // together), 2)) * 100 + 1, together, axis=0)[:n]
    order = rng.permutation(n)
    geometry = (rng.random(n) + 1, 360 * rng.random(n), rng.random(n))
    keypoints = Keypoints(places[order].astype(np.float32), *(column.astype(np.float32) for column in geometry))
    return Features(Points(builtin(kind).points()[rng.permutation(5000)[:n]]), kind, keypoints, (102, 102))


def release(features: Features, defense: object = None, keep_geometry: bool = False) -> PrivateFeatures:
    rng = np.random.default_rng(9)
    return privatize(features, defense or Lifting(), rng=rng, keep_geometry=keep_geometry)  # type: ignore[arg-type]


def contained(private: PrivateFeatures, raw: Features, rows: Integers) -> Float64:
    """Distances of raw descriptors from the subspaces, in float64."""
    assert isinstance(private.descriptors, Subspaces)
    away = []
    for offset, basis, row in zip(private.descriptors.offset, private.descriptors.basis, rows, strict=True):
        rest = raw.descriptors.values[row].astype(float) - offset
        away.append(np.linalg.norm(rest - basis.T.astype(float) @ (basis.astype(float) @ rest)))
    return np.array(away)


def test_each_subspace_contains_its_truth() -> None:
    raw = scattered(80)
    private = release(raw)
    truth = align(private, raw)
    assert (contained(private, raw, truth.rows) < 1e-5).all()
    assert sorted(truth.rows) == list(range(80)) and truth.rows.tolist() != list(range(80))
    assert truth.certain.all()
    assert truth.points.values == pytest.approx(raw.descriptors.values[truth.rows])


def test_features_at_one_position_are_told_apart_by_their_subspace() -> None:
    raw = scattered(60, together=3)
    private = release(raw)
    truth = align(private, raw)
    assert (contained(private, raw, truth.rows) < 1e-5).all()
    assert sorted(truth.rows) == list(range(60)) and truth.certain.all()


def test_word_sets_at_one_position_are_not_certain() -> None:
    raw = scattered(61, together=2)  # the last one is alone
    truth = align(release(raw, Subset(10.0)), raw)
    assert truth.certain.sum() == 1
    assert raw.keypoints is not None
    alone = int(truth.rows[truth.certain][0])
    assert (raw.keypoints.xy == raw.keypoints.xy[alone]).all(axis=1).sum() == 1


def test_released_geometry_tells_word_sets_apart() -> None:
    raw = scattered(60, together=3)
    # So large an epsilon sends the nearest word, which here is the descriptor itself: the truth can be checked.
    private = release(raw, Subset(40.0, 1), keep_geometry=True)
    truth = align(private, raw)
    assert truth.certain.all() and sorted(truth.rows) == list(range(60))
    sent = builtin().unit(private.descriptors.words[:, 0])  # type: ignore[union-attr]
    assert sent == pytest.approx(truth.points.values, abs=1e-6)


def test_a_release_of_the_strongest_belongs_to_the_whole() -> None:
    raw = scattered(50)
    private = release(raw.take(np.arange(0, 50, 3)))
    truth = align(private, raw)
    assert sorted(truth.rows) == list(range(0, 50, 3))
    assert len(truth.hidden) == 50 and len(truth.points) == 17


def test_without_keypoints_the_order_is_that_of_the_release() -> None:
    raw = Features(scattered(20).descriptors, "sift")
    private = release(raw)
    assert align(private, raw).rows.tolist() == list(range(20))
    with pytest.raises(InputError, match="19 raw features cannot be the truth of 20"):
        align(private, raw.take(np.arange(19)))
    with pytest.raises(InputError, match="20 of 20 subspaces do not contain"):
        align(private, raw.take(np.roll(np.arange(20), 1)))


def test_points_are_found_by_position() -> None:
    raw = scattered(30)
    private = release(raw, Naive(10.0))
    truth = align(private, raw)
    assert raw.keypoints is not None and private.keypoints is not None
    assert (raw.keypoints.xy[truth.rows] == private.keypoints.xy).all() and truth.certain.all()


def test_real_features() -> None:
    truth = align(lifted(), picture())
    assert (contained(lifted(), picture(), truth.rows) < 1e-5).all() and truth.certain.all()


def test_a_file_stored_in_half_precision_still_belongs() -> None:
    from featveil.distances.orthonormal import orthonormalise

    private = lifted(dimension=8)
    assert isinstance(private.descriptors, Subspaces)
    basis = private.descriptors.basis.astype(np.float16).astype(np.float64)
    orthonormalise(basis)
    offset = private.descriptors.offset.astype(np.float16)
    coarse = Subspaces(offset.astype(np.float32), basis.astype(np.float32))
    truth = align(replace(private, descriptors=coarse), picture())
    assert (truth.rows == align(private, picture()).rows).all()


@pytest.mark.parametrize("n", [0, 1])
def test_nothing_and_one(n: int) -> None:
    raw, few = scattered(5), np.arange(n)
    truth = align(release(raw.take(few)), raw.take(few))
    assert truth.rows.tolist() == list(few) and len(truth.certain) == n


def test_take() -> None:
    raw = scattered(12)
    truth = align(release(raw), raw)
    rows = np.array([7, 2])
    some = truth.take(rows)
    assert (some.points.values == truth.points.values[rows]).all()
    assert len(some.hidden) == 12 and len(some.certain) == 2


def changed(raw: Features, change: str) -> Features:
    keypoints = raw.keypoints
    assert keypoints is not None
    match change:
        case "kind":
            return replace(raw, kind="rootsift")
        case "size":
            return replace(raw, image_size=(101, 102))
        case "no keypoints":
            return replace(raw, keypoints=None)
        case "moved":
            return replace(raw, keypoints=replace(keypoints, xy=keypoints.xy + np.float32(0.25)))
        case "fewer":
            return raw.take(np.arange(39))
        case "dealt":
            return replace(raw, descriptors=raw.descriptors.take(np.roll(np.arange(40), 1)))
    return replace(raw, descriptors=Points(raw.descriptors.values[:, :64]))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("kind", "the truth holds rootsift descriptors, the private features are sift"),
        ("size", "an image of another size"),
        ("no keypoints", "only one of the two files has keypoints"),
        ("moved", "40 of 40 private features lie where the truth has none"),
        ("fewer", "1 of 40 private features lie where the truth has none"),
        ("dealt", "40 of 40 subspaces do not contain"),
        ("shorter", "the truth has size 64, the private features 128"),
    ],
)
def test_what_does_not_belong_is_refused(change: str, message: str) -> None:
    raw = scattered(40)
    with pytest.raises(InputError, match=message):
        align(release(raw), changed(raw, change))


def test_another_release_of_the_same_image_belongs_too() -> None:
    raw = scattered(25)
    first, second = release(raw), privatize(raw, Lifting("random", 2), rng=np.random.default_rng(3))
    assert (align(first, raw).points.values == align(second, raw).points.values).all()
