"""The figure of matching curves."""

import sys
from pathlib import Path

import pytest

from drawings import drawing
from featveil.core import InputError, MissingExtraError
from featveil.lab.matching_curves import draw_matching_curves
from featveil.lab.matching_report import MatchingRow

RAW = MatchingRow("raw", 0, "point-to-point", (0.5,) * 10, 5, 10.0, 4.0)
ROWS = [
    RAW,
    MatchingRow("random", 2, "point-to-subspace", (0.4,) * 10, 5, 10.0, 4.0),
    MatchingRow("sub-hybrid", 16, "subspace-to-subspace", (0.3,) * 10, 5, 10.0, 4.0),
]


@pytest.mark.parametrize("rows", [ROWS, [RAW], ROWS[1:]])
def test_a_picture_is_written(tmp_path: Path, rows: list[MatchingRow]) -> None:
    pytest.importorskip("matplotlib")
    draw_matching_curves(rows, tmp_path / "curve.png", "a title")
    assert drawing(tmp_path / "curve.png").any()
    assert [path.name for path in tmp_path.iterdir()] == ["curve.png"]


def test_nothing_to_draw(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    with pytest.raises(InputError, match="no result"):
        draw_matching_curves([], tmp_path / "curve.png")


def test_without_matplotlib_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(MissingExtraError, match=r"featveil\[plots\]"):
        draw_matching_curves(ROWS, tmp_path / "curve.png")
    assert list(tmp_path.iterdir()) == []
