"""Synthetic people for tests of face templates: each has a direction, and photographs scatter around it."""

import numpy as np

from featveil.core.arrays import Float32
from featveil.datasets.face_sets import FaceSet

KIND = "face-0123456789ab"


def unit(values: object) -> Float32:
    """Rows of norm 1."""
    rows = np.asarray(values, np.float64)
    return np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True), np.float32)


def population(
    people: int, photographs: int = 2, d: int = 64, seed: int = 0, scatter: float = 0.5, label: float = 0.8
) -> FaceSet:
    """`people` with as many `photographs` each, named P00012_0001 and so on.

    Their attribute gender, 0 or 1, moves them along one direction by about `label`; `scatter` is the distance of a
    photograph from its person, who has norm 1.
    """
    rng = np.random.default_rng(seed)
    axis = unit(np.random.default_rng(12345).standard_normal((1, d)))[0].astype(np.float64)
    gender = rng.integers(0, 2, people)
    centres = unit(rng.standard_normal((people, d))) + label * np.where(gender, 1.0, -1.0)[:, None] * axis
    who = np.repeat(np.arange(people), photographs)
    noise = rng.standard_normal((len(who), d)) * scatter / np.sqrt(d)
    names = tuple(
        f"P{seed:02d}{person:04d}_{number:04d}" for person in range(people) for number in range(1, photographs + 1)
    )
    return FaceSet(unit(unit(centres)[who] + noise), names, KIND, {"gender": gender[who].astype(np.int64)})
