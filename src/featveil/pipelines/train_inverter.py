"""Train a network that turns features, raw or private, back into pictures: the direct inversion attack."""

from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from featveil.core.errors import InputError
from featveil.core.options import option
from featveil.core.resuming import Report, silent

if TYPE_CHECKING:
    from featveil.core import Defense
    from featveil.learning.training import Progress

_BUILT_IN = Path("built-in")


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
    progress: "Callable[[Progress], None]" = lambda now: None,
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
