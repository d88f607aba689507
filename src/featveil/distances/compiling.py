"""Compiling with numba, cached on disk, also for code that is generated as text."""

import hashlib
from collections.abc import Callable
from typing import Any

import numba
import numpy as np

Kernel = Callable[..., None]

# Sums may be reordered (that is what makes them fast); NaN and infinity keep their meaning.
REORDER = {"reassoc", "contract", "nsz"}
# Tiles hold no NaN or infinity (inputs are checked, padding is finite), which lets minima become SIMD code too.
FINITE = {"nnan", "ninf", "nsz", "arcp", "contract", "reassoc"}


def jit(fastmath: set[str]) -> Callable[[Callable[..., Any]], Any]:
    """Compile on first use and remember on disk; where no folder can be written, compile in every process."""

    def decorate(function: Callable[..., Any]) -> Any:
        try:
            return numba.njit(cache=True, nogil=True, fastmath=fastmath)(function)
        except RuntimeError:
            return numba.njit(nogil=True, fastmath=fastmath)(function)

    return decorate


def compiled(name: str, source: str, uses: dict[str, Any] | None = None) -> Kernel:
    """Compile `source`, which defines a function `name` and may call the compiled functions in `uses`.

    It is compiled as if it stood in this file, which is what numba needs to cache it. Its cached name carries a digest
    of the text and of what it uses, so that a change of either never meets old machine code.
    """
    digest = hashlib.sha256(source.encode())
    for use in (uses or {}).values():
        digest.update(_fingerprint(use).encode())
    unique = f"{name}_{digest.hexdigest()[:12]}"
    namespace: dict[str, Any] = {"__name__": __name__, "numpy": np, **(uses or {})}
    text = source.replace(f"def {name}(", f"def {unique}(", 1)
    exec(compile(text, __file__, "exec"), namespace)  # noqa: S102 - the text is generated here, from integers only
    made: Kernel = jit(FINITE)(namespace[unique])
    return made


def _fingerprint(use: Any) -> str:
    """Code and constants of a compiled function, and of those that it calls."""
    function = use.py_func
    code = function.__code__
    parts = [function.__name__, code.co_code.hex(), repr(code.co_consts)]
    for name in code.co_names:
        value = function.__globals__.get(name)
        if hasattr(value, "py_func"):
            parts.append(_fingerprint(value))
        elif isinstance(value, int | float | np.generic):
            parts.append(repr(value))
    return " ".join(parts)
