"""Inlier attack (Pittaluga and Zhuang 2023, supplement S3.3): what survives geometric verification is revealed.

Knows:      features, raw or private, of another image of the same place; for word sets also the public codebook.
Breaks:     every representation that can be matched, on the part of the scene that both images show: the task that
            the features are for is itself the attack. With `by_position` also features that never matched, whatever
            their epsilon: once the view is known, keypoint positions say what they show.
Fails:      on whatever is not in the other image, such as people and other things that move; everywhere, where too
            few matches agree to be more than chance.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from scipy.spatial import KDTree

from featveil.attacks.closest_pair import agreement_note, comparable, meeting, reference_of, verify
from featveil.attacks.knowledge import Guess, Knowledge
from featveil.attacks.subspaces import project
from featveil.core import Features, InputError, Points, PrivateFeatures, Subspaces, WordSets
from featveil.core.arrays import Integers
from featveil.databases import Database, builtin, nearest_words
from featveil.geometry import find_homography
from featveil.matching import NearestMatcher, WordMatcher

_PIXELS = 1.0  # of two keypoints that the view lays on each other; at 3 a quarter of them show something else
_HORIZON = 1e-9  # what the homography sends beyond it has no place in the other image


@dataclass(frozen=True)
class Inlier:
    """Take for the hidden descriptor what its verified match says.

    Subspaces: their point nearest to the match. Points: the match, or its point nearest to what was sent. Word sets:
    the word that matched, and as value the raw descriptor of the match, which is nearer than the word; the word itself
    where the reference is private. `by_position` also takes the other features that the homography of the inliers puts
    on a feature of the reference (which must not be in word sets).
    """

    by_position: bool = False

    name: ClassVar[str] = "inlier"
    summary: ClassVar[str] = "what the match in another image of the same place says, where matches agree"
    breaks: ClassVar[tuple[type, ...]] = (Points, Subspaces, WordSets)
    needs: ClassVar[tuple[str, ...]] = ("reference",)
    uses: ClassVar[tuple[str, ...]] = ("codebook",)
    alone: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if not isinstance(self.by_position, bool):
            raise InputError(f"by_position is true or false, got {self.by_position!r:.80}")

    def run(self, seen: PrivateFeatures, knowledge: Knowledge, rng: np.random.Generator) -> Guess:
        """Only features whose match agrees with the others are answered, and by position those beside them."""
        reference, hidden = reference_of(knowledge), seen.descriptors
        if self.by_position and isinstance(reference.descriptors, WordSets):
            raise InputError("by_position needs a reference that is not in word sets: those name too many words")
        if isinstance(hidden, WordSets):
            codebook = builtin(seen.kind) if knowledge.codebook is None else knowledge.codebook
            matches = WordMatcher(codebook).match(hidden, reference.descriptors).indices
            pairs, note = self._inliers(seen, reference, matches)
            return _of_words(hidden, reference, codebook, pairs, rng, note)
        pairs, note = self._inliers(seen, reference, NearestMatcher().match(hidden, comparable(reference)).indices)
        if isinstance(hidden, Subspaces):
            return meeting(hidden, reference, pairs, note)
        if not isinstance(hidden, Points):
            raise InputError("attack inlier is on points, subspaces and word sets")
        return _of_points(hidden, reference, pairs, note)

    def _inliers(
        self, seen: PrivateFeatures, reference: Features | PrivateFeatures, matches: Integers
    ) -> tuple[Integers, str]:
        """The pairs (k, 2) to believe, and the note about them."""
        words = isinstance(seen.descriptors, WordSets)
        agree = verify(seen, reference, matches, several=words)
        pairs, note = matches[agree], agreement_note(agree, "candidate matches" if words else "matches")
        if self.by_position:
            beside = _beside(seen, reference, pairs)
            pairs, note = (
                np.concatenate([pairs, beside]),
                f"{note}, {len(beside)} more lie on a feature of the reference",
            )
        return pairs, note


def _beside(seen: PrivateFeatures, reference: Features | PrivateFeatures, pairs: Integers) -> Integers:
    """Further pairs (k, 2): features that the homography of `pairs` puts within _PIXELS of one of the reference."""
    nothing = np.empty((0, 2), np.int64)
    if seen.keypoints is None or reference.keypoints is None or len(pairs) == 0:
        return nothing
    view = find_homography(seen.keypoints.xy[pairs[:, 0]], reference.keypoints.xy[pairs[:, 1]]).matrix
    if view is None:
        return nothing
    rows = np.setdiff1d(np.arange(len(seen)), pairs[:, 0])
    moved = np.column_stack([seen.keypoints.xy[rows], np.ones(len(rows))]) @ view.T
    ahead = np.abs(moved[:, 2]) > _HORIZON
    away, columns = KDTree(reference.keypoints.xy).query(moved[ahead, :2] / moved[ahead, 2:])
    return np.asarray(np.stack([rows[ahead], columns], axis=1)[away < _PIXELS], np.int64)


def _of_points(sent: Points, reference: Features | PrivateFeatures, pairs: Integers, note: str) -> Guess:
    """The reference's side of the closest pair; what was sent where there is no inlier."""
    rows, columns = pairs.T
    values, answered = sent.values.copy(), np.zeros(len(sent), np.bool_)
    match comparable(reference):
        case Points() as others:
            values[rows] = others.values[columns]
        case Subspaces() as others:
            values[rows] = project(values[rows], others, columns)
    answered[rows] = True
    return Guess(values, answered, note=note)


def _of_words(
    sets: WordSets,
    reference: Features | PrivateFeatures,
    codebook: Database,
    pairs: Integers,
    rng: np.random.Generator,
    note: str,
) -> Guess:
    """The word of the match; a random one of the set where there is no inlier."""
    rows, columns = pairs.T
    words = sets.words[np.arange(len(sets)), rng.integers(0, sets.subset_size, size=len(sets))]
    match reference.descriptors:
        case WordSets() as others:
            words[rows] = _shared(sets.words[rows], others.words[columns])
        case Points() as others:
            words[rows] = nearest_words(others, codebook)[0][columns]
    values, answered = codebook.unit(words), np.zeros(len(sets), np.bool_)
    if isinstance(reference, Features):
        values[rows] = reference.descriptors.values[columns]
    answered[rows] = True
    return Guess(values, answered, words, note)


def _shared(first: Integers, second: Integers) -> Integers:
    """The first word (k,) of each row of `first` (k, k1) that is also in the row of `second` (k, k2)."""
    both = (first[:, :, None] == second[:, None, :]).any(axis=2)
    return np.asarray(first[np.arange(len(first)), both.argmax(axis=1)])
