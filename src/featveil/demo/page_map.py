"""The part of the demo's page about maps, raw and private, and about a query. Its layout is page_map.html."""

import html
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from featveil.plotting.pictures import Picture

LAYOUT = Path(__file__).with_name("page_map.html")
MISSING = """\
<p>This part of the page builds a map from private features, which needs pycolmap: install the extra <code>colmap</code>
(<code>pip install '.[colmap]'</code>) and run the demo again.</p>"""


@dataclass(frozen=True)
class MapRow:
    """The map from what one scheme sends, and the error of a query in the raw map: (degrees, metres) or None."""

    scheme: str
    registered: int
    images: int
    points: int
    track_length: float
    error: float
    query_errors: tuple[float, float] | None
    image_epsilon: float | None


@dataclass(frozen=True, eq=False)
class MapPart:
    """One row a scheme, raw first; pictures of all models, of a view that was mapped and of the query. uint8 RGB."""

    rows: Sequence[MapRow]
    models: Picture
    first: Picture
    query: Picture


def map_rows(rows: Sequence[MapRow]) -> str:
    """The table's body."""
    return "\n".join(_row(row) for row in rows)


def _row(row: MapRow) -> str:
    total = "" if row.image_epsilon is None else f"<br><span>({row.image_epsilon:,.0f} for the image)</span>"
    numbers = (
        f"{row.registered} <span>of {row.images}</span>",
        f"{row.points:,}",
        f"{row.track_length:.1f}",
        f"{row.error:.2f} px",
        _errors(row.query_errors),
    )
    cells = "".join(f"<td>{number}</td>" for number in numbers)
    return f"<tr><th scope='row'>{html.escape(row.scheme)}{total}</th>{cells}</tr>"


def _errors(errors: tuple[float, float] | None) -> str:
    if errors is None:
        return "not localized"
    degrees, metres = errors
    return f"{1000 * metres:.1f} mm, {degrees:.2f}°"
