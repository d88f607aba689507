"""Records of the subset and the metric mechanism at equal success of an attacker -> rows, a table and a figure.

A row is one release under both matching rules. Utility is a mean over image pairs, leakage one over descriptors."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

from featveil.core import InputError
from featveil.core.records import Record
from featveil.plotting.figures import LEVELS, blank_figure, quiet, shades, write_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MATCHED = ("candidates", "right candidates", "inliers", "right inliers", "corner error", "correct")
_LEAKED = ("contains", "guess distance", "nearest distance")
_MEASURED = (*_MATCHED, *_LEAKED)
_NAMED = ("mechanism", "epsilon", "success", "rule", "features")
_RULES = ("vocabulary", "nearest")
_ORDER = ("raw", "quantised", "subset", "metric", "chance")
_MARKERS = {"subset": "o", "metric": "^"}


@dataclass(frozen=True)
class TradeoffRow:
    """One mechanism with `subset_size` words at one expected attacker's `success`.

    `epsilon` is that of a descriptor (of the metric mechanism per unit of distance), `image_epsilon` that of an image
    with the mean number of `features`; None where nothing is guaranteed. Distances are from the true descriptor, at
    norm 1. Right inliers and the share of correct pairs are None for a rule that was not run.
    """

    mechanism: str
    subset_size: int | None
    success: float
    epsilon: float | None
    image_epsilon: float | None
    features: float
    contains: float
    guess_distance: float
    nearest_distance: float
    right_inliers_vocabulary: float | None
    right_inliers_nearest: float | None
    correct_vocabulary: float | None
    correct_nearest: float | None
    pairs: int

    @property
    def right_inliers(self) -> float:
        """By the better of the two rules."""
        return max(self.right_inliers_vocabulary or 0.0, self.right_inliers_nearest or 0.0)


def summarize_tradeoff(records: Sequence[Record]) -> list[TradeoffRow]:
    """One row for each scheme: raw, quantised, then by subset size and falling success, the two mechanisms together.

    Raises InputError when a record is of something else, or of another codebook than the others.
    """
    groups: dict[str, list[Record]] = {}
    for record in records:
        _check(record)
        groups.setdefault(record.scheme, []).append(record)
    if len({record.parameters["codebook"] for record in records if "codebook" in record.parameters}) > 1:
        raise InputError("these records are of two codebooks: make a table of each")
    return sorted((_row(members) for members in groups.values()), key=_place)


def tradeoff_cells(rows: Sequence[TradeoffRow]) -> tuple[list[str], list[tuple[str, ...]]]:
    """Headings, and the cells of each row as text."""
    headings = ["k", "success", "sent", "epsilon", "epsilon an image", "contains", "guess distance", "nearest distance"]
    headings += [f"right inliers, {rule}" for rule in _RULES] + [f"correct %, {rule}" for rule in _RULES]
    return [*headings, "pairs"], [_cells(row) for row in rows]


def tradeoff_markdown(records: Sequence[Record]) -> str:
    """The table, with what its columns mean."""
    if not records:
        raise InputError("there is no record to make a table of")
    rows, one = summarize_tradeoff(records), records[0]
    found = one.parameters
    book = next((record.parameters for record in records if "codebook" in record.parameters), None)
    codebook = f"Codebook of {book['codebook_size']:,} words, digest {book['codebook']}. " if book else ""
    headings, cells = tradeoff_cells(rows)
    rule = ["---" if heading == "sent" else "---:" for heading in headings]
    lines = "".join(f"| {' | '.join(line)} |\n" for line in (headings, rule, *cells))
    return (
        f"# Subset and metric mechanism on {one.dataset}\n\n"
        f"Image 1 of each scene is raw, the other is private ({found.get('kind')}, at most {found.get('max_features')}"
        f" features an image, {rows[0].features:.0f} on average; seed {one.seed}). {codebook}The homography between"
        f" them is found with at most {found.get('iterations'):,} iterations at {found.get('pixels'):g} px.\n\n"
        f"{_EXPLAINED}\n{lines}"
    )


_EXPLAINED = """\
- success: how often an attacker who picks one of the k words at random names the nearest word of the descriptor. It is
  expected, and the metric epsilon was chosen to make it equal. contains: the share of sets that hold that word.
- Equal success in naming the word is not equal leakage: where the metric mechanism misses the word, it sends one that
  looks like it. Look at guess distance, from the attacker's guess to the true descriptor (0: known exactly; chance: no
  knowledge). It is a mean: the subset mechanism gives away some words exactly and nothing of the others, the metric one
  a little of all. nearest distance is that of an attacker who is told which of the k words is nearest.
- epsilon: of one descriptor, and what it adds up to over the private features of an image; sums of thousands bound
  nothing that matters about a whole image. That of the metric mechanism is per unit of distance between descriptors at
  norm 1, so the two are not to be compared.
- right inliers: private features that agree with the homography and lie within 5 px of the truth, by matching rule;
  correct %: pairs whose homography puts the corners of image 1 within 5 px of the truth on average.
"""


def draw_tradeoff(rows: Sequence[TradeoffRow], path: str | Path, title: str = "") -> None:
    """Write right inliers (by the better rule) over guess distance as a PNG to `path`.

    Raises MissingExtraError without matplotlib, InputError when there is nothing to draw.
    """
    if not rows:
        raise InputError("there is no result to draw")
    figure = blank_figure(7.4, 4.6)
    panel = figure.subplots()
    for row in rows:
        if row.mechanism in LEVELS:
            looks: dict[str, Any] = {"linestyle": "--", "linewidth": 1.3, "zorder": 1}
            panel.axhline(row.right_inliers, color=LEVELS[row.mechanism], label=row.mechanism, **looks)
    for k, colour in _colours(rows).items():
        _curves(panel, [row for row in rows if row.subset_size == k], colour)
    if chance := [row for row in rows if row.mechanism == "chance"]:
        # Not cut off where they lie on the axis.
        panel.plot(*_points(chance), "x", color="black", markersize=8, label="chance", zorder=5, clip_on=False)
    panel.set_ylim(bottom=0)
    panel.margins(x=0.08)
    panel.set_xlabel("distance of the attacker's guess from the truth (higher hides more)", fontsize=9)
    panel.set_ylabel("right inliers a pair (better rule)", fontsize=9)
    quiet(panel)
    names = {"title": "numbers at points:\nattacker's success", "title_fontsize": 8, "fontsize": 9}
    figure.legend(loc="outside right center", frameon=False, **names)
    write_figure(figure, path, title)


def _colours(rows: Sequence[TradeoffRow]) -> dict[int, Any]:
    sizes = sorted({row.subset_size for row in rows if row.subset_size is not None})
    return dict(zip(sizes, shades(len(sizes), 0.72, 0.05), strict=True))


def _curves(panel: "Axes", rows: Sequence[TradeoffRow], colour: Any) -> None:
    """Both mechanisms with one number of words, each point named by the success that it was compared at."""
    for mechanism, marker in _MARKERS.items():
        chosen = [row for row in rows if row.mechanism == mechanism]
        if chosen:
            label = f"{mechanism}, k = {chosen[0].subset_size}"
            panel.plot(*_points(chosen), color=colour, marker=marker, markersize=6, label=label)
        # Curves fall: what is left below or right above a point is free.
        side, shift = ("right", (-6, -4)) if mechanism == "metric" else ("left", (5, 5))
        looks: dict[str, Any] = {"textcoords": "offset points", "fontsize": 7, "color": "#444444", "ha": side}
        for row in chosen:
            panel.annotate(f"{row.success:.2g}", (row.guess_distance, row.right_inliers), shift, **looks)


def _points(rows: Sequence[TradeoffRow]) -> tuple[list[float], list[float]]:
    return [row.guess_distance for row in rows], [row.right_inliers for row in rows]


def _place(row: TradeoffRow) -> tuple[bool, int, float, int]:
    order = _ORDER.index(row.mechanism)
    return order > 1, row.subset_size or 0, -row.success, order


def _cells(row: TradeoffRow) -> tuple[str, ...]:
    unit = " per unit" if row.mechanism == "metric" else ""
    return (
        "" if row.subset_size is None else str(row.subset_size),
        _share(row.success),
        row.mechanism,
        "inf" if row.epsilon is None else f"{row.epsilon:.4g}{unit}",
        "inf" if row.image_epsilon is None else f"{_thousands(row.image_epsilon)}{unit}",
        _share(row.contains),
        f"{row.guess_distance:.3f}",
        f"{row.nearest_distance:.3f}",
        *(
            "-" if value is None else f"{value:.0f}"
            for value in (row.right_inliers_vocabulary, row.right_inliers_nearest)
        ),
        *("-" if value is None else f"{100 * value:.0f}" for value in (row.correct_vocabulary, row.correct_nearest)),
        str(row.pairs),
    )


def _share(value: float) -> str:
    return f"{value:.3f}" if value >= 0.001 or value == 0 else f"{value:.0e}"


def _thousands(epsilon: float) -> str:
    return f"{epsilon:,.0f}" if epsilon >= 1 else f"{epsilon:.0e}"


def _check(record: Record) -> None:
    whole = all(name in record.parameters for name in _NAMED) and record.parameters["mechanism"] in _ORDER
    if record.task != "tradeoff" or not whole or record.metric != ", ".join(_MEASURED):
        raise InputError(f"a record of task {record.task} is not one of this comparison: leave it out")
    counts = record.parameters["features"]
    fits = isinstance(record.value, tuple) and len(record.value) == len(_MEASURED)
    if not fits or not isinstance(counts, list) or len(counts) != 2:
        raise InputError(f"a record of this comparison lacks some of its {len(_MEASURED)} values: the file is damaged")


def _row(records: Sequence[Record]) -> TradeoffRow:
    found = records[0].parameters
    features = [float(counts[1]) for record in records if isinstance(counts := record.parameters["features"], list)]
    values = [dict(zip(_MEASURED, r.value, strict=True)) for r in records if isinstance(r.value, tuple)]
    rules = [str(record.parameters["rule"]) for record in records]
    epsilon, k = found["epsilon"], found.get("subset_size")

    def by_rule(rule: str, name: str) -> float | None:
        chosen = [value[name] for value, of in zip(values, rules, strict=True) if of == rule]
        return fmean(chosen) if chosen else None

    def by_descriptor(name: str) -> float:
        if not any(features):
            raise InputError("no private image of these records has features: there is nothing to compare")
        return fmean((value[name] for value in values), weights=features)

    return TradeoffRow(
        mechanism=str(found["mechanism"]),
        subset_size=None if k is None else int(str(k)),
        success=float(str(found["success"])),
        epsilon=None if epsilon is None else float(str(epsilon)),
        image_epsilon=None if epsilon is None else float(str(epsilon)) * fmean(features),
        features=fmean(features),
        contains=by_descriptor("contains"),
        guess_distance=by_descriptor("guess distance"),
        nearest_distance=by_descriptor("nearest distance"),
        right_inliers_vocabulary=by_rule("vocabulary", "right inliers"),
        right_inliers_nearest=by_rule("nearest", "right inliers"),
        correct_vocabulary=by_rule("vocabulary", "correct"),
        correct_nearest=by_rule("nearest", "correct"),
        pairs=max(rules.count(rule) for rule in _RULES),
    )
