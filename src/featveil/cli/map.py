"""featveil map: images, or raw or private features of them -> a sparse COLMAP model, and a picture of it."""

from typing import TYPE_CHECKING, Any

import typer

from featveil.cli.console import Json, complain, number, show, staged_progress
from featveil.cli.options import command
from featveil.pipelines.map import MapRequest, MapResult, map_files
from featveil.registry import defense_options

if TYPE_CHECKING:
    DefenseOptions = Any
else:
    DefenseOptions = defense_options()

_NAMED = 8  # images that are listed as not registered


@command
def map_images(request: MapRequest, options: DefenseOptions, json: Json = False) -> None:
    """Build a map from private features: hide, match, verify, map. Needs the extra colmap.

    Every image is released once, into OUT/private.h5. OUT/database.db has keypoints and verified matches, and never
    descriptors. Intrinsics of --cameras stay, others are refined. A stopped command goes on where it was; a folder that
    was begun with other settings is left alone.

    Example: featveil map photos/ --out map/ --dimension 2
    """
    with staged_progress("mapping") as report:
        result = map_files(request, options, report)
    model, built = result.built.model, result.built
    facts = {
        "out": str(result.out),
        "images": len(result.images),
        "private": result.private,
        "pairs": built.pairs,
        "verified_pairs": built.verified.pairs,
        "registered_images": len(model.views),
        "points": len(model.points),
        "track_length": model.mean_track_length,
        "reprojection_error": model.mean_error,
        "picture": None if result.picture is None else str(result.picture),
        "not_registered": result.not_registered,
    }
    show(facts, json, _text(result))
    if not model.views:
        complain("warning", "no images could be put together: more features, or a weaker defense, give more matches")
        raise typer.Exit(1)


def _text(result: MapResult) -> str:
    """For a person."""
    model, built, left_out = result.built.model, result.built, result.not_registered
    length, error = "-", "-"
    if len(model.points):
        length, error = f"{model.mean_track_length:.2f}", f"{model.mean_error:.2f} px"
    lines = [
        f"features            {'private' if result.private else 'raw'}, {result.features}",
        f"verified pairs      {built.verified.pairs} of {built.pairs}",
        f"registered images   {len(model.views)} of {len(result.images)}",
        f"sparse points       {number(len(model.points))}",
        f"mean track length   {length}",
        f"reprojection error  {error}",
    ]
    if left_out:
        lines.append(f"not registered      {', '.join(left_out[:_NAMED])}{', ...' * (len(left_out) > _NAMED)}")
    if model.views:
        lines.append(f"model in {result.out}" + (f", drawn in {result.picture}" if result.picture else ""))
    return "\n".join(lines)
