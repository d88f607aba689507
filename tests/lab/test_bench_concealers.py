"""featveil bench concealers: one command from network files to tables and figures."""

import json
from pathlib import Path
from typing import Any

import pytest

from featveil.attacks import Guess
from featveil.attacks.unconceal import Unconceal
from featveil.core.records import read_records
from featveil.databases import Database, builtin, save_database
from featveil.defenses import Concealer
from featveil.learning.encodings import Encoding
from featveil.metrics import matching_accuracy
from featveil.metrics.reconstruction import compare
from featveil.pipelines.painters import Painter
from interruptions import Watched
from networks import identity_network, random_network, write_network
from painters import grey_painter
from patch_sets import write_patches
from photographs import write_photographs
from scenes import draw_turned_views

SMALL = ("--max-features", 60, "--max-patches", 20, "--pairs", 200, "--queries", 10, "--photographs", 1)
NETWORKS = {"same": identity_network(), "mixed": random_network()}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Sequences, patches, photographs and two networks. Do not change them."""
    folder = tmp_path_factory.mktemp("data")
    for number in range(2):
        draw_turned_views(folder / "drawn" / f"v_{number}", seed=number)
    write_patches(folder / "patches")
    write_photographs(folder / "photos", test=1, training=1)
    for name, network in NETWORKS.items():
        write_network(folder / f"{name}.safetensors", network)
    write_network(folder / "root.safetensors", identity_network("rootsift"))
    return folder


@pytest.fixture
def command(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Any, ...]:
    """The command; an inverter called NETWORK-ARCHITECTURE.onnx is of that network."""

    def load(path: Path | None = None, kind: str = "sift") -> Painter:
        if path is None:
            return grey_painter()
        name, _, architecture = path.stem.partition("-")
        network = NETWORKS.get(name) or random_network(seed=9)
        spec = Concealer(network).for_kind("sift").spec()
        return grey_painter(Encoding(network.concealed_kind), spec, path.name, architecture=architecture)

    monkeypatch.setattr("featveil.lab.concealers.load_painter", load)
    files = [data / f"{name}.safetensors" for name in NETWORKS]
    given = ("--data", data / "drawn", "--images", data / "photos", "--part", "test", "--out", tmp_path / "out")
    return ("bench", "concealers", *files, *given, *SMALL)


def direct(*names: str) -> list[Any]:
    return [word for name in names for word in ("--direct", f"{name}.onnx")]


def test_everything_of_two_networks(run: Any, command: tuple[Any, ...], data: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="figures: pip install 'featveil[plots]'")
    whole = (*command, "--phototour", data / "patches", *direct("same-unet", "mixed-unet", "mixed-uresnet"))
    result = run(*whole, "--json")
    assert result.exit_code == 0 and result.stderr == "", result.output
    shown = json.loads(result.stdout)
    assert [row["strength"] for row in shown["rows"]] == [None, 0.0, 1.0]
    assert [len(row["inversions"]) for row in shown["rows"]] == [2, 1, 2]
    assert shown["rows"][1]["matching"]["accuracy"] == pytest.approx(shown["rows"][0]["matching"]["accuracy"], abs=0.02)
    out = tmp_path / "out"
    assert shown["files"] == [str(out / name) for name in ("records.jsonl", "table.md", "curve.png", "matching.png")]
    assert {path.name for path in out.iterdir()} == {Path(name).name for name in shown["files"]} | {"pictures"}
    assert {record.task for record in read_records(out / "records.jsonl")} == {"patches", "matching", "inversion"}
    assert "Beside NinjaDesc" in (out / "table.md").read_text(encoding="utf-8")
    before = (out / "records.jsonl").read_bytes()
    again = run(*whole)
    assert again.exit_code == 0 and (out / "records.jsonl").read_bytes() == before
    assert max(len(line) for line in again.stdout.splitlines()) <= 80 and "raw" in again.stdout


@pytest.mark.parametrize(("task", "once"), [("matching", matching_accuracy), ("inversion", compare)])
def test_stopped_with_ctrl_c_the_same_command_goes_on(
    run: Any, ran: Any, command: tuple[Any, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, task: str, once: Any
) -> None:
    given = (*command, *direct("mixed-unet"))
    with monkeypatch.context() as patch:
        Watched(patch, f"featveil.lab.{task}.{once.__name__}", once, 3)
        result = run(*given)
    path = tmp_path / "out" / "records.jsonl"
    assert result.exit_code == 130 and "goes on from" in result.stderr
    assert sum(record.task == task for record in read_records(path)) == 2
    ran(*given)
    parts = path.read_text(encoding="utf-8")
    ran(*given, "--out", tmp_path / "whole")
    whole = (tmp_path / "whole" / "records.jsonl").read_text(encoding="utf-8")
    assert without_seconds(parts) == without_seconds(whole)


def without_seconds(text: str) -> list[Any]:
    records = [json.loads(line) for line in text.splitlines()]
    for record in records:
        record["parameters"].pop("seconds", None)
    return records


def test_without_inverters_privacy_is_not_measured(run: Any, command: tuple[Any, ...], tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="figures: pip install 'featveil[plots]'")
    result = run(*command)
    assert result.exit_code == 0
    assert result.stderr.startswith("curve.png was not drawn: no inverter of a concealer was given")
    assert not (tmp_path / "out" / "curve.png").exists() and (tmp_path / "out" / "matching.png").exists()


def test_an_attack_may_recover_descriptors_first(
    ran: Any, command: tuple[Any, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def quick(self: Any, seen: Any, knowledge: Any, rng: Any) -> Guess:
        assert knowledge.database.digest == own.digest and knowledge.network.digest in digests
        return Guess.all_of(seen.descriptors.values)

    own, digests = Database(builtin("sift").values[:300], "sift"), {one.digest for one in NETWORKS.values()}
    save_database(own, tmp_path / "own.safetensors")
    monkeypatch.setattr(Unconceal, "run", quick)
    shown = ran(*command, "--attacks", "unconceal", "--database", tmp_path / "own.safetensors")
    assert [[one["attack"] for one in row["inversions"]] for row in shown["rows"]][1:] == [["unconceal"]] * 2


def test_inverters_that_are_trained_later_join_the_earlier_ones(ran: Any, command: tuple[Any, ...]) -> None:
    ran(*command, *direct("mixed-unet"))
    mixed = ran(*command, *direct("mixed-uresnet"))["rows"][-1]
    assert [one["attack"] for one in mixed["inversions"]] == ["direct", "direct (uresnet)"]


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (("--direct", "other-unet.onnx"), "which no scheme here sends"),
        (("--direct", "same-unet.onnx", "--direct", "same-unet.onnx"), "two inverters of one architecture fit"),
        (("--data", "nowhere"), "nowhere is not a folder"),
        (("--images", "nowhere"), "nowhere is not a folder"),
        (("--phototour", "nowhere"), "nowhere"),
        (("--database", "nowhere"), "nowhere"),
        (("--part", "half"), "part must be one of"),
        (("--geometry", "all"), "geometry must be one of"),
        (("--attacks", "magic"), "unknown attack 'magic'"),
        (("--weights", "a.pth"), "sift has no weights"),
        (("--seed", "-1"), "seed must be"),
        (("--pairs", "1"), "pairs must be"),
        (("--photographs", "0"), "Invalid value"),
    ],
)
def test_mistakes_are_one_line_and_leave_nothing_behind(
    refused: Any, command: tuple[Any, ...], options: tuple[str, ...], told: str
) -> None:
    assert told in refused(*command, *options)


def test_files_that_do_not_go_together(refused: Any, command: tuple[Any, ...], data: Path) -> None:
    verb, rest = command[:2], command[2:]
    assert "conceals rootsift descriptors, not sift" in refused(*command[:3], data / "root.safetensors", *command[4:])
    assert "was named twice" in refused(*verb, data / "same.safetensors", *rest)
    assert "there is no network file" in refused(*verb, "none.safetensors", *rest)
    assert "Missing argument" in refused(*verb, *rest[2:])
