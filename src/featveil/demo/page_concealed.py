"""The part of the demo's page about a concealer and its undoing. Its layout is page_concealed.html."""

from dataclasses import dataclass
from pathlib import Path
from string import Template

from featveil.demo.page_views import ViewRow, view_figure
from featveil.metrics import CLOSE, Leakage
from featveil.plotting.pictures import Picture, embedded

_LAYOUT = Path(__file__).with_name("page_concealed.html")


@dataclass(frozen=True, eq=False)
class ConcealedPart:
    """Matches of a concealed query, how many of them agree, and what undoing the network gives."""

    matches: int
    inliers: int
    share: str  # of the raw matches that agree
    picture: Picture
    leakage: Leakage
    view: ViewRow | str  # what is painted of it, or why nothing is


def concealed_section(part: ConcealedPart) -> str:
    """The part as HTML."""
    found = part.leakage
    values = {
        "matches": f"{part.matches:,}",
        "inliers": f"{part.inliers:,}",
        "share": part.share,
        "matches_image": embedded(part.picture),
        "exact": f"{100 * found.exact:.0f}%",
        "close_share": f"{100 * found.below_close:.0f}%",
        "close": f"{CLOSE:g}",
        "figure": view_figure(part.view),
    }
    return Template(_LAYOUT.read_text(encoding="utf-8")).substitute(values)
