"""Pictures of single entries of a sketch."""

import numpy as np

from featveil.pipelines.attack_parts.sketch_patches import SIDE, patches
from featveil.pipelines.painters import load_painter
from gated import place


def test_entries_of_one_point_look_alike_and_others_do_not() -> None:
    sketch, painter = place(), load_painter()
    rows = np.flatnonzero(np.isin(sketch.points, np.arange(8)))
    seen = np.stack(patches(sketch, rows, painter)).astype(float)
    assert seen.shape == (len(rows), SIDE, SIDE, 3)
    point = sketch.points[rows]
    away = np.abs(seen[:, None] - seen[None]).mean(axis=(2, 3, 4))
    same = point[:, None] == point
    assert away[same & ~np.eye(len(rows), dtype=bool)].mean() < 0.7 * away[~same].mean()
