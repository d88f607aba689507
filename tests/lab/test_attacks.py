"""All attacks against all defenses: what is measured, that it resumes, and that each knows only what it may."""

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

import cv2
import numpy as np
import pytest

from featveil.attacks import ATTACKS, Guess, Knowledge
from featveil.audit.schemes import Victim
from featveil.audit.trials import Trial, make_trials
from featveil.core import InputError, PrivateFeatures, Subspaces
from featveil.core.records import Parameter, Record, read_records
from featveil.lab.attacks import BENCH, COLUMNS, Attempt, Faced, best_attacks, draw, make_schemes
from featveil.lab.attacks import study as study_of
from featveil.lab.bench import Study, headings_and_cells
from featveil.lab.scene_studies import Settings
from victims import own_database, picture

SETTINGS = Settings(max_features=40)


@cache
def victims() -> list[Victim]:
    """Two photographs of 40 features."""
    return [Victim(str(number), picture(number, count=40), picture(1 - number, count=40)) for number in (0, 1)]


def study(
    names: tuple[str, ...] = ("chance", "read", "nearest"), dataset: str = "drawn", sample: int = 10, **changed: Any
) -> Study[Attempt]:
    """Quick attacks on one lifting, one subset mechanism and no defense."""
    schemes = make_schemes("sift", ["random"], [2], [8.0], [2], [])
    faced = replace(Faced(victims(), schemes, make_trials(names), own_database()), **changed)
    return study_of(dataset, faced, SETTINGS, sample)


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
    found = {(record.scheme, record.attack): record for record in BENCH.measured(study())}
    assert set(found) == {
        ("identity", "chance"),
        ("identity", "read"),
        ("random-2", "chance"),
        ("random-2", "nearest"),
        ("subset-8-2", "chance"),
    }
    assert found["identity", "read"].value == (0, 0, 1, 1, 1, 1, 1)
    assert found["random-2", "nearest"].value[3] > 5 * found["random-2", "chance"].value[3]  # type: ignore[index]
    assert len(list(BENCH.measured(study()))) == 2 * len(found)


def test_attacks_that_work_alone_see_a_sample_and_others_everything() -> None:
    spy = Spy()
    records = list(BENCH.measured(study(trials=[Trial(spy), *make_trials(["nearest"])])))
    assert {record.count for record in records if record.attack == "nearest"} == {10}
    assert {record.count for record in records if record.attack == "spy"} == {40}


def test_an_attack_stands_once_for_each_thing_that_may_be_known() -> None:
    names = [trial.name for trial in make_trials(["posterior-overlap", "inlier", "chance"])]
    first = "posterior-overlap"
    assert names[:4] == [first, f"{first} + database", f"{first} + repeats", f"{first} + geometry"]
    assert names[4:] == ["inlier", "chance"]


def test_an_adversary_has_only_what_its_trial_says() -> None:
    spy = Spy()
    list(BENCH.measured(study(victims=victims()[:1], trials=[Trial(spy)])))
    (_, plain), *_ = spy.given
    assert plain.database is own_database()
    # The truth is there because the spy declares it; the contract suite sees to it that only the oracle does.
    assert plain.lifting_database is None and plain.others == () and plain.repeats == ()

    spy = Spy()
    schemes = make_schemes("sift", ["sub-hybrid"], [2], [], [], [])
    more = [Trial(spy, ("lifting_database",)), Trial(spy, ("others",)), Trial(spy, ("repeats",), geometry=True)]
    list(BENCH.measured(study(schemes=schemes, trials=more)))
    (_, database), (_, others), (seen, repeats) = spy.given[:3]
    assert database.lifting_database is not None and database.others == ()
    assert [len(other) for other in others.others] == [40] and others.lifting_database is None
    assert repeats.repeats[0].descriptors is not seen.descriptors
    assert seen.keypoints is not None and seen.keypoints.scale is not None


def test_random_lifting_has_no_database_to_know() -> None:
    trials = [Trial(Spy(), ("lifting_database",))]
    assert list(BENCH.measured(study(trials=trials))) == []


def test_a_run_is_repeatable_and_goes_on_where_it_stopped(tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    whole = BENCH.resume(study(), path)
    assert [record.value for record in whole] == [record.value for record in BENCH.measured(study())]
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(lines[:3]) + lines[3][:20])
    seen: list[tuple[int, int]] = []
    again = BENCH.resume(study(), path, lambda done, total: seen.append((done, total)))
    assert [record.value for record in again] == [record.value for record in whole]
    assert seen[0] == (3, 10) and seen[-1] == (10, 10)
    assert len(read_records(path)) == 10


def test_other_settings_do_not_mix(tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    BENCH.resume(study(("chance",)), path)
    before = path.read_bytes()
    for changed in (
        {"sample": 5},
        {"database": own_database(near_victim=False)},
        {"dataset": "another"},
    ):
        with pytest.raises(InputError, match="was made with"):
            BENCH.resume(study(("chance",), **changed), path)
    assert path.read_bytes() == before


def test_unknown_attacks_are_named_with_those_that_exist() -> None:
    with pytest.raises(InputError, match=f"unknown attack 'guess': use some of {', '.join(ATTACKS)}"):
        make_trials(["guess"])
    with pytest.raises(InputError, match="sample must be"):
        study(sample=0)


def record(
    scheme: str,
    attack: str,
    victim: str = "a",
    near: float = 0.5,
    count: int = 100,
    epsilon: float | None = None,
    exact: float = 0.1,
) -> Record:
    """One attack on one photograph."""
    parameters: dict[str, Parameter] = {"victim": victim, "kind": "sift", "max_features": 500, "sample": 100}
    parameters |= {"defense": "subset" if epsilon else "lifting", "features": 4 * count, "seconds": 0.5}
    parameters |= {"epsilon": epsilon, "bound": 0.154} if epsilon else {}
    value = (0.6, 1 - near, near / 2, near, exact, 7, 1)
    return Record("attacks", "town", scheme, BENCH.metric, value, "", count, 0, {}, attack, parameters)


RECORDS = [
    record("sub-hybrid-2", "chance", near=0.01),
    record("sub-hybrid-2", "oracle", near=0.99),
    record("sub-hybrid-2", "nearest", near=0.2, count=100),
    record("sub-hybrid-2", "nearest", "b", near=0.6, count=300),
    record("sub-hybrid-2", "overlap + geometry", near=0.4),
    record("subset-8-1", "posterior", near=0.3, epsilon=8.0),
]


def test_a_photograph_weighs_as_many_features_as_it_has_but_medians_alike() -> None:
    rows = {(row.scheme, row.attack): row for row in BENCH.summarize(RECORDS)}
    row = rows["sub-hybrid-2", "nearest"]
    assert row.below_near == pytest.approx(0.5)
    assert row.median == pytest.approx(0.6)
    assert (row.count, row.victims) == (400, 2)
    assert row.seconds == pytest.approx(1 / 400)


def test_the_best_attack_is_neither_chance_nor_the_oracle() -> None:
    best = best_attacks(BENCH.summarize(RECORDS))
    assert best["sub-hybrid-2"].attack == "nearest"
    assert best["subset-8-1"].attack == "posterior"


def test_the_best_attack_on_word_sets_names_most_words_right() -> None:
    records = [
        record("subset-8-1", "chance", near=0.9, exact=0.9, epsilon=8.0),
        record("subset-8-1", "mean", near=0.8, exact=0.1, epsilon=8.0),
        record("subset-8-1", "posterior", near=0.3, exact=0.4, epsilon=8.0),
        record("random-2", "mean", near=0.8, exact=0.1),
        record("random-2", "posterior", near=0.3, exact=0.4),
    ]
    rows = BENCH.summarize(records)
    assert {scheme: row.attack for scheme, row in best_attacks(rows).items()} == {
        "subset-8-1": "posterior",
        "random-2": "mean",
    }
    assert best_attacks(rows, lambda row: row.below_near)["subset-8-1"].attack == "mean"
    assert best_attacks(rows, lambda row: 1.0)["random-2"].attack == "mean"  # among equals the nearer one


def test_each_table_ends_with_the_best_by_its_own_number() -> None:
    records = [
        record("random-2", "mean", near=0.8, exact=0.1),
        record("random-2", "lattice", near=0.3, exact=0.4),
        record("random-4", "mean", near=0.8, exact=0.0),
    ]
    grids = {part.splitlines()[0]: part.rstrip().splitlines()[-1] for part in BENCH.markdown(records).split("## ")}
    lines = [line for heading, line in grids.items() if heading.startswith("lifting: ")]
    assert lines == ["| **best** | mean | mean |", "| **best** | mean | mean |", "| **best** | lattice | none |"]


def test_the_second_view_is_no_other_photograph() -> None:
    head = BENCH.markdown(RECORDS).split("## ")[0]
    assert (
        "inlier and closest-pair" in head and "the victim's own photograph turned, tilted, smaller and darker" in head
    )


def test_an_epsilon_stands_beside_that_of_the_image() -> None:
    row = BENCH.summarize(RECORDS)[-1]
    assert (row.epsilon, row.image_epsilon) == (8.0, 8.0 * 400)
    headings, cells = headings_and_cells(COLUMNS, [row])
    assert dict(zip(headings, cells[0], strict=True))["epsilon an image"] == "3,200"


def test_the_bound_stands_below_what_was_named_right() -> None:
    parts = BENCH.markdown(RECORDS).split("## ")
    bounded = [part for part in parts if "| **bound: one release, all words equally common** | 15.4 |" in part]
    assert [part.splitlines()[0][:24] for part in bounded] == ["subset: exactly recovere"]
    assert bounded[0].rstrip().splitlines()[-2].startswith("| **best")


def test_tables_have_every_attack_and_a_dash_where_none_applies() -> None:
    text = BENCH.markdown([*RECORDS, record("sub-hybrid-4", "chance", near=0.02)])
    grid = text.split("## ")[1]
    assert "| attack | sub-hybrid-2 | sub-hybrid-4 |" in grid
    assert "| nearest | 50.0 | - |" in grid
    assert "| **best** | nearest | - |" in grid
    assert "| oracle | 99.0 | - |" in grid


def test_the_figure_has_something_on_it(tmp_path: Path) -> None:
    draw(BENCH.summarize(RECORDS), tmp_path / "a.png", "title")
    image = cv2.imread(str(tmp_path / "a.png"))
    assert image is not None and image.std() > 20


def test_nothing_is_cut_off_a_figure_of_one_scheme(tmp_path: Path) -> None:
    one = [record("sub-hybrid-2", "chance"), record("sub-hybrid-2", "mean")]
    draw(BENCH.summarize(one), tmp_path / "a.png", "Attacks on a-dataset-with-a-name, rootsift")
    image = cv2.imread(str(tmp_path / "a.png"))
    assert image is not None
    assert image[:, :2].min() == image[:, -2:].min() == image[:2].min() == image[-2:].min() == 255


def test_other_records_and_none_at_all_are_refused() -> None:
    with pytest.raises(InputError, match="not one of attacks"):
        BENCH.summarize([Record("words", "x", "y", "z", 1.0, "", 1, 0, {})])
    with pytest.raises(InputError, match="no record"):
        BENCH.markdown([])
