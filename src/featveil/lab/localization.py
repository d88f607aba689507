"""Localization with private queries (Dusmanu et al. 2021, table 3; Pittaluga and Zhuang 2023, tables 2 and 3).

Each image of a scene is left out in turn and localized in a map of the others, which is triangulated from their true
poses. A raw map is what a service has that made it itself; a private map is matched and triangulated from private
features alone. An epsilon of one descriptor is never shown without the one that it adds up to over an image.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import inf, isfinite
from pathlib import Path
from statistics import fmean, median
from typing import TYPE_CHECKING, Any

from rich.table import Table

from featveil.audit.schemes import Scheme
from featveil.core import InputError
from featveil.core.options import argument, option
from featveil.core.records import Parameter, Record
from featveil.databases import Database
from featveil.datasets import load_map_scenes
from featveil.geometry.absolute_pose import PoseSearch, estimate_pose
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
from featveil.lab.localization_parts.localization_maps import SUPPORTED, MapsWithout, Matched, Method
from featveil.lab.mapping import both_epsilons, epsilon_cell, image_epsilon_cell, scheme_colour, scheme_label
from featveil.lab.scene_studies import RAW, SceneReleases, Settings, codebook_of, concealed, lifted, quantised, subsets
from featveil.metrics import POSE_THRESHOLDS, TIGHT_POSE_THRESHOLDS, pose_errors, shares_within
from featveil.plotting.figures import MARKERS, blank_figure, quiet, shades, write_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

THRESHOLDS = (*TIGHT_POSE_THRESHOLDS, *POSE_THRESHOLDS)  # (metres, degrees), from tight to loose
OVERALL = "all scenes"

_SHOWN = THRESHOLDS[2]  # 5 cm, 0.5 degrees: looser ones hardly tell methods apart on easy scenes
_NESTED = ((THRESHOLDS[3], 0.28), (_SHOWN, 0.5), (THRESHOLDS[0], 1.0))  # bars over each other, and how opaque
_NOTE = "Bars: at the most iterations. In brackets: what the epsilon of a descriptor adds up to over an image."
_GREY = "#555555"
_STROKES = {"vocabulary": "-", "nearest": ":"}
_Method = tuple[str, str, str]


@dataclass(frozen=True)
class Options:
    """What is localized, and by which methods."""

    scenes: tuple[Path, ...] = argument(metavar="SCENES...", help="Scenes with true cameras.")
    out: Path = out_option("records.jsonl, table.md, curve.png and the maps")
    dimensions: tuple[int, ...] = option((2, 4, 8, 16), help="Dimensions of lifted queries, raw map; or none.")
    private_maps: tuple[int, ...] = option((2, 4), help="Dimensions of lifted queries, private map; or none.")
    epsilons: tuple[float, ...] = option(
        (16.0, 14.0, 12.0, 10.0), help="Epsilons of a descriptor, for word sets; or none."
    )
    subset_size: int = option(2, help="Words sent for each descriptor.")
    codebook: Path | None = option(None, help="Codebook file.", shown="the built-in one")
    concealer: tuple[Path, ...] = concealers_option()
    iterations: tuple[int, ...] = option(
        (10_000, 100_000, 1_000_000, 10_000_000),
        help="Most iterations of RANSAC, for word sets; the others take the fewest.",
    )
    retrieved: int = option(20, help="Map images that a query is matched with, the nearest.")
    max_features: int = features_option()
    kind: str = kind_option()
    seed: int = seed_option()

    def __post_init__(self) -> None:
        refuse_none(self, "iterations")


def localization(options: Options, progress: Progress) -> Study["Located"]:
    """Localize each image in a map of the others: raw, lifted and word queries, raw and private maps.

    Stop it with Ctrl-C at any time: the same command goes on where it stopped (from OUT/records.jsonl and OUT/maps).

    Example: featveil bench localization strecha/ --out results/ --epsilons 12,10 --iterations 10000,100000
    """
    settings = Settings(options.kind, options.max_features, options.seed)
    methods = make_methods(
        options.kind,
        options.dimensions,
        options.private_maps,
        codebook_of(options.codebook, options.kind),
        options.epsilons,
        options.subset_size,
        options.iterations,
        concealed(options.concealer, options.kind),
    )
    scenes = [scene for folder in options.scenes for scene in load_map_scenes(folder)]
    releases = [SceneReleases(scene, settings) for scene in scenes]
    return study(releases, methods, settings, options.retrieved, options.out)


def make_methods(
    kind: str,
    dimensions: Sequence[int],
    private_maps: Sequence[int],
    codebook: Database,
    epsilons: Sequence[float],
    subset_size: int,
    iterations: Sequence[int],
    concealed: Sequence[Scheme] = (),
) -> list[Method]:
    """Raw; lifted queries of all `dimensions` against a raw map, of `private_maps` against private ones; words.

    Schemes of `concealed` are queries against a raw map too, whose features are concealed to be compared with them.
    Words are matched by vocabulary, with all candidates and with those that neighbours support, and by mutual nearest
    words, each with all numbers of `iterations`; the others need the fewest of these only.
    """
    fewest, every = (min(iterations),), tuple(sorted(set(iterations)))
    words = [quantised(codebook), *subsets(codebook, epsilons, [subset_size])] if epsilons else []
    return [
        *(Method(scheme, "raw", "point-to-point", fewest) for scheme in (RAW, *concealed)),
        *(Method(scheme, "raw", "point-to-subspace", fewest) for scheme in lifted(kind, dimensions)),
        *(Method(scheme, "private", "subspace-to-subspace", fewest) for scheme in lifted(kind, private_maps)),
        *(Method(scheme, "raw", rule, every) for rule in ("vocabulary", SUPPORTED, "nearest") for scheme in words),
    ]


def study(
    scenes: Sequence[SceneReleases], methods: Sequence[Method], settings: Settings, retrieved: int, out: Path
) -> Study["Located"]:
    """Every image of every scene, by every method; maps stay in `out/maps`.

    A query is matched with the `retrieved` images whose cameras are nearest. That stands in for image retrieval, which
    a service would do by global descriptors. Raises InputError for a scene without true poses.
    """
    if type(retrieved) is not int or retrieved < 1:
        raise InputError(f"retrieved must be a whole number of at least 1, got {retrieved!r}")
    for scene in (releases.scene for releases in scenes):
        if set(scene.poses) != set(scene.images) or set(scene.cameras) != set(scene.images):
            raise InputError(f"scene {scene.name} has no true cameras for all its images, which localization needs")

    def cases() -> Iterator[Case[Located]]:
        for releases in scenes:
            scene = releases.scene
            maps = MapsWithout(releases, retrieved, out / "maps" / scene.name)
            for method, query in product(methods, sorted(scene.images)):
                matched, scheme = Matched(maps, method, query), method.scheme
                stated: dict[str, Parameter] = {"query": query, "map": method.map_kind, "distance": method.distance}
                for most in method.iterations:
                    about = {**stated, "iterations": most, **scheme.parameters()}
                    yield Case(scheme.name, about, Located(matched, most), dataset=scene.name)

    return Study(cases, {**settings.shared(), "retrieved": retrieved}, settings.seed)


@dataclass(frozen=True, eq=False)
class Located:
    """A query, and the most iterations that RANSAC may take for it."""

    matched: Matched
    iterations: int


def measure(one: Located) -> Measured:
    """Rotation and centre error, nothing of a query that was not localized; and the number of inliers."""
    matched, releases, query = one.matched, one.matched.maps.releases, one.matched.query
    scene, search = releases.scene, replace(PoseSearch(), iterations=one.iterations, seed=releases.settings.seed)
    located = estimate_pose(matched.correspondences, scene.cameras[query], True, search)
    errors = () if located.pose is None else pose_errors(located.pose, scene.poses[query])
    parameters: dict[str, Parameter] = {"correspondences": located.correspondences}
    parameters |= releases.epsilons(matched.method.scheme, [query])
    return Measured(tuple(round(error, 6) for error in errors), located.inliers, parameters)


@dataclass(frozen=True)
class LocalizationRow:
    """One scheme against one kind of map, by one distance and number of RANSAC iterations, over its `queries`.

    `shares` of all queries are within each of THRESHOLDS. `rotation_error` (degrees) and `centre_error` (metres) are
    medians over all queries: one that was not localized is infinitely wrong, so they may be infinite. `inliers` is a
    median too. `image_epsilon` is what `epsilon` of a descriptor adds up to over a query, on average; None where
    nothing is guaranteed.
    """

    scene: str
    scheme: str
    map_kind: str
    distance: str
    iterations: int
    epsilon: float | None
    image_epsilon: float | None
    queries: int
    localized: int
    shares: tuple[float, ...]
    rotation_error: float
    centre_error: float
    inliers: float

    def within(self, threshold: tuple[float, float]) -> float:
        """The share within one of THRESHOLDS."""
        return self.shares[THRESHOLDS.index(threshold)]


def rows_of(records: Sequence[Record]) -> list[LocalizationRow]:
    """A row for each method on each scene, in the order of the records, raw descriptors first; then on all scenes.

    Raises InputError when a method has one query twice.
    """
    _check_queries(records)
    scenes = {name: [r for r in records if r.dataset == name] for name in dict.fromkeys(r.dataset for r in records)}
    if len(scenes) > 1:
        scenes[OVERALL] = list(records)
    rows: list[LocalizationRow] = []
    for scene, chosen in scenes.items():
        methods: dict[tuple[str, str, str, int], list[Record]] = {}
        for record in chosen:
            methods.setdefault(_method_of(record), []).append(record)
        of_scene = [_row(scene, method, members) for method, members in methods.items()]
        rows += sorted(of_scene, key=lambda row: row.scheme != "raw")
    return rows


def _check_queries(records: Sequence[Record]) -> None:
    """Every record has the errors of one query, and none is there twice."""
    seen = set()
    for record in records:
        if not isinstance(record.value, tuple) or len(record.value) not in (0, 2):
            raise InputError("a record of localization has two errors or none: this file is damaged")
        one = record.dataset, *_method_of(record), record.parameters["query"], record.seed
        if one in seen:
            raise InputError("these records have one query twice by one method: make a table of each run")
        seen.add(one)


def _method_of(record: Record) -> tuple[str, str, str, int]:
    stated = record.parameters
    return record.scheme, str(stated["map"]), str(stated["distance"]), int(str(stated["iterations"]))


def _row(scene: str, method: tuple[str, str, str, int], records: Sequence[Record]) -> LocalizationRow:
    errors = [(r.value[0], r.value[1]) for r in records if isinstance(r.value, tuple) and r.value]
    lost = [inf] * (len(records) - len(errors))
    epsilons = [both_epsilons(record) for record in records]
    images = [image_epsilon for _, image_epsilon in epsilons if image_epsilon is not None]
    return LocalizationRow(
        scene,
        *method,
        epsilon=epsilons[0][0],
        image_epsilon=fmean(images) if images else None,
        queries=len(records),
        localized=len(errors),
        shares=shares_within(errors, THRESHOLDS, len(records)),
        rotation_error=median([*(degrees for degrees, _ in errors), *lost]),
        centre_error=median([*(metres for _, metres in errors), *lost]),
        inliers=median(record.count for record in records),
    )


def threshold_label(threshold: tuple[float, float]) -> str:
    """A threshold as text, such as `5 cm, 0.5 deg`."""
    metres, degrees = threshold
    return f"{100 * metres:g} cm, {degrees:g} deg" if metres < 1 else f"{metres:g} m, {degrees:g} deg"


def _within(threshold: tuple[float, float]) -> Column[LocalizationRow]:
    label = threshold_label(threshold)
    screen = label.replace(", ", "\n") if threshold == _SHOWN else None
    return Column(label, lambda row: f"{100 * row.within(threshold):.0f}", screen=screen)


COLUMNS: tuple[Column[LocalizationRow], ...] = (
    Column("scheme", lambda row: row.scheme, left=True),
    Column("epsilon", lambda row: epsilon_cell(row.epsilon), screen=None),
    Column("epsilon an image", lambda row: image_epsilon_cell(row.image_epsilon)),
    Column("map", lambda row: row.map_kind, left=True, screen=None),
    Column("distance", lambda row: row.distance, left=True),
    Column("iterations", lambda row: f"{row.iterations:,}"),
    Column("queries", lambda row: str(row.queries)),
    Column("localized", lambda row: str(row.localized)),
    *map(_within, THRESHOLDS),
    Column(
        "rotation error (deg)",
        lambda row: f"{row.rotation_error:.3f}" if isfinite(row.rotation_error) else "-",
        screen=None,
    ),
    Column(
        "centre error (cm)",
        lambda row: f"{100 * row.centre_error:.2f}" if isfinite(row.centre_error) else "-",
        screen=None,
    ),
    Column("inliers", lambda row: f"{row.inliers:.0f}"),
)


def _screen(rows: Sequence[LocalizationRow]) -> Table:
    """The table of all scenes together."""
    shown = screen_table(COLUMNS, [row for row in rows if row.scene == rows[-1].scene])
    shown.columns[2].justify = "right"  # the distance, beside the iterations
    return shown


def _text(rows: Sequence[LocalizationRow], records: Sequence[Record]) -> str:
    """A table for each scene and one for all of them, with what the columns mean."""
    one = records[0]
    settings = f"{one.parameters.get('kind')}, at most {one.parameters.get('max_features')} features an image"
    parts = [
        "# Localization with private features\n",
        f"Each image is left out in turn and localized in a map of the others, triangulated from their true poses"
        f" ({settings}; seed {one.seed}). It is matched with the {one.parameters.get('retrieved')} of them whose"
        " cameras stand nearest, which stands in for image retrieval.\n",
        _EXPLAINED,
    ]
    for scene in dict.fromkeys(row.scene for row in rows):
        parts.append(f"## {scene.capitalize() if scene == OVERALL else scene}\n")
        parts.append(markdown_table(COLUMNS, [row for row in rows if row.scene == scene]))
    return "\n".join(parts)


_EXPLAINED = """\
- epsilon: of one descriptor; epsilon an image: what it adds up to over the features of a query, on average. Sums of
  thousands bound nothing that matters about a whole image. A dash: nothing is proved.
- map: raw, or private as the query is; distance: how features of the query and of the map are compared; iterations: the
  most that RANSAC may take.
- localized: queries for which a pose was found, right or wrong.
- a distance and an angle: percent of all queries whose camera is within both of them of the truth.
- rotation and centre error: medians over all queries. A query that was not localized counts as infinitely wrong; a
  dash: half of them or more were not. inliers: median number of matches that agree with the pose.
"""


def draw(rows: Sequence[LocalizationRow], path: str | Path, title: str = "") -> None:
    """Write the shares of every method, each at its most iterations, as bars to the PNG `path`.

    Below them, for methods that were run with several numbers of iterations, the share over these. Raises
    MissingExtraError without matplotlib.
    """
    scenes = list(dict.fromkeys(row.scene for row in rows))
    methods = sorted(dict.fromkeys(_method(row) for row in rows), key=_grouped(rows))
    groups = list(dict.fromkeys(method[1:] for method in methods))
    # A free line above each group is for its heading.
    places = {method: place + groups.index(method[1:]) + 1 for place, method in enumerate(methods)}
    curves = _curve_looks(rows)
    heights = [0.19 * (len(places) + len(groups)) + 0.5, *([2.2] if curves else [])]
    figure = blank_figure(7.2, sum(heights) + 0.75 + 0.09 * len(curves))
    looks: dict[str, Any] = {"squeeze": False, "sharey": "row", "gridspec_kw": {"height_ratios": heights}}
    panels = figure.subplots(len(heights), len(scenes), **looks)
    for column, scene in enumerate(scenes):
        chosen = [row for row in rows if row.scene == scene]
        panels[0, column].set_title(scene, fontsize=9, fontweight="bold")
        _bars(panels[0, column], chosen, places)
        if curves:
            _curves(panels[1, column], chosen, curves)
    _name_methods(panels[0, 0], rows, places)
    if curves:
        panels[1, 0].set_ylabel(f"within {threshold_label(_SHOWN)} (%)", fontsize=8)
    _legends(figure, panels[1, 0] if curves else None, title)
    write_figure(figure, path)


def _method(row: LocalizationRow) -> _Method:
    return row.scheme, row.map_kind, row.distance


def _grouped(rows: Sequence[LocalizationRow]) -> Any:
    """A sort key that brings methods of one map and distance together and keeps the order of the rows otherwise."""
    groups = list(dict.fromkeys((row.map_kind, row.distance) for row in rows))
    return lambda method: groups.index(method[1:])


def _bars(panel: "Axes", rows: Sequence[LocalizationRow], places: dict[_Method, int]) -> None:
    # Later ones replace earlier ones: what stays is the row with the most iterations.
    for method, row in {_method(row): row for row in sorted(rows, key=lambda row: row.iterations)}.items():
        for threshold, opacity in _NESTED:
            looks: dict[str, Any] = {"color": scheme_colour(row.scheme), "alpha": opacity, "linewidth": 0}
            panel.barh(places[method], 100 * row.within(threshold), 0.72, **looks)
    quiet(panel)
    panel.grid(visible=False, axis="y")
    panel.tick_params(axis="y", length=0)
    panel.set_xlim(0, 103)
    panel.set_xticks([0, 25, 50, 75, 100])
    panel.set_xlabel("queries (%)", fontsize=8)


def _name_methods(panel: "Axes", rows: Sequence[LocalizationRow], places: dict[_Method, int]) -> None:
    """Names of schemes at their bars, under a heading for each map and distance."""
    images = {_method(row): row.image_epsilon for row in rows}
    names = {place: scheme_label(method[0], images[method]) for method, place in places.items()}
    headings: dict[int, str] = {}
    for (_, map_kind, distance), place in places.items():
        if place - 1 not in names:
            headings[place - 1] = f"{distance}, {map_kind} map"
    shown = headings | names
    panel.set_yticks(list(shown), list(shown.values()), fontsize=7.5)
    for label in panel.get_yticklabels()[: len(headings)]:
        label.set_fontweight("bold")
    panel.set_ylim(max(names) + 0.6, -0.6)


def _curve_looks(rows: Sequence[LocalizationRow]) -> dict[_Method, dict[str, Any]]:
    """Colour, marker and label of each method that was run with several numbers of iterations."""
    images = {_method(row): row.image_epsilon for row in rows}
    tried = {method: {row.iterations for row in rows if _method(row) == method} for method in images}
    several = [method for method, rows in tried.items() if len(rows) > 1]
    schemes = list(dict.fromkeys(scheme for scheme, *_ in several))
    colours = shades(len(schemes))
    return {
        method: {
            "color": colours[schemes.index(method[0])],
            "marker": MARKERS[schemes.index(method[0]) % len(MARKERS)],
            "linestyle": _STROKES.get(method[2], "--"),
            "label": f"{scheme_label(method[0], images[method])}, {method[2]}",
        }
        for method in several
    }


def _curves(panel: "Axes", rows: Sequence[LocalizationRow], curves: dict[_Method, dict[str, Any]]) -> None:
    for method, looks in curves.items():
        chosen = sorted((row.iterations, 100 * row.within(_SHOWN)) for row in rows if _method(row) == method)
        if chosen:
            panel.plot(*zip(*chosen, strict=True), linewidth=1.5, markersize=4, **looks)
    quiet(panel)
    panel.set_xscale("log")
    panel.set_ylim(-3, 103)
    panel.set_xlabel("RANSAC iterations", fontsize=8)


def _legends(figure: "Figure", curves: "Axes | None", title: str) -> None:
    """What the shades of the bars mean, above them under the title; what the curves and the brackets mean, below."""
    from matplotlib.patches import Patch

    nested = [Patch(color=_GREY, alpha=opacity, linewidth=0) for _, opacity in _NESTED]
    labels = [f"within {threshold_label(threshold)}" for threshold, _ in _NESTED]
    looks: dict[str, Any] = {"frameon": False, "fontsize": 8, "title_fontsize": 11}
    figure.legend(nested, labels, loc="outside upper center", ncols=3, title=title or None, **looks)
    handles, names = ([], []) if curves is None else curves.get_legend_handles_labels()
    looks |= {"title_fontsize": 8}
    figure.legend(handles, names, loc="outside lower center", ncols=2, title=_NOTE, **looks)


BENCH = Bench(
    "localization",
    localization,
    measure=measure,
    key=("dataset", "scheme", "map", "distance", "iterations", "query"),
    metric="rotation and centre error",
    unit="degrees, metres",
    rows=rows_of,
    text=_text,
    screen=_screen,
    figures={CURVE: draw},
    title=lambda record: f"Localization, {record.parameters['kind']}",
    named=("query", "map", "distance", "iterations"),
    packages=("pycolmap",),
)
