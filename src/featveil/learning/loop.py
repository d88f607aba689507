"""The loop of every training: whole steps only, a file to go on from, and nothing kept of a loss that is no number."""

import math
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from featveil.core.errors import FeatveilError

_CLIP = 1.0

Losses = tuple[float, ...]  # of one step


@dataclass
class Loop:
    """Steps of one training, whose state is in the file `checkpoint`.

    `save` writes it: after a step of which `is_due` says so, and in the end, whatever ended it. `done` says how far the
    training is, for an error.
    """

    checkpoint: Path
    save: Callable[[], None]
    is_due: Callable[[], bool]
    done: Callable[[], str]
    _whole: bool = True  # no step is half-taken

    def run(
        self, step: Callable[[], Losses], ended: Callable[[], bool], report: Callable[[list[Losses]], None]
    ) -> None:
        """Take steps until it has `ended`, and `report` the losses of all after each. Ctrl-C waits for the end of one.

        Raises FeatveilError when `update` meets a loss that is no number: the last good state stays in the file.
        """
        losses: list[Losses] = []
        try:
            while not ended():
                with whole_step():
                    losses.append(step())
                    self._whole = True
                    if self.is_due():
                        self.save()
                report(losses)
        except _NoNumberError as error:
            there = self.checkpoint.exists() or (losses and self._whole)
            kept = f"the last good state is in {self.checkpoint}" if there else "nothing of that was saved yet"
            raise FeatveilError(
                f"the loss or its gradient is no number after {self.done()}: {kept}; train with a smaller rate and"
                " under another name"
            ) from error
        finally:
            if losses and self._whole:
                self.save()

    def update(self, optimiser: torch.optim.Optimizer, loss: Tensor) -> float:
        """Change what `optimiser` has by the gradient of `loss`, and return its value. To be called within a step."""
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        norms = [torch.nn.utils.clip_grad_norm_(group["params"], _CLIP) for group in optimiser.param_groups]
        value = float(loss.detach())
        if not math.isfinite(value + sum(float(norm) for norm in norms)):
            raise _NoNumberError
        self._whole = False
        optimiser.step()
        return value


class _NoNumberError(Exception):
    """A loss, or its gradient, is not finite."""


@contextmanager
def whole_step() -> Iterator[None]:
    """Let Ctrl-C wait until the end of the block, so that what is saved then is a whole step; a second one does not.

    Signals reach the main thread only: in others it does nothing.
    """
    previous = signal.getsignal(signal.SIGINT)
    if previous is None or threading.current_thread() is not threading.main_thread():
        yield
        return
    pressed = False

    def hold(number: int, frame: Any) -> None:
        nonlocal pressed
        pressed = True
        signal.signal(signal.SIGINT, previous)

    signal.signal(signal.SIGINT, hold)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, previous)
    if pressed:
        signal.raise_signal(signal.SIGINT)
