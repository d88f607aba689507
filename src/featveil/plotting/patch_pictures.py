"""Patches -> a contact sheet: pairs side by side, to see at a glance whether they show the same."""

import numpy as np

from featveil.core import InputError
from featveil.plotting.pictures import Picture

_GAP, _MARGIN = 2, 10
_WHITE = 255


def draw_patch_pairs(first: Picture, second: Picture, across: int = 8) -> Picture:
    """uint8 RGB: pairs of grey patches (k, s, s), `across` in a row. Raises InputError without any."""
    if first.shape != second.shape or first.ndim != 3 or len(first) == 0:
        raise InputError("a contact sheet needs pairs of patches of one shape, and at least one pair")
    count, side = len(first), first.shape[1]
    wide, rows = 2 * side + _GAP, -(-count // across)
    columns = min(across, count)
    sheet = np.full((rows * (side + _MARGIN) + _MARGIN, columns * (wide + _MARGIN) + _MARGIN), _WHITE, np.uint8)
    for place, (left, right) in enumerate(zip(first, second, strict=True)):
        row, column = divmod(place, across)
        top, start = _MARGIN + row * (side + _MARGIN), _MARGIN + column * (wide + _MARGIN)
        sheet[top : top + side, start : start + side] = left
        sheet[top : top + side, start + side + _GAP : start + wide] = right
    return np.repeat(sheet[:, :, None], 3, axis=2)
