"""Which concealers a bench measures: the files that are named."""

from pathlib import Path
from typing import Annotated

import typer

Concealers = Annotated[
    list[Path] | None,
    typer.Option("--concealer", help="Network file of a concealer (may be repeated).", show_default="none"),
]
Composed = Annotated[
    bool, typer.Option("--composed", help="Also all other defenses after each concealer, as one scheme.")
]
