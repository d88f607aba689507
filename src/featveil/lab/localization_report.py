"""Records of localized queries -> rows of shares and medians, and the tables in Markdown: each scene and all together.

An epsilon of one descriptor is never shown without the one that it adds up to over an image.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf, isfinite
from statistics import fmean, median

from featveil.core import InputError
from featveil.core.records import Record
from featveil.lab.mapping import both_epsilons
from featveil.metrics import POSE_THRESHOLDS, TIGHT_POSE_THRESHOLDS, shares_within

LOCALIZED = "rotation and centre error"
THRESHOLDS = (*TIGHT_POSE_THRESHOLDS, *POSE_THRESHOLDS)  # (metres, degrees), from tight to loose
OVERALL = "all scenes"
_NAMED = ("query", "map", "distance", "iterations")
_Method = tuple[str, str, str, int]


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


def summarize_localization(records: Sequence[Record]) -> list[LocalizationRow]:
    """A row for each method on each scene, in the order of the records, raw descriptors first; then on all scenes.

    Raises InputError when a record is not one of localization, or when a method has one query twice.
    """
    _check_queries(records)
    scenes = {name: [r for r in records if r.dataset == name] for name in dict.fromkeys(r.dataset for r in records)}
    if len(scenes) > 1:
        scenes[OVERALL] = list(records)
    rows: list[LocalizationRow] = []
    for scene, chosen in scenes.items():
        methods: dict[_Method, list[Record]] = {}
        for record in chosen:
            methods.setdefault(_method(record), []).append(record)
        found = [_row(scene, method, members) for method, members in methods.items()]
        rows += sorted(found, key=lambda row: row.scheme != "raw")
    return rows


def localization_cells(rows: Sequence[LocalizationRow]) -> tuple[list[str], list[tuple[str, ...]]]:
    """Headings, and the cells of each row as text, shares in percent; scenes are named where there are several."""
    many = len({row.scene for row in rows}) > 1
    headings = ["scheme", "epsilon", "epsilon an image", "map", "distance", "iterations", "queries", "localized"]
    headings += [threshold_label(threshold) for threshold in THRESHOLDS]
    headings += ["rotation error (deg)", "centre error (cm)", "inliers"]
    return ["scene", *headings] if many else headings, [((row.scene,) if many else ()) + _cells(row) for row in rows]


def localization_markdown(records: Sequence[Record]) -> str:
    """A table for each scene and one for all of them, with what the columns mean."""
    if not records:
        raise InputError("there is no record to make a table of")
    rows, one = summarize_localization(records), records[0]
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
        parts.append(_markdown([row for row in rows if row.scene == scene]))
    return "\n".join(parts)


def threshold_label(threshold: tuple[float, float]) -> str:
    """A threshold as text, such as `5 cm, 0.5 deg`."""
    metres, degrees = threshold
    return f"{100 * metres:g} cm, {degrees:g} deg" if metres < 1 else f"{metres:g} m, {degrees:g} deg"


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


def _markdown(rows: Sequence[LocalizationRow]) -> str:
    headings, cells = localization_cells(rows)
    rule = ["---" if heading in ("scheme", "map", "distance") else "---:" for heading in headings]
    return "".join(f"| {' | '.join(line)} |\n" for line in (headings, rule, *cells))


def _cells(row: LocalizationRow) -> tuple[str, ...]:
    return (
        row.scheme,
        "-" if row.epsilon is None else f"{row.epsilon:g}",
        "-" if row.image_epsilon is None else f"{row.image_epsilon:,.0f}",
        row.map_kind,
        row.distance,
        f"{row.iterations:,}",
        str(row.queries),
        str(row.localized),
        *(f"{100 * share:.0f}" for share in row.shares),
        f"{row.rotation_error:.3f}" if isfinite(row.rotation_error) else "-",
        f"{100 * row.centre_error:.2f}" if isfinite(row.centre_error) else "-",
        f"{row.inliers:.0f}",
    )


def _check_queries(records: Sequence[Record]) -> None:
    """Every record is of localization, and none is there twice."""
    seen = set()
    for record in records:
        whole = all(name in record.parameters for name in _NAMED) and isinstance(record.value, tuple)
        if record.task != "localization" or record.metric != LOCALIZED or not whole:
            raise InputError(f"a record of task {record.task} is not one of localization: leave it out")
        if len(record.value) not in (0, 2):  # type: ignore[arg-type]
            raise InputError("a record of localization has two errors or none: this file is damaged")
        one = record.dataset, *_method(record), record.parameters["query"], record.seed
        if one in seen:
            raise InputError("these records have one query twice by one method: make a table of each run")
        seen.add(one)


def _method(record: Record) -> _Method:
    found = record.parameters
    return record.scheme, str(found["map"]), str(found["distance"]), int(str(found["iterations"]))


def _row(scene: str, method: _Method, records: Sequence[Record]) -> LocalizationRow:
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
