"""What a command imports: verbs of the product no attack, network training or study, and help next to nothing."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import featveil
from rooms import Room, RoomFiles

_RUN = """
import json, sys
from featveil.cli import main
try:
    main()
except SystemExit as end:
    code = end.code
print(json.dumps([code or 0, sorted(sys.modules)]), file=sys.stderr)
"""
_APART = ("featveil.attacks", "featveil.learning", "featveil.lab", "featveil.audit", "featveil.demo", "torch")
_HEAVY = {"numba", "cv2", "faiss", "scipy", "h5py", "matplotlib", "featveil.databases", "featveil.registry"}


def imported(code: str, *arguments: object) -> list[str]:
    """The modules that a new process has after `code`, whose last line on stderr is its exit code and them."""
    environment = os.environ | {"PYTHONPATH": str(Path(featveil.__file__).parents[1])}
    command = [sys.executable, "-c", code, *map(str, arguments)]
    result = subprocess.run(command, env=environment, text=True, capture_output=True, timeout=300, check=False)
    exit_code, modules = json.loads(result.stderr.splitlines()[-1])
    assert exit_code == 0, result.stderr
    return list(modules)


def strangers(modules: list[str]) -> list[str]:
    return [name for name in modules if any(name == apart or name.startswith(f"{apart}.") for apart in _APART)]


@pytest.mark.parametrize("defense", [["lifting"], ["subset", "--epsilon", 10], ["concealer", "--then", "lifting"]])
def test_privatize(image: Path, tmp_path: Path, defense: list[object]) -> None:
    modules = imported(_RUN, "privatize", image, "--out", tmp_path / "x.veil", "--defense", *defense)
    assert "featveil.defenses.lint" in modules and strangers(modules) == []


def test_extract_and_match(image: Path, shifted: Path, tmp_path: Path) -> None:
    assert strangers(imported(_RUN, "extract", image, "--out", tmp_path / "x.veil")) == []
    drawn = imported(
        _RUN, "match", tmp_path / "x.veil", shifted, "--images", image, shifted, "--picture", tmp_path / "m.png"
    )
    assert "featveil.plotting.pictures" in drawn and strangers(drawn) == []


def test_map_and_localize(room: Room, files: RoomFiles, tmp_path: Path) -> None:
    modules = imported(_RUN, "map", files.raw, "--out", tmp_path / "map", "--cameras", files.cameras, "--dimension", 2)
    assert "featveil.plotting.model_pictures" in modules and strangers(modules) == []
    queries = (
        "localize",
        files.lifted,
        "--model",
        room.model,
        "--features",
        files.raw,
        "--out",
        tmp_path / "poses.txt",
    )
    assert strangers(imported(_RUN, *queries)) == []


def test_the_check_can_fail() -> None:
    assert strangers(imported("import featveil.attacks\n" + _RUN, "--version")) != []


def test_the_list_of_commands_imports_none_of_them() -> None:
    modules = imported(_RUN, "--help")
    commands = {name for name in modules if name.startswith("featveil.cli.")}
    assert commands == {"featveil.cli.console"} and _HEAVY.isdisjoint(modules)


@pytest.mark.parametrize("command", ["extract", "match", "localize"])
def test_help_of_a_command_loads_nothing_heavy(command: str) -> None:
    assert _HEAVY.isdisjoint(imported(_RUN, command, "--help"))


@pytest.mark.parametrize("verb", ["extract", "privatize", "match", "map", "localize", "sources"])
def test_requests_are_light(verb: str) -> None:
    """So a command can show the help of its fields, and a server can read them, before anything heavy is loaded."""
    code = f"import json, sys, featveil.pipelines.{verb}; print(json.dumps([0, list(sys.modules)]), file=sys.stderr)"
    assert _HEAVY.isdisjoint(imported(code))
