"""Read: the descriptors as they were sent. What there is to see without any defense.

Ours, to compare with.
Knows:      nothing.
Breaks:     whatever sends descriptors as points: no defense at all, noised or concealed descriptors.
Fails:      as far as what was sent is unlike the descriptor: after noise, or a concealer.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from featveil.attacks.knowledge import Guess, Knowledge
from featveil.core import InputError, Points, PrivateFeatures


@dataclass(frozen=True)
class Read:
    """Take what was sent for the hidden descriptor."""

    name: ClassVar[str] = "read"
    summary: ClassVar[str] = "the descriptor as it was sent"
    breaks: ClassVar[tuple[type, ...]] = (Points,)
    needs: ClassVar[tuple[str, ...]] = ()
    uses: ClassVar[tuple[str, ...]] = ()
    alone: ClassVar[bool] = True

    def run(self, seen: PrivateFeatures, knowledge: Knowledge, rng: np.random.Generator) -> Guess:
        """What was sent."""
        if not isinstance(seen.descriptors, Points):
            raise InputError(f"only points can be read, not {type(seen.descriptors).__name__}")
        return Guess.all_of(seen.descriptors.values)
