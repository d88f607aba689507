"""What the demo shows of two pictures: how they match raw and privately, and what attacks make of what was sent.

The bundled pictures are of one pin board from two places (see recipes/draw_demo_views.py).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from featveil.attacks import ATTACKS, Guess, Knowledge, Unconceal
from featveil.core import Features, FeatveilError, MissingExtraError, PrivateFeatures
from featveil.databases import builtin
from featveil.defenses import Concealer, Lifting, Subset, builtin_concealer, privatize
from featveil.extractors import read_image
from featveil.geometry import agreeing, agreeing_candidates
from featveil.matching import match
from featveil.metrics import Leakage, align
from featveil.metrics.reconstruction import Reconstruction, compare
from featveil.pipelines.match import SAMPLES_FOR_WORDS, shared_part
from featveil.pipelines.painters import picture_size, raw_painter, resized, view
from featveil.pipelines.scoring import Outcome, run_attack, score_attack
from featveil.pipelines.sources import extracted
from featveil.plotting.pictures import Panel, Picture, draw_matches, panel

DIMENSIONS = (2, 4, 8)
SHOWN_DIMENSION = 4
EPSILONS = (12.0, 10.0, 8.0)
SHOWN_EPSILON = 10.0
SUBSET_SIZE = 4
ATTACKS_SHOWN = ("chance", "mean", "database", "vertex", "lattice")

_KIND, _FEATURES = "sift", 1200
# When both sides drew the same sub-database (1 time in 16) the reference is released again; the page says so.
_MOST_REDRAWS = 5
_SLOW = ("vertex",)
_SAMPLE = 100


@dataclass(frozen=True, eq=False)
class Side:
    """Features of one image, and the panel to draw them on."""

    features: Features | PrivateFeatures
    panel: Panel


@dataclass(frozen=True)
class Count:
    """Matches, and how many of them agree on one homography."""

    matches: int
    inliers: int


@dataclass(frozen=True, eq=False)
class Matching:
    """Matches of two sides, as a count and as a picture; `shared` where both drew on one part of the database."""

    count: Count
    picture: Picture
    shared: bool = False


@dataclass(frozen=True)
class Row:
    """Both kinds of private matching at one dimension of subspaces."""

    dimension: int
    one_side: Count
    both_sides: Count
    redrawn: int = 0  # releases of the reference that were drawn again, see page.html


@dataclass(frozen=True, eq=False)
class Lifted:
    """Private matching at one dimension, the release of the query, and pictures of both kinds of matches."""

    row: Row
    private: PrivateFeatures
    one_side: Picture
    both_sides: Picture


@dataclass(frozen=True)
class WordRow:
    """The subset mechanism at one epsilon of a descriptor: that of the image, and what it costs."""

    epsilon: float
    image_epsilon: float
    guess: float  # how often a blind guess at the word of a feature is right
    count: Count


@dataclass(frozen=True, eq=False)
class Words:
    """The subset mechanism: `words` sent for each feature, in a file of `file_bytes`; one row per epsilon."""

    words: int
    codebook_size: int
    rows: Sequence[WordRow]
    shown: WordRow  # that of the picture
    matches: Picture
    file_bytes: int


@dataclass(frozen=True)
class LeakRow:
    """One attack on the release: its name, what it does, and how near its guesses come."""

    attack: str
    summary: str
    leakage: Leakage


@dataclass(frozen=True, eq=False)
class View:
    """What an inverter paints from what an attack takes for the features, and how near that comes.

    "read" is no attack: it has the raw features. "photograph" is that itself, without a score.
    """

    attack: str
    picture: Picture
    score: Reconstruction | None = None


@dataclass(frozen=True, eq=False)
class Concealed:
    """Matches of a concealed query, what undoing the network gives, and what is painted of it, or why nothing is."""

    count: Count
    picture: Picture
    leakage: Leakage
    view: View | str


def read_side(path: Path) -> Side:
    """An image with its raw features; raises InputError when it has none."""
    picture, features = read_image(path), extracted(path, _KIND, _FEATURES)
    return Side(features, panel(features.keypoints, picture, features.image_size))


def hidden(private: PrivateFeatures) -> Side:
    """Private features as the server has them, without the image."""
    return Side(private, panel(private.keypoints, None, private.image_size))


def match_sides(a: Side, b: Side, words: bool = False) -> Matching:
    """The matches of two sides; `words` says that most of them are wrong."""
    matches = match(a.features, b.features)
    pairs = matches.indices
    places = a.panel.xy[pairs[:, 0]], b.panel.xy[pairs[:, 1]]
    agree = agreeing_candidates(*places, SAMPLES_FOR_WORDS) if words else agreeing(*places)
    picture = draw_matches(a.panel, b.panel, pairs, agree)
    return Matching(Count(len(pairs), int(agree.sum())), picture, shared_part(matches, agree))


def lift(query: Features, reference: Features, seen: Side, dimension: int) -> Lifted:
    """Private matching at one dimension, with the raw reference as it is `seen`, and with a private one."""
    lifting = Lifting("sub-hybrid", dimension)
    private = privatize(query, lifting)
    one = match_sides(hidden(private), seen)
    redrawn = 0
    both = match_sides(hidden(private), hidden(privatize(reference, lifting)))
    while both.shared and redrawn < _MOST_REDRAWS:
        redrawn += 1
        both = match_sides(hidden(private), hidden(privatize(reference, lifting)))
    return Lifted(Row(dimension, one.count, both.count, redrawn), private, one.picture, both.picture)


def name_words(query: Features, seen: Side) -> Words:
    """The subset mechanism at every epsilon, against the raw reference."""
    from featveil.formats.veil import encode

    rows, pictures, sizes = {}, {}, {}
    for mechanism in (Subset(epsilon, SUBSET_SIZE).for_kind(query.kind) for epsilon in EPSILONS):
        private = privatize(query, mechanism)
        matching = match_sides(hidden(private), seen, words=True)
        total = private.guarantee.compose(len(private)).epsilon or 0.0
        guess = float(mechanism.coin.probability) / SUBSET_SIZE
        epsilon = mechanism.epsilon
        rows[epsilon] = WordRow(epsilon, total, guess, matching.count)
        pictures[epsilon], sizes[epsilon] = matching.picture, len(encode(private))
    shown = SHOWN_EPSILON
    size = len(builtin(query.kind))
    return Words(SUBSET_SIZE, size, list(rows.values()), rows[shown], pictures[shown], sizes[shown])


def conceal(query: Features, reference: Features, seen: Side, image: Picture) -> Concealed:
    """The built-in concealer: matches with a reference that is concealed too, and what undoing it gives."""
    private = privatize(query, Concealer())
    concealed = builtin_concealer(query.kind).conceal(reference)
    matching = match_sides(hidden(private), replace(seen, features=concealed))
    undone = undo_concealer(private, query)
    view: View | str
    try:
        view = attacker_view("unconceal", private, undone.guess, query, image)
    except FeatveilError as error:
        view = str(error)
    return Concealed(matching.count, matching.picture, undone.leakage, view)


def attack_release(private: PrivateFeatures, raw: Features) -> dict[str, Outcome]:
    """What the attacks of ATTACKS_SHOWN get out of a release, for someone who has the built-in database.

    Those that miss an extra are left out. The slow one sees a sample of the features.
    """
    known = Knowledge(database=builtin(private.kind), lifting_database=builtin(private.kind))
    truth, rng = align(private, raw), np.random.default_rng(0)
    outcomes: dict[str, Outcome] = {}
    sample = np.sort(rng.permutation(len(private))[:_SAMPLE])
    for name in ATTACKS_SHOWN:
        rows = sample if name in _SLOW else np.arange(len(private))
        try:
            outcomes[name] = score_attack(private.take(rows), truth.take(rows), ATTACKS[name](), known, rng)
        except MissingExtraError:
            continue
    return outcomes


def undo_concealer(private: PrivateFeatures, raw: Features) -> Outcome:
    """What is found of features that the built-in concealer hid by someone who has it, and the built-in database."""
    known = Knowledge(database=builtin(raw.kind), network=builtin_concealer(raw.kind))
    return run_attack(private, raw, Unconceal(), known, np.random.default_rng(0))


def attacker_views(
    private: PrivateFeatures, raw: Features, image: Picture, outcomes: Mapping[str, Outcome]
) -> list[View]:
    """The photograph, and what is painted from raw features and by attacks that guessed all of them, the best first.

    The last one is chance: what positions alone show. Raises InputError for an image that is too narrow to compare.
    """
    photograph = resized(image, picture_size(raw))
    guesses = {"read": Guess.all_of(align(private, raw).points.values)}
    guesses |= {name: one.guess for name, one in outcomes.items() if len(one.guess) == len(private)}
    views = [attacker_view(name, private, guess, raw, image) for name, guess in guesses.items()]
    places = ["read", *reversed(ATTACKS_SHOWN)]
    return [View("photograph", photograph), *sorted(views, key=lambda one: places.index(one.attack))]


def attacker_view(attack: str, private: PrivateFeatures, guess: Guess, raw: Features, image: Picture) -> View:
    """What is painted of guesses at all features; raises InputError for an image that is too narrow to compare."""
    size = picture_size(raw)
    picture = view(private, guess, raw_painter(raw.kind), size)
    return View(attack, picture, compare(picture, resized(image, size)))
