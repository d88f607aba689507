"""featveil demo: two images -> a page that shows raw and private matches, and what left the device."""

from pathlib import Path
from typing import Annotated

import typer

from featveil.cli.console import Json, progress, show


def demo(
    out: Annotated[Path, typer.Option(help="Folder to write index.html and query.veil to.")] = Path("featveil-demo"),
    images: Annotated[
        tuple[Path, Path] | None, typer.Option(help="Query and reference image.", show_default="bundled ones")
    ] = None,
    json: Json = False,
) -> None:
    """Match two images raw and privately, attack what was sent, and explain it all on one page.

    The first run takes about half a minute longer, because it compiles the kernels.

    Example: featveil demo --images query.jpg reference.jpg
    """
    from featveil.demo import demo as pipeline

    with progress("matching, mapping, attacking (the first run compiles)") as report:
        run = pipeline.demo(out, images, report)
    page = out / "index.html"
    text = "\n".join([*pipeline.demo_lines(run), f"Open {page.resolve()}"])
    show({"page": str(page), **pipeline.demo_facts(run)}, json, text)
