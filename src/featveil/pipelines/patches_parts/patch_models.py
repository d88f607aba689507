"""Patch sets from a COLMAP model: the points that it tracked through photographs of one place, as PhotoTour was made.

A model knows where its points are seen, not how large and which way round. That comes from the SIFT keypoint found
nearest to each, and an observation without one is dropped. Where several lie there (one place often has two scales or
orientations), it is the one whose descriptor is nearest to the point's clearest observation, and of about its size in
space: sigma times depth over focal length.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy.spatial import cKDTree

from featveil.core import Features, InputError, Keypoints
from featveil.core.arrays import Float32, Float64, Integers
from featveil.core.resuming import Report
from featveil.datasets.phototour_writing import check_target
from featveil.extractors import Sift, read_image
from featveil.extractors.patch_cutting import frames_of, whole
from featveil.geometry.models import SparseModel, View
from featveil.pipelines.patches_parts.patch_sets import Block, BuiltPatches, PatchRecipe, write_blocks
from featveil.pipelines.patches_parts.patch_tracks import ALIKE, alike, choose_apart

NEAREST = 1.5  # pixels between a tracked keypoint and the detection that stands for it

_DETECTED = 20_000


@dataclass(frozen=True, eq=False)
class _Seen:
    """Detections of one image at tracked keypoints: descriptors (k, d), points and sizes in space (k,).

    Several may be of one point.
    """

    keypoints: Keypoints
    descriptors: Float32
    points: Integers
    sizes: Float64

    def take(self, rows: Integers) -> "_Seen":
        return _Seen(self.keypoints.take(rows), self.descriptors[rows], self.points[rows], self.sizes[rows])


def build_from_model(
    images: str | Path,
    model: SparseModel,
    out: str | Path,
    recipe: PatchRecipe,
    overwrite: bool = False,
    report: Report = lambda done, total: None,
) -> BuiltPatches:
    """Write a patch set of the points of `model`, whose photographs are in the folder `images`, to the folder `out`.

    `views`, `max_features` and `longest_side` of the recipe are not used: the model has its own. Parts are parts of the
    points. `report` is called with photographs (done, total), each of which is read twice. Raises InputError when a
    photograph is missing, of another size than in the model, or too few points are left.
    """
    check_target(Path(out), overwrite)
    paths = {name: Path(images) / name for name in model.views}
    within = Path(images).resolve()
    missing = [name for name, path in paths.items() if not path.is_file() or not path.resolve().is_relative_to(within)]
    if not paths:
        raise InputError("the model has no registered image")
    if missing:
        raise InputError(
            f"{len(missing)} of {len(paths)} photographs of the model are not in {images}, such as {missing[0]}"
        )
    seen, total = {}, 2 * len(paths)
    report(0, total)
    for done, (name, view) in enumerate(model.views.items(), start=1):
        seen[name] = _seen(paths[name], view, model.points, recipe)
        report(done, total)
    blocks = _blocks(_apart(_clearest(seen)), paths, recipe, report)
    return write_blocks(blocks, out, recipe, {"made_from": "COLMAP model"}, overwrite)


def _seen(path: Path, view: View, places: Float64, recipe: PatchRecipe) -> _Seen:
    """The detections at the keypoints of the part's points, whose patch lies in the image; `places` are all points'."""
    features, camera = Sift(max_features=_DETECTED).extract(read_image(path)), view.camera
    if features.image_size != (camera.width, camera.height):
        raise InputError(
            f"{path} is of another size than in the model ({camera.width} x {camera.height}): give its own images"
        )
    tracked = [row for row in np.flatnonzero(view.points >= 0) if recipe.keeps(f"point {view.points[row]}")]
    points = view.points[np.array(tracked, np.int64)]
    detected, which = _near(features, view.xy[np.array(tracked, np.int64)])
    assert detected.keypoints is not None and detected.keypoints.scale is not None
    depths = (places[points] @ view.pose.rotation.T + view.pose.translation)[which, 2]
    sizes = detected.keypoints.scale * np.maximum(depths, 1e-9) / camera.parameters[0]
    return _Seen(detected.keypoints, detected.descriptors.values, points[which], sizes.astype(np.float64))


def _near(features: Features, xy: Float32) -> tuple[Features, Integers]:
    """The features whose patch is in the image and that lie at one of `xy` (n, 2), and at which (k,)."""
    assert features.keypoints is not None and features.image_size is not None
    kept = features.take(np.flatnonzero(whole(frames_of(features.keypoints), features.image_size)))
    assert kept.keypoints is not None
    if not len(kept) or not len(xy):
        return kept.take(np.empty(0, np.int64)), np.empty(0, np.int64)
    near = cKDTree(kept.keypoints.xy).query_ball_point(xy, NEAREST, return_sorted=True)
    rows = np.array([row for one in near for row in one], np.int64)
    return kept.take(rows), np.repeat(np.arange(len(xy)), [len(one) for one in near])


def _clearest(seen: Mapping[str, _Seen]) -> dict[str, _Seen]:
    """At most one detection a point and image: the most like the point's observation with fewest of them."""
    anchors: dict[int, tuple[int, Float32, float]] = {}
    for one in seen.values():
        points, first, counts = np.unique(one.points, return_index=True, return_counts=True)
        for point, row, count in zip(points.tolist(), first.tolist(), counts.tolist(), strict=True):
            if point not in anchors or count < anchors[point][0]:
                anchors[point] = (count, one.descriptors[row], float(one.sizes[row]))
    chosen = {}
    for name, one in seen.items():
        sizes = np.array([anchors[point][2] for point in one.points.tolist()])
        one = one.take(np.flatnonzero(np.abs(np.log2(one.sizes / sizes)) <= ALIKE.octaves))
        wanted = np.array([anchors[point][1] for point in one.points.tolist()]).reshape(one.descriptors.shape)
        order = np.lexsort((-np.einsum("nd,nd->n", one.descriptors, wanted), one.points))
        chosen[name] = one.take(order[np.unique(one.points[order], return_index=True)[1]])
    return chosen


def _apart(seen: Mapping[str, _Seen]) -> dict[str, _Seen]:
    """Only points that are seen at least twice, and of which no two are alike in any image; longer tracks go first."""
    every = np.concatenate([one.points for one in seen.values()])
    points, lengths = np.unique(every, return_counts=True)
    order = points[np.lexsort((points, -lengths))][: int((lengths > 1).sum())]
    pairs = [one.points[alike(one.keypoints)] for one in seen.values()]
    kept = choose_apart(np.concatenate([np.empty((0, 2), np.int64), *pairs]), order)
    numbers = {point: number for number, point in enumerate(np.sort(kept).tolist())}
    chosen = {}
    for name, one in seen.items():
        rows = np.flatnonzero(np.isin(one.points, kept))
        renamed = np.array([numbers[point] for point in one.points[rows].tolist()], np.int64)
        chosen[name] = _Seen(one.keypoints.take(rows), one.descriptors[rows], renamed, one.sizes[rows])
    return chosen


def _blocks(
    seen: Mapping[str, _Seen], paths: Mapping[str, Path], recipe: PatchRecipe, report: Report
) -> Iterator[Block]:
    for done, (name, one) in enumerate(seen.items(), start=len(seen) + 1):
        if len(one.points):
            yield recipe.cut(read_image(paths[name]), one.keypoints, name), one.points
        report(done, 2 * len(seen))
