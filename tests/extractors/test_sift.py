"""SIFT: the conventions of keypoints, unit descriptors, the choice of the strongest."""

import numpy as np
import pytest

from featveil.core import Features, InputError, Keypoints
from featveil.extractors.images import Image
from featveil.extractors.sift import Sift


def keypoints(features: Features) -> Keypoints:
    assert features.keypoints is not None
    return features.keypoints


def blob(x: float, y: float, sigma: float, degrees: float = 0.0, slope: float = 0.0) -> Image:
    """A Gaussian blob around pixel index (x, y) on a local ramp that rises towards `degrees`."""
    rows, columns = np.mgrid[:121, :161].astype(float)
    squared = (columns - x) ** 2 + (rows - y) ** 2
    rise = (columns - x) * np.cos(np.deg2rad(degrees)) + (rows - y) * np.sin(np.deg2rad(degrees))
    image = 128 + 90 * np.exp(-squared / 2 / sigma**2) + slope * rise * np.exp(-squared / 72 / sigma**2)
    return np.asarray(np.clip(np.round(image), 0, 255), np.uint8)


@pytest.fixture(scope="module")
def texture() -> Image:
    """A rough RGB texture (160, 200, 3) with a few hundred features."""
    coarse = np.random.default_rng(7).integers(0, 256, (40, 50, 3), np.uint8)
    return np.kron(coarse, np.ones((4, 4, 1), np.uint8))


@pytest.mark.parametrize(("x", "y", "sigma"), [(60, 50, 4.0), (81, 63, 6.0), (40.25, 70.5, 2.5)])
def test_position_and_scale_conventions(x: float, y: float, sigma: float) -> None:
    detected = keypoints(Sift().extract(blob(x, y, sigma)))
    nearest = int(np.argmin(np.linalg.norm(detected.xy - (x + 0.5, y + 0.5), axis=1)))
    assert np.abs(detected.xy[nearest] - (x + 0.5, y + 0.5)).max() < 0.05
    assert detected.scale is not None
    assert 0.85 * sigma < detected.scale[nearest] < 1.05 * sigma


@pytest.mark.parametrize("degrees", [0.0, 90.0, 270.0])
def test_orientation_turns_from_x_to_y(degrees: float) -> None:
    detected = keypoints(Sift().extract(blob(60, 50, 4.0, degrees, slope=1.2)))
    assert detected.orientation is not None
    assert abs((detected.orientation[0] - degrees + 180) % 360 - 180) < 5


@pytest.mark.parametrize("kind", ["sift", "rootsift"])
def test_descriptors_are_unit_vectors(kind: str, texture: Image) -> None:
    features = Sift(kind).extract(texture)  # type: ignore[arg-type]
    values = features.descriptors.values
    assert len(features) > 100
    assert values.shape[1] == 128
    assert values.dtype == np.float32
    assert np.abs(np.linalg.norm(values, axis=1) - 1).max() < 1e-6
    assert features.kind == kind
    assert features.image_size == (200, 160)


def test_rootsift_is_the_root_of_sift(texture: Image) -> None:
    sift = Sift("sift").extract(texture).descriptors.values.astype(np.float64)
    root = Sift("rootsift").extract(texture).descriptors.values
    assert np.abs(np.sqrt(sift / sift.sum(axis=1, keepdims=True)) - root).max() < 1e-6


def test_grey_and_equal_colours_are_the_same(texture: Image) -> None:
    grey = np.ascontiguousarray(texture[:, :, 0])
    left, right = Sift().extract(grey), Sift().extract(np.repeat(grey[:, :, None], 3, axis=2))
    assert np.array_equal(left.descriptors.values, right.descriptors.values)


def test_keeps_the_strongest_in_order(texture: Image) -> None:
    every, few = Sift(max_features=10**6).extract(texture), Sift(max_features=50).extract(texture)
    response = keypoints(every).response
    assert response is not None
    assert (np.diff(response) <= 0).all()
    assert len(few) == 50
    assert np.array_equal(few.descriptors.values, every.descriptors.values[:50])
    assert np.array_equal(keypoints(few).xy, keypoints(every).xy[:50])


def test_ties_are_broken_the_same_way_every_time() -> None:
    tile = blob(80, 60, 4.0)[36:84, 56:104]
    tiled = np.tile(tile, (4, 4))
    runs = [keypoints(Sift(max_features=5).extract(tiled)).xy for _ in range(3)]
    assert len(runs[0]) == 5
    assert all(np.array_equal(runs[0], run) for run in runs)


@pytest.mark.parametrize("shape", [(1, 1), (1, 50), (2, 2), (3, 3, 3), (7, 5), (64, 64)])
def test_images_without_features_give_none(shape: tuple[int, ...]) -> None:
    features = Sift().extract(np.full(shape, 90, np.uint8))
    assert len(features) == 0
    assert features.descriptors.values.shape == (0, 128)
    assert len(keypoints(features)) == 0


def test_views_are_accepted(texture: Image) -> None:
    flipped = texture[::-1, ::-1]
    assert np.array_equal(Sift().extract(flipped).descriptors.values, Sift().extract(flipped.copy()).descriptors.values)
    frozen = texture.copy()
    frozen.setflags(write=False)
    assert len(Sift().extract(frozen)) > 0


@pytest.mark.parametrize(
    "image",
    [
        np.zeros((5, 5)),
        np.zeros((5, 5, 4), np.uint8),
        np.zeros((0, 5), np.uint8),
        np.zeros(5, np.uint8),
        [[1, 2]],
        None,
    ],
)
def test_other_arrays_are_refused(image: object) -> None:
    with pytest.raises(InputError, match="an image"):
        Sift().extract(image)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "arguments",
    [
        {"kind": "surf"},
        {"max_features": 0},
        {"max_features": 2.5},
        {"max_features": True},
        {"contrast_threshold": -0.1},
        {"edge_threshold": float("nan")},
        {"contrast_threshold": "0.04"},
    ],
)
def test_wrong_parameters_are_refused(arguments: dict[str, object]) -> None:
    with pytest.raises(InputError, match="must be"):
        Sift(**arguments)  # type: ignore[arg-type]
