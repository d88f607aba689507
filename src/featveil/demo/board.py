"""What the demo shows: a pin board from two places (see recipes/draw_demo_views.py), and attacks on its release."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from featveil.attacks import ATTACKS, Guess, Knowledge, Unconceal
from featveil.core import Features, MissingExtraError, PrivateFeatures
from featveil.databases import builtin
from featveil.defenses import builtin_concealer
from featveil.metrics import align
from featveil.metrics.reconstruction import Reconstruction, compare
from featveil.pipelines.painters import Image, picture_size, raw_painter, resized, view
from featveil.pipelines.scoring import Outcome, run_attack, score_attack

SHOWN = ("chance", "mean", "database", "vertex", "lattice")

_SLOW = ("vertex",)
_SAMPLE = 100


def attack_release(private: PrivateFeatures, raw: Features) -> dict[str, Outcome]:
    """What the attacks of SHOWN get out of a release, for someone who has the built-in database, which is public.

    Those that miss an extra are left out. The slow one sees a sample of the features.
    """
    known = Knowledge(database=builtin(private.kind), lifting_database=builtin(private.kind))
    truth, rng = align(private, raw), np.random.default_rng(0)
    found: dict[str, Outcome] = {}
    sample = np.sort(rng.permutation(len(private))[:_SAMPLE])
    for name in SHOWN:
        rows = sample if name in _SLOW else np.arange(len(private))
        try:
            found[name] = score_attack(private.take(rows), truth.take(rows), ATTACKS[name](), known, rng)
        except MissingExtraError:
            continue
    return found


def undo_concealer(private: PrivateFeatures, raw: Features) -> Outcome:
    """What is found of features that the built-in concealer hid by someone who has it, and the built-in database."""
    known = Knowledge(database=builtin(raw.kind), network=builtin_concealer(raw.kind))
    return run_attack(private, raw, Unconceal(), known, np.random.default_rng(0))


@dataclass(frozen=True, eq=False)
class View:
    """What an inverter paints from what an attack takes for the features, and how near that comes.

    "read" is no attack: it has the raw features. "photograph" is that itself, without a score.
    """

    attack: str
    picture: Image
    score: Reconstruction | None


def attacker_views(private: PrivateFeatures, raw: Features, image: Image, found: Mapping[str, Outcome]) -> list[View]:
    """The photograph, and what is painted from raw features and by attacks that guessed all of them, the best first.

    The last one is chance: what positions alone show. Raises InputError for an image that is too narrow to compare.
    """
    photograph = resized(image, picture_size(raw))
    guesses = {"read": Guess.all_of(align(private, raw).points.values)}
    guesses |= {name: one.guess for name, one in found.items() if len(one.guess) == len(private)}
    views = [attacker_view(name, private, guess, raw, image) for name, guess in guesses.items()]
    places = ["read", *reversed(SHOWN)]
    return [View("photograph", photograph, None), *sorted(views, key=lambda one: places.index(one.attack))]


def attacker_view(attack: str, private: PrivateFeatures, guess: Guess, raw: Features, image: Image) -> View:
    """What is painted of guesses at all features; raises InputError for an image that is too narrow to compare."""
    size = picture_size(raw)
    picture = view(private, guess, raw_painter(raw.kind), size)
    return View(attack, picture, compare(picture, resized(image, size)))
