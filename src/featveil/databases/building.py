"""Images, feature files or arrays -> Database: sample descriptors, cluster them, split at random.

Paper: Dusmanu et al., "Privacy-Preserving Image Features via Adversarial Affine Subspace Embeddings", section
4.2 (10 million descriptors of 60,000 photos, spherical k-means to 256,000, 16 sub-databases).
"""

import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import numpy as np

from featveil.core.errors import InputError
from featveil.core.files import locked
from featveil.databases.described_images import open_sources
from featveil.databases.entries import Card, Database, Values
from featveil.databases.kmeans import spherical_kmeans
from featveil.databases.recipes import SPLITTING, Recipe
from featveil.databases.sampling import DESCRIPTORS, MANIFEST, Tally, collect

Stages = Callable[[str, int, int], None]

_CHECKPOINT = "clustering.safetensors"
_LOCK = "lock"


def build(
    sources: Sequence[str | Path],
    recipe: Recipe | None = None,
    work_dir: str | Path | None = None,
    labels: object = None,
    card: Card | None = None,
    progress: Stages | None = None,
) -> Database:
    """Build a database from image folders, raw .veil files, hloc .h5 files and .npy arrays (n, d).

    An interrupted build goes on where it stopped when it is called again with the same `work_dir`, which is
    kept: `discard_work` removes it once the database is saved. `labels` (n,) are for `Recipe(clusters=0)`, in
    the order of the descriptors. `card` adds entries such as "source" and "licence". `progress` receives
    (stage, done, total). Images that cannot be read are logged and left out. Raises InputError for unusable
    sources, too few descriptors, and a `work_dir` that another build is using.
    """
    recipe = recipe or Recipe()
    if labels is not None and recipe.clusters:
        raise InputError("labels need clusters=0: clustering mixes descriptors of different labels")
    if not sources:
        raise InputError("a database needs at least one source: a folder of images or a feature file")
    if work_dir is None:
        with tempfile.TemporaryDirectory(prefix="featveil-") as temporary:
            return build(sources, recipe, temporary, labels, card, progress)
    paths = [Path(source) for source in sources]
    items = open_sources(paths, recipe)
    folder = Path(work_dir)
    try:
        folder.mkdir(exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot make work folder {folder}: {error.strerror}") from error
    report = progress or _silent
    with locked(folder / _LOCK):
        data, tally = collect(items, recipe, folder, partial(report, "extract"))
        about = {**_card(paths, recipe, data, tally), **(card or {})}
        values = _entries(data, recipe, tally, folder, partial(report, "cluster"), about)
    rng = np.random.default_rng([SPLITTING, recipe.seed])
    return Database.from_array(values, recipe.kind, recipe.parts, labels, rng, about)


def discard_work(work_dir: str | Path) -> None:
    """Delete what `build` left in `work_dir`, and the folder itself unless it holds anything else."""
    folder = Path(work_dir)
    for name in (DESCRIPTORS, MANIFEST, _CHECKPOINT):
        (folder / name).unlink(missing_ok=True)
    if folder.is_dir() and not any(folder.iterdir()):
        folder.rmdir()


def _entries(
    data: Values, recipe: Recipe, tally: Tally, folder: Path, report: Callable[[int, int], None], about: Card
) -> Values:
    """The entries (s, d) before they are permuted; adds the quality of a clustering to the card."""
    if not recipe.clusters:
        return data
    if len(data) < recipe.clusters:
        raise InputError(
            f"{len(data)} descriptors (from {tally.images} images) are too few for {recipe.clusters} "
            f"clusters: add images, allow more descriptors per image or ask for fewer clusters"
        )
    clusters = spherical_kmeans(data, recipe.clusters, recipe.iterations, recipe.seed, folder / _CHECKPOINT, report)
    about["mean_cosine"] = round(clusters.mean_cosines[-1], 6)
    return clusters.centroids


def _card(paths: list[Path], recipe: Recipe, data: Values, tally: Tally) -> Card:
    return {
        "source": ", ".join(path.name for path in paths),
        "kind": recipe.kind,
        "images": tally.images,
        "images_skipped": tally.skipped,
        "descriptors_found": tally.seen,
        "descriptors_used": len(data),
        "recipe": recipe.as_card(),
        "licence": "not stated",
    }


def _silent(stage: str, done: int, total: int) -> None:
    """No progress wanted."""
