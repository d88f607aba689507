"""What one keypoint says of another: descriptors of a real picture follow the maps between their windows."""

import numpy as np
import pytest

from featveil.attacks.overlap_parts.overlapping import Overlaps, find_overlaps, map_cells, predict, turn_bins
from featveil.core import InputError, Keypoints
from featveil.core.arrays import Float32
from victims import picture


def cosines(overlaps: Overlaps, values: Float32) -> Float32:
    """Between descriptors and what their neighbours predict, over the components that these saw (p,)."""
    predicted, weights = predict(values, overlaps)
    own = values[overlaps.first]
    along = (weights * predicted * own).sum(axis=1)
    norms = (weights * predicted**2).sum(axis=1) * (weights * own**2).sum(axis=1)
    return np.asarray(along / np.sqrt(np.maximum(norms, 1e-12)))


def test_neighbours_predict_each_other() -> None:
    features = picture(0, "sift", 800)
    assert features.keypoints is not None
    overlaps = find_overlaps(features.keypoints)
    values = features.descriptors.values
    agreeing = cosines(overlaps, values)
    dealt = cosines(overlaps, values[np.random.default_rng(0).permutation(len(values))])
    much = overlaps.share > 0.6
    assert much.sum() > 300
    assert np.median(agreeing[much]) > 0.9
    assert np.median(agreeing[much]) > np.median(agreeing[~much]) > np.median(dealt) + 0.1


def test_a_keypoint_predicts_itself() -> None:
    share, cells, weight = map_cells(np.zeros((1, 2)), (np.ones(1), np.ones(1)), (np.ones(1), np.ones(1)))
    assert share[0] > 0.9 and weight.min() > 0.8
    assert cells[0].diagonal().min() > 0.7
    np.testing.assert_allclose(turn_bins(np.zeros(1))[0], np.eye(8), atol=1e-6)


def test_bins_turn_with_the_angle() -> None:
    turned = turn_bins(np.array([np.pi / 2, -np.pi / 8]))
    np.testing.assert_allclose(turned[0], np.roll(np.eye(8), 2, axis=0), atol=1e-6)
    np.testing.assert_allclose(turned[1], (np.eye(8) + np.roll(np.eye(8), -1, axis=0)) / 2, atol=1e-6)


def test_windows_that_do_not_touch_share_nothing() -> None:
    far = np.array([[3 * 5.1, 0.0]])
    share, _, weight = map_cells(far, (np.ones(1), np.ones(1)), (np.zeros(1), np.zeros(1)))
    assert share[0] == 0 and (weight == 0).all()
    line = np.column_stack([np.arange(5) * 3 * 5.1, np.zeros(5)]).astype(np.float32)
    ones = np.ones(5, np.float32)
    assert len(find_overlaps(Keypoints(line, ones, ones))) == 0


def test_at_most_so_many_neighbours_and_the_best() -> None:
    features = picture(0, "sift", 800)
    assert features.keypoints is not None
    few, many = find_overlaps(features.keypoints, 3), find_overlaps(features.keypoints, 12)
    assert np.bincount(few.first).max() == 3
    for feature in np.unique(few.first)[::40]:
        best = np.sort(many.share[many.first == feature])[::-1][:3]
        # Fewer neighbours are also looked for among fewer candidates.
        assert np.sort(few.share[few.first == feature])[::-1][0] <= best[0] + 1e-6
        assert few.share[few.first == feature].min() > 0.1


def test_geometry_must_be_there() -> None:
    with pytest.raises(InputError, match="one of them is missing"):
        find_overlaps(Keypoints(np.zeros((3, 2), np.float32)))
