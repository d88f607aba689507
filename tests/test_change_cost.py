"""What a change costs: a defense and an attack are a file and a line in the registry, a bench is a file.

They are added to a copy of the sources. Commands of that copy must know them without any other change;
`tests/cli/test_audit.py` has what an audit and its page make of methods that were registered.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from featveil.core.records import read_records
from featveil.datasets.board import views

SOURCES = Path(__file__).parents[1] / "src" / "featveil"

DEFENSE = '''"""Adds what was drawn for the whole image."""

from dataclasses import dataclass
from typing import Self

import numpy as np

from featveil.core import Guarantee, Points, Randomness, Spec
from featveil.core.options import option


@dataclass(frozen=True)
class Shift:
    """Shift all descriptors by the same random vector."""

    reach: float = option(0.5, help="largest step along an axis.")

    def for_kind(self, kind: str) -> Self:
        return self

    def privatize(self, points: Points, rng: Randomness, labels: object = None) -> Points:
        step = rng.integers(-1000, 1001, size=(points.size,)) / 1000 * self.reach
        return Points((points.values + step).astype(np.float32))

    def guarantee(self) -> Guarantee:
        return Guarantee("local-dp", 7.0)

    def spec(self) -> Spec:
        return {"name": "shift", "reach": self.reach}
'''

ATTACK = '''"""Guesses what was sent."""

from dataclasses import dataclass

from featveil.attacks.knowledge import Guess
from featveil.core import Points


@dataclass(frozen=True)
class Unshifted:
    """The points as they came, scaled."""

    scale: float = 1.0
    name, summary, breaks = "unshifted", "what was sent, scaled", (Points,)
    needs, uses, alone = (), (), True

    def run(self, seen, knowledge, rng):
        return Guess.all_of(seen.descriptors.values * self.scale)
'''

BENCH = '''"""Powers of small numbers."""

from dataclasses import dataclass
from pathlib import Path

from featveil.core.options import option
from featveil.lab import bench
from featveil.lab.bench import Bench, Case, Column, Measured, Study, out_option, seed_option


@dataclass(frozen=True)
class Options:
    out: Path = out_option("records.jsonl and table.md")
    powers: tuple[int, ...] = option((1, 2), help="Powers, separated by commas.")
    seed: int = seed_option()


@dataclass(frozen=True)
class Row:
    scheme: str
    result: float


def powers(options, progress):
    """Raise two to powers.

    Example: featveil bench powers --out results/
    """
    cases = [Case(f"power-{power}", {"power": power}, power) for power in options.powers]
    return Study(lambda: iter(cases), {}, options.seed, "two")


powers.__annotations__ = {"options": Options}
COLUMNS = (Column("scheme", lambda row: row.scheme, left=True), Column("result", lambda row: f"{row.result:g}"))
BENCH = Bench(
    "powers",
    powers,
    measure=lambda power: Measured(2.0**power, 1, {}),
    key=("scheme",),
    metric="power",
    unit="1",
    rows=lambda records: [Row(record.scheme, record.value) for record in records],
    text=lambda rows, records: bench.markdown_table(COLUMNS, rows),
    screen=lambda rows: bench.screen_table(COLUMNS, rows),
)
'''


@pytest.fixture(scope="module")
def changed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of changed sources."""
    package = Path(shutil.copytree(SOURCES, tmp_path_factory.mktemp("sources") / "featveil", ignore=_caches))
    (package / "defenses" / "shift.py").write_text(DEFENSE)
    (package / "attacks" / "unshifted.py").write_text(ATTACK)
    (package / "lab" / "powers.py").write_text(BENCH)
    registry = (package / "registry.py").read_text()
    for role, name, home in (
        ("defense", "shift", "defenses.shift:Shift"),
        ("attack", "unshifted", "attacks.unshifted:Unshifted"),
    ):
        line = f'    "{role}",\n    {{\n'
        assert registry.count(line) == 1
        registry = registry.replace(line, f'{line}        "{name}": "featveil.{home}",\n')
    (package / "registry.py").write_text(registry)
    return package.parent


def _caches(folder: str, names: list[str]) -> set[str]:
    return {name for name in names if name == "__pycache__"}


def run(changed: Path, *arguments: object) -> str:
    """What a command of the changed sources prints."""
    environment = {**os.environ, "PYTHONPATH": str(changed), "COLUMNS": "200"}
    command = [sys.executable, "-m", "featveil", *map(str, arguments)]
    ended = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=changed)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def test_a_defense(changed: Path, tmp_path: Path) -> None:
    shown = " ".join(run(changed, "privatize", "--help").split())
    assert "--reach" in shown and "Shift: largest step along an axis. [default: (0.5)]" in shown
    sent: dict[str, Any] = json.loads(
        run(
            changed,
            "privatize",
            views()[0],
            "--defense",
            "shift",
            "--reach",
            "0.25",
            "--max-features",
            "50",
            "--out",
            tmp_path / "a.veil",
            "--json",
        )
    )
    assert sent["defense"] == {"name": "shift", "reach": 0.25}
    assert sent["guarantee"]["kind"] == "local-dp"
    assert sent["guarantee"]["image_epsilon"] == pytest.approx(7 * sent["features"])


def test_an_attack(changed: Path, tmp_path: Path) -> None:
    listed = json.loads(run(changed, "attack", "--list", "--json"))
    assert "unshifted" in {one["name"] for one in listed["attacks"]}
    released = tmp_path / "a.veil"
    run(changed, "privatize", views()[0], "--defense", "shift", "--max-features", "50", "--out", released)
    ran = ("attack", released, "--with", "unshifted", "--set", "scale=0.5", "--truth", views()[0], "--json")
    rows = {row["attack"]: row for row in json.loads(run(changed, *ran))["rows"]}
    assert set(rows) == {"chance", "unshifted"} and rows["unshifted"]["files"] == 1


def test_an_audit_file_takes_both(changed: Path, tmp_path: Path) -> None:
    (tmp_path / "own.toml").write_text(
        '[[scheme]]\nname = "shift"\nreach = [0.25, 0.5]\n[[attack]]\nname = "unshifted"\nscale = 0.5\n'
    )
    code = (
        "import sys; from pathlib import Path; from featveil.audit.file import read_request;"
        "request = read_request(Path(sys.argv[1]));"
        "print(*[one.name for one in request.schemes], *[one.name for one in request.methods])"
    )
    environment = {**os.environ, "PYTHONPATH": str(changed)}
    command = [sys.executable, "-c", code, str(tmp_path / "own.toml")]
    ended = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=changed)
    assert {"shift-0.25", "shift-0.5", "unshifted"} <= set(ended.stdout.split()), ended.stderr


def test_a_bench(changed: Path, tmp_path: Path) -> None:
    assert "Raise two to powers." in run(changed, "bench", "--help")
    shown = " ".join(run(changed, "bench", "powers", "--help").split())
    assert "Powers, separated by commas. [default: 1,2]" in shown
    result = json.loads(run(changed, "bench", "powers", "--out", tmp_path, "--powers", "3,4", "--json"))
    assert [row["result"] for row in result["rows"]] == [8, 16]
    assert [record.value for record in read_records(tmp_path / "records.jsonl")] == [8, 16]
    assert "power-4" in (tmp_path / "table.md").read_text()
