"""The network that conceals descriptors: y = normalise(W2 relu(W1 x + b1) + b2).

NinjaNet with one submodule (Ng et al. 2022, section 3.1) as it runs on a device: dropout is gone and batch
normalisation folded into the weights. The network is public: every client has it.
"""

import hashlib
import json
import math
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from featveil.core.arrays import Float32, Floats, floats
from featveil.core.descriptors import Points
from featveil.core.errors import InputError
from featveil.core.features import Features, check_kind
from featveil.core.kinds import concealed_kind

MOST_WEIGHTS = 2**24  # of each matrix
_LARGEST_SIZE = 4096  # of descriptors
_LARGEST_WEIGHT = 1e4  # sums of squares of what such weights give still fit float32
_SMALLEST_NORM = 1e-18
_ROWS = 4096  # of descriptors whose hidden values are held at a time


@dataclass(frozen=True, eq=False)
class ConcealingNetwork:
    """Weights `hidden_weight` (h, d), `hidden_bias` (h,), `output_weight` (d, h), `output_bias` (d,), float32.

    It was trained for descriptors of `kind` with privacy parameter `lambda_`; `card` says on what, how and how well.
    Raises InputError for weights that do not fit each other, are too many, too large or not finite.
    """

    hidden_weight: Float32 = field(repr=False)
    hidden_bias: Float32 = field(repr=False)
    output_weight: Float32 = field(repr=False)
    output_bias: Float32 = field(repr=False)
    kind: str
    lambda_: float = 0.0
    card: dict[str, Any] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        hidden = floats("hidden weights", self.hidden_weight, (None, None))
        h, d = hidden.shape
        if not 1 <= d <= _LARGEST_SIZE or h < 1 or h * d > MOST_WEIGHTS:
            raise InputError(
                f"a concealing network has descriptors of size 1 to {_LARGEST_SIZE} and at most {MOST_WEIGHTS} hidden"
                f" weights, got hidden weights {hidden.shape}"
            )
        object.__setattr__(self, "hidden_weight", hidden)
        shapes: dict[str, tuple[int, ...]] = {"hidden_bias": (h,), "output_weight": (d, h), "output_bias": (d,)}
        for name, shape in shapes.items():
            object.__setattr__(self, name, floats(name.replace("_", " "), getattr(self, name), shape))
        if max(float(np.abs(weights).max()) for weights in self._weights) > _LARGEST_WEIGHT:
            raise InputError(f"the weights of a concealing network must lie within {_LARGEST_WEIGHT:g}")
        check_kind(self.kind)
        if isinstance(self.lambda_, bool) or not isinstance(self.lambda_, int | float):
            raise InputError(f"lambda must be a number, got {type(self.lambda_).__name__}")
        if not 0 <= self.lambda_ < math.inf:
            raise InputError("lambda must be a number of at least 0")
        object.__setattr__(self, "lambda_", float(self.lambda_))
        check_kind(self.concealed_kind)  # leaves less room for the name of the raw kind

    @property
    def size(self) -> int:
        """Descriptor size d, before and after."""
        return int(self.hidden_weight.shape[1])

    @cached_property
    def digest(self) -> str:
        """SHA-256 (hex) of kind and weights, which decide all that it does: the public name of this network."""
        header = {"kind": self.kind, "shape": list(self.hidden_weight.shape)}
        digest = hashlib.sha256(json.dumps(header, sort_keys=True).encode() + b"\n")
        for weights in self._weights:
            digest.update(np.ascontiguousarray(weights, "<f4").data)
        return digest.hexdigest()

    @property
    def name(self) -> str:
        """A short name for tables, by lambda and digest: concealer-2.5-1a2b3c4d."""
        return f"concealer-{self.lambda_:g}-{self.digest[:8]}"

    @cached_property
    def concealed_kind(self) -> str:
        """The kind of what it gives."""
        return concealed_kind(self.kind, self.digest)

    def apply(self, values: Floats) -> Float32:
        """Concealed descriptors (n, d) of norm 1, of raw ones (n, d), which are taken at norm 1.

        Raises InputError for another size, and where a descriptor or what becomes of it has no direction.
        """
        if values.ndim != 2 or values.shape[1] != self.size:
            raise InputError(f"this network takes descriptors of size {self.size}, got shape {values.shape}")
        concealed = np.empty(values.shape, np.float32)
        for start in range(0, len(values), _ROWS):
            part = slice(start, start + _ROWS)
            hidden = _normalised(values[part], "a descriptor has zero norm: remove it first") @ self.hidden_weight.T
            hidden += self.hidden_bias
            np.maximum(hidden, 0, out=hidden)
            reason = "this network leaves nothing of a descriptor: use another network"
            concealed[part] = _normalised(hidden @ self.output_weight.T + self.output_bias, reason)
        return concealed

    def conceal(self, features: Features) -> Features:
        """`features` with concealed descriptors: for a map or another image that private ones are matched with.

        They are of the network's `concealed_kind`. Whoever has them still has the image: this is no release.
        """
        if features.kind != self.kind:
            raise InputError(f"this network conceals {self.kind} descriptors, the features are {features.kind}")
        points = Points(self.apply(features.descriptors.values))
        return Features(points, self.concealed_kind, features.keypoints, features.image_size, features.labels)

    @property
    def _weights(self) -> tuple[Float32, ...]:
        return self.hidden_weight, self.hidden_bias, self.output_weight, self.output_bias


def _normalised(rows: Floats, otherwise: str) -> Float32:
    """`rows` (n, d) at norm 1; raises InputError with the text `otherwise` where one has no direction."""
    norms = np.sqrt(np.einsum("ij,ij->i", rows, rows, dtype=np.float64))
    if len(norms) and not norms.min() >= _SMALLEST_NORM:
        raise InputError(otherwise)
    return np.asarray(rows / norms[:, None], np.float32)
