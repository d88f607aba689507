"""Every attack in the registry keeps the contract: it declares what it knows, sees only that, answers each feature.

What is attacked and what is known follow from what an attack declares, so that a new one is tested once it is listed.
"""

import importlib
import re
from dataclasses import fields, replace
from functools import cache
from typing import Any

import numpy as np
import pytest

from featveil.attacks import MEANINGS, REPRESENTATIONS, Guess, Knowledge, Mean, attack
from featveil.core import (
    Defense,
    InputError,
    MapPoints,
    MissingExtraError,
    Points,
    PrivateFeatures,
    Subspaces,
    WordSets,
)
from featveil.core.arrays import Float32
from featveil.databases import builtin
from featveil.defenses import Concealer, Gate, Identity, Lifting, Subset, builtin_concealer, privatize
from featveil.gate import Sketch
from featveil.metrics import align
from featveil.registry import ATTACKS
from sketches import other_background, sketch_of
from victims import own_database, picture

COUNT = 12
SMALL: dict[str, dict[str, Any]] = {
    "discriminator": {"examples": 40, "starts": 4},
    "unconceal": {"examples": 2000, "features": 128, "steps": 5, "starts": 2},
}

# Every attack with each representation that it is on, and with each that it is not.
ON = [(name, kind) for name, method in ATTACKS.items() for kind in method.breaks]
NOT_ON = [(name, kind) for name, method in ATTACKS.items() for kind in REPRESENTATIONS if kind not in method.breaks]
NEEDED = [(name, need) for name, method in ATTACKS.items() for need in method.needs]


def make(name: str) -> Any:
    """The attack, with settings that take little time."""
    return ATTACKS[name](**SMALL.get(name, {}))


def concealing(name: str) -> bool:
    """Whether the attack is on what a concealer sends."""
    return "network" in ATTACKS[name].needs


def defense_of(kind: type, concealed: bool) -> Defense:
    """One that releases such a representation."""
    gate = Gate(sketch(), tau=0.3, contrast=1.0, background=other_background())
    hidden: dict[type, Any] = {
        Points: None,
        Subspaces: Lifting(dimension=2),
        WordSets: Subset(16.0, 4),
        MapPoints: gate,
    }
    if concealed:
        return Concealer(then=hidden[kind])
    return hidden[kind] or Identity()


@cache
def sketch() -> Sketch:
    """Of both pictures, as maps of which they are images."""
    return sketch_of(np.concatenate([picture(number).descriptors.values for number in range(2)]))


@cache
def release(kind: type, concealed: bool = False, number: int = 0, seed: int = 0) -> PrivateFeatures:
    """Some features of a picture in such a representation, with all their geometry."""
    features, rng = picture(number), np.random.default_rng([seed, number])
    private = privatize(features, defense_of(kind, concealed), rng=rng, keep_geometry=True)
    return private.take(np.arange(COUNT))


@cache
def everything(kind: type, concealed: bool = False) -> Knowledge:
    """All that there is to know of `release(kind, concealed)`."""
    private, network = release(kind, concealed), builtin_concealer("sift")
    return Knowledge(
        own_database(),
        builtin("sift"),
        builtin("sift"),
        others=(release(kind, concealed, number=1),),
        repeats=(release(kind, concealed, seed=1), release(kind, concealed, seed=2)),
        reference=picture(1),
        network=network,
        sketch=sketch(),
        truth=align(private, picture(0), network).points,
    )


@cache
def guessed(name: str, kind: type, declared_only: bool) -> tuple[Any, ...]:
    """A guess, and the knowledge that the attack was run with; of all there is, or only of what it declares."""
    method, concealed = make(name), concealing(name)
    known = everything(kind, concealed)
    if declared_only:
        known = known.only((*method.needs, *method.uses))
    handed: list[Knowledge] = []

    class Watched(type(method)):  # type: ignore[misc]
        def run(self, seen: PrivateFeatures, knowledge: Knowledge, rng: np.random.Generator) -> Any:
            handed.append(knowledge)
            return super().run(seen, knowledge, rng)

    watched = Watched(**{field.name: getattr(method, field.name) for field in fields(method)})
    try:
        guess = attack(release(kind, concealed), watched, known, np.random.default_rng(3))
    except MissingExtraError as error:
        pytest.skip(str(error))
    return guess, handed


@pytest.mark.parametrize("name", ATTACKS)
def test_declares_what_it_knows(name: str) -> None:
    method = ATTACKS[name]
    assert method.name == name
    assert set(method.needs) | set(method.uses) <= set(MEANINGS)
    assert not set(method.needs) & set(method.uses)
    assert method.breaks and set(method.breaks) <= set(REPRESENTATIONS)
    assert method.summary and not method.summary.endswith(".") and "\n" not in method.summary
    assert isinstance(method.alone, bool)
    assert ("truth" in method.needs) == name.startswith("oracle")
    assert "truth" not in method.uses


@pytest.mark.parametrize("name", ATTACKS)
def test_its_file_opens_with_source_knowledge_breaks_and_failures(name: str) -> None:
    opening = importlib.import_module(ATTACKS[name].__module__).__doc__ or ""
    assert re.search(r"(19|20)\d\d|\b[Oo]urs\b|beyond the paper", opening), "where it comes from"
    for line in ("Knows", "Breaks", "Fails"):
        assert re.search(rf"^{line}: +\S", opening, re.MULTILINE), line


@pytest.mark.parametrize(("name", "kind"), ON)
def test_answers_every_feature_with_a_descriptor(name: str, kind: type) -> None:
    guess, _ = guessed(name, kind, False)
    values: Float32 = guess.values
    assert values.shape == (COUNT, 128) and values.dtype == np.float32
    assert np.isfinite(values).all() and (np.linalg.norm(values, axis=1) > 0.1).all()
    assert guess.answered.shape == (COUNT,) and guess.answered.dtype == np.bool_
    assert guess.words is None or set(guess.words) <= set(range(len(builtin("sift"))))
    assert "\n" not in guess.note


@pytest.mark.parametrize(("name", "kind"), ON)
def test_a_seed_and_what_is_declared_make_the_answer(name: str, kind: type) -> None:
    """Nothing else that is known changes it."""
    (first, _), (second, _) = (guessed(name, kind, declared_only) for declared_only in (False, True))
    assert (first.values == second.values).all()
    assert (first.answered == second.answered).all()
    assert first.note == second.note
    assert (first.words is None) == (second.words is None)
    assert first.words is None or (first.words == second.words).all()


@pytest.mark.parametrize(("name", "kind"), ON)
def test_is_handed_only_what_it_declares(name: str, kind: type) -> None:
    _, handed = guessed(name, kind, False)
    declared = {*ATTACKS[name].needs, *ATTACKS[name].uses}
    assert handed
    for knowledge in handed:
        assert {part for part in MEANINGS if knowledge.has(part)} == declared


@pytest.mark.parametrize(("name", "need"), NEEDED)
def test_says_what_is_missing(name: str, need: str) -> None:
    kind = ATTACKS[name].breaks[0]
    known = everything(kind, concealing(name)).only(tuple(part for part in MEANINGS if part != need))
    with pytest.raises(InputError, match=need.replace("_", " ")):
        attack(release(kind, concealing(name)), make(name), known)


@pytest.mark.parametrize(("name", "kind"), NOT_ON)
def test_says_what_it_applies_to(name: str, kind: type) -> None:
    with pytest.raises(InputError, match=REPRESENTATIONS[kind].split(" (")[0]):
        attack(release(kind), make(name), everything(kind))


@pytest.mark.parametrize("name", [name for name, method in ATTACKS.items() if MapPoints in method.breaks])
def test_map_points_are_attacked_with_their_sketch(name: str) -> None:
    known = replace(everything(MapPoints), sketch=None)
    with pytest.raises(InputError, match="needs sketch"):
        attack(release(MapPoints), make(name), known)
    other = sketch_of(picture(0).descriptors.values[:40])
    with pytest.raises(InputError, match="the sketch is of"):
        attack(release(MapPoints), make(name), replace(known, sketch=replace(other, model="f" * 64)))


@pytest.mark.parametrize("name", [name for name in ATTACKS if concealing(name)])
def test_what_was_not_concealed_is_refused(name: str) -> None:
    with pytest.raises(InputError, match="concealed"):
        attack(release(Points), make(name), everything(Points))


@pytest.mark.parametrize("name", ATTACKS)
def test_nothing_to_attack_is_refused(name: str) -> None:
    kind = ATTACKS[name].breaks[0]
    nothing = release(kind, concealing(name)).take(np.empty(0, np.int64))
    with pytest.raises(InputError, match="no feature"):
        attack(nothing, make(name), everything(kind, concealing(name)))


@pytest.mark.parametrize("name", [name for name, need in NEEDED if need == "database"])
def test_a_database_of_another_kind_is_refused(name: str) -> None:
    kind = ATTACKS[name].breaks[0]
    known = replace(everything(kind, concealing(name)), database=own_database("rootsift"))
    with pytest.raises(InputError, match="rootsift"):
        attack(release(kind, concealing(name)), make(name), known)


def test_only_what_is_declared_is_handed_over() -> None:
    knowledge = everything(Subspaces)
    cut = knowledge.only(("database",))
    assert cut.database is knowledge.database
    assert [part for part in MEANINGS if cut.has(part)] == ["database"]


def test_an_attack_that_leaves_a_feature_out_is_refused() -> None:
    class Lazy(Mean):
        def run(self, seen: PrivateFeatures, knowledge: Knowledge, rng: np.random.Generator) -> Guess:
            return super().run(seen.take(np.arange(len(seen) - 1)), knowledge, rng)

    with pytest.raises(InputError, match=f"{COUNT - 1} of {COUNT}"):
        attack(release(Subspaces), Lazy(), Knowledge())


def test_cases_cover_the_registry() -> None:
    assert {name for name, _ in ON} == set(ATTACKS)
    assert {kind for _, kind in ON} == set(REPRESENTATIONS)
