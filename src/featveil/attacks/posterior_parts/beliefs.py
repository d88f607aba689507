"""Sum-product belief propagation over features that each choose one of a few candidates, or none of them."""

import numpy as np

from featveil.core.arrays import Float64, Integers

_ROUNDS = 12
_KEPT = 0.5  # of the last round's messages: without it they can swing for ever


def propagate(alone: Float64, first: Integers, second: Integers, fit: Float64) -> Float64:
    """Probabilities (n, c + 1) of each feature's candidates, the last for none of them.

    `alone` (n, c + 1) are the logarithms of those without neighbours, `fit` (p, c, c) the logarithms of how much
    likelier candidates of features `first` (p,) and `second` are together than apart. Where both orders of a pair are
    given their mean counts. None fits as well with anything.
    """
    left, right, fit = _undirected(first, second, fit)
    factor = np.ones((len(left), alone.shape[1], alone.shape[1]))
    factor[:, :-1, :-1] = np.exp(fit)
    to_left, to_right = np.zeros((len(left), alone.shape[1])), np.zeros((len(left), alone.shape[1]))
    for _ in range(_ROUNDS):
        belief = _gather(alone, left, right, to_left, to_right)
        from_left, from_right = _normal(belief[left] - to_left), _normal(belief[right] - to_right)
        to_right = _KEPT * to_right + (1 - _KEPT) * _message(from_left, factor)
        to_left = _KEPT * to_left + (1 - _KEPT) * _message(from_right, factor.transpose(0, 2, 1))
    return _normal(_gather(alone, left, right, to_left, to_right))


def _undirected(first: Integers, second: Integers, fit: Float64) -> tuple[Integers, Integers, Float64]:
    """Each pair once, the lower feature first."""
    count = int(max(first.max(initial=0), second.max(initial=0))) + 1
    ordered = np.where((first < second)[:, None, None], fit, fit.transpose(0, 2, 1))
    pairs, place, given = np.unique(
        np.minimum(first, second) * count + np.maximum(first, second), return_inverse=True, return_counts=True
    )
    total = np.zeros((len(pairs), *fit.shape[1:]))
    np.add.at(total, place, ordered)
    return pairs // count, pairs % count, total / given[:, None, None]


def _gather(alone: Float64, left: Integers, right: Integers, to_left: Float64, to_right: Float64) -> Float64:
    belief = alone.copy()
    np.add.at(belief, left, to_left)
    np.add.at(belief, right, to_right)
    return belief


def _message(sender: Float64, factor: Float64) -> Float64:
    """Logarithms (p, c + 1), those of none at zero."""
    message = np.log(np.einsum("pa,pab->pb", sender, factor))
    return np.asarray(message - message[:, -1:])


def _normal(logs: Float64) -> Float64:
    scaled = np.exp(logs - logs.max(axis=1, keepdims=True))
    return np.asarray(scaled / scaled.sum(axis=1, keepdims=True))
