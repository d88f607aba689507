"""featveil pool: real descriptors of the device's own photographs, for hardened lifting to hide others among."""

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from featveil.cli.console import Json, complain, progress
from featveil.cli.console import show as show_result
from featveil.core.errors import FeatveilError, InputError

if TYPE_CHECKING:
    from featveil.core.arrays import Float32
    from featveil.stores.pool import Holdings

_ARRAYS = (".npz", ".npy")

app = typer.Typer(no_args_is_help=True, help="Keep descriptors that only this device has, to hide others among.")

PoolFile = Annotated[Path, typer.Argument(metavar="POOL", help="Pool file: a secret of the device.")]
Photographs = Annotated[
    list[Path],
    typer.Argument(metavar="PHOTOS...", help="Photographs, folders of them, or face descriptors (.npz, .npy)."),
]
MostFeatures = Annotated[int, typer.Option(min=1, help="Features to take of each photograph, the strongest.")]


@app.command()
def create(
    pool: PoolFile,
    photographs: Photographs,
    kind: Annotated[
        str, typer.Option(help="Descriptor kind: sift or rootsift; of face descriptors their own.")
    ] = "sift",
    max_features: MostFeatures = 2048,
    json: Json = False,
) -> None:
    """Make a pool of photographs that are never released themselves. Each of their descriptors is used once.

    Example: featveil pool create device.pool camera-roll/ --kind rootsift
    """
    from featveil.extractors import EXTRACTORS
    from featveil.stores.pool import Pool

    if all(path.suffix.lower() in _ARRAYS for path in photographs):
        kind = _kind_of_faces(photographs)
    elif kind not in EXTRACTORS:
        raise InputError(f"unknown descriptor kind {kind!r}: use one of {', '.join(EXTRACTORS)}")
    made = Pool.create(pool, kind, _descriptors(photographs, kind, max_features))
    _show(pool, made.holdings(), json)


@app.command()
def add(pool: PoolFile, photographs: Photographs, max_features: MostFeatures = 2048, json: Json = False) -> None:
    """Add photographs to a pool; those that it holds, or that were released with it, are left out.

    Example: featveil pool add device.pool holidays/
    """
    from featveil.core.kinds import is_face
    from featveil.stores.pool import Pool

    opened = Pool(pool)
    kind = opened.holdings().kind
    if any((path.suffix.lower() in _ARRAYS) != is_face(kind) for path in photographs):
        wanted = "face descriptors (.npz, .npy)" if is_face(kind) else "photographs"
        raise InputError(f"the pool is for {kind} descriptors: add {wanted}")
    _show(pool, opened.add(_descriptors(photographs, kind, max_features)), json)


@app.command()
def info(pool: PoolFile, json: Json = False) -> None:
    """Show what a pool holds, and how much of it is left.

    Example: featveil pool info device.pool
    """
    from featveil.stores.pool import Pool

    _show(pool, Pool(pool).holdings(), json)


def _descriptors(photographs: list[Path], kind: str, max_features: int) -> "Iterator[Float32]":
    """Of each photograph that can be read and has any; the others are reported."""
    from featveil.cli.extract import named_images
    from featveil.extractors import extract

    arrays = [path for path in photographs if path.suffix.lower() in _ARRAYS]
    if arrays:
        if len(arrays) < len(photographs):
            raise InputError("a pool is made of photographs or of face descriptors, not of both")
        yield from _faces(arrays, kind)
        return
    files = named_images(photographs)
    with progress("photographs") as report:
        for done, path in enumerate(files.values()):
            report(done, len(files))
            try:
                values = extract(path, kind, max_features).descriptors.values
            except FeatveilError as error:
                complain("warning", f"left out {path}: {error}")
                continue
            if len(values):
                yield values
        report(len(files), len(files))


def _kind_of_faces(files: list[Path]) -> str:
    from featveil.datasets.face_sets import load_faces

    kinds = {load_faces(path).kind for path in files}
    if len(kinds) > 1:
        raise InputError(f"these faces were described by different networks: {', '.join(sorted(kinds))}")
    return kinds.pop()


def _faces(files: list[Path], kind: str) -> "Iterator[Float32]":
    """Each face by itself, as if it were a photograph."""
    from featveil.datasets.face_sets import load_faces

    for path in files:
        faces = load_faces(path, kind)
        if faces.kind != kind:
            raise InputError(f"the pool is for {kind} descriptors, {path} holds {faces.kind}")
        with progress("faces") as report:
            for row in range(len(faces)):
                yield faces.values[row : row + 1]
                report(row + 1, len(faces))


def _show(pool: Path, holdings: "Holdings", json: bool) -> None:
    plural = "" if holdings.photographs == 1 else "s"
    text = (
        f"pool        {pool}\n"
        f"holds       {holdings.entries:,} {holdings.kind} descriptors of {holdings.photographs:,} photograph{plural}\n"
        f"unused      {holdings.free:,}\n"
        "Whoever has this file can undo every release made with it: it stays on the device."
    )
    show_result({"pool": str(pool), **asdict(holdings)}, json, text)
