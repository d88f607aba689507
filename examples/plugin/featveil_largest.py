"""A defense and an attack of another package. Once it is installed, featveil's commands know both by name:

pip install examples/plugin
featveil privatize photo.jpg --out photo.veil --defense largest --kept 24
featveil attack photo.veil --with refill --truth photo.jpg
"""

from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np

import featveil as fv
from featveil.attacks.knowledge import Guess, Knowledge
from featveil.core import Randomness, Spec
from featveil.core.options import option


@dataclass(frozen=True)
class Largest:
    """Sends the largest components of each descriptor and zeros for the rest.

    Hides:          the small components.
    From:           someone who does not know what descriptors look like.
    Does not hide:  the large components, keypoint positions, the number of features.
    Known breaks:   attack refill.
    """

    name: ClassVar[str] = "largest"
    kept: int = option(32, help="components that are sent of each descriptor.")

    def __post_init__(self) -> None:
        if type(self.kept) is not int or self.kept < 1:
            raise fv.InputError(f"kept must be a whole number of at least 1, got {self.kept!r}")

    def for_kind(self, kind: str) -> Self:
        """Serves every kind."""
        return self

    def privatize(self, points: fv.Points, rng: Randomness, labels: object = None) -> fv.Points:
        """The descriptors, with zeros for all but the largest components."""
        if self.kept >= points.size:
            raise fv.InputError(f"kept must be below the descriptor size {points.size}, got {self.kept}")
        values = points.values.copy()
        small = np.argpartition(np.abs(values), points.size - self.kept, axis=1)[:, : points.size - self.kept]
        np.put_along_axis(values, small, 0.0, axis=1)
        return fv.Points(values)

    def guarantee(self) -> fv.Guarantee:
        """Nothing is proved."""
        return fv.Guarantee("empirical")

    def spec(self) -> Spec:
        """What is published with a release."""
        return {"name": self.name, "kept": self.kept}


@dataclass(frozen=True)
class Refill:
    """Fills the zeros with the components of the real descriptor that is most alike in the others.

    Source:     this example.
    Knows:      real descriptors of its own.
    Breaks:     defense largest.
    Fails:      where few components were sent.
    """

    name: ClassVar[str] = "refill"
    summary: ClassVar[str] = "zeros filled with the components of the most similar real descriptor"
    breaks: ClassVar[tuple[type, ...]] = (fv.Points,)
    needs: ClassVar[tuple[str, ...]] = ("database",)
    uses: ClassVar[tuple[str, ...]] = ()
    alone: ClassVar[bool] = True

    def run(self, seen: fv.PrivateFeatures, knowledge: Knowledge, rng: np.random.Generator) -> Guess:
        """One guess for each private feature."""
        assert knowledge.database is not None and isinstance(seen.descriptors, fv.Points)
        released, known = seen.descriptors.values, knowledge.database.points()
        guess = released.copy()
        for row, values in enumerate(released):
            sent = values != 0
            likest = known[((known[:, sent] - values[sent]) ** 2).sum(axis=1).argmin()]
            guess[row, ~sent] = likest[~sent]
        return Guess.all_of(guess)
