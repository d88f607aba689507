"""Sparse models of one place -> one picture: each beside the first, moved into its frame and seen from one view."""

from collections.abc import Mapping

from featveil.core import InputError
from featveil.geometry.models import SparseModel
from featveil.metrics import align_poses, find_similarity, move_points
from featveil.plotting.model_pictures import choose_view, draw_model, side_by_side
from featveil.plotting.pictures import Picture

_SIZE = (720, 540)


def draw_models(models: Mapping[str, SparseModel], size: tuple[int, int] = _SIZE) -> Picture:
    """uint8 RGB: the models by name, each of `size` (width, height), with the numbers of their images and points.

    One that cannot be aligned with the first, because too few images are in both, is drawn empty. Raises InputError
    when the first has no points.
    """
    (first, reference), *_ = models.items()
    view = choose_view(reference.points, reference.poses, size)
    pictures, captions = [], []
    for name, model in models.items():
        points, poses, note = model.points, model.poses, ""
        if name != first:
            try:
                points = move_points(points, find_similarity(poses, reference.poses))
                poses = align_poses(poses, reference.poses)
            except InputError:
                points, poses, note = points[:0], {}, ", not aligned"
        pictures.append(draw_model(points, poses, size, view=view))
        captions.append(f"{name}: {len(model.views)} images, {len(model.points):,} points{note}")
    return side_by_side(pictures, captions)
