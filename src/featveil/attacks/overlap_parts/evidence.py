"""What speaks for a keypoint's scale and orientation when only its position is told.

A neighbour with a known descriptor predicts the feature's own, differently for every scale and orientation. Whitened by
the usual spread of descriptors, what the neighbour saw is normal around its prediction, with less variance; what it did
not see is normal around the mean. The evidence is the logarithm of how much more probable that makes it that the
hidden descriptor lies in this subspace.
"""

import numpy as np

from featveil.attacks.overlap_parts.overlapping import BINS, CELLS, carry, map_cells, turn_bins
from featveil.core import Subspaces
from featveil.core.arrays import Float32, Float64, Integers
from featveil.databases import builtin

_TOLD = 0.8  # share of the variance that a neighbour which saw everything takes away
_COOLING = {"sift": 1.4, "rootsift": 2.0}  # components are not independent: squared errors count less
_SPREAD = 0.02  # the least spread of a component
_OPPOSITE = -5.0  # at most, for predictions that would have to be turned round
_RIDGE = 1e-6
_STEPS = 7  # samples along a side of a window
_CHUNK = 8192


class Evidence:
    """Of each subspace: how well predictions of neighbours meet it."""

    def __init__(self, subspaces: Subspaces, kind: str) -> None:
        self.kind = kind
        usual = builtin(kind).as_points.values.astype(np.float64)
        self.squares = (usual**2).mean(axis=0).astype(np.float32)
        self.whitening = (1 / np.maximum(usual.std(axis=0), _SPREAD)).astype(np.float32)
        self.mean = usual.mean(axis=0).astype(np.float32) * self.whitening
        self.offset = subspaces.offset * self.whitening
        self.basis = subspaces.basis * self.whitening
        n, m, _ = self.basis.shape
        cells = self.basis.reshape(n, m, CELLS, BINS).transpose(0, 2, 1, 3)
        self.products = (cells @ cells.transpose(0, 1, 3, 2)).reshape(n, CELLS, m * m)
        system = self.products.sum(axis=1).reshape(n, m, m) + _RIDGE * np.eye(m)
        away = self.offset - self.mean
        side = (self.basis @ away[..., None])[..., 0].astype(np.float64)
        steps = np.linalg.solve(system, side[..., None])[..., 0]
        self.usual_misfit = (away.astype(np.float64) ** 2).sum(axis=1) - (side * steps).sum(axis=1)
        self.usual_volume = np.linalg.slogdet(system)[1]

    def of_pairs(
        self,
        rows: Integers,
        shift: Float64,
        values: Float32,
        scales: tuple[Float64, Float64],
        angles: tuple[Float64, Float64],
    ) -> Float32:
        """Evidence (p, h) of a neighbour with `values` (p, 128) for the hypotheses of subspace `rows` (p,).

        `shift` (p, 2) leads from the neighbour to the feature, in pixels; `scales` (p,) and `angles` (p, h), radians,
        are those of the feature and of the neighbour.
        """
        mine, theirs = angles
        count, hypotheses = mine.shape
        ratios = np.empty((count, hypotheses), np.float32)
        step = max(1, _CHUNK // hypotheses)
        for start in range(0, count, step):
            part = slice(start, start + step)
            own, other = mine[part].ravel(), theirs[part].ravel()
            shifts, taken = np.repeat(shift[part], hypotheses, axis=0), np.repeat(values[part], hypotheses, axis=0)
            sizes = np.repeat(scales[0][part], hypotheses), np.repeat(scales[1][part], hypotheses)
            _, cells, weight = map_cells(shifts, sizes, (own, other), _STEPS)
            # RootSIFT is linear in its squares only.
            taken = taken * np.abs(taken) if self.kind == "rootsift" else taken
            predicted = carry(taken, cells, turn_bins(own - other))
            shape = (len(rows[part]), hypotheses)
            weight = np.clip(weight, 0, 1).reshape(*shape, CELLS)
            ratios[part] = self._ratio(rows[part], predicted.reshape(*shape, CELLS * BINS), weight)
        return ratios

    def _ratio(self, rows: Integers, predicted: Float32, weight: Float32) -> Float64:
        """Log-likelihood ratio (g, h) of predictions (g, h, 128) with weights (g, h, 16) to the mean alone."""
        g, h, _ = predicted.shape
        m = self.basis.shape[1]
        variance = 1 - np.float32(_TOLD) * weight
        precision = np.repeat(1 / variance, BINS, axis=-1)
        unseen = np.repeat(1 - weight, BINS, axis=-1)
        away = self.offset[rows][:, None]
        if self.kind == "rootsift":
            seen = weight @ self.squares.reshape(CELLS, BINS).sum(axis=1)
            scaled = predicted * (seen / np.maximum(predicted.sum(axis=-1), 1e-9))[..., None]
            predicted = np.sqrt(np.maximum(scaled, 0) + unseen * self.squares)
        else:
            away = away - unseen * self.mean
        white = predicted * self.whitening
        weighted_white, weighted_away = precision * white, precision * away
        basis = self.basis[rows].transpose(0, 2, 1)
        system = ((1 / variance) @ self.products[rows]).reshape(g, h, m, m) + _RIDGE * np.eye(m)
        sides = np.stack([weighted_away @ basis, weighted_white @ basis], axis=-1).astype(np.float64)
        steps = np.linalg.solve(system, sides)
        # The prediction may be stretched at will, which is one more unknown.
        along = (weighted_white * away).sum(axis=-1) - (sides[..., 1] * steps[..., 0]).sum(axis=-1)
        room = (weighted_white * white).sum(axis=-1) - (sides[..., 1] * steps[..., 1]).sum(axis=-1) + 1e-3
        misfit = (weighted_away * away).sum(axis=-1) - (sides[..., 0] * steps[..., 0]).sum(axis=-1) - along**2 / room
        volume = np.linalg.slogdet(system)[1] + BINS * np.log(variance).sum(axis=-1)
        gain = (self.usual_misfit[rows][:, None] - misfit) / _COOLING[self.kind]
        ratio = (gain - volume + self.usual_volume[rows][:, None]) / 2
        return np.asarray(np.where(along > 0, ratio, np.minimum(ratio, _OPPOSITE)))
