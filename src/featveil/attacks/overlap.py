"""Overlap attack: nearby keypoints see the same pixels, so their descriptors predict each other.

Ours. Position, scale and orientation of two keypoints give a linear map between their descriptors (overlapping.py).
All hidden descriptors are sought at once: each in its subspace and of norm 1, as near as possible to what its
neighbours predict, and without small negative entries, which no descriptor has (agreement.py). A usual scale does where
none is told; orientations that are not told are sought too (placing.py). For points of a map it starts from the map's
own descriptors, and neighbours move these a little (leaning.py).
Knows:      nothing but the release, which must hold positions; with scales and orientations it is stronger. Of map
            points their sketch.
Breaks:     all lifting strategies, SIFT and RootSIFT, where keypoints are dense. Map points with their geometry, hardly
            more than `read` does.
Fails:      on keypoints that do not overlap; of positions alone, where no two features share one, and on map points.
"""

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from featveil.attacks.knowledge import Guess, Knowledge, check_count
from featveil.attacks.overlap_parts.agreement import Agreement
from featveil.attacks.overlap_parts.leaning import lean
from featveil.attacks.overlap_parts.overlapping import find_overlaps
from featveil.attacks.overlap_parts.placing import USUAL_SCALE, Placing
from featveil.attacks.read import of_map
from featveil.attacks.subspaces import central, subspaces_of
from featveil.core import InputError, Keypoints, MapPoints, PrivateFeatures, Subspaces


@dataclass(frozen=True)
class Overlap:
    """Solve for all descriptors in turn, `rounds` times, each from the `neighbours` that saw most of its pixels.

    `sparse` also uses that descriptors have many exact zeros, which finds some of them by itself (see vertex.py);
    without it only neighbours count.
    """

    neighbours: int = 12
    rounds: int = 60
    sparse: bool = True

    name: ClassVar[str] = "overlap"
    summary: ClassVar[str] = "what overlapping keypoints predict of each other; better with scale and orientation"
    breaks: ClassVar[tuple[type, ...]] = (Subspaces, MapPoints)
    needs: ClassVar[tuple[str, ...]] = ()
    uses: ClassVar[tuple[str, ...]] = ("sketch",)
    alone: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_count("neighbours", self.neighbours)
        check_count("rounds", self.rounds)

    def run(self, seen: PrivateFeatures, knowledge: Knowledge, rng: np.random.Generator) -> Guess:
        """The solution; not answered where no neighbour saw enough of the same pixels, or none could be oriented."""
        keypoints = seen.keypoints
        if keypoints is None:
            raise InputError("attack overlap needs the positions of the keypoints in the release")
        if isinstance(seen.descriptors, MapPoints):
            return self._leaning(of_map(seen, knowledge), seen.kind, keypoints)
        subspaces = subspaces_of(seen)
        if subspaces.size != 128 or seen.kind not in ("sift", "rootsift"):
            raise InputError("attack overlap is on sift and rootsift, whose cells it knows")
        start = central(subspaces, seen.kind).astype(np.float32)
        if keypoints.orientation is None:
            placing = Placing(subspaces, seen.kind, keypoints, start, self.sparse)
            placing.run(rng)
            answered = placing.known | placing.placed
            note = f"{int(placing.placed.sum())} of {len(seen)} features could be oriented"
            return Guess(placing.values, answered, note=note)
        overlaps = find_overlaps(_with_scale(keypoints), self.neighbours)
        answered = np.zeros(len(seen), np.bool_)
        answered[overlaps.first] = True
        note = f"{int(answered.sum())} of {len(seen)} features overlap with others"
        if not answered.any():
            return Guess(start, answered, note=note)
        values = Agreement(subspaces, overlaps, start, seen.kind, self.sparse).solve(self.rounds)
        return Guess(np.where(answered[:, None], values, start), answered, note=note)

    def _leaning(self, read: Guess, kind: str, keypoints: Keypoints) -> Guess:
        """What the map says of each feature, as its neighbours correct it; not answered where none overlaps."""
        if read.values.shape[1] != 128 or kind not in ("sift", "rootsift"):
            raise InputError("attack overlap is on sift and rootsift, whose cells it knows")
        if keypoints.orientation is None:
            note = "without orientations nothing says how neighbours overlap, so every guess is that of the read attack"
            return Guess(read.values, np.zeros(len(read), np.bool_), note=note)
        overlaps = find_overlaps(_with_scale(keypoints), self.neighbours)
        answered = np.zeros(len(read), np.bool_)
        answered[overlaps.first] = True
        note = f"{int(answered.sum())} of {len(read)} features overlap with others"
        return Guess(lean(read.values, overlaps, kind), answered, note=note)


def _with_scale(keypoints: Keypoints) -> Keypoints:
    """The same, with a usual scale where none is told."""
    if keypoints.scale is not None:
        return keypoints
    return replace(keypoints, scale=np.full(len(keypoints), USUAL_SCALE, np.float32))
