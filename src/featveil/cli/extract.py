"""featveil extract: image files -> raw features."""

from typing import Annotated, Any

import typer

from featveil.cli.console import Json, progress, show
from featveil.cli.options import command
from featveil.pipelines.extract import ExtractRequest, ExtractResult, extract_files
from featveil.pipelines.privatize import PrivatizeResult

ContrastThreshold = Annotated[float, typer.Option(help="Of keypoints; a smaller one finds more, in flat areas too.")]


@command
def extract(request: ExtractRequest, json: Json = False) -> None:
    """Extract raw features. They show what the image shows: keep them on this device.

    Images that are done already are skipped, so a stopped command can be run again. An image that cannot be
    read or has no feature is reported and left out: exit code 1 if others worked, 2 if none did.

    Example: featveil extract photos/ --out features/ --kind rootsift
    """
    with progress("extracting") as report:
        result = extract_files(request, report)
    finish(result, {"kind": result.kind, "features": result.features}, json)


def finish(
    result: ExtractResult | PrivatizeResult, more: dict[str, Any], json: bool, note: str = "", elsewhere: int = 0
) -> None:
    """Print the counts and `more` of them; exit code 1 when some failed.

    Photographs from `elsewhere`, of which a gate sent nothing, are no failures.
    """
    counts = {"out": str(result.out), "written": result.written, "skipped": result.skipped, "failed": result.failed}
    text = f"{result.written} written to {result.out}"
    text += f", {result.skipped} there already and kept as they are" if result.skipped else ""
    text += f", {elsewhere} of other places: nothing sent" if elsewhere else ""
    text += f", {result.failed} failed" if result.failed else ""
    show({**counts, **more}, json, f"{text}\n{note}" if note else text)
    if result.failed:
        raise typer.Exit(1)
