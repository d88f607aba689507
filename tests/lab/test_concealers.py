"""A study of concealers: three tasks on the same networks under the same names; its tables and figures."""

from collections.abc import Callable
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from featveil.core import ConcealingNetwork, InputError
from featveil.core.records import Parameter, Record, read_records
from featveil.databases import builtin
from featveil.datasets import load_hpatches, load_phototour
from featveil.defenses import Concealer
from featveil.extractors import SiftDescriber, read_image
from featveil.lab import scene_studies as scenes
from featveil.lab.bench import NothingToDrawError, Study, headings_and_cells
from featveil.lab.concealers import BENCH, check_networks, described_by, inverted_schemes, studies
from featveil.lab.concealers_parts import concealers_report
from featveil.lab.concealers_parts.concealers_report import columns_of, draw, draw_matching
from featveil.lab.inversion import BENCH as INVERSION
from featveil.lab.inversion import Experiment, Settings
from featveil.lab.inversion_parts.inversion_photos import read_photographs
from featveil.lab.matching import BENCH as MATCHING
from featveil.lab.papers import CONCEALED_SSIM, SOSNET
from featveil.lab.patches import Settings as PatchSettings
from featveil.lab.patches import Sources as PatchSources
from featveil.learning.encodings import Encoding
from featveil.pipelines.painters import Painter
from networks import identity_network, random_network
from painters import grey_painter
from patch_sets import write_patches
from photographs import write_photographs
from scenes import draw_turned_views

NETWORKS = (identity_network(), random_network(rank=0))


def painter_of(network: ConcealingNetwork, architecture: str = "unet") -> Painter:
    """An inverter that was trained, as its card says, on what a network gives."""
    spec = Concealer(network).for_kind("sift").spec()
    name = f"{network.name}-{architecture}.onnx"
    return grey_painter(Encoding(network.concealed_kind), spec, name, architecture=architecture)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Sequences, a patch set and photographs. Do not change them."""
    folder = tmp_path_factory.mktemp("data")
    for number in range(2):
        draw_turned_views(folder / "drawn" / f"v_{number}", seed=number)
    write_patches(folder / "patches")
    write_photographs(folder / "photos", test=2)
    return folder


Make = Callable[..., list[Study[Any]]]


@pytest.fixture
def make(folder: Path, tmp_path: Path) -> Make:
    """The three studies, with other inverters or sources where they are given."""

    def studies_of(direct: Any = None, sources: PatchSources | None = None) -> list[Study[Any]]:
        files = {path.name: path for path in (folder / "photos").iterdir()}
        usual = [painter_of(NETWORKS[0]), painter_of(NETWORKS[0], "uresnet"), painter_of(NETWORKS[1])]
        experiment = Experiment(
            "photos",
            read_photographs(files, 2, "sift", 40),
            inverted_schemes(NETWORKS, "sift"),
            (),
            grey_painter(),
            builtin(),
            direct or usual,
            settings=Settings("sift", 40),
        )
        sources = sources or PatchSources(load_hpatches(folder / "drawn"), [load_phototour(folder / "patches")])
        settings, matched = PatchSettings(20, 200, 10), scenes.Settings(max_features=100)
        return studies(NETWORKS, SiftDescriber(), sources, settings, matched, experiment, tmp_path / "pictures")

    return studies_of


def resumed(given: list[Study[Any]], path: Path) -> list[list[Record]]:
    return [study.bench.resume(study, path) for study in given if study.bench is not None]


def of_scheme(records: list[Record], scheme: str) -> list[Any]:
    return [record.value for record in records if record.scheme == scheme]


def test_every_task_knows_the_networks_by_one_name(make: Make, tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    described, matched, inverted = resumed(make(), path)
    names = {network.name for network in NETWORKS}
    assert {record.scheme for record in described} == {"raw", "chance", *names}
    assert {record.scheme for record in matched} == {"raw", "sub-hybrid-2", *names}
    assert {record.scheme for record in inverted} == {"identity", *names}
    assert {record.attack for record in inverted if record.scheme == NETWORKS[0].name} == {"direct", "direct (uresnet)"}
    assert {record.attack for record in inverted if record.scheme == NETWORKS[1].name} == {"direct"}
    assert len(read_records(path)) == len(described) + len(matched) + len(inverted)
    same, blind = (network.name for network in NETWORKS)
    assert of_scheme(described, same) == pytest.approx(of_scheme(described, "raw"), abs=1e-4)
    assert np.mean(of_scheme(matched, same)) > np.mean(of_scheme(matched, blind)) + 0.5
    before = path.read_bytes()
    assert resumed(make(), path) == [described, matched, inverted]
    assert path.read_bytes() == before


def test_an_inverter_of_another_network_is_refused(make: Make) -> None:
    with pytest.raises(InputError, match=r"was trained on concealer-1 with network .*, which no scheme here sends"):
        make(direct=[painter_of(random_network(seed=5))])


def test_networks_that_cannot_be_studied_together() -> None:
    check_networks(NETWORKS, "sift")
    with pytest.raises(InputError, match="conceals sift descriptors, not rootsift"):
        check_networks(NETWORKS, "rootsift")
    with pytest.raises(InputError, match="was named twice"):
        check_networks([*NETWORKS, NETWORKS[0]], "sift")


def test_matching_needs_sequences(make: Make, folder: Path) -> None:
    with pytest.raises(InputError, match="give a folder of scenes"):
        make(sources=PatchSources(None, [load_phototour(folder / "patches")]))


def test_photographs_are_described_again(folder: Path, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch", reason="networks: pip install 'featveil[learning]'")
    from featveil.learning.patch_networks import HardTFeat

    torch.manual_seed(0)
    torch.save(HardTFeat().state_dict(), tmp_path / "a.pth")
    files = {path.name: path for path in (folder / "photos").iterdir()}
    plain = read_photographs(files, 1, "sift", 30)
    learned = described_by(plain, Settings("hardtfeat", 30, weights=tmp_path / "a.pth"))
    assert [one.features.kind for one in learned] == ["hardtfeat"]
    assert plain[0].features.keypoints is not None and learned[0].features.keypoints is not None
    assert np.array_equal(learned[0].features.keypoints.xy, plain[0].features.keypoints.xy)
    assert replace(learned[0], features=plain[0].features).digest == plain[0].digest


MEASURES = ("verification intra", "verification inter", "matching", "retrieval")
ONE, TWO = "concealer-1-11111111", "concealer-2.5-22222222"
LAMBDAS = {ONE: 1.0, TWO: 2.5}


def patches(scheme: str, precision: float) -> list[Record]:
    common: dict[str, Parameter] = {"kind": "sift"}
    values = [("liberty", "FPR@95", "", 0.1)]
    values += [("seqs", measure, level, precision) for measure in MEASURES for level in ("easy", "hard")]
    return [
        Record("patches", dataset, scheme, name, value, "", 9, 0, {}, None, {**common, "measure": name, "level": level})
        for dataset, name, level, value in values
    ]


def matched(scheme: str, share: float, distance: str = "point-to-point") -> Record:
    lifted = scheme.startswith("sub")
    parameters: dict[str, Parameter] = {"strategy": "sub-hybrid" if lifted else scheme, "dimension": 2 if lifted else 0}
    parameters |= {"kind": "sift", "distance": distance}
    parameters |= {"lambda": LAMBDAS[scheme]} if scheme in LAMBDAS else {}
    value = tuple(share * place / 10 for place in range(1, 11))
    return Record("matching", "seqs", scheme, MATCHING.metric, value, "", 100, 0, {}, None, parameters)


def seen(scheme: str, attack: str, ssim: float) -> Record:
    parameters: dict[str, Parameter] = {"victim": "a", "kind": "sift", "seconds": 1.0}
    parameters |= {"defense": "concealer" if scheme in LAMBDAS else "identity"}
    parameters |= {"lambda": LAMBDAS[scheme]} if scheme in LAMBDAS else {}
    return Record(
        "inversion", "town", scheme, INVERSION.metric, (1 - ssim, ssim, 20 * ssim), "", 9, 0, {}, attack, parameters
    )


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
    results = BENCH.summarize(RECORDS)
    assert [(row.scheme, row.strength) for row in results.rows] == [("raw", None), (ONE, 1.0), (TWO, 2.5)]
    assert [row.name for row in results.rows] == ["raw", "lambda 1 (11111111)", "lambda 2.5 (22222222)"]
    assert [results.gain(row) for row in results.rows] == pytest.approx([0, 0.02, -0.05])
    # The best attack counts, whether it is the inverter or not.
    assert [(row.seen.attack, row.seen.ssim) for row in results.rows if row.seen] == [
        ("direct (uresnet)", 0.72),
        ("direct (uresnet)", 0.55),
        ("unconceal", 0.6),
    ]
    assert [row.attack for row in results.floors] == ["blank", "constant"]
    assert [row.distance for row in results.lifted] == ["point-to-subspace", "subspace-to-subspace"]
    assert results.chance is not None and results.chance.mean_precision == pytest.approx(0.1)
    raw, one, two = results.rows
    assert (raw.fresh("unet"), raw.fresh("uresnet")) == (raw.inversions[0], raw.inversions[1])
    assert one.inverted("unconceal") is None and two.inverted("direct (uresnet)") is None


def test_what_an_inverter_of_raw_descriptors_reads_is_not_that_of_a_fresh_one() -> None:
    others = [record for record in RECORDS if (record.scheme, record.attack) != (TWO, "direct")]
    _, one, two = BENCH.summarize([*others, seen(TWO, "read", 0.1)]).rows
    assert one.inverted("direct") is not None and two.inverted("direct") is None


def test_the_fresh_inverter_that_sees_most_counts() -> None:
    standard = [seen("identity", "direct (standardised)", 0.6), seen(ONE, "direct (standardised)", 0.58)]
    standard.append(seen(TWO, "direct (standardised)", 0.3))
    raw, one, two = BENCH.summarize([*RECORDS, *standard]).rows
    results = [row.fresh("unet") for row in (raw, one, two)]
    assert [row and (row.attack, row.ssim) for row in results] == [
        ("direct (standardised)", 0.6),  # of raw descriptors too, one of their own rather than the usual one
        ("direct (standardised)", 0.58),
        ("direct", 0.4),
    ]
    assert two.fresh("uresnet") is None


def test_the_line_of_a_network() -> None:
    results = BENCH.summarize(RECORDS)
    headings, lines = headings_and_cells(columns_of(results), results.rows)
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
    text = BENCH.markdown(RECORDS)
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
    text = BENCH.markdown([one for one in other if one.task != "patches" or one.scheme != ONE])
    assert "their hardnet SSIM" in text and "# Concealers of hardtfeat" in text  # whose loss HardTFeat has
    assert "| lambda 7 (11111111) | +0.250 | - | 0.500 | 0.500 | 10.00 | - | - | - |" in text
    assert "| lambda 7 (11111111) | - | - | - | - | - | - | 22.5 |" in text


def test_only_some_tasks(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="figures: pip install 'featveil[plots]'")
    only = [record for record in RECORDS if record.task == "matching"]
    text = BENCH.markdown(only)
    assert "Beside NinjaDesc" not in text and "Mean matching accuracy" in text
    with pytest.raises(NothingToDrawError, match="no inverter of a concealer was given"):
        draw(BENCH.summarize(only), tmp_path / "a.png")
    utility = [record for record in RECORDS if record.task == "patches"]
    with pytest.raises(NothingToDrawError, match="no result of image matching"):
        draw_matching(BENCH.summarize(utility), tmp_path / "a.png")
    with pytest.raises(InputError, match="no record of raw descriptors"):
        BENCH.summarize([record for record in RECORDS if record.task == "inversion"])
    assert list(tmp_path.iterdir()) == []


def test_both_figures(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="figures: pip install 'featveil[plots]'")
    results = BENCH.summarize(RECORDS)
    draw(results, tmp_path / "a.png", "sift")
    draw_matching(results, tmp_path / "b.png", "sift")
    for name in "ab":
        picture = read_image(tmp_path / f"{name}.png")
        assert picture.shape[1] > 700 and len(set(map(tuple, picture.reshape(-1, 3)[::97]))) > 5


def test_labels_of_networks_that_are_alike_lie_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("matplotlib", reason="figures: pip install 'featveil[plots]'")
    figures: list[Any] = []
    monkeypatch.setattr(concealers_report, "write_figure", lambda figure, path, title: figures.append(figure))
    alike = [
        record
        if record.scheme != TWO or record.task != "inversion"
        else seen(TWO, str(record.attack), 0.5 + 0.001 * place)
        for place, record in enumerate(RECORDS)
    ]
    draw(BENCH.summarize([*alike, seen(ONE, "unconceal", 0.501)]), tmp_path / "a.png")
    (figure,) = figures
    figure.draw_without_rendering()
    boxes = [text.get_window_extent() for text in figure.axes[0].texts]
    assert len(boxes) == 6  # raw once, and both networks by three attacks less the one that is missing
    assert [pair for pair in combinations(boxes, 2) if pair[0].overlaps(pair[1])] == []


def test_the_papers_numbers_agree_with_each_other() -> None:
    for strength, ssim in CONCEALED_SSIM["sosnet"].items():
        assert SOSNET["unet"][strength][1] == ssim
    assert all(list(results.values()) == sorted(results.values(), reverse=True) for results in CONCEALED_SSIM.values())
