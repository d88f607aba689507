"""The examples run: an attack that a script registers, methods that another package brings, a map and a query in it."""

import json
import os
import runpy
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import featveil as fv
from featveil.datasets.board import views
from featveil.registry import ATTACKS

if TYPE_CHECKING:
    from rooms import Room, RoomFiles

EXAMPLES = Path(__file__).parents[1] / "examples"


def test_register_attack(capsys: pytest.CaptureFixture[str]) -> None:
    try:
        runpy.run_path(str(EXAMPLES / "register_attack.py"))["main"](str(views()[0]))
    finally:
        ATTACKS.unregister("offset")
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert [row[0] for row in rows] == ["chance", "offset", "mean", "nearest"]
    assert all(0 <= float(row[1].rstrip("%")) <= 100 for row in rows)


def test_map_and_localize(files: "RoomFiles", tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    query = sorted(files.images.iterdir())[0]
    runpy.run_path(str(EXAMPLES / "map_and_localize.py"))["main"](str(files.images), str(query), str(tmp_path / "map"))
    mapped, located = capsys.readouterr().out.splitlines()
    placed, images = int(mapped.split()[0]), int(mapped.split()[2])
    assert placed == images == len(list(files.images.iterdir())) - 1
    assert located.startswith(f"{query} was taken at")


def test_gate_and_localize(
    room: "Room", files: "RoomFiles", image: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from rooms import sketch_room

    fv.save_sketch(sketch_room(room), tmp_path / "room.sketch")
    main = runpy.run_path(str(EXAMPLES / "gate_and_localize.py"))["main"]
    name = room.names[2]
    main(str(tmp_path / "room.sketch"), str(files.images / name), str(room.model))
    sent, located, alike = capsys.readouterr().out.splitlines()
    assert 100 < int(sent.split()[0]) < int(sent.split()[2])
    assert located.startswith(f"{name} was taken at")
    assert alike.split()[-3:][0] == name
    main(str(tmp_path / "room.sketch"), str(image), str(room.model))
    assert capsys.readouterr().out.startswith("nothing is sent: not a mapped place")


@pytest.mark.parametrize("name", ["gate_and_localize", "map_and_localize", "register_attack"])
def test_how_they_are_called(name: str) -> None:
    ended = subprocess.run([sys.executable, EXAMPLES / f"{name}.py"], capture_output=True, text=True, check=False)
    assert ended.returncode == 2 and ended.stdout == ""
    assert ended.stderr.startswith(f"usage: python examples/{name}.py ") and ended.stderr.count("\n") == 1


class TestPlugin:
    """As if it were installed: pip writes the module and its entry points into a folder of the path."""

    @pytest.fixture
    def installed(self, tmp_path: Path) -> Path:
        site = tmp_path / "site"
        about = site / "featveil_largest-1.0.dist-info"
        about.mkdir(parents=True)
        shutil.copy(EXAMPLES / "plugin" / "featveil_largest.py", site)
        (about / "METADATA").write_text("Metadata-Version: 2.1\nName: featveil-largest\nVersion: 1.0\n")
        project = (EXAMPLES / "plugin" / "pyproject.toml").read_text()
        points = [line for line in project.split("\n\n") if "entry-points" in line]
        lines = "\n".join(points).replace('[project.entry-points."', "[").replace('"]', "]").splitlines()
        (about / "entry_points.txt").write_text("\n".join(line.replace('"', "") for line in lines if line[0] != "#"))
        return site

    def run(self, installed: Path, *arguments: object) -> Any:
        path = os.pathsep.join([str(installed), os.environ.get("PYTHONPATH", "")])
        command = [sys.executable, "-m", "featveil", *map(str, arguments)]
        return subprocess.run(
            command, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": path, "COLUMNS": "200"}
        )

    def test_its_option_is_in_the_help(self, installed: Path) -> None:
        shown = " ".join(self.run(installed, "privatize", "--help").stdout.split())
        assert "--kept" in shown and "components that are sent" in shown

    def test_its_defense_is_broken_by_its_attack(self, installed: Path, tmp_path: Path) -> None:
        query = views()[0]
        sent = self.run(
            installed, "privatize", query, "--out", tmp_path / "q.veil", "--defense", "largest", "--kept", "64",
            "--max-features", "100", "--json",
        )  # fmt: skip
        assert sent.returncode == 0, sent.stderr
        released = json.loads(sent.stdout)
        assert released["defense"] == {"name": "largest", "kept": 64} and released["guarantee"]["kind"] == "empirical"
        scored = self.run(
            installed, "attack", tmp_path / "q.veil", "--with", "refill,chance", "--truth", query, "--json"
        )
        assert scored.returncode == 0, scored.stderr
        rows = {row["attack"]: row for row in json.loads(scored.stdout)["rows"]}
        assert rows["refill"]["below_near"] > rows["chance"]["below_near"]

    def test_an_audit_runs_both(self, installed: Path, tmp_path: Path) -> None:
        (tmp_path / "audit.toml").write_text(
            'max_features = 40\n[[scheme]]\nname = "largest"\nkept = [16, 64]\n[[attack]]\nname = "refill"\n'
        )
        ended = self.run(
            installed, "audit", tmp_path / "audit.toml", "--out", tmp_path / "out", "--no-pictures", "--json",
            "--processes", "1",
        )  # fmt: skip
        assert ended.returncode == 0, ended.stderr
        rows = {row["scheme"]: row for row in json.loads(ended.stdout)["rows"]}
        refill, chance = (
            {row["attack"]: row for row in rows["largest-64"]["trials"]}[name] for name in ("refill", "chance")
        )
        assert refill["below_near"]["mean"] > chance["below_near"]["mean"]
        page = (tmp_path / "out" / "report.html").read_text()
        assert "largest-16" in page and "refill" in page

    def test_a_package_that_cannot_be_loaded_is_named(self, installed: Path) -> None:
        (installed / "featveil_largest.py").write_text("import nothing_of_this_name")
        ended = self.run(installed, "attack", "--list")
        assert ended.returncode == 2 and "refill" in ended.stderr and ended.stderr.count("\n") == 1
        shown = self.run(installed, "privatize", "--help")
        assert shown.returncode == 0 and "largest" in shown.stderr and "--dimension" in shown.stdout


def test_values_in_memory() -> None:
    raw = fv.extract(views()[0], max_features=60)
    private = fv.privatize(raw, fv.Lifting(dimension=2))
    assert len(fv.attack(private, "mean")) == len(private)
    assert fv.leakage(private, raw, "vertex").leakage.below_near > fv.leakage(private, raw, "chance").leakage.below_near
    with pytest.raises(fv.InputError):
        fv.attack(private, "nothing")
    with pytest.raises(fv.InputError):
        fv.attack(private, "all")
    with pytest.raises(fv.InputError):
        fv.attack(private, "closest-pair")  # needs a reference
    picture = fv.invert(private, guess=fv.attack(private, "mean"))
    assert picture.shape[2] == 3 and picture.std() > 0
    with pytest.raises(fv.InputError):
        fv.invert(private)  # the built-in inverter reads raw descriptors
