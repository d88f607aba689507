"""The contact sheet of patch pairs."""

import numpy as np
import pytest

from featveil.core import InputError
from featveil.plotting.patch_pictures import draw_patch_pairs


def test_pairs_stand_side_by_side() -> None:
    first = np.stack([np.full((64, 64), value, np.uint8) for value in (10, 20, 30)])
    sheet = draw_patch_pairs(first, first + 100, across=2)
    assert sheet.shape == (2 * 74 + 10, 2 * 140 + 10, 3)
    assert sheet[20, 20].tolist() == [10] * 3 and sheet[20, 90].tolist() == [110] * 3
    assert sheet[20, 160, 0] == 20 and sheet[94, 20, 0] == 30 and sheet[94, 160, 0] == 255
    assert sheet[0].min() == sheet[:, -1].min() == 255


def test_nothing_to_draw() -> None:
    for first, second in (((0, 64, 64), (0, 64, 64)), ((2, 64, 64), (1, 64, 64))):
        with pytest.raises(InputError, match="contact sheet"):
            draw_patch_pairs(np.zeros(first, np.uint8), np.zeros(second, np.uint8))
