from featveil.datasets.board import views


def test_bundled_views_are_small() -> None:
    for path in views():
        assert 10_000 < path.stat().st_size < 200_000
