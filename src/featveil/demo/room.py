"""The map that the demo builds: a rendered room, mapped from raw and private features; a left-out view localized."""

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from featveil.core import Features, MissingExtraError, PrivateFeatures
from featveil.datasets import RenderedScene, render_scene
from featveil.defenses import Lifting, Subset, privatize
from featveil.demo.gated_room import GatedRoom, show_gate
from featveil.extractors import extract
from featveil.geometry.models import SparseModel
from featveil.geometry.sfm import Mapping3D
from featveil.metrics import align_poses, pose_errors
from featveil.pipelines.map_parts.localizer import Localizer
from featveil.pipelines.map_parts.map_building import MapOptions, build_map
from featveil.plotting.model_comparison import draw_models
from featveil.plotting.pictures import Picture

VIEWS, SIZE, FEATURES = 10, (480, 360), 800
QUERY = VIEWS // 2
SCHEMES = {"raw": None, "subspaces of dimension 2": Lifting("sub-hybrid", 2), "words, epsilon 10, k = 4": Subset(10, 4)}


@dataclass(frozen=True)
class MapRow:
    """The map from what one scheme sends, and the error of a query in the raw map: (degrees, metres) or None."""

    scheme: str
    registered: int
    images: int
    points: int
    track_length: float
    error: float
    query_errors: tuple[float, float] | None
    image_epsilon: float | None


@dataclass(frozen=True, eq=False)
class RoomMaps:
    """One row per scheme, raw first; pictures of all models, of a view that was mapped and of the query.

    `gate` is what a gate sends of the query with a portrait in it.
    """

    rows: Sequence[MapRow]
    models: Picture
    first: Picture
    query: Picture
    gate: GatedRoom


@dataclass(frozen=True, eq=False)
class MappedRoom:
    """A map from what one scheme sends, and how far off a private query is in the raw map: (degrees, metres) or None.

    `image_epsilon` is what the epsilon of a descriptor adds up to over the query; None where nothing is proved.
    """

    scheme: str
    model: SparseModel
    images: int
    query_errors: tuple[float, float] | None
    image_epsilon: float | None


def show_room() -> RoomMaps | None:
    """The maps of the room, and pictures of them; None without pycolmap."""
    try:
        rooms = map_room()
    except MissingExtraError:
        return None
    scene = render_scene(VIEWS, SIZE)
    views = list(scene.images.values())
    models = {room.scheme.partition(",")[0]: room.model for room in rooms}
    return RoomMaps([_row(room) for room in rooms], draw_models(models), views[0], views[QUERY], _gated(scene, rooms))


def _gated(scene: RenderedScene, rooms: list[MappedRoom]) -> GatedRoom:
    """The query with a portrait in it, which the raw map of the other views has never seen."""
    raw, query = _extracted(scene), sorted(scene.images)[QUERY]
    model = rooms[0].model
    return show_gate(model, raw, scene.images[query], lambda sent: _localized(scene, model, raw, query, sent))


def map_room(report: Callable[[int, int], None] = lambda done, total: None) -> list[MappedRoom]:
    """The room under each of SCHEMES, raw first. Raises MissingExtraError without pycolmap."""
    scene = render_scene(VIEWS, SIZE)
    raw = _extracted(scene)
    query = sorted(raw)[QUERY]
    rooms: list[MappedRoom] = []
    for scheme, defense in SCHEMES.items():
        sent: Mapping[str, Features | PrivateFeatures] = raw
        if defense is not None:
            sent = {name: privatize(features, defense) for name, features in raw.items()}
        model = _mapped(scene, {name: features for name, features in sent.items() if name != query})
        reference = rooms[0].model if rooms else model
        errors = _localized(scene, reference, raw, query, sent[query])
        rooms.append(MappedRoom(scheme, model, VIEWS - 1, errors, _image_epsilon(sent[query])))
        report(len(rooms), len(SCHEMES))
    return rooms


def _extracted(scene: RenderedScene) -> dict[str, Features]:
    return {name: extract(image, max_features=FEATURES) for name, image in scene.images.items()}


def _row(room: MappedRoom) -> MapRow:
    model = room.model
    sizes = len(model.views), room.images, len(model.points)
    return MapRow(room.scheme, *sizes, model.mean_track_length, model.mean_error, room.query_errors, room.image_epsilon)


def _mapped(scene: RenderedScene, sent: Mapping[str, Features | PrivateFeatures]) -> SparseModel:
    options = MapOptions(mapping=Mapping3D(refine_intrinsics=False))
    cameras = {name: scene.cameras[name] for name in sent}
    with tempfile.TemporaryDirectory() as folder:
        return build_map(list(sent), sent.__getitem__, Path(folder) / "map", cameras=cameras, options=options).model


def _localized(
    scene: RenderedScene,
    model: SparseModel,
    raw: dict[str, Features],
    query: str,
    sent: Features | PrivateFeatures,
) -> tuple[float, float] | None:
    """Errors of the query's pose in the frame of the room, to which the map is aligned."""
    located = Localizer(model, raw.__getitem__).locate(sent, scene.cameras[query], True, sorted(model.views))
    if located.pose is None or len(model.views) < 3:
        return None
    others = {name: pose for name, pose in scene.poses.items() if name != query}
    return pose_errors(align_poses({**model.poses, query: located.pose}, others)[query], scene.poses[query])


def _image_epsilon(sent: Features | PrivateFeatures) -> float | None:
    return sent.guarantee.compose(len(sent)).epsilon if isinstance(sent, PrivateFeatures) else None
