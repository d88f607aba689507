import numpy as np
import pytest

from featveil.core import Features, InputError, Keypoints, Points
from featveil.defenses import Lifting, lying_apart, privatize
from featveil.defenses.selection import REACH, UNLIKE
from victims import picture


def test_no_two_meet_or_resemble_each_other_and_every_other_one_would() -> None:
    raw = picture(0, count=300)
    kept = lying_apart(raw)
    assert 5 < len(kept) < len(raw)
    keypoints, everyone = kept.keypoints, raw.keypoints
    assert keypoints is not None and keypoints.scale is not None
    assert everyone is not None and everyone.scale is not None
    met = likened = 0
    for place in range(len(raw)):
        meets = np.hypot(*(keypoints.xy - everyone.xy[place]).T) < REACH * (keypoints.scale + everyone.scale[place])
        resembles = np.linalg.norm(kept.descriptors.values - raw.descriptors.values[place], axis=1) < UNLIKE
        itself = (kept.descriptors.values == raw.descriptors.values[place]).all(axis=1)
        assert (meets | resembles).sum() == 1 if itself.any() else (meets | resembles).any()
        met, likened = met + (not itself.any() and meets.any()), likened + (not itself.any() and not meets.any())
    assert met and likened


def rows(*places: tuple[float, float], response: tuple[float, ...]) -> Features:
    """Features of scale 1 at `places`, with unrelated descriptors."""
    n = len(places)
    values = np.eye(128, dtype=np.float32)[:n]
    keypoints = Keypoints(np.array(places, np.float32), np.ones(n, np.float32), response=np.array(response, np.float32))
    return Features(Points(values), "sift", keypoints, (400, 400))


def test_the_strongest_stays() -> None:
    kept = lying_apart(rows((10, 10), (12, 10), (300, 300), response=(1, 2, 0.5)))
    assert kept.keypoints is not None
    assert kept.keypoints.xy.tolist() == [[12, 10], [300, 300]]


def test_windows_may_touch() -> None:
    assert len(lying_apart(rows((10, 10), (10 + 2 * REACH, 10), response=(1, 2)))) == 2
    assert len(lying_apart(rows((10, 10), (9.9 + 2 * REACH, 10), response=(1, 2)))) == 1


def test_what_repeats_is_kept_once() -> None:
    far = rows((10, 10), (200, 10), (300, 300), response=(1, 2, 3))
    twins = Features(far.descriptors.take(np.array([0, 0, 1])), "sift", far.keypoints, (400, 400))
    assert len(lying_apart(far)) == 3
    assert len(lying_apart(twins)) == 2
    assert len(lying_apart(twins, unlike=0)) == 3


def test_features_without_keypoints_stay_as_they_are() -> None:
    faces = Features(Points(picture(0).descriptors.values[:4]), "face")
    assert lying_apart(faces) is faces


def test_keypoints_without_scale() -> None:
    raw = picture(0)
    assert raw.keypoints is not None
    with pytest.raises(InputError, match="scales and responses"):
        lying_apart(Features(raw.descriptors, "sift", Keypoints(raw.keypoints.xy)))


def test_a_release_of_those_that_lie_apart() -> None:
    raw = picture(0, count=300)
    assert len(privatize(raw, Lifting(), apart=True)) == len(lying_apart(raw)) < len(privatize(raw, Lifting()))
