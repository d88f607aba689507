"""Drawings of descriptors."""

import re
import xml.etree.ElementTree as ElementTree

import pytest

from featveil.audit.glyphs import GLYPH_SIZE, descriptor_glyph, glyph_distance


def strokes(values: list[int]) -> list[tuple[float, ...]]:
    """Start and step of every stroke."""
    path = ElementTree.fromstring(descriptor_glyph(values, "one"))[1].get("d") or ""
    found = re.findall(r"M(\S+) (\S+)l(\S+) (\S+?)(?=M|$)", path)
    return [tuple(map(float, numbers)) for numbers in found]


def test_values_are_strokes_from_the_middle_of_their_cell_in_their_direction() -> None:
    values = [0] * GLYPH_SIZE
    values[0], values[(1 * 4 + 2) * 8 + 2] = 60, 30  # first cell, first direction; second line, third cell, third one
    right, down = strokes(values)
    assert right[:2] == (12, 12) and right[2] > 0 and right[3] == 0
    assert down[:2] == (60, 36) and down[2] == pytest.approx(0) and down[3] == pytest.approx(right[2] / 2, abs=0.1)


def test_zeros_and_what_is_below_have_no_stroke_and_large_values_stay_near_their_cell() -> None:
    assert strokes([0] * GLYPH_SIZE) == [] and strokes([-200] * GLYPH_SIZE) == []
    assert all(abs(step) <= 24 for stroke in strokes([255] * GLYPH_SIZE) for step in stroke[2:])


def test_the_label_is_text() -> None:
    tree = ElementTree.fromstring(descriptor_glyph([9] * GLYPH_SIZE, '"><script>'))
    assert tree.get("aria-label") == '"><script>' and tree.get("role") == "img"


def test_distance_is_a_share_of_the_norm_of_the_truth() -> None:
    truth = [300, 400] + [0] * 126
    assert glyph_distance(truth, truth) == 0
    assert glyph_distance(truth, [0] * 128) == pytest.approx(1)
    assert glyph_distance(truth, [300, 0] + [0] * 126) == pytest.approx(0.8)
    assert glyph_distance([0] * 128, [0] * 128) == 0
