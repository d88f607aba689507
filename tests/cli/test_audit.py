"""featveil audit: the files it leaves, what it prints, and how it ends."""

import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import cv2
import numpy as np
import pytest
from typer.testing import CliRunner

from featveil.attacks import Guess, Knowledge
from featveil.audit.request import folder_request
from featveil.cli import app
from featveil.core import Guarantee, InputError, MissingExtraError, Points, PrivateFeatures, Randomness, Spec
from featveil.core.records import read_records
from featveil.registry import ATTACKS, DEFENSES, register

SMALL = """
max_features = 60
sample = 8
[[scheme]]
name = "lifting"
dimension = 2
[[scheme]]
name = "hardened"
confounders = 2
dimension = 4
[[attack]]
name = "nearest"
"""
FIGURES = ["frontier-private.png", "frontier.png"]
FILES = [*FIGURES, "pictures", "records.jsonl", "report.html", "table.md"]


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """An audit file of the built-in pictures that takes a second."""
    path = tmp_path / "small.toml"
    path.write_text(SMALL)
    return path


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of that audit, once it has run."""
    folder = tmp_path_factory.mktemp("audit")
    (folder / "small.toml").write_text(SMALL)
    arguments = ["audit", str(folder / "small.toml"), "--out", str(folder / "out"), "--processes", "1"]
    assert CliRunner().invoke(app, arguments).exit_code == 0
    return folder / "out"


@pytest.fixture
def out(finished: Path, tmp_path: Path) -> Path:
    """A copy of it."""
    return Path(shutil.copytree(finished, tmp_path / "out"))


def visible(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if not path.name.startswith("."))


def test_an_audit_leaves_a_page_a_table_and_its_records(run: Any, small: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    out = tmp_path / "new" / "audit"
    result = run("audit", small, "--out", out, "--processes", 1)
    assert result.exit_code == 0, result.output
    assert visible(out) == FILES
    assert str(out / "report.html") in result.stdout
    for word in ("identity", "sub-hybrid-2", "hardened-2-4", "best attack", "nearest", "of private"):
        assert word in result.stdout
    table = result.stdout.split("\n\n")[0]
    assert max(map(len, table.splitlines())) <= 80
    page = (out / "report.html").read_text(encoding="utf-8")
    assert "<html" in page and "hardened-2-4" in page
    records = read_records(out / "records.jsonl")
    assert {record.scheme for record in records} == {"identity", "sub-hybrid-2", "hardened-2-4"}


def test_private_content_can_be_ones_own_or_left_out(run: Any, small: Path, tmp_path: Path) -> None:
    (tmp_path / "faces").mkdir()
    squares = np.random.default_rng(0).integers(0, 2, (12, 12), np.uint8) * 255
    cv2.imwrite(str(tmp_path / "faces" / "mine.png"), cv2.resize(squares, (360, 360), interpolation=cv2.INTER_NEAREST))
    quick = ("--processes", 1, "--no-pictures", "--json")
    own = run("audit", small, "--out", tmp_path / "own", "--private", tmp_path / "faces", *quick)
    none = run("audit", small, "--out", tmp_path / "none", "--no-private", *quick)
    with_content, without = (json.loads(result.stdout)["rows"][0] for result in (own, none))
    assert with_content["private_raw"] > 0 and with_content["private_best"]["private"]["near"]["mean"] == 1
    assert (without["private_raw"], without["private_best"]) == (0, None)
    contents = {record.parameters.get("content") for record in read_records(tmp_path / "own" / "records.jsonl")}
    assert contents == {"mine 20 %"}
    assert not (tmp_path / "none" / "frontier-private.png").exists()


def test_private_content_is_one_or_the_other(refused: Any, small: Path, tmp_path: Path) -> None:
    out = ("--out", tmp_path / "out")
    assert "choose one" in refused("audit", small, *out, "--private", tmp_path, "--no-private")
    assert "there is no folder" in refused("audit", small, *out, "--private", tmp_path / "missing")


def test_the_same_command_goes_on_and_measures_nothing_again(run: Any, small: Path, out: Path) -> None:
    records = out / "records.jsonl"
    before = records.read_bytes()
    lines = before.splitlines(keepends=True)
    records.write_bytes(b"".join(lines[:-2]) + lines[-2][:30])
    again = run("audit", small, "--out", out, "--processes", 1, "--json")
    assert again.exit_code == 0, again.output
    assert records.read_bytes() == before
    facts = json.loads(again.stdout)
    assert [row["scheme"] for row in facts["rows"]] == ["identity", "sub-hybrid-2", "hardened-2-4"]
    assert facts["rows"][0]["utility_one"]["mean"] == 1 and str(out / "report.html") in facts["files"]


def test_other_settings_are_refused(refused: Any, small: Path, out: Path) -> None:
    small.write_text(SMALL.replace("sample = 8", "sample = 9"))
    assert "made with sample 8, not 9" in refused("audit", small, "--out", out, "--processes", 1)


def test_records_of_another_version_are_refused(refused: Any, small: Path, out: Path) -> None:
    path = out / "records.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    lines[3]["versions"]["featveil"] = "0.0.1"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    said = refused("audit", small, "--out", out, "--processes", 1)
    assert "made by featveil 0.0.1" in said and "name another folder, or delete the file" in said


def test_ctrl_c_says_how_to_go_on(run: Any, small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stopped(*arguments: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("featveil.audit.run.run_resumable", stopped)
    result = run("audit", small, "--out", tmp_path / "out")
    assert result.exit_code == 130
    assert "Stopped. The same command goes on from" in result.stderr and "records.jsonl" in result.stderr


def test_without_matplotlib_there_is_no_figure(
    run: Any, small: Path, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(*arguments: Any) -> None:
        raise MissingExtraError("matplotlib", "plots")

    monkeypatch.setattr("featveil.audit.run.draw_frontier", missing)
    for name in FIGURES:
        (out / name).unlink(missing_ok=True)
    result = run("audit", small, "--out", out, "--processes", 1)
    assert result.exit_code == 0 and "frontier.png was not drawn" in result.stderr
    assert visible(out) == FILES[len(FIGURES) :]


def test_a_folder_of_photographs_is_enough(
    run: Any, image: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual = folder_request(tmp_path)
    assert [source.folder for source in usual.sources] == [tmp_path] and len(usual.schemes) > 10
    quick = [scheme for scheme in usual.schemes if scheme.name in ("identity", "random-4")]
    monkeypatch.setattr("featveil.audit.request.default_schemes", lambda kind: quick)
    monkeypatch.setattr("featveil.audit.request.ATTACKS", {})
    (tmp_path / "damaged.png").write_bytes(image.read_bytes()[:200])
    cv2.imwrite(str(tmp_path / "b.png"), cv2.flip(cv2.imread(str(image)), 0))  # type: ignore[arg-type]
    result = run("audit", tmp_path, "--out", tmp_path / "out", "--processes", 1)
    assert result.exit_code == 0, result.output
    assert "warning: left out" in result.stderr and "damaged.png" in result.stderr
    records = read_records(tmp_path / "out" / "records.jsonl")
    assert {record.parameters["victim"] for record in records} == {"a.png", "b.png"}
    assert {record.dataset for record in records} == {tmp_path.name}


def test_bad_input_is_refused_in_one_line(refused: Any, image: Path, small: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert "there is no audit file or folder" in refused("audit", tmp_path / "no.toml", "--out", out)
    assert "neither a folder of photographs nor an audit file" in refused("audit", image, "--out", out)
    (tmp_path / "bare").mkdir()
    assert "no image in" in refused("audit", tmp_path / "bare", "--out", out)
    assert "--processes" in refused("audit", small, "--out", out, "--processes", 0)
    small.write_text("")
    assert "small.toml is empty" in refused("audit", small, "--out", out)
    small.write_text("schemes = 3")
    assert "unknown key 'schemes': use some of kind" in refused("audit", small, "--out", out)
    assert "--out" in refused("audit")


def test_what_the_best_attackers_see_is_painted_once(run: Any, small: Path, out: Path) -> None:
    page = (out / "report.html").read_text(encoding="utf-8")
    assert "What the best attacker sees" in page and page.count("<img ") == 3 + 2 * 4
    before = {path.name: path.stat().st_mtime_ns for path in (out / "pictures").iterdir()}
    assert len(before) == 1 + 1 + 2 + 2  # records; the photograph, raw and random descriptors, two schemes
    result = run("audit", small, "--out", out, "--processes", 1, "--json")
    assert {path.name: path.stat().st_mtime_ns for path in (out / "pictures").iterdir()} == before
    shown = {(one["scheme"], one["attack"]): one for one in json.loads(result.stdout)["pictures"]}
    assert shown["photograph", None]["score"] is None
    assert shown["identity", "read"]["score"][1] > 0 and Path(shown["identity", "read"]["file"]).is_file()
    assert ("sub-hybrid-2", "nearest") in shown


def test_pictures_can_be_left_out(run: Any, small: Path, out: Path) -> None:
    result = run("audit", small, "--out", out, "--processes", 1, "--no-pictures", "--json")
    assert json.loads(result.stdout)["pictures"] == []
    assert "<img " not in (out / "report.html").read_text(encoding="utf-8")


def test_an_audit_without_pictures_is_still_one(run: Any, small: Path, out: Path) -> None:
    shutil.rmtree(out / "pictures")
    (out / "pictures").write_text("a file")
    result = run("audit", small, "--out", out, "--processes", 1)
    assert result.exit_code == 0 and "warning: no pictures: " in result.stderr
    assert "hardened-2-4" in (out / "report.html").read_text(encoding="utf-8")


def test_what_cannot_be_painted_is_said(run: Any, small: Path, out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def none(*arguments: Any) -> None:
        raise InputError("there is no inverter of this kind")

    monkeypatch.setattr("featveil.audit.painting.raw_painter", none)
    result = run("audit", small, "--out", out, "--processes", 1)
    assert result.exit_code == 0 and "warning: not painted: there is no inverter of this kind" in result.stderr
    assert "There are no pictures: there is no inverter of this kind." in (out / "report.html").read_text("utf-8")


def test_a_wrong_inverter_is_refused_before_anything_is_measured(refused: Any, small: Path, tmp_path: Path) -> None:
    (tmp_path / "other.onnx").write_bytes(b"no network")
    assert "other.onnx" in refused("audit", small, "--out", tmp_path / "out", "--inverter", tmp_path / "other.onnx")
    assert "there is no inverter" in refused("audit", small, "--out", tmp_path / "out", "--inverter", tmp_path / "no")


@dataclass(frozen=True)
class Shift:
    """A defense of another package; that it promises anything is made up."""

    name: ClassVar[str] = "shift"
    step: float = 0.5

    def for_kind(self, kind: str) -> "Shift":
        return self

    def privatize(self, points: Points, rng: Randomness, labels: object = None) -> Points:
        return Points(points.values + np.float32(self.step / 100))

    def guarantee(self) -> Guarantee:
        return Guarantee("local-dp", 7.0)

    def spec(self) -> Spec:
        return {"name": "shift", "step": self.step}


@dataclass(frozen=True)
class Stranger:
    """An attack of another package, which takes what it sees."""

    name: ClassVar[str] = "stranger"
    summary: ClassVar[str] = "what was sent, as it is"
    breaks: ClassVar[tuple[type, ...]] = (Points,)
    needs: ClassVar[tuple[str, ...]] = ()
    uses: ClassVar[tuple[str, ...]] = ()
    alone: ClassVar[bool] = False

    def run(self, seen: PrivateFeatures, knowledge: Knowledge, rng: np.random.Generator) -> Guess:
        assert isinstance(seen.descriptors, Points)
        return Guess.all_of(seen.descriptors.values)


OTHERS = """
max_features = 60
sample = 8
[[scheme]]
name = "shift"
step = [0.5, 1]
[[attack]]
name = "stranger"
"""


@pytest.fixture
def others() -> Iterator[None]:
    register(Shift)
    register(Stranger)
    yield
    DEFENSES.unregister("shift")
    ATTACKS.unregister("stranger")


@pytest.mark.usefixtures("others")
def test_methods_of_other_packages_are_audited_with_what_they_promise(run: Any, tmp_path: Path) -> None:
    path, out = tmp_path / "others.toml", tmp_path / "out"
    path.write_text(OTHERS)
    result = run("audit", path, "--out", out, "--processes", 1, "--json")
    assert result.exit_code == 0, result.output
    rows = {row["scheme"]: row for row in json.loads(result.stdout)["rows"]}
    assert list(rows) == ["identity", "shift-0.5", "shift-1"]
    row = rows["shift-0.5"]
    assert (row["promise"], row["epsilon"]) == ("local-dp", 7)
    assert row["image_epsilon"] == pytest.approx(7 * row["features"])
    assert any(trial["attack"] == "stranger" and trial["below_near"]["mean"] > 0.9 for trial in row["trials"])
    records = [one for one in read_records(out / "records.jsonl") if one.scheme == "shift-1"]
    assert {one.parameters["shift.step"] for one in records} == {1.0}
    assert {one.parameters["guarantee"] for one in records} == {"local-dp"}
    page = (out / "report.html").read_text(encoding="utf-8")
    assert "Guarantee: local-dp, proved: epsilon 7 for a descriptor" in page and "stranger" in page
