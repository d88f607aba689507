"""Records of maps built from private features -> rows, and the tables in Markdown: one for each scene.

An epsilon of one descriptor is never shown without the one that it adds up to over an image.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from featveil.core import InputError
from featveil.core.records import Record

MAPPED = "registered images, points, track length, reprojection error"
_WRONG = (5.0, 1.0)  # degrees, metres: a camera further off than one of these is not a less exact one but a wrong one


@dataclass(frozen=True)
class MappingRow:
    """The map of one scene by one scheme: `registered` of `images`, `points`, means of track length and of the error.

    `error` is in pixels, `pairs` are those that passed geometric verification. `rotation_error` (degrees) and
    `centre_error` (metres) are medians over the registered cameras after alignment with the truth and `wrong` is how
    many of them are more than 5 degrees or 1 metre off: None without truth. `image_epsilon` is what `epsilon` of a
    descriptor adds up to over an image; None where nothing is guaranteed.
    """

    scene: str
    scheme: str
    epsilon: float | None
    image_epsilon: float | None
    registered: int
    images: int
    points: int
    track_length: float
    error: float
    pairs: int
    rotation_error: float | None
    centre_error: float | None
    wrong: int | None


def summarize_mapping(records: Sequence[Record]) -> list[MappingRow]:
    """One row a record, scene by scene in the order of the records, raw descriptors first.

    Raises InputError when a record is not one of mapping, or when two are of one scheme on one scene.
    """
    rows = [_row(record) for record in records]
    scenes = list(dict.fromkeys(row.scene for row in rows))
    if len({(row.scene, row.scheme) for row in rows}) < len(rows):
        raise InputError("these records have one scheme twice on one scene: make a table of each run")
    return sorted(rows, key=lambda row: (scenes.index(row.scene), row.scheme != "raw"))


def mapping_cells(rows: Sequence[MappingRow]) -> tuple[list[str], list[tuple[str, ...]]]:
    """Headings, and the cells of each row as text; scenes are named where there are several.

    Camera errors are left away where no row has any.
    """
    many, known = len({row.scene for row in rows}) > 1, any(row.wrong is not None for row in rows)
    headings = ["scheme", "epsilon", "epsilon an image", "registered", "points", "track length", "error (px)"]
    headings = [*(["scene"] if many else []), *headings, "verified pairs"]
    headings += ["rotation error (deg)", "centre error (cm)", "wrong cameras"] if known else []
    return headings, [
        (*((row.scene,) if many else ()), *_cells(row), *(_camera_cells(row) if known else ())) for row in rows
    ]


def mapping_markdown(records: Sequence[Record]) -> str:
    """A table for each scene, with what the columns mean."""
    if not records:
        raise InputError("there is no record to make a table of")
    rows, one = summarize_mapping(records), records[0]
    settings = f"{one.parameters.get('kind')}, at most {one.parameters.get('max_features')} features an image"
    parts = [
        "# Maps from private features\n",
        f"All images of a scene are sent under one scheme and matched with each other ({settings}; seed {one.seed})."
        " Matches are verified geometrically, and COLMAP's incremental mapper builds the map.\n",
        _EXPLAINED,
    ]
    for scene in dict.fromkeys(row.scene for row in rows):
        parts.append(f"## {scene}\n\n{_markdown([row for row in rows if row.scene == scene])}")
    return "\n".join(parts)


_EXPLAINED = """\
- epsilon: of one descriptor; epsilon an image: what it adds up to over the features of an image. Sums of thousands
  bound nothing that matters about a whole image. A dash: nothing is proved.
- registered: images that found their place in the map. points: those of the map, each seen in at least two images;
  track length: in how many, on average; error: mean distance between a keypoint and where its point is seen.
- verified pairs: pairs of images whose matches agree on one geometry.
- rotation and centre error: medians over the registered cameras once the map is aligned with the truth. wrong cameras:
  those of them more than 5 degrees or 1 metre off. A dash: too few cameras to align, or no truth. A map of few
  registered images can have small errors: read them beside the number registered.
"""


def _markdown(rows: Sequence[MappingRow]) -> str:
    headings, cells = mapping_cells(rows)
    rule = ["---" if heading == "scheme" else "---:" for heading in headings]
    return "".join(f"| {' | '.join(line)} |\n" for line in (headings, rule, *cells))


def _cells(row: MappingRow) -> tuple[str, ...]:
    return (
        row.scheme,
        "-" if row.epsilon is None else f"{row.epsilon:g}",
        "-" if row.image_epsilon is None else f"{row.image_epsilon:,.0f}",
        f"{row.registered} of {row.images}",
        f"{row.points:,}",
        f"{row.track_length:.2f}" if row.points else "-",
        f"{row.error:.2f}" if row.points else "-",
        str(row.pairs),
    )


def _camera_cells(row: MappingRow) -> tuple[str, ...]:
    return (
        "-" if row.rotation_error is None else f"{row.rotation_error:.3f}",
        "-" if row.centre_error is None else f"{100 * row.centre_error:.2f}",
        "-" if row.wrong is None else str(row.wrong),
    )


def both_epsilons(record: Record) -> tuple[float | None, float | None]:
    """Epsilon of a descriptor and of an image, both or neither; raises InputError when one of them is missing."""
    found = [record.parameters.get(name) for name in ("epsilon", "image_epsilon")]
    if (found[0] is None) != (found[1] is None):
        raise InputError("a record with an epsilon of a descriptor has that of the image too: this file is damaged")
    epsilon, image_epsilon = (None if value is None else float(str(value)) for value in found)
    return epsilon, image_epsilon


def _row(record: Record) -> MappingRow:
    if record.task != "mapping" or record.metric != MAPPED or "pairs" not in record.parameters:
        raise InputError(f"a record of task {record.task} is not one of mapping: leave it out")
    if not isinstance(record.value, tuple) or len(record.value) != 4:
        raise InputError("a record of mapping has four values: this file is damaged")
    registered, points, track_length, error = record.value
    epsilon, image_epsilon = both_epsilons(record)
    turned, moved = _errors(record)
    off = [degrees > _WRONG[0] or metres > _WRONG[1] for degrees, metres in zip(turned, moved, strict=True)]
    return MappingRow(
        scene=record.dataset,
        scheme=record.scheme,
        epsilon=epsilon,
        image_epsilon=image_epsilon,
        registered=int(registered),
        images=record.count,
        points=int(points),
        track_length=track_length,
        error=error,
        pairs=int(str(record.parameters["pairs"])),
        rotation_error=median(turned) if turned else None,
        centre_error=median(moved) if moved else None,
        wrong=sum(off) if off else None,
    )


def _errors(record: Record) -> tuple[list[float], list[float]]:
    """Degrees and metres of every aligned camera; both empty without truth."""
    turned, moved = (record.parameters.get(name, []) for name in ("rotation_errors", "centre_errors"))
    if not isinstance(turned, list) or not isinstance(moved, list) or len(turned) != len(moved):
        raise InputError("a record of mapping has as many rotation as centre errors: this file is damaged")
    return [float(value) for value in turned], [float(value) for value in moved]
