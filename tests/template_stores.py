"""What the tests of template stores share: small faces, a lifting for them, and processes that use a store."""

import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from face_sets import KIND, population
from featveil.core import Features, Points, PrivateFeatures
from featveil.databases import Database
from featveil.datasets.face_sets import FaceSet
from featveil.defenses import Lifting, privatize
from featveil.stores import sqlite as sqlite_files
from featveil.stores.templates import Settings, TemplateStore

D, M = 24, 4
OTHERS = population(60, 1, D, seed=1)
PEOPLE = population(12, 3, D, seed=2, scatter=0.3)

PREAMBLE = """
import os, signal, sys
import numpy as np
import featveil.stores.templates as module
from featveil.core import Guarantee, InputError, PrivateFeatures, Subspaces
store = module.TemplateStore(sys.argv[1], wait=60)
settings = store.settings()

def template(seed):
    basis = np.linalg.qr(np.random.default_rng(seed).normal(size=(settings.size, settings.dimension)))[0].T
    lifted = Subspaces(np.full((1, settings.size), seed), basis[None])
    return PrivateFeatures(lifted, settings.kind, settings.defense, Guarantee("empirical"))
"""


def lifting(dimension: int = M, others: FaceSet = OTHERS, strategy: str = "hybrid") -> Lifting:
    """Among `others`, in a fixed order, so that equal ones have equal digests."""
    database = Database.from_array(others.values, others.kind, 1, rng=np.random.default_rng(0))
    return Lifting(strategy, dimension, database=database)


def settings(dimension: int = M) -> Settings:
    return Settings(KIND, D, lifting(dimension).spec(), "0" * 64, "/faces.npz")


def raw(row: int, faces: FaceSet = PEOPLE) -> Features:
    """One of the faces as it is."""
    return Features(Points(faces.values[row : row + 1]), faces.kind)


def private(row: int, defense: Lifting | None = None) -> PrivateFeatures:
    """One of the faces, hidden, the same each time."""
    return privatize(raw(row), defense or lifting(), rng=np.random.default_rng(row))


def edit(path: Path, *statements: str) -> None:
    """Change a store behind its back."""
    with closing(sqlite3.connect(path)) as connection, connection:
        for statement in statements:
            connection.execute(statement)


def without_waiting_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let commits of this process not wait until they would outlive a power cut, which no test can cause."""
    quick = tuple(pragma.replace("EXTRA", "OFF") for pragma in sqlite_files._PRAGMAS)
    assert quick != sqlite_files._PRAGMAS
    monkeypatch.setattr(sqlite_files, "_PRAGMAS", quick)


def process(code: str, path: Path) -> "subprocess.Popen[str]":
    """Run `code` in a process that has `store`, its `settings`, and `template(seed)`."""
    command, pipe = [sys.executable, "-c", PREAMBLE + code, str(path)], subprocess.PIPE
    return subprocess.Popen(command, text=True, stdin=pipe, stdout=pipe, stderr=pipe)


def content(store: TemplateStore) -> dict[str, bytes]:
    """Each person's template, as bytes."""
    templates = {}
    for person in store.people():
        descriptors = store.template(person).descriptors
        templates[person] = descriptors.offset.tobytes() + descriptors.basis.tobytes()  # type: ignore[union-attr]
    return templates
