"""How long matching takes: distances from encrypted descriptors, and featveil bench runtime --encryption."""

import json
import sys
from collections.abc import Callable

import numpy as np
import pytest
from typer.testing import CliRunner, Result

from featveil.cli.bench import app
from featveil.core import InputError, MissingExtraError, Points
from featveil.core.arrays import Float64
from featveil.lab import runtime
from featveil.lab.runtime import Cipher, Comparison, Exchange, compare


def invoke(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["runtime", "--encryption", *(str(argument) for argument in arguments)])


def unit_vectors(n: int, d: int, seed: int) -> Float64:
    values = np.random.default_rng(seed).standard_normal((n, d))
    return np.asarray(values / np.linalg.norm(values, axis=1, keepdims=True), np.float64)


def points(n: int, d: int, seed: int, length: float = 1) -> Points:
    return Points((length * unit_vectors(n, d, seed)).astype(np.float32))


def inner_products(queries: Float64, database: Float64) -> list[list[float]]:
    return [[sum(float(a) * float(b) for a, b in zip(q, x, strict=True)) for x in database] for q in queries]


@pytest.fixture
def tenseal() -> None:
    pytest.importorskip("tenseal", reason="encryption is measured with TenSEAL: pip install 'featveil[encryption]'")


@pytest.mark.parametrize(("rows", "columns"), [(3, 12), (12, 3), (1, 1)])
@pytest.mark.usefixtures("tenseal")
def test_three_ways_to_the_same_inner_products(rows: int, columns: int) -> None:
    cipher, queries, database = Cipher(), unit_vectors(rows, 8, 0), unit_vectors(columns, 8, 1)
    database[0, 2:6] = 0
    expected = inner_products(queries, database)
    sent = [cipher.encrypt(query) for query in queries]
    singly = [[value.decrypt()[0] for value in cipher.dot_products(query, database)] for query in sent]
    np.testing.assert_allclose(singly, expected, atol=1e-4)
    np.testing.assert_allclose([cipher.vector_times_matrix(q, database).decrypt() for q in sent], expected, atol=1e-4)
    packed = np.array(cipher.packed(cipher.encrypt_packed(queries), database).decrypt().tolist())
    np.testing.assert_allclose(packed[:, 0], expected, atol=1e-4)


class _SteadyClock:
    """Every method takes 2 seconds and 3 times as long as its reference; it is still run once."""

    seconds, ratio = 2.0, 3.0

    def __init__(self, method: Callable[[], object], reference: Callable[[], object], repeat: int) -> None:
        method()


@pytest.mark.usefixtures("tenseal")
def test_what_was_measured_is_scaled_to_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runtime, "Clock", _SteadyClock)
    rows = list(compare(points(10, 8, 0), points(80, 8, 1), ()))
    assert [(row.method, row.queries, row.database, row.scaled_from) for row in rows] == [
        ("point-to-point", 1, 80, ""),
        ("point-to-point", 10, 80, ""),
        ("encrypted, dot products", 1, 80, "5 x 20"),
        ("encrypted, dot products", 10, 80, "5 x 20"),
        ("encrypted, vector x matrix", 1, 80, ""),
        ("encrypted, vector x matrix", 10, 80, "5 queries"),
        ("encrypted, packed queries", 10, 80, "20 vectors"),
    ]
    # Ten single queries are timed, and all at once; 5 of 10 queries and 20 of 80 vectors when encrypted.
    assert [row.seconds for row in rows] == pytest.approx([0.2, 2, 0.4 * 4, 2 * 2 * 4, 0.4, 2 * 2, 2 * 4])
    assert [row.ratio for row in rows] == pytest.approx([3, 3, 3 * 2 * 4, 3 * 2 * 4, 3 * 2, 3 * 2, 3 * 4])
    dots, product, packed = (row.exchange for row in rows if row.exchange is not None)
    assert (dots.queries, product.queries, packed.queries) == (1, 1, 10)
    assert 70 < dots.returned_bytes / product.returned_bytes < 90
    assert 0.9 < dots.returned_bytes / packed.returned_bytes < 1.1
    assert 7 < packed.sent_bytes / product.sent_bytes < 9
    assert all(0 < exchange.largest_error < 1e-3 for exchange in (dots, product, packed))


@pytest.mark.usefixtures("tenseal")
def test_wrong_distances_are_refused() -> None:
    assert list(compare(points(6, 8, 0), points(6, 8, 1), (), repeat=1))
    with pytest.raises(InputError, match="unit length"):
        list(compare(points(6, 8, 0, length=100), points(6, 8, 1, length=100), (), repeat=1))


@pytest.mark.usefixtures("tenseal")
def test_more_than_a_ciphertext_holds_is_refused() -> None:
    few, many = points(2, 2, 0), points(4097, 2, 1)
    for first, second in ((few, many), (many, few)):
        with pytest.raises(InputError, match="4096 numbers, got"):
            next(compare(first, second, ()))


@pytest.mark.usefixtures("tenseal")
def test_the_command_compares_every_method(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runtime, "_QUERIES", 1)
    monkeypatch.setattr(runtime, "_VECTORS", 3)
    result = invoke("--features", 6, "--dimensions", 2, "--repeat", 1, "--json")
    assert result.exit_code == 0, result.output
    answer = json.loads(result.stdout)
    rows = [(row["method"], row["dimension"], row["queries"]) for row in answer["comparisons"]]
    lifted = [(name, 2, count) for name in ("point-to-subspace", "subspace-to-subspace") for count in (1, 6)]
    assert rows[2:6] == lifted
    assert rows[:2] == [("point-to-point", 0, 1), ("point-to-point", 0, 6)]
    assert rows[-1] == ("encrypted, packed queries", 0, 6)
    assert all(row["seconds"] > 0 and row["ratio"] > 0 for row in answer["comparisons"])
    assert 1e6 < answer["key_bytes"] < 1e8


@pytest.mark.usefixtures("tenseal")
def test_the_table_says_what_was_scaled(monkeypatch: pytest.MonkeyPatch) -> None:
    exchange = Exchange(1000, 0.4, 0.5, 16_790_000, 131_200_000, 6e-5)
    row = Comparison("encrypted, packed queries", 0, 1000, 1000, 12.7904, 1362.4, "20 vectors", exchange)
    monkeypatch.setattr(runtime, "compare", lambda *_: iter([row]))
    lines = [line.split() for line in invoke("--features", 5).stdout.splitlines()]
    words = ["encrypted,", "packed", "queries", "1000", "x", "1000", "12,800", "1,360", "20", "vectors"]
    assert words in lines
    assert ["packed", "queries", "1000", "400", "500", "16.79", "131.20", "6e-05"] in lines


def test_without_tenseal_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tenseal", None)
    result = invoke("--features", 5)
    assert isinstance(result.exception, MissingExtraError)
    assert "featveil[encryption]" in str(result.exception)
    assert result.stdout == ""
    with pytest.raises(MissingExtraError, match="tenseal"):
        Cipher()


def test_tables_of_what_was_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    class KeysOnly:
        key_bytes = 12_345_678

    exchange = Exchange(1, 0.5, 0.25, 1_234_567, 7_654_321, 1.2e-5)
    comparisons = [
        Comparison("point-to-point", 0, 1, 20, 0.00123, 1.0),
        Comparison("encrypted, dot products", 0, 1, 20, 123.456, 54321.0, "5 x 20", exchange),
    ]
    monkeypatch.setattr(runtime, "Cipher", KeysOnly)
    monkeypatch.setattr(runtime, "compare", lambda *given: iter(comparisons))
    lines = [" ".join(line.split()) for line in invoke("--features", 20).stdout.splitlines()]
    assert "point-to-point 1 x 20 1.23 1.00" in lines
    assert "encrypted, dot products 1 x 20 123,000 54,300 5 x 20" in lines
    assert "dot products 1 500 250 1.23 7.65 1e-05" in lines
    assert any("12.3 MB" in line for line in lines)
    shown = json.loads(invoke("--features", 20, "--json").stdout)
    assert shown["key_bytes"] == 12_345_678 and shown["comparisons"][1]["exchange"]["queries"] == 1
