"""Images, or raw or private features of them -> a sparse COLMAP model in a folder, and a picture of it.

Raw features and images are hidden first: every image is released once, into a file in the folder.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from featveil.core.errors import InputError
from featveil.core.files import make_folder, replacing
from featveil.core.options import argument, option
from featveil.pipelines.extract import extract_to_hloc
from featveil.pipelines.privatize import release
from featveil.pipelines.privatize_parts.outputs import PrivateFile, Work, names_to_skip
from featveil.pipelines.privatize_parts.releases import Released, Releases
from featveil.pipelines.sources import (
    FEATURES_OF_IMAGE,
    PRIVATE,
    RAW,
    KnownCameras,
    check_kind,
    extracted,
    find_network,
    find_sources,
    has_features,
    named_images,
)

if TYPE_CHECKING:
    from featveil.core import Defense
    from featveil.formats.collections import Collection
    from featveil.geometry.models import SparseModel
    from featveil.pipelines.map_parts.map_building import BuiltMap, MapOptions

StageReport = Callable[[str, int, int], None]  # what is done, how much of it, of how much

PICTURE = "model.png"

_SETTINGS = "settings.json"
_WRITTEN = (
    PRIVATE,
    RAW,
    "database.db",
    *(f"{part}.{end}" for part in ("images", "points3D") for end in ("bin", "txt")),
)
_OF_BOTH = ("database", "concealer")  # options of a defense that also say how private features are matched


@dataclass(frozen=True)
class MapRequest:
    """What to make a map of, how it is hidden and matched, and where the map goes."""

    images: Path = argument(
        help="Folder of images; or features: hloc .h5, COLMAP .db, private .h5, folder of .veil files."
    )
    out: Path = option(help="Folder for the model, what it was made of, and model.png.")
    defense: str | None = option(
        None, help="How descriptors are hidden, as for privatize; raw: not at all.", shown="lifting"
    )
    database_digest: str | None = option(
        None, flags=("--database-digest", "--codebook-digest"), help="Refuse a file with another digest."
    )
    apart: bool = option(False, help="Release only features that neither overlap nor resemble each other: few.")
    pairs: Path | None = option(None, help="A pairs file of hloc.", shown="every pair")
    cameras: Path | None = option(
        None,
        help="Known intrinsics, a line each: name MODEL width height parameters... (hloc's list of queries).",
        shown="EXIF data or a COLMAP .db, else a guess",
    )
    ratio: float | None = option(None, help="Ratio test of matches; not for word sets.")
    on_sphere: bool = option(False, help="Compare subspaces where they have norm 1.")
    rule: str = option("vocabulary", help="How words match: vocabulary or nearest.")
    beside: Path | None = option(None, help="Another model of these images, to draw beside this one.")
    kind: str | None = option(None, help="Descriptor kind.", shown="as for privatize")
    max_features: int | None = option(
        None, minimum=1, help="Features of each image, the strongest.", shown="2048, or all"
    )


@dataclass(frozen=True, eq=False)
class MapResult:
    """The map of the `features` of `images`, and the file it is drawn in; None where it has no points."""

    out: Path
    features: Path
    private: bool
    images: tuple[str, ...]
    built: "BuiltMap"
    picture: Path | None

    @property
    def not_registered(self) -> list[str]:
        """The images that are not in the map."""
        return sorted(set(self.images) - set(self.built.model.views))


def silent(stage: str, done: int, total: int) -> None:
    """The StageReport of who does not want any."""


def map_files(request: MapRequest, options: Any = None, report: StageReport = silent) -> MapResult:
    """Hide what is raw, by the defense that the request names with `options` (see `defense_options`); match; map.

    What was done stays in the folder and is not done again. Raises InputError for a folder that was begun with other
    settings, and for what cannot be hidden, matched or mapped.
    """
    from featveil.formats.pairs import read_pairs
    from featveil.geometry.colmap import pycolmap
    from featveil.geometry.models import read_model
    from featveil.pipelines.map_parts.map_building import build_map

    pycolmap()
    cameras = KnownCameras(request.cameras)
    reference = None if request.beside is None else read_model(request.beside)
    _check_matching(request)
    images, out = request.images, request.out
    if images.is_dir() and out.resolve().is_relative_to(images.resolve()):
        raise InputError(f"{out} lies in {images}, where its picture would be taken for an image: use another folder")
    listed = None if request.pairs is None else read_pairs(request.pairs)
    collection = _Preparation(request, options, report).features()
    pairs = None if listed is None else _checked(listed, collection)
    cameras.warn(collection.names)
    known = {name: camera for name in collection.names if (camera := cameras.find(name, images)) is not None}
    built = build_map(
        collection.names,
        collection.read,
        out,
        cameras=known,
        pairs=pairs,
        options=_map_options(request, options, collection, cameras.exact),
        report=lambda stage, done, total: report("mapping", done, total),
    )
    picture = _draw(built.model, request.beside, reference, "private" if collection.private else "raw", out)
    return MapResult(out, collection.path, collection.private, tuple(collection.names), built, picture)


@dataclass(frozen=True)
class _Preparation:
    """What a map is made of: private features as they are, a release of raw ones, or these themselves."""

    request: MapRequest
    options: Any
    report: StageReport

    def features(self) -> "Collection":
        """The features of the images, hidden; those that are made here go to a file in the folder, each image once.

        Nothing is written before images and defense are known to go together.
        """
        from featveil.formats.collections import open_collection

        request, stored = self.request, None
        if has_features(request.images):
            stored = open_collection(request.images, request.kind)
            stored.read(stored.names[0])  # raises when they are of another kind
        elif request.kind is not None:
            check_kind(request.kind)
        if stored is not None and stored.private:
            if request.defense is not None or self._hiding:
                raise InputError(f"{request.images} is private already: leave --defense and its options out")
            return self._as_it_is(stored)
        if request.defense == "raw":
            if self._hiding:
                raise InputError("raw features are not hidden: leave the options of defenses out")
            return self._extracted() if stored is None else self._as_it_is(stored)
        return self._released()

    @property
    def _hiding(self) -> bool:
        """Whether any option of a defense was given."""
        values = {item.name: getattr(self.options, item.name) for item in fields(self.options)}
        given = [name for name, value in values.items() if name not in _OF_BOTH and value not in (None, False)]
        return self.request.apart or self.request.database_digest is not None or bool(given)

    def _as_it_is(self, stored: "Collection") -> "Collection":
        if self.request.max_features is not None:
            raise InputError(f"the features in {stored.path} are used as they are: leave --max-features out")
        _begin(self.request)
        return stored

    def _released(self) -> "Collection":
        from featveil.formats.collections import open_collection
        from featveil.registry import make_defense

        request = self.request
        defense: Defense = make_defense(request.defense or "lifting", self.options, request.database_digest)
        _check_descriptors(defense)
        sources = find_sources([request.images], request.kind, request.max_features)
        releases = Releases(defense, Released(apart=request.apart), None)
        _begin(request)
        output = PrivateFile(sources, request.out / PRIVATE)
        self._check_gone(output.before - set(output.stored.values()))
        skipped = names_to_skip(output, defense, resume=True, overwrite=False)
        self._check_any(release(sources, output, releases, skipped, self._stage("privatizing")))
        return open_collection(request.out / PRIVATE, request.kind)

    def _extracted(self) -> "Collection":
        from featveil.formats import hloc
        from featveil.formats.collections import open_collection

        request, file = self.request, self.request.out / RAW
        named, kind = named_images([request.images]), request.kind or "sift"
        most = request.max_features or FEATURES_OF_IMAGE
        work = Work(lambda path: extracted(path, kind, most), len(named), self._stage("extracting"))
        _begin(request)
        self._check_gone(set(hloc.names(file) if file.exists() else ()) - set(named))
        extract_to_hloc(named, file, kind, work, overwrite=False)
        self._check_any(work)
        return open_collection(file, request.kind)

    def _stage(self, name: str) -> Callable[[int, int], None]:
        return lambda done, total: self.report(name, done, total)

    def _check_gone(self, names: set[str]) -> None:
        """Raise InputError when an image was mapped that is gone, perhaps because nobody should have it."""
        if names:
            there = f"{self.request.out} has image {min(names)!r}"
            raise InputError(f"{there}, which is not in {self.request.images} any more: use another folder")

    @staticmethod
    def _check_any(work: Work[Any]) -> None:
        if not work.written and not work.skipped:
            raise InputError(f"none of the {work.total} images could be used: see the lines above")


def _check_descriptors(defense: "Defense") -> None:
    """Raise InputError for a defense that names points of another map."""
    from featveil.defenses import Gate, Subset

    if isinstance(defense, Gate) and (defense.then is None or isinstance(defense.then, Subset)):
        raise InputError(
            "a gate sends numbers of points of a map that is there already, and no descriptors to make another one of:"
            " localize such queries in that map, or choose another defense"
        )


def _begin(request: MapRequest) -> None:
    """Make the folder, or raise InputError when it was begun with other settings: what is in it would not fit.

    Releases tell their own settings, and the database its cameras.
    """
    settings = {
        "images": str(request.images.resolve()),
        "defense": request.defense or "lifting",
        "apart": request.apart,
        "kind": request.kind,
        "max_features": request.max_features,
        "pairs": None if request.pairs is None else str(request.pairs.resolve()),
        "ratio": request.ratio,
        "on_sphere": request.on_sphere,
        "rule": request.rule,
    }
    out, path = request.out, request.out / _SETTINGS
    make_folder(out)
    if not path.exists():
        if strange := next((name for name in _WRITTEN if (out / name).exists()), None):
            raise InputError(f"{out} has a {strange} that was not made here: use another folder")
        with replacing(path) as temporary:
            temporary.write_text(json.dumps(settings, indent=1), "utf-8")
        return
    try:
        before = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"cannot read {path}: use another folder") from error
    for name, value in settings.items():
        if not isinstance(before, dict) or before.get(name) != value:
            raise InputError(f"{out} was begun with other {name.replace('_', ' ')}: use another folder")


def _check_matching(request: MapRequest) -> None:
    """Raise InputError for settings that no features can be matched with."""
    from featveil.matching import NearestMatcher
    from featveil.matching.word_sets import check_rule

    NearestMatcher(ratio=request.ratio)
    check_rule(request.rule)


def _checked(pairs: list[tuple[str, str]], collection: "Collection") -> list[tuple[str, str]]:
    known = set(collection.names)
    for name in (name for pair in pairs for name in pair):
        if name not in known:
            raise InputError(f"the pairs name image {name!r}, which is not in {collection.path}")
    if not pairs:
        raise InputError("the pairs file names no pairs")
    return pairs


def _map_options(request: MapRequest, options: Any, collection: "Collection", exact: bool) -> "MapOptions":
    from featveil.core import WordSets
    from featveil.databases import load_database
    from featveil.geometry.sfm import Mapping3D
    from featveil.pipelines.map_parts.map_building import MapOptions

    one = collection.read(collection.names[0])
    words = isinstance(one.descriptors, WordSets)
    matching: Any = {
        "ratio": request.ratio,
        "on_sphere": request.on_sphere,
        "rule": request.rule,
        "codebook": load_database(options.database) if words and options.database is not None else None,
        "network": find_network(options.concealer, [one.kind]),
    }
    return MapOptions(matching, mapping=Mapping3D(refine_known=not exact))


def _draw(
    model: "SparseModel", beside: Path | None, reference: "SparseModel | None", name: str, out: Path
) -> Path | None:
    """Draw the model, and the one `beside` it, from one view; None when it has no points."""
    from featveil.plotting.model_comparison import draw_models
    from featveil.plotting.pictures import write_picture

    if len(model.points) == 0:
        return None
    models = {name: model}
    if beside is not None and reference is not None:
        called = beside.resolve().name
        models = {called if called != name else "beside": reference, **models}
    write_picture(draw_models(models), out / PICTURE)
    return out / PICTURE
