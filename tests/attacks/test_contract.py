"""Every attack that is listed keeps the contract: it declares what it knows, sees only that, answers each feature."""

import numpy as np
import pytest

from featveil.attacks import ATTACKS, MEANINGS, Knowledge, attack
from featveil.core import InputError, Subspaces
from victims import lifted, own_database, truth_of


@pytest.mark.parametrize("name", ATTACKS)
def test_declares_what_it_knows(name: str) -> None:
    method = ATTACKS[name]
    assert method.name == name
    assert set(method.needs) | set(method.uses) <= set(MEANINGS)
    assert not set(method.needs) & set(method.uses)
    assert method.breaks and method.summary and not method.summary.endswith(".")
    assert ("truth" in method.needs) == name.startswith("oracle")


@pytest.mark.parametrize(
    "name", [name for name, method in ATTACKS.items() if method.needs and Subspaces in method.breaks]
)
def test_says_what_is_missing(name: str) -> None:
    method = ATTACKS[name]()
    with pytest.raises(InputError, match=f"attack {name} needs {method.needs[0].replace('_', ' ')}"):
        attack(lifted(), method, Knowledge())


@pytest.mark.parametrize("name", [name for name, method in ATTACKS.items() if Subspaces not in method.breaks])
def test_says_what_it_applies_to(name: str) -> None:
    with pytest.raises(InputError, match=rf"attack {name} is on .*; these are subspaces"):
        attack(lifted(), ATTACKS[name](), Knowledge())


def test_only_what_is_declared_is_handed_over() -> None:
    knowledge = Knowledge(database=own_database(), truth=truth_of(lifted()).truth)
    cut = knowledge.only(("database",))
    assert cut.database is knowledge.database
    assert cut.truth is None


def test_a_database_of_another_kind_is_refused() -> None:
    with pytest.raises(InputError, match="holds rootsift descriptors, the private features are sift"):
        attack(lifted(), ATTACKS["nearest"](), Knowledge(database=own_database("rootsift")))


def test_nothing_to_attack_is_refused() -> None:
    nothing = lifted().take(np.empty(0, np.int64))
    with pytest.raises(InputError, match="no feature to attack"):
        attack(nothing, ATTACKS["nearest"](), Knowledge(database=own_database()))
