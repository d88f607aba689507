"""Train networks that conceal descriptors (NinjaDesc): they still match, and an inverter trained along fails."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from featveil.core.errors import InputError
from featveil.core.options import option
from featveil.core.resuming import Report, silent
from featveil.pipelines.train_inverter import TrainingOptions, start_file

if TYPE_CHECKING:
    from featveil.learning.adversarial import Progress
    from featveil.learning.concealer_presets import Preset

_LAMBDAS = {"cpu": (0.1, 1.0, 2.5), "paper": (0.001, 0.01, 0.1, 0.25, 1.0, 2.5)}


@dataclass(frozen=True)
class TrainConcealerRequest:
    """The concealers that are wanted, one for each of `lambdas`, and how the three stages are trained."""

    patches: Path = option(help="Patch set: UBC PhotoTour, or made by featveil patches build.")
    out: Path = option(help="Folder for the networks, one file for each lambda.")
    validation: Path | None = option(None, help="Patch set to measure on.", shown="a tenth of the points of --patches")
    extractor: str = option("sift", help="Base descriptor: sift, hardtfeat, hardnet, sosnet, ...")
    lambdas: tuple[float, ...] | None = option(
        None, help="Privacy parameters, separated by commas.", shown="those of the preset"
    )
    preset: Literal["cpu", "paper"] = option("cpu", help="cpu: an hour for three lambdas. paper: days, with a GPU.")
    geometry: str = option("full", help="Of keypoints, what the inverter trained along sees: positions, or full.")
    start: Path | None = option(
        None, help="Begin that inverter with this: a checkpoint, an .onnx inverter, or built-in."
    )
    joint_steps: int | None = option(None, help="Steps of the adversarial stage.")
    joint_rate: float | None = option(None, help="Learning rate of the adversarial stage.")
    initial_steps: int | None = option(None, help="Steps of the inverter before it.")
    second_order: float | None = option(None, help="Weight of second-order similarity; less, if a training collapses.")


@dataclass(frozen=True)
class TrainedConcealers:
    """The files of the networks, and a card for each: its lambda, how it was trained, and how well it matches."""

    files: tuple[Path, ...]
    cards: tuple[dict[str, Any], ...]


def train_concealer(
    request: TrainConcealerRequest,
    training: TrainingOptions,
    preparing: Report = silent,
    progress: "Callable[[float, Progress], None]" = lambda strength, now: None,
) -> TrainedConcealers:
    """Train a network for each lambda and write it; `progress` is called with the lambda and how far it is.

    A training that was stopped goes on when it is asked for again. Raises MissingExtraError without torch, InputError
    for data and settings that cannot be used and for files of another training.
    """
    from featveil.learning import require_torch

    require_torch()
    from featveil.datasets import load_phototour
    from featveil.extractors import make_describer
    from featveil.learning.adversarial import use_threads
    from featveil.learning.concealer_presets import PRESETS
    from featveil.learning.encodings import check_geometry
    from featveil.pipelines.train_parts.concealer_training import ConcealerTraining, run_concealer_training

    use_threads(training.threads)
    strengths = tuple(dict.fromkeys(_LAMBDAS[request.preset] if request.lambdas is None else request.lambdas))
    wanted = ConcealerTraining(
        images=training.images,
        preset=_changed(PRESETS[request.preset], request),
        describer=make_describer(request.extractor, training.weights),
        strengths=strengths,
        geometry=check_geometry(request.geometry),
        start=start_file(request.start),
        loss=training.loss,
        loss_weights=training.loss_weights,
        seed=training.seed,
        device=training.device,
        data_note=training.data_note,
        licence=training.licence,
    )
    files = tuple(request.out / f"{request.extractor}-{strength:g}.safetensors" for strength in strengths)
    if len(set(files)) < len(files):
        raise InputError("two lambdas are the same in six digits, which name the files: leave one out")
    patches = load_phototour(request.patches)
    validation = None if request.validation is None else load_phototour(request.validation)
    cache = training.cache or request.out / "samples"
    cards = run_concealer_training(wanted, patches, validation, files, cache, preparing, progress)
    return TrainedConcealers(files, tuple(cards))


def _changed(preset: "Preset", request: TrainConcealerRequest) -> "Preset":
    """The preset with what the request says otherwise."""
    joint = replace(preset.joint, **_stated(steps=request.joint_steps, rate=request.joint_rate))
    before = replace(preset.reconstruction, **_stated(steps=request.initial_steps))
    return replace(preset, joint=joint, reconstruction=before, **_stated(second_order=request.second_order))


def _stated(**values: float | None) -> dict[str, Any]:
    """Those of `values` that are not None."""
    return {name: value for name, value in values.items() if value is not None}
