"""Closest pair of points of two matched subspaces (Dusmanu et al. 2021, section 5, with Eq. 3 to 7).

Knows:      features, raw or lifted, of another image of the same place.
Breaks:     features that match: both subspaces hold the same descriptor, but for what changed between the views.
Fails:      on features without a true match, such as whatever moved. Subspaces that drew one sub-database meet in its
            entries, and the closest pair is then a confounder; `verified` leaves such matches out.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from featveil.attacks.knowledge import Guess, Knowledge
from featveil.attacks.subspaces import central, project, subspaces_of
from featveil.core import Features, Flats, InputError, Keypoints, Points, PrivateFeatures, Subspaces, WordSets
from featveil.core.arrays import Float64, Integers
from featveil.core.descriptors import as_flats
from featveil.geometry import agreeing, agreeing_by_chance, agreeing_candidates
from featveil.matching import NearestMatcher

# Bases are float32: along directions nearer to parallel than this, rounding decides where the closest pair is.
_PARALLEL = 1e-5
_PAIRS = 512  # whose systems are held at a time
# Matches of unrelated images agree about as often as shuffled ones, 4 to 8 times; true ones 11 times and more.
_BEYOND_CHANCE = 2
_SAMPLES = 10_000
_SAMPLES_FOR_CANDIDATES = 200_000  # few of many candidates are right, so it takes many to draw four of those


@dataclass(frozen=True)
class ClosestPair:
    """Take the point of the subspace nearest to the subspace (or raw descriptor) that it matches.

    `verified` keeps only matches that agree on one homography, which takes keypoints on both sides.
    """

    verified: bool = False

    name: ClassVar[str] = "closest-pair"
    summary: ClassVar[str] = "the point nearest to the feature's match in another image of the same place"
    breaks: ClassVar[tuple[type, ...]] = (Subspaces,)
    needs: ClassVar[tuple[str, ...]] = ("reference",)
    uses: ClassVar[tuple[str, ...]] = ()
    alone: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if not isinstance(self.verified, bool):
            raise InputError(f"verified is true or false, got {self.verified!r:.80}")

    def run(self, seen: PrivateFeatures, knowledge: Knowledge, rng: np.random.Generator) -> Guess:
        """The own side of the closest pair for mutual nearest neighbours; others get the fallback of `central`."""
        subspaces, reference = subspaces_of(seen), reference_of(knowledge)
        pairs = NearestMatcher().match(subspaces, comparable(reference)).indices
        note = f"{len(pairs)} matches"
        if self.verified:
            agree = verify(seen, reference, pairs)
            pairs, note = pairs[agree], agreement_note(agree, "matches")
        return meeting(subspaces, reference, pairs, note)


def meeting(subspaces: Subspaces, reference: Features | PrivateFeatures, pairs: Integers, note: str) -> Guess:
    """The guess that takes the closest points of `pairs` (k, 2) of features and references."""
    values, answered = central(subspaces, reference.kind), np.zeros(len(subspaces), np.bool_)
    rows = pairs[:, 0]
    values[rows] = own_side(subspaces, comparable(reference), pairs, values[rows])
    answered[rows] = True
    return Guess(values.astype(np.float32), answered, note=note)


def reference_of(knowledge: Knowledge) -> Features | PrivateFeatures:
    """The features of the other image, which `attack` has checked to be there."""
    if knowledge.reference is None:
        raise InputError("this attack needs a reference: features of another image of the same place")
    return knowledge.reference


def comparable(reference: Features | PrivateFeatures) -> Flats:
    """The descriptors of the other image; raises InputError for word sets, which have no distance to subspaces."""
    if isinstance(reference.descriptors, WordSets):
        raise InputError("a reference of word sets can be compared with word sets only: give raw or lifted features")
    return as_flats(reference.descriptors)


def own_side(subspaces: Subspaces, reference: Flats, pairs: Integers, start: Float64) -> Float64:
    """The first point x* (k, d) of the closest pair of each of `pairs` (k, 2) of subspaces and references.

    Where two subspaces share directions there are many: the one nearest to `start` (k, d), a point of the first. The
    middle of the pair, put back on the subspace, is x* again, and the hidden descriptor is in the subspace: x* is the
    best of the line between the two.
    """
    rows, columns = pairs.T
    if isinstance(reference, Points):
        return project(reference.values[columns].astype(np.float64), subspaces, rows)
    estimate = np.empty((len(pairs), subspaces.size))
    for first in range(0, len(pairs), _PAIRS):
        part = slice(first, first + _PAIRS)
        here = start[part]
        across = project(here, reference, columns[part]) - here
        own, other = (side.astype(np.float64) for side in (subspaces.basis[rows[part]], reference.basis[columns[part]]))
        estimate[part] = here + _step(own, other, across)
    return estimate


def _step(own: Float64, other: Float64, across: Float64) -> Float64:
    """From a point of the first subspace to x*; `across` (k, d) leads from there to a point of the second (Eq. 7)."""
    m = own.shape[1]
    both = np.concatenate([own, other], axis=1)  # with beta's sign turned, the matrix of Eq. 7 is symmetric
    coordinates = np.linalg.pinv(both @ both.transpose(0, 2, 1), _PARALLEL, hermitian=True) @ (both @ across[..., None])
    return np.asarray((coordinates[:, :m].transpose(0, 2, 1) @ own)[:, 0])


def verify(
    seen: PrivateFeatures, reference: Features | PrivateFeatures, pairs: Integers, several: bool = False
) -> NDArray[np.bool_]:
    """Which of `pairs` (k, 2) agree on one homography: none where no more do than would by chance.

    `several`: a feature may have several candidates. Raises InputError where a side has no keypoints.
    """
    places = _positions(seen.keypoints)[pairs[:, 0]], _positions(reference.keypoints)[pairs[:, 1]]
    if len(pairs) < 4:
        return np.zeros(len(pairs), np.bool_)
    samples = _SAMPLES_FOR_CANDIDATES if several else _SAMPLES
    agree = agreeing_candidates(*places, samples) if several else agreeing(*places)
    if agree.sum() <= _BEYOND_CHANCE * agreeing_by_chance(*places, samples):
        return np.zeros(len(pairs), np.bool_)
    if several:  # features of several orientations share a place, of which only one was counted
        number = np.unique(np.concatenate(places, axis=1), axis=0, return_inverse=True)[1].reshape(-1)
        agree = np.isin(number, number[agree])
    return agree


def agreement_note(agree: NDArray[np.bool_], called: str) -> str:
    """The note of a guess that rests on verified matches."""
    if not agree.any():
        return f"none of {len(agree)} {called} agree on one homography beyond chance"
    return f"{int(agree.sum())} of {len(agree)} {called} agree on one homography"


def _positions(keypoints: Keypoints | None) -> NDArray[np.float32]:
    if keypoints is None:
        raise InputError("geometric verification needs keypoints in the private features and in the reference")
    return keypoints.xy
