"""An attack of one's own, without a package: register it, then attack, or audit, as with any other.

Example: python examples/register_attack.py photo.jpg
"""

import sys
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

import featveil as fv


@fv.register
@dataclass(frozen=True)
class Offset:
    """Guesses the point that a subspace is stored with.

    Source:     this example.
    Knows:      nothing.
    Breaks:     a few features, where the point that lifting drew lies near the descriptor by luck.
    Fails:      on nearly all. An attack that beats it has learned something.
    """

    name: ClassVar[str] = "offset"
    summary: ClassVar[str] = "the point that the subspace is stored with"
    breaks: ClassVar[tuple[type, ...]] = (fv.Subspaces,)
    needs: ClassVar[tuple[str, ...]] = ()
    uses: ClassVar[tuple[str, ...]] = ()
    alone: ClassVar[bool] = True

    def run(self, seen: fv.PrivateFeatures, knowledge: fv.Knowledge, rng: np.random.Generator) -> fv.Guess:
        """One guess for each private feature."""
        assert isinstance(seen.descriptors, fv.Subspaces)
        return fv.Guess.all_of(seen.descriptors.offset)


def main(photo: str) -> None:
    """Release the features of a photograph, and attack the release."""
    features = fv.extract(photo, max_features=200)
    private = fv.privatize(features, fv.Lifting(dimension=4))
    for name in ("chance", "offset", "mean", "nearest"):
        outcome = fv.leakage(private, features, name)
        print(f"{name:8} {outcome.leakage.below_near:6.1%} of the features recovered")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        print("usage: python examples/register_attack.py PHOTO", file=sys.stderr)
        sys.exit(2)
    main(sys.argv[1])
