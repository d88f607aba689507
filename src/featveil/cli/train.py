"""`featveil train`: networks that attack, and networks that conceal."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.progress import BarColumn, TextColumn, TimeRemainingColumn

from featveil.cli.console import Json, bar_on_stderr, minute_lines, progress, show, stderr
from featveil.cli.extract import ContrastThreshold
from featveil.cli.methods import (
    ConcealerFile,
    Confounders,
    DatabaseDigest,
    DatabaseFile,
    Dimension,
    Epsilon,
    PoolFile,
    Strategy,
    SubsetSize,
    Then,
    make_defense,
)
from featveil.core.errors import InputError

if TYPE_CHECKING:
    from featveil.core import Defense
    from featveil.learning.training import Progress as Trained

app = typer.Typer(no_args_is_help=True, help="Train networks: inverters that attack, concealers that defend.")

Images = Annotated[Path, typer.Option("--images", help="Folder of photographs, with folders below it.")]
Cache = Annotated[
    Path | None,
    typer.Option(
        help="Folder for pieces of the photographs and their features; trainings on the same ones can share it.",
        show_default="beside --out",
    ),
]
Minutes = Annotated[float, typer.Option(help="Time to train, what was trained before a stop included.")]
Steps = Annotated[int | None, typer.Option(help="Steps to train, if that is less.", show_default="no limit")]
Threads = Annotated[int | None, typer.Option(help="Processor threads.", show_default="all")]
Weights = Annotated[Path | None, typer.Option(help="Weights file of an extractor that is a network.")]
LossName = Annotated[str, typer.Option(help="structure (MAE, SSIM, gradients), or perceptual (MAE and features).")]
LossWeights = Annotated[Path | None, typer.Option(help="Perceptual loss: weights of VGG16 or EfficientNet-lite0.")]
Seed = Annotated[int, typer.Option(help="Of the networks' beginning and of what each step sees.")]
DataNote = Annotated[str, typer.Option(help="For the card: where the photographs are from.")]
Licence = Annotated[str, typer.Option(help="For the card: under which terms the network may be used.")]
Device = Annotated[str, typer.Option(help="Where torch computes: cpu, cuda, cuda:1, ...")]


@app.command()
def inverter(
    images: Images,
    out: Annotated[Path, typer.Option(help="The trained inverter, an .onnx file.")],
    extractor: Annotated[str, typer.Option(help="Kind of descriptors: sift, rootsift, hardtfeat, ...")] = "sift",
    weights: Weights = None,
    defense: Annotated[
        str, typer.Option(help="What the attacker sees: identity for raw descriptors, or a defense.")
    ] = "identity",
    geometry: Annotated[
        str, typer.Option(help="Of keypoints it sees: positions, full (scale, orientation, response too) or either.")
    ] = "positions",
    architecture: Annotated[str, typer.Option(help="unet or uresnet.")] = "unet",
    size: Annotated[str, typer.Option(help="small, for a processor, or paper.")] = "small",
    loss: LossName = "structure",
    loss_weights: LossWeights = None,
    start: Annotated[
        Path | None, typer.Option(help="Begin with this network: a checkpoint, an .onnx inverter, or built-in.")
    ] = None,
    standardise: Annotated[
        bool | None,
        typer.Option(
            "--standardise/--as-sent",
            help="Read columns at mean 0 and spread 1, or as they are sent: some concealers hide in the scale.",
            show_default="standardise what a concealer sends",
        ),
    ] = None,
    strategy: Strategy = None,
    dimension: Dimension = None,
    confounders: Confounders = None,
    pool: PoolFile = None,
    epsilon: Epsilon = None,
    subset_size: SubsetSize = None,
    database: DatabaseFile = None,
    database_digest: DatabaseDigest = None,
    concealer: ConcealerFile = None,
    then: Then = None,
    crops: Annotated[int, typer.Option(help="Pieces of each training photograph.")] = 6,
    max_features: Annotated[int, typer.Option(help="Strongest features of a piece.")] = 1000,
    contrast_threshold: ContrastThreshold = 0.04,
    cache: Cache = None,
    minutes: Minutes = 20.0,
    steps: Steps = None,
    batch: Annotated[int, typer.Option(help="Pieces a step.")] = 4,
    rate: Annotated[float, typer.Option(help="Learning rate.")] = 1.2e-3,
    patience: Annotated[int, typer.Option(help="Stop after this many of 20 evaluations without a gain.")] = 8,
    seed: Seed = 0,
    threads: Threads = None,
    device: Device = "cpu",
    data_note: DataNote = "",
    licence: Licence = "",
    as_json: Json = False,
) -> None:
    """Train a network that turns features, raw or private, back into pictures: the direct inversion attack.

    Photographs are split by their content: 94 % for training, 3 % to stop early, 3 % to measure. Ctrl-C saves, and the
    same command goes on. Example: featveil train inverter --images photos --out raw.onnx --minutes 20
    """
    from featveil.learning import require_torch

    require_torch()
    from featveil.learning.encodings import check_geometry
    from featveil.learning.training import Settings
    from featveil.pipelines.train_parts.inverter_training import Request, train_inverter
    from featveil.pipelines.train_parts.photo_samples import Recipe

    if out.suffix != ".onnx":
        raise InputError(f"an inverter is an .onnx file, not {out.name}")
    options: dict[str, Any] = {"strategy": strategy, "dimension": dimension, "confounders": confounders, "pool": pool}
    options |= {"epsilon": epsilon, "subset_size": subset_size, "network": concealer, "then": then}
    request = Request(
        images,
        attacked_defense(defense, extractor, options, database, database_digest),
        extractor,
        check_geometry(geometry),
        architecture,
        size,
        loss,
        loss_weights,
        start_file(start),
        Recipe(extractor, crops, max_features, weights=weights, contrast_threshold=contrast_threshold),
        data_note,
        licence,
        defense == "concealer" if standardise is None else standardise,
    )
    settings = Settings(minutes, steps, batch, rate, seed, patience=patience, threads=threads, device=device)
    with stoppable_training(out), progress("extracting") as extracting, losses() as training:
        card = train_inverter(request, out, cache or out.parent / "samples", settings, extracting, training)
    show({"out": str(out), **card}, as_json, f"{out}\n{quality(card)}")


def attacked_defense(
    name: str, kind: str, options: dict[str, Any], database: Path | None, digest: str | None
) -> "Defense":
    """The defense that an attacker trains against; unlike for a release it may be none."""
    if name == "identity":
        from featveil.defenses import Identity

        if any(value is not None for value in (*options.values(), database, digest)):
            raise InputError("raw descriptors take no option of a defense")
        return Identity()
    return make_defense(name, options, database, digest).for_kind(kind)


def start_file(named: Path | None) -> Path | None:
    """The file that a training begins with; `built-in` is the inverter that comes with featveil."""
    from featveil.inverters import SIFT_FILE

    return SIFT_FILE if named == Path("built-in") else named


def quality(card: dict[str, Any]) -> str:
    """One line for each geometry that was tested: what the card says of quality."""
    best = max(card["validation_ssim"], default=0)
    lines = [f"{card['steps']:,} steps in {card['minutes']} minutes, best validation SSIM {best:.3f}"]
    for name, (mae, ssim, psnr) in card.get("test", {}).items():
        told = "a blank picture" if name == "blank" else f"test, {name}"
        lines.append(f"{told}: MAE {mae:.3f}, SSIM {ssim:.3f}, PSNR {psnr:.2f} dB")
    return "\n".join(lines)


@contextmanager
def losses() -> "Iterator[Callable[[Trained], None]]":
    """A progress bar that shows loss and validation, or a line a minute."""
    columns = (
        TextColumn("training"),
        BarColumn(),
        TextColumn("{task.percentage:3.0f}%"),
        TextColumn("step {task.fields[step]:,}  loss {task.fields[loss]:.3f}  validation SSIM {task.fields[best]:.3f}"),
        TimeRemainingColumn(),
    )
    with bar_on_stderr(*columns) as bar:
        task = bar.add_task("training", total=1.0, visible=False, step=0, loss=0.0, best=0.0)
        tell = minute_lines()

        def update(now: "Trained") -> None:
            best = max(now.best, 0.0)
            bar.update(task, completed=now.spent, visible=True, step=now.step, loss=now.loss, best=best)
            seen = f", validation SSIM {best:.3f}" if best else ""
            tell(lambda: f"{now.spent:.0%}: step {now.step:,}, loss {now.loss:.3f}{seen}")

        yield update


@contextmanager
def stoppable_training(out: Path) -> Iterator[None]:
    """Ctrl-C ends the command and says how to go on."""
    try:
        yield
    except KeyboardInterrupt:
        stderr.print(f"Stopped. The same command goes on towards {out}", markup=False, highlight=False)
        raise typer.Exit(130) from None
