import numpy as np

from featveil.core.keyed import KeyedDraws, tags_of

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
