"""A small learned ranker: which of several points is a real descriptor.

Hand-made statistics of each point, standardised, with their squares, go into a conditional logistic regression: of the
points of one list exactly one is real. Statistics beyond the general ones are those of SIFT's layout (4 x 4 cells of 8
bins) and arithmetic (clipped at 0.2 and normalised again, then rounded to bytes).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from featveil.attacks.discriminator_parts.candidates import precision_of
from featveil.core import InputError
from featveil.core.arrays import Float64, Floats, Integers
from featveil.databases.entries import QUANTIZED_KINDS

_SIFT_SIZE = 128
_BYTES = 512  # the norm of a SIFT descriptor as bytes
_LEARNED = 8192  # descriptors are enough for a covariance
_WIDEST = 4.0  # standard deviations, beyond which a statistic says no more
_WEIGHT_DECAY = 1.0
_ROWS = 4096  # of points whose statistics are made at a time
_NEVER = -1e9


@dataclass(frozen=True, eq=False, repr=False)
class Statistics:
    """Makes statistics of points; what is usual was learned `of` real descriptors of that kind."""

    kind: str
    means: list[Float64]
    precisions: list[Float64]

    @classmethod
    def of(cls, values: Floats, kind: str) -> Self:
        """Learn from real descriptors (s, d); raises InputError for none."""
        if len(values) == 0:
            raise InputError("statistics are learned from at least one descriptor")
        scaled = [scale(values[:_LEARNED].astype(np.float64)) for scale in _SCALES]
        means = [part.mean(axis=0) for part in scaled]
        return cls(kind, means, [precision_of(part - mean) for part, mean in zip(scaled, means, strict=True)])

    def __call__(self, values: Floats) -> Float64:
        """Statistics (..., f) of points (..., d)."""
        flat = values.reshape(-1, values.shape[-1])
        parts = [self._of_rows(flat[row : row + _ROWS].astype(np.float64)) for row in range(0, len(flat), _ROWS)]
        return np.concatenate(parts).reshape(*values.shape[:-1], -1)

    def _of_rows(self, values: Float64) -> Float64:
        columns = _general(values)
        for scale, mean, precision in zip(_SCALES, self.means, self.precisions, strict=True):
            away = scale(values) - mean
            columns.append(np.log(((away @ precision) * away).sum(axis=1) + 1))
        if self.kind in QUANTIZED_KINDS and values.shape[1] == _SIFT_SIZE:
            columns += _layout(values)
            # RootSIFT is no integer vector, and its squares are none any more once a database has stored it as bytes.
            columns += _rounding(values) if self.kind == "sift" else []
        return np.stack(columns, axis=1)


# How descriptors are scaled before their Mahalanobis distance is taken: small components count more and more.
_SCALES: tuple[Callable[[Float64], Float64], ...] = (
    lambda values: values,
    lambda values: np.sqrt(np.maximum(values, 0) + 1e-3),
    lambda values: np.log(np.maximum(values, 0) + 3e-3),
)


def _general(values: Float64) -> list[Float64]:
    """Sparsity on several scales, negative parts, and the largest components."""
    positive, largest = np.maximum(values, 0), np.sort(values, axis=1)[:, :-9:-1]
    below = (np.minimum(values, 0) ** 2).sum(axis=1)
    top = np.maximum(largest[:, :1], 1e-9)
    columns = [np.log(positive**2 + small**2).sum(axis=1) for small in (0.03, 0.01, 0.003, 0.001)]
    columns += [(np.abs(values) < small).sum(axis=1) for small in (0.001, 0.004, 0.01)]
    columns += [np.log(below + 1e-6), values.min(axis=1), positive.sum(axis=1), largest[:, 0]]
    return [*columns, (largest / top).sum(axis=1), (values > 0.97 * top).sum(axis=1), (values > 0.2).sum(axis=1)]


def _layout(values: Float64) -> list[Float64]:
    """Differences between neighbouring bins, rows and columns, and the energy in the middle and at the corners."""
    cells = np.maximum(values, 0).reshape(-1, 4, 4, 8)
    energy = (cells**2).sum(axis=3)
    return [
        np.abs(cells - np.roll(cells, 1, axis=3)).sum(axis=(1, 2, 3)),
        np.abs(np.diff(cells, axis=1)).sum(axis=(1, 2, 3)),
        np.abs(np.diff(cells, axis=2)).sum(axis=(1, 2, 3)),
        energy[:, 1:3, 1:3].sum(axis=(1, 2)),
        energy[:, ::3, ::3].sum(axis=(1, 2)),
    ]


def _rounding(values: Float64) -> list[Float64]:
    """How far from whole numbers the components are, on the scale of bytes that suits them best."""
    positive = np.maximum(values, 0)
    unit = positive / np.maximum(np.linalg.norm(positive, axis=1, keepdims=True), 1e-9)
    top = np.maximum(unit.max(axis=1), 1e-9)
    far = np.full(len(values), 0.5)
    for more in (-2, -1, 0, 1, 2):  # the largest component is a whole number near 512 of itself
        scaled = unit * ((np.rint(_BYTES * top) + more) / top)[:, None]
        far = np.minimum(far, np.abs(scaled - np.rint(scaled)).mean(axis=1))
    return [far, np.log(far + 1e-3)]


@dataclass(frozen=True, eq=False, repr=False)
class Ranker:
    """Scores points by their statistics: `weights` of the standardised statistics and their squares."""

    mean: Float64
    spread: Float64
    weights: Float64

    @classmethod
    def fit(cls, statistics: Float64, valid: NDArray[np.bool_], real: Integers) -> Self:
        """Learn from lists of points: `statistics` (n, c, f), which places are taken (n, c), which is real (n,)."""
        if len(real) == 0:
            raise InputError("a ranker learns from at least one list of points")
        taken = statistics[valid]
        mean, spread = taken.mean(axis=0), taken.std(axis=0)
        blank = cls(mean, np.where(spread > 1e-9, spread, 1), np.zeros(2 * len(mean)))
        inputs = blank._inputs(statistics)
        rows = np.arange(len(real))

        def loss(weights: Float64) -> tuple[float, Float64]:
            scores = np.where(valid, inputs @ weights, _NEVER)
            chances = probabilities(scores)
            likelihood = np.log(np.maximum(chances[rows, real], 1e-300)).sum()
            gradient = inputs[rows, real].sum(axis=0) - np.einsum("nc,ncf->f", chances, inputs)
            return _WEIGHT_DECAY / 2 * weights @ weights - likelihood, _WEIGHT_DECAY * weights - gradient

        optimum: Any = minimize(loss, blank.weights, jac=True, method="L-BFGS-B", options={"maxiter": 300})
        return cls(blank.mean, blank.spread, optimum.x)

    def scores(self, statistics: Float64, valid: NDArray[np.bool_]) -> Float64:
        """Log odds (n, c), up to a constant of each list; very low where there is no point."""
        return np.where(valid, self._inputs(statistics) @ self.weights, _NEVER)

    def _inputs(self, statistics: Float64) -> Float64:
        standard = np.clip((statistics - self.mean) / self.spread, -_WIDEST, _WIDEST)
        return np.concatenate([standard, standard**2 / (_WIDEST - 1)], axis=-1)


def probabilities(scores: Float64) -> Float64:
    """Of each point to be the real one of its list (n, c)."""
    raised = np.exp(scores - scores.max(axis=1, keepdims=True))
    return np.asarray(raised / raised.sum(axis=1, keepdims=True))


@dataclass(frozen=True)
class Distinction:
    """How often a ranker picks the real one of a list, and how often chance does."""

    success: float
    chance: float
    count: int


def distinguish(lists: Floats, examples: Floats, reference: Floats, kind: str, rng: np.random.Generator) -> Distinction:
    """Whether real descriptors can be told from their confounders.

    `lists` (n, k+1, d): the real one first, which only the experimenter knows, then its confounders. The ranker learns
    from other lists, `examples` (n2, k2+1, d), made alike of other photographs, and from `reference` (s, d), real
    descriptors. Raises InputError for other shapes. Ties are broken by `rng`.
    """
    for name, part in (("lists", lists), ("examples", examples)):
        if part.ndim != 3 or len(part) == 0 or part.shape[1] < 2 or part.shape[2] != reference.shape[-1]:
            raise InputError(f"{name} are (n, k + 1, d): a real descriptor and at least one confounder each")
    statistics = Statistics.of(reference, kind)
    everywhere = np.ones(examples.shape[:2], np.bool_)
    ranker = Ranker.fit(statistics(examples), everywhere, np.zeros(len(examples), np.int64))
    scores = ranker.scores(statistics(lists), np.ones(lists.shape[:2], np.bool_))
    # The real one comes first in every list: without this, a tie would count as success.
    ties = rng.random(scores.shape)
    best = np.lexsort((ties, scores), axis=1)[:, -1]
    return Distinction(float((best == 0).mean()), 1 / lists.shape[1], len(lists))
