"""What is planted in a sketch is answered; an audit notices what is planted carelessly, and no honest sketch."""

import tracemalloc
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from featveil.core import InputError, MapPoints, NotMappedError, Points
from featveil.core.arrays import Float32
from featveil.databases import builtin
from featveil.defenses import Gate, privatize
from featveil.gate import Sketch
from featveil.gate.map_sketch import Exact
from featveil.gate.probing import AuditLimits, Disguise, audit_sketch, plant
from featveil.gate.signing import create_key, sign
from gated import near, place
from sketches import MODEL, other_background
from victims import picture

TAU = 0.5


def secret(count: int = 200) -> Float32:
    """Real descriptors of other things, which the map does not show."""
    return builtin("sift").unit(np.arange(1000, 1000 + count))


def answers(sketch: Sketch, seen: Float32) -> int:
    """How many of the features are sent as planted points."""
    gate = Gate(sketch, tau=TAU, contrast=1.0, background=other_background(), min_share=0, min_features=1)
    raw = picture(1, "sift", len(seen))
    try:
        sent = privatize(replace(raw, descriptors=Points(seen)), gate, rng=np.random.default_rng(0)).descriptors
    except NotMappedError:
        return 0
    assert isinstance(sent, MapPoints)
    return int((sent.points >= place().model_points).any(axis=1).sum())


@pytest.mark.parametrize("disguise", ["none", "tracks"])
@pytest.mark.parametrize("size", [None, 16])
def test_what_is_planted_is_answered(disguise: Disguise, size: int | None) -> None:
    sketch = plant(place(size), Points(secret()), disguise)
    again = near(secret(), np.random.default_rng(5))
    assert answers(sketch, again) > len(again) / 2
    assert answers(place(size), again) == 0
    unseen = near(picture(0, "sift", 200).descriptors.values, np.random.default_rng(5))
    assert answers(sketch, unseen) < len(unseen) / 10


def test_planting_leaves_the_map_as_it_is() -> None:
    whole, sketch = place(16), plant(place(16), Points(secret(40)))
    assert (
        sketch.take(np.arange(len(whole))).digest
        == replace(whole, calibration=None, model_points=sketch.model_points).digest
    )
    assert sketch.model_points == whole.model_points + 40
    assert set(np.unique(sketch.points[len(whole) :])) == set(range(whole.model_points, sketch.model_points))
    with pytest.raises(InputError, match="size 128"):
        plant(whole, Points(np.ones((2, 64), np.float32)))


def test_a_signature_does_not_survive_planting(tmp_path: Path) -> None:
    pytest.importorskip("cryptography")
    key = tmp_path / "key"
    create_key(key)
    assert plant(sign(place(), key), Points(secret(3))).signature is None


@pytest.mark.parametrize("size", [None, 16])
def test_an_honest_sketch_is_accepted(size: int | None) -> None:
    corpus = Points(other_background().points())
    audit = audit_sketch(place(size), corpus, TAU, 1.0, other_background())
    assert audit.accepted and not audit.reasons
    assert (audit.single, audit.lone, audit.unlike) == (0, 0, 0)
    assert audit.corpus == len(corpus) and audit.entries == len(place(size))
    without = audit_sketch(place(size), None, TAU)
    assert without.accepted and without.passing is None and without.cluster is None


def test_careless_planting_of_much_is_noticed() -> None:
    for count, noticed in ((200, False), (1500, True)):
        audit = audit_sketch(plant(place(), Points(secret(count)), "none"), None, TAU)
        assert audit.accepted != noticed
        assert audit.single == pytest.approx(count / (count + place().model_points), abs=1e-9)
        assert any("seen by one image" in reason for reason in audit.reasons) == noticed


def test_tracks_that_were_copied_are_not() -> None:
    """The limit of every audit, stated: nothing tells these entries from a map's."""
    audit, honest = (audit_sketch(one, None, TAU) for one in (plant(place(), Points(secret()), "tracks"), place()))
    assert audit.accepted
    assert abs(audit.unlike - honest.unlike) < 0.02


def test_what_resembles_the_corpus_is_noticed_in_any_disguise() -> None:
    corpus = Points(near(secret(), np.random.default_rng(7)))
    audit = audit_sketch(plant(place(), Points(secret()), "tracks"), corpus, TAU)
    assert not audit.accepted and audit.passing is not None and audit.passing > 0.5
    assert any("foreign descriptors" in reason for reason in audit.reasons)


def test_entries_that_are_no_tracks_are_noticed() -> None:
    sketch, rng = place(), np.random.default_rng(0)
    shuffled = replace(sketch, entries=sketch.entries.take(rng.permutation(len(sketch))))
    assert any("resemble each other" in reason for reason in audit_sketch(shuffled, None, TAU).reasons)
    alone = np.arange(len(sketch)) < len(sketch) // 4
    same = replace(sketch, entries=sketch.entries.take(np.where(alone, 0, np.arange(len(sketch)))))
    assert any("several times" in reason for reason in audit_sketch(same, None, TAU).reasons)


def test_limits_are_shares() -> None:
    with pytest.raises(InputError, match="passing must be a share"):
        AuditLimits(passing=1.5)


def test_points_of_images_that_share_nothing_else_are_noticed() -> None:
    sketch, count = place(), 400
    values = Points(np.repeat(secret(count), 2, axis=0))
    planted = plant(sketch, values, "none")
    own = np.flatnonzero(planted.points >= sketch.model_points)
    points, images = planted.points.copy(), planted.images.copy()
    points[own] = sketch.model_points + np.arange(len(own)) // 2
    images[own] = np.where(np.arange(len(own)) % 2, 0, 23)  # of the first and of the last group
    audit = audit_sketch(replace(planted, points=points, images=images), None, TAU)
    assert audit.single == 0
    assert audit.lone == 0  # so many points that they vouch for each other
    few = np.r_[: len(sketch), own[:4]]
    audit = audit_sketch(replace(planted, points=points, images=images).take(few), None, TAU)
    assert audit.lone == pytest.approx(2 / (sketch.model_points + 2))


def test_a_sketch_does_not_decide_how_much_memory_its_audit_takes() -> None:
    """Each entry is of an image of its own, and each point is seen by many of them."""
    count = 60_000
    entries = Exact(np.random.default_rng(0).uniform(0.1, 1, (count, 2)).astype(np.float16))
    points = np.arange(count) // 100
    sketch = Sketch(entries, points, np.arange(count), "made-up", MODEL, count, count, "", None)
    tracemalloc.start()
    try:
        audit = audit_sketch(sketch, None, TAU)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 2**29
    assert (audit.single, audit.lone) == (0, 1)
