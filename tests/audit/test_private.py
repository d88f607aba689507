"""Private content in an audit: what leaks of it is told apart from what leaks of the place, with both ends."""

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from audits import audit as made_up
from audits import leakage_record, skipped_record, spec
from featveil.attacks import ATTACKS
from featveil.audit.audit_tables import audit_cells, audit_markdown
from featveil.audit.frontier import draw_frontier, draw_panel, frontier_points, has_private, number_schemes
from featveil.audit.measuring import Audit, Measuring
from featveil.audit.page import audit_page
from featveil.audit.request import Request, Settings, Source, grid, with_identity
from featveil.audit.roles import prepare
from featveil.audit.rows import AuditRow, summarize_audit
from featveil.audit.run import run_resumable
from featveil.audit.schemes import Scheme, Victim
from featveil.audit.view_map import map_of_views
from featveil.core import InputError, MapPoints
from featveil.core.records import Parameter, Record
from featveil.databases import Database
from featveil.defenses import Gate, Identity, Lifting, privatize
from featveil.metrics import transfer_errors
from photographs import write_photographs

SCHEMES: tuple[dict[str, Any], ...] = (
    {"name": "gate", "support": ["none", "both"]},
    {"name": "gate", "then": {"name": "subset", "epsilon": 10.0}},
    {"name": "lifting", "strategy": "random", "dimension": 2},
)


def request(*sources: Source, private: bool = True, schemes: tuple[dict[str, Any], ...] = SCHEMES) -> Request:
    chosen = with_identity(scheme for entries in schemes for scheme in grid(entries, "sift"))
    methods = tuple(ATTACKS[name]() for name in ("chance", "read", "nearest"))
    asked = Request(tuple(chosen), sources, Settings(max_features=400, sample=20), methods)
    return asked if private else replace(asked, private=None)


@cache
def audit() -> Audit:
    """The demo's board with a picture pasted upon it."""
    return prepare(request())


def everything(what: Audit) -> list[Record]:
    measuring = Measuring(what)
    return [record for unit in what.units() for record in measuring.records(unit, tuple(what.wanted(unit)))]


@cache
def measured() -> tuple[Record, ...]:
    return tuple(everything(audit()))


@cache
def rows() -> dict[str, AuditRow]:
    return {row.scheme: row for row in summarize_audit(measured())}


def recovered(scheme: str) -> float:
    best = rows()[scheme].private_best
    assert best is not None and best.private is not None
    return best.private.near.mean


def victim() -> Victim:
    return audit().datasets[0].victims[0]


def test_content_is_in_the_photograph_and_not_in_the_second_view() -> None:
    with_content, without = victim(), prepare(request(private=False)).datasets[0].victims[0]
    assert with_content.pasted is not None and without.pasted is None
    assert with_content.pasted.content == "cat 20 %, cup 10 %, letter 4 %"
    private, mapped = with_content.pasted.sides.private, with_content.pasted.sides.mapped
    assert private.sum() > 20 and mapped.sum() > 100 and not (private & mapped).any()
    first, second = with_content.second_view.descriptors.values, without.second_view.descriptors.values
    assert np.array_equal(first, second)


def test_identity_recovers_all_private_content_and_chance_next_to_none() -> None:
    row = rows()["identity"]
    assert recovered("identity") == 1.0
    assert row.private_sent is not None and row.private_sent.mean == 1.0
    assert row.chance is not None and row.chance.private is not None and row.chance.private.near.mean < 0.05


def test_a_gate_sends_little_private_content_and_much_of_what_the_map_knows() -> None:
    row = rows()["gate"]
    assert recovered("gate") <= 0.05
    assert row.private_sent is not None and row.mapped_sent is not None
    assert row.private_sent.mean <= 0.05 < 0.2 < row.mapped_sent.mean
    assert row.utility_one is not None and row.utility_one.mean > 0.4
    assert (row.promise, row.epsilon, row.image_epsilon) == ("map-known", None, None)
    assert row.tau is not None and 0.1 < row.tau < 0.7


def test_support_sends_no_more() -> None:
    both, none = rows()["gate-both"], rows()["gate"]
    assert both.private_sent is not None and none.private_sent is not None
    assert both.private_sent.mean <= none.private_sent.mean and both.features <= none.features


def test_an_open_gate_sends_private_content_and_shows_it_where_raw_descriptors_follow() -> None:
    # Nothing is like descriptors with one large component: the background is far from all features.
    far = Database.from_array(np.eye(128, dtype=np.float32), "sift", 1, rng=np.random.default_rng(0))
    gates = {then: Gate(tau=2.0, contrast=1.0, background=far, then=then) for then in (None, Identity())}
    schemes = [audit().schemes[0], *(Scheme(f"open-{then is not None}", gate) for then, gate in gates.items())]
    opened = {row.scheme: row for row in summarize_audit(everything(replace(audit(), schemes=tuple(schemes))))}
    for name in ("open-False", "open-True"):
        sent = opened[name].private_sent
        assert sent is not None and sent.mean == 1.0
    best = opened["open-True"].private_best
    assert best is not None and best.private is not None and best.private.near.mean == 1.0
    closed = opened["open-False"].private_best
    assert closed is not None and closed.private is not None
    assert recovered("gate") <= closed.private.near.mean < 1.0  # nothing of the map is really like it


def test_of_a_gate_one_side_is_private_and_nothing_is_missing() -> None:
    sides = {record.parameters["sides"] for record in measured() if record.scheme == "gate" and record.attack is None}
    assert sides == {"one"}
    assert all(row.missing == 0 for row in rows().values())
    assert rows()["gate"].utility_both is None and rows()["random-2"].utility_both is not None


def test_the_same_audit_goes_on_where_it_stopped(tmp_path: Path) -> None:
    gates = replace(audit(), schemes=tuple(scheme for scheme in audit().schemes if scheme.name in ("identity", "gate")))
    path = tmp_path / "records.jsonl"
    first = run_resumable(gates, path)
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:-3]))
    again = run_resumable(gates, path)
    assert [(one.scheme, one.attack, one.value) for one in again] == [
        (one.scheme, one.attack, one.value) for one in first
    ]
    assert {one.parameters["gate.tau"] for one in again if one.scheme == "gate"} == {None}  # as asked for


def test_numbers_under_the_subset_mechanism_have_an_epsilon() -> None:
    row = rows()["gate-subset-10-2"]
    assert (row.promise, row.epsilon) == ("map-known", 10.0)
    assert row.image_epsilon == pytest.approx(10 * row.features)


def test_a_sample_says_of_private_features_what_all_of_them_say() -> None:
    few = {r.parameters["private_scored"] for r in measured() if r.scheme == "identity" and r.attack == "read"}
    assert few == {20}  # as many as the sample is large, though content is a fifth of the picture
    whole = replace(audit(), settings=replace(audit().settings, sample=10**6), schemes=audit().schemes[:1])
    full = next(record for record in everything(whole) if record.attack == "read")
    assert full.parameters["private_scored"] == full.parameters["private_raw"]
    assert full.parameters["private_near"] == full.parameters["private_raw"]


@pytest.mark.parametrize("then", [None, Lifting("random", 2)])
def test_what_a_gate_holds_for_another_place_sends_nothing_and_leaks_nothing(then: Lifting | None) -> None:
    gate = Scheme("strict", Gate(tau=0.01, then=then))
    records = everything(replace(audit(), schemes=(audit().schemes[0], gate)))
    row = next(row for row in summarize_audit(records) if row.scheme == "strict")
    assert row.features == 0 and row.private_sent is not None and row.private_sent.mean == 0
    assert row.utility_one is not None and row.utility_one.mean == 0
    assert {trial.reason for trial in row.skipped} >= {"there is no feature to attack"}


def test_a_map_of_views_names_the_features_of_the_second_view() -> None:
    views = audit().datasets[0].map
    assert views is not None and views.sketch.calibration is not None
    one, homography = victim(), victim().homography
    assert homography is not None and one.second_view.keypoints is not None
    private = privatize(one.features, Gate(views.sketch), rng=np.random.default_rng(0))
    matches, others = views.matches(one, private)
    assert isinstance(private.descriptors, MapPoints) and private.keypoints is not None
    assert len(matches) + others == (private.descriptors.points >= 0).sum()
    back = transfer_errors(
        matches, one.second_view.keypoints, private.keypoints, np.linalg.inv(homography).astype(np.float64)
    )
    assert (back < 3).mean() > 0.5


def test_a_map_needs_views_that_were_seen_again() -> None:
    with pytest.raises(InputError, match="seen once"):
        map_of_views([replace(victim(), seen_again=None)], "sift")


def test_without_private_content_records_are_as_they_were(tmp_path: Path) -> None:
    plain = prepare(request(private=False, schemes=SCHEMES[-1:]))
    assert "private_content" not in plain.shared() and plain.datasets[0].map is None
    records = everything(plain)
    assert not any(name.startswith(("private", "mapped")) for record in records for name in record.parameters)
    summary = summarize_audit(records)
    assert not has_private(summary)
    assert not any("private <" in heading for heading in audit_cells(summary)[0])
    assert "Private content" not in audit_page(records)


def test_photographs_get_contents_in_turn(tmp_path: Path) -> None:
    folder = write_photographs(tmp_path / "mine", test=4)
    (dataset,) = prepare(request(Source(folder, "mine", 4), schemes=SCHEMES[-1:])).datasets
    assert [one.pasted and one.pasted.content for one in dataset.victims] == [
        "cat 20 %, cup 10 %, letter 4 %",
        "photographer 20 %, portrait 10 %, rocket 4 %",
        "cup 20 %, letter 10 %, photographer 4 %",
        "portrait 20 %, rocket 10 %, cat 4 %",
    ]


def test_private_content_is_nobody_elses(tmp_path: Path) -> None:
    folder = write_photographs(tmp_path / "mine", test=2)
    with pytest.raises(InputError, match="second view would show"):
        prepare(replace(request(Source(folder, "mine", 2)), private=folder))


def of_content(private: tuple[int, ...], mapped: tuple[int, ...]) -> dict[str, Parameter]:
    """Counts of a record: raw, sent, scored, near, close."""
    names = ("raw", "sent", "scored", "near", "close")
    counts: dict[str, Parameter] = {f"private_{name}": count for name, count in zip(names, private, strict=True)}
    return counts | {f"mapped_{name}": count for name, count in zip(names, mapped, strict=True)}


def test_shares_are_of_all_raw_features_over_all_photographs() -> None:
    records = made_up(("town",), (0,), 2)
    small = leakage_record("random-2", "lattice", 0.9, spec("lifting", "c.png", dimension=2, strategy="random"))
    large = replace(small, parameters=small.parameters | of_content((90, 60, 20, 10, 5), (300, 300, 30, 30, 0)))
    small = replace(
        small, parameters=small.parameters | {"victim": "d.png"} | of_content((10, 0, 0, 0, 0), (100, 50, 10, 5, 5))
    )
    row = next(row for row in summarize_audit([*records, large, small]) if row.scheme == "random-2")
    assert row.private_best is not None and row.private_best.private is not None and row.private_best.mapped is not None
    assert row.private_best.private.near.mean == pytest.approx(0.5 * 60 / 100)
    assert row.private_best.private.close.mean == pytest.approx(0.25 * 60 / 100)
    assert row.private_best.mapped.near.mean == pytest.approx((300 + 25) / 400)
    assert row.private_sent is not None and row.private_sent.mean == pytest.approx(0.6)
    assert (row.private_raw, row.mapped_raw) == (100, 400)


def test_a_photograph_that_is_not_sent_counts_as_not_recovered() -> None:
    given = spec("gate", "c.png", guarantee="map-known", guarantee_epsilon=None, guarantee_unit="image")
    given |= {"guarantee_tau": 0.35, "raw_map": True}
    sent = leakage_record("gate", "read", 1.0, given | of_content((50, 10, 10, 10, 0), (80, 40, 40, 40, 40)))
    nothing = given | {"victim": "d.png", "private_raw": 50, "private_sent": 0, "mapped_raw": 80, "mapped_sent": 0}
    skipped = skipped_record("gate", "read", "there is no feature to attack", nothing)
    row = next(row for row in summarize_audit([*made_up(("town",)), sent, skipped]) if row.scheme == "gate")
    assert row.private_best is not None and row.private_best.private is not None
    assert row.private_best.private.near.mean == pytest.approx(0.1)
    assert row.tau == 0.35


def test_the_frontier_of_private_content_has_both_ends(tmp_path: Path) -> None:
    summary = list(rows().values())
    points = {point.row.scheme: point for point in frontier_points(summary, "one", "private")}
    assert points["identity"].leakage == 100 and points["gate"].leakage <= 5
    assert "of the private content" in points["gate"].text
    assert "gate" not in {point.row.scheme for point in frontier_points(summary, "both", "private")}
    panel = draw_panel(summary, "one", number_schemes(summary), "private")
    words = [text.words for text in panel.texts]
    assert any("private content" in word for word in words) and any(word.startswith("chance") for word in words)
    draw_frontier(summary, tmp_path / "frontier-private.png", "", "private")
    assert (tmp_path / "frontier-private.png").stat().st_size > 10_000


def test_table_and_page_state_private_content_of_every_scheme() -> None:
    table = audit_markdown(measured())
    lines = [line for line in table.splitlines() if line.startswith("| ")]
    assert "private <0.5" in lines[0] and len(lines) == 2 + len(rows())
    page = audit_page(measured())
    assert "Private content on" in page and "what is in no map" in page.lower()
    assert "map-known, proved" in page
    for scheme in rows():
        assert scheme in page
