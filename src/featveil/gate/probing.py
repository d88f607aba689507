"""A server that asks by its sketch whether something is seen, and what a device can notice of that.

Whoever makes a sketch decides what is in it. Descriptors of a face or of a poster among those of a place make every
release of a photograph that shows it say so. `plant` does that, for studies. `audit_sketch` looks for it: foreign
content that passes, and entries that do not behave like the tracks of a map.

An audit finds what resembles its corpus, and what was planted carelessly. It cannot find a certain poster whose
descriptors come in tracks that look like those of a place. A pinned signer, whose sketches others see too, is for that.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

import faiss
import numpy as np

from featveil.core import InputError, Points
from featveil.core.arrays import Float32, Float64, Integers
from featveil.core.options import option
from featveil.databases import Database
from featveil.databases.entries import unit_rows
from featveil.gate.background import contrasting
from featveil.gate.map_sketch import Entries, Exact, Quantised, Sketch, unit

Disguise = Literal["none", "tracks"]

_CLUSTERS = 64
_FEWEST_PASSERS = 64  # of fewer, where they pass says nothing
_SAMPLED = 65_536  # entries that clusters are made of
_QUERIES = 4000  # of a corpus that are looked up, at most
_SEED = 1234
_UNLIKE = 0.9  # mean distance of a point's entries from their mean, as a share of that of entries dealt at random
_LONE = 3  # points that two images must share to count as seeing the same
_LARGEST_TRACK = 64  # observations of one point that are compared
_LARGEST_COUPLED = 16  # images of one point, the first, that are looked at in pairs
_SLOTS = 2**22  # of the table that counts what pairs of images share
_MIX = np.uint64(0x9E3779B97F4A7C15)


def plant(sketch: Sketch, descriptors: Points, disguise: Disguise = "tracks", seed: int = 0) -> Sketch:
    """`sketch` with `descriptors` in it, as new points after those of its map; calibration stays, the signature goes.

    Without a disguise each is a point that one image saw. With "tracks" each takes over the images of some point of the
    map, and its entries differ as those do: there is no telling them from a track by their shape.
    """
    values, rng = unit(descriptors), np.random.default_rng(seed)
    if values.shape[1] != sketch.size:
        raise InputError(f"the sketch holds descriptors of size {sketch.size}, these have {values.shape[1]}")
    new = sketch.model_points + np.arange(len(values))
    if disguise == "none":
        points, images, planted = new, rng.choice(sketch.seen, len(values)), values
    else:
        rows, owner = _tracks(sketch, rng.choice(sketch.known, len(values)))
        decoded = sketch.entries.decode(rows)
        sums = np.zeros((len(values), sketch.size), np.float32)
        np.add.at(sums, owner, decoded)
        spread = decoded - unit_rows(sums)[owner]
        points, images, planted = new[owner], sketch.images[rows], unit_rows(values[owner] + spread)
    order = np.lexsort((images, points))
    entries = _joined(sketch.entries, planted[order])
    return replace(
        sketch,
        entries=entries,
        points=np.concatenate([sketch.points, points[order]]),
        images=np.concatenate([sketch.images, images[order]]),
        model_points=sketch.model_points + len(values),
        signature=None,
    )


@dataclass(frozen=True)
class AuditLimits:
    """Beyond which a device refuses a sketch; each is a share.

    They leave room for honest maps: where several features share a position, all of them count as observations of the
    point there, though only one was matched.
    """

    passing: float = option(0.03, help="Refuse if more than this share of the foreign corpus passes.")
    cluster: float = option(
        0.25, help="Refuse if more than this share of what passes falls into one of 64 parts of the sketch."
    )
    single: float = option(0.2, help="Refuse if more than this share of the points is seen by one image only.")
    lone: float = option(
        0.03, help="Refuse if more than this share of the points is seen by images that share nothing else."
    )
    unlike: float = option(
        0.2, help="Refuse if more than this share of the points has observations that do not resemble each other."
    )
    repeated: float = option(
        0.05, help="Refuse if more than this share of the entries occurs several times, for different points."
    )

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
                raise InputError(f"{name} must be a share between 0 and 1, got {value!r:.40}")


@dataclass(frozen=True)
class SketchAudit:
    """What an audit measured, each a share as in AuditLimits, and the `reasons` to refuse the sketch, or none.

    `passing` and `cluster` are None where there was no corpus; `cluster` also where too little of it passed.
    """

    passing: float | None
    cluster: float | None
    single: float
    lone: float
    unlike: float
    repeated: float
    corpus: int
    entries: int
    reasons: tuple[str, ...] = ()

    @property
    def accepted(self) -> bool:
        """Whether nothing speaks against it. An honest-looking sketch may still ask for one certain thing."""
        return not self.reasons


def audit_sketch(
    sketch: Sketch,
    corpus: Points | None,
    tau: float,
    contrast: float | None = None,
    background: Database | None = None,
    limits: AuditLimits = AuditLimits(),
) -> SketchAudit:
    """What a device can notice of a sketch before it uses it with `tau`, `contrast` and `background`.

    `corpus` holds descriptors that have nothing to do with the place: the more of what people care about, the better.
    """
    passing, cluster, count = None, None, 0
    if corpus is not None and len(corpus):
        rows = np.unique(np.linspace(0, len(corpus) - 1, min(len(corpus), _QUERIES)).astype(np.int64))
        count = len(rows)
        asked = corpus.take(rows)
        entries = contrasting(sketch.look_up(asked, tau), asked, contrast, background).entries[:, 0]
        passing, cluster = len(entries) / count, _concentration(sketch, entries)
    audit = SketchAudit(
        passing,
        cluster,
        *_tracked(sketch),
        _unlike(sketch),
        _repeated(sketch),
        count,
        len(sketch),
    )
    return replace(audit, reasons=tuple(_reasons(audit, limits)))


def _reasons(audit: SketchAudit, limits: AuditLimits) -> list[str]:
    said = {
        "passing": "of foreign descriptors pass",
        "cluster": "of the foreign descriptors that pass do so into one part of the sketch",
        "single": "of the points are seen by one image",
        "lone": "of the points are seen by images that share nothing else",
        "unlike": "of the points have observations that do not resemble each other",
        "repeated": "of the entries are there several times, for different points",
    }
    reasons = []
    for name, text in said.items():
        share, limit = getattr(audit, name), getattr(limits, name)
        if share is not None and share > limit:
            reasons.append(f"{100 * share:.1f} % {text}: at most {100 * limit:g} % may")
    return reasons


def _concentration(sketch: Sketch, entries: Integers) -> float | None:
    """The largest share of what passes that goes into one part of the sketch, beyond the part's own size.

    Foreign content that passes by accident goes everywhere; a part that faces pass into was made for faces.
    """
    if len(entries) < _FEWEST_PASSERS:
        return None
    sample = np.unique(np.linspace(0, len(sketch) - 1, min(len(sketch), _SAMPLED)).astype(np.int64))
    values = sketch.entries.decode(sample)
    parts = min(_CLUSTERS, len(sample) // 39 + 1)
    kmeans = faiss.Kmeans(sketch.size, parts, niter=10, seed=_SEED, min_points_per_centroid=1)
    kmeans.train(values)
    own = np.bincount(kmeans.index.search(values, 1)[1][:, 0], minlength=parts) / len(values)
    hit = np.bincount(kmeans.index.search(sketch.entries.decode(entries), 1)[1][:, 0], minlength=parts) / len(entries)
    return float(np.maximum(hit - own, 0).max())


def _tracked(sketch: Sketch) -> tuple[float, float]:
    """The share of points that one image sees; of the others, the share whose images share nothing else.

    Two images share something if they both see a few further points. Counts are kept in a table of fixed size, so that
    no sketch decides how much memory this takes: two pairs of images may share a slot, and then count together.
    """
    place, image = np.searchsorted(sketch.known, sketch.points), np.searchsorted(sketch.seen, sketch.images)
    place, image = np.divmod(np.unique(place * len(sketch.seen) + image), len(sketch.seen))
    begin = np.searchsorted(place, np.arange(len(sketch.known)))
    some = np.arange(len(place)) - begin[place] < _LARGEST_COUPLED
    place, image = place[some], image[some]
    shared, linked = np.zeros(_SLOTS, np.int64), np.zeros(len(sketch.known), np.bool_)
    for _, slots in _couples(place, image):
        shared += np.bincount(slots, minlength=_SLOTS)
    for owner, slots in _couples(place, image):
        linked[owner[shared[slots] > _LONE]] = True
    several = np.bincount(place, minlength=len(linked)) > 1
    return float(1 - several.mean()), float((~linked[several]).mean()) if several.any() else 0.0


def _couples(place: Integers, image: Integers) -> Iterator[tuple[Integers, Integers]]:
    """Points and slots of all pairs of images that see a point; both inputs are in the order of points."""
    for step in range(1, _LARGEST_COUPLED):
        rows = np.flatnonzero(place[step:] == place[:-step])
        one, other = image[rows].astype(np.uint64), image[rows + step].astype(np.uint64)
        mixed = (one * _MIX + other) * _MIX
        yield place[rows], (mixed >> np.uint64(64 - _SLOTS.bit_length() + 1)).astype(np.int64)


def _unlike(sketch: Sketch) -> float:
    """The share of points of several observations that are as far from their mean as any entries are."""
    rng = np.random.default_rng(_SEED)
    counts = np.diff(np.searchsorted(sketch.points, [*sketch.known, sketch.model_points]))
    several = sketch.known[(counts > 1) & (counts <= _LARGEST_TRACK)]
    if len(several) == 0:
        return 0.0
    some = rng.choice(several, min(len(several), _QUERIES), replace=False)
    rows, owner = _tracks(sketch, some)
    values = sketch.entries.decode(rows)
    own = _spread(values, owner, len(some))
    dealt = _spread(sketch.entries.decode(rng.choice(len(sketch), len(rows))), owner, len(some))
    return float((own > _UNLIKE * dealt).mean())


def _spread(values: Float32, owner: Integers, count: int) -> Float64:
    """How far (count,) the descriptors of each owner are from their mean, on average."""
    sums = np.zeros((count, values.shape[1]), np.float32)
    np.add.at(sums, owner, values)
    sizes = np.bincount(owner, minlength=count)
    away = np.linalg.norm(values - (sums / sizes[:, None])[owner], axis=1)
    return np.asarray(np.bincount(owner, away, minlength=count) / sizes)


def _repeated(sketch: Sketch) -> float:
    """The share of entries whose descriptor other points have too, exactly."""
    match sketch.entries:
        case Quantised(codes):
            rows = codes
        case Exact(values):
            rows = np.ascontiguousarray(values).view(np.uint8)
    _, same = np.unique(rows, axis=0, return_inverse=True)
    pairs = np.unique(np.stack([same.reshape(-1), sketch.points], axis=1), axis=0)
    shared = np.bincount(pairs[:, 0]) > 1
    return float(shared[same.reshape(-1)].mean())


def _tracks(sketch: Sketch, points: Integers) -> tuple[Integers, Integers]:
    """The entries of each of `points`, and the place in `points` that they belong to."""
    begin, end = (np.searchsorted(sketch.points, points, side=side) for side in ("left", "right"))
    owner = np.repeat(np.arange(len(points)), end - begin)
    first = np.repeat(begin - np.concatenate([[0], np.cumsum(end - begin)[:-1]]), end - begin)
    return first + np.arange(len(owner)), owner


def _joined(entries: Entries, values: Float32) -> Entries:
    """The entries, and `values` behind them, coded as they are."""
    match entries:
        case Exact(own):
            return Exact(np.concatenate([own, values.astype(np.float16)]))
        case Quantised(codes, centroids, size):
            width = centroids.shape[2]
            padded = np.pad(values, ((0, 0), (0, codes.shape[1] * width - size)))
            nearest = [
                ((padded[:, None, part * width : (part + 1) * width] - words.astype(np.float32)) ** 2).sum(-1).argmin(1)
                for part, words in enumerate(centroids)
            ]
            return Quantised(np.concatenate([codes, np.stack(nearest, axis=1).astype(np.uint8)]), centroids, size)
