"""Concealers in audits and bench attacks: what adversaries are given, and in which space guesses are scored."""

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from featveil.attacks import ATTACKS, Chance, Knowledge, Posterior, Relift
from featveil.audit.audit_tables import audit_markdown
from featveil.audit.file import read_audit_file
from featveil.audit.measuring import Audit, Measuring
from featveil.audit.page import audit_page
from featveil.audit.request import Request, Settings, default_schemes, grid, with_identity
from featveil.audit.roles import prepare
from featveil.audit.rows import summarize_audit
from featveil.audit.schemes import Releases, Scheme, Victim, concealed_schemes
from featveil.audit.trials import Trial, make_trials
from featveil.core import InputError, Points, Subspaces, WordSets
from featveil.core.records import Record
from featveil.databases import ConcealedDatabase, builtin
from featveil.defenses import Concealer, Lifting, Subset, privatize
from featveil.lab.attacks import BENCH, Attempt, Faced, make_schemes
from featveil.lab.attacks import study as study_of
from featveil.lab.bench import Study
from featveil.lab.scene_studies import Settings as FeatureSettings
from featveil.metrics.leakage import METRIC
from featveil.pipelines.scoring import run_attack
from networks import random_network, write_network
from victims import own_database, picture

NETWORK = random_network(256)
DIGEST = NETWORK.digest[:8]
THEN: tuple[dict[str, Any], ...] = (
    {"name": "lifting", "dimension": 2},
    {"name": "subset", "epsilon": 8.0, "subset_size": 2},
)


@cache
def audit() -> Audit:
    entries: tuple[dict[str, Any], ...] = (
        {"name": "concealer", "network": NETWORK},
        {"name": "concealer", "network": NETWORK, "then": list(THEN)},
    )
    schemes = with_identity(scheme for one in entries for scheme in grid(one, "sift"))
    methods = ("chance", "read", "unconceal", "nearest", "relift", "inlier", "posterior", "overlap", "database")
    settings = Settings(max_features=40, sample=6)
    return prepare(Request(tuple(schemes), settings=settings, methods=tuple(ATTACKS[name]() for name in methods)))


@cache
def records() -> tuple[Record, ...]:
    measuring, what = Measuring(audit()), audit()
    return tuple(record for unit in what.units() for record in measuring.records(unit, tuple(what.wanted(unit))))


def one(scheme: str, name: str) -> Record:
    (found,) = [r for r in records() if r.scheme == scheme and name in (r.attack, r.parameters.get("sides"))]
    return found


def near(record: Record) -> float:
    assert isinstance(record.value, tuple) and record.metric == METRIC
    return record.value[3]


def test_names_of_schemes_tell_lambda_network_and_what_follows() -> None:
    assert [scheme.name for scheme in audit().schemes] == [
        *("identity", f"concealer-1-{DIGEST}", f"concealer-1-sub-hybrid-2-{DIGEST}", f"concealer-1-subset-8-2-{DIGEST}")
    ]
    sent = [scheme.representation for scheme in audit().schemes]
    assert sent == [Points, Points, Subspaces, WordSets]
    assert audit().schemes[3].bound().keys() == {"bound"}


def test_utility_is_that_of_concealed_descriptors_on_both_sides() -> None:
    raw = one("identity", "one").value[3]  # type: ignore[index]
    for name in ("one", "both"):
        assert one(f"concealer-1-{DIGEST}", name).value[3] > 0.8 * raw  # type: ignore[index]
        assert one(f"concealer-1-sub-hybrid-2-{DIGEST}", name).value[3] > 0.5 * raw  # type: ignore[index]


def test_the_secret_is_the_raw_descriptor() -> None:
    undone, read = one(f"concealer-1-{DIGEST}", "unconceal"), one(f"concealer-1-{DIGEST}", "read")
    assert near(undone) == 1 and near(read) == 0
    assert undone.parameters["released_exact"] == 1.0 and "released_mean" not in read.parameters
    assert undone.parameters["adversary"] == "release"
    shown = np.reshape(np.array(undone.parameters["shown_guess"]), (-1, 128))
    assert shown.min() >= 0  # SIFT, as no concealed descriptor is


def test_attacks_on_what_follows_are_scored_in_both_spaces() -> None:
    assert near(one(f"concealer-1-sub-hybrid-2-{DIGEST}", "unconceal")) > 0.3
    again = one(f"concealer-1-sub-hybrid-2-{DIGEST}", "relift")
    assert again.parameters["released_exact"] == 1.0
    assert near(again) > 0.9 and again.parameters["adversary"] == "twice"
    word = one(f"concealer-1-subset-8-2-{DIGEST}", "posterior")
    assert word.value[4] == word.parameters["released_exact"]  # type: ignore[index]
    assert "bound" in word.parameters


def test_what_does_not_apply_is_said() -> None:
    for scheme, attack, reason in (
        ("identity", "unconceal", "no network conceals these descriptors"),
        (f"concealer-1-sub-hybrid-2-{DIGEST}", "overlap", "how concealed descriptors of overlapping keypoints"),
        (f"concealer-1-subset-8-2-{DIGEST}", "unconceal", "attack unconceal is on points"),
        (f"concealer-1-{DIGEST}", "unconceal + lifting_database", "nothing is drawn from a database here"),
        (f"concealer-1-subset-8-2-{DIGEST}", "posterior + database", "has a database: it is there"),
    ):
        assert reason in str(one(scheme, attack).parameters["reason"])


def test_every_record_names_the_network() -> None:
    for record in records():
        if record.scheme.startswith("concealer"):
            assert record.parameters["defense"] == "concealer" and record.parameters["lambda"] == 1.0
            assert record.parameters["network"] == NETWORK.digest[:16]


def test_the_report_tells_what_it_is() -> None:
    rows = {row.scheme: row for row in summarize_audit(list(records()))}
    alone, words = rows[f"concealer-1-{DIGEST}"], rows[f"concealer-1-subset-8-2-{DIGEST}"]
    assert (alone.promise, words.promise, words.then) == ("empirical", "local-dp", "subset")
    assert alone.best is not None and alone.best.attack == "unconceal" and words.named is not None
    page = audit_page(list(records()))
    assert "goes through a network that was trained against image reconstruction" in page
    assert "Concealed one nearer than 0.5" in page and 'class="concealer' in page
    assert f"concealer-1-{DIGEST} " in audit_markdown(list(records()))


def study(names: tuple[str, ...], schemes: list[Scheme]) -> Study[Attempt]:
    victims = [Victim("0", picture(0, count=30), picture(1, count=30))]
    faced = Faced(victims, schemes, make_trials(names), own_database(near_victim=False))
    return study_of("drawn", faced, FeatureSettings(max_features=30), 6)


def test_bench_attacks_has_concealers_and_what_follows() -> None:
    schemes = make_schemes("sift", ["random"], [2], [8.0], [1], [], [NETWORK], True)
    assert [scheme.name for scheme in schemes] == [
        *("identity", "random-2", "subset-8-1", "concealer-1", "concealer-1-random-2", "concealer-1-subset-8-1")
    ]
    found = list(
        BENCH.measured(study(("chance", "read", "unconceal", "mean", "overlap", "posterior-overlap"), schemes[3:]))
    )
    assert {(record.scheme, record.attack) for record in found} == {
        *(("concealer-1", name) for name in ("chance", "read", "unconceal")),
        *(("concealer-1-random-2", name) for name in ("chance", "mean", "unconceal")),
        ("concealer-1-subset-8-1", "chance"),
    }
    rows = {(row.scheme, row.attack): row for row in BENCH.summarize(found)}
    assert rows["concealer-1", "unconceal"].released_near == 1
    assert rows["concealer-1", "read"].released_near is None
    assert "## concealer: of the concealed descriptor" in BENCH.markdown(found)


def test_what_adversaries_of_a_concealer_are_given() -> None:
    (scheme,) = concealed_schemes([NETWORK], "sift", [Lifting("sub-hybrid", 2)])[1:]
    victims = [Victim("0", picture(0, count=30), picture(1, count=30))]
    releases = Releases(victims, own_database(), 0)
    blind = releases.knowledge(victims[0], scheme, Trial(ATTACKS["mean"]()))
    assert blind.network is NETWORK and blind.database is own_database() and blind.lifting_database is None
    known = releases.knowledge(victims[0], scheme, Trial(ATTACKS["database"]()))
    assert isinstance(known.lifting_database, ConcealedDatabase) and known.lifting_database.source is builtin("sift")


def test_two_networks_of_one_lambda_are_refused() -> None:
    with pytest.raises(InputError, match="the same lambda"):
        concealed_schemes([NETWORK, random_network(seed=7)], "sift")


def test_a_truth_is_checked_through_the_network() -> None:
    private = privatize(picture(0, count=30), Concealer(NETWORK, Lifting("sub-hybrid", 2)))
    known = Knowledge(database=own_database(), network=NETWORK)
    outcome = run_attack(private, picture(0, count=30), Chance(), known, np.random.default_rng(0))
    assert outcome.leakage.count == 30 and outcome.released is not None
    moved = picture(0, count=30).take(np.roll(np.arange(30), 1))
    wrong = type(moved)(moved.descriptors, "sift", picture(0, count=30).keypoints, moved.image_size)
    with pytest.raises(InputError, match="do not contain the descriptor"):
        run_attack(private, wrong, Chance(), known, np.random.default_rng(0))
    with pytest.raises(InputError, match="the given network makes"):
        run_attack(private, moved, Chance(), Knowledge(network=random_network(seed=7)), np.random.default_rng(0))


def test_right_words_are_those_of_concealed_descriptors() -> None:
    private = privatize(picture(0, count=30), Concealer(NETWORK, Subset(60.0, 1)), keep_geometry=True)
    for codebook in (builtin(), Concealer(NETWORK, Subset(60.0)).for_kind("sift").then.codebook):  # type: ignore[union-attr]
        known = Knowledge(database=own_database(), network=NETWORK, codebook=codebook)
        outcome = run_attack(private, picture(0, count=30), Posterior(), known, np.random.default_rng(0))
        assert outcome.leakage.exact == 1
    assert "repeats" in Relift.needs


def test_an_audit_file_names_network_and_what_follows(tmp_path: Path) -> None:
    write_network(tmp_path / "n.safetensors", NETWORK)
    text = """
    [[scheme]]
    name = "concealer"
    network = "n.safetensors"
    [[scheme]]
    name = "concealer"
    network = "n.safetensors"
    then = [{ name = "lifting", dimension = [2, 4] }, { name = "subset", epsilon = 10 }]
    keypoints = "apart"
    """
    (tmp_path / "a.toml").write_text(text)
    found = [scheme.name for scheme in read_audit_file(tmp_path / "a.toml").schemes]
    assert found == [
        *("identity", "identity-apart", f"concealer-1-{DIGEST}", f"concealer-1-sub-hybrid-2-{DIGEST}-apart"),
        *(f"concealer-1-sub-hybrid-4-{DIGEST}-apart", f"concealer-1-subset-10-2-{DIGEST}-apart"),
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("then = 'lifting'", "scheme 1: after a concealer come lifting, subset or metric"),
        ("then = { dimension = 4 }", "scheme 1: then has the name of one of lifting, subset, metric"),
        ("then = { name = 'mask' }", "scheme 1: then has the name of .*'mask'"),
        ("then = { name = 'lifting', epsilon = 1 }", "scheme 1: unknown key 'epsilon'"),
        ("then = { name = 'subset' }", "scheme 1: subset needs epsilon"),
        ("then = { name = 'naive', epsilon = 1 }", "scheme 1: then has the name of one of lifting, subset, metric"),
        ("then = []", "scheme 1: then is an empty list"),
        ("network = 3", "scheme 1: network must be"),
        ("network = 'no.safetensors'", "scheme 1: there is no network file"),
    ],
)
def test_what_an_audit_file_cannot_say(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "a.toml").write_text(f"[[scheme]]\nname = 'concealer'\n{text}\n")
    with pytest.raises(InputError, match=message):
        read_audit_file(tmp_path / "a.toml")


def test_default_audits_have_concealers_once_a_network_comes_with_featveil(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("featveil.audit.request.has_builtin_concealer", lambda kind: kind == "sift")
    monkeypatch.setattr("featveil.audit.request.builtin_concealer", lambda kind: NETWORK)
    monkeypatch.setattr("featveil.defenses.concealer.builtin_concealer", lambda kind: NETWORK)
    names = [scheme.name for scheme in default_schemes("sift")]
    assert names[-3:] == ["concealer-1", "concealer-1-sub-hybrid-4", "concealer-1-subset-8-4"]
    assert not any(scheme.name.startswith("concealer") for scheme in default_schemes("rootsift"))
