"""The part of the demo's page about faces. Its layout is page_faces.html."""

import html
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from string import Template

from featveil.plotting.pictures import Picture, embedded

_LAYOUT = Path(__file__).with_name("page_faces.html")
_ATTACKERS = ("knn", "trained", "unmix")


@dataclass(frozen=True, eq=False)
class FaceRow:
    """A copy of the photograph with its distances from the raw and from the private template."""

    name: str
    picture: Picture
    raw: float
    private: float


@dataclass(frozen=True, eq=False)
class FacesPart:
    """Copies, the nearest of the strangers, and by template how often each attacker is right in `lifts`."""

    copies: Sequence[FaceRow]
    dimension: int
    raw_stranger: float
    private_stranger: float
    strangers: int
    guesses: Sequence[tuple[str, dict[str, int]]]
    lifts: int


def faces_section(part: FacesPart) -> str:
    """The part as HTML."""
    values = {
        "dimension": part.dimension,
        "copies": "\n".join(_figure(row, part) for row in part.copies),
        "strangers": f"{part.strangers:,}",
        "raw_stranger": f"{part.raw_stranger:.2f}",
        "private_stranger": f"{part.private_stranger:.2f}",
        "lifts": part.lifts,
        "blind": part.lifts // 2,
        "guess_rows": "\n".join(_row(*guess) for guess in part.guesses),
    }
    return Template(_LAYOUT.read_text(encoding="utf-8")).substitute(values)


def _figure(row: FaceRow, part: FacesPart) -> str:
    name = html.escape(row.name)
    return (
        f'<figure><img {embedded(row.picture)} alt="Her face, {name}"><figcaption><b>{name}</b><br>'
        f"raw {_verdict(row.raw, part.raw_stranger)}<br>private {_verdict(row.private, part.private_stranger)}"
        "</figcaption></figure>"
    )


def _verdict(distance: float, nearest: float) -> str:
    return f"{distance:.2f}, {'passes' if distance < nearest else '<b>refused</b>'}"


def _row(template: str, right: dict[str, int]) -> str:
    cells = "".join(f"<td>{right.get(name, '–')}</td>" for name in _ATTACKERS)
    return f"<tr><th scope='row'>{html.escape(template)}</th>{cells}</tr>"
