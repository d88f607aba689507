"""Attribute attacks: what a private descriptor still says about the person, such as gender or race.

That of Dusmanu et al. 2021 (section 4.3) is `databases.nearest_labels`: the K nearest descriptors that the attacker
has labels for, by point-to-subspace distance, vote. `TrainedLabels` is ours: the attacker lifts its own labelled
descriptors by the same defense and learns from those, so that whatever a defense does to labels is learned as well.
Knows:      labelled descriptors of other people; `TrainedLabels` also the defense.
Breaks:     lifting: nearest neighbours of a subspace include those of the hidden descriptor.
Fails:      where confounders are as many of each label, and cannot be told from the descriptor that they hide.
"""

from dataclasses import dataclass, field
from typing import Self

import numpy as np

from featveil.core import Flats, InputError, Points
from featveil.core.arrays import Float32, Float64, Integers
from featveil.databases.nearest_labels import checked_labels
from featveil.distances.orthonormal import orthonormalise

_CHUNK = 512
_RIDGES = tuple(10.0**power for power in range(-4, 4))  # times the mean squared length of a feature vector


@dataclass(frozen=True, eq=False)
class TrainedLabels:
    """Linear least squares on canonical features of a subspace, the ridge chosen by leaving each example out."""

    weights: Float64 | None = field(default=None, repr=False)
    middle: Float64 | None = field(default=None, repr=False)
    usual: Float64 | None = field(default=None, repr=False)

    def fit(self, known: Flats, labels: object) -> Self:
        """With descriptors that the attacker hid by the same defense, and a label (n,) for each, 0 or more."""
        return type(self)(*_fitted(canonical_features(known), [checked_labels(labels, len(known))])[0])

    def fit_many(self, known: Flats, labels: list[Integers]) -> list[Self]:
        """The same for several attributes at once, which costs little more than one."""
        features = canonical_features(known)
        return [
            type(self)(*fitted) for fitted in _fitted(features, [checked_labels(one, len(known)) for one in labels])
        ]

    def predict(self, seen: Flats) -> Integers:
        """A label (n,) for each of `seen`, hidden by the same defense."""
        return np.asarray(self.scores(canonical_features(seen)).argmax(axis=1))

    def scores(self, features: Float32) -> Float64:
        """How strongly each label is suggested (n, labels)."""
        if self.weights is None or self.middle is None or self.usual is None:
            raise InputError("fit this attack first")
        return np.asarray((features - self.middle) @ self.weights + self.usual)


def canonical_features(seen: Flats) -> Float32:
    """Features (n, f) that depend on a subspace only, not on how its offset and basis were drawn.

    The point nearest the origin, d of them, and the projector on the span of that point and the basis: its upper
    triangle, off the diagonal times the root of 2, so that inner products are those of whole matrices. Of a point,
    the point itself.
    """
    if isinstance(seen, Points):
        return seen.values
    d = seen.size
    rows, columns = np.triu_indices(d)
    factors = np.where(rows == columns, 1.0, np.sqrt(2)).astype(np.float32)
    features = np.empty((len(seen), d + len(rows)), np.float32)
    for start in range(0, len(seen), _CHUNK):
        part = slice(start, start + _CHUNK)
        basis = seen.basis[part].astype(np.float64)
        offset = seen.offset[part] - ((seen.offset[part, None] @ basis.transpose(0, 2, 1)) @ basis)[:, 0]
        spanning = np.concatenate([basis, offset[:, None]], axis=1)
        orthonormalise(spanning)
        projector = spanning.transpose(0, 2, 1) @ spanning
        features[part, :d] = offset
        features[part, d:] = projector[:, rows, columns] * factors
    # Both parts alike in how much they vary, else the larger one would be all that is looked at.
    features[:, :d] *= 3 * np.sqrt(seen.dimension + 1)
    return features


def _fitted(features: Float32, many: list[Integers]) -> list[tuple[Float64, Float64, Float64]]:
    """Weights (f, labels), the mean features (f,) and the shares of the labels for each attribute.

    In the dual: with K = X Xt of centred features and G = (K + r I)^-1, the residual of example i, when left out, is
    r (G y)_i / (r G_ii - 1 / n), of which 1 / n is the part of the mean.
    """
    middle = features.mean(axis=0, dtype=np.float64)
    centred = features.astype(np.float64) - middle
    lengths, axes = np.linalg.eigh(centred @ centred.T)
    scale = max(float(lengths.sum()) / len(lengths), 1e-12)
    models = []
    for labels in many:
        targets = np.eye(int(labels.max()) + 1)[labels]
        usual = targets.mean(axis=0)
        turned = axes.T @ (targets - usual)
        best, chosen = -1.0, turned
        for ridge in _RIDGES:
            inverse = 1 / (lengths.clip(0) + ridge * scale)
            solved = axes @ (inverse[:, None] * turned)
            kept = ridge * scale * (axes**2 @ inverse) - 1 / len(lengths)
            left_out = targets - ridge * scale * solved / np.maximum(kept, 1e-12)[:, None]
            right = float((left_out.argmax(axis=1) == labels).mean())
            if right > best:
                best, chosen = right, solved
        models.append((centred.T @ chosen, middle, usual))
    return models
