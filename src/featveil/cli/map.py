"""featveil map: images, or raw or private features of them -> a sparse COLMAP model, and a picture of it."""

import json as jsons
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from featveil.cli.cameras import CamerasFile, KnownCameras
from featveil.cli.concealing import find_network
from featveil.cli.console import Json, complain, number, progress, show
from featveil.cli.map_features import PRIVATE, RAW, Hiding, map_features
from featveil.cli.methods import (
    Apart,
    ConcealerFile,
    Confounders,
    DatabaseDigest,
    DatabaseFile,
    Dimension,
    Epsilon,
    PoolFile,
    Strategy,
    SubsetSize,
    Then,
)
from featveil.core.errors import InputError
from featveil.core.files import make_folder, replacing

if TYPE_CHECKING:
    from featveil.formats.collections import Collection
    from featveil.geometry.models import SparseModel
    from featveil.pipelines.map import BuiltMap, MapOptions

PICTURE = "model.png"

_SETTINGS = "settings.json"
_NAMED = 8  # images that are listed as not registered
_MADE = (PRIVATE, RAW, "database.db", *(f"{part}.{end}" for part in ("images", "points3D") for end in ("bin", "txt")))


def map_images(
    images: Annotated[
        Path,
        typer.Argument(help="Folder of images; or features: hloc .h5, COLMAP .db, private .h5, folder of .veil files."),
    ],
    out: Annotated[Path, typer.Option(help="Folder for the model, what it was made of, and model.png.")],
    defense: Annotated[
        str | None,
        typer.Option(help="How descriptors are hidden, as for privatize; raw: not at all.", show_default="lifting"),
    ] = None,
    strategy: Strategy = None,
    dimension: Dimension = None,
    confounders: Confounders = None,
    pool: PoolFile = None,
    concealer: ConcealerFile = None,
    then: Then = None,
    epsilon: Epsilon = None,
    subset_size: SubsetSize = None,
    database: DatabaseFile = None,
    database_digest: DatabaseDigest = None,
    apart: Apart = False,
    pairs: Annotated[Path | None, typer.Option(help="A pairs file of hloc.", show_default="every pair")] = None,
    cameras: CamerasFile = None,
    ratio: Annotated[float | None, typer.Option(help="Ratio test of matches; not for word sets.")] = None,
    on_sphere: Annotated[bool, typer.Option("--on-sphere", help="Compare subspaces where they have norm 1.")] = False,
    rule: Annotated[str, typer.Option(help="How words match: vocabulary or nearest.")] = "vocabulary",
    beside: Annotated[Path | None, typer.Option(help="Another model of these images, to draw beside this one.")] = None,
    kind: Annotated[str | None, typer.Option(help="Descriptor kind.", show_default="as for privatize")] = None,
    max_features: Annotated[
        int | None, typer.Option(min=1, help="Features of each image, the strongest.", show_default="2048, or all")
    ] = None,
    json: Json = False,
) -> None:
    """Build a map from private features: hide, match, verify, map. Needs the extra colmap.

    Every image is released once, into OUT/private.h5. OUT/database.db has keypoints and verified matches, and never
    descriptors. Intrinsics of --cameras stay, others are refined. A stopped command goes on where it was; a folder that
    was begun with other settings is left alone.

    Example: featveil map photos/ --out map/ --dimension 2
    """
    from featveil.formats.pairs import read_pairs
    from featveil.geometry.colmap import pycolmap
    from featveil.geometry.models import read_model
    from featveil.pipelines.map import build

    pycolmap()
    given = KnownCameras(cameras)
    reference = None if beside is None else read_model(beside)
    options: dict[str, Any] = {
        "strategy": strategy,
        "dimension": dimension,
        "epsilon": epsilon,
        "subset_size": subset_size,
    }
    options |= {"confounders": confounders, "pool": pool, "then": then}
    matching = {"ratio": ratio, "on_sphere": on_sphere, "rule": rule}
    _check_matching(matching)
    settings = {"images": str(images.resolve()), "defense": defense or "lifting", "apart": apart, "kind": kind}
    settings |= {"max_features": max_features, "pairs": None if pairs is None else str(pairs.resolve()), **matching}
    if images.is_dir() and out.resolve().is_relative_to(images.resolve()):
        raise InputError(f"{out} lies in {images}, where its picture would be taken for an image: use another folder")
    listed = None if pairs is None else read_pairs(pairs)
    hiding = Hiding(defense, options, database, database_digest, apart, kind, max_features, concealer)
    collection = map_features(images, out, hiding, lambda: _begin(out, settings))
    wanted = None if listed is None else _checked(listed, collection)
    given.warn(collection.names)
    known = {name: camera for name in collection.names if (camera := given.find(name, images)) is not None}
    with progress("mapping") as bar:
        built = build(
            collection.names,
            collection.read,
            out,
            cameras=known,
            pairs=wanted,
            options=_options({**matching, "network": concealer}, database, collection, given.exact),
            report=lambda stage, done, total: bar(done, total),
        )
    name = "" if beside is None else beside.resolve().name
    _finish(built, collection, _drawn(built, (name, reference), collection, out), out, json)


def _check_matching(matching: dict[str, Any]) -> None:
    """Raise InputError for settings that no features can be matched with."""
    from featveil.matching import NearestMatcher
    from featveil.matching.word_sets import check_rule

    NearestMatcher(ratio=matching["ratio"])
    check_rule(matching["rule"])


def _begin(out: Path, settings: dict[str, Any]) -> None:
    """Make the folder, or raise InputError when it was begun with others: what is in it would not fit.

    Releases tell their own settings, and the database its cameras.
    """
    make_folder(out)
    path = out / _SETTINGS
    if not path.exists():
        if strange := next((name for name in _MADE if (out / name).exists()), None):
            raise InputError(f"{out} has a {strange} that was not made here: use another folder")
        with replacing(path) as temporary:
            temporary.write_text(jsons.dumps(settings, indent=1), "utf-8")
        return
    try:
        before = jsons.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"cannot read {path}: use another folder") from error
    for name, value in settings.items():
        if not isinstance(before, dict) or before.get(name) != value:
            raise InputError(f"{out} was begun with other {name.replace('_', ' ')}: use another folder")


def _checked(pairs: list[tuple[str, str]], collection: "Collection") -> list[tuple[str, str]]:
    known = set(collection.names)
    for name in (name for pair in pairs for name in pair):
        if name not in known:
            raise InputError(f"the pairs name image {name!r}, which is not in {collection.path}")
    if not pairs:
        raise InputError("the pairs file names no pairs")
    return pairs


def _options(matching: dict[str, Any], database: Path | None, collection: "Collection", exact: bool) -> "MapOptions":
    from featveil.core import WordSets
    from featveil.databases import load_database
    from featveil.geometry.sfm import Mapping3D
    from featveil.pipelines.map import MapOptions

    one = collection.read(collection.names[0])
    codebook = load_database(database) if isinstance(one.descriptors, WordSets) and database is not None else None
    network = find_network(matching["network"], [one.kind])
    chosen: Any = {**matching, "codebook": codebook, "network": network}
    return MapOptions(chosen, mapping=Mapping3D(refine_known=not exact))


def _drawn(
    built: "BuiltMap", beside: "tuple[str, SparseModel | None]", collection: "Collection", out: Path
) -> Path | None:
    """Draw the model, and the one `beside` it by name, from one view; None when it has no points."""
    from featveil.plotting.model_comparison import draw_models
    from featveil.plotting.pictures import write_picture

    if len(built.model.points) == 0:
        return None
    name = "private" if collection.private else "raw"
    models = {name: built.model}
    called, reference = beside
    if reference is not None:
        models = {called if called != name else "beside": reference, **models}
    write_picture(draw_models(models), out / PICTURE)
    return out / PICTURE


def _finish(built: "BuiltMap", collection: "Collection", picture: Path | None, out: Path, json: bool) -> None:
    model, images = built.model, len(collection.names)
    result = {
        "out": str(out),
        "images": images,
        "private": collection.private,
        "pairs": built.pairs,
        "verified_pairs": built.verified.pairs,
        "registered_images": len(model.views),
        "points": len(model.points),
        "track_length": model.mean_track_length,
        "reprojection_error": model.mean_error,
        "picture": None if picture is None else str(picture),
    }
    left_out = sorted(set(collection.names) - set(model.views))
    length, error = (
        (f"{model.mean_track_length:.2f}", f"{model.mean_error:.2f} px") if len(model.points) else ("-", "-")
    )
    lines = [
        f"features            {'private' if collection.private else 'raw'}, {collection.path}",
        f"verified pairs      {built.verified.pairs} of {built.pairs}",
        f"registered images   {len(model.views)} of {images}",
        f"sparse points       {number(len(model.points))}",
        f"mean track length   {length}",
        f"reprojection error  {error}",
        *(
            [f"not registered      {', '.join(left_out[:_NAMED])}{', ...' * (len(left_out) > _NAMED)}"]
            if left_out
            else []
        ),
        *([f"model in {out}" + (f", drawn in {picture}" if picture else "")] if model.views else []),
    ]
    show(result | {"not_registered": left_out}, json, "\n".join(lines))
    if not model.views:
        complain("warning", "no images could be put together: more features, or a weaker defense, give more matches")
        raise typer.Exit(1)
