"""Verified matches -> a sparse model: incremental mapping, registration into a model, triangulation at known poses."""

import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from featveil.core import InputError, Pose
from featveil.core.files import check_folder
from featveil.geometry.colmap import pycolmap, rigid
from featveil.geometry.database import opened
from featveil.geometry.models import SparseModel, empty_model, load_reconstruction, to_model

Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Mapping3D:
    """How COLMAP maps: fewest images of a model, whether intrinsics may change, and a seed for studies.

    With a seed one thread is used, so that a study can be repeated.
    """

    min_images: int = 3
    refine_intrinsics: bool = True
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
            random_seed=-1 if self.seed is None else self.seed,
            num_threads=-1 if self.seed is None else 1,
            mapper={"abs_pose_refine_focal_length": refine, "abs_pose_refine_extra_params": refine},
        )


def build_map(
    database: str | Path, out: str | Path, how: Mapping3D = Mapping3D(), report: Progress = lambda done, total: None
) -> SparseModel:
    """The largest model that COLMAP makes of the verified matches in `database`, written to the folder `out`.

    Empty, and nothing written, when no two images could be put together. `report` gets registered images (done,
    total). Raises InputError and FormatError.
    """
    with opened(database) as stored:
        total = int(stored.num_images())
    count = [0]

    def advance() -> None:
        count[0] = min(count[0] + 1, total)
        report(count[0], total)

    with _workplace(out) as (images, models):
        found = pycolmap().incremental_mapping(
            database,
            images,
            models,
            options=how.options(),
            initial_image_pair_callback=advance,
            next_image_callback=advance,
        )
    if not found:
        return empty_model()
    best = max(found.values(), key=lambda model: (model.num_reg_images(), model.num_points3D()))
    write_model(best, out)
    return to_model(best)


def register_images(database: str | Path, model: str | Path, how: Mapping3D = Mapping3D()) -> SparseModel:
    """`model` with those further images of `database` that COLMAP's registrator can place in it.

    What is in the model stays where it is, and so do all intrinsics: `how.refine_intrinsics` should be off. The images
    of the model must be in the database under the same names.
    """
    module = pycolmap()
    known = load_reconstruction(model)
    with opened(database) as stored:
        names = {image.name: image.image_id for image in stored.read_all_images()}
    if missing := sorted({image.name for image in known.images.values()} - set(names)):
        raise InputError(f"the model has image {missing[0]!r}, which is not in the database")
    options = how.options()
    options.fix_existing_frames = True
    with _workplace(model) as (images, models):
        found = module.incremental_mapping(database, images, models, options=options, input_path=model)
    return to_model(max(found.values(), key=lambda made: made.num_reg_images())) if found else to_model(known)


def triangulate(
    database: str | Path, poses: Mapping[str, Pose], out: str | Path, how: Mapping3D = Mapping3D()
) -> SparseModel:
    """The points that the verified matches in `database` give for cameras at known `poses`; written to `out`.

    Images of the database without a pose are left out. Raises InputError when an image with a pose is not there.
    """
    module = pycolmap()
    known = module.Reconstruction()
    with opened(database) as stored:
        images = {image.name: image for image in stored.read_all_images()}
        if missing := sorted(set(poses) - set(images)):
            raise InputError(f"image {missing[0]!r} has a pose but is not in the database")
        wanted = {images[name].camera_id for name in poses}
        for camera in stored.read_all_cameras():
            if camera.camera_id in wanted:
                known.add_camera_with_trivial_rig(camera)
        for name, pose in sorted(poses.items()):
            image = images[name]
            xy = stored.read_keypoints(image.image_id)[:, :2]
            made = module.Image(name=name, keypoints=xy, camera_id=image.camera_id, image_id=image.image_id)
            known.add_image_with_trivial_frame(made, rigid(pose))
    with _workplace(out) as (folder, models):
        found = module.triangulate_points(known, database, folder, models, options=how.options())
    write_model(found, out)
    return to_model(found)


def write_model(reconstruction: Any, out: str | Path) -> None:
    """Write a pycolmap reconstruction to the folder `out`, each file beside and then renamed."""
    out = Path(out)
    with _workplace(out) as (_, models):
        reconstruction.write_binary(models)
        out.mkdir(exist_ok=True)
        for path in sorted(models.iterdir()):
            path.replace(out / path.name)


@contextmanager
def _workplace(out: str | Path) -> Iterator[tuple[Path, Path]]:
    """An empty folder for images, which are not needed, and one for models, both gone afterwards."""
    parent = Path(out).parent
    check_folder(parent)
    with tempfile.TemporaryDirectory(prefix=".featveil-", dir=parent) as name:
        for part in ("images", "models"):
            (Path(name) / part).mkdir()
        yield Path(name) / "images", Path(name) / "models"
