"""featveil database: build and inspect databases of public descriptors."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from featveil.cli.console import Json, progress, show, stderr

if TYPE_CHECKING:
    from featveil.databases import Database

app = typer.Typer(
    no_args_is_help=True,
    help="Build and inspect databases of public descriptors: what lifting draws from, or a codebook of words.",
)


@app.command()
def build(
    sources: Annotated[
        list[Path],
        typer.Argument(help="Folders of images or of raw .veil files, such files, hloc .h5 files or .npy arrays."),
    ],
    out: Annotated[Path, typer.Option(help="Database file to write (.safetensors).")],
    kind: Annotated[str, typer.Option(help="Descriptor kind.")] = "sift",
    clusters: Annotated[int, typer.Option(help="Entries to make; 0 keeps every descriptor.")] = 16384,
    parts: Annotated[int, typer.Option(help="Disjoint sub-databases to split into.")] = 16,
    max_per_image: Annotated[int, typer.Option(help="Descriptors to use of each image.")] = 1000,
    max_descriptors: Annotated[
        int | None, typer.Option(help="Descriptors to sample in all.", show_default="39 per cluster")
    ] = None,
    iterations: Annotated[int, typer.Option(help="Rounds of k-means.")] = 10,
    seed: Annotated[int, typer.Option(help="A database is public, so it may be repeatable.")] = 0,
    labels: Annotated[
        Path | None, typer.Option(help="Attribute labels (.npy), one a descriptor; with --clusters 0.")
    ] = None,
    source: Annotated[
        str | None, typer.Option(help="What the images are, for the card.", show_default="file names")
    ] = None,
    licence: Annotated[str, typer.Option(help="Licence of the images, for the card.")] = "not stated",
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace a database that is there.")] = False,
    json: Json = False,
) -> None:
    """Build a database from public images or descriptors.

    Stop it with Ctrl-C at any time: the same command goes on where it stopped (from the folder OUT.work).

    Example: featveil database build photos/ --out my.safetensors --clusters 4096
    """
    from featveil.core.errors import InputError
    from featveil.databases import Recipe, save_database
    from featveil.databases import build as build_database
    from featveil.databases.building import discard_work

    recipe = Recipe(kind, clusters, parts, max_per_image, max_descriptors, iterations, seed)
    if not out.parent.is_dir():
        raise InputError(f"folder {out.parent} does not exist: create it first")
    if out.exists() and not overwrite:
        raise InputError(f"{out} is there already, and files that name its digest need it: --overwrite replaces it")
    work = out.with_name(out.name + ".work")
    card = {"licence": licence} | ({"source": source} if source else {})
    try:
        with _stages() as report:
            made = build_database(sources, recipe, work, _read_labels(labels), card, report)
    except InputError as error:
        if not work.exists() or str(work) in str(error):
            raise
        raise InputError(f"{error} (what was done so far is in {work})") from error
    except KeyboardInterrupt:
        stderr.print(f"Stopped. The same command goes on from {work}", markup=False, highlight=False)
        raise typer.Exit(130) from None
    save_database(made, out)
    discard_work(work)
    _show(made, str(out), json)


@app.command()
def info(
    database: Annotated[Path | None, typer.Argument(help="Database file.", show_default="the built-in one")] = None,
    kind: Annotated[str, typer.Option(help="Kind of the built-in database to show.")] = "sift",
    json: Json = False,
) -> None:
    """Show where a database comes from, its size and its digest. Verifies the file.

    Example: featveil database info my.safetensors
    """
    from featveil.databases import builtin, load_database

    if database is None:
        _show(builtin(kind), f"built-in {kind}", json)
    else:
        _show(load_database(database), str(database), json)


def _show(database: "Database", name: str, json: bool) -> None:
    facts: dict[str, Any] = {
        "name": name,
        "kind": database.kind,
        "entries": len(database),
        "size": database.size,
        "stored_as": database.values.dtype.name,
        "parts": database.parts,
        "labels": database.labels is not None,
        "digest": database.digest,
    }
    recipe = database.card.get("recipe", {})
    about = {key: value for key, value in database.card.items() if key not in ("recipe", "kind")}
    rows: list[tuple[object, ...]] = [*facts.items(), *about.items()]
    if isinstance(recipe, dict):
        rows += [(f"recipe {key}", value) for key, value in recipe.items()]
    # Plain lines and no table: a digest that is folded to the terminal's width cannot be compared or searched for.
    text = "\n".join(f"{_plain(key).replace('_', ' '):24}{_plain(value)}" for key, value in rows)
    show({**facts, "card": database.card}, json, text)


def _plain(value: object) -> str:
    """Text of a stranger's file, on one line and without control characters for the terminal."""
    return "".join(letter if letter.isprintable() else "?" for letter in str(value))


def _read_labels(path: Path | None) -> Any:
    import numpy as np

    from featveil.core.errors import InputError

    if path is None:
        return None
    try:
        return np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise InputError(f"cannot read labels {path}: expected a .npy file of whole numbers") from error


@contextmanager
def _stages() -> Iterator[Callable[[str, int, int], None]]:
    """One progress bar for each stage, opened when the stage begins."""
    with ExitStack() as bars:
        current: dict[str, Callable[[int, int], None]] = {}

        def report(stage: str, done: int, total: int) -> None:
            if stage not in current:
                bars.close()
                current[stage] = bars.enter_context(progress(stage))
            current[stage](done, total)

        yield report
