"""What an adversary is given, what it answers, and how an attack says what it needs.

Everything but the private features themselves reaches an attack through `Knowledge`, cut down to what the attack
declares: an attack that does not declare the truth cannot see it.
"""

from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from featveil.core import (
    ConcealingNetwork,
    Features,
    InputError,
    MapPoints,
    Points,
    PrivateFeatures,
    Subspaces,
    WordSets,
)
from featveil.core.arrays import Float32, Integers, floats, integers
from featveil.databases import ConcealedDatabase, Database, conceal_database
from featveil.gate import Sketch

MEANINGS = {
    "database": "real descriptors of its own, from photographs that have nothing to do with the victim's",
    "lifting_database": "the database that lifting drew its confounders from",
    "codebook": "the codebook of the word sets, which is public",
    "others": "other private images that were lifted with the same database",
    "repeats": "further releases of the same features",
    "reference": "features, raw or private, of another image of the same place",
    "network": "the concealing network, which is in every client",
    "sketch": "the sketch of the map, which every device has; the map's owner also has its exact descriptors",
    "truth": "the hidden descriptors: no adversary has them",
}

REPRESENTATIONS = {
    Points: "points (sent as they are, or concealed)",
    Subspaces: "subspaces (lifting)",
    WordSets: "word sets (subset, metric)",
    MapPoints: "map points (gate)",
}


@dataclass(frozen=True, eq=False)
class Knowledge:
    """What an adversary has beside the private features; MEANINGS says what each field is.

    None, or an empty tuple, where it has nothing. `truth` is in the order of the private features.
    """

    database: Database | None = None
    lifting_database: Database | None = None
    codebook: Database | None = None
    others: tuple[PrivateFeatures, ...] = ()
    repeats: tuple[PrivateFeatures, ...] = ()
    reference: Features | PrivateFeatures | None = None
    network: ConcealingNetwork | None = None
    sketch: Sketch | None = None
    truth: Points | None = None

    def has(self, name: str) -> bool:
        """Whether there is anything of that name."""
        return getattr(self, name) not in (None, ())

    def only(self, names: tuple[str, ...]) -> Self:
        """The same knowledge without everything that is not in `names`."""
        return type(self)(**{name: getattr(self, name) for name in names})

    def concealed(self, network: ConcealingNetwork) -> Self:
        """The same in the space of what `network` gives: what is raw is concealed, the truth too.

        No map is sketched in that space. Raises InputError for what is of another kind than the network's.
        """
        changes: dict[str, Any] = {"network": None, "sketch": None}
        for name in ("database", "lifting_database", "codebook"):
            database = getattr(self, name)
            changes[name] = None if database is None else conceal_database(database, network)
        if isinstance(self.reference, Features) and self.reference.kind != network.concealed_kind:
            changes["reference"] = network.conceal(self.reference)
        if self.truth is not None:
            changes["truth"] = Points(network.apply(self.truth.values))
        return replace(self, **changes)

    def unconcealed(self) -> Self:
        """The same with the raw databases that concealed ones were made of."""
        changes: dict[str, Any] = {}
        for name in ("database", "lifting_database", "codebook"):
            database = getattr(self, name)
            changes[name] = database.source if isinstance(database, ConcealedDatabase) else database
        return replace(self, **changes)

    def check_kind(self, kind: str) -> None:
        """Raise InputError when a part of it is of another descriptor kind."""
        for name in (field.name for field in fields(self) if field.name != "truth"):
            known = getattr(self, name)
            for part in known if isinstance(known, tuple) else (known,):
                if part is not None and part.kind != kind:
                    raise InputError(
                        f"the {name.replace('_', ' ')} holds {part.kind} descriptors, the private features are {kind}:"
                        f" give one of {kind}"
                    )


@dataclass(frozen=True, eq=False, repr=False)
class Guess:
    """What an attack makes of n private features: `values` (n, d), an estimate of every hidden (raw) descriptor.

    `released` (n, d) is the estimate of the concealed descriptor that it was made from, where there was a concealer.
    `answered` (n,) is False where the attack found nothing and `values` holds a fallback. `words` (n,) are the guessed
    words of attacks on word sets. `note` is one line that a reader of the result should know, or empty.
    """

    values: Float32
    answered: NDArray[np.bool_]
    words: Integers | None = None
    note: str = ""
    released: Float32 | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "values", floats("guessed descriptors", self.values, (None, None)))
        if self.released is not None:
            object.__setattr__(self, "released", floats("guessed descriptors", self.released, self.values.shape))
        if self.answered.shape != self.values.shape[:1] or self.answered.dtype != np.bool_:
            raise InputError("a guess says for each descriptor whether it was answered")
        if self.words is not None:
            object.__setattr__(self, "words", integers("guessed words", self.words, self.values.shape[:1]))

    def __len__(self) -> int:
        return len(self.values)

    @classmethod
    def all_of(cls, values: Any, words: Any = None, note: str = "") -> Self:
        """A guess that answers every feature."""
        return cls(values, np.ones(len(values), np.bool_), words, note)


class Attack(Protocol):
    """Recovers hidden descriptors. Its fields are its parameters; what it knows comes with each run.

    `needs` and `uses` name fields of Knowledge: those it cannot do without, and those it makes use of where they are
    there. `breaks` are the representations that it applies to. `alone`: each feature is attacked by itself, so that a
    sample of the features tells as much as all of them.
    """

    name: ClassVar[str]
    summary: ClassVar[str]
    breaks: ClassVar[tuple[type, ...]]
    needs: ClassVar[tuple[str, ...]]
    uses: ClassVar[tuple[str, ...]]
    alone: ClassVar[bool]

    def run(self, seen: PrivateFeatures, knowledge: Knowledge, rng: np.random.Generator) -> Guess:
        """One guess for each private feature."""
        ...


def check_count(name: str, value: int) -> None:
    """Raise InputError unless `value`, the parameter `name` of an attack, is a whole number of at least 1."""
    if type(value) is not int or value < 1:
        raise InputError(f"{name} must be a whole number of at least 1, got {value!r}")
