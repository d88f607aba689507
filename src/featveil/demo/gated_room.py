"""What the demo shows of a gate: a portrait stands in the room, and what is sent of a photograph of both.

The map of the room has never seen the portrait. The attacker has the sketch, takes the map's own descriptors for what
was sent, and paints them.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray

from featveil.attacks import Knowledge, Read, attack
from featveil.core import Features, FeatveilError, Keypoints, PrivateFeatures
from featveil.defenses import Gate, privatize
from featveil.extractors import extract
from featveil.formats.veil import encode
from featveil.gate import Sketch
from featveil.gate.sketch_building import Observations, build_sketch
from featveil.gate.sketch_files import encode_sketch
from featveil.gate.thresholds import calibrate
from featveil.geometry.models import SparseModel
from featveil.pipelines.map_parts.observed import facts_of, foreign_to, observations
from featveil.pipelines.painters import at_size, paint, picture_size, raw_painter
from featveil.pipelines.painters import view as paint_guess
from featveil.plotting.pictures import Picture

Errors = tuple[float, float] | None
Locate = Callable[[Features | PrivateFeatures], Errors]

_PORTRAIT = Path(__file__).parent / "data" / "demo-astronaut.jpg"
_SIDE, _FRAME = 0.42, 6  # of the portrait: a share of the photograph's height, and pixels
_LEFT, _BOTTOM = 0.48, 0.05  # where it stands, as shares of the photograph
_FEATURES = 2000  # of the photograph: the portrait's are weaker than the room's
_WOOD = (92, 64, 40)


@dataclass(frozen=True)
class PartSent:
    """How many features of a part of the photograph there are, and how many of them were sent."""

    features: int
    sent: int


@dataclass(frozen=True, eq=False)
class GatedRoom:
    """A photograph of the `room` with a `portrait` in it: what is sent of both, and what an attacker sees.

    `views` are painted from the raw features and from the gated release, or say why nothing was painted. Errors of the
    pose are (degrees, metres), None where there is no pose. Sizes are in bytes.
    """

    photograph: Picture
    views: tuple[Picture, Picture] | str
    room: PartSent
    portrait: PartSent
    tau: float
    raw_errors: Errors
    gated_errors: Errors
    raw_bytes: int
    gated_bytes: int
    sketch_bytes: int


@dataclass(frozen=True, eq=False)
class Photograph:
    """A view of the room with a portrait in it, its features, and which of them show the portrait (n,)."""

    picture: Picture
    features: Features
    corners: tuple[int, int, int, int]  # left, top, right, bottom

    def on_portrait(self, keypoints: Keypoints) -> NDArray[np.bool_]:
        """Which of some keypoints of it lie on the portrait and its frame."""
        left, top, right, bottom = self.corners
        x, y = keypoints.xy.T
        return np.asarray((x >= left) & (x < right) & (y >= top) & (y < bottom))


def photograph_with_portrait(picture: Picture) -> Photograph:
    """A framed portrait of an astronaut in front of what `picture` shows, and the features of both."""
    strip = cv2.imread(str(_PORTRAIT), cv2.IMREAD_COLOR)
    assert strip is not None
    height, width = picture.shape[:2]
    side = round(_SIDE * height)
    face = cv2.resize(strip[:, : strip.shape[0], ::-1], (side, side), interpolation=cv2.INTER_CUBIC)
    shown = np.full((side + 2 * _FRAME, side + 2 * _FRAME, 3), _WOOD, np.uint8)
    shown[_FRAME:-_FRAME, _FRAME:-_FRAME] = face
    left, bottom = round(_LEFT * width), round((1 - _BOTTOM) * height)
    corners = left, bottom - len(shown), left + len(shown), bottom
    whole = picture.copy()
    whole[corners[1] : corners[3], corners[0] : corners[2]] = shown
    return Photograph(whole, extract(whole, max_features=_FEATURES), corners)


def sketch_of(model: SparseModel, features: Mapping[str, Features]) -> Sketch:
    """The calibrated sketch of a map of these features."""
    names = sorted(model.views)

    def seen() -> Iterator[Observations]:
        return observations(model, features.__getitem__, names)

    sketch = build_sketch(facts_of(model, features[names[0]].kind, "the demo's room"), seen)
    return replace(sketch, calibration=calibrate(sketch, seen(), foreign_to(sketch.kind)))


def show_gate(model: SparseModel, features: Mapping[str, Features], picture: Picture, locate: Locate) -> GatedRoom:
    """A portrait in front of what `picture` shows: sent raw, and through the gate of a map with these features.

    `locate` says how far off the pose of what is sent is.
    """
    photograph, sketch = photograph_with_portrait(picture), sketch_of(model, features)
    raw = photograph.features
    private = privatize(raw, Gate(sketch))
    of_raw, of_sent = (photograph.on_portrait(one.keypoints) for one in (raw, private) if one.keypoints is not None)
    return GatedRoom(
        photograph.picture,
        _views(raw, private, sketch),
        PartSent(int((~of_raw).sum()), int((~of_sent).sum())),
        PartSent(int(of_raw.sum()), int(of_sent.sum())),
        private.guarantee.tau or 0.0,
        locate(raw),
        locate(private),
        len(encode(raw)),
        len(encode(private)),
        len(encode_sketch(sketch)),
    )


def _views(raw: Features, private: PrivateFeatures, sketch: Sketch) -> tuple[Picture, Picture] | str:
    """What the built-in inverter paints of raw features, and of a gated release with the map's own descriptors.

    Raw features have the scale and orientation that extractors give them; a release has positions alone.
    """
    try:
        painter, size = raw_painter(raw.kind), picture_size(raw)
        seen = paint(at_size(raw, size), painter)
        guess = attack(private, Read(), Knowledge(sketch=sketch))
        return seen, paint_guess(private, guess, painter, size)
    except FeatveilError as error:
        return str(error)
