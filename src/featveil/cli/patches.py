"""featveil patches: sets of matching patches from one's own photographs."""

from dataclasses import asdict

import typer

from featveil.cli.console import Json, progress, show
from featveil.cli.options import command
from featveil.pipelines.build_patches import PICTURE, PatchesRequest, build_patches

app = typer.Typer(no_args_is_help=True, help="Build sets of matching patches, to train and to measure descriptors.")


@app.callback()
def patches() -> None:
    """Build sets of matching patches, to train and to measure descriptors."""


@app.command()
@command
def build(request: PatchesRequest, json: Json = False) -> None:
    """Cut matching patches out of photographs: keypoints tracked through made-up views, or by a COLMAP model.

    Photographs of one place need --model: without, points that several of them show count as different. Nothing is
    written before all is done. OUT/pairs.png shows some pairs.

    Example: featveil patches build photos/ --out patches/ --part train
    """
    with progress("cutting") as report:
        facts = asdict(build_patches(request, report))
    lines = "\n".join(f"{name:10}{value:>10,}" for name, value in facts.items())
    files = {"out": str(request.out), **facts, "picture": str(request.out / PICTURE)}
    show(files, json, f"{lines}\nwritten to {request.out}")
