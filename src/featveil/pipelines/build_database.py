"""Build a database of public descriptors: what lifting draws from, or a codebook of words."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from featveil.core.errors import InputError
from featveil.core.options import argument, option

if TYPE_CHECKING:
    from featveil.databases import Database

Stages = Callable[[str, int, int], None]  # stage, done, total


@dataclass(frozen=True)
class DatabaseRequest:
    """What a database is made of, how, and where it goes."""

    sources: tuple[Path, ...] = argument(
        help="Folders of images or of raw .veil files, such files, hloc .h5 files or .npy arrays."
    )
    out: Path = option(help="Database file to write (.safetensors).")
    kind: str = option("sift", help="Descriptor kind.")
    clusters: int = option(16384, help="Entries to make; 0 keeps every descriptor.")
    parts: int = option(16, help="Disjoint sub-databases to split into.")
    max_per_image: int = option(1000, help="Descriptors to use of each image.")
    max_descriptors: int | None = option(None, help="Descriptors to sample in all.", shown="39 per cluster")
    iterations: int = option(10, help="Rounds of k-means.")
    seed: int = option(0, help="A database is public, so it may be repeatable.")
    labels: Path | None = option(None, help="Attribute labels (.npy), one a descriptor; with --clusters 0.")
    source: str | None = option(None, help="What the images are, for the card.", shown="file names")
    licence: str = option("not stated", help="Licence of the images, for the card.")
    overwrite: bool = option(False, help="Replace a database that is there.")

    @property
    def work(self) -> Path:
        """The folder that keeps what is done so far: the same request goes on from there."""
        return self.out.with_name(self.out.name + ".work")


def build_database(request: DatabaseRequest, report: Stages = lambda stage, done, total: None) -> "Database":
    """Build a database and write it. A build that was stopped goes on when it is asked for again.

    Raises InputError for a request that cannot be carried out; what was done until then is kept.
    """
    from featveil.databases import Recipe, build, save_database
    from featveil.databases.building import discard_work

    out, work = request.out, request.work
    recipe = Recipe(
        kind=request.kind,
        clusters=request.clusters,
        parts=request.parts,
        max_per_image=request.max_per_image,
        max_descriptors=request.max_descriptors,
        iterations=request.iterations,
        seed=request.seed,
    )
    if not out.parent.is_dir():
        raise InputError(f"folder {out.parent} does not exist: create it first")
    if out.exists() and not request.overwrite:
        raise InputError(f"{out} is there already, and files that name its digest need it: --overwrite replaces it")
    card = {"licence": request.licence} | ({"source": request.source} if request.source else {})
    try:
        database = build(request.sources, recipe, work, _labels(request.labels), card, report)
    except InputError as error:
        if not work.exists() or str(work) in str(error):
            raise
        raise InputError(f"{error} (what was done so far is in {work})") from error
    save_database(database, out)
    discard_work(work)
    return database


def database_facts(database: "Database", name: str) -> dict[str, Any]:
    """What a database is, as plain values."""
    return {
        "name": name,
        "kind": database.kind,
        "entries": len(database),
        "size": database.size,
        "stored_as": database.values.dtype.name,
        "parts": database.parts,
        "labels": database.labels is not None,
        "digest": database.digest,
        "card": database.card,
    }


def _labels(path: Path | None) -> Any:
    import numpy as np

    if path is None:
        return None
    try:
        return np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise InputError(f"cannot read labels {path}: expected a .npy file of whole numbers") from error
