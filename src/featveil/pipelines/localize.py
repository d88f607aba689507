"""Files of private or raw queries and a map -> a file of camera poses."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from logging import getLogger
from pathlib import Path
from typing import TYPE_CHECKING, Any

from featveil.core.errors import InputError
from featveil.core.files import check_folder
from featveil.core.kinds import base_kind
from featveil.core.options import argument, option
from featveil.core.resuming import Report, silent
from featveil.pipelines.sources import KnownCameras, find_network, has_features, named_images

if TYPE_CHECKING:
    from featveil.core import Camera, Features, PrivateFeatures
    from featveil.formats.collections import Collection
    from featveil.geometry.absolute_pose import Localized
    from featveil.geometry.models import SparseModel
    from featveil.pipelines.map_parts.localizer import LocalizeOptions, Localizer

_FEW = 100  # map images that a query is matched with when nothing says which

logger = getLogger(__name__)


@dataclass(frozen=True)
class LocalizeRequest:
    """Which queries to place in which map, how they are matched, and where the poses go."""

    queries: tuple[Path, ...] = argument(
        metavar="QUERY...", help="Private or raw: .veil files, folders of them, .h5 files; or images."
    )
    model: Path = option(help="Folder of a COLMAP model, such as featveil map makes.")
    out: Path = option(help="Text file for the poses, as hloc writes them.")
    features: Path | None = option(
        None, help="Features of the map's images, raw or private; a gated query needs none.", shown="beside the model"
    )
    pairs: Path | None = option(
        None, help="Pairs file: one query and one map image per line. Not for gated queries.", shown="all, if few"
    )
    cameras: Path | None = option(
        None,
        help="Known intrinsics, a line each: name MODEL width height parameters... (hloc's list of queries).",
        shown="EXIF data or a COLMAP .db, else a guess",
    )
    codebook: Path | None = option(None, help="Codebook file of word sets.", shown="the built-in one")
    rule: str = option("vocabulary", help="How words match: vocabulary (same word) or nearest (mutual nearest words).")
    concealer: Path | None = option(
        None,
        help="Network file that private features were concealed by: raw ones that they meet are concealed too.",
        shown="the built-in one if it is that",
    )
    neighbours: bool = option(
        True,
        flags=("--neighbours/--no-neighbours",),
        help="Of the candidates of words, try only those that their neighbours support.",
    )
    ratio: float | None = option(None, help="Ratio test of matches; not for word sets.")
    on_sphere: bool = option(False, help="Compare subspaces where they have norm 1.")
    iterations: int | None = option(
        None, help="Most iterations of LO-RANSAC, up to 10,000,000.", shown="10,000, of word sets 1,000,000"
    )
    max_error: float = option(12.0, help="How far off an inlier may be, in pixels.")
    min_inliers: int = option(12, help="Fewest inliers of a pose.")
    kind: str | None = option(None, help="Descriptor kind of files that do not say it.", shown="the map's")
    max_features: int = option(2048, minimum=1, help="Strongest features to keep of each image.")


@dataclass(frozen=True, eq=False)
class LocalizeResult:
    """The pose of each query by name, or why there is none; `out` has the poses, `counts` their inliers."""

    out: Path
    counts: Path
    queries: dict[str, "Localized"]

    @property
    def localized(self) -> int:
        """How many queries have a pose."""
        return sum(query.pose is not None for query in self.queries.values())


def localize_files(request: LocalizeRequest, report: Report = silent) -> LocalizeResult:
    """Place the queries in the map and write their poses; what cannot be placed has a reason in the result.

    Queries that name points of the map need no features of its images. Raises InputError when queries and map cannot be
    compared, or nothing says which images of a large map to try.
    """
    from featveil.geometry.models import read_model
    from featveil.pipelines.map_parts.localizer import Localizer, names_points

    out, counts = request.out, request.out.with_name(f"{request.out.stem}_inliers.txt")
    inputs = (request.pairs, request.cameras, *_model_texts(request.model))
    _check_outputs((out, counts), [path for path in inputs if path])
    cameras = KnownCameras(request.cameras)
    model = read_model(request.model)
    if len(model.points) == 0:
        raise InputError(
            f"the model in {request.model} has no points, so nothing can be localized in it: triangulate it again"
        )
    stored = _Stored(request, model)
    queries = _queries(request, stored)
    cameras.warn(query.name for query in queries)
    localizer = Localizer(model, stored.read, _options(request, queries, stored))
    located: dict[str, Localized] = {}
    tried: dict[str, list[str]] | None = None
    for query in queries:
        features = query.read()
        gated = names_points(features)
        if tried is None and not gated:
            tried = stored.tried([one.name for one in queries])
        images = None if gated or tried is None else tried[query.name]
        located[query.name] = query.locate(features, localizer, cameras, images)
        report(len(located), len(queries))
    if tried is None and (request.pairs is not None or request.features is not None):
        logger.warning("gated queries name points of the map: pairs and features of its images were not used")
    _write(out, counts, located)
    return LocalizeResult(out, counts, located)


class _Stored:
    """The features of the map's images; they are opened when a query is matched with them, and not before."""

    def __init__(self, request: LocalizeRequest, model: "SparseModel") -> None:
        self._request, self._model = request, model

    @cached_property
    def collection(self) -> "Collection":
        """The file that they are in."""
        from featveil.pipelines.map_parts.localizer import beside

        return _open(self._request.features or beside(self._request.model), self._request.kind)

    @cached_property
    def kind(self) -> str:
        """That of their descriptors, and of queries that do not say theirs."""
        return self._request.kind or base_kind(self.read(self.collection.names[0]).kind)

    def read(self, name: str) -> "Features | PrivateFeatures":
        """The features of an image."""
        return self.collection.read(name)

    def tried(self, queries: list[str]) -> dict[str, list[str]]:
        """The images of the map that each of `queries` is matched with."""
        return _images(queries, self._model, self.collection, self._request.pairs)


@dataclass(frozen=True)
class _Query:
    """A query by name: an image file, or an entry of a collection of features."""

    name: str
    path: Path
    collection: "Collection | None"
    kind: str  # to be extracted
    max_features: int

    def read(self) -> "Features | PrivateFeatures":
        """Its features; those of an image are of the kind of the map."""
        from featveil.extractors import extract

        if self.collection is not None:
            return self.collection.read(self.name)
        return extract(self.path, self.kind, self.max_features)

    def locate(
        self,
        features: "Features | PrivateFeatures",
        localizer: "Localizer",
        cameras: KnownCameras,
        images: list[str] | None,
    ) -> "Localized":
        """Its pose, or why there is none; `images` of the map are None where it names points of the map itself."""
        from featveil.geometry.absolute_pose import Localized

        if images is not None and not images:
            return Localized(None, 0, 0, "no image of the map is paired with it")
        if len(features) == 0:
            return Localized(None, 0, 0, "it has no features")
        camera, known = self._camera(cameras, features)
        try:
            return localizer.locate(features, camera, known, images)
        except InputError as error:
            raise InputError(f"query {self.name!r}: {error}") from error

    def _camera(self, cameras: KnownCameras, features: "Features | PrivateFeatures") -> "tuple[Camera, bool]":
        from featveil.geometry.map_images import check_size, guess_camera

        camera = cameras.find(self.name, self.path)
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


def _open(path: Path, kind: str | None) -> "Collection":
    from featveil.formats.collections import open_collection

    return open_collection(path, kind)


def _queries(request: LocalizeRequest, stored: _Stored) -> list[_Query]:
    from featveil.formats.lists import check_name

    queries: dict[str, _Query] = {}
    for path in request.queries:
        for query in _queries_at(path, request, stored):
            check_name(query.name)
            if queries.setdefault(query.name, query) is not query:
                raise InputError(f"{queries[query.name].path} and {path} both hold {query.name!r}: localize them apart")
    return list(queries.values())


def _queries_at(path: Path, request: LocalizeRequest, stored: _Stored) -> Iterator[_Query]:
    if has_features(path):
        collection = _open(path, request.kind)
        if not _gated(collection):
            collection = _open(path, stored.kind)
        for name in collection.names:
            yield _Query(name, path, collection, request.kind or "", request.max_features)
    else:
        for name, file in named_images([path]).items():
            yield _Query(name, file, None, stored.kind, request.max_features)


def _gated(collection: "Collection") -> bool:
    """Whether its first features name points of a map."""
    from featveil.pipelines.map_parts.localizer import names_points

    return collection.private and names_points(collection.read(collection.names[0]))


def _images(queries: list[str], model: "SparseModel", stored: "Collection", pairs: Path | None) -> dict[str, list[str]]:
    """The images of the map that each query is matched with."""
    from featveil.formats.pairs import read_pairs
    from featveil.pipelines.map_parts.localizer import usable_images

    usable = usable_images(model, stored)
    names = set(queries)
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
        if image in model.views:
            chosen[query].append(image)
        else:
            missing += 1
    if missing:
        logger.warning(f"{missing} pairs name images that the model has not registered: left out")
    return chosen


def _options(request: LocalizeRequest, queries: list[_Query], stored: _Stored) -> "LocalizeOptions":
    """How to match and search; RANSAC stops early where most matches are right, few candidates of words are."""
    from featveil.databases import load_database
    from featveil.geometry.absolute_pose import PoseSearch
    from featveil.pipelines.map_parts.localizer import LocalizeOptions, drawn_at_random

    sides = {id(query.collection): query.collection for query in queries if query.collection is not None}
    if any(query.collection is None for query in queries) or not all(map(_gated, sides.values())):
        sides[id(stored.collection)] = stored.collection
    samples = [side.read(side.names[0]) for side in sides.values()]
    iterations = request.iterations
    if iterations is None:
        iterations = 1_000_000 if any(map(drawn_at_random, samples)) else 10_000
    search = PoseSearch(iterations, request.max_error, request.min_inliers)
    rule: Any = request.rule
    return LocalizeOptions(
        {
            "codebook": None if request.codebook is None else load_database(request.codebook),
            "rule": rule,
            "ratio": request.ratio,
            "on_sphere": request.on_sphere,
            "network": find_network(request.concealer, [sample.kind for sample in samples]),
        },
        search,
        request.neighbours,
    )


def _write(out: Path, counts: Path, located: "dict[str, Localized]") -> None:
    from featveil.formats.lists import write_entries
    from featveil.formats.poses import write_poses

    write_poses(out, {name: one.pose for name, one in located.items() if one.pose is not None})
    entries = ((name, int(one.pose is not None), one.inliers, one.correspondences) for name, one in located.items())
    write_entries(counts, entries)
