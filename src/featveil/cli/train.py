"""`featveil train`: networks that attack, and networks that conceal."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn

from featveil.cli.console import Json, bar_on_stderr, minute_lines, progress, show, stderr, table
from featveil.cli.options import command
from featveil.pipelines.train import (
    TrainConcealerRequest,
    TrainingOptions,
    TrainInverterRequest,
    train_concealer,
    train_inverter,
)
from featveil.registry import defense_options

if TYPE_CHECKING:
    from featveil.learning.adversarial import Progress as Stage
    from featveil.learning.training import Progress as Trained

    DefenseOptions = Any
else:
    DefenseOptions = defense_options()

app = typer.Typer(no_args_is_help=True, help="Train networks: inverters that attack, concealers that defend.")


@app.command()
@command
def inverter(
    training: TrainingOptions, request: TrainInverterRequest, options: DefenseOptions, json: Json = False
) -> None:
    """Train a network that turns features, raw or private, back into pictures: the direct inversion attack.

    Photographs are split by their content: 94 % for training, 3 % to stop early, 3 % to measure. Ctrl-C saves, and the
    same command goes on. Example: featveil train inverter --images photos --out raw.onnx --minutes 20
    """
    with stoppable_training(request.out), progress("extracting") as extracting, losses() as trained:
        result = train_inverter(request, training, options, extracting, trained)
    show({"out": str(result.out), **result.card}, json, f"{result.out}\n{quality(result.card)}")


@app.command()
@command
def concealer(training: TrainingOptions, request: TrainConcealerRequest, json: Json = False) -> None:
    """Train networks that conceal descriptors (NinjaDesc): they still match, and an inverter trained along fails.

    Three stages: utility, reconstruction, and both against each other, for each lambda. Ctrl-C saves, and the same
    command goes on. How private the result is, is measured by training a fresh inverter:
    featveil train inverter --defense concealer --concealer FILE.

    Example: featveil train concealer --images photos --patches patches --out concealers
    """
    with stoppable_training(request.out), progress("preparing") as preparing, stages() as trained:
        result = train_concealer(request, training, preparing, trained)
    facts = {"out": [str(path) for path in result.files], "cards": result.cards}
    show(facts, json, _summary(result.files, result.cards))


def quality(card: dict[str, Any]) -> str:
    """One line for each geometry that was tested: what the card says of quality."""
    best = max(card["validation_ssim"], default=0)
    lines = [f"{card['steps']:,} steps in {card['minutes']} minutes, best validation SSIM {best:.3f}"]
    for name, (mae, ssim, psnr) in card.get("test", {}).items():
        what = "a blank picture" if name == "blank" else f"test, {name}"
        lines.append(f"{what}: MAE {mae:.3f}, SSIM {ssim:.3f}, PSNR {psnr:.2f} dB")
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


def _summary(files: Sequence[Path], cards: Sequence[dict[str, Any]]) -> Any:
    rows: list[tuple[object, ...]] = []
    for path, card in zip(files, cards, strict=True):
        rates = card["false_positive_rate_95"]
        rows.append((path.name, f"{card['lambda']:g}", f"{rates['raw']:.2%}", f"{rates['concealed']:.2%}"))
    return table("network", "lambda", "FPR95 raw", "FPR95 concealed", rows=rows)


@contextmanager
def stages() -> "Iterator[Callable[[float, Stage], None]]":
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

        def update(strength: float, now: "Stage") -> None:
            name = f"lambda {strength:g}" if now.stage == "joint" else now.stage
            if name not in tasks:
                tasks[name] = bar.add_task(name, total=now.total, utility=0.0, reconstruction=0.0)
            bar.update(tasks[name], completed=now.done, utility=now.utility, reconstruction=now.reconstruction)
            losses = f"utility {now.utility:.3f}, reconstruction {now.reconstruction:.3f}"
            tell(lambda: f"{name}: step {now.done:,} of {now.total:,}, {losses}")

        yield update


@contextmanager
def stoppable_training(out: Path) -> Iterator[None]:
    """Ctrl-C ends the command and says how to go on."""
    try:
        yield
    except KeyboardInterrupt:
        stderr.print(f"Stopped. The same command goes on towards {out}", markup=False, highlight=False)
        raise typer.Exit(130) from None
