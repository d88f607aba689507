import numpy as np
import pytest

from featveil.core import InputError, Points
from featveil.databases import Database, builtin, nearest_words, word_points


def test_nearest_words_are_those_of_a_plain_search() -> None:
    codebook = builtin("sift")
    rng = np.random.default_rng(0)
    raw = np.clip(codebook.values[:500] + rng.normal(0, 20, (500, 128)), 0, None).astype(np.float32)
    words, distances = nearest_words(Points(raw), codebook)
    unit = raw.astype(np.float64) / np.linalg.norm(raw.astype(np.float64), axis=1, keepdims=True)
    entries = codebook.values / np.linalg.norm(codebook.values.astype(np.float64), axis=1, keepdims=True)
    table = np.sqrt(np.maximum(2 - 2 * unit @ entries.T, 0))
    assert (words == table.argmin(axis=1)).mean() > 0.995  # float32 rows may turn a near tie
    assert np.abs(distances - table.min(axis=1)).max() < 1e-6
    assert np.abs(table[np.arange(500), words] - table.min(axis=1)).max() < 1e-6


def test_the_length_of_a_descriptor_does_not_matter() -> None:
    codebook = builtin("sift")
    raw = codebook.values[:50].astype(np.float32)
    assert (nearest_words(Points(raw), codebook)[0] == nearest_words(Points(raw * 1000), codebook)[0]).all()


def test_equal_words_go_to_the_lower_index() -> None:
    values = np.repeat(np.eye(3, 4, dtype=np.float32) + 0.5, 2, axis=0)
    words = nearest_words(Points(values), Database(values, "tiny", 1))[0]
    assert words.tolist() == [0, 0, 2, 2, 4, 4]


def test_words_as_points_have_norm_one() -> None:
    points = word_points(np.array([5, 3, 5]), builtin("sift"))
    assert np.allclose(np.linalg.norm(points.values, axis=1), 1)
    assert (points.values[0] == points.values[2]).all()


def test_what_has_no_nearest_word_is_refused() -> None:
    with pytest.raises(InputError, match="words have size 128, descriptors 64"):
        nearest_words(Points(np.ones((2, 64), np.float32)), builtin("sift"))
    with pytest.raises(InputError, match="zero norm"):
        nearest_words(Points(np.zeros((1, 128), np.float32)), builtin("sift"))
