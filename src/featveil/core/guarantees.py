"""What a release promises, and what that promise adds up to over an image."""

import math
from dataclasses import dataclass
from typing import Literal, Self, get_args

from featveil.core.errors import InputError

GuaranteeKind = Literal["none", "empirical", "local-dp", "metric-dp", "map-known"]
GuaranteeUnit = Literal["descriptor", "image"]
LARGEST_TAU = 2.0  # no two descriptors of norm 1 are farther apart


@dataclass(frozen=True)
class Guarantee:
    """A privacy claim.

    `none`: nothing is hidden. `empirical`: to be judged by known attacks, nothing is proved. `local-dp` and
    `metric-dp`: a bound `epsilon` per `unit`, proved beside the code of the mechanism. `map-known`: features farther
    than `tau` from everything that a sketch of a map holds leave no trace; with an `epsilon` the others are hidden too.
    """

    kind: GuaranteeKind
    epsilon: float | None = None
    unit: GuaranteeUnit = "descriptor"
    tau: float | None = None

    def __post_init__(self) -> None:
        if self.kind not in get_args(GuaranteeKind):
            raise InputError(f"guarantee kind must be one of {', '.join(get_args(GuaranteeKind))}")
        if self.unit not in get_args(GuaranteeUnit):
            raise InputError(f"guarantee unit must be one of {', '.join(get_args(GuaranteeUnit))}")
        proved, gated = self.kind in ("local-dp", "metric-dp"), self.kind == "map-known"
        if not gated and proved != (self.epsilon is not None):
            raise InputError("a differential-privacy guarantee has an epsilon; no other kind does")
        if gated != (self.tau is not None):
            raise InputError("a map-known guarantee has a tau; no other kind does")
        if self.tau is not None and not 0 < self.tau <= LARGEST_TAU:
            raise InputError(f"tau is a distance above 0 and at most {LARGEST_TAU:g}")
        if self.epsilon is not None and (math.isnan(self.epsilon) or self.epsilon <= 0):
            raise InputError("epsilon must be greater than 0")

    def compose(self, n: int) -> Self:
        """The guarantee of an image with `n` independently released descriptors (basic composition)."""
        if self.epsilon is None or self.unit == "image":
            return type(self)(self.kind, self.epsilon, "image", self.tau)
        return type(self)(self.kind, self.epsilon * max(n, 1), "image", self.tau)
