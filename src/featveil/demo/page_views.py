"""The part of the demo's page about what is painted from features, raw and guessed. Its layout is page_views.html."""

import html
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from string import Template

from featveil.metrics.reconstruction import Reconstruction
from featveil.plotting.pictures import Picture, embedded

_LAYOUT = Path(__file__).with_name("page_views.html")


_TOLD = {
    "photograph": ("Photograph", "stays on the device"),
    "read": ("Raw", "from the features themselves"),
    "chance": ("Random", "from other features, drawn at random"),
}


@dataclass(frozen=True, eq=False)
class ViewRow:
    """A picture painted from what an attack took for the features ("read": from raw ones), and how near it comes.

    That of attack "photograph" is the photograph itself, without a score.
    """

    attack: str
    picture: Picture
    score: Reconstruction | None = None


def views_section(views: Sequence[ViewRow] | str) -> str:
    """The pictures as HTML, the photograph first; a text says why there are none."""
    if isinstance(views, str):
        return _unpainted(views)
    figures = "\n".join(view_figure(view) for view in views)
    return Template(_LAYOUT.read_text(encoding="utf-8")).substitute(figures=figures)


def view_figure(view: ViewRow | str) -> str:
    """One picture with its caption as HTML; a text says why there is none."""
    if isinstance(view, str):
        return _unpainted(view)
    told = _TOLD.get(view.attack, (f"Attack {view.attack}", "from what it took for the features"))
    title, source = map(html.escape, told)
    score = "" if view.score is None else f" SSIM {view.score.ssim:.2f}."
    return (
        f'<figure><img {embedded(view.picture)} alt="{title}: {source}">'
        f"<figcaption><b>{title}:</b> {source}.{score}</figcaption></figure>"
    )


def _unpainted(why: str) -> str:
    return f"<p>What an attacker sees was not painted: {html.escape(why)}.</p>"
