"""`featveil train inverter`: from a folder of photographs to a file that paints, and one line for every mistake."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="networks: pip install 'featveil[learning]'")
pytest.importorskip("onnx", reason="exporting: pip install 'featveil[learning]'")

from rich.console import Console  # noqa: E402

from featveil.cli import train  # noqa: E402
from featveil.datasets.board import views  # noqa: E402
from featveil.defenses import load_network  # noqa: E402
from featveil.extractors import extract  # noqa: E402
from featveil.inverters import SIFT_FILE, builtin_inverter, load_inverter  # noqa: E402
from featveil.pipelines.train_parts.photo_samples import part_of  # noqa: E402
from networks import write_network  # noqa: E402
from photographs import write_photographs  # noqa: E402
from small_inverters import TINY  # noqa: E402

Run = Any
pytestmark = pytest.mark.usefixtures("trials_do")
QUICK = ("--size", TINY, "--steps", "3", "--batch", "2", "--crops", "2", "--max-features", "40")


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Seven photographs. Do not change them."""
    return write_photographs(tmp_path_factory.mktemp("photos"), training=4, validation=2, test=1)


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Filled by the first test that trains, with the pieces of `photos`."""
    return tmp_path_factory.mktemp("cache") / "samples"


@pytest.fixture
def command(photos: Path, cache: Path, tmp_path: Path) -> tuple[Any, ...]:
    """The command that trains a tiny inverter for three steps."""
    out = tmp_path / "raw.onnx"
    return ("train", "inverter", "--images", photos, "--out", out, "--cache", cache, *QUICK)


def test_photographs_become_an_inverter(ran: Run, photos: Path, tmp_path: Path) -> None:
    out = tmp_path / "raw.onnx"
    card = ran("train", "inverter", "--images", photos, "--out", out, "--data-note", "drawn", *QUICK)
    assert card["out"] == str(out)
    inverter = load_inverter(out)
    assert {"out": str(out), **inverter.card} == card
    assert card["steps"] == 3 and card["data"] == "drawn" and card["test"].keys() == {"positions", "blank"}
    assert card["photographs"] == {"training": 4, "validation": 2, "test": 1}
    assert (tmp_path / "samples" / "shard-00000").is_dir()
    assert {path.name for path in tmp_path.iterdir()} == {"raw.onnx", "raw.checkpoint.safetensors", "samples"}


def test_for_a_person_it_says_how_good_it_is(run: Run, command: tuple[Any, ...], tmp_path: Path) -> None:
    result = run(*command, "--geometry", "either")
    assert result.exit_code == 0 and result.stderr == ""
    lines = result.stdout.splitlines()
    assert lines[0] == str(tmp_path / "raw.onnx")
    assert lines[1].startswith("3 steps in ") and "best validation SSIM 0." in lines[1]
    assert [line.partition(":")[0] for line in lines[2:]] == ["test, positions", "test, full", "a blank picture"]
    assert all("MAE 0." in line and "SSIM " in line and line.endswith(" dB") for line in lines[2:])


def test_the_same_command_goes_on_and_more_steps_go_further(run: Run, ran: Run, command: tuple[Any, ...]) -> None:
    first = ran(*command)
    again = run(*command, "--json")
    assert json.loads(again.stdout) == first and "a finished training: nothing is added" in again.stderr
    more = ran(*[("5" if part == "3" else part) for part in command])
    assert more["steps"] == 5 and more["validation_ssim"][:3] == first["validation_ssim"]


def test_ctrl_c_says_how_to_go_on(
    run: Run, ran: Run, command: tuple[Any, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        stopping(patch)
        result = run(*command)
    assert result.exit_code == 130 and result.stdout == ""
    assert result.stderr == f"Stopped. The same command goes on towards {tmp_path / 'raw.onnx'}\n"
    assert (tmp_path / "raw.checkpoint.safetensors").is_file() and not (tmp_path / "raw.onnx").exists()
    assert ran(*command)["steps"] == 3


def stopping(patch: pytest.MonkeyPatch) -> None:
    """Ctrl-C after the first step."""
    from contextlib import contextmanager

    @contextmanager
    def pressed() -> Any:
        def update(now: Any) -> None:
            raise KeyboardInterrupt

        yield update

    patch.setattr(train, "losses", pressed)


@pytest.mark.parametrize(
    ("options", "representation"),
    [
        (("--defense", "lifting", "--dimension", "2", "--strategy", "random"), ("subspaces", 2)),
        (("--defense", "subset", "--epsilon", "10", "--subset-size", "3"), ("words", 3)),
    ],
)
def test_what_a_defense_sends_can_be_trained_on(
    ran: Run, command: tuple[Any, ...], tmp_path: Path, options: tuple[str, ...], representation: tuple[str, int]
) -> None:
    ran(*command)
    start = ("--start", tmp_path / "raw.checkpoint.safetensors", "--out", tmp_path / "dia.onnx")
    card = ran(*command, *start, *options)
    encoding = load_inverter(tmp_path / "dia.onnx").encoding
    assert (encoding.representation, encoding.count) == representation
    assert card["defense"]["name"] == options[1] and card["start"] == "raw.checkpoint.safetensors"


def test_concealed_descriptors_can_be_trained_on(ran: Run, command: tuple[Any, ...], tmp_path: Path) -> None:
    network = write_network(tmp_path / "concealer.safetensors")
    options = ("--defense", "concealer", "--concealer", network, "--then", "lifting", "--strategy", "random")
    card = ran(*command, *options)
    encoding = load_inverter(tmp_path / "raw.onnx").encoding
    assert encoding.kind == load_network(network).concealed_kind and encoding.representation == "subspaces"
    assert (card["defense"]["name"], card["defense"]["then"]) == ("concealer", "lifting")
    assert card["standardised"] is True
    plain = ("--as-sent", "--out", tmp_path / "plain.onnx")
    assert "standardised" not in ran(*command, *options, *plain)


def test_it_may_learn_from_more_keypoints(ran: Run, command: tuple[Any, ...], tmp_path: Path) -> None:
    usual, out = ran(*command), ("--out", tmp_path / "dense.onnx", "--cache", tmp_path / "dense")
    dense = ran(*command, *out, "--contrast-threshold", "0.01")
    assert dense["recipe"] == usual["recipe"] | {"contrast_threshold": 0.01}


def test_it_may_begin_with_the_built_in_inverter(ran: Run, command: tuple[Any, ...], tmp_path: Path) -> None:
    options = ("--size", "small", "--start", "built-in", "--steps", "1", "--rate", "1e-9")
    card = ran(*command, *options)
    assert card["start"] == SIFT_FILE.name
    begun = load_inverter(tmp_path / "raw.onnx")
    found = extract(views()[0], max_features=200)
    assert found.keypoints is not None
    seen = replace(found, keypoints=found.keypoints.positions_only())
    painted, usual = (inverter.invert(seen).astype(int) for inverter in (begun, builtin_inverter()))
    assert np.abs(painted - usual).mean() < 1 < usual.std()


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (("--out", "raw.pt"), "an inverter is an .onnx file, not raw.pt"),
        (("--geometry", "all"), "positions, full, either"),
        (("--architecture", "vgg"), "one of unet, uresnet"),
        (("--size", "huge"), "size must be one of small, paper"),
        (("--loss", "lpips"), "structure or perceptual"),
        (("--loss", "perceptual"), "--loss-weights"),
        (("--loss-weights", "vgg.pth"), "--loss-weights belongs to the perceptual one"),
        (("--loss", "perceptual", "--loss-weights", "vgg.pth"), "there is no weights file vgg.pth"),
        (("--start", "none.safetensors"), "there is no checkpoint none.safetensors"),
        (("--extractor", "surf"), "unknown descriptor kind 'surf'"),
        (("--extractor", "hardnet"), "hardnet is a network: give its weights file"),
        (("--weights", "hardnet.pth"), "sift has no weights"),
        (("--defense", "vault"), "unknown defense 'vault'"),
        (("--dimension", "4"), "raw descriptors take no option of a defense"),
        (("--database-digest", "a" * 64), "raw descriptors take no option of a defense"),
        (("--concealer", "a.safetensors"), "raw descriptors take no option of a defense"),
        (("--defense", "lifting", "--epsilon", "1"), "--epsilon does not belong to lifting"),
        (("--defense", "subset"), "subset needs --epsilon"),
        (("--minutes", "0"), "minutes must be a number above 0"),
        (("--minutes", "nan"), "minutes must be a number above 0"),
        (("--steps", "0"), "steps must be a whole number of at least 1"),
        (("--batch", "-1"), "batch must be"),
        (("--rate", "2"), "rate must be between 0 and 1"),
        (("--seed", "-1"), "seed must be"),
        (("--threads", "0"), "threads must be"),
        (("--patience", "0"), "patience must be"),
        (("--crops", "0"), "crops must be"),
        (("--max-features", "3"), "max_features must be a whole number of at least 8"),
        (("--device", "abacus"), "torch cannot compute on device 'abacus'"),
        (("--images", "nowhere"), "nowhere is not a folder"),
        (("--steps", "many"), "Invalid value"),
    ],
)
def test_mistakes_are_one_line(refused: Run, photos: Path, tmp_path: Path, options: tuple[str, ...], told: str) -> None:
    given = ("train", "inverter", "--images", photos, "--out", tmp_path / "a.onnx", *options)
    assert told in refused(*given)


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has what must be missing")
def test_a_machine_without_cuda_says_so(refused: Run, photos: Path, tmp_path: Path) -> None:
    given = ("train", "inverter", "--images", photos, "--out", tmp_path / "a.onnx", "--device", "cuda")
    assert "torch cannot compute on device 'cuda' here: use cpu" in refused(*given)


def test_settings_of_another_training_are_one_line(
    ran: Run, refused: Run, command: tuple[Any, ...], photos: Path, cache: Path
) -> None:
    ran(*command)
    assert "made with rate 0.0012, not 0.001: go on with that" in refused(*command, "--rate", "0.001")
    assert "made with architecture unet, not uresnet" in refused(*command, "--architecture", "uresnet")
    assert "made with crops 2, not 3: name another --cache" in refused(*command, "--crops", "3")
    assert "made with kind sift, not rootsift: name another --cache" in refused(*command, "--extractor", "rootsift")


def test_photographs_that_cannot_be_used(run: Run, tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    contents = [f"no picture {number}".encode() for number in range(200)]
    for part in ("training", "validation"):
        broken = next(content for content in contents if part_of(content) == part)
        (tmp_path / "photos" / f"{part}.jpg").write_bytes(broken)
    result = run("train", "inverter", "--images", tmp_path / "photos", "--out", tmp_path / "a.onnx", *QUICK)
    assert result.exit_code == 2
    first, second, last = result.stderr.splitlines()
    assert [line.split(": ")[2] for line in (first, second)] == ["training.jpg", "validation.jpg"]
    assert last.startswith("error: too few photographs: 0 that can be used are for training")


def test_without_torch_the_extra_is_named(tmp_path: Path, photos: Path) -> None:
    code = "import sys; sys.modules['torch'] = None; from featveil.cli import main; main()"
    given = ["train", "inverter", "--images", str(photos), "--out", str(tmp_path / "a.onnx")]
    done = subprocess.run([sys.executable, "-c", code, *given], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr == "error: this needs torch, which is not installed: pip install 'featveil[learning]'\n"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("arguments", [["--help"], ["train", "--help"], ["train", "inverter", "--help"], ["--version"]])
def test_help_never_imports_torch(arguments: list[str]) -> None:
    code = (
        "import sys\nsys.argv = ['featveil', *sys.argv[1:]]\nfrom featveil.cli import main\n"
        "try: main()\nexcept SystemExit: pass\n"
        "print([name for name in ('torch', 'onnx', 'onnxruntime') if name in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=True)
    assert done.stderr == "[]\n" and "featveil" in done.stdout.lower()


def test_on_a_terminal_both_bars_are_shown(
    run: Run, command: tuple[Any, ...], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Two progress bars at once: versions of rich before 14.1 refuse that."""
    with (tmp_path / "terminal.txt").open("w", encoding="utf-8") as file:
        terminal = Console(file=file, force_terminal=True, width=200)
        monkeypatch.setattr("featveil.cli.console.stderr", terminal)
        result = run(*command)
        assert result.exit_code == 0, result.output
    shown = (tmp_path / "terminal.txt").read_text(encoding="utf-8")
    assert "extracting" in shown and "training" in shown and "validation SSIM" in shown


def test_in_a_log_there_is_a_line_a_minute(run: Run, command: tuple[Any, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("featveil.cli.console._MINUTE", 0.0)
    lines = run(*command).stderr.splitlines()
    assert any(line.startswith("extracting: ") and " of " in line for line in lines)
    assert [line for line in lines if line.startswith("67%: step 2, loss ")]


def test_the_example_of_the_help_works_as_far_as_it_goes() -> None:
    """The help names options that there are."""
    words = (train.inverter.__doc__ or "").partition("Example: ")[2].split()
    assert words[:3] == ["featveil", "train", "inverter"]
    known = json.dumps(list(train.inverter.__annotations__))
    assert all(word.removeprefix("--").replace("-", "_") in known for word in words if word.startswith("--"))
