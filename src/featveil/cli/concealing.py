"""Which concealing network a command compares with: the file that is named, or the built-in one where it was used."""

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from featveil.core import ConcealingNetwork

ConcealedBy = Annotated[
    Path | None,
    typer.Option(
        "--concealer",
        help="Network file that private features were concealed by: raw ones that they meet are concealed too.",
        show_default="the built-in one if it is that",
    ),
]

Concealers = Annotated[
    list[Path] | None,
    typer.Option("--concealer", help="Network file of a concealer (may be repeated).", show_default="none"),
]
Composed = Annotated[
    bool, typer.Option("--composed", help="Also all other defenses after each concealer, as one scheme.")
]


def find_network(path: Path | None, kinds: Iterable[str]) -> "ConcealingNetwork | None":
    """The network at `path`; without one the built-in network, if descriptors of `kinds` were concealed by it."""
    from featveil.core import base_kind, is_concealed
    from featveil.defenses import builtin_concealer, has_builtin_concealer, load_network

    if path is not None:
        return load_network(path)
    for kind in kinds:
        if is_concealed(kind) and has_builtin_concealer(base_kind(kind)):
            usual = builtin_concealer(base_kind(kind))
            if usual.concealed_kind == kind:
                return usual
    return None
