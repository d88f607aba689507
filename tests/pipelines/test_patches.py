"""Patch sets of photographs: known homographies, redetected keypoints, pairs, parts; the same files each time."""

import logging
from itertools import pairwise
from pathlib import Path

import cv2
import numpy as np
import pytest

from featveil.core import InputError, Keypoints
from featveil.datasets import load_phototour
from featveil.extractors import Sift, make_describer
from featveil.extractors.images import Image
from featveil.metrics import false_positive_rate
from featveil.pipelines.patches_parts.patch_photos import build_from_photos, photo_patches, scaled
from featveil.pipelines.patches_parts.patch_sets import PatchRecipe, draw_pairs
from featveil.pipelines.patches_parts.patch_tracks import SAME, alike, choose_apart, jittered, redetected
from featveil.pipelines.patches_parts.patch_views import jacobians, move, project, random_homography, random_view
from textures import texture

QUICK = PatchRecipe(views=2, max_features=60, pairs=200)


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Three pictures with features, one without and one that is none."""
    folder = tmp_path_factory.mktemp("photos")
    for number in range(3):
        cv2.imwrite(str(folder / f"{number}.png"), texture(number))
    cv2.imwrite(str(folder / "flat.png"), np.full((100, 100), 128, np.uint8))
    (folder / "text.png").write_text("no picture")
    return {path.name: path for path in sorted(folder.iterdir())}


def keypoints(image: Image, most: int = 200) -> Keypoints:
    found = Sift(max_features=most).extract(image).keypoints
    assert found is not None
    return found


def few(*rows: tuple[float, float, float, float]) -> Keypoints:
    """Keypoints of (x, y, scale, orientation)."""
    table = np.array(rows, np.float32)
    return Keypoints(table[:, :2], table[:, 2], table[:, 3])


def test_homographies_and_what_they_do_to_keypoints() -> None:
    rng = np.random.default_rng(0)
    homography = random_homography((320, 240), rng)
    assert np.linalg.norm(move(homography, np.array([[160.0, 120.0]])) - [160, 120]) < 0.1 * 320
    near = np.array([[100.0, 80.0], [100.01, 80.0], [100.0, 80.01]])
    moved = move(homography, near)
    numeric = np.column_stack([moved[1] - moved[0], moved[2] - moved[0]]) / 0.01
    assert np.abs(numeric - jacobians(homography, near[:1])[0]).max() < 1e-3
    turned = np.array([[0, -2, 300], [2, 0, 10], [0, 0, 1]], np.float64)  # by 90 degrees, twice as large
    there = project(few((10, 20, 3, 350)), turned)
    assert there.scale is not None and there.orientation is not None
    assert np.allclose(there.xy, [[260, 30]]) and np.allclose(there.scale, 6) and np.allclose(there.orientation, 80)


def test_a_view_shows_the_photograph_where_its_homography_says() -> None:
    image = texture()
    view = random_view(image, np.random.default_rng(3))
    assert view.image.shape == image.shape
    expected = project(keypoints(image), view.homography)
    found = keypoints(view.image, 800)
    pairs = redetected(expected, found)
    shown = ((expected.xy > 20) & (expected.xy < [300, 220])).all(axis=1).sum()
    assert len(pairs) > 0.3 * shown
    errors = np.linalg.norm(expected.xy[pairs[:, 0]] - found.xy[pairs[:, 1]], axis=1)
    assert np.median(errors) < 0.5
    wrong = view.homography.copy()
    wrong[:2, 2] += 13.7
    assert len(redetected(project(keypoints(image), wrong), found)) < 0.3 * len(pairs)


def test_redetection_is_one_to_one_and_in_range() -> None:
    expected = few((50, 50, 4, 10), (52, 50, 4, 10), (90, 90, 4, 0), (120, 50, 4, 0), (150, 50, 4, 0))
    found = few((50.5, 50, 4, 15), (53, 50, 4.2, 355), (90, 90, 6, 0), (120, 50, 4, 30), (150 + 4.8, 50, 4, 0))
    # The third differs by 0.58 octaves, the fourth by 30 degrees, the fifth by 5.1 pixels of the patch.
    assert redetected(expected, found).tolist() == [[0, 0], [1, 1]]
    assert redetected(expected, found.take(np.array([0]))).tolist() == [[0, 0]]
    assert redetected(expected.take(np.empty(0, np.int64)), found).shape == (0, 2)


def test_alike_keypoints_and_who_stays() -> None:
    many = few((50, 50, 4, 0), (55, 50, 4, 30), (50, 50, 4, 90), (50, 50, 8, 0), (80, 50, 4, 0))
    assert alike(many).tolist() == [[0, 1]]
    chain = np.array([[0, 1], [1, 2], [3, 4]])
    assert choose_apart(chain, np.arange(5)).tolist() == [0, 2, 3]
    assert choose_apart(chain, np.array([1, 4, 0, 2, 3])).tolist() == [1, 4]


def test_jitter_stays_in_its_share_of_the_range() -> None:
    many = few(*[(100, 100, 4, 350)] * 500)
    moved = jittered(many, 0.5, np.random.default_rng(0))
    assert moved.scale is not None and moved.orientation is not None
    far = np.linalg.norm(moved.xy - 100, axis=1) / (4 * 15 / 64)
    octaves, degrees = np.abs(np.log2(moved.scale / 4)), np.abs((moved.orientation - 350 + 180) % 360 - 180)
    for values, most in ((far, SAME.pixels), (octaves, SAME.octaves), (degrees, SAME.degrees)):
        assert 0.4 * most < values.max() <= 0.5 * most + 1e-3


def test_patches_of_a_point_look_alike() -> None:
    patches, points = photo_patches(texture(), "a", PatchRecipe(views=3, max_features=80, jitter=0))
    assert np.unique(points).tolist() == list(range(points.max() + 1)) and np.bincount(points).min() >= 2
    values = make_describer("sift").describe(patches).values
    same = [values[points == point] for point in range(points.max() + 1)]
    apart = np.mean([np.linalg.norm(one[0] - one[1]) for one in same])
    others = np.mean([np.linalg.norm(one[0] - two[0]) for one, two in pairwise(same)])
    assert apart < 0.5 * others


def test_jitter_makes_pairs_harder() -> None:
    apart = []
    for jitter in (0.0, 0.5, 1.0):
        patches, points = photo_patches(texture(), "a", PatchRecipe(views=2, max_features=80, jitter=jitter))
        values, first = make_describer("sift").describe(patches).values, np.unique(points, return_index=True)[1]
        last = len(points) - 1 - np.unique(points[::-1], return_index=True)[1]
        apart.append(np.linalg.norm(values[first] - values[last], axis=1).mean())
    assert apart[0] < apart[1] < apart[2]


def test_a_set_is_written_whole_and_the_same_each_time(
    photos: dict[str, Path], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    reports: list[tuple[int, int]] = []
    with caplog.at_level(logging.WARNING):
        made = build_from_photos(
            photos, tmp_path / "a", QUICK, report=lambda done, total: reports.append((done, total))
        )
    assert [record.getMessage().split()[0] for record in caplog.records] == ["flat.png", "text.png"]
    assert (reports[0], reports[-1], made.images) == ((0, 5), (5, 5), 3)
    found = load_phototour(tmp_path / "a")
    assert (len(found), len(np.unique(found.points))) == (made.patches, made.points)
    assert found.card["recipe"]["views"] == 2 and found.card["made_from"] == "photographs"
    assert found.pairs is not None and (made.matching, made.other) == (100, 100)
    assert np.array_equal(found.points[found.pairs.first] == found.points[found.pairs.second], found.pairs.match)
    values = make_describer("sift").describe(found.read()).values
    distances = np.linalg.norm(values[found.pairs.first] - values[found.pairs.second], axis=1)
    assert false_positive_rate(distances, found.pairs.match) < 0.2
    assert false_positive_rate(distances[::-1], found.pairs.match) > 0.5
    build_from_photos(dict(reversed(photos.items())), tmp_path / "b", QUICK)
    build_from_photos(photos, tmp_path / "c", PatchRecipe(views=2, max_features=60, pairs=200, seed=1))
    files = {path.name: path.read_bytes() for path in (tmp_path / "a").iterdir()}
    assert files == {path.name: path.read_bytes() for path in (tmp_path / "b").iterdir()}
    assert files["patches0000.bmp"] != (tmp_path / "c" / "patches0000.bmp").read_bytes()


def test_parts_are_disjoint_and_complete() -> None:
    names = [f"{number}.jpg" for number in range(200)]
    parts = {part: {name for name in names if PatchRecipe(part=part).keeps(name)} for part in ("all", "train", "test")}
    assert parts["train"] | parts["test"] == parts["all"] == set(names)
    assert not parts["train"] & parts["test"] and 20 < len(parts["test"]) < 65
    assert parts["test"] != {name for name in names if PatchRecipe(part="test", seed=1).keeps(name)}


def test_large_photographs_are_scaled_down(photos: dict[str, Path]) -> None:
    assert scaled(np.zeros((300, 900, 3), np.uint8), 300).shape == (100, 300, 3)
    assert scaled(np.zeros((300, 200), np.uint8), 300).shape == (300, 200)
    assert scaled(np.zeros((1, 4000), np.uint8), 300).shape == (1, 300)


def test_pairs_are_different_and_as_many_as_there_can_be() -> None:
    points = np.array([0, 0, 0, 1, 1, 2])
    pairs = draw_pairs(points, 1000, np.random.default_rng(0))
    right = {tuple(pair) for pair in zip(pairs.first[pairs.match], pairs.second[pairs.match], strict=True)}
    assert right == {(0, 1), (0, 2), (1, 2), (3, 4)} and len(pairs) == 8
    assert len(set(zip(pairs.first.tolist(), pairs.second.tolist(), strict=True))) == 8
    for few_points in ([0, 0, 0], [0, 1, 2], []):
        with pytest.raises(InputError, match="fewer than two points"):
            draw_pairs(np.array(few_points, np.int64), 10, np.random.default_rng(0))


def test_what_cannot_be_built(photos: dict[str, Path], tmp_path: Path) -> None:
    flat = {name: photos[name] for name in ("flat.png", "text.png")}
    with pytest.raises(InputError, match="fewer than two points"):
        build_from_photos(flat, tmp_path / "a", QUICK)
    with pytest.raises(InputError, match="none of the 5 photographs is in the part"):
        build_from_photos(photos, tmp_path / "a", PatchRecipe(part="test", test_share=1e-9))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "wrong",
    [
        {"views": 0},
        {"max_features": 1.5},
        {"pairs": 3},
        {"pairs": 0},
        {"part": "half"},
        {"test_share": 1},
        {"seed": -1},
        {"jitter": -0.1},
        {"jitter": float("nan")},
        {"longest_side": True},
    ],
)
def test_wrong_recipes(wrong: dict[str, object]) -> None:
    with pytest.raises(InputError, match=next(iter(wrong))):
        PatchRecipe(**wrong)  # type: ignore[arg-type]
