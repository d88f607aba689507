"""featveil patches: sets of matching patches from one's own photographs."""

from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from featveil.cli.console import Json, progress, show
from featveil.cli.extract import named_images

if TYPE_CHECKING:
    from featveil.core.resuming import Report
    from featveil.pipelines.patches_parts.patch_sets import BuiltPatches, PatchRecipe

PICTURE = "pairs.png"
_SHOWN = 96  # pairs in the picture
_JITTER = 0.5

app = typer.Typer(no_args_is_help=True, help="Build sets of matching patches, to train and to measure descriptors.")


class Part(StrEnum):
    """Which photographs (of a model: which points) to use."""

    all = "all"
    train = "train"
    test = "test"


@app.callback()
def patches() -> None:
    """Build sets of matching patches, to train and to measure descriptors."""


@app.command()
def build(
    images: Annotated[
        list[Path], typer.Argument(metavar="IMAGES...", help="Photographs or folders; with --model its folder.")
    ],
    out: Annotated[Path, typer.Option(help="Folder to write, in the layout of UBC PhotoTour.")],
    model: Annotated[
        Path | None, typer.Option(help="COLMAP model of the photographs.", show_default="views are made up")
    ] = None,
    part: Annotated[Part, typer.Option(help="Photographs (of a model: points) to use.")] = Part.all,
    test_share: Annotated[float, typer.Option(help="Share of them that is for tests.")] = 0.2,
    views: Annotated[int, typer.Option(help="Made-up views of each photograph.")] = 4,
    max_features: Annotated[int, typer.Option(help="Points to use of each photograph, the strongest.")] = 300,
    longest_side: Annotated[int, typer.Option(help="Photographs are scaled down to this, in pixels.")] = 1024,
    jitter: Annotated[
        float | None, typer.Option(help="Errors added to keypoints.", show_default=f"{_JITTER}; with --model 0")
    ] = None,
    pairs: Annotated[int, typer.Option(help="Pairs to draw, half of them matching.")] = 20_000,
    seed: Annotated[int, typer.Option(help="Equal seeds give equal sets.")] = 0,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace a patch set that is there.")] = False,
    json: Json = False,
) -> None:
    """Cut matching patches out of photographs: keypoints tracked through made-up views, or by a COLMAP model.

    Photographs of one place need --model: without, points that several of them show count as different. Nothing is
    written before all is done. OUT/pairs.png shows some pairs.

    Example: featveil patches build photos/ --out patches/ --part train
    """
    from featveil.pipelines.patches_parts.patch_sets import PatchRecipe

    chosen = (0.0 if model else _JITTER) if jitter is None else jitter
    recipe = PatchRecipe(views, max_features, pairs, part.value, test_share, longest_side, chosen, seed)
    with progress("cutting") as report:
        made = _built(images, model, out, recipe, overwrite, report)
    _draw(out)
    facts = asdict(made)
    lines = "\n".join(f"{name:10}{value:>10,}" for name, value in facts.items())
    show({"out": str(out), **facts, "picture": str(out / PICTURE)}, json, f"{lines}\nwritten to {out}")


def _built(
    images: list[Path], model: Path | None, out: Path, recipe: "PatchRecipe", overwrite: bool, report: "Report"
) -> "BuiltPatches":
    from featveil.core.errors import InputError

    if model is None:
        from featveil.pipelines.patches_parts.patch_photos import build_patches

        return build_patches(named_images(images), out, recipe, overwrite, report)
    from featveil.geometry.models import read_model
    from featveil.pipelines.patches_parts.patch_models import build_patches_of_model

    if len(images) != 1:
        raise InputError("with --model name one folder: the one that the model's image names start from")
    return build_patches_of_model(images[0], read_model(model), out, recipe, overwrite, report)


def _draw(out: Path) -> None:
    """Write the picture of some matching pairs, evenly chosen."""
    import numpy as np

    from featveil.datasets import load_phototour
    from featveil.plotting.patch_pictures import draw_patch_pairs
    from featveil.plotting.pictures import write_picture

    found = load_phototour(out)
    assert found.pairs is not None
    matching = np.flatnonzero(found.pairs.match)
    shown = matching[np.unique(np.linspace(0, len(matching) - 1, _SHOWN).astype(np.int64))]
    sides = (found.read(found.pairs.first[shown]), found.read(found.pairs.second[shown]))
    write_picture(draw_patch_pairs(*sides), out / PICTURE)
