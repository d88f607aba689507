"""The bench of the gate: gated queries of the rendered room, with pictures in them that its map has never seen."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
from typer.testing import CliRunner, Result

from featveil.cli.bench import app
from featveil.core import FeatveilError, InputError
from featveil.core.records import Parameter, Record, read_records
from featveil.lab.gate import BENCH
from featveil.lab.gate_parts.gate_report import draw, rows_of
from featveil.lab.gate_parts.gate_subjects import (
    LEAKED,
    LEAKED_METRIC,
    MEASURED,
    METRIC,
    PASSED_METRIC,
)
from featveil.lab.gate_parts.gate_variants import Variant, make_variants

SCHEMES = ["gate", "gate-tau-0.1", "gate-no-contrast", "gate-both", "gate-candidates-1", "raw"]
QUICK = "--every 5 --taus 0.1 --supports both --sketches 16 --epsilons none --dimensions none --shares 0.1,0.2"


@pytest.fixture(scope="module")
def elsewhere(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Blurred noise, which no map knows."""
    noise = np.random.default_rng(7).integers(0, 256, (60, 80), np.uint8)
    folder = tmp_path_factory.mktemp("elsewhere")
    cv2.imwrite(str(folder / "noise.png"), cv2.resize(noise, (640, 480), interpolation=cv2.INTER_CUBIC))
    return folder


def invoke(scene: Path, elsewhere: Path, out: Path, more: str = "") -> Result:
    arguments = f"gate {scene} {QUICK} --max-features 800 --retrieved 2 --elsewhere {elsewhere} --out {out} {more}"
    return CliRunner().invoke(app, arguments.split())


@pytest.fixture(scope="module")
def out(strecha_room: Path, elsewhere: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of one run; copy it before changing it."""
    folder = tmp_path_factory.mktemp("gate") / "results"
    result = invoke(strecha_room, elsewhere, folder)
    assert result.exit_code == 0, result.output
    return folder


@pytest.fixture(scope="module")
def records(out: Path) -> list[Record]:
    return read_records(out / "records.jsonl")


def test_what_is_measured(records: list[Record]) -> None:
    """Two queries; content at both shares for the usual gate and for raw, at one for the others."""
    placed = [one for one in records if one.metric == METRIC]
    leaked = [one for one in records if one.metric == LEAKED_METRIC]
    passed = [one for one in records if one.metric == PASSED_METRIC]
    assert sorted({one.scheme for one in placed}) == sorted(SCHEMES) and len(placed) == 2 * len(SCHEMES)
    assert len(leaked) == 2 * (2 * 2 + len(SCHEMES) - 2) and len(passed) == len(SCHEMES) - 1
    assert len({str(one.parameters["content"]) for one in leaked}) > 1


def test_gated_queries_are_localized(records: list[Record]) -> None:
    rows = {row.scheme: row for row in rows_of(records).placed}
    assert rows["raw"].within == rows["gate"].within == 1
    assert 0.3 < rows["gate"].sent < 1 and rows["raw"].sent == 1
    assert rows["gate-tau-0.1"].sent < rows["gate"].sent <= rows["gate-no-contrast"].sent
    assert rows["gate"].size < rows["raw"].size / 15
    assert rows["gate"].tau is not None and rows["raw"].tau is None


def test_what_the_map_has_never_seen_stays_away(records: list[Record]) -> None:
    rows = rows_of(records)
    leaked = {(row.scheme, row.share): row for row in rows.leaked}
    for share in (0.1, 0.2):
        assert leaked["raw", share].near == leaked["raw", share].sent == 1
        assert leaked["gate", share].near <= leaked["gate", share].sent < 0.1 < leaked["gate", share].mapped
        assert leaked["gate", share].private > 20 and leaked["raw", share].hole is None
    (usual,) = (row for row in rows.passed if row.scheme == "gate")
    assert (usual.photographs, usual.taken) == (1, 0) and usual.mean < 0.05


def test_files(out: Path) -> None:
    names = {path.name for path in out.iterdir()}
    assert names == {"records.jsonl", "table.md", "curve.png", "portrait.png", "maps"}
    table = (out / "table.md").read_text("utf-8")
    assert "## room\n" in table and "private content" in table and "photographs from elsewhere" in table
    assert table == BENCH.markdown(read_records(out / "records.jsonl"))
    for name in ("curve.png", "portrait.png"):
        assert cv2.imread(str(out / name)) is not None


def test_a_finished_run_measures_nothing(strecha_room: Path, elsewhere: Path, out: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(out, copy)
    before = (copy / "records.jsonl").read_bytes()
    shown = invoke(strecha_room, elsewhere, copy, "--json")
    assert shown.exit_code == 0 and (copy / "records.jsonl").read_bytes() == before
    facts: dict[str, Any] = json.loads(shown.stdout)
    assert "placed" in json.dumps(facts)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ("--sketches tiny", "number of bytes"),
        ("--sketches 0", "number of bytes"),
        ("--supports all", "unknown support"),
        ("--taus 0", "tau"),
        ("--shares 1.5", "share"),
        ("--every 0", "every"),
        ("--private nowhere", "nowhere"),
        ("--elsewhere nowhere", "nowhere"),
        ("--dimensions 0", "dimension"),
        ("--seed -1", "seed"),
    ],
)
def test_mistakes(more: str, message: str, strecha_room: Path, elsewhere: Path, tmp_path: Path) -> None:
    result = invoke(strecha_room, elsewhere, tmp_path / "o", more)
    assert result.exit_code != 0 and message in result.output + str(result.exception)
    assert isinstance(result.exception, FeatveilError | SystemExit)
    assert not (tmp_path / "o" / "records.jsonl").exists()


def test_variants_differ_in_one_thing_each() -> None:
    variants = make_variants(["16", "32", "exact"], [0.3], ["both"], [10.0])
    assert [one.name for one in variants] == [
        *("gate", "gate-32-bytes", "gate-exact", "gate-tau-0.3", "gate-no-contrast", "gate-both"),
        *("gate-candidates-1", "gate-subset-10"),
    ]
    assert variants[0] == Variant() and variants[-1].epsilon == 10


def placed(scheme: str, query: str, inliers: float, centre: float, **more: Parameter) -> Record:
    values = {"sent": 0.5, "inliers": inliers, "localized": 1.0, "rotation": 0.1, "centre": centre}
    values |= {"bytes": 1000.0, "device": 5.0, "server": 7.0}
    return of(scheme, query, METRIC, tuple(values[name] for name in MEASURED), more)


def leaked(scheme: str, query: str, near: float, private: int) -> Record:
    values = {"private sent": near, "private near": near, "private close": 0.0, "mapped sent": 0.5, "hole": 0.4}
    values |= {"inliers": 50.0, "localized": 1.0, "rotation": 0.1, "centre": 0.01}
    more: dict[str, Parameter] = {"private": private, "mapped": 100, "content": "cat", "share": 0.1}
    return of(scheme, query, LEAKED_METRIC, tuple(values[name] for name in LEAKED), more)


def of(scheme: str, query: str, metric: str, value: tuple[float, ...], more: dict[str, Parameter]) -> Record:
    parameters: dict[str, Parameter] = {"query": query, "content": "", "share": 0.0, "kind": "sift", **more}
    return Record("gate", "hall", scheme, metric, value, "", 10, 0, {}, parameters=parameters)


def test_rows_by_hand() -> None:
    """Inliers are compared query by query, shares of private features weighed by how many there are."""
    records = [
        placed("raw", "a", 100, 0.01),
        placed("raw", "b", 300, 0.2),
        placed("gate", "a", 90, 0.01, tau=0.3),
        placed("gate", "b", 110, 0.01, tau=0.4),
        leaked("gate", "a", 0.5, 10),
        leaked("gate", "b", 0.0, 90),
    ]
    rows = rows_of(records)
    raw, gate = rows.placed
    assert (raw.within, gate.within, gate.of_raw, gate.tau) == pytest.approx((0.5, 1, 200 / 400, 0.35))
    assert rows.leaked[0].near == pytest.approx(0.05)
    assert (rows.leaked[0].private, rows.leaked[0].of_raw) == (100, None)


def test_records_of_something_else() -> None:
    one = placed("gate", "a", 90, 0.01)
    with pytest.raises(InputError, match="another metric"):
        rows_of([replace(one, metric="accuracy")])
    with pytest.raises(InputError, match="lacks some of its values"):
        rows_of([replace(one, value=(1.0, 2.0))])
    with pytest.raises(InputError, match="twice"):
        rows_of([one, one])
    bare = leaked("gate", "a", 0.5, 10)
    with pytest.raises(InputError, match="damaged"):
        rows_of([replace(bare, parameters={**bare.parameters, "private": None})])


def test_a_figure_of_few_records(tmp_path: Path) -> None:
    draw(rows_of([placed("gate", "a", 90, 0.01)]), tmp_path / "curve.png")
    assert cv2.imread(str(tmp_path / "curve.png")) is not None
