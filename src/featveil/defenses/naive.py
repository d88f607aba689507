"""The subset mechanism on all descriptors there can be (Pittaluga and Zhuang 2023, section 5.2, "naive approach").

Hides:          everything: of 256^d descriptors, the true one is practically never sent.
From:           anyone, within e^epsilon: the mechanism of subset.md, whose proof this is, with all vectors as words.
Does not hide:  keypoint positions, the number of features.
Known breaks:   none, and no use either. It is the row of the tables that shows why a codebook is needed.
"""

import math
from dataclasses import dataclass
from typing import Self

import numpy as np

from featveil.core import Guarantee, InputError, Points, Randomness, Spec
from featveil.core.arrays import Integers
from featveil.core.options import option
from featveil.databases.entries import QUANTIZED_KINDS, quantized
from featveil.defenses.subset import EPSILON, check_epsilon, subset_coin

_BYTE = 256


@dataclass(frozen=True)
class Naive:
    """Randomised response over all vectors of d bytes: the descriptor, or with what is left any other one."""

    epsilon: float = option(**EPSILON)

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", check_epsilon(self.epsilon))

    def for_kind(self, kind: str) -> Self:
        """Serves kinds whose descriptors are bytes."""
        if kind not in QUANTIZED_KINDS:
            raise InputError(f"{kind} descriptors are not bytes: the naive mechanism serves sift and rootsift")
        return self

    def privatize(self, points: Points, rng: Randomness, labels: Integers | None = None) -> Points:
        """Vectors of bytes, one for each point, divided by 512 to have about norm 1 where they are descriptors."""
        true = quantized(points.values).astype(np.int64)
        kept = subset_coin(self.epsilon, _BYTE**points.size, 1).flip(len(points), rng)
        sent = rng.integers(0, _BYTE, size=true.shape)
        while (same := ~kept & (sent == true).all(axis=1)).any():
            sent[same] = rng.integers(0, _BYTE, size=(int(same.sum()), points.size))
        sent[kept] = true[kept]
        return Points(sent.astype(np.float32) * np.float32(1 / 512))

    def guarantee(self) -> Guarantee:
        """Local differential privacy of each descriptor, unless epsilon is infinite."""
        return Guarantee("none") if math.isinf(self.epsilon) else Guarantee("local-dp", float(self.epsilon))

    def spec(self) -> Spec:
        """Only epsilon."""
        return {"name": "naive", "epsilon": None if math.isinf(self.epsilon) else float(self.epsilon)}
