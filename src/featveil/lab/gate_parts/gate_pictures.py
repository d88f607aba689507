"""What a built-in inverter paints of a query with a portrait in it: of its raw features, and of the gated release."""

from collections.abc import Sequence
from pathlib import Path

from featveil.attacks import Knowledge, Read, attack
from featveil.core import MissingExtraError, NotMappedError
from featveil.core.seeding import generator
from featveil.datasets.private_content import Content
from featveil.defenses import privatize
from featveil.extractors.images import Image
from featveil.lab.gate_parts.gate_subjects import Pasted, Place
from featveil.lab.gate_parts.gate_variants import Variant
from featveil.pipelines.painters import at_size, paint, picture_size, raw_painter, recovered, resized
from featveil.plotting.figures import blank_figure, write_figure

_SHARE = 0.2  # of the picture
_PORTRAIT = "portrait"
_WIDE = 11.0  # inches


def portrait(place: Place, query: str, variant: Variant, contents: Sequence[Content], path: Path) -> Path | str:
    """Write three panels: the query with a portrait in it, and what is seen of raw features and of the gated release.

    What cannot be drawn is said instead.
    """
    content = next((one for one in contents if one.name == _PORTRAIT), contents[0])
    pasted = Pasted(content, _SHARE)
    image, _ = place.picture(query, pasted)
    raw = place.seen(query, pasted).features
    sketch = place.sketches(query).of(variant)
    try:
        rng = generator(place.releases.settings.seed, query, "portrait")
        release = privatize(raw, variant.gate(sketch), rng=rng)
    except NotMappedError as error:
        return f"{path.name} was not drawn: {error}"
    guess = attack(release, Read(), Knowledge(sketch=sketch))
    painter, size = raw_painter(raw.kind), picture_size(raw)
    seen = [paint(at_size(one, size), painter) for one in (raw, recovered(release, guess))]
    captions = (
        "the query",
        f"seen of raw features: {len(raw):,}, with scale and orientation",
        f"seen through the gate: {len(release):,} positions, points of the map",
    )
    try:
        draw_panels([resized(image, size), *seen], captions, path)
    except MissingExtraError as error:
        return f"{path.name} was not drawn: {error}"
    return path


def draw_panels(pictures: Sequence[Image], captions: Sequence[str], path: Path) -> None:
    """Write `pictures` side by side, each under its caption; raises MissingExtraError without matplotlib."""
    height, width = pictures[0].shape[:2]
    figure = blank_figure(_WIDE, _WIDE / len(pictures) * height / width + 0.35)
    for panel, picture, caption in zip(figure.subplots(1, len(pictures)), pictures, captions, strict=True):
        panel.imshow(picture)
        panel.set_title(caption, fontsize=9)
        panel.axis("off")
    write_figure(figure, path)
