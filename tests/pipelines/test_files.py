"""The verbs as Python functions: a request of files in, a result out; warnings are logged, nothing is printed."""

import logging
from pathlib import Path

import pytest

import featveil as fv
from featveil.formats import hloc, private_hloc
from featveil.pipelines.extract import ExtractRequest, extract_files
from featveil.pipelines.localize import LocalizeRequest, localize_files
from featveil.pipelines.map import MapRequest, map_files
from featveil.pipelines.match import MatchRequest, match_files
from featveil.pipelines.match_parts.match_many import match_many
from featveil.pipelines.privatize import PrivatizeRequest, privatize_files
from featveil.registry import defense_options
from rooms import Room, RoomFiles, write_files

Options = defense_options()


@pytest.fixture(scope="module")
def files(room: Room, strecha_room: Path, tmp_path_factory: pytest.TempPathFactory) -> RoomFiles:
    """Do not change them."""
    return write_files(room, strecha_room / "images", tmp_path_factory.mktemp("files"))


@pytest.fixture(autouse=True)
def nothing_is_printed(capsys: pytest.CaptureFixture[str]) -> object:
    yield
    assert capsys.readouterr().out == ""


def test_extract_counts_and_reports(files: RoomFiles, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    reports: list[tuple[int, int]] = []
    (tmp_path / "text.jpg").write_text("no image")
    request = ExtractRequest((files.images, tmp_path / "text.jpg"), tmp_path / "out", max_features=50)
    result = extract_files(request, lambda done, total: reports.append((done, total)))
    assert (result.written, result.skipped, result.failed) == (6, 0, 1) and result.features == 300
    assert reports == [(done, 7) for done in range(1, 8)]
    assert [record.levelno for record in caplog.records] == [logging.WARNING] and "text.jpg" in caplog.text
    assert extract_files(ExtractRequest((files.images,), tmp_path / "out")).skipped == 6


def test_privatize_charges_and_sums_up(files: RoomFiles, tmp_path: Path) -> None:
    ledger = tmp_path / "budgets.sqlite"
    fv.Ledger(ledger).set_budget("me", 1e6)
    request = PrivatizeRequest(
        (files.raw,), tmp_path / "out.h5", defense="subset", ledger=ledger, subject="me", max_features=20
    )
    summary = privatize_files(request, Options(epsilon=10.0)).summary
    assert summary is not None and summary.guarantee.kind == "local-dp"
    assert (summary.images, summary.features, summary.largest) == (6, 120, 20)
    assert (summary.image_epsilon, summary.total_epsilon) == (200, 1200)
    assert summary.budget_left == pytest.approx(1e6 - 1200)
    with pytest.raises(fv.InputError, match="--resume"):
        privatize_files(request, Options(epsilon=10.0))


def test_match_one_pair_and_many(room: Room, files: RoomFiles, tmp_path: Path) -> None:
    for name in room.names[:2]:
        fv.save(hloc.read(files.raw, name), tmp_path / f"{name}.veil")
    one, two = (tmp_path / f"{name}.veil" for name in room.names[:2])
    result = match_files(MatchRequest(one, two, out=tmp_path / "m.npz"))
    assert len(result.matches) > 100 and result.inliers is not None and (tmp_path / "m.npz").exists()
    assert (result.a.private, result.a.protection) == (False, None)
    request = MatchRequest(files.lifted, files.raw, tmp_path / "pairs.txt", out=tmp_path / "m.h5")
    (tmp_path / "pairs.txt").write_text(f"{room.names[0]} {room.names[1]}\n")
    assert request.of_many and match_many(request).pairs == 1
    assert match_many(request).skipped == 1


def test_map_and_localize(room: Room, files: RoomFiles, tmp_path: Path) -> None:
    stages: dict[str, tuple[int, int]] = {}

    def report(stage: str, done: int, total: int) -> None:
        stages[stage] = done, total

    request = MapRequest(files.raw, tmp_path / "map", defense="raw", cameras=files.cameras, ratio=0.8)
    result = map_files(request, Options(), report)
    assert not result.private and result.not_registered == [] and stages == {"mapping": (6, 6)}
    assert result.picture is not None and result.picture.exists()
    queries = LocalizeRequest(
        (files.lifted,), result.out, tmp_path / "poses.txt", features=files.raw, cameras=files.cameras
    )
    located = localize_files(queries)
    assert located.localized == 6 and located.queries.keys() == set(room.names)
    assert located.out.exists() and located.counts.exists()


def test_a_map_of_a_release(files: RoomFiles, tmp_path: Path) -> None:
    stages: list[str] = []
    request = MapRequest(files.raw, tmp_path / "map", cameras=files.cameras)
    result = map_files(request, Options(dimension=2), lambda stage, done, total: stages.append(stage))
    assert result.private and result.features == tmp_path / "map" / "private.h5"
    assert list(dict.fromkeys(stages)) == ["privatizing", "mapping"]
    with pytest.raises(fv.InputError, match="leave --defense"):
        map_files(MapRequest(result.features, tmp_path / "other"), Options(dimension=2))
    assert len(private_hloc.names(result.features)) == 6
