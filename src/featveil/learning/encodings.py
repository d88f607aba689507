"""Descriptors at keypoints -> what an inversion network reads: one row of numbers for each feature, and its cells.

Equal subspaces give equal rows, whatever offset and basis they were released with, and so do equal word sets.
No torch here: a trained network is fed the same way by whoever runs it.
"""

from dataclasses import asdict, dataclass
from typing import Any, Literal, Self, assert_never, cast, get_args

import numpy as np

from featveil.core import Descriptors, InputError, Keypoints, MapPoints, Points, Subspaces, WordSets
from featveil.core.arrays import Float32, Integers
from featveil.core.features import check_kind

Representation = Literal["points", "subspaces", "words"]
Geometry = Literal["positions", "full", "either"]

FORMAT = "featveil-inverter-1"  # of files with a trained inverter
STRIDES = (2, 4, 8, 16, 32)  # pixels of a cell on each level of the pyramid
_GEOMETRY = 7  # two offsets within the finest cell; known or not, cosine, sine, scale, response
_SMALLEST_COARSE = 1.0  # sigma in pixels; below it a keypoint is on the finest level only
_USUAL = 1.5  # sigma in pixels, where it is not known
_LARGEST_RESPONSE = 1e6  # far beyond any detector's: in a file it may be anything


@dataclass(frozen=True)
class Encoding:
    """What a network reads: descriptors of `kind` and `size` d, sent as `representation`, and which geometry.

    `count` is the dimension m of subspaces, the size k of word sets, and 1 for points. `codebook` is the digest of the
    words, or of the sketch whose points are sent. Geometry "positions" is position only, "full" has scale, orientation
    and response, "either" takes both. Raises InputError for values that no descriptors have.
    """

    kind: str
    size: int = 128
    representation: Representation = "points"
    count: int = 1
    geometry: Geometry = "positions"
    codebook: str | None = None

    def __post_init__(self) -> None:
        check_kind(self.kind)
        if self.representation not in get_args(Representation):
            raise InputError(f"representation must be one of {', '.join(get_args(Representation))}")
        check_geometry(self.geometry)
        if any(type(number) is not int or number < 1 for number in (self.size, self.count)):
            raise InputError("size and count of an encoding must be whole numbers of at least 1")
        if self.representation == "points" and self.count != 1:
            raise InputError("a point is one descriptor")
        if isinstance(self.codebook, str) != (self.representation == "words"):
            raise InputError("word sets, and nothing else, have a codebook, known by its digest")

    @classmethod
    def of(cls, descriptors: Descriptors, kind: str, geometry: Geometry, words: Float32 | None = None) -> Self:
        """The encoding of such descriptors; word sets need `words` (K, d), their codebook."""
        match descriptors:
            case Points():
                return cls(kind, descriptors.size, "points", 1, geometry)
            case Subspaces():
                return cls(kind, descriptors.size, "subspaces", descriptors.dimension, geometry)
            case WordSets():
                if words is None:
                    raise InputError("word sets are read with their codebook: give it")
                return cls(kind, int(words.shape[1]), "words", descriptors.subset_size, geometry, descriptors.codebook)
            case MapPoints():
                if words is None:
                    raise InputError("points of a map are read with their descriptors: give the sketch")
                return cls(kind, int(words.shape[1]), "words", descriptors.candidates, geometry, descriptors.sketch)
        assert_never(descriptors)

    @property
    def columns(self) -> int:
        """Numbers of a row."""
        vectors = self.count + 1 if self.representation == "subspaces" else self.count
        return vectors * self.size + _GEOMETRY

    def check(self, other: "Encoding") -> None:
        """Raise InputError unless features encoded as `other` can be read by a network of this encoding."""
        for name in ("kind", "size", "representation", "count", "codebook"):
            ours, theirs = getattr(self, name), getattr(other, name)
            if ours != theirs:
                raise InputError(
                    f"this inverter was trained on {name} {_short(ours)}, the features have {_short(theirs)}"
                )

    def reads_all(self, keypoints: Keypoints) -> bool:
        """Whether scale, orientation and response are read of `keypoints`: all of them, or none."""
        more = (keypoints.scale, keypoints.orientation, keypoints.response)
        return self.geometry != "positions" and all(values is not None for values in more)

    def rows(self, descriptors: Descriptors, keypoints: Keypoints, words: Float32 | None = None) -> Float32:
        """One row for each feature, (n, columns). Raises InputError for features of another encoding."""
        self.check(Encoding.of(descriptors, self.kind, self.geometry, words))
        return np.concatenate([_vectors(descriptors, words), self._geometry(keypoints)], axis=1)

    def _geometry(self, keypoints: Keypoints) -> Float32:
        columns = np.zeros((len(keypoints), _GEOMETRY), np.float32)
        columns[:, :2] = keypoints.xy / STRIDES[0] % 1 - 0.5
        if not self.reads_all(keypoints):
            if self.geometry == "full":
                raise InputError("this inverter reads scale, orientation and response of keypoints: these lack some")
            return columns
        assert keypoints.scale is not None and keypoints.orientation is not None and keypoints.response is not None
        angle = np.deg2rad(keypoints.orientation)
        logarithm = np.log2(np.maximum(keypoints.scale, 0.1))
        response = 20 * np.clip(keypoints.response, -_LARGEST_RESPONSE, _LARGEST_RESPONSE)
        columns[:, 2:] = np.stack([np.ones_like(angle), np.cos(angle), np.sin(angle), logarithm - 1, response], axis=1)
        return columns

    def to_json(self) -> dict[str, Any]:
        """Plain values, for a file."""
        return asdict(self)


def check_geometry(geometry: str) -> Geometry:
    """`geometry` if it is one; raises InputError."""
    if geometry not in get_args(Geometry):
        raise InputError(f"geometry must be one of {', '.join(get_args(Geometry))}, got {geometry!r:.40}")
    return cast(Geometry, geometry)


def cells(keypoints: Keypoints, width: int, height: int, by_scale: bool) -> Integers:
    """The cell (n, levels) of each keypoint on each level, row by row; one past the last where it has none.

    Every keypoint is on the finest level, and on the level of its size; without `by_scale` all have one size.
    `width` and `height` are pixels, multiples of the coarsest stride; keypoints beyond the edge count as on it.
    """
    places = np.empty((len(keypoints), len(STRIDES)), np.int64)
    scale = keypoints.scale if by_scale and keypoints.scale is not None else np.full(len(keypoints), _USUAL)
    level = 1 + np.log2(np.maximum(scale, 0.1) / _SMALLEST_COARSE)
    for place, stride in enumerate(STRIDES):
        columns, rows = width // stride, height // stride
        x = np.clip(keypoints.xy[:, 0] / stride, 0, columns - 1).astype(np.int64)
        y = np.clip(keypoints.xy[:, 1] / stride, 0, rows - 1).astype(np.int64)
        there = np.clip(np.floor(level), 0, len(STRIDES) - 1) == place if place else np.ones(len(keypoints), bool)
        places[:, place] = np.where(there, y * columns + x, rows * columns)
    return places


def canonical(subspaces: Subspaces) -> Float32:
    """Offset and basis (n, m + 1, d) that depend on the subspace alone.

    The offset is the point nearest to zero. The basis is the orthonormal one nearest to m fixed directions, the first
    rows of a cosine transform: of all bases of a subspace one is nearest, unless a direction is orthogonal to it.
    """
    basis, offset = subspaces.basis.astype(np.float64), subspaces.offset.astype(np.float64)
    n, m, d = basis.shape
    nearest = offset - np.einsum("nij,nik,nk->nj", basis, basis, offset, optimize=True)
    # R Bt = U S Vt, and U Vt B is the basis: turning B by Q turns R Bt by Qt, and the product stays.
    left, _, right = np.linalg.svd(cosines(m, d) @ basis.transpose(0, 2, 1))
    stack = np.concatenate([nearest[:, None], left @ right @ basis], axis=1)
    return np.asarray(stack, np.float32).reshape(n, m + 1, d)


def cosines(count: int, size: int) -> Float32:
    """The first rows (count, size) of the orthonormal cosine transform."""
    rows = np.cos(np.pi * np.arange(count)[:, None] * (np.arange(size) + 0.5) / size)
    return np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True), np.float32)


def _vectors(descriptors: Descriptors, words: Float32 | None) -> Float32:
    match descriptors:
        case Points():
            return _rooted(descriptors.values)
        case Subspaces():
            n, m, d = descriptors.basis.shape
            return canonical(descriptors).reshape(n, (m + 1) * d) * np.float32(np.sqrt(d))
        case WordSets():
            return _named(descriptors.words, descriptors.codebook_size, words)
        case MapPoints():
            return _named(descriptors.points, descriptors.model_points, words)
    assert_never(descriptors)


def _named(numbers: Integers, size: int, words: Float32 | None) -> Float32:
    """What the numbers (n, k) stand for: words of a codebook, or points of a map, of which there are `size`.

    A number of -1 stands for nothing: zeros.
    """
    known = 0 if words is None else len(words)
    if words is None or known != size:
        raise InputError(f"{known} words or points are known, the features are of {size}")
    vectors = np.where((numbers >= 0)[..., None], words[np.maximum(numbers, 0)], 0)
    return _rooted(np.asarray(vectors, np.float32)).reshape(len(numbers), numbers.shape[1] * words.shape[1])


def _rooted(values: Float32) -> Float32:
    """Signed square roots of mean square 1, which a network tells apart more easily than a few large values."""
    sums = np.abs(values).sum(axis=-1, keepdims=True)
    shares = np.abs(values) / np.where(sums > 0, sums, 1)
    return np.asarray(np.sign(values) * np.sqrt(shares * values.shape[-1]), np.float32)


def _short(value: object) -> str:
    return f"{value[:12]}..." if isinstance(value, str) and len(value) == 64 else str(value)  # a digest
