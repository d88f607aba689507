"""What an adversary is given, what it answers, and how an attack says what it needs.

Everything but the private features themselves reaches an attack through `Knowledge`, cut down to what the attack
declares: an attack that does not declare the truth cannot see it.
"""

from dataclasses import dataclass, fields
from typing import Any, ClassVar, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from featveil.core import Features, InputError, Points, PrivateFeatures, Subspaces, WordSets
from featveil.core.arrays import Float32, Integers, floats, integers
from featveil.databases import Database

MEANINGS = {
    "database": "real descriptors of its own, from photographs that have nothing to do with the victim's",
    "lifting_database": "the database that lifting drew its confounders from",
    "codebook": "the codebook of the word sets, which is public",
    "others": "other private images that were lifted with the same database",
    "repeats": "further releases of the same features",
    "reference": "features, raw or private, of another image of the same place",
    "truth": "the hidden descriptors: no adversary has them",
}

REPRESENTATIONS = {
    Points: "points (sent as they are)",
    Subspaces: "subspaces (lifting)",
    WordSets: "word sets (subset, metric)",
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
    truth: Points | None = None

    def has(self, name: str) -> bool:
        """Whether there is anything of that name."""
        return getattr(self, name) not in (None, ())

    def only(self, names: tuple[str, ...]) -> Self:
        """The same knowledge without everything that is not in `names`."""
        return type(self)(**{name: getattr(self, name) for name in names})

    def check_kind(self, kind: str) -> None:
        """Raise InputError when a part of it is of another descriptor kind."""
        for name in (field.name for field in fields(self) if field.name != "truth"):
            found = getattr(self, name)
            for part in found if isinstance(found, tuple) else (found,):
                if part is not None and part.kind != kind:
                    raise InputError(
                        f"the {name.replace('_', ' ')} holds {part.kind} descriptors, the private features are {kind}:"
                        f" give one of {kind}"
                    )


@dataclass(frozen=True, eq=False, repr=False)
class Guess:
    """What an attack makes of n private features: `values` (n, d), an estimate of every hidden descriptor.

    `answered` (n,) is False where the attack found nothing and `values` holds a fallback. `words` (n,) are the guessed
    words of attacks on word sets. `note` is one line that a reader of the result should know, or empty.
    """

    values: Float32
    answered: NDArray[np.bool_]
    words: Integers | None = None
    note: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "values", floats("guessed descriptors", self.values, (None, None)))
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
