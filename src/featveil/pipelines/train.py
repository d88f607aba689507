"""Train networks: inverters, which turn features back into pictures, and concealers, which hide descriptors."""

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from featveil.core.errors import InputError
from featveil.core.options import option
from featveil.core.resuming import Report, silent

if TYPE_CHECKING:
    from featveil.core import Defense
    from featveil.learning.adversarial import Progress as ConcealerProgress
    from featveil.learning.concealer_presets import Preset
    from featveil.learning.training import Progress as InverterProgress

_BUILT_IN = Path("built-in")
_LAMBDAS = {"cpu": (0.1, 1.0, 2.5), "paper": (0.001, 0.01, 0.1, 0.25, 1.0, 2.5)}


@dataclass(frozen=True)
class TrainingOptions:
    """What all trainings share: photographs, the loss, where and with what, and what the card says."""

    images: Path = option(help="Folder of photographs, with folders below it.")
    weights: Path | None = option(None, help="Weights file of an extractor that is a network.")
    loss: str = option("structure", help="structure (MAE, SSIM, gradients), or perceptual (MAE and features).")
    loss_weights: Path | None = option(None, help="Perceptual loss: weights of VGG16 or EfficientNet-lite0.")
    cache: Path | None = option(
        None,
        help="Folder for pieces of the photographs and their features; trainings on the same ones can share it.",
        shown="beside --out",
    )
    seed: int = option(0, help="Of the networks' beginning and of what each step sees.")
    threads: int | None = option(None, help="Processor threads.", shown="all")
    device: str = option("cpu", help="Where torch computes: cpu, cuda, cuda:1, ...")
    data_note: str = option("", help="For the card: where the photographs are from.")
    licence: str = option("", help="For the card: under which terms the network may be used.")


@dataclass(frozen=True)
class TrainInverterRequest:
    """The inverter that is wanted, what it sees, and how long it is trained."""

    out: Path = option(help="The trained inverter, an .onnx file.")
    extractor: str = option("sift", help="Kind of descriptors: sift, rootsift, hardtfeat, ...")
    defense: str = option("identity", help="What the attacker sees: identity for raw descriptors, or a defense.")
    database_digest: str | None = option(
        None, flags=("--database-digest", "--codebook-digest"), help="Refuse a file with another digest."
    )
    geometry: str = option(
        "positions", help="Of keypoints it sees: positions, full (scale, orientation, response too) or either."
    )
    architecture: str = option("unet", help="unet or uresnet.")
    size: str = option("small", help="small, for a processor, or paper.")
    start: Path | None = option(None, help="Begin with this network: a checkpoint, an .onnx inverter, or built-in.")
    standardise: bool | None = option(
        None,
        help="Read columns at mean 0 and spread 1, or as they are sent: some concealers hide in the scale.",
        flags=("--standardise/--as-sent",),
        shown="standardise what a concealer sends",
    )
    crops: int = option(6, help="Pieces of each training photograph.")
    max_features: int = option(1000, help="Strongest features of a piece.")
    contrast_threshold: float = option(0.04, help="Of keypoints; a smaller one finds more, in flat areas too.")
    minutes: float = option(20.0, help="Time to train, what was trained before a stop included.")
    steps: int | None = option(None, help="Steps to train, if that is less.", shown="no limit")
    batch: int = option(4, help="Pieces a step.")
    rate: float = option(1.2e-3, help="Learning rate.")
    patience: int = option(8, help="Stop after this many of 20 evaluations without a gain.")


@dataclass(frozen=True)
class TrainedInverter:
    """The file of an inverter, and its card: how it was trained, and how near it comes on photographs it never saw."""

    out: Path
    card: dict[str, Any]


def train_inverter(
    request: TrainInverterRequest,
    training: TrainingOptions,
    options: Any = None,
    extracting: Report = silent,
    progress: "Callable[[InverterProgress], None]" = lambda now: None,
) -> TrainedInverter:
    """Train an inverter of what the defense with `options` (see `defense_options`) sends, and write it.

    A training that was stopped goes on when it is asked for again. Raises MissingExtraError without torch, InputError
    for photographs and settings that cannot be used and for a checkpoint of another training.
    """
    from featveil.learning import require_torch

    require_torch()
    from featveil.learning.encodings import check_geometry
    from featveil.learning.training import Settings
    from featveil.pipelines.train_parts.inverter_training import InverterTraining, run_inverter_training
    from featveil.pipelines.train_parts.photo_samples import Recipe

    out, extractor = request.out, request.extractor
    if out.suffix != ".onnx":
        raise InputError(f"an inverter is an .onnx file, not {out.name}")
    wanted = InverterTraining(
        images=training.images,
        defense=_attacked(request, options),
        kind=extractor,
        geometry=check_geometry(request.geometry),
        architecture=request.architecture,
        size=request.size,
        loss=training.loss,
        loss_weights=training.loss_weights,
        start=start_file(request.start),
        recipe=Recipe(
            extractor,
            request.crops,
            request.max_features,
            weights=training.weights,
            contrast_threshold=request.contrast_threshold,
        ),
        data_note=training.data_note,
        licence=training.licence,
        standardised=request.defense == "concealer" if request.standardise is None else request.standardise,
    )
    settings = Settings(
        minutes=request.minutes,
        steps=request.steps,
        batch=request.batch,
        rate=request.rate,
        seed=training.seed,
        patience=request.patience,
        threads=training.threads,
        device=training.device,
    )
    cache = training.cache or out.parent / "samples"
    return TrainedInverter(out, run_inverter_training(wanted, out, cache, settings, extracting, progress))


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
    progress: "Callable[[float, ConcealerProgress], None]" = lambda strength, now: None,
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


def start_file(named: Path | None) -> Path | None:
    """The file that a training begins with; `built-in` is the inverter that comes with featveil."""
    from featveil.inverters import SIFT_FILE

    return SIFT_FILE if named == _BUILT_IN else named


def _attacked(request: TrainInverterRequest, options: Any) -> "Defense":
    """The defense that an attacker trains against; unlike for a release it may be none."""
    from featveil.registry import DEFENSES, defense_options, make_defense

    options = defense_options()() if options is None else options
    if request.defense != "identity":
        return make_defense(request.defense, options, request.database_digest).for_kind(request.extractor)
    given = [getattr(options, one.name) for one in fields(options)]
    if request.database_digest is not None or any(value not in (None, False) for value in given):
        raise InputError("raw descriptors take no option of a defense")
    identity: Defense = DEFENSES["identity"]()
    return identity


def _changed(preset: "Preset", request: TrainConcealerRequest) -> "Preset":
    """The preset with what the request says otherwise."""
    joint = replace(preset.joint, **_stated(steps=request.joint_steps, rate=request.joint_rate))
    before = replace(preset.reconstruction, **_stated(steps=request.initial_steps))
    return replace(preset, joint=joint, reconstruction=before, **_stated(second_order=request.second_order))


def _stated(**values: float | None) -> dict[str, Any]:
    """Those of `values` that are not None."""
    return {name: value for name, value in values.items() if value is not None}
