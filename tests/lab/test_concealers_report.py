"""Tables and figures of a study of concealers, from records."""

from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

from featveil.core import InputError
from featveil.core.records import Parameter, Record
from featveil.extractors import read_image
from featveil.lab import concealer_figures
from featveil.lab.concealer_figures import draw_concealed_matching, draw_concealers
from featveil.lab.concealers_report import concealer_cells, concealer_markdown, summarize_concealers
from featveil.lab.ninjadesc import SOSNET, SSIM

MEASURES = ("verification intra", "verification inter", "matching", "retrieval")
ONE, TWO = "concealer-1-11111111", "concealer-2.5-22222222"
LAMBDAS = {ONE: 1.0, TWO: 2.5}


def patches(scheme: str, precision: float) -> list[Record]:
    common: dict[str, Parameter] = {"kind": "sift"}
    made = [("liberty", "FPR@95", "", 0.1)]
    made += [("seqs", measure, level, precision) for measure in MEASURES for level in ("easy", "hard")]
    return [
        Record("patches", dataset, scheme, name, value, "", 9, 0, {}, None, {**common, "measure": name, "level": level})
        for dataset, name, level, value in made
    ]


def matched(scheme: str, share: float, distance: str = "point-to-point") -> Record:
    lifted = scheme.startswith("sub")
    parameters: dict[str, Parameter] = {"strategy": "sub-hybrid" if lifted else scheme, "dimension": 2 if lifted else 0}
    parameters |= {"kind": "sift", "distance": distance}
    parameters |= {"lambda": LAMBDAS[scheme]} if scheme in LAMBDAS else {}
    value = tuple(share * place / 10 for place in range(1, 11))
    return Record("matching", "seqs", scheme, "m", value, "", 100, 0, {}, None, parameters)


def seen(scheme: str, attack: str, ssim: float) -> Record:
    parameters: dict[str, Parameter] = {"victim": "a", "kind": "sift", "seconds": 1.0}
    parameters |= {"defense": "concealer" if scheme in LAMBDAS else "identity"}
    parameters |= {"lambda": LAMBDAS[scheme]} if scheme in LAMBDAS else {}
    return Record("inversion", "town", scheme, "m", (1 - ssim, ssim, 20 * ssim), "", 9, 0, {}, attack, parameters)


RECORDS = [
    *patches("raw", 0.5),
    *patches(TWO, 0.45),
    *patches(ONE, 0.52),
    *patches("chance", 0.1),
    matched("raw", 0.8),
    matched(TWO, 0.7),
    matched(ONE, 0.75),
    matched("sub-hybrid-2", 0.6, "point-to-subspace"),
    matched("sub-hybrid-2", 0.5, "subspace-to-subspace"),
    seen("identity", "blank", 0.3),
    seen("identity", "constant", 0.35),
    seen("identity", "read", 0.7),
    seen("identity", "direct (uresnet)", 0.72),
    seen(ONE, "direct", 0.5),
    seen(ONE, "direct (uresnet)", 0.55),
    seen(TWO, "direct", 0.4),
    seen(TWO, "unconceal", 0.6),
]


def test_rows_are_raw_and_then_by_lambda() -> None:
    found = summarize_concealers(RECORDS)
    assert [(row.scheme, row.strength) for row in found.rows] == [("raw", None), (ONE, 1.0), (TWO, 2.5)]
    assert [row.name for row in found.rows] == ["raw", "lambda 1 (11111111)", "lambda 2.5 (22222222)"]
    assert [found.gain(row) for row in found.rows] == pytest.approx([0, 0.02, -0.05])
    # The best attack counts, whether it is the inverter or not.
    assert [(row.seen.attack, row.seen.ssim) for row in found.rows if row.seen] == [
        ("direct (uresnet)", 0.72),
        ("direct (uresnet)", 0.55),
        ("unconceal", 0.6),
    ]
    assert [row.attack for row in found.floors] == ["blank", "constant"]
    assert [row.distance for row in found.lifted] == ["point-to-subspace", "subspace-to-subspace"]
    assert found.chance is not None and found.chance.mean_precision == pytest.approx(0.1)
    raw, one, two = found.rows
    assert (raw.fresh("unet"), raw.fresh("uresnet")) == (raw.inversions[0], raw.inversions[1])
    assert one.inverted("unconceal") is None and two.inverted("direct (uresnet)") is None


def test_what_an_inverter_of_raw_descriptors_reads_is_not_that_of_a_fresh_one() -> None:
    others = [record for record in RECORDS if (record.scheme, record.attack) != (TWO, "direct")]
    _, one, two = summarize_concealers([*others, seen(TWO, "read", 0.1)]).rows
    assert one.inverted("direct") is not None and two.inverted("direct") is None


def test_the_fresh_inverter_that_sees_most_counts() -> None:
    standard = [seen("identity", "direct (standardised)", 0.6), seen(ONE, "direct (standardised)", 0.58)]
    standard.append(seen(TWO, "direct (standardised)", 0.3))
    raw, one, two = summarize_concealers([*RECORDS, *standard]).rows
    found = [row.fresh("unet") for row in (raw, one, two)]
    assert [row and (row.attack, row.ssim) for row in found] == [
        ("direct (standardised)", 0.6),  # of raw descriptors too, one of their own rather than the usual one
        ("direct (standardised)", 0.58),
        ("direct", 0.4),
    ]
    assert two.fresh("uresnet") is None


def test_the_line_of_a_network() -> None:
    headings, lines = concealer_cells(summarize_concealers(RECORDS))
    line = dict(zip(headings, lines[1], strict=True))
    assert line == {
        "descriptors": "lambda 1 (11111111)",
        "FPR@95 liberty": "10.00",
        "verification": "52.00",
        "matching": "52.00",
        "retrieval": "52.00",
        "mean mAP": "52.00",
        "to raw": "+2.00",
        "MMA@3": "22.5",
        "right@3": "22",
        "SSIM seen": "0.550",
        "by": "direct (uresnet)",
    }


def test_theirs_stand_beside_ours() -> None:
    text = concealer_markdown(RECORDS)
    beside = text.partition("## Beside NinjaDesc")[2].partition("##")[0]
    lines = {
        line.split(" | ")[0].strip("| "): line.strip("| ").split(" | ") for line in beside.splitlines() if "|" in line
    }
    assert lines["raw"][1:] == [
        *("+0.420", "0.553"),
        *("0.300", "0.700", "14.00", "0.104", "0.596", "17.90"),
        *("0.280", "0.720", "14.40", "0.121", "0.595", "16.53"),
    ]
    assert lines["lambda 2.5 (22222222)"][1:] == [
        *("+0.300", "0.296"),
        *("0.600", "0.400", "8.00", "0.212", "0.349", "12.01"),
        *("-", "-", "-", "0.202", "0.380", "12.30"),
    ]
    assert "| floor | blank | 0.700 | 0.300 |" in text and "| lambda 2.5 (22222222) | unconceal |" in text
    assert "| sub-hybrid lifting m = 2, subspace-to-subspace | 5.0 |" in text
    assert max(len(line) for line in text.splitlines() if not line.startswith("|")) <= 120


def test_a_lambda_and_a_kind_that_they_have_not() -> None:
    own = [
        Record(**{**vars(one), "parameters": {**one.parameters, "kind": "hardtfeat"}})
        for one in RECORDS
        if one.scheme != TWO
    ]
    other = [
        Record(**{**vars(one), "parameters": {**one.parameters, "lambda": 7.0}}) if one.scheme == ONE else one
        for one in own
    ]
    text = concealer_markdown([one for one in other if one.task != "patches" or one.scheme != ONE])
    assert "their hardnet SSIM" in text and "# Concealers of hardtfeat" in text  # whose loss HardTFeat has
    assert "| lambda 7 (11111111) | +0.250 | - | 0.500 | 0.500 | 10.00 | - | - | - |" in text
    assert "| lambda 7 (11111111) | - | - | - | - | - | - | 22.5 |" in text


def test_only_some_tasks(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="figures: pip install 'featveil[plots]'")
    only = [record for record in RECORDS if record.task == "matching"]
    text = concealer_markdown(only)
    assert "Beside NinjaDesc" not in text and "Mean matching accuracy" in text
    with pytest.raises(InputError, match="no inverter of a concealer was given"):
        draw_concealers(summarize_concealers(only), tmp_path / "a.png")
    utility = [record for record in RECORDS if record.task == "patches"]
    with pytest.raises(InputError, match="no result of image matching"):
        draw_concealed_matching(summarize_concealers(utility), tmp_path / "a.png")
    with pytest.raises(InputError, match="no record of raw descriptors"):
        summarize_concealers([record for record in RECORDS if record.task == "inversion"])
    assert list(tmp_path.iterdir()) == []


def test_both_figures(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="figures: pip install 'featveil[plots]'")
    found = summarize_concealers(RECORDS)
    draw_concealers(found, tmp_path / "a.png", "sift")
    draw_concealed_matching(found, tmp_path / "b.png", "sift")
    for name in "ab":
        picture = read_image(tmp_path / f"{name}.png")
        assert picture.shape[1] > 700 and len(set(map(tuple, picture.reshape(-1, 3)[::97]))) > 5


def test_labels_of_networks_that_are_alike_lie_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("matplotlib", reason="figures: pip install 'featveil[plots]'")
    figures: list[Any] = []
    monkeypatch.setattr(concealer_figures, "write_figure", lambda figure, path, title: figures.append(figure))
    alike = [
        record
        if record.scheme != TWO or record.task != "inversion"
        else seen(TWO, str(record.attack), 0.5 + 0.001 * place)
        for place, record in enumerate(RECORDS)
    ]
    draw_concealers(summarize_concealers([*alike, seen(ONE, "unconceal", 0.501)]), tmp_path / "a.png")
    (figure,) = figures
    figure.draw_without_rendering()
    boxes = [text.get_window_extent() for text in figure.axes[0].texts]
    assert len(boxes) == 6  # raw once, and both networks by three attacks less the one that is missing
    assert [pair for pair in combinations(boxes, 2) if pair[0].overlaps(pair[1])] == []


def test_the_papers_numbers_agree_with_each_other() -> None:
    for strength, ssim in SSIM["sosnet"].items():
        assert SOSNET["unet"][strength][1] == ssim
    assert all(list(found.values()) == sorted(found.values(), reverse=True) for found in SSIM.values())
