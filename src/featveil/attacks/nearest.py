"""Nearest neighbour attack (Dusmanu et al. 2021, section 4.2): the database entry nearest to the subspace.

Knows:      descriptors of its own.
Breaks:     random lifting: a random subspace meets the real descriptors near the hidden one only.
Fails:      where confounders are in the subspace: the nearest entry is then mostly near one of those.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from featveil.attacks.knowledge import Guess, Knowledge
from featveil.attacks.subspaces import database_of, subspaces_of
from featveil.core import PrivateFeatures, Subspaces
from featveil.distances import nearest


@dataclass(frozen=True)
class NearestNeighbour:
    """Take the nearest entry for the hidden descriptor."""

    name: ClassVar[str] = "nearest"
    summary: ClassVar[str] = "the entry of its own database nearest to the subspace"
    breaks: ClassVar[tuple[type, ...]] = (Subspaces,)
    needs: ClassVar[tuple[str, ...]] = ("database",)
    uses: ClassVar[tuple[str, ...]] = ()
    alone: ClassVar[bool] = True

    def run(self, seen: PrivateFeatures, knowledge: Knowledge, rng: np.random.Generator) -> Guess:
        """The nearest entry, by point-to-subspace distance."""
        database = database_of(knowledge)
        entries = nearest(subspaces_of(seen), database.as_points, 1).indices[:, 0]
        return Guess.all_of(database.unit(entries))
