"""Chance: a random real descriptor for every feature, whatever was sent. The floor of every table.

Ours, to compare with.
Knows:      descriptors of its own. It ignores the private features.
Breaks:     nothing: an attack that does no better has learned nothing.
Fails:      everywhere, but where descriptors are much alike.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from featveil.attacks.knowledge import Guess, Knowledge
from featveil.core import InputError, Points, PrivateFeatures, Subspaces, WordSets


@dataclass(frozen=True)
class Chance:
    """Guess without looking."""

    name: ClassVar[str] = "chance"
    summary: ClassVar[str] = "a random real descriptor, whatever was sent"
    breaks: ClassVar[tuple[type, ...]] = (Points, Subspaces, WordSets)
    needs: ClassVar[tuple[str, ...]] = ("database",)
    uses: ClassVar[tuple[str, ...]] = ("codebook",)
    alone: ClassVar[bool] = True

    def run(self, seen: PrivateFeatures, knowledge: Knowledge, rng: np.random.Generator) -> Guess:
        """A random entry of the database; of the codebook, for word sets."""
        words = isinstance(seen.descriptors, WordSets) and knowledge.codebook is not None
        source = knowledge.codebook if words else knowledge.database
        if source is None:
            raise InputError("chance draws from a database: give one")
        drawn = rng.integers(0, len(source), size=len(seen))
        return Guess.all_of(source.unit(drawn), drawn if words else None)
