"""What the demo shows: a pin board from two places (see examples/draw_demo_views.py), and attacks on its release."""

from pathlib import Path

import numpy as np

from featveil.attacks import ATTACKS, Knowledge
from featveil.core import Features, MissingExtraError, PrivateFeatures
from featveil.databases import builtin
from featveil.metrics import Leakage, align
from featveil.tasks.leakage import score_attack

SHOWN = ("chance", "mean", "database", "vertex", "lattice")

_DATA = Path(__file__).parent / "data"
_SAMPLE = 100


def views() -> tuple[Path, Path]:
    """The image files that `featveil demo` matches: the query and the reference."""
    return _DATA / "board-1.jpg", _DATA / "board-2.jpg"


def attack_release(private: PrivateFeatures, raw: Features) -> dict[str, Leakage]:
    """What the attacks of SHOWN get out of a release, for someone who has the built-in database, which is public.

    Those that miss an extra are left out. Attacks that treat each feature by itself see a sample of them.
    """
    known = Knowledge(database=builtin(private.kind), lifting_database=builtin(private.kind))
    truth, rng = align(private, raw), np.random.default_rng(0)
    found: dict[str, Leakage] = {}
    sample = np.sort(rng.permutation(len(private))[:_SAMPLE])
    for name in SHOWN:
        method = ATTACKS[name]()
        rows = sample if method.alone else np.arange(len(private))
        try:
            found[name] = score_attack(private.take(rows), truth.take(rows), method, known, rng).leakage
        except MissingExtraError:
            continue
    return found
