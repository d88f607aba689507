"""Records of attacks -> rows, tables and a figure."""

from pathlib import Path

import cv2
import pytest

from featveil.core import InputError
from featveil.core.records import Parameter, Record
from featveil.lab.attack_report import (
    attack_cells,
    attacks_markdown,
    best_attacks,
    draw_attacks,
    summarize_attacks,
)


def record(
    scheme: str,
    attack: str,
    victim: str = "a",
    near: float = 0.5,
    count: int = 100,
    epsilon: float | None = None,
    exact: float = 0.1,
) -> Record:
    """One attack on one photograph."""
    parameters: dict[str, Parameter] = {"victim": victim, "kind": "sift", "max_features": 500, "sample": 100}
    parameters |= {"defense": "subset" if epsilon else "lifting", "features": 4 * count, "seconds": 0.5}
    parameters |= {"epsilon": epsilon, "bound": 0.154} if epsilon else {}
    value = (0.6, 1 - near, near / 2, near, exact, 7, 1)
    return Record("attacks", "town", scheme, "m", value, "", count, 0, {}, attack, parameters)


RECORDS = [
    record("sub-hybrid-2", "chance", near=0.01),
    record("sub-hybrid-2", "oracle", near=0.99),
    record("sub-hybrid-2", "nearest", near=0.2, count=100),
    record("sub-hybrid-2", "nearest", "b", near=0.6, count=300),
    record("sub-hybrid-2", "overlap + geometry", near=0.4),
    record("subset-8-1", "posterior", near=0.3, epsilon=8.0),
]


def test_a_photograph_weighs_as_many_features_as_it_has_but_medians_alike() -> None:
    rows = {(row.scheme, row.attack): row for row in summarize_attacks(RECORDS)}
    row = rows["sub-hybrid-2", "nearest"]
    assert row.below_near == pytest.approx(0.5)
    assert row.median == pytest.approx(0.6)
    assert (row.count, row.victims) == (400, 2)
    assert row.seconds == pytest.approx(1 / 400)


def test_the_best_attack_is_neither_chance_nor_the_oracle() -> None:
    best = best_attacks(summarize_attacks(RECORDS))
    assert best["sub-hybrid-2"].attack == "nearest"
    assert best["subset-8-1"].attack == "posterior"


def test_the_best_attack_on_word_sets_names_most_words_right() -> None:
    records = [
        record("subset-8-1", "chance", near=0.9, exact=0.9, epsilon=8.0),
        record("subset-8-1", "mean", near=0.8, exact=0.1, epsilon=8.0),
        record("subset-8-1", "posterior", near=0.3, exact=0.4, epsilon=8.0),
        record("random-2", "mean", near=0.8, exact=0.1),
        record("random-2", "posterior", near=0.3, exact=0.4),
    ]
    rows = summarize_attacks(records)
    assert {scheme: row.attack for scheme, row in best_attacks(rows).items()} == {
        "subset-8-1": "posterior",
        "random-2": "mean",
    }
    assert best_attacks(rows, lambda row: row.below_near)["subset-8-1"].attack == "mean"
    assert best_attacks(rows, lambda row: 1.0)["random-2"].attack == "mean"  # among equals the nearer one


def test_each_table_ends_with_the_best_by_its_own_number() -> None:
    records = [
        record("random-2", "mean", near=0.8, exact=0.1),
        record("random-2", "lattice", near=0.3, exact=0.4),
        record("random-4", "mean", near=0.8, exact=0.0),
    ]
    grids = {part.splitlines()[0]: part.rstrip().splitlines()[-1] for part in attacks_markdown(records).split("## ")}
    lines = [line for heading, line in grids.items() if heading.startswith("lifting: ")]
    assert lines == ["| **best** | mean | mean |", "| **best** | mean | mean |", "| **best** | lattice | none |"]


def test_the_second_view_is_no_other_photograph() -> None:
    head = attacks_markdown(RECORDS).split("## ")[0]
    assert (
        "inlier and closest-pair" in head and "the victim's own photograph turned, tilted, smaller and darker" in head
    )


def test_an_epsilon_stands_beside_that_of_the_image() -> None:
    row = summarize_attacks(RECORDS)[-1]
    assert (row.epsilon, row.image_epsilon) == (8.0, 8.0 * 400)
    headings, cells = attack_cells([row])
    assert dict(zip(headings, cells[0], strict=True))["epsilon an image"] == "3,200"


def test_the_bound_stands_below_what_was_named_right() -> None:
    parts = attacks_markdown(RECORDS).split("## ")
    bounded = [part for part in parts if "| **bound: one release, all words equally common** | 15.4 |" in part]
    assert [part.splitlines()[0][:24] for part in bounded] == ["subset: exactly recovere"]
    assert bounded[0].rstrip().splitlines()[-2].startswith("| **best")


def test_tables_have_every_attack_and_a_dash_where_none_applies() -> None:
    text = attacks_markdown([*RECORDS, record("sub-hybrid-4", "chance", near=0.02)])
    grid = text.split("## ")[1]
    assert "| attack | sub-hybrid-2 | sub-hybrid-4 |" in grid
    assert "| nearest | 50.0 | - |" in grid
    assert "| **best** | nearest | - |" in grid
    assert "| oracle | 99.0 | - |" in grid


def test_the_figure_has_something_on_it(tmp_path: Path) -> None:
    draw_attacks(summarize_attacks(RECORDS), tmp_path / "a.png", "title")
    image = cv2.imread(str(tmp_path / "a.png"))
    assert image is not None and image.std() > 20


def test_nothing_is_cut_off_a_figure_of_one_scheme(tmp_path: Path) -> None:
    one = [record("sub-hybrid-2", "chance"), record("sub-hybrid-2", "mean")]
    draw_attacks(summarize_attacks(one), tmp_path / "a.png", "Attacks on a-dataset-with-a-name, rootsift")
    image = cv2.imread(str(tmp_path / "a.png"))
    assert image is not None
    assert image[:, :2].min() == image[:, -2:].min() == image[:2].min() == image[-2:].min() == 255


def test_other_records_and_none_at_all_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="not one of attacks"):
        summarize_attacks([Record("words", "x", "y", "z", 1.0, "", 1, 0, {})])
    with pytest.raises(InputError, match="no record"):
        attacks_markdown([])
    with pytest.raises(InputError, match="no result"):
        draw_attacks([], tmp_path / "a.png")
