"""The loop of every training: when it saves, what it says of a loss that is no number, and whom Ctrl-C waits for."""

import math
import signal
import threading
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="networks: pip install 'featveil[learning]'")

from featveil.core import FeatveilError  # noqa: E402
from featveil.learning.loop import Loop, Losses, whole_step  # noqa: E402


class Sums:
    """A training of one number, a step of which changes it twice; its file has the number of steps."""

    def __init__(self, path: Path, factor: float = 1.0, every: int = 100) -> None:
        self.weight = torch.nn.Parameter(torch.tensor(3.0))
        self.optimiser = torch.optim.SGD([self.weight], 0.1)
        self.path, self.factor, self.every, self.steps = path, factor, every, 0
        self.saves: list[int] = []
        self.loop = Loop(path, self.save, lambda: self.steps % self.every == 0, lambda: f"{self.steps} steps")

    def save(self) -> None:
        self.saves.append(self.steps)
        self.path.write_text(str(self.steps))

    def step(self) -> Losses:
        first = self.loop.update(self.optimiser, self.weight**2)
        second = self.loop.update(self.optimiser, self.weight**2 * (self.factor if self.steps == 4 else 1))
        self.steps += 1
        return first, second

    def run(self, count: int = 7) -> list[Losses]:
        seen: list[Losses] = []
        self.loop.run(self.step, lambda: self.steps >= count, lambda losses: seen.append(losses[-1]))
        return seen


def test_it_saves_where_due_and_in_the_end(tmp_path: Path) -> None:
    sums = Sums(tmp_path / "a", every=3)
    losses = [value for step in sums.run() for value in step]
    assert sums.saves == [3, 6, 7]
    # A gradient longer than 1 is cut to 1, so that a step is at most the rate.
    assert losses[:2] == pytest.approx([9.0, 2.9**2]) and sorted(losses, reverse=True) == losses
    assert sums.run() == [] and sums.saves == [3, 6, 7]


def test_a_step_that_is_half_taken_is_not_saved(tmp_path: Path) -> None:
    sums = Sums(tmp_path / "a", factor=math.nan, every=3)
    with pytest.raises(FeatveilError, match=r"no number after 4 steps: the last good state is in .*a;"):
        sums.run()
    assert sums.saves == [3] and sums.weight.isfinite()
    sums = Sums(tmp_path / "b", factor=math.inf)
    with pytest.raises(FeatveilError, match="nothing of that was saved"):
        sums.run()
    assert sums.saves == [] and not (tmp_path / "b").exists()


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError, FeatveilError])
def test_what_stops_it_between_steps_saves_and_goes_on_to_the_caller(
    tmp_path: Path, error: type[BaseException]
) -> None:
    sums = Sums(tmp_path / "a")

    def stop(losses: list[Losses]) -> None:
        if len(losses) == 2:
            raise error

    with pytest.raises(error):
        sums.loop.run(sums.step, lambda: False, stop)
    assert sums.saves == [2]


def test_signals_are_let_alone_in_other_threads_and_after_errors() -> None:
    before, entered = signal.getsignal(signal.SIGINT), []

    def work() -> None:
        with whole_step():
            entered.append(signal.getsignal(signal.SIGINT) is before)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert entered == [True]
    with pytest.raises(ZeroDivisionError), whole_step():
        assert signal.getsignal(signal.SIGINT) is not before
        raise ZeroDivisionError
    assert signal.getsignal(signal.SIGINT) is before
