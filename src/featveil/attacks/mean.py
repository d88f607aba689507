"""Mean: the point of the subspace nearest to the mean descriptor. What a subspace tells to someone who knows nothing.

Ours, to compare with.
Knows:      what a descriptor of the kind looks like on average (where there is a built-in database of it).
Breaks:     random lifting: a random subspace passes the mean near the hidden descriptor.
Fails:      where confounders pull that point away. Other attacks fall back on it where they have no answer.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from featveil.attacks.knowledge import Guess, Knowledge
from featveil.attacks.subspaces import central, subspaces_of
from featveil.core import PrivateFeatures, Subspaces


@dataclass(frozen=True)
class Mean:
    """Project the mean descriptor."""

    name: ClassVar[str] = "mean"
    summary: ClassVar[str] = "the point of the subspace nearest to the mean descriptor of the kind"
    breaks: ClassVar[tuple[type, ...]] = (Subspaces,)
    needs: ClassVar[tuple[str, ...]] = ()
    uses: ClassVar[tuple[str, ...]] = ()
    alone: ClassVar[bool] = True

    def run(self, seen: PrivateFeatures, knowledge: Knowledge, rng: np.random.Generator) -> Guess:
        """The projections."""
        return Guess.all_of(central(subspaces_of(seen), seen.kind))
