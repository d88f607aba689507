"""featveil demo: two images -> a page that shows raw and private matches, and what left the device."""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from featveil.cli.console import Json, progress, show
from featveil.cli.demo_results import demo_facts, demo_text
from featveil.core.errors import FeatveilError, InputError
from featveil.core.files import check_folder, make_folder, replacing
from featveil.pipelines.match import SAMPLES_FOR_WORDS, shared_part
from featveil.pipelines.sources import extracted

if TYPE_CHECKING:
    from featveil.core import Features, PrivateFeatures
    from featveil.demo.demo_page import Count, Row, Run, Words
    from featveil.demo.page_concealed import ConcealedPart
    from featveil.demo.page_faces import FacesPart
    from featveil.demo.page_map import MapPart
    from featveil.demo.page_views import ViewRow
    from featveil.pipelines.scoring import Outcome
    from featveil.plotting.pictures import Panel, Picture

_DIMENSIONS = (2, 4, 8)
_SHOWN = 4
_EPSILONS = (12.0, 10.0, 8.0)
_EPSILON_SHOWN = 10.0
_SUBSET_SIZE = 4
_FEATURES = 1200
_KIND = "sift"
# When both sides drew the same sub-database (1 time in 16) the reference is released again; the page says so.
_MOST_REDRAWS = 5


def demo(
    out: Annotated[Path, typer.Option(help="Folder to write index.html and query.veil to.")] = Path("featveil-demo"),
    images: Annotated[
        tuple[Path, Path] | None, typer.Option(help="Query and reference image.", show_default="bundled ones")
    ] = None,
    json: Json = False,
) -> None:
    """Match two images raw and privately, attack what was sent, and explain it all on one page.

    The first run takes about half a minute longer, because it compiles the kernels.

    Example: featveil demo --images query.jpg reference.jpg
    """
    from featveil.demo.demo_page import render
    from featveil.formats.veil import encode

    _check_folder(out)
    if images is None:
        from featveil.datasets.board import views

        images = views()
    with progress("matching (the first run compiles)") as report:
        run, private = _run(images, report)
    page = render(run)
    _write(out, {"query.veil": encode(private), "index.html": page.encode("utf-8")})
    show(demo_facts(run, out), json, demo_text(run, out))


def _check_folder(out: Path) -> None:
    if out.exists() and not out.is_dir():
        raise InputError(f"{out} is a file: name a folder")
    check_folder(out.parent)


@dataclass(frozen=True)
class _Side:
    """Features of one image, and the panel to draw them on."""

    features: "Features | PrivateFeatures"
    panel: "Panel"


@dataclass(frozen=True)
class _Outcome:
    count: "Count"
    picture: "Picture"
    shared: bool


def _run(images: tuple[Path, Path], report: Callable[[int, int], None]) -> "tuple[Run, PrivateFeatures]":
    """Everything the page shows, and the release it shows."""
    from featveil.attacks import ATTACKS
    from featveil.demo.board import attack_release
    from featveil.demo.demo_page import LeakRow, Run
    from featveil.extractors import read_image
    from featveil.formats.veil import encode
    from featveil.plotting.pictures import draw_keypoints, panel

    started = time.monotonic()
    pictures = [read_image(path) for path in images]
    query, reference = (extracted(path, _KIND, _FEATURES) for path in images)
    raw_sides = [
        _Side(features, panel(features.keypoints, picture, features.image_size))
        for features, picture in zip((query, reference), pictures, strict=True)
    ]
    raw = _compare(raw_sides[0], raw_sides[1])
    steps = 3 + len(_DIMENSIONS)
    report(1, steps)
    rows, shown = [], {}
    for done, dimension in enumerate(_DIMENSIONS):
        row, shown[dimension] = _lifted(query, raw_sides[1], reference, dimension)
        rows.append(row)
        report(2 + done, steps)
    private, one_picture, both_picture = shown[_SHOWN]
    found = attack_release(private, query)
    mapped, faces = _map(), _faces()
    report(3 + len(rows), steps)
    run = Run(
        query=pictures[0],
        reference=pictures[1],
        positions=draw_keypoints(_hidden(private).panel),
        raw_matches=raw.picture,
        one_side_matches=one_picture,
        both_sides_matches=both_picture,
        raw=raw.count,
        rows=rows,
        shown=_SHOWN,
        words=_words(query, raw_sides[1]),
        concealed=_concealed(query, reference, raw_sides[1], pictures[0], raw.count),
        attacks=[LeakRow(name, ATTACKS[name].summary, outcome.leakage) for name, outcome in found.items()],
        views=_views(private, query, pictures[0], found),
        map=mapped,
        faces=faces,
        release=private,
        file_bytes=len(encode(private)),
        raw_bytes=len(encode(query)),
        seconds=time.monotonic() - started,
    )
    return run, private


def _lifted(
    query: "Features", seen: _Side, reference: "Features", dimension: int
) -> "tuple[Row, tuple[PrivateFeatures, Picture, Picture]]":
    """Both kinds of private matching at one dimension: counts, the release of the query and two pictures."""
    from featveil.defenses import Lifting, privatize
    from featveil.demo.demo_page import Row

    lifting = Lifting("sub-hybrid", dimension)
    private = privatize(query, lifting)
    one = _compare(_hidden(private), seen)
    redrawn = 0
    both = _compare(_hidden(private), _hidden(privatize(reference, lifting)))
    while both.shared and redrawn < _MOST_REDRAWS:
        redrawn += 1
        both = _compare(_hidden(private), _hidden(privatize(reference, lifting)))
    return Row(dimension, one.count, both.count, redrawn), (private, one.picture, both.picture)


def _words(query: "Features", seen: _Side) -> "Words":
    """The subset mechanism at every epsilon, against the raw reference."""
    from featveil.databases import builtin
    from featveil.defenses import Subset, privatize
    from featveil.demo.demo_page import WordRow, Words
    from featveil.formats.veil import encode

    rows, pictures, sizes = {}, {}, {}
    mechanisms = [Subset(epsilon, _SUBSET_SIZE).for_kind(query.kind) for epsilon in _EPSILONS]
    for mechanism in mechanisms:
        private = privatize(query, mechanism)
        outcome = _compare(_hidden(private), seen, words=True)
        total = private.guarantee.compose(len(private)).epsilon or 0.0
        guess = float(mechanism.coin.probability) / _SUBSET_SIZE
        epsilon = mechanism.epsilon
        rows[epsilon] = WordRow(epsilon, total, guess, outcome.count)
        pictures[epsilon], sizes[epsilon] = outcome.picture, len(encode(private))
    shown = _EPSILON_SHOWN
    size = len(builtin(query.kind))
    return Words(_SUBSET_SIZE, size, list(rows.values()), rows[shown], pictures[shown], sizes[shown])


def _concealed(
    query: "Features", reference: "Features", seen: _Side, image: "Picture", raw: "Count"
) -> "ConcealedPart":
    """The built-in concealer: matches with a reference that is concealed too, and what undoing it gives."""
    from featveil.defenses import Concealer, builtin_concealer, privatize
    from featveil.demo.board import attacker_view, undo_concealer
    from featveil.demo.demo_page import share_of
    from featveil.demo.page_concealed import ConcealedPart
    from featveil.demo.page_views import ViewRow

    private = privatize(query, Concealer())
    concealed = builtin_concealer(query.kind).conceal(reference)
    outcome = _compare(_hidden(private), replace(seen, features=concealed))
    undone = undo_concealer(private, query)
    view: ViewRow | str
    try:
        view = ViewRow(**vars(attacker_view("unconceal", private, undone.guess, query, image)))
    except FeatveilError as error:
        view = str(error)
    count = outcome.count
    share = share_of(count.inliers, raw.inliers)
    return ConcealedPart(count.matches, count.inliers, share, outcome.picture, undone.leakage, view)


def _views(
    private: "PrivateFeatures", query: "Features", image: "Picture", found: "dict[str, Outcome]"
) -> "list[ViewRow] | str":
    """The photograph and what can be painted of it, or why nothing can."""
    from featveil.demo.board import attacker_views
    from featveil.demo.page_views import ViewRow

    try:
        return [ViewRow(**vars(view)) for view in attacker_views(private, query, image, found)]
    except FeatveilError as error:
        return str(error)


def _map() -> "MapPart | None":
    """The rendered room mapped from raw and private features; None without pycolmap."""
    from featveil.core import MissingExtraError
    from featveil.datasets import render_scene
    from featveil.demo.page_map import MapPart, MapRow
    from featveil.demo.room import QUERY, SIZE, VIEWS, map_room
    from featveil.plotting.model_comparison import draw_models

    try:
        rooms = map_room()
    except MissingExtraError:
        return None
    rows = [
        MapRow(
            room.scheme,
            len(room.model.views),
            room.images,
            len(room.model.points),
            room.model.mean_track_length,
            room.model.mean_error,
            room.query_errors,
            room.image_epsilon,
        )
        for room in rooms
    ]
    views = list(render_scene(VIEWS, SIZE).images.values())
    return MapPart(
        rows, draw_models({room.scheme.partition(",")[0]: room.model for room in rooms}), views[0], views[QUERY]
    )


def _faces() -> "FacesPart":
    """A private template of a face: who passes for her, and what attackers say of her."""
    from featveil.demo.astronaut import DIMENSION, LIFTS, show_faces
    from featveil.demo.page_faces import FaceRow, FacesPart

    found = show_faces()
    return FacesPart(
        [FaceRow(**vars(one)) for one in found.copies],
        DIMENSION,
        found.raw_stranger,
        found.private_stranger,
        found.strangers,
        [(one.strategy, one.right) for one in found.guesses],
        LIFTS,
    )


def _hidden(private: "PrivateFeatures") -> _Side:
    from featveil.plotting.pictures import panel

    return _Side(private, panel(private.keypoints, None, private.image_size))


def _compare(a: _Side, b: _Side, words: bool = False) -> _Outcome:
    from featveil.demo.demo_page import Count
    from featveil.geometry import agreeing, agreeing_candidates
    from featveil.matching import match
    from featveil.plotting.pictures import draw_matches

    found = match(a.features, b.features)
    pairs = found.indices
    places = a.panel.xy[pairs[:, 0]], b.panel.xy[pairs[:, 1]]
    agree = agreeing_candidates(*places, SAMPLES_FOR_WORDS) if words else agreeing(*places)
    picture = draw_matches(a.panel, b.panel, pairs, agree)
    return _Outcome(Count(len(pairs), int(agree.sum())), picture, shared_part(found, agree))


def _write(out: Path, files: dict[str, bytes]) -> None:
    """All is made before the first file is written, and the page comes last."""
    make_folder(out)
    for name, content in files.items():
        with replacing(out / name) as temporary:
            temporary.write_bytes(content)
