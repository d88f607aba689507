"""Which feature of one image is which of another."""

from dataclasses import dataclass

from featveil.core.arrays import Float32, Integers, floats, integers


@dataclass(frozen=True, eq=False)
class Matches:
    """Pairs of feature indices: `indices` (k, 2) int64, and their Euclidean `distances` (k,)."""

    indices: Integers
    distances: Float32

    def __post_init__(self) -> None:
        object.__setattr__(self, "indices", integers("match indices", self.indices, (None, 2)))
        object.__setattr__(self, "distances", floats("match distances", self.distances, (len(self.indices),)))

    def __len__(self) -> int:
        return len(self.indices)
