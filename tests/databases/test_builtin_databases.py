"""The built-in databases: what is in them, and that their card says so."""

import subprocess
import sys
import time

import numpy as np
import pytest

from featveil.core import InputError
from featveil.databases import builtin, load_database
from featveil.databases.builtin_databases import SIFT_FILE

SIFT_DIGEST = "a4fb4a59fdd81cbe267ae99feb4f2c3ddafb33811355d90eac6e4b63c726420e"


def test_sift_is_the_published_one() -> None:
    database = builtin("sift")
    assert database is builtin("sift")
    assert database.values.shape == (16384, 128)
    assert database.values.dtype == np.uint8
    assert (database.kind, database.parts, database.labels) == ("sift", 16, None)
    assert database.digest == SIFT_DIGEST
    assert all(len(range(16384)[database.part(i)]) == 1024 for i in range(16))


def test_the_card_says_what_is_in_it() -> None:
    database = builtin("sift")
    card, recipe = database.card, database.card["recipe"]
    assert recipe["clusters"] == len(database)
    assert recipe["parts"] == database.parts
    assert recipe["kind"] == card["kind"] == database.kind
    assert (card["images"], card["images_skipped"]) == (959 + 200, 0)
    assert card["descriptors_used"] == card["descriptors_found"] < card["images"] * recipe["max_per_image"]
    assert "ImageNet" in card["source"]
    assert "BSDS500" in card["source"]
    assert "non-commercial" in card["licence"]
    assert 0.85 < card["mean_cosine"] < 1
    assert "/" not in card["source"]


def test_entries_are_distinct_and_look_like_sift() -> None:
    database = builtin("sift")
    assert len(np.unique(database.values, axis=0)) > 0.999 * len(database)
    points = database.points()
    # Bytes are 512 times a unit vector: only clipping and rounding change the norm.
    norms = np.linalg.norm(database.values.astype(np.float64), axis=1)
    assert 480 < norms.min() <= norms.max() < 520
    # The outer cells of SIFT's 4 x 4 grid weigh less than the inner ones.
    cells = points.reshape(-1, 4, 4, 8).sum(axis=-1).mean(axis=0)
    assert cells[1:3, 1:3].min() > cells[[0, 0, 3, 3], [0, 3, 0, 3]].max()


def test_parts_are_alike_because_entries_were_permuted() -> None:
    database = builtin("sift")
    means = np.stack([database.unit(database.part(i)).mean(axis=0) for i in range(16)])
    spread = database.points().std(axis=0) / np.sqrt(1024)
    assert np.abs((means - means.mean(axis=0)) / spread).max() < 5


def test_rootsift_is_derived_entry_by_entry() -> None:
    sift, root = builtin("sift"), builtin("rootsift")
    assert (root.kind, root.parts, len(root)) == ("rootsift", 16, 16384)
    for entry in (0, 16383):
        row = sift.values[entry].astype(np.float64)
        np.testing.assert_allclose(root.points()[entry], np.sqrt(row / row.sum()), atol=1e-6)
    assert root.card["kind"] == "rootsift"
    assert sift.digest in root.card["derived"]
    assert "derived" not in sift.card


def test_other_kinds_say_how_to_build_one() -> None:
    with pytest.raises(InputError, match="featveil database build"):
        builtin("hardnet")


def test_loading_is_quick() -> None:
    load_database(SIFT_FILE)
    durations = []
    for _ in range(5):
        start = time.perf_counter()
        load_database(SIFT_FILE)
        durations.append(time.perf_counter() - start)
    assert min(durations) < 0.05


def test_importing_does_not_load_what_only_building_needs() -> None:
    code = "import sys, featveil.databases; print([m for m in ('faiss', 'cv2', 'h5py') if m in sys.modules])"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == "[]"
