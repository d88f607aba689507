"""Pictures of single entries of a sketch."""

import numpy as np
import pytest

from featveil.pipelines.attack_parts.sketch_patches import SIDE, contact_sheet, patches
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


@pytest.mark.parametrize(("count", "rows"), [(1, 1), (3, 1), (4, 2)])
def test_a_sheet_holds_all_of_them_in_order(count: int, rows: int) -> None:
    pictures = [np.full((6, 8, 3), number, np.uint8) for number in range(count)]
    sheet = contact_sheet(pictures, 3, gap=2)
    assert sheet.shape == (rows * 8 + 2, 32, 3)
    for number in range(count):
        top, left = 2 + number // 3 * 8, 2 + number % 3 * 10
        assert (sheet[top : top + 6, left : left + 8] == number).all()
    assert (sheet[:2] == 255).all()
