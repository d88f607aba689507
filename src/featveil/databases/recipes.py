"""How a database is made: every choice that decides its content, and nothing else."""

from dataclasses import asdict, dataclass

from featveil.core.errors import InputError
from featveil.core.features import check_kind
from featveil.databases.entries import Card

# 10 million descriptors for 256,000 clusters in the paper.
DESCRIPTORS_PER_CLUSTER = 39

# Which of the independent random streams of one seed: the first word of the generator's entropy.
SAMPLING, CLUSTERING, SPLITTING = 1, 2, 3


@dataclass(frozen=True)
class Recipe:
    """`clusters` centroids of `kind` descriptors in `parts` sub-databases; 0 keeps every descriptor.

    At most `max_per_image` descriptors of an image are used, and of all those a random `max_descriptors` (by
    default 39 a cluster), clustered in `iterations` rounds. A database is public, so its randomness may have
    a `seed`.
    """

    kind: str = "sift"
    clusters: int = 16384
    parts: int = 16
    max_per_image: int = 1000
    max_descriptors: int | None = None
    iterations: int = 10
    seed: int = 0

    def __post_init__(self) -> None:
        check_kind(self.kind)
        smallest = {"clusters": 0, "parts": 1, "max_per_image": 1, "iterations": 1, "seed": 0}
        for name, least in smallest.items():
            if getattr(self, name) < least:
                raise InputError(f"{name} must be {least} or more, got {getattr(self, name)}")
        if self.clusters and self.parts > self.clusters:
            raise InputError(f"{self.clusters} clusters cannot be split into {self.parts} parts")
        if self.max_descriptors is not None and self.max_descriptors < max(self.clusters, 1):
            raise InputError(f"max_descriptors must be at least {max(self.clusters, 1)}, one for each cluster")

    @property
    def capacity(self) -> int | None:
        """How many descriptors are sampled; None for all."""
        if self.max_descriptors is not None:
            return self.max_descriptors
        return DESCRIPTORS_PER_CLUSTER * self.clusters if self.clusters else None

    def as_card(self) -> Card:
        """The recipe as a database card quotes it."""
        return {**asdict(self), "max_descriptors": self.capacity}
