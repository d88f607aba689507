"""`featveil train concealer`: from photographs and patches to a network a lambda, and one line for every mistake."""

import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="networks: pip install 'featveil[learning]'")

from rich.console import Console  # noqa: E402

from featveil.cli import train  # noqa: E402
from featveil.formats.network_files import load_network  # noqa: E402
from featveil.learning.concealer_presets import PRESETS  # noqa: E402
from patch_sets import write_patches  # noqa: E402
from photographs import write_photographs  # noqa: E402
from small_concealers import SMALL  # noqa: E402

Run = Any
pytestmark = pytest.mark.usefixtures("trials_do")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of photographs, and one of patches. Do not change them."""
    folder = tmp_path_factory.mktemp("data")
    write_photographs(folder / "photos", training=2)
    write_patches(folder / "patches")
    return folder


@pytest.fixture
def command(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Any, ...]:
    """The command, which trains a tiny network for a few steps."""
    monkeypatch.setitem(PRESETS, "cpu", SMALL)
    given = ("--images", data / "photos", "--patches", data / "patches", "--out", tmp_path / "out")
    return ("train", "concealer", *given)


def test_second_order_similarity_may_weigh_less(ran: Run, refused: Any, command: tuple[Any, ...]) -> None:
    (card,) = ran(*command, "--lambdas", "1", "--second-order", 0.25)["cards"]
    assert card["preset"]["second_order"] == 0.25
    assert "must be at least 0, got -1" in refused(*command, "--second-order", -1)


def test_photographs_and_patches_become_networks(ran: Run, command: tuple[Any, ...], tmp_path: Path) -> None:
    shown = ran(*command, "--lambdas", "0.1,2.5", "--data-note", "drawn", "--threads", 1)
    files = [tmp_path / "out" / f"sift-{strength}.safetensors" for strength in ("0.1", "2.5")]
    assert shown["out"] == [str(path) for path in files]
    for path, card in zip(files, shown["cards"], strict=True):
        network = load_network(path)
        assert {"lambda": network.lambda_, **network.card} == card and card["data"] == "drawn"
    assert {path.name for path in (tmp_path / "out").iterdir()} == {
        *(path.name for path in files),
        *(f"{path.stem}.checkpoint.safetensors" for path in files),
        "samples",
    }


def test_for_a_person_there_is_a_table(run: Run, command: tuple[Any, ...]) -> None:
    result = run(*command, "--lambdas", "1", "--joint-steps", 2, "--joint-rate", 1e-4, "--initial-steps", 1)
    assert result.exit_code == 0 and result.stderr == ""
    assert "FPR95 raw" in result.stdout and "sift-1.safetensors" in result.stdout.replace("\n", "")


def test_stopped_with_ctrl_c_the_same_command_goes_on(
    run: Run, ran: Run, command: tuple[Any, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    once = (*command, "--lambdas", "1")

    @contextmanager
    def pressed() -> Any:
        def update(strength: float, now: Any) -> None:
            if (now.stage, now.done) == ("joint", 2):
                raise KeyboardInterrupt

        yield update

    with monkeypatch.context() as patch:
        patch.setattr(train, "stages", pressed)
        result = run(*once)
    assert result.exit_code == 130 and result.stdout == ""
    assert result.stderr == f"Stopped. The same command goes on towards {tmp_path / 'out'}\n"
    assert not (tmp_path / "out" / "sift-1.safetensors").exists()
    ran(*once)
    found = load_network(tmp_path / "out" / "sift-1.safetensors").digest
    ran(*once)
    assert load_network(tmp_path / "out" / "sift-1.safetensors").digest == found
    ran(*once, "--out", tmp_path / "whole")
    assert load_network(tmp_path / "whole" / "sift-1.safetensors").digest == found


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (("--lambdas", "-1"), "lambda must be a number of at least 0"),
        (("--lambdas", "nan"), "lambda must be a number of at least 0"),
        (("--lambdas", "1,much"), "--lambdas must be numbers separated by commas"),
        (("--lambdas", ""), "--lambdas names nothing"),
        (("--lambdas", "0.10000001,0.10000002"), "two lambdas are the same in six digits"),
        (("--joint-steps", "0"), "each stage has at least one step"),
        (("--initial-steps", "-3"), "each stage has at least one step"),
        (("--joint-rate", "0"), "a rate between 0 and 1"),
        (("--joint-rate", "nan"), "a rate between 0 and 1"),
        (("--extractor", "surf"), "unknown patch descriptor 'surf'"),
        (("--extractor", "hardtfeat"), "hardtfeat is a network: give its weights file"),
        (("--extractor", "hardtfeat", "--weights", "none.pth"), "there is no weights file none.pth"),
        (("--weights", "a.pth"), "sift has no weights"),
        (("--geometry", "all"), "positions, full, either"),
        (("--geometry", "either"), "sees positions or full geometry"),
        (("--start", "none.safetensors"), "there is no checkpoint none.safetensors"),
        (("--loss", "lpips"), "structure or perceptual"),
        (("--loss", "perceptual"), "--loss-weights"),
        (("--seed", "-1"), "seed must be"),
        (("--threads", "0"), "threads must be at least 1"),
        (("--device", "abacus"), "torch cannot compute on device 'abacus'"),
        (("--images", "nowhere"), "nowhere is not a folder"),
        (("--patches", "nowhere"), "nowhere"),
        (("--validation", "nowhere"), "nowhere"),
        (("--preset", "gpu"), "Invalid value"),
    ],
)
def test_mistakes_are_one_line_and_leave_nothing_behind(
    refused: Run, command: tuple[Any, ...], options: tuple[str, ...], told: str
) -> None:
    assert told in refused(*command, *options)


def test_settings_of_another_training_are_one_line(ran: Run, refused: Run, command: tuple[Any, ...]) -> None:
    ran(*command, "--lambdas", "1")
    assert "made with geometry full, not positions" in refused(*command, "--lambdas", "1", "--geometry", "positions")
    told = refused(*command, "--lambdas", "2", "--initial-steps", "9")
    assert "preset.reconstruction.steps 3, not 9: go on with that, or name another --cache" in told
    assert "made with kind sift, not rootsift: name another --cache" in refused(*command, "--extractor", "rootsift")


def test_without_torch_the_extra_is_named(data: Path, tmp_path: Path) -> None:
    code = "import sys; sys.modules['torch'] = None; from featveil.cli import main; main()"
    given = ["--images", str(data / "photos"), "--patches", str(data / "patches"), "--out", str(tmp_path / "out")]
    words = [sys.executable, "-c", code, "train", "concealer", *given]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr == "error: this needs torch, which is not installed: pip install 'featveil[learning]'\n"
    assert list(tmp_path.iterdir()) == []


def test_on_a_terminal_every_stage_has_a_bar(
    run: Run, command: tuple[Any, ...], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with (tmp_path / "terminal.txt").open("w", encoding="utf-8") as file:
        terminal = Console(file=file, force_terminal=True, width=200)
        monkeypatch.setattr("featveil.cli.console.stderr", terminal)
        result = run(*command, "--lambdas", "0,1")
        assert result.exit_code == 0, result.output
    shown = (tmp_path / "terminal.txt").read_text(encoding="utf-8")
    assert all(name in shown for name in ("preparing", "utility", "reconstruction", "lambda 0", "lambda 1"))


def test_in_a_log_every_stage_tells_how_far_it_is(
    run: Run, command: tuple[Any, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("featveil.cli.console._MINUTE", 0.0)
    lines = run(*command, "--lambdas", "1").stderr.splitlines()
    for stage in ("utility", "reconstruction", "lambda 1"):
        assert any(line.startswith(f"{stage}: step 1 of ") and ", reconstruction " in line for line in lines)
