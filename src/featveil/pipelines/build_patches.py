"""Cut sets of matching patches out of one's own photographs, to train and to measure descriptors."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from featveil.core.errors import InputError
from featveil.core.options import argument, option
from featveil.core.resuming import Report, silent
from featveil.pipelines.sources import named_images

if TYPE_CHECKING:
    from featveil.pipelines.patches_parts.patch_sets import BuiltPatches

PICTURE = "pairs.png"
_SHOWN = 96  # pairs in the picture
_JITTER = 0.5


@dataclass(frozen=True)
class PatchesRequest:
    """Which photographs, how patches are cut out of them, and where the set goes."""

    images: tuple[Path, ...] = argument(metavar="IMAGES...", help="Photographs or folders; with --model its folder.")
    out: Path = option(help="Folder to write, in the layout of UBC PhotoTour.")
    model: Path | None = option(None, help="COLMAP model of the photographs.", shown="views are made up")
    part: Literal["all", "train", "test"] = option("all", help="Photographs (of a model: points) to use.")
    test_share: float = option(0.2, help="Share of them that is for tests.")
    views: int = option(4, help="Made-up views of each photograph.")
    max_features: int = option(300, help="Points to use of each photograph, the strongest.")
    longest_side: int = option(1024, help="Photographs are scaled down to this, in pixels.")
    jitter: float | None = option(None, help="Errors added to keypoints.", shown=f"{_JITTER}; with --model 0")
    pairs: int = option(20_000, help="Pairs to draw, half of them matching.")
    seed: int = option(0, help="Equal seeds give equal sets.")
    overwrite: bool = option(False, help="Replace a patch set that is there.")


def build_patches(request: PatchesRequest, report: Report = silent) -> "BuiltPatches":
    """Write a patch set, and a picture of some of its pairs.

    Keypoints are tracked through made-up views of single photographs, or by a COLMAP model. Nothing is written before
    all is done. Raises InputError for photographs that cannot be used, and too few points.
    """
    from featveil.pipelines.patches_parts.patch_photos import build_from_photos
    from featveil.pipelines.patches_parts.patch_sets import PatchRecipe

    recipe = PatchRecipe(
        views=request.views,
        max_features=request.max_features,
        pairs=request.pairs,
        part=request.part,
        test_share=request.test_share,
        longest_side=request.longest_side,
        jitter=(0.0 if request.model else _JITTER) if request.jitter is None else request.jitter,
        seed=request.seed,
    )
    if request.model is None:
        built = build_from_photos(named_images(request.images), request.out, recipe, request.overwrite, report)
    else:
        from featveil.geometry.models import read_model
        from featveil.pipelines.patches_parts.patch_models import build_from_model

        if len(request.images) != 1:
            raise InputError("with --model name one folder: the one that the model's image names start from")
        model = read_model(request.model)
        built = build_from_model(request.images[0], model, request.out, recipe, request.overwrite, report)
    _draw(request.out)
    return built


def _draw(out: Path) -> None:
    """Write the picture of some matching pairs, evenly chosen."""
    import numpy as np

    from featveil.datasets import load_phototour
    from featveil.plotting.patch_pictures import draw_patch_pairs
    from featveil.plotting.pictures import write_picture

    patches = load_phototour(out)
    assert patches.pairs is not None
    matching = np.flatnonzero(patches.pairs.match)
    shown = matching[np.unique(np.linspace(0, len(matching) - 1, _SHOWN).astype(np.int64))]
    sides = (patches.read(patches.pairs.first[shown]), patches.read(patches.pairs.second[shown]))
    write_picture(draw_patch_pairs(*sides), out / PICTURE)
