"""Descriptors of overlapping keypoints, sought at once: in their subspaces, of norm 1, as their neighbours predict."""

import numpy as np

from featveil.attacks.overlap_parts.overlapping import BINS, Overlaps, predict
from featveil.core import Subspaces
from featveil.core.arrays import Float32, Float64

_FLOOR = 2e-4  # squared error a component that even good predictions have
_PRIOR = 5.0  # weight of the start, beside that of neighbours
_SHRINKING = (0.1, 0.3, 1.0, 3.0)  # how strongly small entries are drawn to zero, from the first round to the last
_SMALL = (0.02, 0.02, 0.02, 0.005)  # what counts as small, likewise
_MOMENTUM, _CALM = 0.8, 0.8  # up to this share of the rounds
_RECHECKED = 3  # rounds after which predictions are compared with the subspaces again
_SCALES = (0.2, 5.0)  # between which a prediction may be stretched
_CHUNK = 2048


class Agreement:
    """The descriptors as points of their subspaces with norm 1, moved towards what their neighbours predict."""

    def __init__(self, subspaces: Subspaces, overlaps: Overlaps, start: Float32, kind: str, sparse: bool) -> None:
        self.overlaps, self.start, self.kind, self.sparse = overlaps, start, kind, sparse
        self.basis = subspaces.basis
        offset = subspaces.offset.astype(np.float64)
        along = (self.basis @ offset[..., None])[..., 0]
        self.nearest_origin = (offset - (along[:, None] @ self.basis)[:, 0]).astype(np.float32)
        rest = 1 - (self.nearest_origin.astype(np.float64) ** 2).sum(axis=1)
        self.radius = np.sqrt(np.maximum(rest, 1e-6)).astype(np.float32)
        self.weights = np.repeat(overlaps.weight, BINS, axis=1)
        self.owners, self.begins = np.unique(overlaps.first, return_index=True)

    def solve(self, rounds: int) -> Float32:
        """The descriptors (n, d) after `rounds`."""
        values = before = self._on_sphere(self._coordinates(self.start))
        trust = np.empty(0, np.float32)
        for number in range(rounds):
            predicted = self._predict(values)
            if number % _RECHECKED == 0:
                trust = self.overlaps.share / (self._misfit(predicted) / values.shape[1] + _FLOOR)
            moved = self._round(values, predicted, trust, number / max(rounds - 1, 1))
            if number < _CALM * rounds:
                moved = self._on_sphere(self._coordinates((1 + _MOMENTUM) * moved - _MOMENTUM * before))
            before, values = values, moved
        return values

    def disagreement(self, values: Float32) -> Float32:
        """Mean squared difference (p,) between `values` (n, d) and what each second feature says of the first."""
        difference = self._stretched(self._predict(values), values) - values[self.overlaps.first]
        return np.asarray((self.weights * difference**2).sum(axis=1) / self.weights.sum(axis=1))

    def _round(self, values: Float32, predicted: Float32, trust: Float32, progress: float) -> Float32:
        """Weighted least squares for every feature: predictions of its neighbours, the start, and no small entries."""
        predicted = self._stretched(predicted, values)
        trusted = self.weights * trust[:, None]
        total = self._gather(trusted) + np.float32(_PRIOR)
        target = self._gather(trusted * predicted) + np.float32(_PRIOR) * self.start
        if self.sparse:
            place = progress * (len(_SMALL) - 1)
            small = np.exp(np.interp(place, range(len(_SMALL)), np.log(_SMALL)))
            shrinking = np.interp(place, range(len(_SHRINKING)), _SHRINKING)
            total += (shrinking / (np.maximum(values, 0) ** 2 + small**2)).astype(np.float32)
        return self._fit(target / total, total)

    def _predict(self, values: Float32) -> Float32:
        """What each second feature says of the first (p, d). RootSIFT is linear in its squares only."""
        if self.kind != "rootsift":
            return predict(values, self.overlaps)[0]
        return np.asarray(np.sqrt(np.maximum(predict(values * np.abs(values), self.overlaps)[0], 0)))

    def _stretched(self, predicted: Float32, values: Float32) -> Float32:
        """Predictions (p, d) with the norms that suit `values` (n, d) best."""
        own, weights = values[self.overlaps.first], self.weights
        stretch = (weights * predicted * own).sum(axis=1) / np.maximum((weights * predicted**2).sum(axis=1), 1e-9)
        return np.asarray(predicted * np.clip(stretch, *_SCALES)[:, None])

    def _misfit(self, predicted: Float32) -> Float32:
        """How far each prediction, stretched at will, stays from the first's subspace, as a share (p,)."""
        misfits = np.empty(len(predicted), np.float32)
        for begin in range(0, len(misfits), _CHUNK):
            part = slice(begin, begin + _CHUNK)
            rows, weights = self.overlaps.first[part], self.weights[part]
            directions = np.concatenate([self.basis[rows], -predicted[part][:, None]], axis=1)
            weighted = directions * weights[:, None]
            system = (weighted @ directions.transpose(0, 2, 1)).astype(np.float64)
            system += 1e-6 * np.eye(system.shape[1])
            nearest_origin = self.nearest_origin[rows]
            side = -(weighted @ nearest_origin[..., None]).astype(np.float64)
            steps = np.linalg.solve(system, side)[..., 0].astype(np.float32)
            left = nearest_origin + (steps[:, None] @ directions)[:, 0]
            met = nearest_origin + (steps[:, None, :-1] @ self.basis[rows])[:, 0]
            misfits[part] = (weights * left**2).sum(axis=1) / np.maximum((weights * met**2).sum(axis=1), 1e-6)
        return misfits

    def _fit(self, target: Float32, weights: Float32) -> Float32:
        """The point of each subspace nearest to `target` by `weights` (both (n, d)), then put on the sphere."""
        weighted = self.basis * weights[:, None]
        system = (weighted @ self.basis.transpose(0, 2, 1)).astype(np.float64)
        side = (weighted @ (target - self.nearest_origin)[..., None]).astype(np.float64)
        return self._on_sphere(np.linalg.solve(system, side)[..., 0])

    def _coordinates(self, values: Float32) -> Float32:
        return np.asarray((self.basis @ values[..., None])[..., 0])

    def _on_sphere(self, coordinates: Float32 | Float64) -> Float32:
        """The points (n, d) of norm 1 in the directions of `coordinates` (n, m) from the point nearest the origin."""
        norms = np.maximum(np.linalg.norm(coordinates, axis=1), 1e-9)
        steps = (coordinates * (self.radius / norms)[:, None]).astype(np.float32)
        return np.asarray(self.nearest_origin + (steps[:, None] @ self.basis)[:, 0])

    def _gather(self, pairs: Float32) -> Float32:
        """Sums (n, d) of what the pairs of each first feature have (p, d)."""
        sums = np.zeros((len(self.start), pairs.shape[1]), np.float32)
        sums[self.owners] = np.add.reduceat(pairs, self.begins, axis=0)
        return sums
