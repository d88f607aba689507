"""featveil attack: on files, with what is known, with and without the truth."""

import itertools
import json
import shutil
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Literal

import cv2
import numpy as np
import pytest

import featveil as fv
from featveil.attacks import ATTACKS, MEANINGS, Guess, Knowledge
from featveil.core import Features, InputError, MissingExtraError, Points, PrivateFeatures, Subspaces, WordSets
from featveil.core.records import read_records
from featveil.databases import save_database
from featveil.formats.veil import save
from featveil.gate import save_sketch
from gated import gated
from gated import place as place_sketch


@dataclass(frozen=True)
class Probe:
    """Guesses zeros, remembers what it knew."""

    count: int = 3
    share: float | None = None
    thorough: bool = False
    way: Literal["near", "far"] = "near"
    label: str = "x"
    seen: ClassVar[list[Knowledge]] = []
    name: ClassVar[str] = "probe"
    summary: ClassVar[str] = "zeros"
    breaks: ClassVar[tuple[type, ...]] = (Subspaces, WordSets)
    needs: ClassVar[tuple[str, ...]] = ()
    uses: ClassVar[tuple[str, ...]] = tuple(name for name in MEANINGS if name != "truth")
    alone: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.count < 1:
            raise InputError("count must be at least 1")

    def run(self, seen: PrivateFeatures, knowledge: Knowledge, rng: np.random.Generator) -> Guess:
        self.seen.append(knowledge)
        if self.label == "fail":
            raise InputError("this attack has failed")
        if self.label == "stop":
            raise KeyboardInterrupt
        if self.label == "extra":
            raise MissingExtraError("a-package", "attacks")
        answered = np.arange(len(seen)) % 2 == 0
        return Guess(rng.random((len(seen), 128), np.float32), answered, note="a note of the probe")


@dataclass(frozen=True)
class Needy(Probe):
    """Needs what is rarely given."""

    name: ClassVar[str] = "needy"
    summary: ClassVar[str] = "zeros again, in a summary that is longer than what fits one line of a terminal with 80"
    needs: ClassVar[tuple[str, ...]] = ("reference",)
    uses: ClassVar[tuple[str, ...]] = ()


LISTED = dict(ATTACKS)


def list_only(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    """Let the registry have no other attacks."""
    there = {**LISTED, "probe": Probe, "needy": Needy}
    monkeypatch.setattr(ATTACKS, "_homes", {})
    monkeypatch.setattr(ATTACKS, "_loaded", {name: there[name] for name in names})


@pytest.fixture(autouse=True)
def probe(monkeypatch: pytest.MonkeyPatch) -> list[Knowledge]:
    """Only quick attacks, and two that are ours; what they knew."""
    Probe.seen.clear()
    list_only(monkeypatch, "chance", "read", "nearest", "probe", "needy")
    return Probe.seen


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without matplotlib: drawing takes most of the time."""
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)


@dataclass(frozen=True)
class Scene:
    """Two images, their raw features and releases of them, with the names that the commands give."""

    folder: Path

    @property
    def raw(self) -> Path:
        return self.folder / "raw"

    @property
    def private(self) -> Path:
        return self.folder / "private"

    @property
    def words(self) -> Path:
        return self.folder / "words"

    def file(self, name: str = "a.png") -> Path:
        return self.private / f"{name}.veil"

    def truth(self, name: str = "a.png") -> Path:
        return self.raw / f"{name}.veil"


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("attack")
    scene, seeds = Scene(folder), itertools.count()
    for sub in (scene.raw, scene.private, scene.words, folder / "photos"):
        sub.mkdir()
    for name, seed in (("a.png", 0), ("b.png", 1)):
        noise = np.random.default_rng(seed).integers(0, 256, (60, 80), np.uint8)
        cv2.imwrite(str(folder / "photos" / name), cv2.resize(noise, (320, 240), interpolation=cv2.INTER_CUBIC))
        raw = fv.extract(folder / "photos" / name, max_features=120)
        save(raw, scene.truth(name))
        for defense, where in ((fv.Lifting(), scene.private), (fv.Subset(14.0), scene.words)):
            rng = np.random.default_rng(next(seeds))
            save(fv.privatize(raw, defense, rng=rng), where / f"{name}.veil")
    own = fv.Database.from_array(np.random.default_rng(5).random((500, 128)), "sift", 1, rng=np.random.default_rng(6))
    save_database(own, folder / "own.safetensors")
    return folder


@pytest.fixture
def scene(made: Path, tmp_path: Path) -> Scene:
    shutil.copytree(made, tmp_path / "scene")
    return Scene(tmp_path / "scene")


def facts(result: Any, code: int = 0) -> Any:
    assert result.exit_code == code, result.output
    return json.loads(result.stdout)


def test_scores_one_file(run: Any, scene: Scene, tmp_path: Path) -> None:
    out = tmp_path / "results"
    shown = facts(run("attack", scene.file(), "--with", "nearest", "--truth", scene.truth(), "--out", out, "--json"))
    chance, nearest = shown["rows"]
    assert (chance["attack"], nearest["attack"]) == ("chance", "nearest")
    assert nearest["count"] == 120 and nearest["knows"] == ["database"] and sum(nearest["histogram"]) == 120
    assert chance["mean"] > 0.7 and shown["failed"] == 0
    assert any("lifted with" in note for note in shown["notes"]) and shown["sources"]["database"] == "built-in"
    assert shown["written"] == [str(out / name) for name in ("records.jsonl", "table.md", "histogram.png")]
    assert {path.name for path in out.iterdir()} == {"records.jsonl", "table.md", "histogram.png"}
    records = read_records(out / "records.jsonl")
    assert [(one.task, one.dataset, one.scheme, one.attack) for one in records] == [
        ("attack", "a.png.veil", "sub-hybrid-4", "nearest"),
        ("attack", "a.png.veil", "sub-hybrid-4", "chance"),
    ]
    assert "| nearest |" in (out / "table.md").read_text() and cv2.imread(str(out / "histogram.png")) is not None


def test_text_is_narrow_and_says_what_was_known(run: Any, scene: Scene) -> None:
    result = run("attack", scene.private, "--with", "nearest,probe", "--truth", scene.raw)
    assert result.exit_code == 0, result.output
    assert max(map(len, result.stdout.splitlines())) <= 80
    assert "sub-hybrid-4: 2 files" in result.stdout and "known to chance, nearest: database (built-in)" in result.stdout
    assert "probe on b.png.veil: a note of the probe" in result.stdout and "features were lifted with" in result.stdout


def test_an_own_database_is_no_lifting_database(run: Any, scene: Scene, probe: list[Knowledge]) -> None:
    own = scene.folder / "own.safetensors"
    shown = facts(run("attack", scene.file(), "--with", "probe", "--truth", scene.truth(), "--database", own, "--json"))
    assert not any("lifted with" in note for note in shown["notes"]) and shown["sources"]["database"] == own.name
    (known,) = probe
    assert known.database is not None and len(known.database) == 500
    assert known.lifting_database is not None and known.lifting_database.digest == fv.builtin().digest
    assert (known.codebook, known.reference, known.truth) == (None, None, None) and known.others == known.repeats == ()


def test_the_image_is_a_truth(run: Any, scene: Scene) -> None:
    image = scene.folder / "photos" / "a.png"
    by_image = facts(run("attack", scene.file(), "--with", "nearest", "--truth", image, "--json"))
    by_file = facts(run("attack", scene.file(), "--with", "nearest", "--truth", scene.truth(), "--json"))
    assert by_image["rows"][1]["mean"] == pytest.approx(by_file["rows"][1]["mean"])


@pytest.mark.parametrize("truth", ["raw", "photos"])
def test_folders_belong_by_name(run: Any, scene: Scene, truth: str) -> None:
    shown = facts(run("attack", scene.private, "--with", "nearest", "--truth", scene.folder / truth, "--json"))
    assert [row["files"] for row in shown["rows"]] == [2, 2] and shown["rows"][0]["count"] == 240
    assert {row["file"] for row in shown["files"]} == {"a.png.veil", "b.png.veil"}


def test_word_sets_leave_uncertain_features_out(run: Any, scene: Scene, probe: list[Knowledge]) -> None:
    shown = facts(run("attack", scene.words, "--with", "chance,probe", "--truth", scene.raw, "--json"))
    row = shown["rows"][0]
    assert 0 < row["count"] < row["attacked"] == 240 and row["image_epsilon"] == 14 * 120
    assert any("share their position" in note for note in shown["notes"])
    assert probe[0].codebook is not None and probe[0].lifting_database is None


@pytest.mark.usefixtures("undrawn")
def test_several_folders_keep_their_names(run: Any, scene: Scene, tmp_path: Path) -> None:
    result = run(
        "attack", scene.private, scene.words, "--with", "all", "--truth", scene.raw, "--out", tmp_path / "o", "--json"
    )
    shown = facts(result)
    assert {row["scheme"] for row in shown["rows"]} == {"sub-hybrid-4", "subset-14-2"}
    assert {row["file"] for row in shown["files"]} >= {"private/a.png.veil", "words/b.png.veil"}
    assert any(note.startswith("exact, for words: ") for note in shown["notes"])
    reasons = {(one["file"], one["attack"]): one["reason"] for one in shown["left_out"]}
    assert "these are word sets" in reasons["words/a.png.veil", "nearest"]
    assert "needs --reference" in reasons["private/a.png.veil", "needy"]


def test_all_is_what_can_be_run(run: Any, scene: Scene) -> None:
    result = run("attack", scene.words / "a.png.veil", "--with", "all", "--truth", scene.truth())
    assert result.exit_code == 0, result.output
    assert "not run, not on word sets (subset, metric): " in result.stdout and "needy" in result.stdout
    assert "chance" in result.stdout and "probe" in result.stdout


def test_of_many_notes_some_are_shown(run: Any, scene: Scene) -> None:
    for place in range(11):
        shutil.copy(scene.file(), scene.private / f"{place}.veil")
    result = run("attack", scene.private, "--with", "probe")
    assert result.exit_code == 0 and result.stdout.count("a note of the probe") == 11
    assert "and 2 more notes: see --json" in result.stdout
    alone = run("attack", scene.file(), "--with", "probe")
    assert "probe: a note of the probe" in alone.stdout and "more notes" not in alone.stdout


def test_chance_is_there_once(run: Any, scene: Scene) -> None:
    for names in ("chance", "chance,nearest", "all"):
        shown = facts(run("attack", scene.file(), "--with", names, "--truth", scene.truth(), "--json"))
        assert [row["attack"] for row in shown["rows"]].count("chance") == 1


@pytest.mark.usefixtures("undrawn")
def test_running_again_runs_nothing(run: Any, scene: Scene, tmp_path: Path, probe: list[Knowledge]) -> None:
    arguments = ("attack", scene.private, "--with", "probe", "--truth", scene.raw, "--out", tmp_path / "o", "--json")
    first = facts(run(*arguments))
    assert len(probe) == 2
    stored = (tmp_path / "o" / "records.jsonl").read_bytes()
    assert facts(run(*arguments)) == first and len(probe) == 2
    assert (tmp_path / "o" / "records.jsonl").read_bytes() == stored
    more = facts(run(*arguments, "--with", "nearest"))
    assert len(probe) == 2 and [row["attack"] for row in more["rows"]] == ["chance", "probe", "nearest"]


@pytest.mark.usefixtures("undrawn")
def test_the_table_keeps_earlier_attacks_and_says_what_to_know(run: Any, scene: Scene, tmp_path: Path) -> None:
    out = tmp_path / "o"
    arguments = ("attack", "--truth", scene.raw, "--out", out)
    reference = ("--reference", scene.truth("b.png"))
    facts(run(*arguments, scene.file(), scene.file("b.png"), "--with", "needy", *reference, "--json"))
    last = run(*arguments, scene.file(), "--with", "all")
    assert last.exit_code == 0, last.output
    assert "not run, without --reference: needy" in last.stdout
    table = (out / "table.md").read_text()
    rows = [line.split(" | ")[0] for line in table.splitlines() if line.startswith("| ")][2:]
    assert rows == ["| chance", "| needy", "| nearest", "| probe"] and "b.png" not in table
    notes = table.partition("## Notes\n\n")[2]
    assert "- the attacker's own database is the one" in notes and "- needy: a note of the probe\n" in notes
    assert "not run, not on subspaces (lifting): read" in notes and "--reference" not in notes


@pytest.mark.usefixtures("undrawn")
def test_the_table_says_what_is_not_scored_and_not_run(run: Any, scene: Scene, tmp_path: Path) -> None:
    arguments = ("attack", scene.words / "a.png.veil", "--with", "all", "--truth", scene.truth())
    assert run(*arguments, "--out", tmp_path / "o").exit_code == 0
    notes = (tmp_path / "o" / "table.md").read_text().partition("## Notes\n\n")[2]
    assert "features of subset-14-2 are not scored" in notes
    assert "- not run, without --reference: needy\n" in notes


@pytest.mark.usefixtures("undrawn")
def test_the_histogram_has_earlier_attacks(
    run: Any, scene: Scene, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[list[str]] = []
    monkeypatch.setattr(
        "featveil.plotting.leakage_histograms.draw_leakage",
        lambda rows, path, title: drawn.append([row.attack for row in rows]),
    )
    for name in ("probe", "nearest"):
        facts(run("attack", scene.file(), "--with", name, "--truth", scene.truth(), "--out", tmp_path / "o", "--json"))
    assert drawn == [["chance", "probe"], ["chance", "probe", "nearest"]]


def test_a_missing_extra(refused: Any, run: Any, scene: Scene) -> None:
    arguments = ("attack", scene.file(), "--truth", scene.truth(), "--set", "probe.label=extra")
    result = run(*arguments, "--with", "all")
    assert result.exit_code == 0 and result.stderr == "", result.output
    flat = " ".join(result.stdout.split())
    assert "not run, without an extra (this needs a-package, which is not installed: pip install" in flat
    assert "'featveil[attacks]'): probe" in flat
    assert facts(run(*arguments, "--with", "all", "--json"))["left_out"][-1]["attack"] == "probe"
    assert "this needs a-package" in refused(*arguments, "--with", "probe")
    assert run(*arguments, "--with", "probe,nearest").exit_code == 1


def test_stopped_without_a_truth(run: Any, scene: Scene, tmp_path: Path) -> None:
    out = tmp_path / "o"
    stopping = ("attack", scene.file(), "--with", "probe", "--set", "probe.label=stop")
    for more in ((), ("--out", out), ("--out", out, "--truth", scene.truth())):
        stopped = run(*stopping, *more)
        assert stopped.exit_code == 130 and stopped.stderr == "Stopped. Nothing was kept\n" and not out.exists()
    stopped = run(*stopping, "--with", "nearest", "--out", out)
    assert "Nothing was kept" in stopped.stderr and not out.exists()
    stopped = run("attack", scene.file(), "--with", "nearest", *stopping[2:], "--out", out)
    assert f"The same command goes on from {out}" in stopped.stderr.replace("\n", "")
    assert [path.name for path in out.iterdir()] == ["a.png.nearest.npz"]


@pytest.mark.usefixtures("undrawn")
def test_a_stopped_run_goes_on(run: Any, scene: Scene, tmp_path: Path, probe: list[Knowledge]) -> None:
    out = tmp_path / "o"
    arguments = ("attack", scene.file(), "--truth", scene.truth(), "--out", out, "--with", "nearest")
    stopped = run(*arguments, "--with", "probe", "--set", "label=stop")
    assert stopped.exit_code == 130 and f"The same command goes on from {out}" in stopped.stderr.replace("\n", "")
    assert [record.attack for record in read_records(out / "records.jsonl")] == ["nearest"]
    assert facts(run(*arguments, "--json"))["rows"][1]["attack"] == "nearest"


def test_without_a_truth_guesses_are_written(run: Any, scene: Scene, tmp_path: Path, probe: list[Knowledge]) -> None:
    arguments = ("attack", scene.file(), "--with", "probe", "--out", tmp_path / "o")
    shown = facts(run(*arguments, "--json"))
    path = tmp_path / "o" / "a.png.probe.npz"
    assert shown["rows"] == [] and shown["written"] == [str(path)] and shown["guesses"][0]["answered"] == 60
    with np.load(path, allow_pickle=False) as content:
        assert content["values"].shape == (120, 128) and content["answered"].sum() == 60
    again = run(*arguments)
    assert "50.0" in again.stdout and "unknown without --truth" in again.stdout and len(probe) == 1
    assert [one.name for one in (tmp_path / "o").iterdir()] == ["a.png.probe.npz"]
    without = facts(run("attack", scene.file(), "--with", "all", "--json"))
    assert "chance" not in {one["attack"] for one in without["guesses"]} and without["written"] == []


def test_what_is_known(run: Any, scene: Scene, tmp_path: Path, probe: list[Knowledge]) -> None:
    again = tmp_path / "again"
    again.mkdir()
    raw = fv.load(scene.truth())
    assert isinstance(raw, Features)
    save(fv.privatize(raw, fv.Lifting(), rng=np.random.default_rng(77)), again / "a.png.veil")
    known = (
        "--others",
        scene.private,
        "--repeats",
        again,
        "--repeats",
        scene.file(),
        "--reference",
        scene.truth("b.png"),
    )
    facts(run("attack", scene.file(), "--with", "probe", *known, "--json"))
    (seen,) = probe
    assert len(seen.others) == 1 and len(seen.repeats) == 1  # never the attacked file itself
    assert isinstance(seen.reference, Features) and len(seen.reference) == 120
    facts(run("attack", scene.file(), "--with", "probe", "--reference", scene.folder / "photos" / "b.png", "--json"))
    assert isinstance(probe[1].reference, Features) and probe[1].reference.kind == "sift"
    facts(run("attack", scene.file(), "--with", "needy", "--reference", scene.words / "b.png.veil", "--json"))
    assert isinstance(probe[2].reference, PrivateFeatures) and probe[2].database is None


def test_an_adversary_without_databases(run: Any, refused: Any, scene: Scene, probe: list[Knowledge]) -> None:
    facts(run("attack", scene.file(), "--with", "probe", "--lifting-database", "none", "--json"))
    assert probe[0].lifting_database is None and probe[0].database is not None
    shown = facts(run("attack", scene.file(), "--with", "all", "--database", "none", "--json"))
    assert probe[1].lifting_database is not None and probe[1].database is None
    assert ("nearest", "--database") in [(one["attack"], one["reason"].split()[3][:-1]) for one in shown["left_out"]]
    assert "attack nearest needs --database" in refused(
        "attack", scene.file(), "--with", "nearest", "--database", "none"
    )


def test_scale_and_orientation_are_noted(run: Any, scene: Scene) -> None:
    raw = fv.load(scene.truth())
    assert isinstance(raw, Features)
    for kept in (False, True):
        save(fv.privatize(raw, fv.Lifting(), keep_geometry=kept), scene.file())
        notes = facts(run("attack", scene.file(), "--with", "probe", "--json"))["notes"]
        assert any("scale and orientation" in note for note in notes) is kept


def test_unreadable_others_are_left_out(run: Any, scene: Scene, probe: list[Knowledge]) -> None:
    (scene.private / "cut.veil").write_bytes(scene.file().read_bytes()[:-9])
    result = run("attack", scene.file(), "--with", "probe", "--others", scene.private)
    assert result.exit_code == 0 and "warning: left out: " in result.stderr
    assert len(probe[0].others) == 1


def test_a_sample(run: Any, scene: Scene) -> None:
    arguments = ("attack", scene.file(), "--with", "probe", "--truth", scene.truth(), "--sample", 10, "--json")
    first = facts(run(*arguments))["rows"]
    assert [row["count"] for row in first] == [10, 10]
    assert facts(run(*arguments))["rows"][1]["mean"] == first[1]["mean"]
    assert facts(run(*arguments, "--seed", 1))["rows"][1]["mean"] != first[1]["mean"]


@pytest.mark.usefixtures("undrawn")
def test_parameters_are_set(run: Any, scene: Scene, tmp_path: Path) -> None:
    sets = ("count=7", "probe.share=0.25", "thorough=yes", "way=far", "label=a=b")
    options = itertools.chain.from_iterable(("--set", one) for one in sets)
    arguments = ("attack", scene.file(), "--with", "probe,nearest", "--truth", scene.truth(), "--out", tmp_path / "o")
    facts(run(*arguments, *options, "--json"))
    found = read_records(tmp_path / "o" / "records.jsonl")[0].parameters
    assert [found[f"probe.{name}"] for name in ("count", "share", "thorough", "way", "label")] == [
        *(7, 0.25, True, "far", "a=b"),
    ]


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("counts=7", "there is no parameter 'counts' to set: probe has count, share, thorough, way, label"),
        ("count=many", "--set count must be a whole number, got 'many'"),
        ("count=1.5", "must be a whole number"),
        ("share=x", "must be a number or none"),
        ("thorough=maybe", "must be true or false"),
        ("way=up", "must be near or far, got 'up'"),
        ("count", "--set takes NAME=VALUE"),
        ("probe.=3", "--set takes NAME=VALUE"),
        ("nearest.k=3", "is for an attack that is not run: these are probe"),
        ("count=0", "count must be at least 1"),
    ],
)
def test_bad_settings(refused: Any, scene: Scene, setting: str, message: str) -> None:
    assert message in refused("attack", scene.file(), "--with", "probe", "--set", setting)


def test_a_parameter_of_two_attacks_needs_a_name(refused: Any, scene: Scene) -> None:
    message = refused("attack", scene.file(), "--with", "probe,needy", "--set", "count=3")
    assert "probe and needy both have count: --set probe.count=..." in message


def test_list_says_what_each_needs(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    list_only(monkeypatch, *LISTED, "probe", "needy")
    result = run("attack", "--list")
    assert result.exit_code == 0, result.output
    assert max(map(len, result.stdout.splitlines())) <= 80
    flat = " ".join(result.stdout.split())
    for name, method in ATTACKS.items():
        assert f"{name} {method.summary}" in flat
    assert "count=3, share=None" in flat and "--lifting-database" in flat
    shown = facts(run("attack", "--list", "--json"))
    assert [one["name"] for one in shown["attacks"]] == list(ATTACKS) and shown["knowledge"] == MEANINGS
    probe = next(one for one in shown["attacks"] if one["name"] == "probe")
    assert probe["applies_to"] == ["subspaces (lifting)", "word sets (subset, metric)"]
    assert probe["parameters"] == {"count": 3, "share": None, "thorough": False, "way": "near", "label": "x"}


def test_bad_requests(refused: Any, scene: Scene, tmp_path: Path) -> None:
    def message(*arguments: object, path: Path | None = None) -> str:
        return str(refused("attack", path or scene.file(), *arguments))

    assert "--with NAME or all" in message()
    assert "name private .veil files" in refused("attack", "--with", "nearest")
    assert "unknown attack 'near': use one of chance, " in message("--with", "near")
    assert "leave the other names out" in message("--with", "all,nearest")
    assert "names nothing" in message("--with", ",")
    assert "attack needy needs --reference, features, raw or private" in message("--with", "needy,nearest")
    words = scene.words / "a.png.veil"
    assert "attack nearest is on subspaces (lifting); these are word sets" in message("--with", "nearest", path=words)
    assert "there is no file or folder" in message("--with", "nearest", path=tmp_path / "none.veil")
    assert "for --truth" in message("--with", "nearest", "--truth", tmp_path / "none.veil")
    assert "there is no database file" in message("--with", "nearest", "--database", tmp_path / "none")
    assert "is a file, not a folder" in message("--with", "nearest", "--out", scene.file())
    assert "2^" not in message("--with", "nearest", "--seed", -1)


def test_bad_files(refused: Any, scene: Scene, tmp_path: Path) -> None:
    def message(path: Path, *more: object) -> str:
        return str(refused("attack", path, "--with", "nearest", "--out", tmp_path / "o", *more))

    assert "holds raw features: nothing is hidden" in message(scene.truth())
    assert "is an image: privatize it first" in message(scene.folder / "photos" / "a.png")
    cut = tmp_path / "cut.veil"
    cut.write_bytes(scene.file().read_bytes()[:-9])
    assert "cut.veil is not a usable .veil file" in message(cut)
    private = fv.load(scene.file())
    save(private.take(np.arange(0)), tmp_path / "empty.veil")
    assert "there is nothing to attack" in message(tmp_path / "empty.veil")
    (tmp_path / "none").mkdir()
    assert "holds no .veil file" in message(tmp_path / "none")


def test_truths_that_do_not_belong(refused: Any, run: Any, scene: Scene, tmp_path: Path) -> None:
    def message(truth: Path, path: Path | None = None) -> str:
        return str(
            refused("attack", path or scene.file(), "--with", "nearest", "--out", tmp_path / "o", "--truth", truth)
        )

    assert "does not belong to" in message(scene.truth("b.png"))
    assert "is private: --truth takes the raw features" in message(scene.file("b.png"))
    other = fv.extract(scene.folder / "photos" / "a.png", "rootsift", max_features=120)
    save(other, tmp_path / "root.veil")
    assert "the truth holds rootsift descriptors" in message(tmp_path / "root.veil")
    assert "is one file for 2: name a folder" in message(scene.truth(), scene.private)
    assert "holds neither a.png.veil nor a.png" in message(scene.folder)


def test_knowledge_that_does_not_fit(refused: Any, scene: Scene, tmp_path: Path) -> None:
    def message(*more: object, path: Path | None = None) -> str:
        return str(refused("attack", path or scene.file(), "--with", "probe", *more))

    own = scene.folder / "own.safetensors"
    assert "--lifting-database has digest" in message("--lifting-database", own)
    words = scene.words / "a.png.veil"
    assert "the word sets are of codebook" in message("--codebook", own, path=words)
    save_database(fv.builtin("rootsift"), tmp_path / "root.safetensors")
    wrong = message("--database", tmp_path / "root.safetensors")
    assert "the database holds rootsift descriptors, the private features are sift" in wrong
    assert "holds raw features: --others takes private ones" in message("--others", scene.truth())
    assert "holds raw features: --repeats takes private ones" in message("--repeats", scene.truth())
    assert "is one file for 2" in message("--repeats", scene.file(), path=scene.private)
    assert "is the attacked release itself, which tells nothing more" in message("--repeats", scene.file())
    assert "is the attacked release itself" in message("--repeats", scene.private)
    for option in ("--repeats", "--others"):
        other = f"{option} holds word sets (subset, metric), these are subspaces (lifting)"
        assert f"attack probe needs releases of one representation: {other}" in message(option, words)


def test_random_lifting_has_no_database(refused: Any, scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Needy, "needs", ("lifting_database",))
    raw = fv.load(scene.truth())
    assert isinstance(raw, Features)
    save(fv.privatize(raw, fv.Lifting("random")), scene.file())
    for given in ((), ("--lifting-database", scene.folder / "own.safetensors")):
        message = refused("attack", scene.file(), "--with", "needy", *given)
        assert "needs --lifting-database" in message and "(these were lifted without one)" in message


def test_one_feature(run: Any, scene: Scene) -> None:
    private = fv.load(scene.file())
    save(private.take(np.arange(1)), scene.file())
    shown = facts(run("attack", scene.file(), "--with", "all", "--truth", scene.truth(), "--json"))
    assert {row["count"] for row in shown["rows"]} == {1}


def test_features_without_keypoints(run: Any, scene: Scene) -> None:
    raw = Features(Points(fv.builtin().points()[:30]), "sift")
    save(raw, scene.truth())
    save(fv.privatize(raw, fv.Lifting()), scene.file())
    arguments = ("attack", scene.file(), "--with", "nearest", "--truth", scene.truth(), "--sample", 12, "--json")
    assert facts(run(*arguments))["rows"][1]["count"] == 12


def test_descriptors_of_other_norms_are_noted(run: Any, scene: Scene) -> None:
    raw = fv.load(scene.truth())
    assert isinstance(raw, Features)
    arguments = ("attack", scene.file(), "--with", "nearest", "--truth", scene.truth(), "--json")
    assert not any("norm 1" in note for note in facts(run(*arguments))["notes"])
    large = replace(raw, descriptors=Points(512 * raw.descriptors.values))
    save(large, scene.truth())
    save(fv.privatize(large, fv.Lifting()), scene.file())
    assert any("do not have norm 1" in note for note in facts(run(*arguments))["notes"])


@pytest.mark.usefixtures("undrawn")
def test_bad_ones_are_reported_and_the_rest_goes_on(run: Any, scene: Scene, tmp_path: Path) -> None:
    (scene.private / "cut.veil").write_bytes(scene.file().read_bytes()[:-9])
    shutil.copy(scene.truth(), scene.private / "raw.veil")
    shutil.copy(scene.file(), scene.private / "c.veil")
    result = run("attack", scene.private, "--with", "nearest", "--truth", scene.raw, "--out", tmp_path / "o", "--json")
    shown = facts(result, 1)
    assert shown["failed"] == 3 and shown["rows"][0]["files"] == 2
    named = [line.split(":")[1].strip() for line in result.stderr.splitlines()]
    assert named[:3] == ["c.veil", "cut.veil", "raw.veil"]


def test_none_that_works(run: Any, scene: Scene, tmp_path: Path) -> None:
    result = run("attack", scene.raw, "--with", "nearest", "--out", tmp_path / "o")
    assert result.exit_code == 2 and result.stderr.count("raw features") == 2
    assert result.stderr.splitlines()[-1].startswith("error: nothing could be attacked in 2 files")
    assert not (tmp_path / "o").exists()


def test_nothing_applies(refused: Any, scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    list_only(monkeypatch, "chance", "needy")
    message = refused("attack", scene.file(), "--with", "all")
    assert "nothing could be attacked in 1 file: not run, without --reference: needy" in message


@pytest.mark.usefixtures("undrawn")
def test_a_failing_attack(refused: Any, run: Any, scene: Scene, tmp_path: Path) -> None:
    failing = ("--set", "probe.label=fail", "--truth", scene.truth(), "--out", tmp_path / "o")
    assert "this attack has failed" in refused("attack", scene.file(), "--with", "probe", *failing)
    result = run("attack", scene.file(), "--with", "probe,nearest", *failing, "--json")
    assert [row["attack"] for row in facts(result, 1)["rows"]] == ["chance", "nearest"]
    assert "a.png.veil, probe: this attack has failed" in result.stderr


@pytest.mark.usefixtures("undrawn")
def test_without_matplotlib_the_rest_is_written(run: Any, scene: Scene, tmp_path: Path) -> None:
    arguments = ("attack", scene.file(), "--with", "nearest", "--truth", scene.truth(), "--out", tmp_path / "o")
    result = run(*arguments)
    assert result.exit_code == 0 and "histogram.png was not drawn: " in result.stderr
    assert {path.name for path in (tmp_path / "o").iterdir()} == {"records.jsonl", "table.md"}


@pytest.mark.usefixtures("undrawn")
def test_other_settings_do_not_mix(run: Any, refused: Any, scene: Scene, tmp_path: Path) -> None:
    arguments = ("attack", scene.file(), "--with", "probe", "--truth", scene.truth(), "--out", tmp_path / "o")
    assert run(*arguments).exit_code == 0
    assert "was made with seed 0, not 1: name another folder" in refused(*arguments, "--seed", 1)
    assert "probe.count 3, not 4" in refused(*arguments, "--set", "count=4")


def test_names_do_not_steer_the_terminal(run: Any, scene: Scene) -> None:
    shutil.copy(scene.file(), scene.folder / "[red]a\x1b[2J.veil")
    result = run("attack", scene.folder / "[red]a\x1b[2J.veil", "--with", "probe")
    assert result.exit_code == 0 and "[red]a?[2J.veil" in result.stdout and "\x1b" not in result.stdout


def test_a_gated_release_with_its_sketch(run: Any, refused: Any, tmp_path: Path, probe: list[Knowledge]) -> None:
    private, raw = gated()
    for features, name in ((private, "query.veil"), (raw, "raw.veil")):
        save(features, tmp_path / name)
    save_sketch(place_sketch(), tmp_path / "place.sketch")
    known = ("attack", tmp_path / "query.veil", "--truth", tmp_path / "raw.veil")
    result = facts(run(*known, "--with", "all", "--sketch", tmp_path / "place.sketch", "--json"))
    rows = {row["attack"]: row for row in result["rows"]}
    assert set(rows) == {"read", "chance"} and rows["read"]["mean"] < rows["chance"]["mean"] / 2
    assert result["sources"]["sketch"] == "place.sketch"
    assert {one["reason"] for one in result["left_out"] if one["attack"] == "nearest"} == {
        "attack nearest is on subspaces (lifting); these are map points (gate)"
    }
    assert "attack read needs --sketch, the sketch of the map" in refused(*known, "--with", "read")
    save_sketch(replace(place_sketch(), model="f" * 64), tmp_path / "other.sketch")
    assert "the sketch is of ffffffff" in refused(*known, "--with", "read", "--sketch", tmp_path / "other.sketch")
