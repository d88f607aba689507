"""Content that no map has: the bundled pictures, pasting, and which features show it."""

from pathlib import Path

import cv2
import numpy as np
import pytest

from featveil.core import InputError, Keypoints
from featveil.datasets import contents, paste, private_rows
from featveil.extractors import extract

HEIGHT, WIDTH = 120, 200
WALL = np.full((HEIGHT, WIDTH, 3), 90, np.uint8)
SQUARE = np.full((40, 40, 3), 255, np.uint8)


def test_bundled_contents_have_names_and_features() -> None:
    parts = contents()
    assert [part.name for part in parts] == ["cat", "cup", "letter", "photographer", "portrait", "rocket"]
    for part in parts:
        assert part.picture.dtype == np.uint8
        assert max(part.picture.shape[:2]) == 360
        assert len(extract(part.picture, "sift", 1000)) > 50


def test_contents_of_a_folder(tmp_path: Path) -> None:
    cv2.imwrite(str(tmp_path / "b.png"), SQUARE)
    cv2.imwrite(str(tmp_path / "a.png"), SQUARE[:20])
    assert [(part.name, part.picture.shape) for part in contents(tmp_path)] == [("a", (20, 40, 3)), ("b", (40, 40, 3))]


def test_a_folder_without_images_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no image"):
        contents(tmp_path)


@pytest.mark.parametrize("share", [0.04, 0.1, 0.2])
def test_content_takes_its_share_and_leaves_the_rest(share: float) -> None:
    pasted, mask = paste(WALL, SQUARE, share)
    assert mask.mean() == pytest.approx(share, rel=0.05)
    assert (pasted[mask] == 255).all()
    assert (pasted[~mask] == 90).all()
    assert (WALL == 90).all()  # the given image is left alone


def test_the_place_is_where_it_is_pasted() -> None:
    _, mask = paste(WALL, SQUARE, 0.1, (0.0, 1.0))
    assert mask[-1, 0]
    assert not mask[0].any()
    assert not mask[:, -1].any()


def test_content_stays_upright_and_keeps_its_shape() -> None:
    content = np.zeros((30, 60, 3), np.uint8)
    content[:, 30:] = 200
    pasted, mask = paste(WALL, content, 0.1)
    rows, columns = np.flatnonzero(mask.any(axis=1)), np.flatnonzero(mask.any(axis=0))
    assert len(columns) == pytest.approx(2 * len(rows), abs=1)
    assert (pasted[rows[0], columns[[0, -1]]] == [[0] * 3, [200] * 3]).all()


def test_content_that_is_too_long_is_made_to_fit() -> None:
    _, mask = paste(WALL, np.zeros((400, 20, 3), np.uint8), 0.5)
    assert mask.any(axis=1).all()
    assert mask.mean() < 0.5


def test_grey_pictures_are_pasted_too() -> None:
    pasted, mask = paste(WALL[:, :, 0], SQUARE[:, :, 0], 0.1)
    assert pasted.shape == WALL.shape
    assert (pasted[mask] == 255).all()


@pytest.mark.parametrize("share", [0.0, 1.0, -0.1, float("nan"), 1e-9])
def test_impossible_shares_are_refused(share: float) -> None:
    with pytest.raises(InputError):
        paste(WALL, SQUARE, share)


def test_impossible_places_are_refused() -> None:
    with pytest.raises(InputError, match="place"):
        paste(WALL, SQUARE, 0.1, (0.5, 1.1))


def test_features_of_the_border_are_on_neither_side() -> None:
    mask = np.zeros((HEIGHT, WIDTH), np.bool_)
    mask[:, :100] = True
    xy = np.array([(50.5, 60.5), (90.5, 60.5), (98.5, 60.5), (102.5, 60.5), (111.5, 60.5), (150.5, 60.5)], np.float32)
    scale = np.array([2, 1, 1, 1, 1, 10], np.float32)
    sides = private_rows(Keypoints(xy, scale), mask, margin=6)
    assert sides.private.tolist() == [True, True, False, False, False, False]
    assert sides.mapped.tolist() == [False, False, False, False, True, False]


def test_a_margin_of_nothing_divides_all_features() -> None:
    _, mask = paste(WALL, SQUARE, 0.1)
    xy = np.random.default_rng(0).uniform(0, (WIDTH, HEIGHT), (500, 2)).astype(np.float32)
    sides = private_rows(Keypoints(xy), mask, margin=0)
    assert (sides.private ^ sides.mapped).all()
    assert np.array_equal(sides.private, mask[tuple(xy.astype(int)[:, ::-1].T)])


def test_without_content_all_features_are_mapped() -> None:
    sides = private_rows(Keypoints(np.array([[3, 3]], np.float32)), np.zeros((HEIGHT, WIDTH), np.bool_))
    assert (sides.private.tolist(), sides.mapped.tolist()) == ([False], [True])


def test_keypoints_of_another_image_are_refused() -> None:
    with pytest.raises(InputError, match="another image"):
        private_rows(Keypoints(np.array([[3, 300]], np.float32)), np.zeros((HEIGHT, WIDTH), np.bool_))
