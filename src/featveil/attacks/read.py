"""Read: the descriptors as they were sent. What there is to see without any defense, and behind a gate.

Ours, to compare with.
Knows:      nothing; of points of a map its sketch, which says what they look like.
Breaks:     whatever sends descriptors as points: no defense at all, noised or concealed descriptors. What passes a
            gate resembles a point of the map, so the map's own descriptor is an estimate of it.
Fails:      as far as what was sent is unlike the descriptor: after noise, or a concealer. What a gate holds back.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from featveil.attacks.knowledge import Guess, Knowledge
from featveil.attacks.read_parts.map_descriptors import read_points, sketch_for
from featveil.core import InputError, MapPoints, Points, PrivateFeatures


@dataclass(frozen=True)
class Read:
    """Take what was sent for the hidden descriptor; for a point of a map what the map's images saw of it."""

    name: ClassVar[str] = "read"
    summary: ClassVar[str] = "the descriptor as it was sent; of a map point, the map's own"
    breaks: ClassVar[tuple[type, ...]] = (Points, MapPoints)
    needs: ClassVar[tuple[str, ...]] = ()
    uses: ClassVar[tuple[str, ...]] = ("sketch",)
    alone: ClassVar[bool] = True  # but for votes for images of a map, which a sample of the features has too

    def run(self, seen: PrivateFeatures, knowledge: Knowledge, rng: np.random.Generator) -> Guess:
        """What was sent, or stands for it; not answered where a sketch does not know the point."""
        match seen.descriptors:
            case Points(values):
                return Guess.all_of(values)
            case MapPoints():
                return of_map(seen, knowledge)
        raise InputError(f"only points can be read, not {type(seen.descriptors).__name__}")


def of_map(seen: PrivateFeatures, knowledge: Knowledge) -> Guess:
    """The map's own descriptors; what the sketch does not know gets the mean of those that it does."""
    sketch = sketch_for(seen, knowledge)
    values = read_points(seen, sketch)
    answered = np.asarray(values.any(axis=1), np.bool_)
    usual = values[answered].mean(axis=0) if answered.any() else np.ones(values.shape[1], np.float32)
    note = "" if answered.all() else f"the sketch knows the points of {int(answered.sum())} of {len(seen)} features"
    usual = usual / np.linalg.norm(usual)
    return Guess(np.where(answered[:, None], values, usual).astype(np.float32), answered, note=note)
