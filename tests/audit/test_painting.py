"""What the best attackers of an audit see: painted once, compared with the photograph, skipped with a reason."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from featveil.attacks import ATTACKS, Guess, Knowledge
from featveil.audit import painting as audit_pictures
from featveil.audit.measuring import Audit
from featveil.audit.painting import Painting, file_name, paint_resumable
from featveil.audit.request import BUILT_IN, Request, Settings, grid, with_identity
from featveil.audit.roles import prepare
from featveil.audit.trials import Trial
from featveil.core import InputError, Points, PrivateFeatures, Subspaces, WordSets
from featveil.core.files import replacing
from featveil.core.records import Record, read_records
from featveil.extractors import read_image
from featveil.pipelines import painters

SCHEMES: tuple[dict[str, Any], ...] = (
    {"name": "lifting", "strategy": "sub-hybrid", "dimension": 2},
    {"name": "lifting", "strategy": "random", "dimension": 2, "keypoints": "apart"},
    {"name": "subset", "epsilon": 1.0, "geometry": True},
)
BEST = {
    (BUILT_IN, "sub-hybrid-2"): "database",
    (BUILT_IN, "random-2-apart"): "mean",
    (BUILT_IN, "subset-1-2-geometry"): "posterior",
}


@cache
def audit() -> Audit:
    schemes = with_identity(scheme for entries in SCHEMES for scheme in grid(entries, "sift"))
    methods = tuple(ATTACKS[name]() for name in ("database", "mean", "posterior"))
    return prepare(
        Request(tuple(schemes), settings=Settings(max_features=600, sample=5, seeds=(3, 4)), methods=methods)
    )


@pytest.fixture(scope="module")
def painted(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Record]]:
    folder = tmp_path_factory.mktemp("pictures")
    return folder, paint_resumable(audit(), BEST, folder)


def by_picture(records: list[Record]) -> dict[tuple[str, str | None], Record]:
    return {(record.scheme, record.attack): record for record in records}


def ssim(record: Record) -> float:
    assert record.metric == "reconstruction" and isinstance(record.value, tuple)
    return record.value[1]


def test_every_scheme_has_what_its_best_attacker_sees(painted: tuple[Path, list[Record]]) -> None:
    folder, records = painted
    plain = {(f"identity{sent}", attack) for sent in ("", "-apart", "-geometry") for attack in ("read", "chance")}
    assert set(by_picture(records)) == {
        ("photograph", None),
        *plain,
        *((scheme, BEST[key]) for key in BEST for scheme in key[1:]),
    }
    assert {record.seed for record in records} == {3} and {record.task for record in records} == {"audit pictures"}
    for record in records:
        picture = read_image(folder / str(record.parameters["picture"]))
        assert picture.shape == (367, 490, 3)
        assert record.parameters["victim"] == "board-1.jpg" and record.parameters["kind"] == "sift"
    assert len({record.parameters["picture"] for record in records}) == len(records)
    assert by_picture(records)["photograph", None].metric == "picture"


def test_attacks_that_work_show_the_photograph_and_others_do_not(painted: tuple[Path, list[Record]]) -> None:
    scores = {key: ssim(record) for key, record in by_picture(painted[1]).items() if key[1] is not None}
    raw, floor = scores["identity", "read"], scores["identity", "chance"]
    assert raw > floor + 0.02
    assert scores["sub-hybrid-2", "database"] > floor + 0.4 * (raw - floor)
    raw, floor = scores["identity-geometry", "read"], scores["identity-geometry", "chance"]
    assert raw > floor + 0.02
    assert scores["subset-1-2-geometry", "posterior"] < floor + 0.5 * (raw - floor)


def test_all_features_are_guessed_and_only_published_geometry_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: dict[str, PrivateFeatures] = {}

    def view(private: PrivateFeatures, guess: Guess, *others: Any) -> Any:
        assert len(private) == len(guess)
        shown = private.keypoints is not None and private.keypoints.scale is not None
        seen[f"{private.defense['name']} {shown}"] = private
        return painters.view(private, guess, *others)

    monkeypatch.setattr(audit_pictures, "view", view)
    paint_resumable(audit(), BEST, tmp_path)
    assert set(seen) == {"identity False", "identity True", "lifting False", "subset True"}
    assert len(seen["subset True"]) == 600  # and no sample of 5


def test_nothing_is_painted_twice(
    painted: tuple[Path, list[Record]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, records = painted
    for path in folder.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    asked: list[str] = []
    real = Painting.records

    def counted(self: Painting, unit: Any, wanted: tuple[str, ...]) -> Iterator[Record]:
        asked.extend(wanted)
        yield from real(self, unit, wanted)

    monkeypatch.setattr(Painting, "records", counted)
    assert paint_resumable(audit(), BEST, tmp_path) == records and asked == []
    (tmp_path / str(by_picture(records)["random-2-apart", "mean"].parameters["picture"])).unlink()
    assert paint_resumable(audit(), BEST, tmp_path) == records and asked == ["mean"]
    # Another best attack, and another inverter, give other pictures; those that are there stay.
    better = {**BEST, (BUILT_IN, "random-2-apart"): "chance"}
    again = paint_resumable(audit(), better, tmp_path)
    assert asked == ["mean", "chance"] and ("random-2-apart", "chance") in by_picture(again)
    assert len(read_records(tmp_path / "records.jsonl")) == len(records) + 2


def test_processes_change_nothing(painted: tuple[Path, list[Record]], tmp_path: Path) -> None:
    records = paint_resumable(audit(), BEST, tmp_path, processes=2)
    assert records == painted[1]
    for name in (str(record.parameters["picture"]) for record in records):
        assert np.array_equal(read_image(tmp_path / name), read_image(painted[0] / name))


def test_without_an_inverter_each_dataset_says_why(tmp_path: Path) -> None:
    (tmp_path / "other.onnx").write_bytes(b"no network")
    (record,) = paint_resumable(audit(), BEST, tmp_path / "out", tmp_path / "other.onnx")
    assert (record.metric, record.dataset, record.scheme) == ("skipped", BUILT_IN, "photograph")
    assert "other.onnx is no" in str(record.parameters["reason"])
    assert not (tmp_path / "out").exists()


def test_without_the_photograph_there_are_pictures_but_no_scores(tmp_path: Path) -> None:
    whole = audit()
    (victim,) = whole.datasets[0].victims
    for gone in (None, tmp_path / "gone.jpg", Path(__file__).with_name("photo.jpg")):
        dataset = replace(whole.datasets[0], victims=(replace(victim, photograph=gone, pasted=None),))
        few = replace(whole, datasets=(dataset,), schemes=whole.schemes[:1])
        records = by_picture(paint_resumable(few, {}, tmp_path / str(gone and gone.parent.name)))
        assert "not there any more" in str(records["photograph", None].parameters["reason"])
        assert {records["identity", attack].metric for attack in ("read", "chance")} == {"picture"}


@dataclass(frozen=True)
class Broken:
    """An attack that ends in an error."""

    name: ClassVar[str] = "broken"
    summary: ClassVar[str] = "ends in an error"
    breaks: ClassVar[tuple[type, ...]] = (Points, Subspaces, WordSets)
    needs: ClassVar[tuple[str, ...]] = ()
    uses: ClassVar[tuple[str, ...]] = ()
    alone: ClassVar[bool] = False

    def run(self, seen: PrivateFeatures, knowledge: Knowledge, rng: np.random.Generator) -> Guess:
        raise InputError("too many features")


def test_an_attack_that_fails_on_all_features_is_skipped(tmp_path: Path) -> None:
    whole = replace(audit(), trials=(Trial(Broken()),))
    records = by_picture(paint_resumable(whole, {(BUILT_IN, "sub-hybrid-2"): "broken"}, tmp_path))
    skipped = records["sub-hybrid-2", "broken"]
    assert skipped.metric == "skipped" and skipped.parameters["reason"] == "too many features"
    assert "picture" not in skipped.parameters and ssim(records["identity", "read"]) > 0


def test_an_inverter_that_needs_geometry_attacks_no_scheme_that_hides_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = painters.raw_painter("sift")
    encoding = replace(real.inverter.encoding, geometry="full")
    full = replace(real, inverter=replace(real.inverter, encoding=encoding))
    monkeypatch.setattr(audit_pictures, "raw_painter", lambda kind, path: full)
    records = by_picture(paint_resumable(audit(), BEST, tmp_path))
    assert "scale and orientation of keypoints, which are not sent" in str(
        records["sub-hybrid-2", "database"].parameters["reason"]
    )
    assert records["subset-1-2-geometry", "posterior"].metric == "reconstruction"


def test_names_of_files_stay_in_the_folder(tmp_path: Path) -> None:
    names = [
        file_name((dataset, "0", victim, "s", "a + b", "x"))
        for dataset, victim in (("../up", "a/b.png"), ("..", "a/c.png"), ("\0", "é" * 300), ("x" * 300, ".."))
    ]
    assert len(set(names)) == 4
    for name in names:
        assert Path(name).name == name and len(name) < 100
        with replacing(tmp_path / name) as temporary:
            temporary.write_bytes(b"")
