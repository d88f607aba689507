"""Structure from motion with private features (Dusmanu et al. 2021, table 2; Pittaluga and Zhuang 2023, figure S1).

All images of a scene are sent under one scheme and matched with each other; matches are verified and mapped by COLMAP.
Where a scene has true poses, intrinsics stay as they are given, and the map is aligned with the truth. An epsilon of
one descriptor is never shown without the one that it adds up to over an image.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from rich.table import Table

from featveil.audit.schemes import Scheme
from featveil.core import InputError
from featveil.core.options import argument, option
from featveil.core.records import Parameter, Record
from featveil.datasets import MapScene, load_map_scenes
from featveil.geometry.models import SparseModel, read_model
from featveil.geometry.sfm import Mapping3D
from featveil.lab.bench import (
    CURVE,
    Bench,
    Case,
    Column,
    Measured,
    Progress,
    Study,
    concealers_option,
    features_option,
    kind_option,
    markdown_table,
    out_option,
    refuse_none,
    screen_table,
    seed_option,
)
from featveil.lab.scene_studies import (
    RAW,
    SceneReleases,
    Settings,
    codebook_of,
    concealed,
    hardened,
    lifted,
    pool_descriptors,
    quantised,
    subsets,
)
from featveil.matching import MatchOptions
from featveil.metrics import align_poses, pose_errors
from featveil.pipelines.map_parts.map_building import MapOptions
from featveil.pipelines.map_parts.map_building import build_map as build
from featveil.plotting.figures import LEVELS, blank_figure, quiet, write_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_WRONG = (5.0, 1.0)  # degrees, metres: a camera further off than one of these is not a less exact one but a wrong one
_SHOWN = 3  # models beside the raw one in a picture


@dataclass(frozen=True)
class Options:
    """What is mapped, and under which schemes."""

    scenes: tuple[Path, ...] = argument(metavar="SCENES...", help="Scenes, folders of them, or folders of photographs.")
    out: Path = out_option("records.jsonl, table.md, curve.png and the maps")
    dimensions: tuple[int, ...] = option((2, 4), help="Subspace dimensions, separated by commas.")
    epsilon: float = option(10.0, help="Epsilon of a descriptor, for word sets.")
    subset_sizes: tuple[int, ...] = option((4, 8, 16, 32, 64), help="Words sent for each descriptor.")
    codebook: Path | None = option(None, help="Codebook file.", shown="the built-in one")
    pool: Path | None = option(None, help="Photographs for the pools of hardened lifting.", shown="not run")
    concealer: tuple[Path, ...] = concealers_option()
    max_features: int = features_option(4000)
    kind: str = kind_option()
    seed: int = seed_option()

    def __post_init__(self) -> None:
        refuse_none(self, "dimensions", "subset_sizes")


def mapping(options: Options, progress: Progress) -> Study["Place"]:
    """Map scenes from raw, lifted, hardened and word features: images, points, tracks, errors.

    Stop it with Ctrl-C at any time: the same command goes on where it stopped (from OUT/records.jsonl and OUT/maps).

    Example: featveil bench mapping strecha/fountain-P11 --out results/ --subset-sizes 4,8
    """
    settings = Settings(options.kind, options.max_features, options.seed)
    book = codebook_of(options.codebook, options.kind)
    schemes = [RAW, *lifted(options.kind, options.dimensions), *(hardened() if options.pool else [])]
    schemes += [quantised(book), *subsets(book, [options.epsilon], options.subset_sizes)]
    schemes += concealed(options.concealer, options.kind)
    scenes = [scene for folder in options.scenes for scene in load_map_scenes(folder)]
    with progress("pool") as report:
        pool = None if options.pool is None else pool_descriptors(options.pool, options.kind, report)
    releases = [SceneReleases(scene, settings, pool) for scene in scenes]
    return study(releases, schemes, settings, options.out)


def study(scenes: Sequence[SceneReleases], schemes: Sequence[Scheme], settings: Settings, out: Path) -> Study["Place"]:
    """Every scene under every scheme; each map stays in `out/maps/SCENE/SCHEME`, where one that was stopped goes on."""

    def cases() -> Iterator[Case[Place]]:
        for releases in scenes:
            for scheme in schemes:
                place = Place(releases, scheme, out / "maps" / releases.scene.name / scheme.name)
                yield Case(scheme.name, scheme.parameters(), place, dataset=releases.scene.name)

    def pictures(records: Sequence[Record]) -> list[Path]:
        drawn = [_picture(out, releases.scene.name, schemes) for releases in scenes]
        return [picture for picture in drawn if picture is not None]

    return Study(cases, settings.shared(), settings.seed, pictures=pictures)


def _picture(out: Path, scene: str, schemes: Sequence[Scheme]) -> Path | None:
    """Draw the raw map of a scene beside the first private ones; None where there is no raw one."""
    from featveil.plotting.model_comparison import draw_models
    from featveil.plotting.pictures import write_picture

    folders = {scheme.name: out / "maps" / scene / scheme.name for scheme in schemes}
    mapped = [name for name, folder in folders.items() if (folder / "points3D.bin").exists()]
    if mapped[:1] != [schemes[0].name]:
        return None
    try:
        drawn = draw_models({name: read_model(folders[name]) for name in mapped[: 1 + _SHOWN]})
    except InputError:  # a map without points
        return None
    write_picture(drawn, out / f"{scene}.png")
    return out / f"{scene}.png"


@dataclass(frozen=True, eq=False)
class Place:
    """A scene as it is sent under a scheme, and the folder of its map."""

    releases: SceneReleases
    scheme: Scheme
    folder: Path


def measure(place: Place) -> Measured:
    """Registered images, points, mean track length and mean reprojection error in pixels."""
    releases, scheme, scene = place.releases, place.scheme, place.releases.scene
    names, codebook = sorted(scene.images), scheme.codebook
    options = MapOptions(
        MatchOptions() if codebook is None else MatchOptions(codebook=codebook),
        mapping=Mapping3D(refine_intrinsics=not scene.poses, seed=releases.settings.seed),
    )
    built = build(names, lambda name: releases.sent(name, scheme), place.folder, cameras=scene.cameras, options=options)
    model = built.model
    parameters: dict[str, Parameter] = {"pairs": built.verified.pairs, "inlier_matches": built.verified.matches}
    parameters |= camera_errors(model, scene) | releases.epsilons(scheme, names)
    numbers = len(model.views), len(model.points), round(model.mean_track_length, 4), round(model.mean_error, 4)
    return Measured(numbers, len(names), parameters)


def camera_errors(model: SparseModel, scene: MapScene) -> dict[str, Parameter]:
    """Rotation (degrees) and centre (metres) errors of registered cameras after alignment; nothing without truth."""
    try:
        aligned = align_poses(model.poses, scene.poses)
    except InputError:  # too few cameras, or all on one line
        return {}
    errors = [pose_errors(aligned[name], scene.poses[name]) for name in sorted(aligned) if name in scene.poses]
    turned, moved = zip(*errors, strict=True)
    return {
        "rotation_errors": [round(value, 6) for value in turned],
        "centre_errors": [round(value, 6) for value in moved],
    }


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


def columns_of(rows: Sequence[MappingRow]) -> list[Column[MappingRow]]:
    """Scenes are named where there are several; camera errors are left away where no row has any."""
    many, known = len({row.scene for row in rows}) > 1, any(row.wrong is not None for row in rows)
    return [*([_SCENE] if many else []), *_COLUMNS, *(_CAMERAS if known else [])]


def epsilon_cell(epsilon: float | None) -> str:
    """Of one descriptor."""
    return "-" if epsilon is None else f"{epsilon:g}"


def image_epsilon_cell(epsilon: float | None) -> str:
    """Of an image."""
    return "-" if epsilon is None else f"{epsilon:,.0f}"


_SCENE: Column[MappingRow] = Column("scene", lambda row: row.scene, left=True)
_COLUMNS: tuple[Column[MappingRow], ...] = (
    Column("scheme", lambda row: row.scheme, left=True),
    Column("epsilon", lambda row: epsilon_cell(row.epsilon), screen=None),
    Column("epsilon an image", lambda row: image_epsilon_cell(row.image_epsilon), screen="epsilon\nan image"),
    Column("registered", lambda row: f"{row.registered} of {row.images}"),
    Column("points", lambda row: f"{row.points:,}"),
    Column("track length", lambda row: f"{row.track_length:.2f}" if row.points else "-", screen="track\nlength"),
    Column("error (px)", lambda row: f"{row.error:.2f}" if row.points else "-", screen="error\n(px)"),
    Column("verified pairs", lambda row: str(row.pairs), screen=None),
)
_CAMERAS: tuple[Column[MappingRow], ...] = (
    Column(
        "rotation error (deg)",
        lambda row: "-" if row.rotation_error is None else f"{row.rotation_error:.3f}",
        screen="rotation\nerror (deg)",
    ),
    Column(
        "centre error (cm)",
        lambda row: "-" if row.centre_error is None else f"{100 * row.centre_error:.2f}",
        screen="centre\nerror (cm)",
    ),
    Column("wrong cameras", lambda row: "-" if row.wrong is None else str(row.wrong), screen="wrong\ncameras"),
)


def rows_of(records: Sequence[Record]) -> list[MappingRow]:
    """One row per record, scene by scene in the order of the records, raw descriptors first.

    Raises InputError when two are of one scheme on one scene.
    """
    rows = [_row(record) for record in records]
    scenes = list(dict.fromkeys(row.scene for row in rows))
    if len({(row.scene, row.scheme) for row in rows}) < len(rows):
        raise InputError("these records have one scheme twice on one scene: make a table of each run")
    return sorted(rows, key=lambda row: (scenes.index(row.scene), row.scheme != "raw"))


def both_epsilons(record: Record) -> tuple[float | None, float | None]:
    """Epsilon of a descriptor and of an image, both or neither; raises InputError when one of them is missing."""
    stated = [record.parameters.get(name) for name in ("epsilon", "image_epsilon")]
    if (stated[0] is None) != (stated[1] is None):
        raise InputError("a record with an epsilon of a descriptor has that of the image too: this file is damaged")
    epsilon, image_epsilon = (None if value is None else float(str(value)) for value in stated)
    return epsilon, image_epsilon


def _row(record: Record) -> MappingRow:
    if not isinstance(record.value, tuple):
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


def _text(rows: Sequence[MappingRow], records: Sequence[Record]) -> str:
    """A table for each scene, with what the columns mean."""
    one = records[0]
    settings = f"{one.parameters.get('kind')}, at most {one.parameters.get('max_features')} features an image"
    parts = [
        "# Maps from private features\n",
        f"All images of a scene are sent under one scheme and matched with each other ({settings}; seed {one.seed})."
        " Matches are verified geometrically, and COLMAP's incremental mapper builds the map.\n",
        _EXPLAINED,
    ]
    for scene in dict.fromkeys(row.scene for row in rows):
        chosen = [row for row in rows if row.scene == scene]
        parts.append(f"## {scene}\n\n{markdown_table(columns_of(chosen), chosen)}")
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


def _screen(rows: Sequence[MappingRow]) -> Table:
    shown = screen_table(columns_of(rows), rows)
    if len({row.scene for row in rows}) > 1:
        shown.columns[1].justify = "right"  # the scheme, behind its scene
    return shown


_Value = Callable[[MappingRow], float | None]
_Text = Callable[[MappingRow, float], str]
_Measure = tuple[str, _Value, _Text]
_MEASURES: tuple[_Measure, ...] = (
    ("registered\nimages", lambda row: row.registered, lambda row, value: f"{value:.0f} of {row.images}"),
    ("points", lambda row: row.points, lambda _, value: f"{value:,.0f}"),
    ("track\nlength", lambda row: row.track_length if row.points else None, lambda _, value: f"{value:.1f}"),
    ("reprojection\nerror (px)", lambda row: row.error if row.points else None, lambda _, value: f"{value:.2f}"),
)
_CENTRE: _Measure = (
    "centre error\n(cm, log)",
    lambda row: None if row.centre_error is None else 100 * row.centre_error,
    lambda _, value: f"{value:.2f}" if value < 10 else f"{value:,.0f}",
)
_FAMILIES = {
    "raw": LEVELS["raw"],
    "quanti": LEVELS["quantised"],
    "subset": "#c98a1b",
    "hardened": "#7a5ba6",
    "concealer": "#3b8e8c",
}
_LIFTING = "#3b6ea8"
_FINEST = 1e-3  # cm: a logarithmic axis has no zero


def scheme_colour(scheme: str) -> str:
    """One colour for each family of schemes."""
    return next((colour for family, colour in _FAMILIES.items() if scheme.startswith(family)), _LIFTING)


def scheme_label(scheme: str, image_epsilon: float | None) -> str:
    """The name of a scheme, with its epsilon of an image in brackets where it has one."""
    return scheme if image_epsilon is None else f"{scheme} ({image_epsilon:,.0f})"


def draw(rows: Sequence[MappingRow], path: str | Path, title: str = "") -> None:
    """Write the measures of `rows` as bars to the PNG `path`; the error of the centres, which spans decades, as dots.

    Raises MissingExtraError without matplotlib.
    """
    measures = [*_MEASURES, *([_CENTRE] if any(row.centre_error is not None for row in rows) else [])]
    scenes = {name: [row for row in rows if row.scene == name] for name in dict.fromkeys(row.scene for row in rows)}
    lengths = [len(chosen) + 1 for chosen in scenes.values()]
    figure = blank_figure(7.2, 0.21 * sum(lengths) + 0.1 * len(lengths) + 1.0)
    panels = figure.subplots(len(scenes), len(measures), squeeze=False, gridspec_kw={"height_ratios": lengths})
    for line, (name, chosen) in zip(panels, scenes.items(), strict=True):
        for panel, measure in zip(line, measures, strict=True):
            _panel(panel, chosen, measure)
        labels = [name, *(scheme_label(row.scheme, row.image_epsilon) for row in chosen)]
        # The scene heads the names of its schemes as one of them, so that the layout leaves room for it.
        line[0].set_yticks(range(-1, len(chosen)), labels, fontsize=7.5)
        line[0].get_yticklabels()[0].set(fontweight="bold", fontsize=9)
    for panel, (label, *_) in zip(panels[0], measures, strict=True):
        panel.set_title(label, fontsize=8.5)
    if any(row.image_epsilon is not None for row in rows):
        figure.supxlabel("in brackets: what the epsilon of a descriptor adds up to over an image", fontsize=8)
    write_figure(figure, path, title)


def _panel(panel: "Axes", rows: Sequence[MappingRow], measure: _Measure) -> None:
    _, value_of, text_of = measure
    values = [value_of(row) for row in rows]
    known = [value for value in values if value is not None]
    dots = measure is _CENTRE
    if dots and not known:
        panel.set_axis_off()
        return
    for place, (row, value) in enumerate(zip(rows, values, strict=True)):
        text = "-" if value is None else text_of(row, value)
        if value is not None and dots:
            panel.plot(max(value, _FINEST), place, "o", color=scheme_colour(row.scheme), markersize=5)
        elif value is not None:
            panel.barh(place, value, 0.72, color=scheme_colour(row.scheme))
        at = max(min(known) if value is None else value, _FINEST) if dots else value or 0
        looks: dict[str, Any] = {"textcoords": "offset points", "va": "center", "fontsize": 7, "color": "#333333"}
        panel.annotate(text, (at, place), (5, 0), **looks)
    quiet(panel)
    panel.grid(visible=False, axis="y")
    panel.tick_params(axis="y", length=0)
    panel.set_yticks([])
    panel.set_ylim(len(rows) - 0.4, -1.4)
    panel.spines["left"].set_bounds(-0.6, len(rows) - 0.4)
    _limit(panel, known, dots)


def _limit(panel: "Axes", known: Sequence[float], dots: bool) -> None:
    """Room for the numbers at the right of the bars; few ticks, since every bar has its number."""
    if dots:
        panel.set_xscale("log")
        low, high = max(min(known), _FINEST), max(*known, _FINEST)
        panel.set_xlim(low / (high / low) ** 0.15 / 1.3, high * (high / low) ** 0.6 * 1.7)
    else:
        panel.set_xlim(0, 1.65 * max([*known, 0]) or 1)
    panel.set_xticks([])
    panel.set_xticks([], minor=True)
    panel.spines["bottom"].set_visible(False)


BENCH = Bench(
    "mapping",
    mapping,
    measure=measure,
    key=("dataset", "scheme"),
    metric="registered images, points, track length, reprojection error",
    unit="count, count, images, px",
    rows=rows_of,
    text=_text,
    screen=_screen,
    figures={CURVE: draw},
    title=lambda record: f"Maps, {record.parameters['kind']}",
    named=("pairs",),
    length=4,
    packages=("pycolmap",),
)
