"""featveil localize: private or raw queries and a COLMAP model with features of its images -> camera poses."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from featveil.cli.cameras import CamerasFile, KnownCameras
from featveil.cli.concealing import ConcealedBy, find_network
from featveil.cli.console import Json, complain, progress, show, table
from featveil.cli.extract import MaxFeatures
from featveil.cli.map_features import PRIVATE, RAW, has_features
from featveil.core.errors import InputError
from featveil.core.files import check_folder
from featveil.core.kinds import base_kind

if TYPE_CHECKING:
    from featveil.core import Camera, Features, PrivateFeatures
    from featveil.formats.collections import Collection
    from featveil.geometry.absolute_pose import Localized
    from featveil.geometry.models import SparseModel
    from featveil.pipelines.localize import Localizer

_FEW = 100  # map images that a query is matched with when nothing says which


def localize(
    queries: Annotated[
        list[Path],
        typer.Argument(metavar="QUERY...", help="Private or raw: .veil files, folders of them, .h5 files; or images."),
    ],
    model: Annotated[Path, typer.Option(help="Folder of a COLMAP model, such as featveil map makes.")],
    out: Annotated[Path, typer.Option(help="Text file for the poses, as hloc writes them.")],
    features: Annotated[
        Path | None,
        typer.Option(help="Features of the map's images, raw or private.", show_default="those beside the model"),
    ] = None,
    pairs: Annotated[
        Path | None,
        typer.Option(help="Query and map image a line, as retrieval gives them.", show_default="all, of a small map"),
    ] = None,
    cameras: CamerasFile = None,
    codebook: Annotated[
        Path | None, typer.Option(help="Codebook file of word sets.", show_default="the built-in one")
    ] = None,
    rule: Annotated[
        str, typer.Option(help="How words match: vocabulary (same word) or nearest (mutual nearest words).")
    ] = "vocabulary",
    concealer: ConcealedBy = None,
    neighbours: Annotated[
        bool, typer.Option(help="Of the candidates of words, try only those that their neighbours support.")
    ] = True,
    ratio: Annotated[float | None, typer.Option(help="Ratio test of matches; not for word sets.")] = None,
    on_sphere: Annotated[bool, typer.Option("--on-sphere", help="Compare subspaces where they have norm 1.")] = False,
    iterations: Annotated[
        int | None,
        typer.Option(
            help="Most iterations of LO-RANSAC, up to 10,000,000.", show_default="10,000, of word sets 1,000,000"
        ),
    ] = None,
    max_error: Annotated[float, typer.Option(help="How far off an inlier may be, in pixels.")] = 12.0,
    min_inliers: Annotated[int, typer.Option(help="Fewest inliers of a pose.")] = 12,
    kind: Annotated[
        str | None, typer.Option(help="Descriptor kind of files that do not say it.", show_default="the map's")
    ] = None,
    max_features: MaxFeatures = 2048,
    json: Json = False,
) -> None:
    """Find where private queries were taken, in a map of raw or private features. Needs the extra colmap.

    OUT gets a line for each query that was localized; NAME_inliers.txt beside it one for every query: name, 1 or 0,
    inliers, matches with points of the map. Known intrinsics stay; without any the focal length is estimated along.
    A query that cannot be localized is reported with the reason, and is no error.

    Example: featveil localize query.veil --model map/ --features features.h5 --out poses.txt
    """
    from featveil.geometry.absolute_pose import PoseSearch
    from featveil.geometry.models import read_model
    from featveil.pipelines.localize import LocalizeOptions, Localizer

    counts = out.with_name(f"{out.stem}_inliers.txt")
    _check_outputs((out, counts), [path for path in (pairs, cameras, *_model_texts(model)) if path])
    given = KnownCameras(cameras)
    sparse = read_model(model)
    if len(sparse.points) == 0:
        raise InputError(f"the model in {model} has no points, so nothing can be localized in it: triangulate it again")
    stored = _map_features(model, features, kind)
    asked = _queries(queries, stored, kind, max_features)
    given.warn(query.name for query in asked)
    chosen = _images(asked, sparse, stored, pairs)
    most = _iterations(asked, stored) if iterations is None else iterations
    search = PoseSearch(most, max_error, min_inliers)
    network = find_network(concealer, _kinds(asked, stored))
    matching = _matching(codebook, rule, ratio, on_sphere) | {"network": network}
    options = LocalizeOptions(matching, search, neighbours)
    localizer = Localizer(sparse, stored.read, options)
    found: dict[str, Localized] = {}
    with progress("localizing") as report:
        for query in asked:
            found[query.name] = query.locate(localizer, given, chosen[query.name])
            report(len(found), len(asked))
    _write(out, counts, found)
    _finish(out, found, json)


@dataclass(frozen=True)
class _Query:
    """A query by name: an image file, or an entry of a collection of features."""

    name: str
    path: Path
    collection: "Collection | None"
    kind: str
    max_features: int

    def read(self) -> "Features | PrivateFeatures":
        """Its features; those of an image are of the kind of the map."""
        from featveil.extractors import extract as extract_features

        if self.collection is not None:
            return self.collection.read(self.name)
        return extract_features(self.path, self.kind, self.max_features)

    def locate(self, localizer: "Localizer", given: KnownCameras, images: list[str]) -> "Localized":
        """Its pose, or why there is none."""
        from featveil.geometry.absolute_pose import Localized

        features = self.read()
        if not images:
            return Localized(None, 0, 0, "no image of the map is paired with it")
        if len(features) == 0:
            return Localized(None, 0, 0, "it has no features")
        camera, known = self._camera(given, features)
        return localizer.locate(features, camera, known, images)

    def _camera(self, given: KnownCameras, features: "Features | PrivateFeatures") -> "tuple[Camera, bool]":
        from featveil.geometry.map_images import check_size, guess_camera

        camera = given.find(self.name, self.path)
        if camera is None and features.image_size is None:
            raise InputError(f"neither size nor camera of {self.name!r} is known: name its intrinsics with --cameras")
        if camera is None:
            return guess_camera(features.image_size or (0, 0)), False
        check_size(camera, features.image_size, self.name)
        return camera, True


def _check_outputs(outputs: tuple[Path, ...], inputs: list[Path]) -> None:
    """Raise InputError, before any work, when an output cannot be written or would replace an input."""
    given = {path.resolve() for path in inputs}
    for path in outputs:
        check_folder(path.parent)
        if path.suffix.lower() != ".txt" or path.is_dir():
            raise InputError(f"poses are one text file: name a .txt file instead of {path}")
        if path.resolve() in given:
            raise InputError(f"{path} is an input: choose another output")


def _model_texts(model: Path) -> list[Path]:
    return [model / f"{name}.txt" for name in ("cameras", "frames", "images", "points3D", "rigs")]


def _map_features(model: Path, features: Path | None, kind: str | None) -> "Collection":
    from featveil.formats.collections import open_collection

    if features is not None:
        return open_collection(features, kind)
    beside = [model / name for name in (PRIVATE, RAW) if (model / name).is_file()]
    if not beside:
        raise InputError(f"{model} has no features beside it: name those that it was made of with --features")
    return open_collection(beside[0], kind)


def _queries(paths: list[Path], stored: "Collection", kind: str | None, max_features: int) -> list[_Query]:
    from featveil.formats.collections import open_collection
    from featveil.formats.lists import check_name

    found: dict[str, _Query] = {}
    same_kind = kind or base_kind(stored.read(stored.names[0]).kind)
    for path in paths:
        if has_features(path):
            collection = open_collection(path, same_kind)
            more = [_Query(name, path, collection, same_kind, max_features) for name in collection.names]
        else:
            from featveil.cli.extract import named_images

            named = named_images([path]).items()
            more = [_Query(name, file, None, same_kind, max_features) for name, file in named]
        for query in more:
            check_name(query.name)
            if found.setdefault(query.name, query) is not query:
                raise InputError(f"{found[query.name].path} and {path} both hold {query.name!r}: localize them apart")
    return list(found.values())


def _images(
    asked: list[_Query], sparse: "SparseModel", stored: "Collection", pairs: Path | None
) -> dict[str, list[str]]:
    """The images of the map that each query is matched with."""
    from featveil.formats.pairs import read_pairs

    usable = [name for name in sparse.views if name in set(stored.names)]
    if not usable:
        raise InputError(f"none of the {len(sparse.views)} images of the model is in {stored.path}: names must agree")
    names = {query.name for query in asked}
    if pairs is None:
        if len(usable) > _FEW:
            raise InputError(f"the map has {len(usable)} images: say with --pairs which ones a query may show")
        return {name: [image for image in usable if image != name] for name in names}
    chosen: dict[str, list[str]] = {name: [] for name in names}
    missing = 0
    for one, two in read_pairs(pairs):
        query, image = (one, two) if one in names else (two, one)
        if query not in names:
            continue
        if image not in stored.names:
            raise InputError(f"{pairs} names image {image!r}, which is not in {stored.path}")
        if image in sparse.views:
            chosen[query].append(image)
        else:
            missing += 1
    if missing:
        complain("warning", f"{missing} pairs name images that the model has not registered: left out")
    return chosen


def _kinds(asked: list[_Query], stored: "Collection") -> list[str]:
    """Of descriptors, on both sides."""
    sides = {id(side): side for side in (stored, *(query.collection for query in asked)) if side is not None}
    return [side.read(side.names[0]).kind for side in sides.values()]


def _iterations(asked: list[_Query], stored: "Collection") -> int:
    """RANSAC stops early where most matches are right; few candidates of words, on either side, are."""
    from featveil.pipelines.map import has_words

    sides = {id(side): side for side in (stored, *(query.collection for query in asked)) if side is not None}
    return 1_000_000 if any(has_words(side.read(side.names[0])) for side in sides.values()) else 10_000


def _matching(codebook: Path | None, rule: str, ratio: float | None, on_sphere: bool) -> Any:
    from featveil.databases import load_database

    book = None if codebook is None else load_database(codebook)
    return {"codebook": book, "rule": rule, "ratio": ratio, "on_sphere": on_sphere}


def _write(out: Path, counts: Path, found: "dict[str, Localized]") -> None:
    from featveil.formats.lists import write_entries
    from featveil.formats.poses import write_poses

    write_poses(out, {name: one.pose for name, one in found.items() if one.pose is not None})
    entries = ((name, int(one.pose is not None), one.inliers, one.correspondences) for name, one in found.items())
    write_entries(counts, entries)


def _finish(out: Path, found: "dict[str, Localized]", json: bool) -> None:
    localized = sum(one.pose is not None for one in found.values())
    result = {
        "out": str(out),
        "localized": localized,
        "queries": {
            name: {
                "localized": one.pose is not None,
                "inliers": one.inliers,
                "inliers_by_chance": one.by_chance,
                "matches": one.correspondences,
                "reason": one.reason or None,
            }
            for name, one in found.items()
        },
    }
    rows: list[tuple[object, ...]] = [
        (name, "yes" if one.pose else "no", one.inliers, one.correspondences) for name, one in found.items()
    ]
    show(result, json, table("query", "localized", "inliers", "matches", rows=rows))
    for name, one in found.items():
        if one.pose is None:
            complain("not localized", f"{name}: {one.reason}")
