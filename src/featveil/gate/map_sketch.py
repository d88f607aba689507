"""A sketch: every observation of the points of a map as a compressed descriptor, and nothing of its geometry.

An entry is one observation: its code, the number of the point that it shows, the number of the image that saw it.
Numbers of points are those of `geometry.models.SparseModel`, numbers of images the places of their sorted names.
"""

import hashlib
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from featveil.core import InputError, Points
from featveil.core.arrays import Float32, Float64, Integers, floats, integers
from featveil.core.errors import shown
from featveil.core.features import check_kind
from featveil.core.guarantees import LARGEST_TAU
from featveil.gate.lookup import Axes, Passed, main_axes, nearest_within

MOST_ENTRIES = 2**28
LARGEST_SIZE = 4096
WORDS = 256  # centroids of each part of a descriptor: a byte

_DIGEST = re.compile(r"[0-9a-f]{64}")
_BLOCK = 16_384  # entries that are decoded at a time
_LARGEST = 4.0  # of a component: descriptors have norm 1
_ROWS, _COLUMNS = 2048, 512  # pairs that are compared at a time: they should stay in the cache
_SAMPLED = 4096  # entries that the main axes are found from
_LONGEST_SOURCE = 256
_MOST = {"points": 2**31, "images": 2**24}  # of a map
_MOST_COUNTED = 2**40
_AT_HAND = 2**26  # bytes of decoded entries that are kept


@dataclass(frozen=True, eq=False)
class Quantised:
    """Descriptors as codes (n, b) uint8 of `centroids` (b, 256, part): a product quantiser.

    The parts of an entry, one after the other, are its `size` components and zeros.
    """

    codes: NDArray[np.uint8]
    centroids: NDArray[np.float16]
    size: int

    def __post_init__(self) -> None:
        if self.codes.ndim != 2 or self.codes.dtype != np.uint8 or self.codes.shape[1] == 0:
            raise InputError("codes of a sketch are rows of bytes")
        parts = self.codes.shape[1]
        if self.centroids.ndim != 3 or self.centroids.shape[:2] != (parts, WORDS) or self.centroids.dtype != np.float16:
            raise InputError(f"the quantiser of {parts} bytes has ({parts}, {WORDS}, any) centroids in half precision")
        width = parts * self.centroids.shape[2]
        if not 0 < self.size <= width < self.size + parts or self.size > LARGEST_SIZE:
            raise InputError(f"descriptors of size {self.size} do not fit a quantiser of {width} components")
        _check_values("centroids", self.centroids)

    def __len__(self) -> int:
        return len(self.codes)

    @property
    def bytes(self) -> int:
        """Of one entry."""
        return int(self.codes.shape[1])

    def decode(self, rows: slice | Integers) -> Float32:
        """The descriptors (r, d) of norm 1 that the entries stand for."""
        codes = self.codes[rows]
        parts = self._centroids[np.arange(self.bytes), codes]
        return _of_norm_one(parts.reshape(len(codes), -1)[:, : self.size])

    def take(self, rows: Integers) -> "Quantised":
        """The entries at `rows`."""
        return Quantised(self.codes[rows], self.centroids, self.size)

    @cached_property
    def _centroids(self) -> Float32:
        return self.centroids.astype(np.float32)


@dataclass(frozen=True, eq=False)
class Exact:
    """Descriptors `values` (n, d) as they are, in half precision."""

    values: NDArray[np.float16]

    def __post_init__(self) -> None:
        if self.values.ndim != 2 or self.values.dtype != np.float16:
            raise InputError("exact entries of a sketch are rows of numbers in half precision")
        if not 1 <= self.values.shape[1] <= LARGEST_SIZE:
            raise InputError(f"descriptors have 1 to {LARGEST_SIZE} components, got {self.values.shape[1]}")
        _check_values("descriptors", self.values)

    def __len__(self) -> int:
        return len(self.values)

    @property
    def size(self) -> int:
        """Components of a descriptor."""
        return int(self.values.shape[1])

    @property
    def bytes(self) -> int:
        """Of one entry."""
        return 2 * self.size

    def decode(self, rows: slice | Integers) -> Float32:
        """The descriptors (r, d), of norm 1."""
        return _of_norm_one(self.values[rows].astype(np.float32))

    def take(self, rows: Integers) -> "Exact":
        """The entries at `rows`."""
        return Exact(self.values[rows])


Entries = Quantised | Exact


@dataclass(frozen=True)
class Calibration:
    """What passes at each of `taus`: shares of features that show a point of the map, and of foreign ones.

    `passes` (t) are those of `queries` true observations, each looked up among the images that it is not of; `right`
    (t) of these came to the right point. `foreign` (t) is the share of `corpus` descriptors, which have nothing to do
    with the map; None where there is no corpus. With `tau` and `contrast` the share `target` of the true ones passes,
    or as much as can. `background` is the digest of what `contrast` compares with; both are None without.
    """

    tau: float
    target: float
    contrast: float | None
    background: str | None
    taus: tuple[float, ...]
    passes: tuple[float, ...]
    right: tuple[float, ...]
    foreign: tuple[float, ...] | None
    queries: int
    corpus: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "tau", check_tau(self.tau))
        if not 0 < self.target <= 1:
            raise InputError("the share of features that shall pass is above 0 and at most 1")
        if (self.contrast is None) != (self.background is None):
            raise InputError("contrast is with a background: a calibration has both or none")
        if self.contrast is not None:
            object.__setattr__(self, "contrast", check_contrast(self.contrast))
        if self.background is not None and not (
            isinstance(self.background, str) and _DIGEST.fullmatch(self.background)
        ):
            raise InputError("a background is named by its digest: 64 lower-case hexadecimal digits")
        if not self.taus or any(not 0 < tau <= LARGEST_TAU for tau in self.taus):
            raise InputError("a calibration has distances above 0")
        if any(after <= before for before, after in zip(self.taus, self.taus[1:], strict=False)):
            raise InputError("the distances of a calibration rise")
        for shares in (self.passes, self.right, self.foreign):
            if shares is not None and (len(shares) != len(self.taus) or not all(0 <= share <= 1 for share in shares)):
                raise InputError("a calibration has a share for each distance")
        if not 0 <= min(self.queries, self.corpus) <= max(self.queries, self.corpus) <= _MOST_COUNTED:
            raise InputError("a calibration counts its queries")

    def at(self, shares: tuple[float, ...], tau: float) -> float:
        """One of the columns at `tau`, between its lines."""
        return float(np.interp(tau, self.taus, shares))


@dataclass(frozen=True)
class Signature:
    """An Ed25519 signature of a sketch's digest: `key` (32 bytes) and `value` (64 bytes), hexadecimal."""

    key: str
    value: str

    def __post_init__(self) -> None:
        for text, digits in ((self.key, 64), (self.value, 128)):
            if not isinstance(text, str) or not re.fullmatch(rf"[0-9a-f]{{{digits}}}", text):
                raise InputError("a signature is a key of 64 and a value of 128 hexadecimal digits")


@dataclass(frozen=True, eq=False, repr=False)
class Sketch:
    """Compressed descriptors `entries` of the observations of a map's points, by rising number of the point.

    `points` (n,) and `images` (n,) are the numbers of point and image of each entry. The map with digest `model` has
    `model_points` points and `model_images` images; a tile has some of them. Descriptors are of `kind` and of norm 1.
    `source` says in a few words where it comes from.
    """

    entries: Entries = field(repr=False)
    points: Integers
    images: Integers
    kind: str
    model: str
    model_points: int
    model_images: int
    source: str = ""
    calibration: Calibration | None = None
    signature: Signature | None = None

    def __post_init__(self) -> None:
        check_kind(self.kind)
        if not isinstance(self.model, str) or not _DIGEST.fullmatch(self.model):
            raise InputError("a map is named by its digest: 64 lower-case hexadecimal digits")
        count = len(self.entries)
        if not 1 <= count <= MOST_ENTRIES:
            raise InputError(f"a sketch has 1 to {MOST_ENTRIES} entries, got {count}")
        for name in ("points", "images"):
            object.__setattr__(self, name, integers(f"{name} of a sketch", getattr(self, name), (count,)))
            there, most = getattr(self, name), getattr(self, f"model_{name}")
            if type(most) is not int or not 1 <= most <= _MOST[name]:
                raise InputError(f"a map has 1 to {_MOST[name]} {name}")
            if not 0 <= there.min() <= there.max() < most:
                raise InputError(f"an entry is of another map: its {name} are 0 to {most - 1}")
        if (np.diff(self.points) < 0).any():
            raise InputError("the entries of a sketch are in the order of their points")
        check_source(self.source)

    def __repr__(self) -> str:
        return f"Sketch(entries={len(self)}, points={len(self.known)}, kind={self.kind!r}, d={self.size})"

    def __len__(self) -> int:
        return len(self.entries)

    @property
    def size(self) -> int:
        """Descriptor size d."""
        return self.entries.size

    @cached_property
    def known(self) -> Integers:
        """The numbers of the points that are in it, rising."""
        return np.unique(self.points)

    @cached_property
    def seen(self) -> Integers:
        """The numbers of the images that are in it, rising."""
        return np.unique(self.images)

    @cached_property
    def digest(self) -> str:
        """SHA-256 of everything but the signature: the public name of this sketch."""
        digest = hashlib.sha256(f"featveil sketch\n{json.dumps(self.card(), sort_keys=True)}\n".encode())
        match self.entries:
            case Quantised(codes, centroids):
                arrays: list[NDArray[Any]] = [codes, centroids.astype("<f2")]
            case Exact(values):
                arrays = [values.astype("<f2")]
        for array in (*arrays, self.points.astype("<i8"), self.images.astype("<i8")):
            digest.update(f"{array.shape}".encode())
            digest.update(np.ascontiguousarray(array).data)
        return digest.hexdigest()

    def card(self) -> dict[str, Any]:
        """What is known of it beside its entries, as plain values."""
        known = self.calibration
        return {
            "kind": self.kind,
            "size": self.size,
            "model": {"digest": self.model, "points": self.model_points, "images": self.model_images},
            "source": self.source,
            "calibration": None
            if known is None
            else {
                "tau": known.tau,
                "target": known.target,
                "contrast": known.contrast,
                "background": known.background,
                "taus": list(known.taus),
                "passes": list(known.passes),
                "right": list(known.right),
                "foreign": None if known.foreign is None else list(known.foreign),
                "queries": known.queries,
                "corpus": known.corpus,
            },
        }

    def take(self, rows: Integers) -> "Sketch":
        """The part with the entries at `rows`, rising; without calibration and signature, which are of the whole."""
        return Sketch(
            self.entries.take(rows),
            self.points[rows],
            self.images[rows],
            self.kind,
            self.model,
            self.model_points,
            self.model_images,
            self.source,
        )

    def descriptors(self) -> Iterator[tuple[slice, Float32]]:
        """What the entries stand for, block by block (r, d)."""
        for start in range(0, len(self), _BLOCK):
            block = slice(start, min(start + _BLOCK, len(self)))
            yield block, self._decoded[block] if self._decoded is not None else self.entries.decode(block)

    def look_up(self, points: Points, tau: float, k: int = 1) -> Passed:
        """The nearest entries within `tau` of each of `points` that has any: one of each point of the map, at most `k`.

        All are brought to norm 1. Distances are asymmetric: the feature as it is, the entry as its code says. Raises
        InputError for descriptors of another size.
        """
        if points.size != self.size:
            raise InputError(f"the sketch holds descriptors of size {self.size}, the features have {points.size}")
        return nearest_within(unit(points), self.descriptors, self.points, self._axes, check_tau(tau), k)

    def nearest_elsewhere(self, points: Points, images: Integers | None = None) -> tuple[Float32, Integers]:
        """Distance (n,) and entry (n,) nearest to each of `points`, without the entries of its own image (n,), if any.

        All distances are computed: where most entries are within the distance that counts, that is the quicker way.
        """
        values = unit(points)
        if points.size != self.size:
            raise InputError(f"the sketch holds descriptors of size {self.size}, the features have {points.size}")
        best, which = np.full(len(values), np.inf, np.float32), np.zeros(len(values), np.int64)
        rows = np.concatenate([-2 * values, np.ones((len(values), 1), np.float32)], axis=1)
        for block, decoded in self.descriptors():
            columns = np.concatenate([decoded, (decoded**2).sum(axis=1, keepdims=True)], axis=1).T
            for start in range(0, len(decoded), _COLUMNS):
                part, first = columns[:, start : start + _COLUMNS], block.start + start
                for top in range(0, len(values), _ROWS):
                    some = slice(top, top + _ROWS)
                    squared = rows[some] @ part
                    if images is not None:
                        own = images[some, None] == self.images[None, first : first + _COLUMNS]
                        squared[own[:, : squared.shape[1]]] = np.inf
                    place = squared.argmin(axis=1)
                    least = squared[np.arange(len(place)), place]
                    nearer = least < best[some]
                    best[some][nearer], which[some][nearer] = least[nearer], place[nearer] + first
        there = (values**2).sum(axis=1)
        return np.sqrt(np.maximum(best + there, 0)), which

    @cached_property
    def _decoded(self) -> Float32 | None:
        """All entries, where they take little room: they are looked at again and again."""
        return self.entries.decode(slice(None)) if 4 * len(self) * self.size <= _AT_HAND else None

    @cached_property
    def _axes(self) -> Axes:
        return main_axes(self.entries.decode(np.arange(0, len(self), -(-len(self) // _SAMPLED))))


def _of_norm_one(values: Float32) -> Float32:
    """Rows as descriptors are: shorter ones would be near to everything. Zeros stay, and are near to nothing."""
    norms = np.linalg.norm(values, axis=1, keepdims=True)
    return np.ascontiguousarray(values / np.where(norms > 0, norms, 1), np.float32)


def unit(points: Points) -> Float32:
    """The points as rows of norm 1; raises InputError for one of norm zero."""
    norms: Float64 = np.linalg.norm(points.values.astype(np.float64), axis=1, keepdims=True)
    if len(norms) and not norms.all():
        raise InputError(f"descriptor {int(np.argmin(norms))} has zero norm: remove it first")
    return np.ascontiguousarray(points.values / norms, np.float32)


def check_tau(tau: object) -> float:
    """`tau` as a number; raises InputError unless it is a distance of descriptors of norm 1."""
    return _above_zero("tau", tau, LARGEST_TAU)


def check_source(source: object) -> None:
    """Raise InputError unless `source` is a short printable text: terminals of devices show it."""
    if not isinstance(source, str) or not source.isprintable() or len(source) > _LONGEST_SOURCE:
        raise InputError(f"the source of a sketch is a printable text of at most {_LONGEST_SOURCE} characters")


def check_contrast(contrast: object) -> float:
    """`contrast` as a number; raises InputError unless it is above 0 and at most 1."""
    return _above_zero("contrast", contrast, 1)


def _above_zero(name: str, value: object, most: float) -> float:
    usual = isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)
    if not usual or not 0 < value <= most:  # type: ignore[operator]
        raise InputError(f"{name} must be a number above 0 and at most {most:g}, got {shown(value)}")
    return float(value)  # type: ignore[arg-type]


def _check_values(name: str, values: NDArray[np.float16]) -> None:
    checked = floats(f"{name} of a sketch", values, (None,) * values.ndim)
    if checked.size and max(float(checked.max()), -float(checked.min())) > _LARGEST:
        raise InputError(f"{name} of a sketch have norm 1: theirs are too large")
