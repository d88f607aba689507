"""The figure of a plan."""

import sys
from pathlib import Path

import numpy as np
import pytest

from drawings import drawing
from featveil.core import InputError, MissingExtraError
from featveil.pipelines.subset_parts.planning import LEVELS, plan
from featveil.plotting.plan import BANDS_OF_GUESS, BANDS_OF_SENT, draw_plan

CURVES = {epsilon: plan(epsilon, 256_000, [1, 2, 4, 8], 2048) for epsilon in (8.0, 10.0)}


def width(path: Path) -> int:
    return len(drawing(path, coloured=False)[0])


def test_a_picture_is_written_with_a_panel_more_for_distances(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    draw_plan(CURVES, 10.0, tmp_path / "two.png", title="a title")
    draw_plan(CURVES, 10.0, tmp_path / "three.png", np.random.default_rng(0).random(100))
    assert width(tmp_path / "three.png") == pytest.approx(1.5 * width(tmp_path / "two.png"), abs=2)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["three.png", "two.png"]


@pytest.mark.parametrize(
    ("epsilon", "words", "sizes"),
    [
        pytest.param(float("inf"), 100, [1, 2], id="infinite"),
        pytest.param(10.0, 2**1024, [1, 2], id="tiny"),
        pytest.param(10.0, 2**4096, [1, 2], id="zero"),
        pytest.param(10.0, 100, [3], id="one size"),
        pytest.param(1.0, 9999, [*range(1, 50)], id="many sizes"),
    ],
)
def test_extreme_plans_can_be_drawn(tmp_path: Path, epsilon: float, words: int, sizes: list[int]) -> None:
    pytest.importorskip("matplotlib")
    draw_plan({epsilon: plan(epsilon, words, sizes, 9)}, epsilon, tmp_path / "plan.png")
    assert width(tmp_path / "plan.png") > 500


def test_the_lines_are_where_the_verdicts_change() -> None:
    assert tuple((guess, name) for name, guess, _ in LEVELS) == BANDS_OF_GUESS
    assert tuple((sent, name) for name, _, sent in LEVELS) == BANDS_OF_SENT


@pytest.mark.parametrize("curves", [{}, {10.0: []}])
def test_nothing_to_draw(tmp_path: Path, curves: dict[float, list[object]]) -> None:
    pytest.importorskip("matplotlib")
    with pytest.raises(InputError, match="no plan"):
        draw_plan(curves, 10.0, tmp_path / "plan.png")  # type: ignore[arg-type]
    assert list(tmp_path.iterdir()) == []


def test_without_matplotlib_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(MissingExtraError, match=r"featveil\[plots\]"):
        draw_plan(CURVES, 10.0, tmp_path / "plan.png")
    assert list(tmp_path.iterdir()) == []
