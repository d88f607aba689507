"""The two photographs that come with featveil: a pin board from two places (drawn by recipes/draw_demo_views.py)."""

from pathlib import Path

_DATA = Path(__file__).parent / "data"


def views() -> tuple[Path, Path]:
    """The image files: the query and the reference."""
    return _DATA / "board-1.jpg", _DATA / "board-2.jpg"
