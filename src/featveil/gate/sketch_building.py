"""Observations of a map's points -> its sketch; parts of it; several sketches of one map -> one."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import faiss
import numpy as np
from numpy.typing import NDArray

from featveil.core import InputError, Points
from featveil.core.arrays import Float32, Integers
from featveil.gate.map_sketch import WORDS, Entries, Exact, Quantised, Sketch, unit

BYTES = 16
_LARGEST_BYTES = 256
_PER_WORD = 64  # descriptors that each centroid is found from, at most
_FEWEST = 4 * WORDS  # entries; fewer are kept as they are, since a quantiser would take more room than it saves
_ITERATIONS = 20
_SEED = 1234


@dataclass(frozen=True, eq=False)
class Observations:
    """What image number `image` saw of the points of a map: `descriptors` (r, d) of the points `points` (r,)."""

    image: int
    points: Integers
    descriptors: Points


@dataclass(frozen=True)
class MapFacts:
    """The map that a sketch is of: its digest, how many points and images it has, and the kind of its descriptors."""

    digest: str
    points: int
    images: int
    kind: str
    source: str = ""


Stream = Callable[[], Iterable[Observations]]


def build_sketch(facts: MapFacts, observations: Stream, size: int | None = BYTES) -> Sketch:
    """The sketch of a map, with `size` bytes for each descriptor; None keeps descriptors as they are.

    `observations` is called twice, for a quantiser and for the entries, and gives those of one image at a time: no more
    is held than that, a sample, and the codes. Equal observations of one point in one image count once. Fewer than
    1,024 entries are kept as they are. Raises InputError when there are none or their size varies.
    """
    if size is not None and (type(size) is not int or not 1 <= size <= _LARGEST_BYTES):
        raise InputError(f"an entry takes 1 to {_LARGEST_BYTES} bytes, got {size!r:.40}")
    total, sample = _survey(observations(), facts.images)
    if total == 0:
        raise InputError("no image of the map has a feature that shows one of its points: there is nothing to sketch")
    width = sample.shape[1]
    quantiser = _trained(sample, min(size, width)) if size is not None and total >= _FEWEST else None
    points, images = np.empty(total, np.int64), np.empty(total, np.int64)
    columns = 2 * width if quantiser is None else quantiser.M
    stored = np.empty((total, columns), np.uint8)
    at = 0
    for one in observations():
        part = slice(at, at + len(one.points))
        if part.stop > total:
            raise InputError("the map changed while it was read: try again")
        points[part], images[part] = one.points, one.image
        stored[part] = _stored(unit(one.descriptors), quantiser)
        at = part.stop
    if at < total:
        raise InputError("the map changed while it was read: try again")
    order = _distinct(points, images, stored)
    entries = _entries(stored[order], quantiser, width)
    return Sketch(
        entries, points[order], images[order], facts.kind, facts.digest, facts.points, facts.images, facts.source
    )


def merge_sketches(sketches: Sequence[Sketch]) -> Sketch:
    """One sketch of all entries of several of one map, such as its tiles; what is in two of them counts once.

    A calibration stays where all of them carry the same, as tiles do; signatures do not. Raises InputError for sketches
    of different maps or kinds, or with different quantisers.
    """
    if not sketches:
        raise InputError("there is no sketch to merge")
    first = sketches[0]
    for one in sketches[1:]:
        if (one.model, one.model_points, one.model_images) != (first.model, first.model_points, first.model_images):
            raise InputError(
                "these sketches are of different maps, whose points have the same numbers: keep them apart"
            )
        if (one.kind, one.size) != (first.kind, first.size):
            raise InputError(f"these sketches hold {first.kind} and {one.kind} descriptors: keep them apart")
        if not _alike(first.entries, one.entries):
            raise InputError("these sketches were quantised differently: build the map's sketch once, and its tiles")
    points, images = (np.concatenate([getattr(one, name) for one in sketches]) for name in ("points", "images"))
    stored = np.concatenate([_bytes_of(one.entries) for one in sketches])
    chosen = _distinct(points, images, stored)
    whole = _like(first.entries, stored[chosen])
    model = first.model, first.model_points, first.model_images
    shared = first.calibration if all(one.calibration == first.calibration for one in sketches) else None
    return Sketch(whole, points[chosen], images[chosen], first.kind, *model, first.source, shared)


def tiles(sketch: Sketch, images: int) -> Iterator[Sketch]:
    """Parts of `sketch`, each with everything of the points that `images` images or fewer see; images go together
    that share most points.

    A point that several parts see is in each of them, and each carries the calibration of the whole. Raises InputError
    unless a part has an image at least.
    """
    if type(images) is not int or images < 1:
        raise InputError(f"a tile has at least one image, got {images!r:.40}")
    for group in _groups(sketch, images):
        seen = np.unique(sketch.points[np.isin(sketch.images, group)])
        part = sketch.take(np.flatnonzero(np.isin(sketch.points, seen)))
        yield replace(part, calibration=sketch.calibration)


def _distinct(points: Integers, images: Integers, stored: NDArray[np.uint8]) -> Integers:
    """Where each different entry is first, in the order of points, then images, then bytes."""
    # Big-endian numbers are in the order of their bytes.
    rows = np.concatenate([*(one.astype(">u4").view(np.uint8).reshape(-1, 4) for one in (points, images)), stored], 1)
    _, chosen = np.unique(rows.view(f"V{rows.shape[1]}").ravel(), return_index=True)
    return np.asarray(chosen, np.int64)


def _groups(sketch: Sketch, most: int) -> Iterator[Integers]:
    """Images, group by group: each grows by the image that shares most points with it."""
    place = {int(image): number for number, image in enumerate(sketch.seen)}
    tracks: list[list[int]] = [[] for _ in place]
    order = np.argsort(sketch.images, kind="stable")
    bounds = np.searchsorted(sketch.images[order], [*place, sketch.model_images])
    for number in range(len(place)):
        tracks[number] = sketch.points[order[bounds[number] : bounds[number + 1]]].tolist()
    seers: dict[int, list[int]] = {}
    for number, points in enumerate(tracks):
        for point in points:
            seers.setdefault(point, []).append(number)
    left = np.ones(len(place), np.bool_)
    while left.any():
        shared = np.zeros(len(place), np.int64)
        group = [int(np.argmax(left))]
        while True:
            left[group[-1]] = False
            for point in tracks[group[-1]]:
                shared[seers[point]] += 1
            if len(group) == most or not left.any():
                break
            candidate = int(np.argmax(np.where(left, shared, -1)))
            if shared[candidate] == 0:
                break
            group.append(candidate)
        yield sketch.seen[np.sort(group)]


def _survey(observations: Iterable[Observations], images: int) -> tuple[int, Float32]:
    """How many observations there are, and descriptors that the quantiser is found from, evenly over all images."""
    most, total, parts = -(-_PER_WORD * WORDS // images), 0, list[Float32]()
    for one in observations:
        count = len(one.points)
        if count == 0:
            continue
        total += count
        rows = np.unique(np.linspace(0, count - 1, min(count, most)).astype(np.int64))
        parts.append(unit(one.descriptors.take(rows)))
        if parts[-1].shape[1] != parts[0].shape[1]:
            raise InputError("the descriptors of the map have several sizes: name features of one kind")
    return total, np.concatenate(parts) if parts else np.empty((0, 0), np.float32)


def _trained(sample: Float32, size: int) -> faiss.ProductQuantizer:
    """faiss's product quantiser of that many bytes; its centroids are those that a file keeps, in half precision."""
    padded = _padded(sample, size)
    quantiser = faiss.ProductQuantizer(padded.shape[1], size, 8)
    quantiser.cp.niter, quantiser.cp.seed, quantiser.cp.min_points_per_centroid = _ITERATIONS, _SEED, 1
    quantiser.train(padded)
    centroids = faiss.vector_to_array(quantiser.centroids).astype(np.float16).astype(np.float32)
    faiss.copy_array_to_vector(centroids, quantiser.centroids)
    return quantiser


def _stored(values: Float32, quantiser: faiss.ProductQuantizer | None) -> NDArray[np.uint8]:
    """What is kept of descriptors of norm 1, as bytes."""
    if quantiser is None:
        return np.ascontiguousarray(values, "<f2").view(np.uint8)
    return np.asarray(quantiser.compute_codes(_padded(values, quantiser.M)), np.uint8)


def _entries(stored: NDArray[np.uint8], quantiser: faiss.ProductQuantizer | None, width: int) -> Entries:
    if quantiser is None:
        return Exact(stored.view("<f2").astype(np.float16))
    centroids = faiss.vector_to_array(quantiser.centroids).reshape(quantiser.M, WORDS, -1)
    return Quantised(stored, centroids.astype(np.float16), width)


def _padded(values: Float32, parts: int) -> Float32:
    """Descriptors with zeros behind, so that they divide into that many parts."""
    more = -values.shape[1] % parts
    return np.ascontiguousarray(np.pad(values, ((0, 0), (0, more))))


def _alike(one: Entries, other: Entries) -> bool:
    if isinstance(one, Quantised) and isinstance(other, Quantised):
        return np.array_equal(one.centroids, other.centroids)
    return type(one) is type(other)


def _bytes_of(entries: Entries) -> NDArray[np.uint8]:
    match entries:
        case Quantised(codes):
            return codes
        case Exact(values):
            return np.ascontiguousarray(values, "<f2").view(np.uint8)


def _like(entries: Entries, stored: NDArray[np.uint8]) -> Entries:
    match entries:
        case Quantised(_, centroids, size):
            return Quantised(stored, centroids, size)
        case Exact():
            return Exact(np.ascontiguousarray(stored).view("<f2").astype(np.float16))
