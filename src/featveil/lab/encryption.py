"""Distances from encrypted descriptors beside those from lifted ones, in one run (lifting paper, section 4.1).

The queries are encrypted with CKKS (TenSEAL); the database stays in the clear, as for point-to-subspace. Hidden: the
queries and their distances, from everybody without the key, the server included, under lattice assumptions. Not hidden:
how many queries there are. The querier learns all distances. The server works out inner products only; the querier adds
the squared lengths, its own and the database's, which are 1 for unit vectors and not secret.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from featveil.core import Descriptors, InputError, MissingExtraError, Points
from featveil.core.arrays import Float64
from featveil.defenses.lifting import Lifting
from featveil.distances import matrix
from featveil.lab.runtime import Clock, cpu_seconds

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
    bench = _Bench(first, second, repeat)
    yield from bench.unencrypted("point-to-point", 0, first, second)
    for m in dimensions:
        lifting, rng = Lifting("sub-hybrid", m).for_kind(kind), np.random.default_rng(0)
        lifted = lifting.privatize(first, rng)
        yield from bench.unencrypted("point-to-subspace", m, lifted, second)
        yield from bench.unencrypted("subspace-to-subspace", m, lifted, lifting.privatize(second, rng))
    yield from _dot_products(bench, cipher)
    yield from _vector_times_matrix(bench, cipher)
    yield _packed(bench, cipher)


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


class _Bench:
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


def _dot_products(bench: _Bench, cipher: Cipher) -> Iterator[Comparison]:
    queries, columns = bench.queries[:_QUERIES], min(_VECTORS, bench.columns)
    sent, encrypt_seconds = _timed(lambda: [cipher.encrypt(query) for query in queries])
    vectors = bench.database[:columns]

    def work() -> list[list[Any]]:
        return [cipher.dot_products(query, vectors) for query in sent]

    found = work()
    values, decrypt_seconds = _timed(lambda: np.array([[value.decrypt()[0] for value in row] for row in found]))
    share = columns / bench.columns
    exchange = Exchange(
        1,
        encrypt_seconds / len(sent),
        decrypt_seconds / len(sent) / share,
        _bytes(sent[:1]),
        round(_bytes(found[0]) / share),
        bench.largest_error(values, len(sent), columns),
    )
    name, part = "encrypted, dot products", f"{len(sent)} x {columns}"
    seconds, ratio = bench.one(work, len(sent))
    yield Comparison(name, 0, 1, bench.columns, seconds / share, ratio / share, part, exchange)
    yield Comparison(name, 0, bench.rows, bench.columns, *bench.all(work, share * len(sent) / bench.rows), part)


def _vector_times_matrix(bench: _Bench, cipher: Cipher) -> Iterator[Comparison]:
    queries = bench.queries[:_QUERIES]
    sent, encrypt_seconds = _timed(lambda: [cipher.encrypt(query) for query in queries])

    def work() -> list[Any]:
        return [cipher.vector_times_matrix(query, bench.database) for query in sent]

    found = work()
    values, decrypt_seconds = _timed(lambda: np.array([row.decrypt() for row in found]))
    exchange = Exchange(
        1,
        encrypt_seconds / len(sent),
        decrypt_seconds / len(sent),
        _bytes(sent[:1]),
        _bytes(found[:1]),
        bench.largest_error(values, len(sent), bench.columns),
    )
    name, part = "encrypted, vector x matrix", f"{len(sent)} queries"
    yield Comparison(name, 0, 1, bench.columns, *bench.one(work, len(sent)), "", exchange)
    yield Comparison(name, 0, bench.rows, bench.columns, *bench.all(work, len(sent) / bench.rows), part)


def _packed(bench: _Bench, cipher: Cipher) -> Comparison:
    """All queries at once; a single one would take as long."""
    columns = min(_VECTORS, bench.columns)
    sent, encrypt_seconds = _timed(lambda: cipher.encrypt_packed(bench.queries))
    work = partial(cipher.packed, sent, bench.database[:columns])
    found = work()
    values, decrypt_seconds = _timed(lambda: np.array(found.decrypt().tolist())[:, 0])
    share = columns / bench.columns
    exchange = Exchange(
        bench.rows,
        encrypt_seconds,
        decrypt_seconds / share,
        _bytes([sent]),
        round(_bytes([found]) / share),
        bench.largest_error(values, bench.rows, columns),
    )
    name, part = "encrypted, packed queries", f"{columns} vectors"
    return Comparison(name, 0, bench.rows, bench.columns, *bench.all(work, share), part, exchange)


def _timed(call: Callable[[], Any]) -> tuple[Any, float]:
    results: list[Any] = []
    seconds = cpu_seconds(lambda: results.append(call()))
    return results[0], seconds


def _bytes(ciphertexts: list[Any]) -> int:
    return sum(len(ciphertext.serialize()) for ciphertext in ciphertexts)
