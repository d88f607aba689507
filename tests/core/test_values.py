import dataclasses

import numpy as np
import pytest

from featveil.core import Features, Guarantee, InputError, Keypoints, Matches, Points, Subspaces


@pytest.mark.parametrize(
    "values",
    [
        np.zeros(3),
        np.zeros((2, 3, 4)),
        np.zeros((2, 0)),
        [[1.0, np.nan]],
        np.full((1, 2), 0x7FF0_0000_0000_0001, np.uint64).view(np.float64),  # NaN that warns of itself
        [[np.inf, 1.0]],
        [[1e300, 1.0]],
        [["a", "b"]],
        [[1, 2], [3]],
        np.zeros((1, 2), complex),
        np.array([[object(), None]]),
    ],
)
def test_points_refuse_what_is_not_a_finite_matrix(values: object) -> None:
    with pytest.raises(InputError):
        Points(values)  # type: ignore[arg-type]


def test_values_are_copied_and_read_only() -> None:
    source = np.ones((2, 3), np.float32)
    points = Points(source)
    source[0, 0] = 5
    assert points.values[0, 0] == 1
    with pytest.raises(ValueError, match="read-only"):
        points.values[0, 0] = 2
    with pytest.raises(dataclasses.FrozenInstanceError):
        points.values = source  # type: ignore[misc]


@pytest.mark.parametrize(
    "basis",
    [
        np.ones((1, 2, 4)),
        np.zeros((1, 2, 4)),
        np.zeros((1, 0, 4)),
        np.eye(4)[None],
        np.eye(4)[None, :2].repeat(2, axis=0),
        np.full((1, 1, 4), 1e30),
    ],
)
def test_subspaces_refuse_bases_that_are_not(basis: object) -> None:
    with pytest.raises(InputError):
        Subspaces(np.zeros((1, 4)), basis)  # type: ignore[arg-type]


def test_features_refuse_what_does_not_fit() -> None:
    points = Points(np.ones((2, 4), np.float32))
    with pytest.raises(InputError, match="3 keypoints do not fit 2 descriptors"):
        Features(points, "sift", Keypoints(np.zeros((3, 2), np.float32)))
    with pytest.raises(InputError, match="descriptor 1 has zero norm"):
        Features(Points(np.array([[1.0, 0], [0, 0]], np.float32)), "sift")
    with pytest.raises(InputError, match="descriptor kind"):
        Features(points, "../SIFT")
    with pytest.raises(InputError, match="image size"):
        Features(points, "sift", None, (0, 5))
    with pytest.raises(InputError, match="labels"):
        Features(points, "sift", labels=np.zeros(3, int))
    with pytest.raises(InputError, match="scale"):
        Keypoints(np.zeros((3, 2), np.float32), scale=np.zeros(2, np.float32))


def test_descriptors_do_not_show_in_a_log() -> None:
    features = Features(Points(np.full((2, 4), 0.123, np.float32)), "sift", labels=np.array([7, 7]))
    assert repr(features.descriptors) == "Points(n=2, d=4)"
    assert "0.123" not in repr(features)


def test_matches_refuse_float_indices() -> None:
    with pytest.raises(InputError, match="whole numbers"):
        Matches(np.zeros((1, 2)), np.zeros(1, np.float32))  # type: ignore[arg-type]


def test_guarantee_composes_over_an_image() -> None:
    image = Guarantee("local-dp", 2.0).compose(500)
    assert (image.epsilon, image.unit) == (1000.0, "image")
    assert image.compose(7) == image
    assert Guarantee("empirical").compose(5).epsilon is None


@pytest.mark.parametrize(
    ("kind", "epsilon"),
    [("local-dp", None), ("empirical", 1.0), ("local-dp", 0.0), ("local-dp", float("nan")), ("magic", None)],
)
def test_guarantees_that_make_no_sense(kind: str, epsilon: float | None) -> None:
    with pytest.raises(InputError):
        Guarantee(kind, epsilon)  # type: ignore[arg-type]
