"""Spherical k-means: right, better than chance, and the same after any interruption."""

import errno
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from featveil.core import FormatError, InputError
from featveil.databases import kmeans as clustering
from featveil.databases.entries import unit_rows
from featveil.databases.kmeans import Clustering, chunk_rows, spherical_kmeans
from featveil.databases.recipes import CLUSTERING

Rows = NDArray[np.uint8]


@pytest.fixture
def data() -> Rows:
    """900 bytes-descriptors around 12 directions."""
    rng = np.random.default_rng(0)
    centres = rng.random((12, 16)) ** 3
    noisy = centres[rng.integers(0, 12, 900)] + 0.1 * rng.random((900, 16))
    rows: Rows = np.rint(200 * noisy / noisy.max()).astype(np.uint8)
    return rows


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clustering, "_ROWS_PER_CHUNK", 256)


def mean_cosine(data: Rows, centroids: NDArray[np.float32]) -> float:
    return float((unit_rows(data) @ centroids.T).max(axis=1).mean())


def plain_kmeans(data: Rows, clusters: int, iterations: int, seed: int) -> NDArray[np.float64]:
    """The same algorithm in plain loops (for data where no cluster becomes empty)."""
    rows = [row / np.linalg.norm(row) for row in data.astype(np.float64)]
    first = np.random.default_rng([CLUSTERING, seed, 0]).choice(len(rows), clusters, replace=False)
    centroids = [rows[i] for i in sorted(first)]
    for _ in range(iterations):
        members: list[list[NDArray[np.float64]]] = [[] for _ in centroids]
        for row in rows:
            members[max(range(clusters), key=lambda c: float(row @ centroids[c]))].append(row)
        assert all(members)
        sums = [np.sum(group, axis=0) for group in members]
        centroids = [total / np.linalg.norm(total) for total in sums]
    return np.array(centroids)


def test_equals_plain_loops(data: Rows) -> None:
    clusters = spherical_kmeans(data, 7, iterations=4, seed=3)
    np.testing.assert_allclose(clusters.centroids, plain_kmeans(data, 7, 4, 3), atol=1e-5)
    assert clusters.centroids.dtype == np.float32


def test_gets_better_and_beats_random_centroids(data: Rows) -> None:
    clusters = spherical_kmeans(data, 12, iterations=6)
    assert len(clusters.mean_cosines) == 6
    assert all(later >= earlier - 1e-6 for earlier, later in zip(clusters.mean_cosines, clusters.mean_cosines[1:]))  # noqa: B905
    assert mean_cosine(data, clusters.centroids) >= clusters.mean_cosines[-1] - 1e-6
    rng = np.random.default_rng(1)
    chance = [mean_cosine(data, unit_rows(data[rng.choice(900, 12, replace=False)])) for _ in range(20)]
    assert mean_cosine(data, clusters.centroids) > max(chance)
    np.testing.assert_allclose(np.linalg.norm(clusters.centroids, axis=1), 1, atol=1e-6)


def test_floats_and_bytes_agree(data: Rows) -> None:
    from_bytes = spherical_kmeans(data, 5, 3).centroids
    from_floats = spherical_kmeans(data.astype(np.float32) * 3, 5, 3).centroids
    np.testing.assert_allclose(from_bytes, from_floats, atol=1e-5)


def test_empty_clusters_and_sums_without_direction_restart(data: Rows) -> None:
    copies = np.repeat(data[:3], 50, axis=0)
    clusters = spherical_kmeans(copies, 20, 4)
    np.testing.assert_allclose(np.linalg.norm(clusters.centroids, axis=1), 1, atol=1e-6)
    opposite = np.array([[1, 0], [-1, 0]], np.float32)
    assert np.isfinite(spherical_kmeans(opposite, 1, 3).centroids).all()


def interrupted(data: Rows, checkpoint: Path, after: int) -> Clustering | None:
    """Run with Ctrl-C after `after` chunks; the result if it ended before."""
    calls = 0

    def progress(done: int, total: int) -> None:
        nonlocal calls
        calls += 1
        if calls == after:
            raise KeyboardInterrupt

    try:
        return spherical_kmeans(data, 9, 5, 2, checkpoint, progress)
    except KeyboardInterrupt:
        return None


@pytest.mark.parametrize("after", [1, 3, 4, 7])
def test_interrupted_again_and_again_gives_the_same(data: Rows, tmp_path: Path, after: int) -> None:
    straight = spherical_kmeans(data, 9, 5, 2)
    checkpoint = tmp_path / "c.safetensors"
    runs = 1
    while (resumed := interrupted(data, checkpoint, after)) is None:
        runs += 1
    assert runs >= 20 // after  # 5 iterations of 4 chunks: no chunk was done twice, none was lost
    assert runs <= 20 // after + 1
    np.testing.assert_array_equal(resumed.centroids, straight.centroids)
    assert resumed.mean_cosines == straight.mean_cosines


def test_progress_counts_chunks_and_goes_on_after_a_stop(data: Rows, tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    interrupted(data, tmp_path / "c", 6)
    spherical_kmeans(data, 9, 5, 2, tmp_path / "c", lambda done, total: seen.append((done, total)))
    assert seen == [(done, 20) for done in range(7, 21)]


def test_an_interrupt_within_an_update_falls_back_to_the_last_checkpoint(
    data: Rows, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    straight = spherical_kmeans(data, 9, 5, 2)
    add = clustering._accumulate
    calls = 0

    def torn(*arguments: object) -> None:
        nonlocal calls
        calls += 1
        add(*arguments)  # type: ignore[arg-type]
        if calls == 7:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(clustering, "_accumulate", torn)
        with pytest.raises(KeyboardInterrupt):
            spherical_kmeans(data, 9, 5, 2, tmp_path / "c")
    seen: list[int] = []
    resumed = spherical_kmeans(data, 9, 5, 2, tmp_path / "c", lambda done, total: seen.append(done))
    assert seen[0] == 5  # the checkpoint at the end of the first iteration
    np.testing.assert_array_equal(resumed.centroids, straight.centroids)


def test_a_checkpoint_is_written_between_iterations_when_one_is_due(
    data: Rows, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    saves: list[int] = []
    monkeypatch.setattr(clustering, "save_state", lambda state, *rest: saves.append(state.next_chunk))
    spherical_kmeans(data, 9, 2, 2, tmp_path / "c")
    assert saves == [0, 0]
    monkeypatch.setattr(clustering, "_SECONDS_BETWEEN_CHECKPOINTS", -1.0)
    saves.clear()
    spherical_kmeans(data, 9, 2, 2, tmp_path / "c")
    assert saves == [1, 2, 3, 0] * 2


def test_checkpoints_of_other_work_or_damaged_are_refused(data: Rows, tmp_path: Path) -> None:
    checkpoint = tmp_path / "c.safetensors"
    interrupted(data, checkpoint, 2)
    changed = data.copy()
    changed[899, 15] ^= 1
    for other, clusters, iterations, seed in [
        (changed, 9, 5, 2),
        (data, 8, 5, 2),
        (data, 9, 4, 2),
        (data, 9, 5, 1),
    ]:
        with pytest.raises(InputError, match="another clustering"):
            spherical_kmeans(other, clusters, iterations, seed, checkpoint)
    good = checkpoint.read_bytes()
    for damaged in (b"", b"nothing like it", good[:-3]):
        checkpoint.write_bytes(damaged)
        with pytest.raises(FormatError, match="delete it to start again"):
            spherical_kmeans(data, 9, 5, 2, checkpoint)


def test_a_full_disk_is_one_clear_error_and_the_checkpoint_before_it_stays(
    data: Rows, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoint = tmp_path / "c.safetensors"
    interrupted(data, checkpoint, 2)

    def full(self: Path, content: bytes) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_bytes", full)
        with pytest.raises(InputError, match="No space left"):
            spherical_kmeans(data, 9, 5, 2, checkpoint)
    resumed = spherical_kmeans(data, 9, 5, 2, checkpoint)
    np.testing.assert_array_equal(resumed.centroids, spherical_kmeans(data, 9, 5, 2).centroids)


def test_impossible_requests(data: Rows) -> None:
    for clusters in (0, -1, 901):
        with pytest.raises(InputError, match="900 descriptors"):
            spherical_kmeans(data, clusters)
    with pytest.raises(InputError, match="iteration"):
        spherical_kmeans(data, 3, 0)


def test_chunks_stay_short_at_any_number_of_clusters(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clustering, "_ROWS_PER_CHUNK", 2**16)
    assert chunk_rows(1) == 2**16
    assert chunk_rows(16384) * 16384 == 2**28
    assert chunk_rows(256_000) * 256_000 <= 2**28
    assert chunk_rows(10**9) == 256
