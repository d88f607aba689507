"""Labels beside points."""

from itertools import combinations

import pytest

from featveil.plotting.labels import Box, Labeller


def test_labels_avoid_points_and_each_other_and_stay_inside() -> None:
    area = Box(0, 0, 200, 200)
    points = [(40.0, 40.0), (60.0, 40.0), (198.0, 100.0), (100.0, 2.0), (100.0, 120.0)]
    labeller = Labeller(area, points, [Box(0, 150, 200, 2)])
    placed = [labeller.place(point, 30, 12) for point in points]
    assert all(one.shared(two) == 0 for one, two in combinations(placed, 2))
    assert all(box.shared(area) == pytest.approx(30 * 12) for box in placed)
    markers = [Box(x - 7, y - 7, 14, 14) for x, y in points]
    assert all(box.shared(marker) == 0 for box in placed for marker in markers)


def test_a_label_gives_way_to_one_that_was_placed_before() -> None:
    points = [(40.0, 40.0), (40.0, 56.0)]
    labeller = Labeller(Box(0, 0, 200, 200), points)
    first, second = (labeller.place(point, 30, 20) for point in points)
    assert first.left == second.left + 44 and first.shared(second) == 0  # right and left of their points


def test_a_label_is_not_put_behind_the_point_of_another() -> None:
    walls = [Box(0, 60, 200, 32), Box(0, 108, 200, 92), Box(0, 92, 92, 16)]  # free: right, and far above
    alone = Labeller(Box(0, 0, 200, 200), [(100.0, 100.0)], walls)
    assert alone.place((100.0, 100.0), 20, 10).top == 95
    beside = Labeller(Box(0, 0, 200, 200), [(100.0, 100.0), (114.0, 100.0)], walls)
    assert beside.place((100.0, 100.0), 20, 10).top < 60


def test_a_name_is_given_up_where_there_is_no_room() -> None:
    crowd = [(x * 12.0, y * 12.0) for x in range(10) for y in range(10)]
    labeller = Labeller(Box(0, 0, 108, 108), crowd)
    assert labeller.place_if_free(crowd[55], 60, 14) is None
    assert len(labeller.taken) == len(crowd)
    assert Labeller(Box(0, 0, 108, 108), crowd[:1]).place_if_free(crowd[0], 60, 14) is not None
