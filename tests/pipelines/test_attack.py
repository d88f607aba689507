"""Records of attacks on files: what they state, what is run again, and guesses that are kept where no truth is."""

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from featveil.attacks import Attack, Chance, Guess, Knowledge, NearestNeighbour
from featveil.core import Features, FeatveilError, InputError, Points, PrivateFeatures, Spec, Subspaces, WordSets
from featveil.core.records import read_records
from featveil.databases import builtin
from featveil.defenses import Lifting, Metric, Naive, Subset, privatize
from featveil.metrics import BINS, align
from featveil.pipelines.attack_parts.attack_records import (
    Settings,
    Target,
    fingerprint,
    known_facts,
    measure,
    run_resumable,
)
from featveil.pipelines.attack_parts.guesses import guess_path, run_guesses
from featveil.pipelines.scoring import attack_parameters, scheme_name
from featveil.plotting.leakage_tables import leakage_rows
from victims import lifted, own_database, picture

CALLS: list[int] = []


@dataclass(frozen=True)
class Counting:
    """Zeros; counts how often it was run, and on how many features."""

    limit: float = float("inf")
    names: tuple[str, ...] = ("a",)
    name: ClassVar[str] = "counting"
    summary: ClassVar[str] = "zeros"
    breaks: ClassVar[tuple[type, ...]] = (Points, Subspaces, WordSets)
    needs: ClassVar[tuple[str, ...]] = ()
    uses: ClassVar[tuple[str, ...]] = ("database", "repeats", "reference")
    alone: ClassVar[bool] = True

    def run(self, seen: PrivateFeatures, knowledge: Knowledge, rng: np.random.Generator) -> Guess:
        CALLS.append(len(seen))
        if self.limit < len(seen):
            raise InputError("too many features")
        return Guess(rng.random((len(seen), 128), np.float32), np.arange(len(seen)) % 2 == 0, note="half is missing")


@dataclass(frozen=True)
class Together(Counting):
    """The same, for features that are attacked together."""

    name: ClassVar[str] = "together"
    alone: ClassVar[bool] = False


@pytest.fixture(autouse=True)
def no_calls() -> None:
    CALLS.clear()


def target(knowledge: Knowledge | None = None, name: str = "a.veil") -> Target:
    return Target(name, lifted(count=40), knowledge or Knowledge(database=own_database()))


def run(methods: list[Any], path: Path | None, settings: Settings | None = None, **changed: Any) -> list[Any]:
    errors: list[tuple[Attack, FeatveilError]] = changed.pop("errors", [])
    victim = replace(target(), **changed)
    truth = align(victim.private, picture(count=40))
    steps: list[tuple[int, int]] = changed.pop("steps", [])
    return run_resumable(
        victim,
        truth,
        methods,
        settings or Settings(),
        path,
        lambda method, error: errors.append((method, error)),
        lambda done, total: steps.append((done, total)),
    )


def test_a_record_says_all_that_decides_it() -> None:
    record = measure(target(), align(target().private, picture(count=40)), Counting(limit=99), Settings(3))
    assert (record.task, record.dataset, record.scheme, record.attack) == (
        "attack",
        "a.veil",
        "sub-hybrid-4",
        "counting",
    )
    assert (record.seed, record.count) == (3, 40) and record.versions["featveil"]
    found = record.parameters
    assert found["knows"] == ["database"] and found["known_database"] == own_database().digest[:16]
    assert (found["counting.limit"], found["counting.names"]) == (99, ["a"])
    assert (found["features"], found["attacked"], found["sample"], found["kind"]) == (40, 40, None, "sift")
    assert found["note"] == "half is missing" and sum(found["histogram"]) == 40 and len(found["histogram"]) == BINS  # type: ignore[arg-type]
    assert isinstance(record.value, tuple) and record.value[-1] == 0.5
    assert leakage_rows([record])[0].answered == 0.5


def test_what_is_there_is_not_run_again(tmp_path: Path) -> None:
    path = tmp_path / "new" / "records.jsonl"
    first = run([Counting()], path)
    assert CALLS == [40] and read_records(path) == first
    again = run([Counting(), Chance()], path)
    assert CALLS == [40] and [record.attack for record in again] == ["counting", "chance"]
    assert again[0] == first[0] and read_records(path) == again


def test_another_file_is_added(tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    run([Counting()], path)
    other = run([Counting()], path, name="b.veil")
    assert len(CALLS) == 2 and [record.dataset for record in other] == ["b.veil"]
    assert len(read_records(path)) == 2


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"settings": Settings(1)}, "seed 0, not 1"),
        ({"settings": Settings(0, 5)}, "sample None, not 5"),
        ({"methods": [Counting(limit=50)]}, "counting.limit inf, not 50"),
        ({"private": lifted(count=40, seed=1)}, "made with private"),
        ({"knowledge": Knowledge()}, "made with knows"),
        ({"knowledge": Knowledge(database=own_database(near_victim=False))}, "made with known_database"),
        ({"knowledge": Knowledge(database=own_database(), repeats=(lifted(seed=2),))}, "made with knows"),
    ],
)
def test_other_settings_do_not_mix(tmp_path: Path, changed: dict[str, Any], message: str) -> None:
    path = tmp_path / "records.jsonl"
    run([Counting()], path)
    before = path.read_bytes()
    with pytest.raises(InputError, match=message):
        run(changed.pop("methods", [Counting()]), path, **changed)
    assert path.read_bytes() == before and len(CALLS) == 1


def test_a_failing_attack_leaves_the_others(tmp_path: Path) -> None:
    path, errors = tmp_path / "records.jsonl", []  # type: ignore[var-annotated]
    found = run([Counting(limit=3), Chance()], path, errors=errors)
    assert [record.attack for record in found] == ["chance"] == [record.attack for record in read_records(path)]
    assert [(method.name, str(error)) for method, error in errors] == [("counting", "too many features")]
    assert [record.attack for record in run([Counting(limit=3), Chance()], None, errors=errors)] == ["chance"]


def test_nothing_is_made_where_all_fails(tmp_path: Path) -> None:
    assert run([Counting(limit=3)], tmp_path / "new" / "records.jsonl") == []
    assert not (tmp_path / "new").exists()


def test_without_a_path_nothing_is_stored(tmp_path: Path) -> None:
    assert len(run([Counting(), Chance()], None)) == 2
    assert list(tmp_path.iterdir()) == []


def test_a_stopped_run_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "records.jsonl"

    def stop(*_: object) -> Guess:
        raise KeyboardInterrupt

    monkeypatch.setattr(Chance, "run", stop)
    with pytest.raises(KeyboardInterrupt):
        run([Counting(), Chance()], path)
    assert [record.attack for record in read_records(path)] == ["counting"]
    monkeypatch.undo()
    assert [record.attack for record in run([Counting(), Chance()], path)] == ["counting", "chance"]
    assert len(CALLS) == 1


def test_a_sample_is_the_same_for_every_attack() -> None:
    victim, settings = target(), Settings(0, 7)
    rows = victim.rows(Counting(), settings)
    assert rows is not None and len(set(rows)) == 7 and (np.diff(rows) > 0).all()
    assert np.array_equal(victim.rows(Chance(), settings), rows)  # type: ignore[arg-type]
    assert not np.array_equal(target(name="b.veil").rows(Chance(), settings), rows)  # type: ignore[arg-type]
    assert not np.array_equal(victim.rows(Chance(), Settings(1, 7)), rows)  # type: ignore[arg-type]
    assert victim.rows(Together(), settings) is None and victim.rows(Counting(), Settings(0, 40)) is None
    records = run([Counting(), Together()], None, settings)
    assert CALLS == [7, 40] and [record.count for record in records] == [7, 40]
    assert [record.parameters["sample"] for record in records] == [7, None]
    assert [record.parameters["features"] for record in records] == [40, 40]


def test_a_sample_is_scored_with_its_own_truth() -> None:
    records = run([NearestNeighbour()], None, Settings(0, 30), private=lifted("random", count=40))
    assert leakage_rows(records)[0].mean < 0.7


def test_a_sample_of_repeats_without_keypoints() -> None:
    plain = replace(lifted(count=40), keypoints=None)
    victim = Target("a.veil", plain, Knowledge(repeats=(plain, lifted(count=40))))
    taken = victim.taken(np.array([3, 8]))
    assert [len(repeat) for repeat in taken.knowledge.repeats] == [2, 40] and len(taken.private) == 2


def test_scheme_names() -> None:
    specs: dict[str, Spec] = {
        "sub-hybrid-4": Lifting().for_kind("sift").spec(),
        "random-16": Lifting("random", 16).for_kind("sift").spec(),
        "subset-10-2": Subset(10.0).for_kind("sift").spec(),
        "metric-4.5-1": Metric(4.5).for_kind("sift").spec(),
        "naive-10": Naive(10.0).spec(),
        "subset-infinite-1": Subset(float("inf"), 1).for_kind("sift").spec(),
        "own-3-round": {"name": "own", "size": 3, "shape": "round"},
    }
    assert {scheme_name(spec): spec for spec in specs.values()} == specs


def test_fingerprints_tell_features_apart() -> None:
    words = privatize(picture(count=40), Subset(10.0), rng=np.random.default_rng(0))
    bare = replace(lifted(count=40), keypoints=None)
    all_of_them: list[Features | PrivateFeatures] = [
        lifted(count=40),
        lifted(count=40, seed=1),
        bare,
        words,
        picture(count=40),
        picture(count=39),
    ]
    assert len({fingerprint(one) for one in all_of_them}) == len(all_of_them)
    assert fingerprint(replace(bare)) == fingerprint(bare)


def test_known_facts_are_only_what_is_declared_and_there() -> None:
    whole = Knowledge(
        database=own_database(), codebook=builtin(), repeats=(lifted(count=40),), reference=picture(1, count=40)
    )
    facts = known_facts(Counting(), whole)
    assert facts["knows"] == ["database", "repeats", "reference"]
    assert facts["known_repeats"] == [fingerprint(lifted(count=40))]
    assert facts["known_reference"] == fingerprint(picture(1, count=40)) and "known_codebook" not in facts
    assert known_facts(Counting(), Knowledge()) == {"knows": []}
    assert attack_parameters(Counting()) == {"counting.limit": "inf", "counting.names": ["a"]}


@pytest.mark.parametrize(("seed", "sample"), [(-1, None), (0, 0), (1.5, None), (True, None)])
def test_settings_that_cannot_be(seed: Any, sample: Any) -> None:
    with pytest.raises(InputError, match="must be a whole number"):
        Settings(seed, sample)


def guesses(folder: Path | None, methods: list[Any], settings: Settings | None = None) -> list[Any]:
    errors: list[object] = []
    found = run_guesses(
        target(name="x/a.jpg.veil"), methods, settings or Settings(), folder, lambda *e: errors.append(e)
    )
    return [*found, *errors]


def test_guesses_are_kept(tmp_path: Path) -> None:
    (made,) = guesses(tmp_path, [Counting()], Settings(0, 9))
    assert (made.file, made.scheme, made.attack) == ("x/a.jpg.veil", "sub-hybrid-4", "counting")
    assert (made.attacked, made.answered, made.note, made.knows) == (9, 5, "half is missing", ("database",))
    assert made.path == str(tmp_path / "x" / "a.jpg.counting.npz") == str(guess_path(tmp_path, made.file, Counting()))
    with np.load(made.path, allow_pickle=False) as content:
        assert content["values"].shape == (9, 128) and content["answered"].sum() == 5
        assert content["rows"].tolist() == target(name=made.file).rows(Counting(), Settings(0, 9)).tolist()  # type: ignore[union-attr]
        assert json.loads(str(content["about"]))["knows"] == ["database"] and "words" not in content
    assert guesses(tmp_path, [Counting()], Settings(0, 9)) == [made] and len(CALLS) == 1


def test_guessed_words_are_kept(tmp_path: Path) -> None:
    words = privatize(picture(count=40), Subset(10.0), rng=np.random.default_rng(0))
    victim = Target("w.veil", words, Knowledge(database=own_database(), codebook=builtin()))
    (made,) = run_guesses(victim, [Chance()], Settings(), tmp_path, lambda *_: None)
    assert made.path is not None
    with np.load(made.path, allow_pickle=False) as content:
        assert content["values"] == pytest.approx(builtin().unit(content["words"]))


def test_guesses_without_a_folder(tmp_path: Path) -> None:
    (made,) = guesses(None, [Counting()])
    assert (made.path, made.attacked, made.answered) == (None, 40, 20) and list(tmp_path.iterdir()) == []


def test_a_failing_guess_is_reported(tmp_path: Path) -> None:
    made, failure = guesses(tmp_path / "new", [Counting(limit=3), Together()])
    assert made.attack == "together" and str(failure[1]) == "too many features"


def test_guesses_of_other_settings_are_not_replaced(tmp_path: Path) -> None:
    (made,) = guesses(tmp_path, [Counting()])
    before = Path(made.path).read_bytes()
    with pytest.raises(InputError, match="made with other settings"):
        guesses(tmp_path, [Counting()], Settings(1))
    assert Path(made.path).read_bytes() == before


@pytest.mark.parametrize("content", [b"", b"no", b"PK\x03\x04 cut", None])
def test_a_file_that_holds_no_guesses_is_not_replaced(tmp_path: Path, content: bytes | None) -> None:
    path = guess_path(tmp_path, "x/a.jpg.veil", Counting())
    path.parent.mkdir()
    if content is None:
        np.savez(path, about=np.array("[1]"))
    else:
        path.write_bytes(content)
    before = path.read_bytes()
    with pytest.raises(InputError, match="holds no guesses|other settings"):  # noqa: RUF043
        guesses(tmp_path, [Counting()])
    assert path.read_bytes() == before
