"""Matches -> geometry: which of them agree on one view of the scene."""

from featveil.geometry.homography import Homography, agreeing, find_homography

__all__ = ["Homography", "agreeing", "find_homography"]
