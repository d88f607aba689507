"""What a release promises, and what that promise adds up to over an image."""

import math
from dataclasses import dataclass
from typing import Literal, Self, get_args

from featveil.core.errors import InputError

GuaranteeKind = Literal["none", "empirical", "local-dp", "metric-dp"]
GuaranteeUnit = Literal["descriptor", "image"]


@dataclass(frozen=True)
class Guarantee:
    """A privacy claim.

    `none`: nothing is hidden. `empirical`: to be judged by known attacks, nothing is proved. `local-dp` and
    `metric-dp`: a bound `epsilon` per `unit`, proved beside the code of the mechanism.
    """

    kind: GuaranteeKind
    epsilon: float | None = None
    unit: GuaranteeUnit = "descriptor"

    def __post_init__(self) -> None:
        if self.kind not in get_args(GuaranteeKind):
            raise InputError(f"guarantee kind must be one of {', '.join(get_args(GuaranteeKind))}")
        if self.unit not in get_args(GuaranteeUnit):
            raise InputError(f"guarantee unit must be one of {', '.join(get_args(GuaranteeUnit))}")
        proved = self.kind in ("local-dp", "metric-dp")
        if proved != (self.epsilon is not None):
            raise InputError("a differential-privacy guarantee has an epsilon; no other kind does")
        if self.epsilon is not None and (math.isnan(self.epsilon) or self.epsilon <= 0):
            raise InputError("epsilon must be greater than 0")

    def compose(self, n: int) -> Self:
        """The guarantee of an image with `n` independently released descriptors (basic composition)."""
        if self.epsilon is None or self.unit == "image":
            return type(self)(self.kind, self.epsilon, "image")
        return type(self)(self.kind, self.epsilon * max(n, 1), "image")
