"""featveil face extract: photographs -> face descriptors in one file, raw."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from featveil.cli.console import Json, complain, progress, show
from featveil.cli.face_inputs import Largest, Mean, Model, Scale, network_of
from featveil.core.errors import InputError
from featveil.core.files import check_folder

if TYPE_CHECKING:
    from featveil.pipelines.face_templates import LeftOut


def extract(
    images: Annotated[list[Path], typer.Argument(help="Photographs, folders of them, or one InsightFace .bin file.")],
    out: Annotated[Path, typer.Option(help="File for the descriptors (.npz). Raw: it stays on the device.")],
    model: Model = None,
    mean: Mean = 0.0,
    scale: Scale = 1.0,
    largest: Largest = False,
    every: Annotated[bool, typer.Option("--all", help="Take all faces of each photograph.")] = False,
    json: Json = False,
) -> None:
    """Describe the faces on photographs by vectors that are near for one person. Names are relative to their folder.

    Example: featveil face extract people/ --out people.npz
    """
    from featveil.cli.extract import named_images
    from featveil.datasets.face_sets import save_faces
    from featveil.pipelines.face_templates import describe_bin, describe_photographs

    if largest and every:
        raise InputError("--largest and --all exclude each other")
    if out.suffix.lower() != ".npz":
        raise InputError(f"descriptors are written to an .npz file, got {out}")
    check_folder(out.parent)  # before the work
    network = network_of(model, mean, scale)
    is_bin = [path.suffix.lower() == ".bin" for path in images]
    left_out: list[LeftOut] = []
    with progress("faces") as report:
        if any(is_bin):
            if len(images) > 1:
                raise InputError("a .bin file is described by itself")
            made = describe_bin(images[0], network, report)
        else:
            which: Any = "all" if every else "largest" if largest else "one"
            made, left_out = describe_photographs(named_images(images), network, which, report)
    save_faces(made, out)
    for one in left_out:
        complain("warning", f"left out {one.name}: {one.reason}")
    result = {"out": str(out), "faces": len(made), "kind": made.kind, "model": made.model, "left_out": len(left_out)}
    text = f"{len(made):,} faces of kind {made.kind} in {out}" + (f", {len(left_out):,} left out" * bool(left_out))
    show(result, json, f"{text}\nThese are raw: whoever has them knows who is on the photographs.")
