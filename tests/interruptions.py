"""Ctrl-C, or another error, at a chosen call of a function."""

from collections.abc import Callable
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
