"""A demo run -> one self-contained HTML page, which loads nothing from anywhere.

The layout is page.html, its parts are page_*.html.
"""

from collections.abc import Sequence
from pathlib import Path

from featveil.core.descriptors import as_flats
from featveil.demo.demo import Run
from featveil.demo.two_views import LeakRow, Row
from featveil.metrics import CLOSE, NEAR
from featveil.plotting.pages import render as fill
from featveil.plotting.pictures import embedded

_LAYOUT = Path(__file__).with_name("page.html")


def render(run: Run) -> str:
    """The page as HTML text."""
    return fill(
        _LAYOUT,
        run=run,
        shown=next(row for row in run.rows if row.dimension == run.shown),
        size=as_flats(run.release.descriptors).size,
        file=_bytes(run.file_bytes),
        raw_file=_bytes(run.raw_bytes),
        word_file=_bytes(run.words.file_bytes),
        redrawn=_redrawn(run.rows),
        leak_headline=leak_headline(run.attacks),
        near=f"{NEAR:g}",
        close=f"{CLOSE:g}",
        share=share_of,
        bytes=_bytes,
        embedded=embedded,
    )


def leak_headline(rows: Sequence[LeakRow]) -> str:
    """What the strongest attack got back; of several that are as strong, the one that was tried on most features."""

    def strength(row: LeakRow) -> tuple[float, ...]:
        return round(row.leakage.exact, 2), round(row.leakage.below_close, 2), row.leakage.count

    best = max(rows, key=strength)
    leakage = best.leakage
    if leakage.exact > 0:
        return f"The attack {best.attack} found {100 * leakage.exact:.0f}% of the features exactly."
    return f"The attack {best.attack} came nearer than {CLOSE:g} to {100 * leakage.below_close:.0f}% of them."


def share_of(part: int, whole: int) -> str:
    """In percent; a dash of nothing."""
    return f"{100 * part / whole:.0f}%" if whole else "–"


def _redrawn(rows: Sequence[Row]) -> str:
    """What the reader must know about how the numbers were chosen."""
    again = [row.dimension for row in rows if row.redrawn]
    if not again:
        return "In this run that did not happen."
    listed = ", ".join(str(dimension) for dimension in again)
    return f"In this run it happened at dimension {listed}: the reference was then released anew, once or more."


def _bytes(count: int) -> str:
    return f"{count / 1e6:.1f} MB" if count >= 1e6 else f"{count / 1e3:.0f} kB"
