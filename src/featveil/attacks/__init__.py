"""PrivateFeatures -> Guess: one file per attack, each saying what its adversary knows, and `chance`."""

import numpy as np

from featveil.attacks.chance import Chance
from featveil.attacks.closest_pair import ClosestPair
from featveil.attacks.clustering import Clustering
from featveil.attacks.database import DatabaseAttack
from featveil.attacks.discriminator import Discriminator
from featveil.attacks.inlier import Inlier
from featveil.attacks.knowledge import MEANINGS, REPRESENTATIONS, Attack, Guess, Knowledge
from featveil.attacks.lattice import Lattice
from featveil.attacks.mean import Mean
from featveil.attacks.nearest import NearestNeighbour
from featveil.attacks.oracle import Oracle
from featveil.attacks.overlap import Overlap
from featveil.attacks.posterior import Posterior
from featveil.attacks.posterior_overlap import WordOverlap
from featveil.attacks.read import Read
from featveil.attacks.relift import Relift
from featveil.attacks.unconceal import Unconceal, in_two_steps, network_of
from featveil.attacks.unmix import Unmix
from featveil.attacks.vertex import Vertex
from featveil.core import Descriptors, InputError, MapPoints, PrivateFeatures, base_kind
from featveil.registry import ATTACKS

__all__ = [
    "ATTACKS",
    "MEANINGS",
    "REPRESENTATIONS",
    "Attack",
    "Chance",
    "ClosestPair",
    "Clustering",
    "DatabaseAttack",
    "Discriminator",
    "Guess",
    "Inlier",
    "Knowledge",
    "Lattice",
    "Mean",
    "NearestNeighbour",
    "Oracle",
    "Overlap",
    "Posterior",
    "Read",
    "Relift",
    "Unconceal",
    "Unmix",
    "Vertex",
    "WordOverlap",
    "attack",
    "check_applies",
    "known_to",
    "needs_of",
]


def attack(
    private: PrivateFeatures, method: Attack, knowledge: Knowledge, rng: np.random.Generator | None = None
) -> Guess:
    """What `method` makes of `private` with that part of `knowledge` which it declares.

    Behind a concealer it works on concealed descriptors, its knowledge being concealed too, and what it finds there is
    put through the way back (`Unconceal.undo`), for which the network and a raw database must be known. Raises
    InputError when it does not apply to the representation, misses something it needs, or is given descriptors of
    another kind.
    """
    check_applies(private.descriptors, method)
    for name in needs_of(private, method):
        if not knowledge.has(name):
            raise InputError(f"attack {method.name} needs {name.replace('_', ' ')}: {MEANINGS[name]}")
    behind, known = in_two_steps(private, method), known_to(private, method, knowledge)
    knowledge = knowledge.only((*needs_of(private, method), *method.uses))
    if len(private) == 0:
        raise InputError("there is no feature to attack")
    guess = method.run(private, known, np.random.default_rng() if rng is None else rng)
    if len(guess) != len(private):
        raise InputError(f"attack {method.name} answered {len(guess)} of {len(private)} features")
    return Unconceal().undo(guess, private, knowledge) if behind else guess


def known_to(private: PrivateFeatures, method: Attack, knowledge: Knowledge) -> Knowledge:
    """What `method` declares of `knowledge`, in the space that it works in; raises InputError for another kind."""
    known = knowledge.only((*method.needs, *method.uses))
    if not in_two_steps(private, method):
        known = known.unconcealed()
        known.check_kind(base_kind(private.kind))
        return known
    known = known.concealed(network_of(private, knowledge))
    known.check_kind(private.kind)
    return known


def needs_of(private: PrivateFeatures, method: Attack) -> tuple[str, ...]:
    """What `method` needs to know for `private`: behind a concealer also the way back, of map points their sketch."""
    behind = ("network", "database") if in_two_steps(private, method) else ()
    named = ("sketch",) if isinstance(private.descriptors, MapPoints) and "sketch" in method.uses else ()
    return tuple(dict.fromkeys((*method.needs, *behind, *named)))


def check_applies(descriptors: Descriptors, method: Attack) -> None:
    """Raise InputError unless `method` is one on such descriptors."""
    if not isinstance(descriptors, method.breaks):
        applies = " and ".join(REPRESENTATIONS[kind] for kind in method.breaks)
        raise InputError(f"attack {method.name} is on {applies}; these are {REPRESENTATIONS[type(descriptors)]}")
