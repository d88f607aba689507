"""One attack on the private features of one file, and how near its guesses come to what they hide."""

import math
import time
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from featveil.attacks import Attack, Guess, Knowledge, attack
from featveil.attacks.read_parts.map_descriptors import sketch_for
from featveil.core import ConcealingNetwork, Features, InputError, MapPoints, Points, PrivateFeatures, Spec, WordSets
from featveil.core.arrays import Float64
from featveil.core.features import SpecValue, sent_by
from featveil.core.records import Parameter, Record
from featveil.core.resuming import versions
from featveil.databases import Database, conceal_database, nearest_words
from featveil.metrics import Leakage, Truth, align, guess_distances, summarize_leakage
from featveil.metrics.leakage import MEASURED, METRIC, UNIT

# What a published defense is named after, in this order, and what is not part of its name.
_NAMED = ("confounders", "dimension", "epsilon", "subset_size")
_NOT_NAMED = ("name", "strategy", "random_directions", "database", "codebook", "network", "lambda", "then")
_OF_GATE = ("sketch", "tau", "contrast", "background", "candidates", "support", "min_share", "min_features")


@dataclass(frozen=True, eq=False)
class Outcome:
    """What an attack made of some private features, and how near that is.

    `distances` (k,) are those of guess and truth, as a share of the truth's norm, of the features whose truth is
    certain: `leakage` is about them only. `seconds` is the attack's time. The truth is the raw descriptor; `released`
    compares what was guessed of the concealed one with that, where there is a concealer.
    """

    guess: Guess
    leakage: Leakage
    distances: Float64
    seconds: float
    released: Leakage | None = None


def run_attack(
    private: PrivateFeatures, raw: Features, method: Attack, knowledge: Knowledge, rng: np.random.Generator
) -> Outcome:
    """Attack `private` and compare the guesses with `raw`, of which only an attack that declares it sees anything.

    Raises InputError as `attack` does, and when `raw` is not what `private` was made of.
    """
    return score_attack(private, align(private, raw, knowledge.network), method, knowledge, rng)


def score_attack(
    private: PrivateFeatures, truth: Truth, method: Attack, knowledge: Knowledge, rng: np.random.Generator
) -> Outcome:
    """As `run_attack`, with the truth found before: for several attacks on one file, or a sample of its features."""
    check_codebook(private, knowledge)
    known = replace(knowledge, truth=truth.points)
    started = time.perf_counter()
    guess = attack(private, method, known, rng)
    seconds = time.perf_counter() - started
    scored = np.flatnonzero(truth.certain)
    if len(scored) == 0:
        raise InputError("all features share their position with others: which truth is whose cannot be told")
    seen = truth if guess.released is None else _concealed(truth, knowledge.network)
    exact = _right_words(private, seen, guess, knowledge)
    compared = truth.rows[scored], None if exact is None else exact[scored]
    values, answered = guess.values[scored], guess.answered[scored]
    leakage = summarize_leakage(values, answered, truth.hidden, *compared)
    released = None
    if guess.released is not None:
        released = summarize_leakage(guess.released[scored], answered, seen.hidden, *compared)
    return Outcome(guess, leakage, guess_distances(values, truth.points.take(scored)), seconds, released)


def leakage_record(
    outcome: Outcome, task: str, dataset: str, scheme: str, attack: str, seed: int, parameters: dict[str, Parameter]
) -> Record:
    """What an attack gave away, as a record; its count is that of the features whose truth is certain.

    Behind a concealer it also states what was found of the concealed descriptors, as released_mean and so on.
    """
    if outcome.released is not None:
        measured = zip(MEASURED, outcome.released.measured(), strict=True)
        parameters = parameters | {f"released_{name}": value for name, value in measured}
    return Record(
        task=task,
        dataset=dataset,
        scheme=scheme,
        metric=METRIC,
        value=outcome.leakage.measured(),
        unit=UNIT,
        count=outcome.leakage.count,
        seed=seed,
        versions=versions(),
        attack=attack,
        parameters=parameters,
    )


def scheme_name(defense: Spec) -> str:
    """A short name of what a release was made with: sub-hybrid-4, hardened-4-16, subset-10-2, concealer-1-subset-10-2.

    The number after a concealer is its lambda, that after a gate its distance: gate-0.35, gate-0.35-subset-10-2. Those
    of a defense of another package come as it publishes them.
    """
    shown: list[SpecValue] = [defense.get("strategy") or sent_by(defense)]
    if "network" in defense:
        shown = ["concealer", defense.get("lambda"), *(shown if "then" in defense else [])]
    gated = _OF_GATE if defense.get("name") == "gate" else ()
    if gated:
        support = [] if defense.get("support") == "none" else [defense.get("support")]
        shown = ["gate", defense.get("tau"), *support, *(shown if "then" in defense else [])]
    shown += [defense[name] for name in _NAMED if name in defense]
    shown += [value for name, value in defense.items() if name not in (*_NAMED, *_NOT_NAMED, *gated)]
    return "-".join(
        "infinite" if part is None else f"{part:g}" if _is_number(part) else str(part)[:16] for part in shown
    )


def attack_parameters(method: Any) -> dict[str, Parameter]:
    """The settings of an attack, as ATTACK.FIELD, in a form that a record keeps as it is."""
    return {f"{method.name}.{field.name}": _plain(getattr(method, field.name)) for field in fields(method)}


def check_codebook(private: PrivateFeatures, knowledge: Knowledge) -> None:
    """Raise InputError when the known codebook is not the one that word sets name."""
    descriptors, codebook = private.descriptors, _codebook(private, knowledge)
    if isinstance(descriptors, WordSets) and codebook is not None and codebook.digest != descriptors.codebook:
        raise InputError(
            f"the word sets are of codebook {descriptors.codebook[:16]}, the one given is {codebook.digest[:16]}"
        )


def check_sketch(private: PrivateFeatures, knowledge: Knowledge) -> None:
    """Raise InputError when the known sketch is of another map than the points that a gate sent."""
    if isinstance(private.descriptors, MapPoints) and knowledge.sketch is not None:
        sketch_for(private, knowledge)


def _codebook(private: PrivateFeatures, knowledge: Knowledge) -> Database | None:
    """The known codebook, in the space of what was released where that is known."""
    codebook, network = knowledge.codebook, knowledge.network
    if codebook is None or network is None or network.concealed_kind != private.kind:
        return codebook
    return conceal_database(codebook, network)


def _concealed(truth: Truth, network: ConcealingNetwork | None) -> Truth:
    """The same truth after the network, which an attack that guesses concealed descriptors has."""
    if network is None:
        return truth
    return replace(truth, hidden=Points(network.apply(truth.hidden.values)))


def _right_words(
    private: PrivateFeatures, truth: Truth, guess: Guess, knowledge: Knowledge
) -> NDArray[np.bool_] | None:
    """Which guessed words are the nearest ones of the hidden descriptors; None where nothing is guessed by words."""
    codebook = _codebook(private, knowledge)
    if not isinstance(private.descriptors, WordSets) or guess.words is None or codebook is None:
        return None
    return np.asarray(guess.words == nearest_words(truth.points, codebook)[0])


def _plain(value: Any) -> Parameter:
    if isinstance(value, tuple):
        return list(value)
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
