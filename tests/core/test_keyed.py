import numpy as np
import pytest

from face_sets import population
from featveil.core import Points
from featveil.core.keyed import KeyedDraws, KeyedRandomness, tags_of
from featveil.databases import Database
from featveil.defenses import Lifting
from featveil.distances import pair_distances

SECRET = bytes(range(32))
TAGS = [b"a", b"b", b"c"]


def test_draws_follow_from_secret_tag_and_purpose() -> None:
    drawn = KeyedDraws(SECRET, TAGS).uniform("x", 4, 50)
    assert (drawn == KeyedDraws(SECRET, TAGS).uniform("x", 4, 50)).all()
    assert (drawn[1] == KeyedDraws(SECRET, TAGS[1:]).uniform("x", 4, 50)[0]).all()
    for other in (KeyedDraws(bytes(32), TAGS).uniform("x", 4, 50), KeyedDraws(SECRET, TAGS).uniform("y", 4, 50)):
        assert np.abs(np.corrcoef(drawn.ravel(), other.ravel())[0, 1]) < 0.2
    assert np.abs(np.corrcoef(drawn[0].ravel(), drawn[1].ravel())[0, 1]) < 0.3


def test_a_longer_draw_begins_with_a_shorter_one() -> None:
    draws = KeyedDraws(SECRET, TAGS)
    assert (draws.uniform("x", 12, 7)[:, :5] == draws.uniform("x", 5, 7)).all()


def test_draws_are_uniform() -> None:
    drawn = KeyedDraws(SECRET, TAGS).uniform("x", 100, 128)
    assert -1 <= drawn.min() < -0.999 < 0.999 < drawn.max() < 1
    assert abs(drawn.mean()) < 0.02
    assert abs(drawn.var() - 1 / 3) < 0.01
    assert KeyedDraws(SECRET, []).uniform("x", 3, 5).shape == (0, 3, 5)


def test_tags_tell_rows_and_secrets_apart() -> None:
    rows = np.arange(12, dtype=np.float32).reshape(4, 3)
    tags = tags_of(SECRET, rows)
    assert len(set(tags)) == 4
    assert tags_of(SECRET, rows.copy()) == tags
    assert not set(tags) & set(tags_of(bytes(32), rows))


def test_a_secret_is_not_printed() -> None:
    assert "\\x" not in repr(KeyedDraws(SECRET, [bytes(range(32))]))


def test_the_same_secret_and_purpose_give_the_same_draws_in_their_order() -> None:
    one, again = KeyedRandomness(SECRET, "ann"), KeyedRandomness(SECRET, "ann")
    for _ in range(3):
        assert one.take(40) == again.take(40)
        assert (one.random((3, 5)) == again.random((3, 5))).all()
        assert (one.integers(0, 7, size=(20,)) == again.integers(0, 7, size=(20,))).all()


def test_other_secrets_purposes_and_calls_give_other_draws() -> None:
    keyed = KeyedRandomness(SECRET, "ann")
    drawn = [keyed.take(32), keyed.take(32)]
    drawn += [KeyedRandomness(SECRET, purpose).take(32) for purpose in ("ann ", "bob", "")]
    drawn += [KeyedRandomness(secret, "ann").take(32) for secret in (bytes(32), SECRET[:31], SECRET[::-1])]
    assert len(set(drawn)) == 8


def test_keyed_draws_are_uniform_and_unrelated() -> None:
    one, other = (KeyedRandomness(SECRET, purpose).random((200, 500)) for purpose in ("ann", "bob"))
    for drawn in (one, other):
        counts = np.histogram(drawn, bins=20, range=(0, 1))[0]
        assert np.abs(counts - 5000).max() < 6 * np.sqrt(5000)
        assert drawn.min() >= 0 and drawn.max() < 1
    assert abs(np.corrcoef(one.ravel(), other.ravel())[0, 1]) < 0.02
    assert abs(np.corrcoef(one.ravel()[1:], one.ravel()[:-1])[0, 1]) < 0.02


@pytest.mark.parametrize("span", [3, 7, 20])
def test_keyed_whole_numbers_are_uniform(span: int) -> None:
    counts = np.bincount(KeyedRandomness(SECRET, "ann").integers(0, span, size=(10_000 * span,)))
    assert len(counts) == span
    assert np.abs(counts - 10_000).max() < 6 * np.sqrt(10_000)


def test_a_keyed_lift_is_the_same_each_time_and_holds_the_descriptor() -> None:
    others, face = population(60, 1, d=24, seed=1), Points(population(1, 1, d=24, seed=2).values)
    lifting = Lifting("hybrid", 6, database=Database.from_array(others.values, others.kind, 1))
    lifted = [lifting.privatize(face, KeyedRandomness(SECRET, purpose)) for purpose in ("ann", "ann", "bob")]
    assert (lifted[0].offset == lifted[1].offset).all() and (lifted[0].basis == lifted[1].basis).all()
    assert np.abs(lifted[0].offset - lifted[2].offset).max() > 0.01
    rows = np.zeros(1, np.int64)
    assert all(pair_distances(face, one, rows, rows)[0] < 1e-5 for one in lifted)


def test_a_keyed_generator_shows_nothing_of_its_secret() -> None:
    assert "\\x" not in repr(KeyedRandomness(SECRET, "ann"))
