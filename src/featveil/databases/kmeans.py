"""Spherical k-means over descriptors on disk, in chunks, resumable.

Memory for 10 million descriptors of size 128 and 256,000 clusters: the descriptors stay on disk (memory map,
pages the system may drop). In memory are the centroids (131 MB) and faiss's copy of them (131 MB), the sums
in float64 (262 MB), while a checkpoint is written its bytes (400 MB), and one chunk with its block of inner
products (tens of MB): about 1 GB in all. The time is 2 * n * clusters * d operations an iteration, whatever
is kept in memory.
"""

import hashlib
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from featveil.core.arrays import Float32, Float64, Integers
from featveil.core.errors import InputError
from featveil.databases.entries import Values, unit_rows
from featveil.databases.kmeans_state import State, load_state, save_state
from featveil.databases.recipes import CLUSTERING

Progress = Callable[[int, int], None]

# A chunk is a second or two of work, so that stopping and resuming never costs more than that.
_PAIRS_PER_CHUNK = 2**28
_ROWS_PER_CHUNK = 2**16
_SECONDS_BETWEEN_CHECKPOINTS = 60.0


@dataclass(frozen=True, eq=False)
class Clustering:
    """`centroids` (clusters, d), rows of norm 1, and the mean cosine to the nearest one at each iteration."""

    centroids: Float32
    mean_cosines: tuple[float, ...]


def spherical_kmeans(
    data: Values,
    clusters: int,
    iterations: int = 10,
    seed: int = 0,
    checkpoint: Path | None = None,
    progress: Progress | None = None,
) -> Clustering:
    """Cluster the rows of `data` (n, d), uint8 or float32 and none of them zero, by direction.

    With a `checkpoint` path the work goes on where an interrupted run stopped, and ends with the same
    centroids as a run that was not interrupted. `progress` receives (done, total) in chunks. Raises
    InputError for fewer rows than clusters or a checkpoint of another clustering.
    """
    if not 1 <= clusters <= len(data):
        raise InputError(f"cannot make {clusters} clusters from {len(data)} descriptors")
    if iterations < 1:
        raise InputError(f"k-means needs at least 1 iteration, got {iterations}")
    state = None
    identity = ""
    if checkpoint is not None:
        identity = _identity(data, clusters, iterations, seed)
        state = load_state(checkpoint, identity, (clusters, data.shape[1]))
    state = state or _start(data, clusters, seed)
    try:
        _run(data, state, iterations, seed, _Ticks(state, checkpoint, identity, progress))
    except BaseException:
        # An interrupt may hit in the middle of an update: then the last checkpoint on disk stands.
        if checkpoint is not None and not state.torn:
            save_state(state, checkpoint, identity)
        raise
    return Clustering(state.centroids, tuple(state.mean_cosines))


def chunk_rows(clusters: int) -> int:
    """Rows in a chunk; decided by `clusters` alone, so that a resumed run cuts the data alike."""
    return int(np.clip(_PAIRS_PER_CHUNK // clusters, 256, _ROWS_PER_CHUNK))


class _Ticks:
    """What happens after a chunk: a checkpoint when one is due, and a call of `progress`."""

    def __init__(self, state: State, path: Path | None, identity: str, progress: Progress | None) -> None:
        self.state, self.path, self.identity, self.progress = state, path, identity, progress
        self.saved = time.monotonic()

    def tick(self, done: int, total: int) -> None:
        iteration_ended = self.state.next_chunk == 0
        due = iteration_ended or time.monotonic() - self.saved > _SECONDS_BETWEEN_CHECKPOINTS
        if self.path is not None and due:
            save_state(self.state, self.path, self.identity)
            self.saved = time.monotonic()
        if self.progress is not None:
            self.progress(done, total)


def _start(data: Values, clusters: int, seed: int) -> State:
    """Centroids are random rows at first."""
    rng = np.random.default_rng([CLUSTERING, seed, 0])
    rows = np.sort(rng.choice(len(data), clusters, replace=False))
    return State(unit_rows(data[rows]))


def _run(data: Values, state: State, iterations: int, seed: int, ticks: _Ticks) -> None:
    step = chunk_rows(len(state.centroids))
    chunks = -(-len(data) // step)
    while state.iteration < iterations:
        index = _index(state.centroids)
        for chunk in range(state.next_chunk, chunks):
            rows = unit_rows(data[chunk * step : (chunk + 1) * step])
            cosines, nearest = index.search(rows, 1)
            with state.changing():
                _accumulate(state, rows, nearest[:, 0], float(cosines.sum(dtype=np.float64)))
                state.next_chunk = chunk + 1
                if state.next_chunk == chunks:
                    _finish_iteration(data, state, np.random.default_rng([CLUSTERING, seed, state.iteration + 1]))
            ticks.tick(state.iteration * chunks + state.next_chunk, iterations * chunks)


def _accumulate(state: State, rows: Float32, nearest: Integers, similarity: float) -> None:
    """Add `rows` to the sums of their clusters; sorted runs, because `np.add.at` is several times slower."""
    order = np.argsort(nearest, kind="stable")
    labels, starts, counts = np.unique(nearest[order], return_index=True, return_counts=True)
    state.sums[labels] += np.add.reduceat(rows[order], starts, axis=0, dtype=np.float64)
    state.counts[labels] += counts
    state.similarity += similarity


def _finish_iteration(data: Values, state: State, rng: np.random.Generator) -> None:
    """New centroids are the directions of the sums; a cluster without one restarts at a random row."""
    norms = np.linalg.norm(state.sums, axis=1)
    empty = np.flatnonzero((state.counts == 0) | (norms < 1e-9))
    norms[empty] = 1.0
    state.centroids = _directions(state.sums, norms)
    state.centroids[empty] = unit_rows(data[np.sort(rng.choice(len(data), len(empty), replace=False))])
    state.mean_cosines.append(state.similarity / len(data))
    state.begin_iteration(state.iteration + 1)


def _directions(sums: Float64, norms: Float64) -> Float32:
    return (sums / norms[:, None]).astype(np.float32)


def _index(centroids: Float32):  # type: ignore[no-untyped-def]  # faiss has no types
    import faiss  # 0.2 s, only needed here

    index = faiss.IndexFlatIP(centroids.shape[1])
    index.add(np.ascontiguousarray(centroids))
    return index


def _identity(data: Values, clusters: int, iterations: int, seed: int) -> str:
    """A digest of everything that decides the result."""
    digest = hashlib.sha256(f"{data.shape} {data.dtype.name} {clusters} {iterations} {seed}".encode())
    for start in range(0, len(data), _ROWS_PER_CHUNK):
        digest.update(np.ascontiguousarray(data[start : start + _ROWS_PER_CHUNK]).data)
    return digest.hexdigest()
