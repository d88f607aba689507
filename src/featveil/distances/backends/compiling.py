"""Compiling with numba, cached on disk, also functions for given dimensions. The only home of numba.

A function may be generated as text (`compiled`), or be an ordinary one of which some global names are bound anew
(`specialised`): numba takes them for constants. It would take the cells of a closure for constants as well, but not
find such a function on disk again: the functions in the cells look different to it in every process.
"""

import hashlib
from collections.abc import Callable
from types import FunctionType
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


def compiled(name: str, source: str) -> Kernel:
    """Compile `source`, which defines a function `name`.

    It is compiled as if it stood in this file, which is what numba needs to cache it. Its cached name carries a digest
    of the text, so that a change never meets old machine code.
    """
    unique = f"{name}_{_digest(source)}"
    namespace: dict[str, Any] = {"__name__": __name__, "numpy": np}
    text = source.replace(f"def {name}(", f"def {unique}(", 1)
    exec(compile(text, __file__, "exec"), namespace)  # noqa: S102 - the text is generated here, from integers only
    kernel: Kernel = jit(FINITE)(namespace[unique])
    return kernel


def unbound(*arguments: object) -> None:
    """Stands in a module where `specialised` binds a compiled function."""
    raise NotImplementedError("a function to be specialised was called as it is")


def specialised(template: Kernel, **bound: Any) -> Kernel:
    """Compile `template` with the compiled functions and numbers in `bound` in place of its module's own.

    Its cached name carries a digest of its code and of all that it uses, as numba looks at the code alone.
    """
    assert isinstance(template, FunctionType)
    names = template.__globals__ | bound
    function = FunctionType(template.__code__, names, template.__name__)
    function.__qualname__ = function.__name__ = f"{template.__name__}_{_digest(_fingerprint(function))}"
    kernel: Kernel = jit(FINITE)(function)
    return kernel


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _fingerprint(function: Any) -> str:
    """Code and constants of a function, and of those that it calls."""
    code = function.__code__
    parts = [function.__name__, code.co_code.hex(), repr(code.co_consts)]
    for name in code.co_names:
        value = function.__globals__.get(name)
        if hasattr(value, "py_func"):
            parts.append(_fingerprint(value.py_func))
        elif isinstance(value, int | float | np.generic):
            parts.append(f"{name} {value!r}")
    return " ".join(parts)
