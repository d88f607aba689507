"""Which concealing network a command compares with: the file that is named, or the built-in one where it was used."""

from pathlib import Path
from typing import Annotated

import typer

from featveil.pipelines.sources import find_network as find_network

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
