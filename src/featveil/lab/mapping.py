"""Structure from motion with private features (Dusmanu et al. 2021, table 2; Pittaluga and Zhuang 2023, figure S1).

All images of a scene are sent under one scheme and matched with each other; matches are verified and mapped by COLMAP.
Where a scene has true poses, intrinsics stay as they are given, and the map is aligned with the truth.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

from featveil.audit.releases import Scheme
from featveil.core import InputError
from featveil.core.records import Parameter, Record
from featveil.core.resuming import Key, Plan, Report, resume, versions
from featveil.databases import Database
from featveil.datasets import MapScene
from featveil.geometry.models import SparseModel
from featveil.geometry.sfm import Mapping3D
from featveil.lab.matching import Settings
from featveil.lab.scene_releases import RAW, SceneReleases, hardened, lifted, quantised, subsets
from featveil.matching import MatchOptions
from featveil.metrics import align_poses, pose_errors
from featveil.pipelines.map_building import BuiltMap, MapOptions
from featveil.pipelines.map_building import build_map as build

TASK = "mapping"
METRIC = "registered images, points, track length, reprojection error"
UNIT = "count, count, images, px"

_KEY = ("dataset", "scheme")


def make_schemes(
    kind: str,
    dimensions: Sequence[int],
    codebook: Database,
    epsilon: float,
    subset_sizes: Sequence[int],
    pool: bool,
) -> list[Scheme]:
    """Raw; lifting to each of `dimensions`; hardened lifting where there is a `pool`; words of each subset size."""
    words = [quantised(codebook), *subsets(codebook, [epsilon], subset_sizes)] if subset_sizes else []
    return [RAW, *lifted(kind, dimensions), *(hardened() if pool else []), *words]


def run_resumable(
    scenes: Sequence[tuple[MapScene, SceneReleases]],
    schemes: Sequence[Scheme],
    settings: Settings,
    out: str | Path,
    report: Report = lambda done, total: None,
) -> list[Record]:
    """A record for each scene and scheme, in `out/records.jsonl`; what is there is not measured again.

    Each map stays in `out/maps/SCENE/SCHEME`, where a scheme that was stopped goes on. `report` is called with records
    (done, total). Raises InputError when the file has other settings.
    """
    out = Path(out)
    shared: dict[str, Parameter] = {"seed": settings.seed, **_shared(settings)}
    wanted: dict[Key, dict[str, Parameter]] = {
        (scene.name, scheme.name): scheme.parameters() for scene, _ in scenes for scheme in schemes
    }

    def measure(done: frozenset[Key]) -> Iterator[Record]:
        for scene, releases in scenes:
            for scheme in schemes:
                if (scene.name, scheme.name) not in done:
                    yield _record(scene, releases, scheme, settings, out / "maps" / scene.name / scheme.name)

    return resume(out / "records.jsonl", Plan(TASK, _KEY, shared, wanted), measure, report)


def _record(scene: MapScene, releases: SceneReleases, scheme: Scheme, settings: Settings, folder: Path) -> Record:
    names = sorted(scene.images)
    codebook = scheme.codebook
    options = MapOptions(
        MatchOptions() if codebook is None else MatchOptions(codebook=codebook),
        mapping=Mapping3D(refine_intrinsics=not scene.poses, seed=settings.seed),
    )
    found = build(names, lambda name: releases.sent(name, scheme), folder, cameras=scene.cameras, options=options)
    model = found.model
    parameters: dict[str, Parameter] = {"pairs": found.verified.pairs, "inlier_matches": found.verified.matches}
    parameters |= camera_errors(model, scene) | releases.epsilons(scheme, names)
    return Record(
        task=TASK,
        dataset=scene.name,
        scheme=scheme.name,
        metric=METRIC,
        value=four_numbers(found),
        unit=UNIT,
        count=len(names),
        seed=settings.seed,
        versions=versions("pycolmap"),
        parameters=parameters | scheme.parameters() | _shared(settings),
    )


def four_numbers(found: BuiltMap) -> tuple[float, float, float, float]:
    """Registered images, points, mean track length and mean reprojection error in pixels: what METRIC names."""
    model = found.model
    return len(model.views), len(model.points), round(model.mean_track_length, 4), round(model.mean_error, 4)


def camera_errors(model: SparseModel, scene: MapScene) -> dict[str, Parameter]:
    """Rotation (degrees) and centre (metres) errors of registered cameras after alignment; nothing without truth."""
    try:
        aligned = align_poses(model.poses, scene.poses)
    except InputError:  # too few cameras, or all on one line
        return {}
    errors = [pose_errors(aligned[name], scene.poses[name]) for name in sorted(aligned) if name in scene.poses]
    turned, moved = zip(*errors, strict=True)
    return {
        "rotation_errors": [round(value, 6) for value in turned],
        "centre_errors": [round(value, 6) for value in moved],
    }


def _shared(settings: Settings) -> dict[str, Parameter]:
    return {"kind": settings.kind, "max_features": settings.max_features}
