"""Chance: a random real descriptor for every feature, whatever was sent. The floor of every table.

Ours, to compare with.
Knows:      descriptors of its own; of points of a map the sketch. It ignores the private features.
Breaks:     nothing: an attack that does no better has learned nothing.
Fails:      everywhere, but where descriptors are much alike.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from featveil.attacks.knowledge import Guess, Knowledge
from featveil.attacks.read_parts.map_descriptors import sketch_for
from featveil.core import InputError, MapPoints, Points, PrivateFeatures, Subspaces, WordSets
from featveil.gate.map_sketch import unit


@dataclass(frozen=True)
class Chance:
    """Guess without looking."""

    name: ClassVar[str] = "chance"
    summary: ClassVar[str] = "a random real descriptor, whatever was sent"
    breaks: ClassVar[tuple[type, ...]] = (Points, Subspaces, WordSets, MapPoints)
    needs: ClassVar[tuple[str, ...]] = ("database",)
    uses: ClassVar[tuple[str, ...]] = ("codebook", "sketch")
    alone: ClassVar[bool] = True

    def run(self, seen: PrivateFeatures, knowledge: Knowledge, rng: np.random.Generator) -> Guess:
        """A random entry of the database; for word sets of the codebook, for map points of the sketch."""
        if isinstance(seen.descriptors, MapPoints):
            entries = sketch_for(seen, knowledge).entries
            return Guess.all_of(unit(Points(entries.decode(rng.integers(0, len(entries), size=len(seen))))))
        words = isinstance(seen.descriptors, WordSets) and knowledge.codebook is not None
        source = knowledge.codebook if words else knowledge.database
        if source is None:
            raise InputError("chance draws from a database: give one")
        drawn = rng.integers(0, len(source), size=len(seen))
        return Guess.all_of(source.unit(drawn), drawn if words else None)
