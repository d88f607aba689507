"""Ctrl-C, or another error, at a chosen call of a function or before a chosen line."""

import inspect
import sys
from collections.abc import Callable
from contextlib import suppress
from types import FrameType
from typing import Any

import pytest


class Watched:
    """Counts the calls of `real`, which the place `target` has by name, and raises `error` at number `stop_at`."""

    def __init__(
        self,
        monkeypatch: pytest.MonkeyPatch,
        target: str,
        real: Callable[..., Any],
        stop_at: int = 0,
        error: type[BaseException] = KeyboardInterrupt,
    ) -> None:
        self.calls = 0
        self._real, self._stop_at, self._error = real, stop_at, error
        monkeypatch.setattr(target, self)

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        self.calls += 1
        if self.calls == self._stop_at:
            raise self._error
        return self._real(*arguments, **options)


def stops_at_line(number: int, within: Callable[..., Any], work: Callable[[], None]) -> bool:
    """Run `work` with Ctrl-C before line `number` of those that run in `within` and in what it calls.

    False when there are fewer. Python's own library may make another error of it, and deal with that.
    """
    code = inspect.unwrap(within).__code__
    left, before = number, sys.gettrace()

    def inside(frame: FrameType | None) -> bool:
        return frame is not None and (frame.f_code is code or inside(frame.f_back))

    def trace(frame: FrameType, event: str, _: object) -> Any:
        nonlocal left
        if event == "line":
            left -= 1
            if left == 0:
                raise KeyboardInterrupt
        return trace

    sys.settrace(lambda frame, event, given: trace(frame, event, given) if inside(frame) else None)
    try:
        with suppress(KeyboardInterrupt):
            work()
    finally:
        sys.settrace(before)
    return left <= 0
