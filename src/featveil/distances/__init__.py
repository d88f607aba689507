"""Descriptors x Descriptors -> exact Euclidean distances and nearest neighbours. The only home of numba."""

from featveil.distances.dual import Dual, dual_matrix, from_dual, to_dual
from featveil.distances.gallery import Gallery
from featveil.distances.pruning import nearest_pruned
from featveil.distances.residual import pair_distances
from featveil.distances.search import Nearest, matrix, nearest, nearest_both_ways
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
