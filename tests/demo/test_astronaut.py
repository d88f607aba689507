"""The demo's faces."""

from featveil.demo.astronaut import LIFTS, show_faces


def test_she_passes_strangers_do_not_and_attackers_say_what_they_can() -> None:
    faces = show_faces()
    assert [one.name for one in faces.copies][:2] == ["as it is", "mirrored"]
    assert all(one.picture.shape == (112, 112, 3) for one in faces.copies)
    assert all(one.private <= one.raw + 1e-4 for one in faces.copies)  # a subspace is at most as far as its points
    passed = [one.name for one in faces.copies if one.private < faces.private_stranger]
    assert {"as it is", "mirrored", "turned"} <= set(passed)
    assert faces.private_stranger < faces.raw_stranger
    right = {one.strategy: one.right for one in faces.guesses}
    assert right["raw"]["knn"] == LIFTS
    assert right["hybrid+"]["trained"] > 0.9 * LIFTS > 0.3 * LIFTS > right["hybrid+"]["knn"]
    assert right["hybrid"]["unmix"] > 0.6 * LIFTS
