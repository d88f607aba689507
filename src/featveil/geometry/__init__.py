"""Matches -> geometry: what agrees on one motion of the camera."""

from featveil.geometry.homography import agreeing

__all__ = ["agreeing"]
