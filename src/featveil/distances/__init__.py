"""Descriptors x Descriptors -> exact Euclidean distances and nearest neighbours. The home of numba is in backends/."""

from featveil.distances.dual import Dual, dual_matrix, from_dual, to_dual
from featveil.distances.orthonormal import pair_distances
from featveil.distances.pruning import nearest_pruned
from featveil.distances.search import Gallery, Nearest, matrix, nearest, nearest_both_ways
from featveil.distances.sphere import distances_to_sphere, sphere_distances

__all__ = [
    "Dual",
    "Gallery",
    "Nearest",
    "distances_to_sphere",
    "dual_matrix",
    "from_dual",
    "matrix",
    "nearest",
    "nearest_both_ways",
    "nearest_pruned",
    "pair_distances",
    "sphere_distances",
    "to_dual",
]
