"""A SIFT descriptor as a small drawing: 4 x 4 cells, in each 8 gradient directions as strokes from its middle."""

import html
import math
from collections.abc import Sequence

_CELLS, _DIRECTIONS = 4, 8
GLYPH_SIZE = _CELLS * _CELLS * _DIRECTIONS
_CELL = 24  # units of the drawing
_LONGEST = 120  # of values of a descriptor at norm 512: a stroke of half a cell and a little more
_TURNS = [(math.cos(math.tau * k / _DIRECTIONS), math.sin(math.tau * k / _DIRECTIONS)) for k in range(_DIRECTIONS)]


def descriptor_glyph(values: Sequence[int], label: str) -> str:
    """An inline SVG of 128 `values` of a descriptor at norm 512, with `label` as its text for those who cannot see it.

    Strokes are as long as values are large; what is not above zero, as parts of a guess may be, has none.
    """
    side = _CELLS * _CELL
    grid = "".join(f"M{k * _CELL} 0V{side}M0 {k * _CELL}H{side}" for k in range(_CELLS + 1))
    return (
        f'<svg class="glyph" viewBox="-1 -1 {side + 2} {side + 2}" role="img" aria-label="{html.escape(label)}">'
        f'<path class="cells" d="{grid}"/><path class="strokes" d="{"".join(_strokes(values))}"/></svg>'
    )


def glyph_distance(truth: Sequence[int], guess: Sequence[int]) -> float:
    """How far a guess is from the truth, as a share of the truth's norm."""
    return math.dist(truth, guess) / max(math.hypot(*truth), 1)


def _strokes(values: Sequence[int]) -> list[str]:
    strokes = []
    for place, value in enumerate(values):
        cell, direction = divmod(place, _DIRECTIONS)
        length = min(value / _LONGEST, 1) * 0.62 * _CELL
        if length >= 0.5:
            x, y = (cell % _CELLS + 0.5) * _CELL, (cell // _CELLS + 0.5) * _CELL
            across, down = _TURNS[direction]
            strokes.append(f"M{x:g} {y:g}l{length * across:.1f} {length * down:.1f}")
    return strokes
