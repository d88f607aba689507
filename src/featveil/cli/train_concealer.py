"""`featveil train concealer`: descriptors that match, trained against their inversion."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn

from featveil.cli.console import Json, bar_on_stderr, minute_lines, progress, show, table
from featveil.cli.options import command
from featveil.cli.train import app, stoppable_training
from featveil.pipelines.train_concealer import TrainConcealerRequest, train_concealer
from featveil.pipelines.train_inverter import TrainingOptions

if TYPE_CHECKING:
    from featveil.learning.adversarial import Progress


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


def _summary(files: Sequence[Path], cards: Sequence[dict[str, Any]]) -> Any:
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
