"""The assumptions of the database and clustering attacks: against plain loops, and where they are made to fail."""

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from featveil.audit.schemes import Scheme
from featveil.core import Features, InputError, MissingExtraError, Points
from featveil.core.records import Parameter, Record, append_records, read_records
from featveil.databases import Database, builtin, save_database
from featveil.defenses import Lifting
from featveil.distances import pair_distances
from featveil.lab.assumptions import (
    BENCH,
    COLLISION_COLUMNS,
    LiftedVictims,
    Rows,
    draw,
    lifting_database,
    make_schemes,
    member_columns,
    member_lines,
    study,
)
from featveil.lab.assumptions_parts.members import COUNTED, NEIGHBOURS, Lifted, collisions, member_success
from featveil.lab.bench import headings_and_cells
from featveil.lab.scene_studies import Settings
from scenes import draw_equal_views
from victims import picture

SETTINGS = Settings(max_features=80)


def few(count: int = 640) -> Database:
    return Database(builtin("sift").values[:count], "sift", 4)


def lift(truth: Points, dimension: int, database: Database, seed: int = 0, strategy: str = "sub-hybrid") -> Lifted:
    return Lifted.of(truth, Lifting(strategy, dimension, database=database), np.random.default_rng(seed))


def unit(values: np.ndarray) -> np.ndarray:
    return np.asarray(values / np.linalg.norm(values, axis=1, keepdims=True), np.float32)


@pytest.fixture(scope="module")
def truth() -> Points:
    return picture(0, "sift", 60).descriptors


@pytest.mark.parametrize(("strategy", "dimension", "drawn"), [("sub-hybrid", 4, 2), ("adversarial", 4, 4)])
def test_members_are_the_entries_inside(strategy: str, dimension: int, drawn: int, truth: Points) -> None:
    database = few()
    lifted = lift(truth, dimension, database, strategy=strategy)
    assert lifted.entries.shape == (len(truth), drawn)
    rows = np.repeat(np.arange(len(truth)), len(database))
    columns = np.tile(np.arange(len(database)), len(truth))
    away = pair_distances(lifted.subspaces, database.as_points, rows, columns).reshape(len(truth), -1)
    for inside, entries in zip(away < 1e-5, lifted.entries, strict=True):
        assert set(np.flatnonzero(inside)) == set(entries)
    assert away[away > 1e-5].min() > 0.01


@pytest.mark.parametrize("dimension", [4, 16])
def test_success_equals_plain_loops(dimension: int, truth: Points) -> None:
    database = few()
    lifted = lift(truth, dimension, database)
    entries = database.points().astype(np.float64)
    counted: dict[str, list[list[float]]] = {"with members": [], "without members": []}
    for row in range(len(truth)):
        away = pair_distances(lifted.subspaces, database.as_points, np.full(len(entries), row), np.arange(len(entries)))
        drawn = set(lifted.entries[row].tolist())
        members = np.stack([truth.values[row], *(entries[place] for place in sorted(drawn))])
        passed, others = [], []
        for entry in np.argsort(away)[: max(NEIGHBOURS) + len(drawn)]:
            first, second = sorted(np.linalg.norm(members - entries[entry], axis=1))[:2]
            passed.append(bool(first < 0.8 * second))
            if entry not in drawn:
                others.append(passed[-1])
        for name, found in (("with members", passed), ("without members", others)):
            counted[name].append([float(np.mean(found[:n])) for n in NEIGHBOURS])
    success = member_success(lifted.subspaces, truth, Lifting("sub-hybrid", dimension, database=database))
    for name, values in success.items():
        np.testing.assert_allclose(values, np.mean(counted[name], axis=0), atol=1e-9)
    if dimension == 16:  # the five nearest entries are members
        assert success["with members"][-1] == 1
    assert (success["with members"] > success["without members"]).all()


def test_success_needs_descriptors_that_lie_in_clusters() -> None:
    """Entries of a cluster are near a member of it; entries without any structure are near none."""
    rng = np.random.default_rng(0)
    centres = unit(rng.normal(size=(30, 64)))
    clustered = unit(np.repeat(centres, 80, axis=0) + 0.02 * rng.normal(size=(2400, 64)))
    loose = unit(rng.normal(size=(2400, 64)))
    found = []
    for values in (clustered, loose):
        lifting = Lifting("hybrid", 4, database=Database(values, "other", 1))
        truth = Points(unit(values[:20] + 0.02 * rng.normal(size=(20, 64))))
        subspaces = lifting.privatize(truth, rng)
        found.append(member_success(subspaces, truth, lifting)["without members"])
    assert (found[0] > 0.85).all()  # two members of one cluster are not told apart
    assert (found[1] < 0.5).all()


def test_subspaces_meet_where_they_share_an_entry_or_the_descriptor(truth: Points) -> None:
    database = few(60)
    doubled = Points(np.concatenate([truth.values[:30], truth.values[:2]]))
    own, others = lift(doubled, 4, database, 0), lift(Points(truth.values[28:50]), 4, database, 1)
    for second in (own, others):
        rows, columns = own.meeting(second)
        expected = {
            (i, j)
            for i in range(len(own.truth))
            for j in range(len(second.truth))
            if not (second is own and i == j)
            and (
                set(own.entries[i]) & set(second.entries[j])
                or np.array_equal(own.truth.values[i], second.truth.values[j])
            )
        }
        assert set(zip(rows.tolist(), columns.tolist(), strict=True)) == expected
        assert 0 < len(expected) < len(own.truth) * len(second.truth)
    rows, columns = own.meeting(own)
    assert (0, 30) in set(zip(rows.tolist(), columns.tolist(), strict=True))  # no shared entry is needed


@pytest.mark.parametrize("dimension", [2, 8])
def test_collisions_equal_plain_loops(dimension: int, truth: Points) -> None:
    database = few(160)
    images = [lift(truth.take(np.arange(20 * k, 20 * k + 20)), dimension, database, k) for k in range(3)]
    own = images[0]
    found = collisions(own, [(other, *own.meeting(other)) for other in images[1:]])
    expected = []
    for row in range(len(own.truth)):
        members = Points(np.concatenate([own.truth.values[row : row + 1], database.unit(own.entries[row])]))
        scores, meeting = np.full(len(members), np.inf), 0
        for other in images[1:]:
            for column in range(len(other.truth)):
                met = pair_distances(own.subspaces, other.subspaces, np.array([row]), np.array([column]))[0] < 1e-5
                meeting += bool(met)
                if met:
                    places = np.arange(len(members))
                    away = pair_distances(members, other.subspaces, places, np.full(len(members), column))
                    scores = np.minimum(scores, away)
        all_found, first = bool((scores[1:] < 1e-5).all()), bool(scores[0] > scores[1:].max())
        clear = scores[0] >= 0.3, scores[0] >= 0.5
        expected.append([meeting > 0, all_found, first, first and all_found, *clear, meeting])
    np.testing.assert_allclose(found, np.mean(np.array(expected, np.float64), axis=0), atol=1e-9)
    assert found[0] > 0
    assert len(found) == len(COUNTED)


def test_the_same_descriptor_twice_is_a_collision() -> None:
    database = few(16)  # 4 parts of 4: every confounder is found
    apart = Points(builtin("sift").points()[1000:1040])
    doubled = Points(np.concatenate([apart.values[:20], apart.values[:20]]))
    rates = []
    for points in (apart, doubled):
        own = lift(points, 2, database)
        rates.append(dict(zip(COUNTED, collisions(own, [(own, *own.meeting(own))]), strict=True)))
    assert rates[0]["all found"] == rates[0]["no collision"] == rates[0]["clear by 0.3"] == 1
    assert rates[1]["all found"] == 1
    assert rates[1]["no collision"] == rates[1]["clear by 0.3"] == 0


def test_nothing_is_given_away_by_subspaces_that_never_meet(truth: Points) -> None:
    own, others = (
        lift(points, 4, database, k)
        for k, (points, database) in enumerate(
            [
                (truth.take(np.arange(20)), few()),
                (truth.take(np.arange(20, 40)), Database(builtin("sift").values[700:900], "sift", 4)),
            ]
        )
    )
    found = collisions(own, [(others, *own.meeting(others))])
    np.testing.assert_array_equal(found, [0, 0, 0, 0, 1, 1, 0])


@pytest.fixture(scope="module")
def victims() -> dict[str, Features]:
    features = picture(0, "sift", 400)
    return {f"{k}.png": features.take(np.arange(80 * k, 80 * k + 80 - k)) for k in range(3)}


@pytest.fixture(scope="module")
def schemes() -> list[Scheme]:
    return make_schemes(few(), [2, 4])


@pytest.fixture(scope="module")
def records(victims: dict[str, Features], schemes: list[Scheme]) -> list[Record]:
    return list(BENCH.measured(study("drawn", victims, schemes, SETTINGS)))


def test_a_record_for_each_study_scheme_photograph_and_variant(records: list[Record]) -> None:
    assert len(records) == 2 * 3 * 4
    found = [(r.scheme, r.parameters["study"], r.parameters["image"], r.parameters["variant"]) for r in records]
    assert len(set(found)) == 24
    one, last = records[0], records[-1]
    assert (one.task, one.dataset, one.count, one.seed) == ("assumptions", "drawn", 80, 0)
    assert (one.parameters["database_size"], one.parameters["dimension"]) == (640, 2)
    assert one.parameters["neighbours"] == [50, 20, 10, 5]
    assert (last.parameters["variant"], last.parameters["others"], last.count) == ("other images", 2, 78)
    assert (last.metric, len(last.value) if isinstance(last.value, tuple) else 0) == (", ".join(COUNTED), 7)


def test_meetings_are_the_same_from_both_sides(records: list[Record], victims: dict[str, Features]) -> None:
    """Each pair of photographs is compared once; what one meets of the others they meet of it."""
    for scheme in ("sub-hybrid-2", "sub-hybrid-4"):
        chosen = [r for r in records if r.scheme == scheme and r.parameters["variant"] == "other images"]
        lifted = LiftedVictims(victims, next(s for s in make_schemes(few(), [2, 4]) if s.name == scheme), 0)
        for record, image in zip(chosen, victims, strict=True):
            own = lifted[image]
            others = [lifted[name] for name in victims if name != image]
            expected = collisions(own, [(other, *own.meeting(other)) for other in others])
            np.testing.assert_allclose(record.value, expected, atol=1e-6)


def test_a_resumed_run_equals_one_run_and_does_nothing_twice(
    records: list[Record], victims: dict[str, Features], schemes: list[Scheme], tmp_path: Path
) -> None:
    path = tmp_path / "records.jsonl"
    append_records(path, records[:15])
    reports: list[tuple[int, int]] = []
    resumed = BENCH.resume(study("drawn", victims, schemes, SETTINGS), path, lambda *at: reports.append(at))
    assert resumed == records == read_records(path)
    assert (reports[0], reports[1], reports[-1]) == ((15, 24), (16, 24), (24, 24))


def test_other_settings_or_other_photographs_do_not_mix(
    records: list[Record], victims: dict[str, Features], schemes: list[Scheme], tmp_path: Path
) -> None:
    path = tmp_path / "records.jsonl"
    append_records(path, records)
    with pytest.raises(InputError, match="seed 0, not 2"):
        BENCH.resume(study("drawn", victims, schemes, replace(SETTINGS, seed=2)), path)
    with pytest.raises(InputError, match="others 2, not 1"):
        BENCH.resume(study("drawn", dict(list(victims.items())[:2]), schemes, SETTINGS), path)
    with pytest.raises(InputError, match="database"):
        BENCH.resume(study("drawn", victims, make_schemes(few(600), [2]), SETTINGS), path)
    assert read_records(path) == records


def test_a_single_photograph_has_no_others(victims: dict[str, Features], schemes: list[Scheme]) -> None:
    found = list(BENCH.measured(study("drawn", dict(list(victims.items())[:1]), schemes[:1], SETTINGS)))
    variants = [record.parameters["variant"] for record in found]
    assert variants == ["with members", "without members", "same image"]


def test_databases_to_lift_with(tmp_path: Path) -> None:
    assert lifting_database([], "sift", 10) is builtin("sift")
    draw_equal_views(tmp_path / "photos")
    made = lifting_database([tmp_path / "photos"], "sift", 100)
    assert (len(made), made.parts) == (100, 16)
    save_database(few(), tmp_path / "few.safetensors")
    assert lifting_database([tmp_path / "few.safetensors"], "sift", 10).parts == 4


def test_schemes_that_cannot_be() -> None:
    with pytest.raises(InputError, match="draws no entry"):
        make_schemes(few(), [4], "random")
    with pytest.raises(InputError, match="hybrid\\+ needs attribute labels"):
        make_schemes(few(), [4], "hybrid+")
    with pytest.raises(InputError, match="too few to lift with: use at least 54"):
        make_schemes(few(53), [4])
    assert [scheme.name for scheme in make_schemes(few(), [4, 4, 2])] == ["sub-hybrid-4", "sub-hybrid-2"]


def record(study: str, variant: str, m: int, value: tuple[float, ...], count: int = 100, image: str = "a") -> Record:
    """A record such as the task writes."""
    parameters: dict[str, Parameter] = {"study": study, "variant": variant, "image": image, "dimension": m}
    parameters |= {"strategy": "sub-hybrid", "database": "0123", "database_size": 16_384, "kind": "sift"}
    parameters |= {"max_features": 300} | ({"neighbours": [50, 5]} if study == "members" else {})
    return Record("assumptions", "holidays", f"sub-hybrid-{m}", "", value, "", count, 0, {}, parameters=parameters)


RECORDS = [
    record("members", "without members", 16, (0.5, 0.7)),
    record("members", "with members", 16, (0.6, 1.0)),
    record("members", "with members", 2, (0.9, 1.0)),
    record("members", "with members", 2, (0.5, 1.0), 300, "b"),
    record("collisions", "other images", 16, (0, 0, 0, 0, 1, 1, 0)),
    record("collisions", "same image", 16, (0.9, 0.2, 0.6, 0.1, 1, 0.8, 7)),
    record("collisions", "same image", 2, (0.5, 0.5, 0.5, 0.5, 1, 1, 1.0)),
    record("collisions", "same image", 2, (0.1, 0.1, 0.1, 0.1, 1, 0.8, 3.0), 300, "b"),
]


def test_means_are_of_features_and_rows_in_order() -> None:
    members, collisions = BENCH.summarize(RECORDS)
    assert [(row.dimension, row.variant, row.neighbours) for row in members] == [
        *((2, "with members", 50), (2, "with members", 5)),
        *((16, "with members", 50), (16, "with members", 5)),
        *((16, "without members", 50), (16, "without members", 5)),
    ]
    assert (members[0].success, members[0].features) == pytest.approx((0.6, 400))
    assert members[0].theirs is None
    assert (members[4].success, members[4].theirs) == (0.5, 0.8727)
    assert [(row.dimension, row.variant) for row in collisions] == [
        *((2, "same image"), (16, "same image"), (16, "other images"))
    ]
    first, second, third = collisions
    assert (first.met, first.meeting, first.clear_by_05, first.features) == pytest.approx((0.2, 2.5, 0.85, 400))
    assert (second.all_found, second.no_collision, second.no_collision_if_found) == pytest.approx((0.2, 0.6, 0.5))
    assert (third.no_collision_if_found, third.theirs) == (None, 0.7303)


def test_the_papers_numbers_stand_beside_ours() -> None:
    members, collisions = BENCH.summarize(RECORDS)
    headings, cells = headings_and_cells(member_columns(members), member_lines(members))
    assert headings == ["m", "neighbours", "N = 50", "N = 5"]
    assert cells == [
        ("2", "with members", "60.0", "100.0"),
        ("16", "paper", "87.3", "94.4"),
        ("16", "with members", "60.0", "100.0"),
        ("16", "without members", "50.0", "70.0"),
    ]
    headings, cells = headings_and_cells(COLLISION_COLUMNS, collisions)
    assert headings[-1] == "paper"
    assert cells[1] == ("16", "same image", "7.00", "90.0", "20.0", "60.0", "50.0", "100.0", "80.0", "73.0")
    assert cells[2][6] == ""
    assert {len(line) for line in cells} == {len(headings)}


def test_markdown_says_what_the_paper_leaves_open() -> None:
    text = BENCH.markdown(RECORDS)
    assert "2 photographs, 400 features (sift, at most 300 each), sub-hybrid lifting" in text
    assert "a database of 16,384 entries, digest 0123" in text
    assert "The paper does not say which it counts" in text
    assert "does not define a collision" in text
    tables = [line.count("|") for line in text.splitlines() if line.startswith("|")]
    assert tables == [5] * 6 + [11] * 5
    with pytest.raises(InputError, match="no record"):
        BENCH.markdown([])


def test_records_of_something_else() -> None:
    one = RECORDS[0]
    for wrong in (
        replace(one, task="oracle"),
        replace(one, parameters={}),
        replace(one, parameters={**one.parameters, "variant": "same image"}),
        replace(one, parameters={**one.parameters, "study": "guesses"}),
    ):
        with pytest.raises(InputError, match="not one of"):
            BENCH.summarize([wrong])
    for damaged in (
        replace(one, value=1.0),
        replace(one, value=(1.0,)),
        replace(one, parameters={**one.parameters, "neighbours": 50}),
        replace(RECORDS[-1], value=(1.0, 1.0)),
    ):
        with pytest.raises(InputError, match="damaged"):
            BENCH.summarize([damaged])


@pytest.mark.parametrize("records", [RECORDS, [*RECORDS[2:4], *RECORDS[6:]], [RECORDS[0], RECORDS[4]]])
def test_a_picture_is_written(tmp_path: Path, records: list[Record]) -> None:
    pytest.importorskip("matplotlib")
    draw(BENCH.summarize(records), tmp_path / "curve.png", "a title")
    assert (tmp_path / "curve.png").read_bytes().startswith(b"\x89PNG")
    assert [path.name for path in tmp_path.iterdir()] == ["curve.png"]


def test_nothing_to_draw(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("matplotlib")
    with pytest.raises(InputError, match="no result"):
        draw(Rows([], []), tmp_path / "curve.png")
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(MissingExtraError, match="plots"):
        draw(BENCH.summarize(RECORDS), tmp_path / "curve.png")
    assert not list(tmp_path.iterdir())
