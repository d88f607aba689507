"""The databases that come with featveil."""

from functools import cache
from pathlib import Path

import numpy as np

from featveil.core.errors import InputError
from featveil.databases.database_files import load_database
from featveil.databases.entries import Database

SIFT_FILE = Path(__file__).parent / "data" / "sift-16k.safetensors"


@cache
def builtin(kind: str = "sift") -> Database:
    """The built-in database of `kind`, "sift" or "rootsift": 16,384 entries in 16 parts.

    Raises InputError for another kind.
    """
    match kind:
        case "sift":
            return load_database(SIFT_FILE)
        case "rootsift":
            return _rootsift(builtin("sift"))
    raise InputError(
        f"there is no built-in database of kind {kind!r:.80} (only sift and rootsift): "
        f"make one of your own descriptors, 'featveil database build descriptors.npy --kind {kind:.64} --out FILE'"
    )


def _rootsift(sift: Database) -> Database:
    """The square roots of the L1-normalised entries, in the same order and parts."""
    values = sift.values.astype(np.float32)
    values = np.sqrt(values / values.sum(axis=1, keepdims=True))
    card = {
        **sift.card,
        "kind": "rootsift",
        "derived": f"square roots of the L1-normalised entries of sift database {sift.digest}",
    }
    return Database(values, "rootsift", sift.parts, card=card)
