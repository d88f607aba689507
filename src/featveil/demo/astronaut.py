"""What the demo shows of faces: one astronaut, changed copies of her photograph, and what attackers say of her.

All faces were described by an ArcFace network beforehand (recipes/draw_demo_faces.py); nobody's own descriptor but
hers is here, only averages of similar people, half of them to hide among and half of them the attacker's.
"""

from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray

from featveil.attacks import Knowledge, Unmix, attack
from featveil.attacks.on_faces.attributes import TrainedLabels
from featveil.core import Features, Guarantee, Points, PrivateFeatures, SecureRandomness, Subspaces
from featveil.core.arrays import Float32, Integers
from featveil.databases import Database
from featveil.databases.nearest_labels import NearestLabels
from featveil.datasets.face_sets import FaceSet, load_faces
from featveil.defenses import Lifting, privatize
from featveil.distances import matrix

DIMENSION = 16
LIFTS = 100
STRATEGIES = ("random", "hybrid", "hybrid+", "balanced")
ATTACKERS = ("knn", "trained", "unmix")
_GENDER = 1  # hers: labels are 0 for men and 1 for women
_DATA = Path(__file__).parent / "data"


@dataclass(frozen=True, eq=False)
class FaceCopy:
    """A copy of her photograph, aligned, and its distances from her raw and from her private template."""

    name: str
    picture: NDArray[np.uint8]
    raw: float
    private: float


@dataclass(frozen=True)
class FaceGuess:
    """In how many of LIFTS templates of her each attacker named her gender right, by its name."""

    strategy: str
    right: dict[str, int]


@dataclass(frozen=True, eq=False)
class FaceDemo:
    """Copies of her photograph, and how far the nearest of some `strangers` is from her raw and private template."""

    copies: list[FaceCopy]
    raw_stranger: float
    private_stranger: float
    strangers: int
    guesses: list[FaceGuess]
    dimension: int = DIMENSION
    lifts: int = LIFTS


def show_faces() -> FaceDemo:
    """Enroll her, verify copies and strangers, and attack her templates."""
    her = load_faces(_DATA / "demo-astronaut.npz")
    everyone = load_faces(_DATA / "demo-faces.npz")
    half = len(everyone) // 2
    lifting, others = everyone.take(np.arange(half)), everyone.take(np.arange(half, len(everyone)))
    database = _database(lifting)
    hybrid = Lifting("hybrid", DIMENSION, database=database)
    enrolled = privatize(Features(Points(her.values[:1]), her.kind), hybrid).descriptors
    assert isinstance(enrolled, Subspaces)
    raw, private = (matrix(Points(her.values), one)[:, 0] for one in (Points(her.values[:1]), enrolled))
    raw_stranger, private_stranger = (
        float(matrix(Points(others.values), one).min()) for one in (Points(her.values[:1]), enrolled)
    )
    strip = cv2.imread(str(_DATA / "demo-astronaut.jpg"), cv2.IMREAD_COLOR)
    assert strip is not None
    pictures = np.split(np.asarray(strip[:, :, ::-1], np.uint8), len(her), axis=1)
    return FaceDemo(
        [FaceCopy(*one) for one in zip(her.names, pictures, map(float, raw), map(float, private), strict=True)],
        raw_stranger,
        private_stranger,
        len(others),
        [_raw_guess(others, her), *(_guess(strategy, database, others, her) for strategy in STRATEGIES)],
    )


def _database(faces: FaceSet) -> Database:
    return Database.from_array(faces.values, faces.kind, 1, faces.attribute("gender"))


def _lifted(lifting: Lifting, values: Float32, labels: Integers | None = None) -> Subspaces:
    return lifting.privatize(Points(values), SecureRandomness(), labels)


def _raw_guess(others: FaceSet, her: FaceSet) -> FaceGuess:
    """Of her raw descriptor, which is the same each time."""
    known, labels, seen = Points(others.values), others.attribute("gender"), Points(her.values[:1])
    guesses = {
        "knn": NearestLabels().fit(known, labels).predict(seen),
        "trained": TrainedLabels().fit(known, labels).predict(seen),
    }
    return FaceGuess("raw", {name: LIFTS * int(guess[0] == _GENDER) for name, guess in guesses.items()})


def _guess(strategy: str, database: Database, others: FaceSet, her: FaceSet) -> FaceGuess:
    lifting = Lifting(strategy, DIMENSION, database=database)
    labels = others.attribute("gender")
    seen = _lifted(lifting, np.repeat(her.values[:1], LIFTS, axis=0), np.full(LIFTS, _GENDER))
    voters = NearestLabels().fit(Points(others.values), labels)
    trained = TrainedLabels().fit(_lifted(lifting, others.values, labels), labels)
    private = PrivateFeatures(seen, her.kind, lifting.spec(), Guarantee("empirical"))
    unmixed = Points(attack(private, Unmix(), Knowledge(lifting_database=database)).values)
    guesses = {"knn": voters.predict(seen), "trained": trained.predict(seen), "unmix": voters.predict(unmixed)}
    return FaceGuess(strategy, {name: int((guess == _GENDER).sum()) for name, guess in guesses.items()})
