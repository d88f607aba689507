"""Matches -> homography, pose, map: which of them agree on one view of the scene. The only home of pycolmap."""

from featveil.geometry.ambiguous import agreeing_by_chance, agreeing_candidates
from featveil.geometry.homography import Homography, agreeing, find_homography

__all__ = ["Homography", "agreeing", "agreeing_by_chance", "agreeing_candidates", "find_homography"]
