"""How long matching takes, as ratios to the matrix product that it cannot do without, and beside encryption.

Every figure is CPU time on one thread, and each repetition measures the reference right before the method, so that a
noisy machine disturbs both alike. The reference of subspaces with n x n pairs is the product of (n (m + 1)) x d and
d x (n (m + 1)) matrices by the same BLAS library that the method uses.

Encryption (lifting paper, section 4.1): distances from encrypted descriptors beside those from lifted ones. The queries
are encrypted with CKKS (TenSEAL); the database stays in the clear, as for point-to-subspace. Hidden: the queries and
their distances, from everybody without the key, the server included, under lattice assumptions. Not hidden: how many
queries there are. The querier learns all distances. The server works out inner products only; the querier adds the
squared lengths, its own and the database's, which are 1 for unit vectors and not secret.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from rich.console import Group

from featveil.core import Descriptors, Flats, InputError, MissingExtraError, Points, SecureRandomness
from featveil.core.arrays import Float32, Float64
from featveil.core.options import option
from featveil.databases import builtin
from featveil.defenses.lifting import Lifting
from featveil.distances import matrix, nearest_both_ways, nearest_pruned
from featveil.distances.threads import one_thread_each, single_threaded
from featveil.extractors import extract
from featveil.lab.bench import Column, Plain, Progress, Results, kind_option, refuse_none, screen_table

# Rows of the reference product that are computed at a time, to bound its memory.
_STRIP = 2**26

# 128 bits of security allow a modulus of 218 bits at this degree; the one product needs these two primes of 60 bits.
# Two factors at a scale of 28 bits and the sign leave three bits for the sum: inner products below 4 fit.
DEGREE, _PRIMES, _SCALE = 8192, (60, 60), 2.0**28
SLOTS = DEGREE // 2
# Squared distances are right to about 1e-4. More than this means overflow, not noise.
TOLERANCE = 1e-3
# TenSEAL cannot add up products when a factor is 0; this moves a squared distance by at most 2e-7.
_ALMOST_ZERO = 2.0**-26

# What is measured of encryption before it is scaled to all: queries, and database vectors where each costs the same.
_QUERIES, _VECTORS = 5, 20
# Single queries of the unencrypted methods, which take too little time to measure one.
_SINGLES = 100


@dataclass(frozen=True)
class Options:
    """What is timed, on how many descriptors."""

    features: int = option(1000, help="Descriptors in each of the two sets.", minimum=2)
    dimensions: tuple[int, ...] = option((2, 4, 8), help="Subspace dimensions, separated by commas.")
    repeat: int = option(3, help="Repetitions; the median is shown.", minimum=1)
    images: tuple[Path, Path] | None = option(
        None, help="Two images to take descriptors from.", shown="the built-in database"
    )
    kind: str = kind_option()
    encryption: bool = option(False, help="Distances of one and of all descriptors, raw, lifted and encrypted.")

    def __post_init__(self) -> None:
        refuse_none(self, "dimensions")


def runtime(options: Options, progress: Progress) -> Results:
    """CPU time of every matching method on one thread, and its ratio to a reference measured beside it.

    Example: featveil bench runtime --features 1000 --dimensions 2,4,8

    Example: featveil bench runtime --encryption
    """
    first, second = _two_sets(options.kind, options.features, options.images)
    run = _against_encryption if options.encryption else _matching
    return run(first, second, options, progress)


def _two_sets(kind: str, features: int, images: tuple[Path, Path] | None) -> tuple[Points, Points]:
    """Two sets of the same number of raw descriptors, of two images or of the built-in database."""
    if images is None:
        points = Points(builtin(kind).points())
        half = len(points) // 2
        sets = points.take(np.arange(half)), points.take(np.arange(half, 2 * half))
    else:
        sets = extract(images[0], kind, features).descriptors, extract(images[1], kind, features).descriptors
    fewest = min(len(sets[0]), len(sets[1]))
    if fewest < features:
        raise InputError(f"{features} descriptors are asked for, {fewest} are there: lower --features")
    return sets[0].take(np.arange(features)), sets[1].take(np.arange(features))


def _matching(first: Points, second: Points, options: Options, progress: Progress) -> Results:
    timings: list[Timing] = []
    with progress("timing") as report:
        for timing in measure(first, second, options.dimensions, options.repeat, options.kind):
            timings.append(timing)
            # How many methods there are depends on the sizes: the bar only counts.
            report(len(timings), max(len(timings) + 1, 4 * len(options.dimensions) + 2))
    return Results({"timings": [asdict(timing) for timing in timings]}, screen_table(TIMED, timings))


def _against_encryption(first: Points, second: Points, options: Options, progress: Progress) -> Results:
    key_bytes = Cipher().key_bytes
    comparisons: list[Comparison] = []
    with progress("timing") as report:
        for comparison in compare(first, second, options.dimensions, options.repeat, options.kind):
            comparisons.append(comparison)
            # Raw and both distances of each dimension, for one query and for all; encryption in three ways.
            report(len(comparisons), 2 + 4 * len(options.dimensions) + 5)
    exchanges = [(row.method, row.exchange) for row in comparisons if row.exchange is not None]
    keys = f"\nKeys that the server needs, sent once: {key_bytes / 1e6:.1f} MB. Error: largest of a squared distance."
    facts = {"comparisons": [asdict(row) for row in comparisons], "key_bytes": key_bytes}
    tables = screen_table(COMPARED, comparisons), "", screen_table(EXCHANGED, exchanges), keys
    return Results(facts, Group(*tables))


@dataclass(frozen=True)
class Timing:
    """`seconds` of a method, and its `ratio` to the `reference` measured beside it."""

    method: str
    n: int
    dimension: int
    seconds: float
    reference: str
    ratio: float


def measure(
    first: Points, second: Points, dimensions: tuple[int, ...], repeat: int = 3, kind: str = "sift"
) -> Iterator[Timing]:
    """Time every matching method on two sets of raw descriptors, lifted to each of `dimensions`."""
    n, d = len(first), first.size
    raw = Clock(lambda: nearest_both_ways(first, second, 2), lambda: matrix(first, second), repeat)
    yield Timing("point-point, both ways", n, 0, raw.seconds, "point-point matrix", raw.ratio)
    for m in dimensions:
        lifting = Lifting("sub-hybrid", m).for_kind(kind)
        rng = np.random.default_rng(0)
        a, b = lifting.privatize(first, rng), lifting.privatize(second, rng)
        yield from _one_dimension(_Case(first, second, a, b, m, n, d), repeat)
    yield _lifting(first, repeat, kind)


@dataclass(frozen=True)
class _Case:
    first: Points
    second: Points
    a: Flats
    b: Flats
    m: int
    n: int
    d: int


def _one_dimension(case: _Case, repeat: int) -> Iterator[Timing]:
    m, n, d = case.m, case.n, case.d
    product = f"matrix product of {m + 1}n x {m + 1}n"
    both = Clock(lambda: nearest_both_ways(case.a, case.b, 2), _product(n * (m + 1), n * (m + 1), d), repeat)
    yield Timing("subspace-subspace, both ways", n, m, both.seconds, product, both.ratio)
    if n >= 4000 and m <= 8:
        pruned = Clock(lambda: nearest_pruned(case.a, case.b, 2), _product(n * (m + 1), n * (m + 1), d), repeat)
        yield Timing("subspace-subspace, pruned rows", n, m, pruned.seconds, product, pruned.ratio)
    one = Clock(lambda: nearest_both_ways(case.a, case.second, 2), _product(n * (m + 1), n, d), repeat)
    yield Timing("point-subspace, both ways", n, m, one.seconds, f"matrix product of {m + 1}n x n", one.ratio)
    raw = "point-point, both ways"
    for name, other in (("subspace-subspace, both ways", case.b), ("point-subspace, both ways", case.second)):
        clock = Clock(
            partial(nearest_both_ways, case.a, other), partial(nearest_both_ways, case.first, case.second), repeat
        )
        yield Timing(name, n, m, clock.seconds, raw, clock.ratio)


def _lifting(points: Points, repeat: int, kind: str) -> Timing:
    """Lifting 10,000 descriptors, against the two factorisations that its equations call for.

    Those are of the initial directions and of the redrawn basis (Eq. 10), as batched LAPACK calls.
    """
    count, m = 10_000, 4
    raw = Points(np.resize(points.values, (count, points.size)))
    lifting, secure = Lifting("sub-hybrid", m).for_kind(kind), SecureRandomness()
    directions = np.random.default_rng(0).standard_normal((2, count, points.size, m))
    clock = Clock(lambda: lifting.privatize(raw, secure), lambda: np.linalg.qr(directions), repeat)
    return Timing("lifting", count, m, clock.seconds, "two QR factorisations each", clock.ratio)


def _product(rows: int, columns: int, d: int) -> Callable[[], object]:
    rng = np.random.default_rng(0)
    left = rng.random((rows, d), np.float32)
    right = rng.random((columns, d), np.float32)
    strip = max(1, min(rows, _STRIP // columns))
    out = np.empty((strip, columns), np.float32)

    def run() -> Float32:
        for start in range(0, rows, strip):
            part = left[start : start + strip]
            np.dot(part, right.T, out=out[: len(part)])
        return out

    return run


class Clock:
    """Median CPU seconds of `method` and of its ratio to `reference`, after a warm-up call of each."""

    def __init__(self, method: Callable[[], object], reference: Callable[[], object], repeat: int) -> None:
        with single_threaded(), one_thread_each():
            reference()
            method()
            pairs = [(cpu_seconds(reference), cpu_seconds(method)) for _ in range(repeat)]
        self.seconds = median(own for _, own in pairs)
        self.ratio = median(own / other for other, own in pairs)


def cpu_seconds(call: Callable[[], object]) -> float:
    """CPU time of one call."""
    start = time.process_time()
    call()
    return time.process_time() - start


@dataclass(frozen=True)
class Exchange:
    """What `queries` queries cost their sender, in CPU seconds and bytes, and the largest error it was left with."""

    queries: int
    encrypt_seconds: float
    decrypt_seconds: float
    sent_bytes: int
    returned_bytes: int
    largest_error: float


@dataclass(frozen=True)
class Comparison:
    """CPU `seconds` for all distances of `queries` x `database` vectors; `ratio` to raw ones measured beside them.

    `scaled_from` says what was measured where that was not everything.
    """

    method: str
    dimension: int
    queries: int
    database: int
    seconds: float
    ratio: float
    scaled_from: str = ""
    exchange: Exchange | None = None


def compare(
    first: Points, second: Points, dimensions: tuple[int, ...], repeat: int = 3, kind: str = "sift"
) -> Iterator[Comparison]:
    """Time distances of one and of all of `first` against `second`: raw, lifted to each of `dimensions`, encrypted.

    Raises MissingExtraError without TenSEAL, InputError when a set does not fit in a ciphertext.
    """
    cipher = Cipher()
    if not 0 < max(len(first), len(second), first.size) <= SLOTS:
        raise InputError(
            f"a ciphertext holds {SLOTS} numbers, got {len(first)} and {len(second)} descriptors: use fewer"
        )
    sets = _Sets(first, second, repeat)
    yield from sets.unencrypted("point-to-point", 0, first, second)
    for m in dimensions:
        lifting, rng = Lifting("sub-hybrid", m).for_kind(kind), np.random.default_rng(0)
        lifted = lifting.privatize(first, rng)
        yield from sets.unencrypted("point-to-subspace", m, lifted, second)
        yield from sets.unencrypted("subspace-to-subspace", m, lifted, lifting.privatize(second, rng))
    yield from _dot_products(sets, cipher)
    yield from _vector_times_matrix(sets, cipher)
    yield _packed(sets, cipher)


class Cipher:
    """A key pair, and inner products under it in three ways; a server needs `key_bytes` of it once."""

    def __init__(self) -> None:
        self._tenseal = require_tenseal()
        scheme = self._tenseal.SCHEME_TYPE.CKKS
        self._context = self._tenseal.context(scheme, DEGREE, coeff_mod_bit_sizes=list(_PRIMES), n_threads=1)
        self._context.global_scale = _SCALE
        # One product only: there is no prime to rescale by, and nothing to multiply afterwards.
        self._context.auto_rescale = False
        self._context.generate_galois_keys()

    @property
    def key_bytes(self) -> int:
        """Bytes of the keys that let a server rotate ciphertexts, and of nothing secret."""
        return len(self._context.serialize(save_secret_key=False, save_relin_keys=False))

    def encrypt(self, query: Float64) -> Any:
        """One query (d,) in one ciphertext."""
        return self._tenseal.ckks_vector(self._context, query.tolist())

    def encrypt_packed(self, queries: Float64) -> Any:
        """All queries (n, d) in d ciphertexts: each holds one coordinate of all of them."""
        return self._tenseal.ckks_tensor(self._context, self._plain(queries[:, None, :]), batch=True)

    def dot_products(self, query: Any, database: Float64) -> list[Any]:
        """Inner products with each row of `database` (n, d), a ciphertext each."""
        return [query.dot(vector) for vector in database.tolist()]

    def vector_times_matrix(self, query: Any, database: Float64) -> Any:
        """All inner products with the rows of `database` (n, d), in one ciphertext."""
        return query.matmul(self._plain(database.T))

    def packed(self, queries: Any, database: Float64) -> Any:
        """Inner products of packed queries with `database` (n, d): a ciphertext for each row, of all queries."""
        return queries.mm(self._plain(np.where(database == 0, _ALMOST_ZERO, database).T))

    def _plain(self, values: Float64) -> Any:
        return self._tenseal.plain_tensor(values.tolist())


def require_tenseal() -> Any:
    """The module tenseal; raises MissingExtraError where it is not installed."""
    try:
        import tenseal
    except ImportError as error:
        raise MissingExtraError("tenseal", "encryption") from error
    return tenseal


class _Sets:
    """Two sets of descriptors, and their raw distances as what everything is compared with."""

    def __init__(self, first: Points, second: Points, repeat: int) -> None:
        self.queries, self.database = first.values.astype(np.float64), second.values.astype(np.float64)
        self.rows, self.columns, self._repeat = len(first), len(second), repeat
        self._one = _singly(first, second)
        self._singles = min(_SINGLES, len(first))
        self._all = partial(matrix, first, second)

    def one(self, method: Callable[[], object], calls: int) -> tuple[float, float]:
        """Seconds for one query, of `calls` that `method` does, and their ratio to a raw query."""
        clock = Clock(method, self._one, self._repeat)
        return clock.seconds / calls, clock.ratio * self._singles / calls

    def all(self, method: Callable[[], object], share: float) -> tuple[float, float]:
        """Seconds for all queries, of which `method` does a `share`, and their ratio to the raw distance matrix."""
        clock = Clock(method, self._all, self._repeat)
        return clock.seconds / share, clock.ratio / share

    def unencrypted(self, method: str, m: int, a: Descriptors, b: Descriptors) -> Iterator[Comparison]:
        """One query of `a`, and all of them, against `b`."""
        yield Comparison(method, m, 1, self.columns, *self.one(_singly(a, b), self._singles))
        yield Comparison(method, m, self.rows, self.columns, *self.all(partial(matrix, a, b), 1))

    def largest_error(self, products: Float64, rows: int, columns: int) -> float:
        """How far squared distances from inner `products` (rows, columns) are off at most; raises InputError if far."""
        queries, database = self.queries[:rows], self.database[:columns]
        lengths = (queries**2).sum(1)[:, None] + (database**2).sum(1)
        true = ((queries[:, None] - database) ** 2).sum(2)
        error = float(np.abs(lengths - 2 * products - true).max())
        if not error <= TOLERANCE:
            raise InputError(
                f"encrypted squared distances are off by {error:.3g}, more than {TOLERANCE:g}: "
                "descriptors must have about unit length"
            )
        return error


def _singly(a: Descriptors, b: Descriptors) -> Callable[[], object]:
    queries = [a.take(np.array([row])) for row in range(min(_SINGLES, len(a)))]
    return lambda: [matrix(query, b) for query in queries]


def _dot_products(sets: _Sets, cipher: Cipher) -> Iterator[Comparison]:
    queries, columns = sets.queries[:_QUERIES], min(_VECTORS, sets.columns)
    sent, encrypt_seconds = _timed(lambda: [cipher.encrypt(query) for query in queries])
    vectors = sets.database[:columns]

    def work() -> list[list[Any]]:
        return [cipher.dot_products(query, vectors) for query in sent]

    results = work()
    values, decrypt_seconds = _timed(lambda: np.array([[value.decrypt()[0] for value in row] for row in results]))
    share = columns / sets.columns
    exchange = Exchange(
        1,
        encrypt_seconds / len(sent),
        decrypt_seconds / len(sent) / share,
        _bytes(sent[:1]),
        round(_bytes(results[0]) / share),
        sets.largest_error(values, len(sent), columns),
    )
    name, part = "encrypted, dot products", f"{len(sent)} x {columns}"
    seconds, ratio = sets.one(work, len(sent))
    yield Comparison(name, 0, 1, sets.columns, seconds / share, ratio / share, part, exchange)
    yield Comparison(name, 0, sets.rows, sets.columns, *sets.all(work, share * len(sent) / sets.rows), part)


def _vector_times_matrix(sets: _Sets, cipher: Cipher) -> Iterator[Comparison]:
    queries = sets.queries[:_QUERIES]
    sent, encrypt_seconds = _timed(lambda: [cipher.encrypt(query) for query in queries])

    def work() -> list[Any]:
        return [cipher.vector_times_matrix(query, sets.database) for query in sent]

    results = work()
    values, decrypt_seconds = _timed(lambda: np.array([row.decrypt() for row in results]))
    exchange = Exchange(
        1,
        encrypt_seconds / len(sent),
        decrypt_seconds / len(sent),
        _bytes(sent[:1]),
        _bytes(results[:1]),
        sets.largest_error(values, len(sent), sets.columns),
    )
    name, part = "encrypted, vector x matrix", f"{len(sent)} queries"
    yield Comparison(name, 0, 1, sets.columns, *sets.one(work, len(sent)), "", exchange)
    yield Comparison(name, 0, sets.rows, sets.columns, *sets.all(work, len(sent) / sets.rows), part)


def _packed(sets: _Sets, cipher: Cipher) -> Comparison:
    """All queries at once; a single one would take as long."""
    columns = min(_VECTORS, sets.columns)
    sent, encrypt_seconds = _timed(lambda: cipher.encrypt_packed(sets.queries))
    work = partial(cipher.packed, sent, sets.database[:columns])
    results = work()
    values, decrypt_seconds = _timed(lambda: np.array(results.decrypt().tolist())[:, 0])
    share = columns / sets.columns
    exchange = Exchange(
        sets.rows,
        encrypt_seconds,
        decrypt_seconds / share,
        _bytes([sent]),
        round(_bytes([results]) / share),
        sets.largest_error(values, sets.rows, columns),
    )
    name, part = "encrypted, packed queries", f"{columns} vectors"
    return Comparison(name, 0, sets.rows, sets.columns, *sets.all(work, share), part, exchange)


def _timed(call: Callable[[], Any]) -> tuple[Any, float]:
    results: list[Any] = []
    seconds = cpu_seconds(lambda: results.append(call()))
    return results[0], seconds


def _bytes(ciphertexts: list[Any]) -> int:
    return sum(len(ciphertext.serialize()) for ciphertext in ciphertexts)


def _short(value: float) -> str:
    """About three digits, thousands apart."""
    digits = 0 if value >= 100 else 1 if value >= 10 else 2
    return f"{float(f'{value:.3g}'):,.{digits}f}"


TIMED: tuple[Column[Timing], ...] = (
    Column("method", lambda row: row.method, left=True),
    Column("n", lambda row: str(row.n)),
    Column("m", lambda row: str(row.dimension)),
    Column("CPU ms", lambda row: f"{1000 * row.seconds:.1f}"),
    Column("ratio", lambda row: f"{row.ratio:.2f}"),
    Column("to", lambda row: row.reference, left=True),
)
COMPARED: tuple[Column[Comparison], ...] = (
    Column("method", lambda row: row.method, left=True),
    Column("m", lambda row: str(row.dimension or "")),
    Column("distances", lambda row: f"{row.queries} x {row.database}"),
    Column("CPU ms", lambda row: _short(1000 * row.seconds)),
    Column("ratio", lambda row: _short(row.ratio)),
    Column("scaled from", lambda row: row.scaled_from),
)
EXCHANGED: tuple[Column[tuple[str, Exchange]], ...] = (
    Column("at the sender", lambda row: row[0].removeprefix("encrypted, "), left=True),
    Column("queries", lambda row: str(row[1].queries)),
    Column("encrypt ms", lambda row: _short(1000 * row[1].encrypt_seconds)),
    Column("decrypt ms", lambda row: _short(1000 * row[1].decrypt_seconds)),
    Column("sent MB", lambda row: f"{row[1].sent_bytes / 1e6:.2f}"),
    Column("back MB", lambda row: f"{row[1].returned_bytes / 1e6:.2f}"),
    Column("error", lambda row: f"{row[1].largest_error:.0e}"),
)
BENCH = Plain("runtime", runtime)
