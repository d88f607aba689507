"""Attack and invert values in memory: what the commands `attack` and `invert` do with files."""

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from featveil.attacks import Attack, Guess, Knowledge
from featveil.attacks import attack as run
from featveil.core import Features, InputError, MapPoints, PrivateFeatures
from featveil.pipelines.adversary import NO_FILES, Adversary
from featveil.pipelines.scoring import Outcome, run_attack
from featveil.registry import make_attacks

if TYPE_CHECKING:
    from featveil.extractors.images import Image


def attack(
    private: PrivateFeatures,
    method: str | Attack,
    knowledge: Knowledge | None = None,
    rng: np.random.Generator | None = None,
) -> Guess:
    """What an attack, or the one of that name, makes of `private`: a guess of every hidden descriptor.

    Without `knowledge` the adversary has what comes with featveil: the built-in database, and the lifting database,
    codebook and network where `private` names the built-in ones. Raises InputError for an unknown name, and when the
    attack does not apply or misses something that it needs.
    """
    return run(private, named_attack(method), public_knowledge(private) if knowledge is None else knowledge, rng)


def leakage(
    private: PrivateFeatures,
    raw: Features,
    method: str | Attack,
    knowledge: Knowledge | None = None,
    rng: np.random.Generator | None = None,
) -> Outcome:
    """How near an attack comes to `raw`, which `private` was made of: its guess, and shares of the features.

    `leakage(...).leakage.below_near` is the share of features that it gets back. The attack sees no more than `attack`
    gives it. Raises InputError as that does, and when `raw` is not what `private` was made of.
    """
    known = public_knowledge(private) if knowledge is None else knowledge
    return run_attack(private, raw, named_attack(method), known, np.random.default_rng() if rng is None else rng)


def public_knowledge(private: PrivateFeatures) -> Knowledge:
    """What everyone has who has featveil; `dataclasses.replace` adds to it."""
    return Adversary(NO_FILES).knowledge(private, "")


def named_attack(method: str | Attack) -> Attack:
    """The attack itself, or the one of that name with its usual parameters."""
    if isinstance(method, str):
        chosen: list[Attack] = make_attacks([method])
        if len(chosen) > 1:
            raise InputError("all names every attack: run them one by one")
        return chosen[0]
    if not hasattr(method, "run") or isinstance(method, type):
        raise InputError(f"expected an attack or its name, got {method!r:.80}")
    return method


def invert(
    features: Features | PrivateFeatures,
    inverter: str | Path | None = None,
    guess: Guess | None = None,
    knowledge: Knowledge | None = None,
) -> "Image":
    """The picture (h, w, 3) uint8 that a network paints of features: what an attacker sees who has them.

    `inverter` is a file of `featveil train inverter`; without one the built-in inverter of raw SIFT is used. With a
    `guess` it paints what an attack made of private features. `knowledge` holds the sketch or the codebook that an
    inverter of map points or word sets reads them with; a built-in codebook is known anyway. Without inverter and guess
    points of a map are painted from the map's own descriptors. Raises InputError when the inverter was trained on other
    descriptors, and says how to get one.
    """
    from featveil.pipelines.painters import load_painter, paint, recovered, words_of

    seen: Features | PrivateFeatures = features
    if guess is None and inverter is None and isinstance(features, PrivateFeatures):
        guess = _own_descriptors(features, knowledge)
    if guess is not None:
        if not isinstance(features, PrivateFeatures):
            raise InputError("a guess is of private features: leave it out for raw ones")
        seen = recovered(features, guess)
    painter = load_painter(None if inverter is None else Path(inverter), seen.kind)
    words = None
    if isinstance(seen, PrivateFeatures):
        words = words_of(seen, public_knowledge(seen) if knowledge is None else knowledge)
    return paint(seen, painter, words)


def _own_descriptors(private: PrivateFeatures, knowledge: Knowledge | None) -> Guess | None:
    """The map's own descriptors for points of a map; None for others."""
    if not isinstance(private.descriptors, MapPoints):
        return None
    if knowledge is None or knowledge.sketch is None:
        raise InputError(
            "points of a map are painted from its sketch: give knowledge=Knowledge(sketch=load_sketch(...)), or an"
            " inverter that was trained on such"
        )
    return attack(private, "read", knowledge)
