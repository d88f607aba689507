"""Records of gated queries -> rows, tables and a figure."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import chain
from pathlib import Path
from statistics import fmean, median
from typing import TYPE_CHECKING, Any

from rich.console import Group, RenderableType
from rich.text import Text

from featveil.core import InputError
from featveil.core.records import Record
from featveil.lab.bench import Column, heading, markdown_table, screen_table
from featveil.lab.gate_parts.gate_subjects import (
    LEAKED,
    LEAKED_METRIC,
    MEASURED,
    METRIC,
    PASSED,
    PASSED_METRIC,
)
from featveil.metrics import TIGHT_POSE_THRESHOLDS
from featveil.metrics.leakage import CLOSE, NEAR
from featveil.plotting.figures import blank_figure, quiet, write_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes

RAW, GATE = "raw", "gate"
_METRES, _DEGREES = TIGHT_POSE_THRESHOLDS[2]
_LABELLED = ("raw", "sub-hybrid", "hardened", "subset", "gate")
_COLOURS = {"raw": "#c0392b", "gate": "#1b8a5a", "subset": "#7d3c98", "hardened": "#b9770e", "sub-hybrid": "#2e5fa3"}
_LINES = {"inliers": "#1b8a5a", "private": "#c0392b", "elsewhere": "#7f8c8d"}

Values = Mapping[str, float]


@dataclass(frozen=True)
class PlacedRow:
    """One scheme over the `queries` of a scene: medians, but for `of_raw`, which is of all inliers.

    `sent` is a share of the features, `within` of the queries. `rotation` (degrees) and `centre` (metres) are of
    localized queries, None without any. `device` and `server` are milliseconds of processor time.
    """

    scene: str
    scheme: str
    tau: float | None
    image_epsilon: float | None
    queries: int
    sent: float
    inliers: float
    of_raw: float | None
    within: float
    rotation: float | None
    centre: float | None
    size: float
    device: float
    server: float


@dataclass(frozen=True)
class LeakedRow:
    """One scheme over the queries of a scene with content at a `share` of the picture.

    Of `refused` queries nothing was sent. `private` features and the shares of them are of the others, and `worst` is
    the largest share of one query that was recovered as `near`. `of_raw` is of the inliers that raw queries have with
    the same content, None where that was not measured; it and `within` count refused queries too.
    """

    scene: str
    scheme: str
    share: float
    queries: int
    refused: int
    private: int
    sent: float
    near: float
    worst: float
    close: float
    mapped: float
    hole: float | None
    of_raw: float | None
    within: float


@dataclass(frozen=True)
class PassedRow:
    """One gate and photographs from elsewhere: the `mean` share of features that passes, and the largest.

    `taken`: the share of the photographs of which anything would be sent.
    """

    scene: str
    scheme: str
    photographs: int
    mean: float
    most: float
    taken: float


@dataclass(frozen=True)
class GateRows:
    """All tables."""

    placed: Sequence[PlacedRow]
    leaked: Sequence[LeakedRow]
    passed: Sequence[PassedRow]


def rows_of(records: Sequence[Record]) -> GateRows:
    """Rows scene by scene, in the order of the records; raises InputError for damaged ones, and for one twice."""
    _check(records)
    plain = _grouped([record for record in records if record.metric == METRIC])
    pasted = _grouped([record for record in records if record.metric == LEAKED_METRIC], by_share=True)
    passed = [record for record in records if record.metric == PASSED_METRIC]
    raw = {_subject(one): _values(one)["inliers"] for one in records if one.scheme == RAW}
    return GateRows(
        [_placed(group, raw) for group in plain],
        [_leaked(group, raw) for group in pasted],
        [PassedRow(one.dataset, one.scheme, one.count, **_values(one)) for one in passed],
    )


def _check(records: Sequence[Record]) -> None:
    seen = set()
    for record in records:
        if record.metric not in _NAMES or not isinstance(record.value, tuple):
            raise InputError("a record of the gate has another metric: this file is of another bench")
        if len(record.value) != len(_NAMES[record.metric]):
            raise InputError("a record of the gate lacks some of its values: this file is damaged")
        one = record.scheme, record.seed, *_subject(record)
        if one in seen:
            raise InputError("these records have one query twice under one scheme: make a table of each run")
        seen.add(one)


_NAMES = {METRIC: MEASURED, LEAKED_METRIC: LEAKED, PASSED_METRIC: PASSED}


def _values(record: Record) -> dict[str, float]:
    assert isinstance(record.value, tuple)
    names = _NAMES[record.metric]
    return {name.replace(" ", "_"): value for name, value in zip(names, record.value, strict=True)}


def _subject(record: Record) -> tuple[str, ...]:
    """Scene, query and content."""
    return record.dataset, *(str(record.parameters[name]) for name in ("query", "content", "share"))


def _grouped(records: Sequence[Record], by_share: bool = False) -> list[list[Record]]:
    groups: dict[tuple[object, ...], list[Record]] = {}
    scenes = list(dict.fromkeys(record.dataset for record in records))
    for record in sorted(records, key=lambda one: scenes.index(one.dataset)):
        key = record.dataset, record.scheme, record.parameters["share"] if by_share else 0
        groups.setdefault(key, []).append(record)
    return list(groups.values())


def _placed(records: Sequence[Record], raw: Mapping[tuple[str, ...], float]) -> PlacedRow:
    values = [_values(record) for record in records]
    located = [one for one in values if one["localized"]]
    return PlacedRow(
        scene=records[0].dataset,
        scheme=records[0].scheme,
        tau=_median_parameter(records, "tau"),
        image_epsilon=_median_parameter(records, "image_epsilon"),
        queries=len(records),
        sent=median(one["sent"] for one in values),
        inliers=median(one["inliers"] for one in values),
        of_raw=_of_raw(records, raw),
        within=_within(values),
        rotation=median(one["rotation"] for one in located) if located else None,
        centre=median(one["centre"] for one in located) if located else None,
        size=median(one["bytes"] for one in values),
        device=median(one["device"] for one in values),
        server=median(one["server"] for one in values),
    )


def _leaked(records: Sequence[Record], raw: Mapping[tuple[str, ...], float]) -> LeakedRow:
    # What is refused hides all of its content, which says nothing of the gate: it would flatter the shares.
    answered = [record for record in records if _values(record)["private_sent"] or _values(record)["mapped_sent"]]
    values = [_values(record) for record in answered]
    private, mapped = ([_counted(record, name) for record in answered] for name in ("private", "mapped"))
    holes = [_values(record)["hole"] for record in records]
    return LeakedRow(
        scene=records[0].dataset,
        scheme=records[0].scheme,
        share=float(str(records[0].parameters["share"])),
        queries=len(records),
        refused=len(records) - len(answered),
        private=round(sum(private)),
        sent=_weighed([one["private_sent"] for one in values], private),
        near=_weighed([one["private_near"] for one in values], private),
        worst=max((one["private_near"] for one in values), default=0.0),
        close=_weighed([one["private_close"] for one in values], private),
        mapped=_weighed([one["mapped_sent"] for one in values], mapped),
        hole=fmean(holes) if records[0].scheme.startswith(GATE) else None,
        of_raw=_of_raw(records, raw),
        within=_within([_values(record) for record in records]),
    )


def _of_raw(records: Sequence[Record], raw: Mapping[tuple[str, ...], float]) -> float | None:
    """Inliers over those of raw queries, of the queries that have both."""
    both = [(_values(record)["inliers"], raw[_subject(record)]) for record in records if _subject(record) in raw]
    whole = sum(other for _, other in both)
    return sum(own for own, _ in both) / whole if len(both) == len(records) and whole else None


def _within(values: Sequence[Values]) -> float:
    return fmean(
        float(one["localized"] > 0 and one["rotation"] <= _DEGREES and one["centre"] <= _METRES) for one in values
    )


def _median_parameter(records: Sequence[Record], name: str) -> float | None:
    stated = [float(str(value)) for record in records if (value := record.parameters.get(name)) is not None]
    return median(stated) if stated else None


def _counted(record: Record, name: str) -> float:
    count = record.parameters.get(name)
    if not isinstance(count, int | float):
        raise InputError(f"a record of private content states how many features are {name}: this file is damaged")
    return float(count)


def _weighed(shares: Sequence[float], counts: Sequence[float]) -> float:
    return sum(share * count for share, count in zip(shares, counts, strict=True)) / max(sum(counts), 1)


def _percent(share: float | None, digits: int = 1) -> str:
    return "-" if share is None else f"{100 * share:.{digits}f}"


def _or_dash(value: float | None, text: Callable[[float], str]) -> str:
    return "-" if value is None else text(value)


PLACED: tuple[Column[PlacedRow], ...] = (
    Column("scheme", lambda row: row.scheme, left=True),
    Column("tau", lambda row: _or_dash(row.tau, lambda tau: f"{tau:.3g}"), screen=None),
    Column("epsilon an image", lambda row: _or_dash(row.image_epsilon, lambda value: f"{value:,.0f}"), screen=None),
    Column("queries", lambda row: str(row.queries), screen=None),
    Column("sent", lambda row: _percent(row.sent, 0)),
    Column("inliers", lambda row: f"{row.inliers:.0f}"),
    Column("of raw", lambda row: _percent(row.of_raw, 0)),
    Column("within", lambda row: _percent(row.within, 0)),
    Column("rotation (deg)", lambda row: _or_dash(row.rotation, lambda value: f"{value:.3f}"), screen=None),
    Column("centre (cm)", lambda row: _or_dash(row.centre, lambda value: f"{100 * value:.2f}")),
    Column("kB", lambda row: f"{row.size / 1000:,.1f}"),
    Column("device (ms)", lambda row: f"{row.device:,.0f}", screen=None),
    Column("server (ms)", lambda row: f"{row.server:,.0f}", screen=None),
)

LEAKED_COLUMNS: tuple[Column[LeakedRow], ...] = (
    Column("scheme", lambda row: row.scheme, left=True),
    Column("content", lambda row: f"{_percent(row.share, 0)} %"),
    Column("refused", lambda row: f"{row.refused} of {row.queries}", screen=None),
    Column("private", lambda row: f"{row.private:,}"),
    Column("sent", lambda row: _percent(row.sent)),
    Column(f"<{NEAR:g}", lambda row: _percent(row.near)),
    Column("worst", lambda row: _percent(row.worst)),
    Column(f"<{CLOSE:g}", lambda row: _percent(row.close)),
    Column("mapped sent", lambda row: _percent(row.mapped, 0), screen="mapped"),
    Column("hole", lambda row: _percent(row.hole, 0)),
    Column("of raw", lambda row: _percent(row.of_raw, 0)),
    Column("within", lambda row: _percent(row.within, 0)),
)

PASSED_COLUMNS: tuple[Column[PassedRow], ...] = (
    Column("scheme", lambda row: row.scheme, left=True),
    Column("photographs", lambda row: str(row.photographs)),
    Column("pass", lambda row: _percent(row.mean, 2)),
    Column("most", lambda row: _percent(row.most)),
    Column("taken", lambda row: _percent(row.taken, 0)),
)

_EXPLAINED = f"""\
- sent: percent of the features of a query, median. inliers: median; of raw: all inliers as a percent of those of raw
  queries.
- within: percent of queries whose camera is within {100 * _METRES:g} cm and {_DEGREES:g} degrees of the truth. rotation
  and centre: medians over localized queries.
- kB: of a release as a file, raw ones with positions only. device: processor time to hide a query, without finding its
  features. server: processor time to match and to place it; its map is in memory.
- tau: as calibrated, unless the scheme names one. epsilon an image: what the epsilon of a descriptor adds up to over a
  query. A dash: nothing of that kind is proved.
"""

_LEAKED_EXPLAINED = f"""\
Content that the map has never seen is pasted into each query, another one each time; content is its share of the
picture. refused: queries that the gate takes for no place of the map, so that nothing is sent; the shares of features
are of the others. private: features of the content; what straddles its border counts on neither side. sent: percent of
them. <{NEAR:g} and <{CLOSE:g}: percent of
them that are sent and that an attack brings nearer than that to the descriptor; worst: of the query with most below
{NEAR:g}. The attack reads raw ones and the map's own
descriptors of a gate's points; vertex is on lifting, overlap on hardened lifting, posterior on words. mapped sent:
percent of the other features. hole: how well the hole that a gated release shows covers the content, as intersection
over union. of raw: inliers as a percent of those of raw queries with the same content; refused queries have none.
"""

_PASSED_EXPLAINED = """\
Photographs that show other places. pass: percent of their features that pass, on average; most: of the photograph of
which most do. taken: percent of the photographs that pass for the place, so that something is sent; of the others
nothing is.
"""


def gate_text(rows: GateRows, records: Sequence[Record]) -> str:
    """The tables of each scene."""
    one = records[0]
    settings = f"{one.parameters.get('kind')}, at most {one.parameters.get('max_features')} features an image"
    parts = [
        "# The gate\n",
        f"Each image is left out in turn and localized in a map of the others, triangulated from their true poses"
        f" ({settings}; seed {one.seed}). Other queries than gated ones are matched with the"
        f" {one.parameters.get('retrieved')} images whose cameras stand nearest, gated ones with none: they name points"
        " of the whole map. A usual gate has a sketch of 16 bytes an entry, its calibrated tau and contrast, and names"
        " up to three points for a feature; the name of a scheme says what differs.\n",
        _EXPLAINED,
    ]
    for scene in _scenes(rows):
        parts.append(f"## {scene}\n")
        parts.append(markdown_table(PLACED, [row for row in rows.placed if row.scene == scene]))
        if leaked := [row for row in rows.leaked if row.scene == scene]:
            parts.append(f"### {scene}: private content\n\n{_LEAKED_EXPLAINED}")
            parts.append(markdown_table(LEAKED_COLUMNS, leaked))
        if passed := [row for row in rows.passed if row.scene == scene]:
            parts.append(f"### {scene}: photographs from elsewhere\n\n{_PASSED_EXPLAINED}")
            parts.append(markdown_table(PASSED_COLUMNS, passed))
    return "\n".join(parts)


def screen(rows: GateRows) -> RenderableType:
    """The tables of each scene, without what explains them."""
    parts: list[RenderableType] = []
    for scene in _scenes(rows):
        parts += [heading(scene), screen_table(PLACED, [row for row in rows.placed if row.scene == scene])]
        if leaked := [row for row in rows.leaked if row.scene == scene]:
            parts += [Text(), heading("private content"), screen_table(LEAKED_COLUMNS, leaked)]
        if passed := [row for row in rows.passed if row.scene == scene]:
            parts += [Text(), heading("photographs from elsewhere"), screen_table(PASSED_COLUMNS, passed)]
    return Group(*parts)


def _scenes(rows: GateRows) -> list[str]:
    every = [row.scene for row in rows.placed], [row.scene for row in rows.leaked], [row.scene for row in rows.passed]
    return list(dict.fromkeys(chain(*every)))


def facts_of_rows(rows: GateRows) -> dict[str, Any]:
    """For --json."""
    return asdict(rows)


def draw(rows: GateRows, path: str | Path, title: str = "") -> None:
    """Write two panels a scene to the PNG `path`: schemes by inliers over private features, and what tau does.

    Raises MissingExtraError without matplotlib.
    """
    scenes = list(dict.fromkeys(row.scene for row in rows.placed))
    figure = blank_figure(8.4, 3.4 * max(len(scenes), 1) + 0.4)
    panels = figure.subplots(max(len(scenes), 1), 2, squeeze=False)
    for line, scene in zip(panels, scenes, strict=False):
        _frontier(line[0], rows, scene)
        _taus(line[1], rows, scene)
    write_figure(figure, path, title)


def _frontier(panel: "Axes", rows: GateRows, scene: str) -> None:
    own = [row for row in rows.leaked if row.scene == scene]
    usual = max((row.share for row in own), key=[row.share for row in own].count, default=None)
    kept = {row.scheme: row.of_raw for row in rows.placed if row.scene == scene}
    labels: dict[tuple[int, int], list[str]] = {}
    for row in own:
        if row.share != usual or (inliers := kept.get(row.scheme)) is None:
            continue
        family = next((name for name in _LABELLED if row.scheme.startswith(name)), "")
        at, star = (100 * row.near, 100 * inliers), row.scheme == GATE
        looks: dict[str, Any] = {"color": _COLOURS.get(family, "#555555"), "s": 90 if star else 26, "zorder": 3}
        panel.scatter(*at, marker="*" if star else "o", alpha=1 if star else 0.6, **looks)
        if not row.scheme.startswith(f"{GATE}-"):
            labels.setdefault((round(at[0] / 6), round(at[1] / 6)), []).append(row.scheme)
    for (across, up), names in labels.items():  # schemes that lie on each other share one
        left = across > 10
        panel.annotate(
            "\n".join(names),
            (6 * across, 6 * up),
            textcoords="offset points",
            xytext=(-9 if left else 9, 0),
            ha="right" if left else "left",
            va="center",
            fontsize=7.5,
        )
    quiet(panel)
    panel.set_xlim(-3, 104)
    panel.set_ylim(0, 108)
    panel.set_title(scene, fontsize=9, fontweight="bold", loc="left")
    content = "" if usual is None else f" of content over {100 * usual:g} %"
    panel.set_xlabel(f"private features{content} recovered (%, nearer than {NEAR:g})", fontsize=8)
    panel.set_ylabel("inliers (% of raw)", fontsize=8)


def _taus(panel: "Axes", rows: GateRows, scene: str) -> None:
    """Gates that name a tau; the calibrated one as a dashed line."""
    prefix = f"{GATE}-tau-"
    placed = {row.scheme: row for row in rows.placed if row.scene == scene}
    taus = {scheme: row.tau for scheme, row in placed.items() if scheme.startswith(prefix) and row.tau is not None}
    curves: dict[str, dict[float, float]] = {"inliers": {}, "private": {}, "elsewhere": {}}
    for scheme, tau in taus.items():
        own = [row for row in rows.leaked if row.scene == scene and row.scheme == scheme]
        other = [row.mean for row in rows.passed if row.scene == scene and row.scheme == scheme]
        if (kept := placed[scheme].of_raw) is not None:
            curves["inliers"][tau] = kept
        if own:
            curves["private"][tau] = _weighed([row.sent for row in own], [row.private for row in own])
        if other:
            curves["elsewhere"][tau] = other[0]
    labels = {
        "inliers": "inliers (% of raw)",
        "private": "private features sent (%)",
        "elsewhere": "features from elsewhere that pass (%)",
    }
    for name, curve in curves.items():
        if curve:
            there = sorted(curve.items())
            shown = [tau for tau, _ in there], [100 * share for _, share in there]
            panel.plot(*shown, color=_LINES[name], marker="o", markersize=3.5, linewidth=1.5, label=labels[name])
    if GATE in placed and (usual := placed[GATE].tau) is not None:
        panel.axvline(usual, color="#555555", linestyle="--", linewidth=0.9, label="calibrated tau (median)")
    quiet(panel)
    panel.set_ylim(-3, 108)
    panel.set_xlabel("tau", fontsize=8)
    if any(curves.values()):
        panel.legend(fontsize=7.5, frameon=False, loc="center right")
