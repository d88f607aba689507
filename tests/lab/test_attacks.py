"""All attacks against all defenses: what is measured, that it resumes, and that each knows only what it may."""

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from featveil.attacks import ATTACKS, Guess, Knowledge
from featveil.audit.releases import Victim
from featveil.audit.trials import Trial, make_trials
from featveil.core import InputError, PrivateFeatures, Subspaces
from featveil.core.records import read_records
from featveil.lab.attacks import Settings, Study, make_schemes, run, run_resumable
from victims import own_database, picture

SETTINGS = Settings(max_features=40, sample=10)


@cache
def victims() -> list[Victim]:
    """Two photographs of 40 features."""
    return [Victim(str(number), picture(number, count=40), picture(1 - number, count=40)) for number in (0, 1)]


def study(names: tuple[str, ...] = ("chance", "read", "nearest"), **changes: Any) -> Study:
    """Quick attacks on one lifting, one subset mechanism and no defense."""
    schemes = make_schemes("sift", ["random"], [2], [8.0], [2], [])
    made = Study("drawn", victims(), schemes, make_trials(names), own_database(), SETTINGS)
    return replace(made, **changes)


class Spy:
    """An attack that keeps what it was given."""

    name: ClassVar[str] = "spy"
    summary: ClassVar[str] = "keeps what it was given"
    breaks: ClassVar[tuple[type, ...]] = (Subspaces,)
    needs: ClassVar[tuple[str, ...]] = ("database",)
    uses: ClassVar[tuple[str, ...]] = ("lifting_database", "others", "repeats", "truth")
    alone: ClassVar[bool] = False

    def __init__(self) -> None:
        self.given: list[tuple[PrivateFeatures, Knowledge]] = []

    def run(self, seen: PrivateFeatures, knowledge: Knowledge, rng: np.random.Generator) -> Guess:
        self.given.append((seen, knowledge))
        return Guess.all_of(np.ones((len(seen), 128), np.float32))


def test_both_end_points_and_every_victim_are_measured() -> None:
    found = {(record.scheme, record.attack): record for record in run(study())}
    assert set(found) == {
        ("identity", "chance"),
        ("identity", "read"),
        ("random-2", "chance"),
        ("random-2", "nearest"),
        ("subset-8-2", "chance"),
    }
    assert found["identity", "read"].value == (0, 0, 1, 1, 1, 1, 1)
    assert found["random-2", "nearest"].value[3] > 5 * found["random-2", "chance"].value[3]  # type: ignore[index]
    assert len(list(run(study()))) == 2 * len(found)


def test_attacks_that_work_alone_see_a_sample_and_others_everything() -> None:
    spy = Spy()
    records = list(run(study(trials=[Trial(spy), *make_trials(["nearest"])])))
    assert {record.count for record in records if record.attack == "nearest"} == {10}
    assert {record.count for record in records if record.attack == "spy"} == {40}


def test_an_attack_stands_once_for_each_thing_that_may_be_known() -> None:
    names = [trial.name for trial in make_trials(["posterior-overlap", "inlier", "chance"])]
    first = "posterior-overlap"
    assert names[:4] == [first, f"{first} + database", f"{first} + repeats", f"{first} + geometry"]
    assert names[4:] == ["inlier", "chance"]


def test_an_adversary_has_only_what_its_trial_says() -> None:
    spy = Spy()
    list(run(study(victims=victims()[:1], trials=[Trial(spy)])))
    (_, plain), *_ = spy.given
    assert plain.database is own_database()
    # The truth is there because the spy declares it; the contract suite sees to it that only the oracle does.
    assert plain.lifting_database is None and plain.others == () and plain.repeats == ()

    spy = Spy()
    schemes = make_schemes("sift", ["sub-hybrid"], [2], [], [], [])
    more = [Trial(spy, ("lifting_database",)), Trial(spy, ("others",)), Trial(spy, ("repeats",), geometry=True)]
    list(run(study(schemes=schemes, trials=more)))
    (_, database), (_, others), (seen, repeats) = spy.given[:3]
    assert database.lifting_database is not None and database.others == ()
    assert [len(other) for other in others.others] == [40] and others.lifting_database is None
    assert repeats.repeats[0].descriptors is not seen.descriptors
    assert seen.keypoints is not None and seen.keypoints.scale is not None


def test_random_lifting_has_no_database_to_know() -> None:
    trials = [Trial(Spy(), ("lifting_database",))]
    assert list(run(study(trials=trials))) == []


def test_a_run_is_repeatable_and_goes_on_where_it_stopped(tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    whole = run_resumable(study(), path)
    assert [record.value for record in whole] == [record.value for record in run(study())]
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(lines[:3]) + lines[3][:20])
    seen: list[tuple[int, int]] = []
    again = run_resumable(study(), path, lambda done, total: seen.append((done, total)))
    assert [record.value for record in again] == [record.value for record in whole]
    assert seen[0] == (3, 10) and seen[-1] == (10, 10)
    assert len(read_records(path)) == 10


def test_other_settings_do_not_mix(tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    run_resumable(study(("chance",)), path)
    before = path.read_bytes()
    for changed in (
        {"settings": replace(SETTINGS, sample=5)},
        {"database": own_database(near_victim=False)},
        {"dataset": "another"},
    ):
        with pytest.raises(InputError, match="was made with"):
            run_resumable(study(("chance",), **changed), path)
    assert path.read_bytes() == before


def test_unknown_attacks_are_named_with_those_that_exist() -> None:
    with pytest.raises(InputError, match=f"unknown attack 'guess': use some of {', '.join(ATTACKS)}"):
        make_trials(["guess"])
    with pytest.raises(InputError, match="sample must be"):
        Settings(sample=0)
