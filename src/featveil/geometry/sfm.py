"""Verified matches -> a sparse model: incremental mapping, triangulation at known poses."""

import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from featveil.core import FeatveilError, FormatError, InputError, Pose
from featveil.core.files import check_folder
from featveil.geometry.colmap import pycolmap, random_seed, rigid
from featveil.geometry.match_database import opened
from featveil.geometry.models import SparseModel, empty_model, to_model

Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Mapping3D:
    """How COLMAP maps: fewest images of a model, whether intrinsics may change, known ones too, and a seed.

    With a seed one thread is used, so that a study can be repeated. Points that only two images see are kept when two
    images are enough for a model.
    """

    min_images: int = 3
    refine_intrinsics: bool = True
    refine_known: bool = True
    seed: int | None = None

    def __post_init__(self) -> None:
        if self.min_images < 2:
            raise InputError("a model has at least 2 images")

    def options(self) -> Any:
        """As pycolmap takes them. Colours are left out: a coloured cloud shows the scene."""
        refine = self.refine_intrinsics
        return pycolmap().IncrementalPipelineOptions(
            min_model_size=self.min_images,
            extract_colors=False,
            ba_refine_focal_length=refine,
            ba_refine_extra_params=refine,
            random_seed=random_seed(self.seed),
            num_threads=-1 if self.seed is None else 1,
            mapper={"abs_pose_refine_focal_length": refine, "abs_pose_refine_extra_params": refine},
            triangulation={"ignore_two_view_tracks": self.min_images > 2},
        )


def build_map(
    database: str | Path, out: str | Path, how: Mapping3D = Mapping3D(), report: Progress = lambda done, total: None
) -> SparseModel:
    """The largest model that COLMAP makes of the verified matches in `database`, written to the folder `out`.

    Empty, and nothing written, when too few images could be put together. `report` gets the images (done, total) that
    the model at hand has. Raises InputError and FormatError.
    """
    options = how.options()
    with opened(database) as stored:
        total = int(stored.num_images())
        if not how.refine_known:
            cameras = stored.read_all_cameras()
            options.constant_cameras = {camera.camera_id for camera in cameras if camera.has_prior_focal_length}
    done = 0

    def begin() -> None:
        nonlocal done
        done = 1
        advance()

    def advance() -> None:
        nonlocal done
        done = min(done + 1, total)
        report(done, total)

    with _workplace(out) as (images, models), _usable(database):
        reconstructions = pycolmap().incremental_mapping(
            database,
            images,
            models,
            options=options,
            initial_image_pair_callback=begin,
            next_image_callback=advance,
        )
    # COLMAP keeps the first model whatever its size.
    large = [model for model in reconstructions.values() if model.num_reg_images() >= how.min_images]
    if not large:
        return empty_model()
    best = max(large, key=lambda model: (model.num_reg_images(), model.num_points3D()))
    write_model(best, out)
    return to_model(best)


def triangulate(
    database: str | Path, poses: Mapping[str, Pose], out: str | Path, how: Mapping3D = Mapping3D()
) -> SparseModel:
    """The points that the verified matches in `database` give for cameras at known `poses`; written to `out`.

    Images of the database without a pose are left out. Raises InputError for fewer than two poses, when an image with
    a pose is not there, or is one of several that a rig took at once.
    """
    if len(poses) < 2:
        raise InputError(f"triangulation needs the poses of at least two images, got {len(poses)}")
    module = pycolmap()
    known = module.Reconstruction()
    with opened(database) as stored:
        if missing := sorted(poses.keys() - {image.name for image in stored.read_all_images()}):
            raise InputError(f"image {missing[0]!r} has a pose but is not in the database")
        options = module.DatabaseCacheOptions(image_names=set(poses), load_all_images=True)
        known.load(module.DatabaseCache.create(stored, options))
    for image in list(known.images.values()):
        if known.frame(image.frame_id).num_data_ids() > 1:
            raise InputError(f"image {image.name!r} is one of several of a rig, which triangulation does not take")
        known.frame(image.frame_id).set_cam_from_world(image.camera_id, rigid(poses[image.name]))
        known.register_frame(image.frame_id)
    with _workplace(out) as (folder, models), _usable(database):
        reconstruction = module.triangulate_points(known, database, folder, models, options=how.options())
    write_model(reconstruction, out)
    return to_model(reconstruction)


def write_model(reconstruction: Any, out: str | Path) -> None:
    """Write a pycolmap reconstruction to the folder `out`, each file beside and then renamed."""
    out = Path(out)
    with _workplace(out) as (_, models):
        reconstruction.write_binary(models)
        try:
            out.mkdir(exist_ok=True)
            for path in sorted(models.iterdir()):
                path.replace(out / path.name)
        except OSError as error:
            raise InputError(f"cannot write the model to {out}: {error.strerror}") from error


@contextmanager
def _usable(database: str | Path) -> Iterator[None]:
    """COLMAP's complaints about what it reads, as FormatError."""
    try:
        yield
    except FeatveilError:
        raise
    except (ValueError, RuntimeError, LookupError, MemoryError) as error:
        raise FormatError(f"COLMAP cannot use {database}: it is damaged, or does not fit the model") from error


@contextmanager
def _workplace(out: str | Path) -> Iterator[tuple[Path, Path]]:
    """An empty folder for images, which are not needed, and one for models, both gone afterwards.

    They are in the folder `out`, or beside it while it is missing, so that files can be renamed into it.
    """
    place = Path(out) if Path(out).exists() else Path(out).parent
    check_folder(place)
    try:
        folder = tempfile.TemporaryDirectory(prefix=".featveil-", dir=place)
    except OSError as error:
        raise InputError(f"cannot write in {place}: {error.strerror}") from error
    with folder as name:
        for part in ("images", "models"):
            (Path(name) / part).mkdir()
        yield Path(name) / "images", Path(name) / "models"
