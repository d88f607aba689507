"""A demo run -> one self-contained HTML page, which loads nothing from anywhere. The layout is page.html."""

import html
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from string import Template

from featveil.core import PrivateFeatures
from featveil.core.descriptors import as_flats
from featveil.demo import page_map
from featveil.demo.page_concealed import ConcealedPart, concealed_section
from featveil.demo.page_faces import FacesPart, faces_section
from featveil.demo.page_views import ViewRow, views_section
from featveil.metrics import CLOSE, NEAR, Leakage
from featveil.metrics.reconstruction import Reconstruction
from featveil.plotting.pictures import Picture, embedded

_LAYOUT = Path(__file__).with_name("page.html")


@dataclass(frozen=True)
class Count:
    """Matches, and how many of them agree on one homography."""

    matches: int
    inliers: int


@dataclass(frozen=True)
class Row:
    """One line of the table: dimension and both kinds of private matching."""

    dimension: int
    one_side: Count
    both_sides: Count
    redrawn: int = 0  # releases of the reference that were drawn again, see page.html


@dataclass(frozen=True)
class WordRow:
    """One line of the table with a proven bound: epsilon of a descriptor and of the image, and what it costs."""

    epsilon: float
    image_epsilon: float
    guess: float  # how often a blind guess at the word of a feature is right
    count: Count


@dataclass(frozen=True)
class Words:
    """The subset mechanism: `words` sent for each feature, in a file of `file_bytes`; one row an epsilon."""

    words: int
    codebook_size: int
    rows: Sequence[WordRow]
    shown: WordRow  # that of the picture
    matches: Picture
    file_bytes: int


@dataclass(frozen=True)
class LeakRow:
    """One attack on the release: its name, what it does, and how near its guesses come."""

    attack: str
    summary: str
    leakage: Leakage


@dataclass(frozen=True, eq=False)
class Run:
    """Everything the page shows. Pictures are uint8 RGB."""

    query: Picture
    reference: Picture
    positions: Picture
    raw_matches: Picture
    one_side_matches: Picture
    both_sides_matches: Picture
    raw: Count
    rows: Sequence[Row]
    shown: int  # dimension of the pictures
    words: Words
    concealed: ConcealedPart
    attacks: Sequence[LeakRow]
    views: Sequence[ViewRow] | str  # what attackers see, or why that was not painted
    map: page_map.MapPart | None  # None without pycolmap
    faces: FacesPart
    release: PrivateFeatures
    file_bytes: int
    raw_bytes: int
    seconds: float

    @property
    def scored_views(self) -> list[tuple[str, Reconstruction]]:
        """The attacks whose pictures are shown, and how near these come."""
        views = [] if isinstance(self.views, str) else [*self.views]
        views += [] if isinstance(self.concealed.view, str) else [self.concealed.view]
        return [(view.attack, view.score) for view in views if view.score is not None]


def render(run: Run) -> str:
    """The page as HTML text."""
    shown = next(row for row in run.rows if row.dimension == run.shown)
    size = as_flats(run.release.descriptors).size
    counts = {"raw": run.raw, "one": shown.one_side, "both": shown.both_sides}
    values: dict[str, object] = {
        "features": f"{len(run.release):,}",
        "file": _bytes(run.file_bytes),
        "raw_file": _bytes(run.raw_bytes),
        "values": f"{size * (1 + run.shown):,}",
        "size": size,
        "dimension": run.shown,
        "kind": html.escape(run.release.kind),
        "database": html.escape(str(run.release.defense["database"])[:12]),
        "seconds": f"{run.seconds:.0f}",
        "redrawn": _redrawn(run.rows),
        "rows": "\n".join(_row(row, run.raw) for row in run.rows),
        "close": f"{CLOSE:g}",
        "near": f"{NEAR:g}",
        "leak_rows": "\n".join(_leak_row(row) for row in run.attacks),
        "leak_headline": _leak_headline(run.attacks),
    }
    values |= _word_values(run.words, run.raw)
    values["concealed"] = concealed_section(run.concealed)
    values["views"] = views_section(run.views)
    values["faces"] = faces_section(run.faces)
    values["map"] = page_map.MISSING if run.map is None else _map_section(run.map)
    for name, count in counts.items():
        values |= {f"{name}_matches": f"{count.matches:,}", f"{name}_inliers": f"{count.inliers:,}"}
        values[f"{name}_share"] = share_of(count.inliers, run.raw.inliers)
    for name in ("query", "reference", "positions", "raw_matches", "one_side_matches", "both_sides_matches"):
        values[f"{name}_image"] = embedded(getattr(run, name))
    return Template(_LAYOUT.read_text(encoding="utf-8")).substitute(values)


def _map_section(part: page_map.MapPart) -> str:
    pictures = {"models": part.models, "first": part.first, "query": part.query}
    values = {f"{name}_image": embedded(picture) for name, picture in pictures.items()}
    layout = Template(page_map.LAYOUT.read_text(encoding="utf-8"))
    return layout.substitute(values, map_rows=page_map.map_rows(part.rows))


def _word_values(words: Words, raw: Count) -> dict[str, object]:
    shown = words.shown
    return {
        "words": words.words,
        "codebook_size": f"{words.codebook_size:,}",
        "word_file": _bytes(words.file_bytes),
        "word_rows": "\n".join(_word_row(row, raw) for row in words.rows),
        "word_epsilon": f"{shown.epsilon:g}",
        "word_image_epsilon": f"{shown.image_epsilon:,.0f}",
        "word_matches": f"{shown.count.matches:,}",
        "word_inliers": f"{shown.count.inliers:,}",
        "word_matches_image": embedded(words.matches),
    }


def _word_row(row: WordRow, raw: Count) -> str:
    count = row.count
    return (
        f"<tr><th scope='row'>{row.epsilon:g} <span>({row.image_epsilon:,.0f} for the image)</span></th>"
        f"<td>{100 * row.guess:.1f}%</td><td>{count.inliers:,} <span>of {count.matches:,}</span></td>"
        f"<td>{share_of(count.inliers, raw.inliers)}</td></tr>"
    )


def _row(row: Row, raw: Count) -> str:
    cells = "".join(
        f"<td>{count.inliers:,} <span>of {count.matches:,}</span></td><td>{share_of(count.inliers, raw.inliers)}</td>"
        for count in (row.one_side, row.both_sides)
    )
    return f"<tr><th scope='row'>{row.dimension}</th>{cells}</tr>"


def _leak_headline(rows: Sequence[LeakRow]) -> str:
    """What the strongest attack found; of several that are as strong, the one that was tried on most features."""

    def strength(row: LeakRow) -> tuple[float, ...]:
        return round(row.leakage.exact, 2), round(row.leakage.below_close, 2), row.leakage.count

    best = max(rows, key=strength)
    found = best.leakage
    if found.exact > 0:
        return f"The attack {html.escape(best.attack)} found {100 * found.exact:.0f}% of the features exactly."
    return (
        f"The attack {html.escape(best.attack)} came nearer than {CLOSE:g} to {100 * found.below_close:.0f}% of them."
    )


def _leak_row(row: LeakRow) -> str:
    found = row.leakage
    shares = "".join(f"<td>{100 * share:.0f}%</td>" for share in (found.below_near, found.below_close, found.exact))
    return (
        f"<tr><th scope='row'>{html.escape(row.attack)} <span>{html.escape(row.summary)}</span></th>"
        f"<td>{found.count:,}</td>{shares}</tr>"
    )


def _redrawn(rows: Sequence[Row]) -> str:
    """What the reader must know about how the numbers were chosen."""
    again = [row.dimension for row in rows if row.redrawn]
    if not again:
        return "In this run that did not happen."
    listed = ", ".join(str(dimension) for dimension in again)
    return f"In this run it happened at dimension {listed}: the reference was then released anew, once or more."


def share_of(part: int, whole: int) -> str:
    return f"{100 * part / whole:.0f}%" if whole else "–"


def _bytes(count: int) -> str:
    return f"{count / 1e6:.1f} MB" if count >= 1e6 else f"{count / 1e3:.0f} kB"
