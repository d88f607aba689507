"""What is documented works: Python is run, commands are parsed, names, links and paths lead somewhere."""

import ast
import os
import re
import runpy
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import featveil as fv
from command_lines import calls, check, children, find, flags
from face_sets import population
from featveil.attacks import DatabaseAttack, Knowledge, attack
from featveil.cli import app
from featveil.datasets.board import views
from networks import write_network
from sketches import sketch_of

ROOT = Path(__file__).parents[1]
DOCUMENTS = sorted(
    path.relative_to(ROOT).as_posix()
    for folder in (ROOT, ROOT / "docs", ROOT / "src", ROOT / "examples")
    for path in (folder.glob("*.md") if folder == ROOT else folder.rglob("*.md"))
)
PAGES = [name for name in DOCUMENTS if not name.startswith("docs/results/")]
# What takes a mapped scene: here names are looked up and nothing else is run.
NOT_RUN = ("docs/colmap-hloc.md", "docs/gate.md")
_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def text_of(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def blocks(name: str, *languages: str) -> list[str]:
    """The fenced blocks of a page in one of the languages ("" for a shell)."""
    return [content for language, content in _FENCE.findall(text_of(name)) if language in languages]


def prose(name: str) -> str:
    """A page without its blocks."""
    return _FENCE.sub("", text_of(name))


def spans(name: str) -> list[str]:
    """What stands between backticks in a page."""
    return re.findall(r"`([^`\n]+)`", prose(name))


def public_names(code: str) -> set[str]:
    """The names that are asked of `fv`."""
    return set(re.findall(r"\bfv\.(\w+)", code))


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the files that pages name, which is the current one."""
    monkeypatch.chdir(tmp_path)
    for name, picture in zip(("query.jpg", "reference.jpg"), views(), strict=True):
        (tmp_path / name).write_bytes(picture.read_bytes())
    book = fv.Database.from_array(fv.builtin("sift").points()[:500], "sift", 1, rng=np.random.default_rng(0))
    fv.save_database(book, tmp_path / "book.safetensors")
    fv.save(fv.privatize(fv.extract("query.jpg", max_features=50), fv.Subset(8, 2, book)), "query.veil")
    fv.save_sketch(sketch_of(fv.extract("query.jpg").descriptors.values), "place.sketch")
    fv.Pool.create("device.pool", "sift", [fv.builtin("sift").points()[:8000]])
    staff, others = population(3), population(60, 1, seed=1)
    np.savez("staff.npz", embedding=staff.values, names=np.array(staff.names))
    fv.Pool.create("people.pool", "face", [others.values])
    write_network(tmp_path / "mine.safetensors")
    return tmp_path


def names_for(page: str) -> dict[str, Any]:
    """What the text around a page's blocks takes for granted."""
    raw, reference = (fv.extract(name, max_features=20) for name in ("query.jpg", "reference.jpg"))
    hidden = fv.Subset(8, 2) if page == "docs/ledger.md" else fv.Lifting()
    private = fv.privatize(raw, hidden)
    names: dict[str, Any] = {"fv": fv, "raw": raw, "features": raw, "reference": reference, "private": private}
    if page == "docs/ledger.md":
        fv.Ledger("ledger.sqlite").set_budget("ann", 50_000)
    if page == "docs/inversion.md":
        names["guess"] = attack(private, DatabaseAttack(), Knowledge(lifting_database=fv.builtin()))
    return names | {"network": fv.builtin_concealer("sift")}


@pytest.mark.parametrize("page", [name for name in PAGES if blocks(name, "python") and name not in NOT_RUN])
def test_python_runs(page: str, workspace: Path) -> None:
    names = names_for(page)
    for number, block in enumerate(blocks(page, "python")):
        script = workspace / f"{number}.py"
        script.write_text(block, encoding="utf-8")
        names |= runpy.run_path(str(script), names)


@pytest.mark.parametrize("page", NOT_RUN)
def test_python_that_is_not_run_imports_what_there_is(page: str, tmp_path: Path) -> None:
    for number, block in enumerate(blocks(page, "python")):
        imports = [node for node in ast.parse(block).body if isinstance(node, ast.Import | ast.ImportFrom)]
        script = tmp_path / f"{number}.py"
        script.write_text("\n".join(map(ast.unparse, imports)), encoding="utf-8")
        assert imports and "fv" in runpy.run_path(str(script))


@pytest.mark.parametrize("page", PAGES)
def test_names_of_the_package_exist(page: str) -> None:
    code = [*blocks(page, "python"), *spans(page)]
    assert not {name for one in code for name in public_names(one) if not hasattr(fv, name)}


@pytest.mark.parametrize("page", [name for name in PAGES if any(map(calls, blocks(name, "", "sh")))])
def test_commands_parse(page: str) -> None:
    for block in blocks(page, "", "sh"):
        for words in calls(block):
            check(words)


@pytest.mark.parametrize("page", PAGES)
def test_commands_in_a_sentence_exist(page: str) -> None:
    """They may be cut short, but their words and options are a command's."""
    for span in (span for span in spans(page) if span.startswith("featveil ")):
        path, command, rest = find(span.split()[1:])
        assert path or span.split()[1].startswith("-"), span
        if not children(command):
            given = {word.partition("=")[0].rstrip(",.") for word in rest if re.match(r"--\w", word)}
            assert given <= flags(command), f"{span}: {given - flags(command)}"
        else:
            assert not rest or rest[0].startswith(("-", ".")), span


@pytest.mark.parametrize("page", PAGES)
def test_scripts_and_targets_exist(page: str) -> None:
    targets = re.findall(r"^([\w-]+):", text_of("Makefile"), re.MULTILINE)
    lines = [line.split("#")[0] for block in blocks(page, "", "sh") for line in block.splitlines()]
    for line in [*lines, *spans(page)]:
        for target in re.findall(r"(?:^|&& )make ([\w-]+)", line.strip()):
            assert target in targets, line
        for script in re.findall(r"(?<![\w/])(?:benchmarks|recipes|examples)/[\w/-]+\.(?:py|sh)\b", line):
            assert (ROOT / script).is_file(), line


@pytest.mark.parametrize("page", [name for name in PAGES if blocks(name, "toml")])
def test_an_audit_file_is_refused_only_for_files_that_are_not_there(page: str, workspace: Path) -> None:
    for number, block in enumerate(blocks(page, "toml")):
        (workspace / f"{number}.toml").write_text(block)
        result = CliRunner().invoke(app, ["audit", f"{number}.toml", "--out", "audit"])
        assert result.exit_code == 2 and re.search(r"photos|attacker|pool|net\.safetensors", result.stderr)
        assert not re.search(r"unknown|must|unexpected", result.stderr), result.stderr


@pytest.mark.parametrize("recipe", sorted(path.name for path in (ROOT / "recipes").glob("*.sh")))
def test_recipes_call_commands_that_parse(recipe: str, tmp_path: Path) -> None:
    """Each is run with every argument it may have, and a `featveil` that writes its own down."""
    program, log = tmp_path / "bin" / "featveil", tmp_path / "calls"
    program.parent.mkdir()
    program.write_text(
        f'#!/bin/sh\nfor word; do printf "%s\\037" "$word"; done >> {shlex.quote(str(log))}\necho >> {log}\n'
    )
    program.chmod(0o755)
    (tmp_path / "scenes" / "wall").mkdir(parents=True)
    shutil.copy(views()[0], tmp_path / "scenes" / "wall" / "1.jpg")
    folders = (
        ["photos", "scenes", "out"] if "SCENES" in text_of(f"recipes/{recipe}") else ["photos", "out", "weights.pth"]
    )
    result = subprocess.run(
        ["sh", str(ROOT / "recipes" / recipe), *folders],
        cwd=tmp_path,
        env=os.environ | {"PATH": f"{program.parent}{os.pathsep}{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (result.returncode, result.stderr) == (0, "")
    lines = [line.split("\037")[:-1] for line in log.read_text(encoding="utf-8").splitlines()]
    assert lines
    for words in lines:
        check(words)


def slug(heading: str) -> str:
    """The anchor of a heading, as GitHub makes it."""
    plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()
    return re.sub(r"[^\w\- ]", "", plain).strip().replace(" ", "-")


def anchors(path: Path) -> set[str]:
    """What can be linked to in a page."""
    shown = _FENCE.sub("", path.read_text(encoding="utf-8"))
    slugs = [slug(heading) for heading in re.findall(r"^#+ (.*)$", shown, re.MULTILINE)]
    numbered = {f"{one}-{number}" for one in slugs for number in range(1, slugs.count(one))}
    return {*slugs, *numbered, *re.findall(r'<a (?:id|name)="([^"]+)"', shown)}


@pytest.mark.parametrize("page", DOCUMENTS)
def test_links_lead_somewhere(page: str) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
        if re.match(r"\w+:", target):
            continue
        name, _, anchor = target.partition("#")
        path = (ROOT / page).parent / name if name else ROOT / page
        assert path.exists(), f"{page}: {target}"
        if anchor:
            assert path.suffix == ".md" and anchor in anchors(path), f"{page}: {target}"


@pytest.mark.parametrize("page", PAGES)
def test_paths_of_sources_exist(page: str) -> None:
    """Those that a page names between backticks, from the root or from the package."""
    for span in spans(page):
        if (
            re.fullmatch(r"(?:src/featveil|tests|docs|benchmarks|recipes|examples)/[\w./-]+", span)
            and "NAME" not in span
        ):
            assert (ROOT / span).exists(), f"{page}: {span}"
