"""`featveil train concealer`: descriptors that match, trained against their inversion."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn

from featveil.cli.benching import real_numbers
from featveil.cli.console import Json, bar_on_stderr, minute_lines, progress, show, table
from featveil.cli.train import (
    Cache,
    DataNote,
    Device,
    Images,
    Licence,
    LossName,
    LossWeights,
    Seed,
    Threads,
    Weights,
    app,
    start_file,
    stoppable_training,
)
from featveil.core.errors import InputError

if TYPE_CHECKING:
    from featveil.learning.adversarial import Progress
    from featveil.learning.concealer_presets import Preset

_LAMBDAS = {"cpu": "0.1,1,2.5", "paper": "0.001,0.01,0.1,0.25,1,2.5"}


class PresetName(StrEnum):
    """How long and how the three stages are trained."""

    cpu = "cpu"
    paper = "paper"


@app.command()
def concealer(
    images: Images,
    patches: Annotated[Path, typer.Option(help="Patch set: UBC PhotoTour, or made by featveil patches build.")],
    out: Annotated[Path, typer.Option(help="Folder for the networks, one file for each lambda.")],
    validation: Annotated[
        Path | None, typer.Option(help="Patch set to measure on.", show_default="a tenth of the points of --patches")
    ] = None,
    extractor: Annotated[str, typer.Option(help="Base descriptor: sift, hardtfeat, hardnet, sosnet, ...")] = "sift",
    weights: Weights = None,
    lambdas: Annotated[
        str | None, typer.Option(help="Privacy parameters, separated by commas.", show_default="those of the preset")
    ] = None,
    preset: Annotated[
        PresetName, typer.Option(help="cpu: an hour for three lambdas. paper: days, with a GPU.")
    ] = PresetName.cpu,
    geometry: Annotated[
        str, typer.Option(help="Of keypoints, what the inverter trained along sees: positions, or full.")
    ] = "full",
    start: Annotated[
        Path | None, typer.Option(help="Begin that inverter with this: a checkpoint, an .onnx inverter, or built-in.")
    ] = None,
    joint_steps: Annotated[int | None, typer.Option(help="Steps of the adversarial stage.")] = None,
    joint_rate: Annotated[float | None, typer.Option(help="Learning rate of the adversarial stage.")] = None,
    initial_steps: Annotated[int | None, typer.Option(help="Steps of the inverter before it.")] = None,
    second_order: Annotated[
        float | None, typer.Option(help="Weight of second-order similarity; less, if a training collapses.")
    ] = None,
    loss: LossName = "structure",
    loss_weights: LossWeights = None,
    cache: Cache = None,
    seed: Seed = 0,
    threads: Threads = None,
    device: Device = "cpu",
    data_note: DataNote = "",
    licence: Licence = "",
    as_json: Json = False,
) -> None:
    """Train networks that conceal descriptors (NinjaDesc): they still match, and an inverter trained along fails.

    Three stages: utility, reconstruction, and both against each other, for each lambda. Ctrl-C saves, and the same
    command goes on. How private the result is, is measured by training a fresh inverter:
    featveil train inverter --defense concealer --concealer FILE.

    Example: featveil train concealer --images photos --patches patches --out concealers
    """
    from featveil.learning import require_torch

    require_torch()
    from featveil.datasets import load_phototour
    from featveil.extractors import make_describer
    from featveil.learning.adversarial import use_threads
    from featveil.learning.concealer_presets import PRESETS
    from featveil.learning.encodings import check_geometry
    from featveil.pipelines.train_concealer import Request, train_concealer

    use_threads(threads)
    wanted = _LAMBDAS[preset.value] if lambdas is None else lambdas
    strengths = tuple(dict.fromkeys(real_numbers(wanted, "--lambdas")))
    plan = _changed(PRESETS[preset.value], joint_steps, joint_rate, initial_steps)
    plan = plan if second_order is None else replace(plan, second_order=second_order)
    describer = make_describer(extractor, weights)
    request = Request(
        images,
        describer,
        plan,
        strengths,
        check_geometry(geometry),
        start_file(start),
        loss,
        loss_weights,
        seed,
        device,
        data_note,
        licence,
    )
    files = [out / f"{extractor}-{strength:g}.safetensors" for strength in strengths]
    if len(set(files)) < len(files):
        raise InputError("two lambdas are the same in six digits, which name the files: leave one out")
    sets = load_phototour(patches), None if validation is None else load_phototour(validation)
    with stoppable_training(out), progress("preparing") as preparing, stages() as training:
        cards = train_concealer(request, *sets, files, cache or out / "samples", preparing, training)
    show({"out": [str(path) for path in files], "cards": cards}, as_json, _summary(files, cards))


def _changed(
    preset: "Preset", joint_steps: int | None, joint_rate: float | None, initial_steps: int | None
) -> "Preset":
    """The preset with what was said otherwise."""
    joint, before = preset.joint, preset.reconstruction
    joint = joint if joint_steps is None else replace(joint, steps=joint_steps)
    joint = joint if joint_rate is None else replace(joint, rate=joint_rate)
    before = before if initial_steps is None else replace(before, steps=initial_steps)
    return replace(preset, joint=joint, reconstruction=before)


def _summary(files: list[Path], cards: list[dict[str, Any]]) -> Any:
    rows: list[tuple[object, ...]] = []
    for path, card in zip(files, cards, strict=True):
        rates = card["false_positive_rate_95"]
        rows.append((path.name, f"{card['lambda']:g}", f"{rates['raw']:.2%}", f"{rates['concealed']:.2%}"))
    return table("network", "lambda", "FPR95 raw", "FPR95 concealed", rows=rows)


@contextmanager
def stages() -> "Iterator[Callable[[float, Progress], None]]":
    """A progress bar for each stage of each lambda, or a line a minute."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("utility {task.fields[utility]:.3f}  reconstruction {task.fields[reconstruction]:.3f}"),
        TimeRemainingColumn(),
    )
    with bar_on_stderr(*columns) as bar:
        tasks: dict[str, Any] = {}
        tell = minute_lines()

        def update(strength: float, now: "Progress") -> None:
            name = f"lambda {strength:g}" if now.stage == "joint" else now.stage
            if name not in tasks:
                tasks[name] = bar.add_task(name, total=now.total, utility=0.0, reconstruction=0.0)
            bar.update(tasks[name], completed=now.done, utility=now.utility, reconstruction=now.reconstruction)
            losses = f"utility {now.utility:.3f}, reconstruction {now.reconstruction:.3f}"
            tell(lambda: f"{name}: step {now.done:,} of {now.total:,}, {losses}")

        yield update
