from typing import Any

import numba
import numpy as np
import pytest

from featveil.distances import compiling, keeping


def test_generated_code_is_named_after_its_text_and_what_it_uses() -> None:
    one = compiling.compiled("add", "def add(x):\n    x[0] += 1\n")
    two = compiling.compiled("add", "def add(x):\n    x[0] += 2\n")
    outer_one = compiling.compiled("twice", "def twice(x):\n    inner(x)\n    inner(x)\n", {"inner": one})
    outer_two = compiling.compiled("twice", "def twice(x):\n    inner(x)\n    inner(x)\n", {"inner": two})
    values = np.zeros(1)
    outer_one(values)
    assert values[0] == 2
    outer_two(values)
    assert values[0] == 6


def test_a_change_deep_inside_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    before = compiling._fingerprint(keeping.keep_columns)
    monkeypatch.setattr(keeping, "MARGIN", np.float32(1))
    assert compiling._fingerprint(keeping.keep_columns) != before
    monkeypatch.undo()
    monkeypatch.setattr(keeping, "_list", keeping.insert)
    assert compiling._fingerprint(keeping.keep_columns) != before


def test_without_a_folder_to_cache_in_it_still_compiles(monkeypatch: pytest.MonkeyPatch) -> None:
    original: Any = numba.njit

    def njit(**options: object) -> object:
        if options.get("cache"):
            raise RuntimeError("cannot cache function: no locator available")
        return original(**options)

    monkeypatch.setattr(numba, "njit", njit)
    double = compiling.jit(compiling.REORDER)(lambda x: 2 * x)
    assert double(4) == 8
