"""Drawing matches."""

from pathlib import Path

import cv2
import numpy as np
import pytest

from featveil.core import InputError, Keypoints
from featveil.plotting.pictures import Panel, draw_keypoints, draw_matches, panel, write_picture

XY = np.array([[20.5, 30.5], [60.5, 50.5]], np.float32)
GREEN = (46, 204, 113)
ALL = np.array([[0, 0], [1, 1]])


def _image(height: int = 100, width: int = 120) -> np.ndarray[tuple[int, ...], np.dtype[np.uint8]]:
    return np.full((height, width, 3), 200, np.uint8)


def test_dots_of_agreeing_matches_are_green_and_in_place() -> None:
    side = Panel(XY, _image())
    drawn = draw_matches(side, side, ALL, np.array([True, False]))
    assert drawn.shape == (100, 2 * 120 + 8, 3)
    assert tuple(drawn[30, 20]) == tuple(drawn[30, 20 + 128]) == GREEN
    assert tuple(drawn[50, 60]) not in (GREEN, (200, 200, 200))
    between = drawn[30, 100].astype(int)
    assert between[1] > between[0] + 20  # a green line


def test_panels_share_a_height_and_inputs_are_not_drawn_on() -> None:
    small, large = _image(), _image(2000, 1000)
    drawn = draw_matches(Panel(XY, small), Panel(XY, large), ALL, np.ones(2, bool), "caption")
    assert drawn.shape == (600 + 38, 720 + 8 + 300, 3)
    assert (small == 200).all() and (large == 200).all()


def test_thousands_of_matches_leave_the_image_visible() -> None:
    rng = np.random.default_rng(0)
    side = Panel(rng.uniform(0, 600, (3000, 2)).astype(np.float32), _image(600, 600))
    pairs = np.repeat(np.arange(3000)[:, None], 2, axis=1)
    drawn = draw_matches(side, side, pairs, np.ones(3000, bool))
    assert (drawn[:, :600] == 200).all(axis=2).mean() > 0.3


def test_no_matches_and_no_features() -> None:
    none = np.empty((0, 2), np.int64)
    bare = Panel(np.empty((0, 2), np.float32))
    assert draw_matches(Panel(XY, _image()), bare, none, np.empty(0, bool)).ndim == 3


def test_without_an_image_positions_are_drawn() -> None:
    drawn = draw_keypoints(panel(Keypoints(XY), None, (120, 100)))
    assert drawn.shape == (100, 120, 3)
    assert tuple(drawn[30, 20]) != tuple(drawn[0, 0]) == (38, 42, 51)


def test_far_positions_of_a_hostile_file_are_drawn_without_error() -> None:
    far = np.array([[1e30, -1e30], [5, 5]], np.float32)
    side = Panel(far, None, (100, 100))
    assert draw_matches(side, side, ALL, np.ones(2, bool)).shape == (100, 208, 3)


@pytest.mark.parametrize("size", [(2**24, 1), (1, 2**24), (2**24, 2**24)])
def test_extreme_sizes_of_a_hostile_file_stay_small(size: tuple[int, int]) -> None:
    side = Panel(XY, None, size)
    assert draw_matches(side, side, ALL, np.ones(2, bool)).size < 2e7
    assert draw_keypoints(side).size < 2e7


def test_positions_without_a_size_do_not_decide_the_memory() -> None:
    side = Panel(np.array([[1e30, 1e30], [0, 0]], np.float32))
    assert draw_matches(side, side, ALL, np.ones(2, bool)).size < 2e7


def test_refusals(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no keypoints"):
        panel(None, _image())
    with pytest.raises(InputError, match="50 x 50"):
        panel(Keypoints(XY), _image(), (50, 50))
    with pytest.raises(InputError, match=r"\.png or \.jpg"):
        write_picture(_image(), tmp_path / "x.gif")
    assert not list(tmp_path.iterdir())


def test_written_colours_are_rgb(tmp_path: Path) -> None:
    write_picture(np.full((4, 4, 3), (255, 0, 0), np.uint8), tmp_path / "x.png")
    assert np.asarray(cv2.imread(str(tmp_path / "x.png")))[0, 0].tolist() == [0, 0, 255]
