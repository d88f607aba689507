"""The audit: what is measured, by whom, and that neither interruptions nor processes change it."""

import multiprocessing
import time
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from featveil.attacks import ATTACKS, Chance, Guess, Knowledge, Oracle, Vertex
from featveil.audit.measuring import Audit, Measuring, measure_units
from featveil.audit.request import Request, Settings, grid, with_identity
from featveil.audit.roles import prepare
from featveil.audit.run import run_resumable
from featveil.audit.trials import Trial, trials_of
from featveil.core import InputError, MissingExtraError, Points, PrivateFeatures, Subspaces, WordSets
from featveil.core.records import Record, append_records, read_records
from featveil.metrics.leakage import METRIC

SCHEMES: tuple[dict[str, Any], ...] = (
    {"name": "lifting", "strategy": ["random", "sub-hybrid"], "dimension": 2},
    {"name": "hardened", "confounders": 2, "dimension": 4, "keypoints": ["all", "apart"]},
    {"name": "subset", "epsilon": 8.0, "geometry": True},
)
METHODS = ("chance", "read", "nearest", "database", "clustering", "oracle", "relift", "inlier", "posterior")
STATED = "victim defense keypoints geometry features raw_features kind max_features sample own_database"


def request(schemes: tuple[dict[str, Any], ...] = SCHEMES, methods: tuple[str, ...] = METHODS) -> Request:
    chosen = with_identity(scheme for entries in schemes for scheme in grid(entries, "sift"))
    settings = Settings(max_features=80, sample=10, seeds=(0, 1))
    asked = tuple(ATTACKS[name]() for name in methods)
    return Request(tuple(chosen), settings=settings, methods=asked, private=None)


@cache
def audit() -> Audit:
    """The demo's pictures under every sort of scheme."""
    return prepare(request())


@cache
def measured() -> tuple[Record, ...]:
    return tuple(everything(audit()))


def everything(what: Audit) -> list[Record]:
    measuring = Measuring(what)
    return [record for unit in what.units() for record in measuring.records(unit, tuple(what.wanted(unit)))]


def one(scheme: str, name: str, seed: int = 0) -> Record:
    matching = [
        r for r in measured() if (r.scheme, r.seed) == (scheme, seed) and name in (r.attack, r.parameters.get("sides"))
    ]
    assert len(matching) == 1, (scheme, name)
    return matching[0]


def value(record: Record, name: str) -> float:
    assert isinstance(record.value, tuple)
    return dict(zip(record.metric.split(", "), record.value, strict=True))[name]


def numbers(record: Record, name: str) -> tuple[int, ...]:
    values = record.parameters[name]
    assert isinstance(values, list)
    return tuple(int(number) for number in values)


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
        raise self.error

    error: ClassVar[Exception] = InputError("too few features")


@dataclass(frozen=True)
class Spy(Broken):
    """An attack that keeps what it saw."""

    name: ClassVar[str] = "spy"
    needs: ClassVar[tuple[str, ...]] = ("repeats",)
    seen: ClassVar[list[PrivateFeatures]] = []

    def run(self, seen: PrivateFeatures, knowledge: Knowledge, rng: np.random.Generator) -> Guess:
        self.seen.extend([seen, *knowledge.repeats])
        return Guess.all_of(np.ones((len(seen), 128), np.float32))


def trying(method: Any, scheme: str, seeds: tuple[int, ...] = (0,)) -> Audit:
    """The audit of one attack on one scheme."""
    schemes = tuple(one for one in audit().schemes if one.name == scheme)
    return replace(audit(), schemes=schemes, trials=(Trial(method),), settings=replace(audit().settings, seeds=seeds))


def test_every_scheme_is_matched_and_faces_every_trial() -> None:
    schemes = {record.scheme for record in measured()}
    lifted = {"random-2", "sub-hybrid-2", "hardened-2-4", "hardened-2-4-apart"}
    assert schemes == {"identity", "identity-apart", *lifted, "subset-8-2-geometry"}
    trials = {trial.name for trial in audit().trials}
    assert {"clustering + others", "posterior + repeats"} < trials
    for scheme in schemes:
        mine = [record for record in measured() if record.scheme == scheme and record.seed == 0]
        assert sorted(str(record.parameters.get("sides")) for record in mine if record.attack is None) == [
            "both",
            "one",
        ]
        assert {record.attack for record in mine if record.attack is not None} == trials
        assert all(set(STATED.split()) <= set(record.parameters) for record in mine)


def test_end_points() -> None:
    assert value(one("identity", "read"), "exact") == 1 and value(one("identity", "chance"), "exact") == 0
    assert one("identity", "one").value[:2] == one("identity", "both").value[:2]  # type: ignore[index]
    assert value(one("identity-apart", "one"), "right verified") < value(one("identity", "one"), "right verified")


def test_matches_are_those_of_a_plain_count() -> None:
    (victim,) = audit().datasets[0].victims
    assert victim.features.keypoints is not None and victim.second_view.keypoints is not None
    assert victim.homography is not None
    own, other = victim.features.descriptors.values, victim.second_view.descriptors.values
    matches = right = 0
    for i, descriptor in enumerate(own):
        j = int(np.linalg.norm(other - descriptor, axis=1).argmin())
        if int(np.linalg.norm(own - other[j], axis=1).argmin()) != i:
            continue
        matches += 1
        x, y, w = np.linalg.inv(victim.homography) @ [*victim.second_view.keypoints.xy[j], 1]
        right += bool(np.hypot(*(victim.features.keypoints.xy[i] - [x / w, y / w])) <= 3)
    assert 10 < right < matches == one("identity", "one").count
    assert one("identity", "one").value[:2] == (matches, right)  # type: ignore[index]


def test_private_features_still_match_with_another_device() -> None:
    raw = value(one("identity", "one"), "right verified")
    for scheme in ("random-2", "hardened-2-4", "subset-8-2-geometry"):
        right = value(one(scheme, "one"), "right verified")
        assert raw / 5 < right < 1.5 * raw, scheme
    assert value(one("hardened-2-4", "both"), "right verified") > raw / 3


def test_adversaries_are_told_apart() -> None:
    adversaries = {
        record.attack: record.parameters.get("adversary") for record in measured() if record.metric == METRIC
    }
    assert adversaries["chance"] == "none" and adversaries["oracle"] == "truth" and adversaries["inlier"] == "place"
    assert adversaries["relift"] == adversaries["posterior + repeats"] == "twice"
    assert {adversaries[name] for name in ("read", "nearest", "database", "clustering", "posterior + database")} == {
        "release"
    }


def test_what_does_not_apply_is_skipped_with_the_reason() -> None:
    reasons = {(r.scheme, r.attack): r.parameters["reason"] for r in measured() if r.metric == "skipped"}
    assert (
        reasons["subset-8-2-geometry", "nearest"]
        == "attack nearest is on subspaces (lifting); these are word sets (subset, metric)"
    )
    assert reasons["random-2", "database"] == "this lifting draws from no database that could be known"
    assert reasons["hardened-2-4", "database"].startswith("the pool that confounders are drawn from is private")  # type: ignore[union-attr]
    assert reasons["sub-hybrid-2", "clustering + others"] == "there is no other image in this dataset"
    assert ("sub-hybrid-2", "database") not in reasons and ("hardened-2-4", "nearest") not in reasons


def test_a_second_release_breaks_lifting_but_not_hardened_lifting() -> None:
    assert value(one("random-2", "relift"), "exact") > 0.9
    assert value(one("hardened-2-4", "relift"), "below 0.5") < 0.4
    Spy.seen.clear()
    everything(trying(Spy(), "hardened-2-4"))
    first, second = (seen.descriptors for seen in Spy.seen)
    assert isinstance(first, Subspaces) and isinstance(second, Subspaces)
    assert np.allclose(np.sort(first.offset, axis=0), np.sort(second.offset, axis=0))


def test_only_schemes_that_release_geometry_show_it() -> None:
    Spy.seen.clear()
    for scheme in ("random-2", "subset-8-2-geometry"):
        everything(trying(Spy(), scheme))
    assert [seen.keypoints is not None and seen.keypoints.scale is not None for seen in Spy.seen] == [False] * 2 + [
        True
    ] * 2
    assert not any(trial.geometry for trial in trials_of([ATTACKS["overlap"]()]))


def test_examples_are_of_the_same_features_for_all_schemes() -> None:
    shown = [record for record in measured() if "shown_truth" in record.parameters]
    assert {record.seed for record in shown} == {0}
    assert len(shown) == sum(record.metric == METRIC and record.seed == 0 for record in measured())
    (truth,) = {numbers(record, "shown_truth") for record in shown if record.parameters["keypoints"] == "all"}
    assert len(truth) == 3 * 128 and min(truth) == 0 and 50 < max(truth) <= 255
    (victim,) = audit().datasets[0].victims
    raw = {tuple(row) for row in np.rint(512 * victim.features.descriptors.values).astype(int)}
    assert {truth[start : start + 128] for start in (0, 128, 256)} < raw
    read, guessed = one("identity", "read"), one("random-2", "nearest")
    assert numbers(read, "shown_guess") == truth != numbers(guessed, "shown_guess")


def test_attacks_that_work_alone_see_a_sample() -> None:
    assert one("random-2", "nearest").count == 10
    assert one("random-2", "relift").count == one("random-2", "relift").parameters["features"] == 80
    apart = one("hardened-2-4-apart", "relift")
    assert apart.count == apart.parameters["features"] and apart.count < 80 == apart.parameters["raw_features"]


@pytest.mark.parametrize("error", [InputError("too few features"), MissingExtraError("lattice", "attacks")])
def test_an_attack_that_fails_is_skipped(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Broken, "error", error)
    *_, record = everything(trying(Broken(), "random-2"))
    assert (record.metric, record.attack, record.count) == ("skipped", "broken", 0)
    assert record.parameters["reason"] == str(error)


def lines(records: Any) -> list[str]:
    return sorted(map(repr, records))


def test_processes_and_interruptions_change_nothing(tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    seen: list[tuple[int, int]] = []
    append_records(path, measured()[:7])
    append_records(path, measured()[-5:])
    records = run_resumable(audit(), path, 2, lambda done, total: seen.append((done, total)))
    assert lines(records) == lines(measured()) == lines(read_records(path))
    assert seen[0] == (12, len(measured())) and seen[-1] == (len(measured()), len(measured()))
    assert [record.scheme for record in records] == [record.scheme for record in measured()]


def test_processes_end_when_the_caller_stops() -> None:
    before = multiprocessing.active_children()
    slow = trying(Vertex(rounds=10**6), "sub-hybrid-2", (0, 1, 2))
    slow = replace(slow, trials=(*slow.trials, Trial(Chance())))
    first, *others = slow.units()
    records = measure_units(slow, {first: ("chance",), **dict.fromkeys(others, ("vertex",))}, 2)
    next(records)
    started = [process for process in multiprocessing.active_children() if process not in before]
    assert started
    records.close()  # type: ignore[attr-defined]
    # A thread of the executor may reap a process first, and for a moment it then still counts as alive here.
    deadline = time.monotonic() + 10
    while any(process.is_alive() for process in started) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(process.is_alive() for process in started)


def test_an_interrupted_run_in_one_process_goes_on(tmp_path: Path) -> None:
    path, small = tmp_path / "records.jsonl", trying(ATTACKS["nearest"](), "random-2", (0, 1))

    def stop(done: int, total: int) -> None:
        if done == 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_resumable(small, path, 1, stop)
    assert len(read_records(path)) == 4
    assert lines(run_resumable(small, path)) == lines(everything(small))


def test_other_settings_and_other_versions_do_not_mix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, small = tmp_path / "records.jsonl", trying(Oracle(), "random-2")
    run_resumable(small, path)
    before = path.read_bytes()
    with pytest.raises(InputError, match=r"made with oracle\.neighbours 100, not 5"):
        run_resumable(trying(Oracle(5), "random-2"), path)
    with pytest.raises(InputError, match="made with sample 10, not 9"):
        run_resumable(replace(small, settings=replace(small.settings, sample=9)), path)
    monkeypatch.setattr("featveil.core.resuming.VERSION", "99.0")
    with pytest.raises(InputError, match=r"made by featveil .*, this is 99.0: .* name another folder, or delete"):
        run_resumable(small, path)
    assert path.read_bytes() == before


def test_a_scheme_that_cannot_be_made_is_named() -> None:
    large = prepare(request(({"name": "lifting", "strategy": "random", "dimension": 200},), ("chance",)))
    with pytest.raises(InputError, match=r"random-200 cannot be made of board-1\.jpg: dimension must be below"):
        everything(large)


def test_processes_are_counted(tmp_path: Path) -> None:
    for wrong in (0, True, 1.5):
        with pytest.raises(InputError, match="processes must be"):
            run_resumable(audit(), tmp_path / "records.jsonl", wrong)  # type: ignore[arg-type]
