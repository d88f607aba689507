"""How long and how the three stages of a concealer are trained. No torch here: a command may ask before it is there."""

import math
from dataclasses import asdict, dataclass
from typing import Any

from featveil.core.errors import InputError

STAGES = ("utility", "reconstruction", "joint")
_USUAL = "small"
_FEWEST_PAIRS = 2  # a hardest negative is one of the others


@dataclass(frozen=True)
class Stage:
    """`steps` of a stage, with `pairs` of patches, `pieces` of photographs and a learning `rate` each."""

    steps: int
    rate: float
    pairs: int = 0
    pieces: int = 0


@dataclass(frozen=True)
class Preset:
    """How the three stages are trained. `selects`: the state with the best FPR95 is kept, not the last.

    `inverter` is the size of the inverter that is trained along, `second_order` the weight of second-order similarity.
    Raises InputError for stages without steps or data, and for a weight below 0.
    """

    utility: Stage
    reconstruction: Stage
    joint: Stage
    selects: bool = False
    inverter: str = _USUAL
    second_order: float = 1.0

    def __post_init__(self) -> None:
        for stage in (self.utility, self.reconstruction, self.joint):
            if stage.steps < 1 or not 0 < stage.rate < 1:
                raise InputError("each stage has at least one step and a rate between 0 and 1")
        if min(self.utility.pairs, self.joint.pairs) < _FEWEST_PAIRS:
            raise InputError(f"utility is learned from at least {_FEWEST_PAIRS} pairs of patches a step")
        if min(self.reconstruction.pieces, self.joint.pieces) < 1:
            raise InputError("reconstruction is learned from at least one piece of a photograph a step")
        if not 0 <= self.second_order < math.inf:
            raise InputError(f"the weight of second-order similarity must be at least 0, got {self.second_order}")

    def stated(self) -> dict[str, Any]:
        """For a checkpoint. What is as usual is not named, so that files from before there was a choice go on."""
        stated = asdict(self)
        if self.inverter == _USUAL:
            del stated["inverter"]
        if self.second_order == 1:
            del stated["second_order"]
        return stated


PRESETS = {
    "cpu": Preset(Stage(3000, 1e-3, pairs=512), Stage(1200, 1.2e-3, pieces=4), Stage(1200, 3e-4, 512, 4)),
    # Epochs of the paper counted in steps: 200 of liberty's pairs, 200 and 20 of MegaDepth.
    "paper": Preset(
        Stage(90_000, 1e-2, 1024),
        Stage(300_000, 1e-4, pieces=64),
        Stage(30_000, 1e-5, 968, 64),
        selects=True,
        inverter="paper",
    ),
}
