"""PrivateFeatures -> Guess: one file per attack, each saying what its adversary knows, and `chance`."""

from typing import Any

import numpy as np

from featveil.attacks.chance import Chance
from featveil.attacks.knowledge import MEANINGS, Attack, Guess, Knowledge
from featveil.attacks.nearest import NearestNeighbour
from featveil.attacks.read import Read
from featveil.core import Descriptors, InputError, PrivateFeatures, Subspaces, WordSets

__all__ = [
    "ATTACKS",
    "MEANINGS",
    "Attack",
    "Chance",
    "Guess",
    "Knowledge",
    "NearestNeighbour",
    "attack",
    "check_applies",
]

ATTACKS: dict[str, Any] = {made.name: made for made in (Chance, Read, NearestNeighbour)}

_CALLED = {Subspaces: "subspaces (lifting)", WordSets: "word sets (subset, metric)"}


def attack(
    private: PrivateFeatures, method: Attack, knowledge: Knowledge, rng: np.random.Generator | None = None
) -> Guess:
    """What `method` makes of `private` with that part of `knowledge` which it declares.

    Raises InputError when it does not apply to the representation, misses something it needs, or is given descriptors
    of another kind.
    """
    check_applies(private.descriptors, method)
    for name in method.needs:
        if not knowledge.has(name):
            raise InputError(f"attack {method.name} needs {name.replace('_', ' ')}: {MEANINGS[name]}")
    known = knowledge.only((*method.needs, *method.uses))
    known.check_kind(private.kind)
    if len(private) == 0:
        raise InputError("there is no feature to attack")
    guess = method.run(private, known, np.random.default_rng() if rng is None else rng)
    if len(guess) != len(private):
        raise InputError(f"attack {method.name} answered {len(guess)} of {len(private)} features")
    return guess


def check_applies(descriptors: Descriptors, method: Attack) -> None:
    """Raise InputError unless `method` is one on such descriptors."""
    if not isinstance(descriptors, method.breaks):
        applies = " and ".join(_CALLED.get(kind, "descriptors sent as they are") for kind in method.breaks)
        found = _CALLED.get(type(descriptors), "descriptors sent as they are")
        raise InputError(f"attack {method.name} is on {applies}; these are {found}")
