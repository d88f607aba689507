"""No defense: the raw descriptors, as the end point of every table (ours, to compare with).

Hides:          nothing.
From:           nobody.
Does not hide:  anything.
Known breaks:   it is the break.
"""

from dataclasses import dataclass
from typing import Self

from featveil.core import Guarantee, Points, Randomness, Spec
from featveil.core.arrays import Integers


@dataclass(frozen=True)
class Identity:
    """Passes descriptors through. What it returns must not be sent; the file format refuses it."""

    def for_kind(self, kind: str) -> Self:
        """Serves every kind."""
        return self

    def privatize(self, points: Points, rng: Randomness, labels: Integers | None = None) -> Points:
        """The points themselves."""
        return points

    def guarantee(self) -> Guarantee:
        """None."""
        return Guarantee("none")

    def spec(self) -> Spec:
        """Only a name."""
        return {"name": "identity"}
