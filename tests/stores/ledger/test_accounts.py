"""Accounts: exact sums and refusals at the border."""

import re
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from featveil.core import Features, Guarantee, InputError, Points, PrivacyError
from featveil.stores.ledger import Ledger
from ledgers import names, refused, release


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
    with pytest.raises(InputError, match="null byte"):
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
