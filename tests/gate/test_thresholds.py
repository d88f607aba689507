"""Calibration: the right share passes, and foreign content passes where it is that of the map and not elsewhere."""

from dataclasses import replace

import numpy as np
import pytest

from featveil.core import InputError, Points
from featveil.core.arrays import Float32, Integers
from featveil.databases import Database, builtin
from featveil.gate import Sketch
from featveil.gate.background import CONTRASTS, background_distances, foreign_descriptors
from featveil.gate.map_sketch import unit
from featveil.gate.sketch_building import MapFacts, Observations, build_sketch
from featveil.gate.thresholds import TARGET, TAUS, Foreign, calibrate
from featveil.pipelines.sketch import SketchRequest
from sketches import MODEL

BASE = builtin("sift").points()
POINTS, IMAGES = 400, 4
ELSEWHERE = BASE[5000:6000]


def described(points: Integers, rng: np.random.Generator, spread: float = 0.03) -> Float32:
    return np.asarray(np.abs(BASE[points] + rng.normal(0, spread, (len(points), 128))), np.float32)


@pytest.fixture(scope="module")
def seen() -> list[Observations]:
    rng = np.random.default_rng(0)
    return [
        Observations(image, np.arange(POINTS), Points(described(np.arange(POINTS), rng))) for image in range(IMAGES)
    ]


@pytest.fixture(scope="module")
def sketch(seen: list[Observations]) -> Sketch:
    return build_sketch(MapFacts(MODEL, POINTS, IMAGES, "sift"), lambda: seen)


@pytest.mark.parametrize("target", [0.5, 0.85, 0.99])
def test_the_stated_share_of_new_observations_passes(sketch: Sketch, seen: list[Observations], target: float) -> None:
    """Of an image that was not in the map, which calibration has not seen either."""
    known = calibrate(sketch, seen, Foreign(), target)
    assert known.target == target and known.contrast is None and known.foreign is None and known.corpus == 0
    new = Points(described(np.arange(POINTS), np.random.default_rng(99)))
    passing = len(sketch.look_up(new, known.tau)) / POINTS
    assert abs(passing - target) < 0.08  # it has four images to be near to, and an image that is left out three
    assert known.at(known.passes, known.tau) == pytest.approx(target, abs=0.05)  # tau is chosen in steps
    assert known.at(known.passes, known.tau) >= target


def test_the_chosen_distance_is_a_line_of_the_table(sketch: Sketch, seen: list[Observations]) -> None:
    known = calibrate(sketch, seen, Foreign())
    assert known.tau in known.taus and {*TAUS} <= {*known.taus} and known.target == TARGET
    for shares in (known.passes, known.right):
        assert (np.diff(shares) >= 0).all()
    assert all(right <= passes for right, passes in zip(known.right, known.passes, strict=True))
    assert known.at(known.right, known.tau) > 0.5


def test_foreign_content_that_is_the_map_passes_and_other_does_not(sketch: Sketch, seen: list[Observations]) -> None:
    own = Points(described(np.arange(POINTS), np.random.default_rng(7)))
    same, other = (calibrate(sketch, seen, Foreign(corpus)) for corpus in (own, Points(ELSEWHERE)))
    assert same.foreign is not None and other.foreign is not None
    assert same.at(same.foreign, same.tau) > 0.8
    assert other.at(other.foreign, other.tau) < 0.2
    assert (same.corpus, other.corpus) == (POINTS, len(ELSEWHERE)) and same.tau == other.tau


def test_shares_are_those_of_a_look_up(sketch: Sketch, seen: list[Observations]) -> None:
    known = calibrate(sketch, seen, Foreign(Points(ELSEWHERE)))
    assert known.foreign is not None
    for tau, share in zip(known.taus, known.foreign, strict=True):
        assert len(sketch.look_up(Points(ELSEWHERE), tau)) / len(ELSEWHERE) == pytest.approx(share, abs=0.0021)


def test_a_background_takes_foreign_content_away(sketch: Sketch, seen: list[Observations]) -> None:
    """Two-sided: one that holds the foreign content does, one of something else does not."""
    rng = np.random.default_rng(0)
    near = Database.from_array(ELSEWHERE, "sift", 1, rng=rng)
    far = Database.from_array(rng.random((500, 128)).astype(np.float32) ** 8, "sift", 1, rng=rng)
    corpus = Points(np.abs(ELSEWHERE + rng.normal(0, 0.02, ELSEWHERE.shape)).astype(np.float32))
    shares = {}
    for name, background in (("none", None), ("near", near), ("far", far)):
        known = calibrate(sketch, seen, Foreign(corpus, background), 0.95)
        assert known.foreign is not None
        shares[name] = known.at(known.foreign, known.tau)
        assert (known.contrast is None) == (background is None)
        assert known.contrast is None or known.contrast in CONTRASTS
        assert known.background == (None if background is None else background.digest)
    assert shares["near"] < 0.5 * shares["none"] + 1e-9 and shares["far"] == pytest.approx(shares["none"], abs=0.05)


def test_a_background_that_is_the_map_lets_nothing_pass(sketch: Sketch, seen: list[Observations]) -> None:
    values = np.concatenate([one.descriptors.values for one in seen])
    background = Database.from_array(values, "sift", 1, rng=np.random.default_rng(0))
    known = calibrate(sketch, seen, Foreign(Points(ELSEWHERE), background))
    assert known.passes[-1] < 0.5


def test_large_sketches_are_tested_with_fewer_queries(
    sketch: Sketch, seen: list[Observations], monkeypatch: pytest.MonkeyPatch
) -> None:
    every = calibrate(sketch, seen, Foreign(Points(ELSEWHERE)))
    monkeypatch.setattr("featveil.gate.thresholds._PAIRS", 1.0)
    few = calibrate(sketch, seen, Foreign(Points(ELSEWHERE)))
    assert (every.queries, every.corpus) == (POINTS * IMAGES, len(ELSEWHERE))
    assert (few.queries, few.corpus) == (500, 500) and few.tau == pytest.approx(every.tau, abs=0.03)


def test_what_cannot_be_calibrated(sketch: Sketch, seen: list[Observations]) -> None:
    alone = build_sketch(MapFacts(MODEL, POINTS, IMAGES, "sift"), lambda: seen[:1])
    with pytest.raises(InputError, match="two of its images"):
        calibrate(alone, seen[:1], Foreign())
    for target in (0, 1, 2, True, "0.5"):
        with pytest.raises(InputError, match="between 0 and 1"):
            calibrate(sketch, seen, Foreign(), target)  # type: ignore[arg-type]


def test_what_comes_with_featveil_is_foreign_to_itself() -> None:
    """The background is no test of the corpus: they share no photograph."""
    for kind in ("sift", "rootsift"):
        corpus = foreign_descriptors(kind)
        distances = background_distances(unit(corpus), builtin(kind))
        assert len(corpus) > 1000 and np.median(distances) > 0.3 and (distances < 1e-3).mean() < 0.01


def test_the_command_wants_what_the_function_does() -> None:
    request = SketchRequest.__dataclass_fields__
    assert request["pass_rate"].default == TARGET and request["entry_bytes"].default == "16"


def test_a_calibration_of_none_of_its_queries(sketch: Sketch, seen: list[Observations]) -> None:
    """Observations of points that only one image sees are no queries."""
    extra = [*seen, Observations(IMAGES, np.array([POINTS]), Points(BASE[POINTS : POINTS + 1]))]
    larger = build_sketch(MapFacts(MODEL, POINTS + 1, IMAGES + 1, "sift"), lambda: extra)
    known = calibrate(larger, extra, Foreign())
    assert known.queries == POINTS * IMAGES and replace(known, queries=0) != known
