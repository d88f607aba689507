"""Names and tables -> methods: what is built in, what another package adds, and every mistake."""

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

import featveil.registry as module
from featveil.core import InputError, PrivacyError
from featveil.core.options import option
from featveil.databases import Database, save_database
from featveil.defenses import Concealer, Hardened, Lifting, Subset
from featveil.registry import ATTACKS, DEFENSES, Pinned, Registry, defense_options, make_attacks, make_defense, register


@dataclass(frozen=True)
class Noise:
    """A defense with an option of its own, as another package would add it."""

    name: ClassVar[str] = "noise"
    spread: float = option(0.5, help="standard deviation of the noise.")

    def privatize(self) -> None:
        """Nothing yet."""


@dataclass(frozen=True)
class Coin:
    """An attack, likewise."""

    name: ClassVar[str] = "coin"
    breaks: ClassVar[tuple[type, ...]] = ()
    sides: int = 2


@pytest.fixture
def registered() -> Iterator[None]:
    register(Noise)
    register(Coin)
    yield
    DEFENSES.unregister("noise")
    ATTACKS.unregister("coin")


@pytest.fixture
def database(tmp_path: Path) -> Database:
    values = np.random.default_rng(0).integers(0, 256, (64, 128), np.uint8)
    saved = Database.from_array(values, "sift", 2, rng=np.random.default_rng(1))
    save_database(saved, tmp_path / "own.safetensors")
    return saved


def options(**given: Any) -> Any:
    return defense_options()(**given)


@pytest.mark.parametrize("registry", [DEFENSES, ATTACKS])
def test_each_name_is_that_of_its_class_and_file(registry: Registry) -> None:
    assert len(registry) == len(set(registry)) > 6
    for name, method in registry.items():
        assert dataclasses.is_dataclass(method)
        assert method.__module__.endswith(name.replace("-", "_"))


def test_parameters_come_from_fields() -> None:
    takes = DEFENSES.parameters("subset")
    assert [*takes] == ["epsilon", "subset_size", "codebook"]
    assert takes["epsilon"].required and takes["subset_size"].default == 2
    assert all(one.option.help for name in DEFENSES for one in DEFENSES.parameters(name).values())


def test_make_reads_files_relative_to_the_folder(tmp_path: Path, database: Database) -> None:
    lifting = DEFENSES.make("lifting", {"dimension": 8, "database": "own.safetensors"}, tmp_path)
    assert lifting.dimension == 8 and lifting.database.digest == database.digest
    with pytest.raises(InputError):
        DEFENSES.make("lifting", {"database": Pinned(Path("own.safetensors"), "0" * 64)}, tmp_path)


def test_make_nests() -> None:
    made = DEFENSES.make("concealer", {"then": {"name": "subset", "epsilon": 8}})
    assert made == Concealer(then=Subset(8.0))


@pytest.mark.parametrize(
    ("name", "given", "fact"),
    [
        ("nothing", {}, "lifting"),
        ("lifting", {"size": 3}, "size"),
        ("lifting", {"dimension": "four"}, "dimension"),
        ("lifting", {"dimension": True}, "dimension"),
        ("lifting", {"allow_line": 1}, "allow_line"),
        ("subset", {}, "epsilon"),
        ("concealer", {"then": {"name": "hardened"}}, "subset"),
        ("concealer", {"then": {}}, "subset"),
        ("concealer", {"then": "lifting"}, "lifting"),
    ],
)
def test_make_refuses(name: str, given: dict[str, Any], fact: str) -> None:
    with pytest.raises(InputError, match=fact):
        DEFENSES.make(name, given)


def test_options_of_commands() -> None:
    fields = {field.name: field.metadata["option"] for field in dataclasses.fields(defense_options())}
    assert fields["dimension"].help.startswith("Lifting, hardened:")
    assert "lifting 4" in fields["dimension"].shown and "hardened 16" in fields["dimension"].shown
    assert fields["database"].flags == ("--database", "--codebook")
    assert "strategy" not in {field.name for field in dataclasses.fields(defense_options(["subset"]))}


def test_make_defense_takes_what_was_given(tmp_path: Path, database: Database) -> None:
    assert (
        make_defense("lifting", options(dimension=8))
        == Lifting(dimension=8)
        == make_defense("lifting", {"dimension": 8})
    )
    assert make_defense("lifting") == Lifting()
    then = make_defense("concealer", options(then="subset", epsilon=4.0, subset_size=3))
    assert then == Concealer(then=Subset(4.0, 3))
    path = tmp_path / "own.safetensors"
    pinned = make_defense("subset", options(epsilon=4.0, database=path), database.digest)
    assert isinstance(pinned, Subset) and pinned.codebook is not None and pinned.codebook.digest == database.digest
    with pytest.raises(InputError):
        make_defense("subset", options(epsilon=4.0, database=path), "0" * 64)


@pytest.mark.parametrize(
    ("name", "given", "fact"),
    [
        ("nothing", {}, "unknown defense"),
        ("subset", {}, "--epsilon"),
        ("hardened", {}, "--pool"),
        ("subset", {"epsilon": 1.0, "dimension": 4}, "--dimension"),
        ("lifting", {"epsilon": 1.0}, "--epsilon"),
        ("concealer", {"dimension": 4}, "--then"),
        ("concealer", {"then": "hardened"}, "hardened"),
        ("concealer", {"then": "subset", "epsilon": 1.0, "dimension": 4}, "--dimension"),
        ("concealer", {"then": "subset"}, "--epsilon"),
    ],
)
def test_make_defense_refuses(name: str, given: dict[str, Any], fact: str) -> None:
    with pytest.raises(InputError, match=fact):
        make_defense(name, options(**given))


@pytest.mark.parametrize("name", ["lifting", "concealer", "naive"])
def test_a_digest_needs_a_file(name: str) -> None:
    with pytest.raises(InputError, match="--database"):
        make_defense(name, options(**({"epsilon": 1.0} if name == "naive" else {})), "0" * 64)


@pytest.mark.parametrize(("name", "given"), [("identity", {}), ("subset", {"epsilon": float("inf")})])
def test_what_hides_nothing_is_refused(name: str, given: dict[str, Any]) -> None:
    with pytest.raises(PrivacyError):
        make_defense(name, options(**given))


def test_make_attacks() -> None:
    assert [one.name for one in make_attacks(["all"])] == list(ATTACKS)
    lattice, vertex = make_attacks(["lattice", "vertex", "lattice"], ["lattice.precision=1e-7"])
    assert (lattice.name, lattice.precision, vertex.name) == ("lattice", 1e-7, "vertex")


@pytest.mark.parametrize(
    ("names", "settings", "fact"),
    [
        (["all", "mean"], [], "all"),
        (["nothing"], [], "lattice"),
        (["mean"], ["count"], "NAME=VALUE"),
        (["mean"], ["count=1"], "count"),
        (["mean"], ["lattice.precision=double"], "lattice"),
        (["lattice", "vertex"], ["precision=1e-7"], "both"),
        (["lattice"], ["precision=x"], "--set precision"),
    ],
)
def test_make_attacks_refuses(names: list[str], settings: list[str], fact: str) -> None:
    with pytest.raises(InputError, match=fact):
        make_attacks(names, settings)


def test_another_package_registers(registered: None) -> None:
    assert DEFENSES["noise"] is Noise and "noise" in list(DEFENSES)
    assert make_attacks(["coin"], ["sides=6"]) == [Coin(6)]
    assert "spread" in {field.name for field in dataclasses.fields(defense_options())}


@pytest.mark.parametrize("method", [Lifting, Hardened, object, 3])
def test_register_refuses(method: Any) -> None:
    with pytest.raises(InputError):
        register(method, "lifting")


def test_what_comes_with_a_package_stays() -> None:
    with pytest.raises(InputError):
        DEFENSES.unregister("lifting")


def test_entry_points(monkeypatch: pytest.MonkeyPatch) -> None:
    points = [
        EntryPoint("chance", f"{__name__}:Coin", "featveil.attacks"),  # a built-in name stays what it is
        EntryPoint("lucky", "featveil.attacks.chance:Chance", "featveil.attacks"),
        EntryPoint("broken", "featveil.nowhere:Nothing", "featveil.attacks"),
        EntryPoint("odd", "featveil.core:PrivateFeatures.take", "featveil.attacks"),
    ]
    monkeypatch.setattr(module, "entry_points", lambda group: points if group == "featveil.attacks" else [])
    registry = Registry("attack", {"chance": "featveil.attacks.chance:Chance"})
    assert list(registry) == ["chance", "lucky", "broken", "odd"]
    assert registry["chance"] is registry["lucky"]
    for name in ("broken", "odd"):
        with pytest.raises(InputError, match=name):
            registry[name]
