"""Accounts: exact sums, refusals at the border, and nothing released that is not on the disk."""

import re
import signal
import sqlite3
import sys
from collections.abc import Callable
from contextlib import closing
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from featveil.core import Features, FormatError, Guarantee, InputError, Points, PrivacyError
from featveil.stores import ledger as ledger_module
from featveil.stores import sqlite
from featveil.stores.ledger import Ledger
from ledgers import names, process, refused, release


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    ledger = Ledger(tmp_path / "ledger.sqlite", wait=0.1)
    ledger.set_budget("ann", 30)
    return ledger


def change(path: Path, *statements: str) -> None:
    """Alter a ledger behind its back."""
    with closing(sqlite3.connect(path)) as connection, connection:
        for statement in statements:
            connection.execute(statement)


def test_a_budget_is_spent_to_the_last_bit_and_not_further(ledger: Ledger) -> None:
    account = ledger.account("ann")
    assert [account.charge(release()) for _ in range(3)] == [20.0, 10.0, 0.0]
    with refused(ledger, PrivacyError, "'ann' local-dp epsilon 10 and 0 is left (budget 30, spent 30)"):
        account.charge(release())
    with refused(ledger, PrivacyError, f"featveil ledger set-budget {ledger.path} ann EPSILON"):
        account.charge(release(1, Guarantee("local-dp", 1e-300)))
    (balance,) = ledger.statement()
    assert (balance.budget, balance.spent, balance.remaining, balance.releases) == (30.0, 30.0, 0.0, 3)
    assert names(ledger.path.parent) == ["ledger.sqlite"]


def test_an_image_costs_what_its_descriptors_cost_together(ledger: Ledger) -> None:
    account = ledger.account("ann")
    with refused(ledger, PrivacyError, "costs 'ann' local-dp epsilon 40 and 30 is left"):
        account.charge(release(4))
    assert account.charge(release(2)) == 10.0
    assert account.charge(release(0, Guarantee("local-dp", 4.0))) == 6.0  # compose() counts no feature as one
    assert account.charge(release(500, Guarantee("local-dp", 6.0, "image"))) == 0.0


def test_rounding_is_in_the_safe_direction(ledger: Ledger) -> None:
    """0.1 and 0.3 are not binary fractions: three releases of 0.1 are refused at 0.3 and fit 0.31."""
    account, tenth = ledger.account("ann"), release(1, Guarantee("local-dp", 0.1))
    ledger.set_budget("ann", 0.3)
    assert account.charge(tenth) < 0.2
    assert account.charge(tenth) < 0.1
    with refused(ledger, PrivacyError, "costs 'ann' local-dp epsilon 0.100000001 and 0.099999997 is left"):
        account.charge(tenth)
    ledger.set_budget("ann", 0.31)
    account.charge(tenth)


@pytest.mark.parametrize(
    ("epsilon", "n"), [(1 / 3, 7), (0.1, 3), (1e-12, 5), (10.0, 2048), (0.7, 999_983), (2**-30, 1)]
)
def test_a_cost_is_the_exact_product_rounded_up(tmp_path: Path, epsilon: float, n: int) -> None:
    ledger = Ledger(tmp_path / "ledger.sqlite")
    ledger.set_budget("ann", 1e6)
    ledger.account("ann").charge(release(n, Guarantee("local-dp", epsilon)))
    units = round(ledger.statement("ann")[0].spent * 10**9)
    assert 0 <= units - Fraction(epsilon) * n * 10**9 < 1


def test_sums_stay_within_64_bits(ledger: Ledger) -> None:
    ledger.set_budget("ann", 1e9)
    account = ledger.account("ann")
    assert account.charge(release(1000, Guarantee("local-dp", 1e6))) == 0.0
    assert ledger.set_budget("ann", 1e9).spent == 1e9
    for epsilon in (1e9, 1e6):
        with refused(ledger, PrivacyError, "is left (budget 1000000000, spent 1000000000)"):
            account.charge(release(1, Guarantee("local-dp", epsilon)))
    for epsilon in (float("inf"), 1e300, 1.1e9):
        with refused(ledger, PrivacyError, "hides nothing"):
            account.charge(release(1, Guarantee("local-dp", epsilon)))


def test_kinds_and_subjects_are_kept_apart(ledger: Ledger) -> None:
    metric = release(1, Guarantee("metric-dp", 2.0))
    with refused(ledger, PrivacyError, "'ann' has no metric-dp budget"):
        ledger.account("ann").charge(metric)
    with refused(ledger, PrivacyError, f"featveil ledger set-budget {ledger.path} 'ann b' EPSILON"):
        ledger.account("ann b").charge(release())
    ledger.set_budget("ann", 2, "metric-dp")
    ledger.set_budget("bob", 10)
    assert ledger.account("ann").charge(metric) == 0.0
    assert ledger.account("bob").charge(release()) == 0.0
    assert ledger.account("ann").charge(release()) == 20.0
    assert [(row.subject, row.kind, row.spent) for row in ledger.statement()] == [
        ("ann", "local-dp", 10.0),
        ("ann", "metric-dp", 2.0),
        ("bob", "local-dp", 10.0),
    ]
    assert [row.kind for row in ledger.statement("bob")] == ["local-dp"]
    assert ledger.statement("eve") == []


@pytest.mark.parametrize("kind", ["empirical", "none"])
def test_a_release_without_epsilon_is_refused(ledger: Ledger, kind: Any) -> None:
    with refused(ledger, InputError, "a ledger accounts for differential privacy only"):
        ledger.account("ann").charge(release(1, Guarantee(kind)))


def test_a_changed_budget_forgets_nothing(ledger: Ledger) -> None:
    account = ledger.account("ann")
    account.charge(release(2))
    lowered = ledger.set_budget("ann", 5)
    assert (lowered.budget, lowered.spent, lowered.remaining, lowered.releases) == (5.0, 20.0, 0.0, 1)
    with refused(ledger, PrivacyError, "0 is left (budget 5, spent 20)"):
        account.charge(release(1, Guarantee("local-dp", 1e-9)))
    assert ledger.set_budget("ann", 30).remaining == 10.0
    assert account.charge(release()) == 0.0
    ledger.set_budget("ann", 0)
    assert [(entry.event, entry.epsilon) for entry in ledger.history()] == [
        ("budget", 30.0),
        ("release", 20.0),
        ("budget", 5.0),
        ("budget", 30.0),
        ("release", 10.0),
        ("budget", 0.0),
    ]


def test_history(ledger: Ledger) -> None:
    ledger.set_budget("bob", 5)
    ledger.account("ann").charge(release(3), "a.jpg\x1b[2J\ud800" + 600 * "x")
    ledger.account("bob").charge(release(3, Guarantee("local-dp", 5.0, "image")))
    first, last = ledger.history("ann")
    assert (first.event, first.kind, first.epsilon, first.features) == ("budget", "local-dp", 30.0, None)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", last.time)
    assert (last.subject, last.event, last.kind, last.defense) == ("ann", "release", "local-dp", "subset")
    assert (last.per_descriptor, last.features, last.epsilon) == (10.0, 3, 30.0)
    assert last.label == "a.jpg?[2J?" + 490 * "x"
    assert (ledger.history()[-1].per_descriptor, ledger.history()[-1].epsilon) == (None, 5.0)


@pytest.mark.parametrize("subject", ["", " ", "a\nb", "\x1b", "\ud800", 201 * "a", None, 7])
def test_names_that_are_refused(ledger: Ledger, subject: Any) -> None:
    for attempt in (ledger.account, lambda name: ledger.set_budget(name, 1)):
        with pytest.raises(InputError, match="1 to 200 printable characters"):
            attempt(subject)
    ledger.set_budget(200 * "ä", 1)


@pytest.mark.parametrize("epsilon", [-1, float("nan"), float("inf"), 1e9 + 1, True, "3", None])
def test_budgets_that_are_refused(tmp_path: Path, epsilon: Any) -> None:
    with pytest.raises(InputError, match="a budget must be an epsilon of 0 to"):
        Ledger(tmp_path / "ledger.sqlite").set_budget("ann", epsilon)
    assert names(tmp_path) == []


def test_other_arguments_that_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="must be local-dp or metric-dp"):
        Ledger(tmp_path / "ledger.sqlite").set_budget("ann", 1, "empirical")
    with pytest.raises(InputError, match="wait must be 0 to 3600"):
        Ledger(tmp_path / "ledger.sqlite", wait=float("nan"))
    with pytest.raises(InputError, match="does not exist: create it first"):
        Ledger(tmp_path / "folder" / "ledger.sqlite").set_budget("ann", 1)
    with pytest.raises(InputError, match="null"):
        Ledger(tmp_path / "a\0b").set_budget("ann", 1)
    assert names(tmp_path) == []


def test_a_path_with_marks_of_an_address_is_taken_literally(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "a%20b?mode=memory#c")
    ledger.set_budget("ann", 10)
    assert ledger.account("ann").charge(release()) == 0.0
    assert names(tmp_path) == ["a%20b?mode=memory#c"]


def test_raw_features_cannot_be_charged(ledger: Ledger) -> None:
    raw = Features(Points(np.ones((1, 4), np.float32)), "sift")
    with refused(ledger, InputError, "expected private features, got Features"):
        ledger.account("ann").charge(raw)  # type: ignore[arg-type]


def test_a_missing_ledger_is_never_made_by_a_release(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger.sqlite")
    with refused(ledger, InputError, "does not exist"):
        ledger.account("ann").charge(release())
    for read in (ledger.statement, ledger.history):
        with pytest.raises(InputError, match="does not exist, so nothing was read"):
            read()
    with refused(Ledger(tmp_path / "x"), InputError, "is not a file"):
        Ledger(tmp_path).account("ann").charge(release())
    assert names(tmp_path) == []


@pytest.mark.parametrize(
    "damage",
    [
        lambda path: path.write_bytes(b""),
        lambda path: path.write_bytes(path.read_bytes()[:8191]),
        lambda path: path.write_bytes(path.read_bytes()[:4096] + np.random.default_rng(0).bytes(4096)),
        lambda path: change(path, "PRAGMA user_version = 2"),
        lambda path: change(path, "PRAGMA application_id = 2"),
        lambda path: change(path, "CREATE TRIGGER undo AFTER INSERT ON entries BEGIN DELETE FROM entries; END"),
        lambda path: change(path, "PRAGMA ignore_check_constraints = ON", "UPDATE entries SET units = -1"),
    ],
)
def test_nothing_is_released_with_a_ledger_that_is_not_sound(ledger: Ledger, damage: Callable[[Path], object]) -> None:
    """Not one entry of it is trusted, as each may be the one that stops a release; and none is added."""
    damage(ledger.path)
    with refused(ledger, FormatError, "so nothing was released"):
        ledger.account("ann").charge(release())
    with pytest.raises(FormatError, match="so no budget was changed"):
        ledger.set_budget("ann", 30)


@pytest.mark.parametrize("entry", ["units = -5", "units = 1e300", "label = CAST(x'ff' AS TEXT)", "features = 'many'"])
def test_entries_that_no_ledger_writes_are_refused(ledger: Ledger, entry: str) -> None:
    change(ledger.path, "PRAGMA ignore_check_constraints = ON", f"UPDATE entries SET {entry}")
    with pytest.raises(FormatError, match="is damaged"):
        ledger.history()


def test_a_locked_ledger_is_refused(ledger: Ledger) -> None:
    with closing(sqlite3.connect(ledger.path, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        with refused(ledger, InputError, "another process holds ledger"):
            ledger.account("ann").charge(release())
        with pytest.raises(InputError, match="so no budget was changed: try again later"):
            ledger.set_budget("ann", 50)
    assert ledger.account("ann").charge(release()) == 20.0


def test_a_full_disk_refuses_and_keeps_what_was_there(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite, "_PRAGMAS", (*sqlite._PRAGMAS, "PRAGMA max_page_count = 2"))
    account, small = ledger.account("ann"), release(1, Guarantee("local-dp", 1e-6))
    recorded = 0
    with pytest.raises(InputError, match=r"\(database or disk is full\), so nothing was released"):
        for recorded in range(100):  # noqa: B007
            account.charge(small, 500 * "x")
    assert recorded > 3
    assert ledger.statement("ann")[0].releases == recorded
    monkeypatch.undo()
    account.charge(small)
    assert names(ledger.path.parent) == ["ledger.sqlite"]


@pytest.mark.skipif(sys.platform == "win32", reason="needs a limit of the size of files")
def test_a_write_that_the_system_refuses(ledger: Ledger) -> None:
    code = """
import resource
from featveil.core import InputError
resource.setrlimit(resource.RLIMIT_FSIZE, (8192, 8192))
for recorded in range(100):
    try:
        ledger.account("ann").charge(private, 500 * "x")
    except InputError as error:
        print(recorded, error)
        break
"""
    ledger.set_budget("ann", 1000)
    said = process(code, ledger).communicate()[0]
    assert "so nothing was released: check its permissions and the disk" in said
    assert ledger.statement("ann")[0].releases == int(said.split()[0])
    assert ledger.account("ann").charge(release()) > 0


def test_processes_together_never_pass_the_budget(ledger: Ledger) -> None:
    code = """
done = 0
for attempt in range(25):
    try:
        ledger.account("ann").charge(private, f"{os.getpid()} {attempt}")
        done += 1
    except PrivacyError:
        pass
print(done)
"""
    ledger.set_budget("ann", 60)
    running = [process(code, ledger) for _ in range(4)]
    counts = [int(each.communicate()[0]) for each in running]
    assert sum(counts) == 60
    (balance,) = ledger.statement("ann")
    assert (balance.spent, balance.remaining, balance.releases) == (60.0, 0.0, 60)
    assert len({entry.label for entry in ledger.history() if entry.event == "release"}) == 60


def test_processes_may_make_a_ledger_at_once(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger.sqlite")
    code = "ledger.set_budget(str(os.getpid()), 1)"
    running = [process(code, ledger) for _ in range(4)]
    for each in running:
        each.communicate()
    succeeded = [each.pid for each in running if each.returncode == 0]
    # One that comes while the file is still empty may be refused; none that succeeded may be lost.
    assert succeeded
    assert sorted(row.subject for row in ledger.statement()) == sorted(map(str, succeeded))


def during(statement: str, act: Callable[[], object], monkeypatch: pytest.MonkeyPatch) -> None:
    """Let `act` happen whenever a ledger has just executed `statement`."""

    class Connection(sqlite3.Connection):
        def execute(self, sql: str, *arguments: Any) -> sqlite3.Cursor:
            cursor = super().execute(sql, *arguments)
            if sql == statement:
                act()
            return cursor

    connect = sqlite3.connect
    monkeypatch.setattr(sqlite3, "connect", lambda *args, **more: connect(*args, **more, factory=Connection))


def test_ctrl_c_halfway_leaves_no_entry(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    during(ledger_module._INSERT, lambda: signal.raise_signal(signal.SIGINT), monkeypatch)
    with pytest.raises(KeyboardInterrupt):
        ledger.account("ann").charge(release())
    with pytest.raises(KeyboardInterrupt):
        Ledger(ledger.path.with_name("new.sqlite")).set_budget("ann", 1)
    monkeypatch.undo()
    assert [entry.event for entry in ledger.history()] == ["budget"]
    assert names(ledger.path.parent) == ["ledger.sqlite"]
