"""Private features to attack, and what an attacker may know, without any file beyond what the package ships.

Victims are features of one of the demo's two pictures; the attacker's own descriptors come from the other and from the
built-in database. Everything is cached: make no change to what these return.
"""

from functools import cache

import numpy as np

from featveil.attacks import Knowledge
from featveil.core import Features, PrivateFeatures
from featveil.core.arrays import Integers
from featveil.databases import Database, builtin
from featveil.datasets.board import views
from featveil.defenses import Lifting, privatize
from featveil.extractors import extract
from featveil.metrics import align


@cache
def picture(number: int = 0, kind: str = "sift", count: int = 400) -> Features:
    """Raw features of one of the demo's pictures, the strongest `count`."""
    return extract(views()[number], kind, count)


@cache
def lifted(
    strategy: str = "sub-hybrid",
    dimension: int = 4,
    *,
    kind: str = "sift",
    seed: int = 0,
    count: int = 400,
    keep_geometry: bool = False,
) -> PrivateFeatures:
    """Picture 0, lifted with the built-in database; `seed` makes another release."""
    rng = np.random.default_rng([seed, dimension])
    features = picture(0, kind, count)
    return privatize(features, Lifting(strategy, dimension), rng=rng, keep_geometry=keep_geometry)


def truth_of(private: PrivateFeatures, count: int = 400) -> Knowledge:
    """The hidden descriptors of a release of picture 0, as only the oracle knows them."""
    return Knowledge(truth=align(private, picture(0, private.kind, count)).points)


@cache
def own_database(kind: str = "sift", near_victim: bool = True) -> Database:
    """The attacker's: descriptors of picture 1, which shows the same board (`near_victim`), or half of the built-in."""
    rng = np.random.default_rng(1)
    if near_victim:
        return Database.from_array(picture(1, kind, 2000).descriptors.values, kind, 1, rng=rng)
    values = builtin(kind).points()
    return Database.from_array(values[rng.permutation(len(values))[:4000]], kind, 1, rng=rng)


def strangers(private: PrivateFeatures, rng: np.random.Generator) -> PrivateFeatures:
    """The same release with its descriptors dealt to other places: what they say of each other is destroyed."""
    order: Integers = rng.permutation(len(private))
    return PrivateFeatures(
        private.descriptors.take(order),
        private.kind,
        private.defense,
        private.guarantee,
        private.keypoints,
        private.image_size,
    )
