"""Records of an audit -> rows and the compact table."""

import random
from dataclasses import asdict, replace

import pytest

from audits import audit, leakage_record, skipped_record, spec, utility_record
from featveil.audit.audit_tables import audit_cells, audit_markdown
from featveil.audit.rows import AuditRow, summarize_audit
from featveil.core import InputError
from featveil.core.records import Record


def small() -> list[Record]:
    """Two photographs, raw and under one scheme, with all that a row is made of."""
    records = []
    for victim, raw, kept, count, near in (("a.png", 100, 80, 100, 0.2), ("b.png", 300, 120, 300, 0.6)):
        plain = spec("identity", victim)
        lifted = spec("lifting", victim, strategy="sub-hybrid", dimension=4)
        records += [
            utility_record("identity", "one", (400, 350, raw, raw), plain),
            utility_record("identity", "both", (400, 350, raw, raw), plain),
            utility_record("sub-hybrid-4", "one", (200, 150, 140, kept), lifted),
            utility_record("sub-hybrid-4", "both", (100, 50, 40, 40), lifted),
            leakage_record("sub-hybrid-4", "nearest", near, lifted, count=count),
            leakage_record("sub-hybrid-4", "mean", 0.4, lifted, count=count),
            leakage_record("sub-hybrid-4", "relift", 0.9, lifted, count=count),
            leakage_record("sub-hybrid-4", "inlier", 0.7, lifted, count=count),
            leakage_record("sub-hybrid-4", "chance", 0.01, lifted, count=count),
            skipped_record("sub-hybrid-4", "posterior", "these are subspaces", lifted),
            skipped_record("identity", "posterior", "these are points", plain),
            leakage_record("identity", "read", 1.0, plain, count=count),
            skipped_record("sub-hybrid-4", "read", "these are subspaces", lifted),
        ]
        others = ("nearest", "mean", "relift", "inlier", "chance")
        records += [skipped_record("identity", attack, "these are points", plain) for attack in others]
    return records


def row_of(records: list[Record], scheme: str = "sub-hybrid-4", dataset: str = "town") -> AuditRow:
    return next(row for row in summarize_audit(records) if (row.scheme, row.dataset) == (scheme, dataset))


def test_utility_is_the_sum_of_right_verified_matches_over_that_of_raw_features() -> None:
    row = row_of(small())
    assert row.utility_one is not None and row.utility_both is not None and row.accuracy_one is not None
    assert row.utility_one.mean == pytest.approx((80 + 120) / (100 + 300))  # not the mean of 0.8 and 0.4
    assert row.utility_both.mean == pytest.approx(80 / 400)
    assert row.accuracy_one.mean == pytest.approx(150 / 200)
    assert row.right_one is not None and row.right_one.mean == 100
    assert row.kept_one == row.utility_one  # all keypoints: the same raw ones


def test_leakage_weighs_photographs_by_their_features_and_the_best_attack_has_the_release_only() -> None:
    row = row_of(small())
    assert row.best is not None and row.twice is not None and row.place is not None and row.chance is not None
    assert row.best.attack == "nearest" and row.best.below_near.mean == pytest.approx(0.5)
    assert row.best.median.mean == pytest.approx(1.2 - 0.4)  # medians of photographs count alike
    assert (row.best.count, row.best.victims) == (400, 2)
    assert (row.twice.attack, row.place.attack, row.chance.attack) == ("relift", "inlier", "chance")
    assert row.named is None
    assert [(trial.attack, trial.victims) for trial in row.skipped] == [("posterior", 2), ("read", 2)]
    assert (row.missing, row.expected) == (0, 2 * (2 + 7))


def test_a_whole_audit_agrees_with_plain_loops() -> None:
    records = audit(victims=2)
    for row in summarize_audit(records):
        own = [record for record in records if (record.dataset, record.scheme) == (row.dataset, row.scheme)]
        raw = [record for record in records if (record.dataset, record.scheme) == (row.dataset, "identity")]
        shares, leaks = [], []
        for seed in (0, 1):
            right, of = 0.0, 0.0
            for group, sign in ((own, 0), (raw, 1)):
                for record in group:
                    if record.seed == seed and record.parameters.get("sides") == "one":
                        right += record.value[3] * (1 - sign)  # type: ignore[index]
                        of += record.value[3] * sign  # type: ignore[index]
            shares.append(right / of)
            near: dict[str, list[float]] = {}
            for record in own:
                if record.seed == seed and record.parameters.get("adversary") == "release":
                    sums = near.setdefault(str(record.attack), [0.0, 0.0])
                    sums[0] += record.count * record.value[3]  # type: ignore[index]
                    sums[1] += record.count
            leaks.append({attack: part / whole for attack, (part, whole) in near.items()})
        best = max((sum(leak[attack] for leak in leaks) / 2, attack) for attack in leaks[0])
        assert row.utility_one is not None and row.best is not None
        assert row.utility_one.mean == pytest.approx(sum(shares) / 2)
        assert (row.utility_one.low, row.utility_one.high) == pytest.approx((min(shares), max(shares)))
        assert row.best.below_near.mean == pytest.approx(best[0]) and row.best.attack == best[1]
        assert row.missing == 0


def test_rows_do_not_depend_on_the_order_of_records() -> None:
    records = audit(victims=2)
    shuffled = random.Random(3).sample(records, len(records))
    assert summarize_audit(shuffled) == summarize_audit(records)
    assert audit_markdown(shuffled) == audit_markdown(records)


def test_rows_come_by_dataset_family_and_number() -> None:
    rows = summarize_audit(audit(seeds=(0,), victims=1))
    names = [row.scheme for row in rows if row.dataset == "woods"]
    assert names[:4] == ["identity", "identity-apart", "random-2", "random-4"]
    assert names[-4:] == ["subset-6-4", "subset-8-4", "subset-10-4", "metric-49-1"]
    assert [row.dataset for row in rows] == sorted(row.dataset for row in rows)


def test_a_selection_of_keypoints_is_also_compared_with_the_same_ones_raw() -> None:
    records = audit(datasets=("town",), seeds=(0,))
    row, apart = row_of(records, "hardened-4-16-apart"), row_of(records, "identity-apart")
    for side in ("one", "both"):
        kept, utility, raw = (
            getattr(row, f"kept_{side}"),
            getattr(row, f"utility_{side}"),
            getattr(apart, f"utility_{side}"),
        )
        assert kept.mean == pytest.approx(utility.mean / raw.mean)
    without = [record for record in records if record.scheme != "identity-apart"]
    assert row_of(without, "hardened-4-16-apart").kept_one is None
    assert row.features == 80 and row.raw_features == 400


def test_an_epsilon_never_comes_without_that_of_the_image() -> None:
    records = audit(datasets=("town",), seeds=(0,))
    for row in summarize_audit(records):
        assert (row.epsilon is None) == (row.image_epsilon is None)
        assert row.epsilon is None or row.image_epsilon == pytest.approx(row.epsilon * row.features)
    promises = {row.defense: row.promise for row in summarize_audit(records)}
    assert promises == {
        "identity": "none",
        "lifting": "empirical",
        "hardened": "empirical",
        "subset": "local-dp",
        "metric": "metric-dp",
    }
    row = row_of(records, "subset-8-4")
    assert row.bound == 0.154
    assert row.named is not None and row.named.exact.mean == max(
        trial.exact.mean for trial in row.trials if trial.adversary == "release"
    )
    quantised = [
        replace(record, parameters={**record.parameters, "epsilon": None})
        for record in records
        if record.scheme == row.scheme
    ]
    others = [record for record in records if record.scheme != row.scheme]
    assert row_of(others + quantised, "subset-8-4").promise == "none"


def test_an_interrupted_audit_is_shown_with_what_there_is_and_marked() -> None:
    records = small()
    cut = [r for r in records if r.scheme == "identity" or r.parameters["victim"] == "a.png"]
    row = row_of(cut)
    assert (row.missing, row.expected) == (9, 18)
    assert row.utility_one is not None and row.utility_one.mean == pytest.approx(0.8)  # of the raw ones of a.png
    assert row_of(cut, "identity").missing == 0
    unmatched = row_of([r for r in records if r.scheme == "identity" or r.attack is not None])
    assert unmatched.utility_one is None and unmatched.best is not None and unmatched.missing == 4
    unattacked = row_of([r for r in records if r.scheme == "identity" or r.attack is None])
    assert unattacked.best is None and unattacked.chance is None and unattacked.missing == 14
    assert "sub-hybrid-4 (*)" in audit_markdown(cut) and "not finished" in audit_markdown(cut)
    assert "(*)" not in audit_markdown(records)


def test_raw_features_that_match_nothing_give_no_share() -> None:
    records = [
        replace(record, value=(0.0,) * 4, count=0) if record.scheme == "identity" and record.attack is None else record
        for record in small()
    ]
    row = row_of(records)
    assert row.utility_one is None and row.accuracy_one is not None and 0 < row.accuracy_one.mean <= 1


def test_the_compact_table_has_both_end_points_and_ranges_over_seeds() -> None:
    records = audit(datasets=("town",))
    headings, cells = audit_cells(summarize_audit(records))
    assert all(len(line) == len(headings) for line in cells)
    lines = {line[0]: dict(zip(headings, line, strict=True)) for line in cells}
    assert lines["identity"]["private query"] == "100.0%" and lines["identity"]["<0.5"] == "100.0%"
    assert lines["sub-hybrid-4"]["epsilon"] == "-" and lines["sub-hybrid-4"]["chance"].startswith("0.4%")
    assert lines["subset-8-4"]["epsilon"] == "8" and lines["subset-8-4"]["epsilon an image"] == "3,200"
    assert "–" in lines["sub-hybrid-4"]["private query"]  # a range
    text = audit_markdown(records)
    assert text.count("\n| ") == len(cells) + 2
    hostile = [replace(record, dataset="a|b\n# c") for record in records]
    assert "\n# c" not in audit_markdown(hostile) and "a/b # c" in audit_markdown(hostile)


def test_rows_can_be_written_as_json() -> None:
    text = str(asdict(row_of(small())))
    assert "utility_one" in text and "shown" not in text  # no hidden descriptor


def test_repeated_records_count_once_and_those_of_two_audits_are_refused() -> None:
    records = small()
    assert summarize_audit(records + records) == summarize_audit(records)
    other = replace(records[2], value=(1.0, 1.0, 1.0, 1.0), count=1)
    with pytest.raises(InputError, match="of two audits"):
        summarize_audit([*records, other])


def test_what_is_not_an_audit_is_refused() -> None:
    records = small()
    with pytest.raises(InputError, match="no record"):
        summarize_audit([])
    with pytest.raises(InputError, match="lack the matches of scheme identity"):
        summarize_audit([record for record in records if record.scheme != "identity"])
    with pytest.raises(InputError, match="task matching"):
        summarize_audit([*records, replace(records[0], task="matching")])
    with pytest.raises(InputError, match="not one of an audit"):
        summarize_audit([*records, replace(records[0], metric="speed")])


@pytest.mark.parametrize(
    ("place", "change"),
    [
        (0, {"value": (1.0, 2.0)}),
        (0, {"value": 1.0}),
        (0, {"parameters": {**spec("identity"), "sides": "three"}}),
        (4, {"count": 0}),
        (4, {"attack": None}),
        (4, {"parameters": {**spec("lifting"), "adversary": "martian"}}),
        (9, {"parameters": spec("lifting")}),
        (9, {"parameters": {**spec("lifting"), "reason": "none", "features": "many"}}),
        (9, {"parameters": {**spec("lifting"), "reason": "none", "epsilon": "much"}}),
        (9, {"parameters": {**spec("lifting"), "reason": "none", "features": None}}),
    ],
)
def test_damaged_records_are_refused(place: int, change: dict[str, object]) -> None:
    records = small()
    with pytest.raises(InputError, match="damaged"):
        summarize_audit([*records, replace(records[place], **change)])  # type: ignore[arg-type]


def test_a_record_that_lacks_a_parameter_is_refused_with_its_name() -> None:
    records = small()
    lacking = {name: value for name, value in records[4].parameters.items() if name != "keypoints"}
    with pytest.raises(InputError, match="lacks keypoints"):
        summarize_audit([*records, replace(records[4], parameters=lacking)])


def test_the_guarantee_of_a_row_is_the_recorded_one() -> None:
    def stated(kind: str, epsilon: float | None, unit: str = "descriptor") -> AuditRow:
        claim = {"guarantee": kind, "guarantee_epsilon": epsilon, "guarantee_unit": unit}
        records = [
            replace(record, parameters={**record.parameters, **claim}) if record.scheme == "sub-hybrid-4" else record
            for record in small()
        ]
        return row_of(records)

    row = stated("local-dp", 2.0)
    assert (row.promise, row.epsilon) == ("local-dp", 2.0) and row.image_epsilon == pytest.approx(2.0 * row.features)
    row = stated("metric-dp", 30.0, "image")
    assert (row.promise, row.epsilon, row.image_epsilon) == ("metric-dp", None, 30.0)
    row = stated("none", None)
    assert (row.promise, row.epsilon, row.image_epsilon) == ("none", None, None)
    for kind, epsilon, unit in (("perfect", None, "image"), ("local-dp", None, "image"), ("empirical", None, "year")):
        with pytest.raises(InputError, match="sub-hybrid-4"):
            stated(kind, epsilon, unit)


def test_records_that_state_no_guarantee_have_that_of_the_defenses_of_their_time() -> None:
    assert {record.parameters.get("guarantee") for record in small()} == {None}
    assert row_of(small()).promise == "empirical" and row_of(small(), "identity").promise == "none"
