"""`featveil train`: networks that attack, and networks that conceal."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from rich.progress import BarColumn, TextColumn, TimeRemainingColumn

from featveil.cli.console import Json, bar_on_stderr, minute_lines, progress, show, stderr
from featveil.cli.options import command
from featveil.pipelines.train_inverter import TrainingOptions, TrainInverterRequest, train_inverter
from featveil.registry import defense_options

if TYPE_CHECKING:
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


@contextmanager
def stoppable_training(out: Path) -> Iterator[None]:
    """Ctrl-C ends the command and says how to go on."""
    try:
        yield
    except KeyboardInterrupt:
        stderr.print(f"Stopped. The same command goes on towards {out}", markup=False, highlight=False)
        raise typer.Exit(130) from None
