"""Records of inverted photographs -> rows, tables, curves and a grid."""

from pathlib import Path

import cv2
import numpy as np
import pytest

from featveil.core import InputError
from featveil.core.records import Parameter, Record
from featveil.lab.inversion_curves import draw_inversion
from featveil.lab.inversion_grid import Seen, draw_inversion_grid
from featveil.lab.inversion_papers import LDP_FEAT, LIFTING
from featveil.lab.inversion_report import (
    best_inversions,
    inversion_cells,
    inversion_columns,
    inversion_markdown,
    summarize_inversion,
)


def record(scheme: str, attack: str, ssim: float, victim: str = "a", **more: Parameter) -> Record:
    """One attack on one photograph."""
    defense = {"identity": "identity", "subset": "subset"}.get(scheme.split("-")[0], "lifting")
    parameters: dict[str, Parameter] = {"victim": victim, "kind": "sift", "max_features": 500, "defense": defense}
    parameters |= {"geometry": "positions", "part": "test", "seconds": 2.0, "features": 400}
    parameters |= {"inverter": "0123", "inverter_name": "raw.onnx"}
    if defense == "lifting":
        parameters |= {"strategy": scheme.rpartition("-")[0], "dimension": int(scheme.rpartition("-")[2])}
    if defense == "subset":
        _, epsilon, k = scheme.split("-")
        parameters |= {"epsilon": float(epsilon), "image_epsilon": 400 * float(epsilon), "subset_size": int(k)}
    value = (1 - ssim, ssim, 20 * ssim)
    return Record("inversion", "town", scheme, "m", value, "", 400, 3, {}, attack, {**parameters, **more})


RECORDS = [
    record("identity", "blank", 0.37),
    record("identity", "chance", 0.36),
    record("identity", "constant", 0.45),
    record("identity", "read", 0.6),
    record("identity", "read", 0.8, "b"),
    record("identity", "read + geometry", 0.9),
    record("random-2", "nearest", 0.65),
    record("sub-hybrid-2", "nearest", 0.4, median_distance=0.5, answered=1.0),
    record("sub-hybrid-2", "database", 0.62),
    record("sub-hybrid-2", "oracle", 0.69),
    record("sub-hybrid-2", "direct", 0.5),
    record("sub-hybrid-4", "nearest", 0.39),
    record("sub-hybrid-4", "database", 0.61),
    record("subset-10-2", "posterior", 0.42),
    record("subset-14-2", "posterior", 0.5),
]


def test_photographs_count_alike() -> None:
    row = next(row for row in summarize_inversion(RECORDS) if row.attack == "read")
    assert (row.ssim, row.mae, row.psnr, row.photographs) == pytest.approx((0.7, 0.3, 14, 2))
    assert row.spread == pytest.approx(0.1) and row.distance is None and row.seconds == 2
    nearest = next(row for row in summarize_inversion(RECORDS) if row.scheme == "sub-hybrid-2")
    assert (nearest.distance, nearest.answered, nearest.dimension) == (0.5, 1, 2)


def test_the_best_attack_is_no_floor_no_oracle_and_sees_what_is_sent() -> None:
    best = {scheme: row.attack for scheme, row in best_inversions(summarize_inversion(RECORDS)).items()}
    assert best == {
        "identity": "read",
        "random-2": "nearest",
        "sub-hybrid-2": "database",
        "sub-hybrid-4": "database",
        "subset-10-2": "posterior",
        "subset-14-2": "posterior",
    }


def test_a_grid_shows_raw_descriptors_every_scheme_by_its_best_attack_and_positions_alone() -> None:
    columns = inversion_columns(summarize_inversion(RECORDS))
    assert columns[0] == ("identity", "read") and columns[-1] == ("identity", "constant")
    assert columns[1:3] == [("random-2", "nearest"), ("sub-hybrid-2", "database")] and len(columns) == 7


def test_floors_and_raw_descriptors_stand_in_every_table() -> None:
    parts = inversion_markdown(RECORDS).split("\n## ")
    assert [part.splitlines()[0] for part in parts[1:]] == [
        "lifting: SSIM",
        "subset: SSIM",
        "Beside the papers",
        "All figures",
    ]
    lines = parts[1].splitlines()
    assert lines[2] == "| attack | random-2 | sub-hybrid-2 | sub-hybrid-4 |"
    assert lines[4:7] == [
        "| blank | 0.370 | 0.370 | 0.370 |",
        "| chance | 0.360 | 0.360 | 0.360 |",
        "| constant | 0.450 | 0.450 | 0.450 |",
    ]
    assert "| direct | - | 0.500 | - |" in lines and "| nearest | 0.650 | 0.400 | 0.390 |" in lines
    assert lines[-3:-1] == [
        "| raw descriptors: read | 0.700 | 0.700 | 0.700 |",
        "| raw descriptors: read + geometry | 0.900 | 0.900 | 0.900 |",
    ]
    assert lines[-1] == "| **best** | nearest 0.650 | database 0.620 | database 0.610 |"
    assert "2 photographs of the test part" in parts[0] and "positions only" in parts[0]
    assert "raw.onnx (0123)" in parts[0] and "seed 3" in parts[0]


def test_the_papers_numbers_stand_beside_ours() -> None:
    part = inversion_markdown(RECORDS).split("## Beside the papers")[1].split("## ")[0]
    assert "| sub-hybrid-2 | database | 0.380 | 0.620 | 12.40 | 0.095 | 0.657 | 18.26 | - | - | - |" in part
    assert "| sub-hybrid-2 | direct | 0.500 | 0.500 | 10.00 | 0.119 | 0.500 | 16.35 | 0.150 | 0.653 | 14.96 |" in part
    assert "| random-2 | nearest | 0.350 | 0.650 | 13.00 | - | - | - | 0.111 | 0.740 | 17.39 |" in part
    assert "oracle" not in part and "posterior" not in part


def test_the_papers_tables_are_whole() -> None:
    counts = {attack: sum(one == attack for _, one in LDP_FEAT) for attack in ("nearest", "clustering", "database")}
    assert counts == {"nearest": 4, "clustering": 4, "database": 4}
    assert len(LDP_FEAT) == 1 + 16 + 12 and len(LIFTING) == 6
    for figures in (*LDP_FEAT.values(), *LIFTING.values()):
        mae, ssim, psnr = figures
        assert 0.09 <= mae < 0.2 and 0.24 < ssim < 0.78 and 12 < psnr < 19


def test_an_epsilon_stands_beside_that_of_the_image() -> None:
    headings, cells = inversion_cells(summarize_inversion(RECORDS))
    shown = dict(zip(headings, cells[-2], strict=True))
    assert (shown["scheme"], shown["epsilon"], shown["epsilon an image"]) == ("subset-10-2", "10", "4,000")


@pytest.mark.parametrize("records", [RECORDS, RECORDS[:5], RECORDS[:8], RECORDS[-2:]])
def test_the_figure_has_something_on_it(tmp_path: Path, records: list[Record]) -> None:
    pytest.importorskip("matplotlib")
    draw_inversion(summarize_inversion(records), tmp_path / "a.png", "title")
    image = np.asarray(cv2.imread(str(tmp_path / "a.png")))
    assert image.std() > 5
    assert image[:, :2].min() == image[:, -2:].min() == image[:2].min() == image[-2:].min() == 255


def test_the_grid_shows_the_pictures(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    red, blue = (np.full((64, 64, 3), colour, np.uint8) for colour in ((255, 0, 0), (0, 0, 255)))
    columns = [("identity", "read"), ("sub-hybrid-16", "posterior-overlap + database")]
    draw_inversion_grid(columns, [red, red], [[Seen(blue, 0.5), None], [Seen(blue, 0.25)] * 2], tmp_path / "g.png")
    image = np.asarray(cv2.imread(str(tmp_path / "g.png"))).reshape(-1, 3)
    shares = [(image == colour).all(axis=1).mean() for colour in ((0, 0, 255), (255, 0, 0))]
    assert shares[1] == pytest.approx(1.5 * shares[0], rel=0.02) and shares[0] > 0.15
    with pytest.raises(InputError, match="nothing to show"):
        draw_inversion_grid(columns, [], [], tmp_path / "h.png")


def test_other_records_and_none_at_all_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="not one of inversion"):
        summarize_inversion([Record("words", "x", "y", "z", 1.0, "", 1, 0, {})])
    with pytest.raises(InputError, match="three values"):
        summarize_inversion([Record("inversion", "x", "y", "z", 1.0, "", 1, 0, {}, "read")])
    with pytest.raises(InputError, match="no record"):
        inversion_markdown([])
    with pytest.raises(InputError, match="no result"):
        draw_inversion([], tmp_path / "a.png")
