"""Discriminator: of the points where a subspace meets the descriptors, a learned ranker says which is the real one.

Ours.
Knows:      descriptors of its own and the lifting algorithm; better, the lifting database too.
Breaks:     lifting whose confounders are not real descriptors: cluster centres, mixtures, random directions. Among
            real ones, those that come back in other features or belong to a known database; and, with scales and
            orientations, features that overlap others.
Fails:      where confounders are real descriptors, each used once, and keypoints do not overlap. Descriptors without
            zeros, such as learned ones, have no isolated candidates.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from featveil.attacks.database import confounders_of
from featveil.attacks.discriminator_parts.candidates import Candidates, Prior, energy, find_candidates
from featveil.attacks.discriminator_parts.context import in_context
from featveil.attacks.discriminator_parts.ranking import Ranker, Statistics
from featveil.attacks.knowledge import Guess, Knowledge, check_count
from featveil.attacks.subspaces import INSIDE, database_of, subspaces_of
from featveil.core import InputError, Points, PrivateFeatures, Subspaces
from featveil.core.arrays import Float32, Float64
from featveil.core.features import sent_by
from featveil.databases import Database
from featveil.databases.entries import QUANTIZED_KINDS, quantized, unit_rows
from featveil.defenses import Hardened, Lifting
from featveil.distances import nearest
from featveil.stores.pool import Pool

_POOL = 32768  # descriptors of its own that are made use of
_FEWEST = 20  # lists that a ranker is trained on; with less, candidates are ranked by their energy
_RIGHT = 0.3  # a list has a right answer if a candidate is that near to the hidden descriptor
_ENTRIES = 1024  # of each sort in the stand-in for a lifting database: real ones, and cluster centres, each a mean of
_AVERAGED = 9  # neighbouring descriptors
_PART = 1024  # entries of a sub-database, as in the paper
# A candidate that near to another subspace, or to a database entry in its own, is a confounder. Measured: 1 % of hidden
# descriptors are nearer than 0.12 to another subspace of the image (m = 8 and 16); 75 % of repeated confounders are.
_SHARED, _KNOWN = 0.1, 0.2
_RULED_OUT = 100.0  # log odds against such a candidate


@dataclass(frozen=True)
class Discriminator:
    """Rank the candidates of each subspace and take the best.

    The ranker learns from `examples` descriptors of the attacker's own, which it lifts as the release was. `starts`
    searches for candidates are made in each subspace. `context`: also weigh what the features say of each other.
    """

    examples: int = 600
    starts: int = 40
    context: bool = True

    name: ClassVar[str] = "discriminator"
    summary: ClassVar[str] = "searches the subspace for points like descriptors; a learned ranker picks one"
    breaks: ClassVar[tuple[type, ...]] = (Subspaces,)
    needs: ClassVar[tuple[str, ...]] = ("database",)
    uses: ClassVar[tuple[str, ...]] = ("lifting_database",)
    alone: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_count("examples", self.examples)
        check_count("starts", self.starts)
        if not isinstance(self.context, bool):
            raise InputError(f"context is true or false, got {self.context!r:.80}")

    def run(self, seen: PrivateFeatures, knowledge: Knowledge, rng: np.random.Generator) -> Guess:
        """The candidate that ranks first; a subspace always has one."""
        subspaces, lifting_database = subspaces_of(seen), knowledge.lifting_database
        own, lessons = self._divide(database_of(knowledge), rng)
        prior, statistics = Prior.of(own), Statistics.of(own, seen.kind)
        confounders = confounders_of(seen)
        ranker = None
        if len(lessons) >= _FEWEST:
            lifted = _lift(lessons, own, seen, lifting_database, rng)
            taught = find_candidates(lifted, prior, rng, self.starts)
            ruled_out = _confounders(taught, lifted, lifting_database, confounders)
            ranker = _train(taught, ruled_out, lessons, statistics)
        candidates = find_candidates(subspaces, prior, rng, self.starts)
        scores = (
            -energy(candidates.values, prior)
            if ranker is None
            else ranker.scores(_look(candidates, statistics), candidates.valid)
        )
        scores -= _RULED_OUT * _confounders(candidates, subspaces, lifting_database, confounders)
        scores = np.where(candidates.valid, scores, -np.inf)
        best = in_context(candidates.values, scores, seen, own, rng) if self.context else scores.argmax(axis=1)
        note = "" if ranker is not None else "its own database is too small to learn from: ranked by sparsity"
        return Guess.all_of(candidates.values[np.arange(len(best)), best], note=note)

    def _divide(self, database: Database, rng: np.random.Generator) -> tuple[Float32, Float32]:
        """Descriptors to learn what is usual from, and others, to be lifted, to learn the ranking from."""
        # Each once: a descriptor cannot be lifted through itself.
        different = np.unique(database.values[rng.permutation(len(database))[:_POOL]], axis=0)
        chosen = unit_rows(rng.permutation(different))
        lessons = min(self.examples, len(chosen) // 4)
        return chosen[lessons:], chosen[:lessons]


def _lift(
    lessons: Float32, own: Float32, seen: PrivateFeatures, database: Database | None, rng: np.random.Generator
) -> Subspaces:
    """The attacker's descriptors `lessons` (e, d), lifted as the release was.

    Where it does not know the lifting database, its `own` descriptors (s, d) and means of neighbouring ones stand in:
    with means alone, the ranker would be sure of itself among real ones too.
    """
    m, confounders = subspaces_of(seen).dimension, confounders_of(seen)
    if sent_by(seen.defense) == "hardened" and len(own) >= confounders * len(lessons):
        pool = Pool.in_memory(own, seen.kind, rng)
        return Hardened(confounders, m, pool).privatize(Points(lessons), rng)
    parted = str(seen.defense.get("strategy")).startswith("sub-")
    if confounders and (database is None or len(database) // (database.parts if parted else 1) < confounders):
        entries = rng.permutation(np.concatenate([_centres(own, seen.kind), own[-_ENTRIES:]]))
        database = Database(entries, seen.kind, max(1, len(entries) // _PART))
    strategy = "sub-hybrid" if parted else "hybrid"
    lifting = Lifting(strategy, m, (m - confounders) / m, database if confounders else None, allow_line=True)
    return lifting.privatize(Points(lessons), rng)


def _centres(own: Float32, kind: str) -> Float32:
    """Means of neighbouring descriptors of `own` (s, d), rounded as a SIFT database is, of which RootSIFT is made."""
    rooted = kind == "rootsift"
    flat = unit_rows(own**2) if rooted else own
    means = flat[nearest(Points(flat[:_ENTRIES]), Points(flat), min(_AVERAGED, len(flat))).indices].mean(axis=1)
    rounded = quantized(means) if kind in QUANTIZED_KINDS else means
    return unit_rows(np.sqrt(rounded.astype(np.float32)) if rooted else rounded)


def _train(taught: Candidates, ruled_out: NDArray[np.bool_], lessons: Float32, statistics: Statistics) -> Ranker | None:
    """A ranker of candidates that were not ruled out, from the lists that hold what was lifted; None for too few."""
    errors = np.where(taught.valid, np.linalg.norm(taught.values - lessons[:, None], axis=2), np.inf)
    real = errors.argmin(axis=1)
    valid = taught.valid & ~ruled_out
    valid[np.arange(len(real)), real] = True
    right = errors.min(axis=1) < _RIGHT
    if right.sum() < _FEWEST:
        return None
    return Ranker.fit(_look(taught, statistics)[right], valid[right], real[right])


def _look(candidates: Candidates, statistics: Statistics) -> Float64:
    """What candidates are ranked by (n, c, f): statistics, and how often the search ended there."""
    often = np.log(np.maximum(candidates.share, 1e-3))
    return np.concatenate([statistics(candidates.values), often[..., None]], axis=2)


def _confounders(
    candidates: Candidates, subspaces: Subspaces, database: Database | None, count: int
) -> NDArray[np.bool_]:
    """Which candidates (n, c) are known to be confounders: they lie in another subspace too, or in the database.

    Only the up to `count` entries of the database that lie in the subspace itself were drawn into it.
    """
    spotted = np.zeros(candidates.valid.shape, np.bool_)
    if count == 0:
        return spotted
    if len(subspaces) > 1:
        # The nearest subspace is the candidate's own, unless another is as near.
        others = nearest(Points(candidates.values[candidates.valid].astype(np.float32)), subspaces, 2).distances[:, 1]
        spotted[candidates.valid] = others < _SHARED
    if database is not None:
        inside = nearest(subspaces, database.as_points, min(count, len(database)))
        for place in range(inside.indices.shape[1]):
            entries = database.unit(inside.indices[:, place])
            near = np.linalg.norm(candidates.values - entries[:, None], axis=2) < _KNOWN
            spotted |= near & (inside.distances[:, place] < INSIDE)[:, None]
    return spotted
