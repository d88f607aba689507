"""Image matching (Dusmanu et al. 2021, section 4.2): mean matching accuracy of raw, lifted and concealed descriptors.

A scheme is raw descriptors, a network, or a lifting strategy and dimension under two distances. Point-to-subspace
leaves image 1 raw and makes image k private (localization in a known map); subspace-to-subspace makes both private.
Every image is lifted once for each strategy and dimension, as one release that serves all its pairs. Concealed
descriptors are compared with concealed ones, so the network is put on both sides.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

from featveil.audit.schemes import Scheme
from featveil.core import Flats, Points
from featveil.core.options import argument, option
from featveil.core.records import Record
from featveil.core.seeding import image_generator
from featveil.datasets import HPatches, ImagePair, load_hpatches
from featveil.defenses import Lifting
from featveil.lab.bench import (
    CURVE,
    HPATCHES,
    Bench,
    Case,
    Column,
    Measured,
    Progress,
    Study,
    features_option,
    kind_option,
    markdown_table,
    out_option,
    refuse_none,
    screen_table,
    seed_option,
)
from featveil.lab.scene_studies import RAW, STRATEGIES_WITHOUT_LABELS, Images, Settings, lifted, lifting_parameters
from featveil.matching import NearestMatcher
from featveil.metrics import THRESHOLDS, matching_accuracy, mean_matching_accuracy, transfer_errors
from featveil.plotting.figures import LEVELS, MARKERS, blank_figure, quiet, shades, write_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

BOTH_RAW = "point-to-point"
DISTANCES = ("point-to-subspace", "subspace-to-subspace")

_RIGHT = THRESHOLDS.index(3)
_CHANGES = ("illumination", "viewpoint")
_LINE: dict[str, Any] = {"color": LEVELS["raw"], "linestyle": "--", "linewidth": 1.4, "label": "raw"}


@dataclass(frozen=True)
class Options:
    """What is matched, and under which schemes."""

    dataset: Path = argument(help=HPATCHES)
    out: Path = out_option()
    strategies: tuple[str, ...] | None = option(
        None, help="Lifting strategies, separated by commas.", shown="all without labels"
    )
    dimensions: tuple[int, ...] = option((2, 4, 8, 16), help="Subspace dimensions, separated by commas.")
    max_features: int = features_option()
    kind: str = kind_option()
    seed: int = seed_option()

    def __post_init__(self) -> None:
        refuse_none(self, "dimensions")


def matching(options: Options, progress: Progress) -> Study["Pair"]:
    """Mean matching accuracy of raw and lifted descriptors over the image pairs of a dataset.

    Stop it with Ctrl-C at any time: the same command goes on where it stopped (from OUT/records.jsonl).

    Example: featveil bench matching hpatches-sequences/ --out results/ --strategies random,sub-hybrid
    """
    settings = Settings(options.kind, options.max_features, options.seed)
    strategies = STRATEGIES_WITHOUT_LABELS if options.strategies is None else options.strategies
    schemes = [RAW, *lifted(options.kind, options.dimensions, strategies)]
    return study(load_hpatches(options.dataset), schemes, settings)


def study(dataset: HPatches, schemes: Sequence[Scheme], settings: Settings) -> Study["Pair"]:
    """Every image pair of `dataset` under every scheme and the distances that it has."""
    return Study(partial(_cases, dataset, schemes, settings), settings.shared(), settings.seed, dataset.name)


def _cases(dataset: HPatches, schemes: Sequence[Scheme], settings: Settings) -> Iterator[Case["Pair"]]:
    for scene in dataset.scenes:
        images = Images(scene, settings)
        for scheme in schemes:
            sent, about = _Sent(images, scheme), lifting_parameters(scheme)
            distances = DISTANCES if isinstance(scheme.defense, Lifting) else (BOTH_RAW,)
            for pair, distance in product(scene.pairs, distances):
                stated = {"distance": distance, **images.describe(pair.number), **about}
                yield Case(scheme.name, stated, Pair(sent, pair, distance))


class _Sent:
    """Descriptors of a scene's images under one scheme: one release per image, each with its own generator."""

    def __init__(self, images: Images, scheme: Scheme) -> None:
        self.images, self.scheme = images, scheme
        self._private: dict[int, Flats] = {}

    def private(self, number: int) -> Flats:
        """What is sent of an image."""
        defense, network, raw = self.scheme.defense, self.scheme.network, self.images[number].descriptors
        if number not in self._private:
            if network is not None:
                self._private[number] = Points(network.apply(raw.values))
            elif isinstance(defense, Lifting):
                scene, seed = self.images.scene.name, self.images.settings.seed
                self._private[number] = defense.privatize(raw, image_generator(seed, scene, number, self.scheme.name))
            else:
                self._private[number] = raw
        return self._private[number]

    def sides(self, number: int, distance: str) -> tuple[Flats, Flats]:
        """Descriptors of image 1 and of image `number`, as `distance` compares them."""
        one_raw = distance != "subspace-to-subspace" and self.scheme.network is None
        return self.images[1].descriptors if one_raw else self.private(1), self.private(number)


@dataclass(frozen=True, eq=False)
class Pair:
    """An image pair, as it is sent and compared."""

    sent: _Sent
    pair: ImagePair
    distance: str


def measure(one: Pair) -> Measured:
    """The accuracy at 1 to 10 px, and the number of mutual nearest neighbours."""
    images, number = one.sent.images, one.pair.number
    matches = NearestMatcher().match(*one.sent.sides(number, one.distance))
    errors = transfer_errors(matches, images.keypoints(1), images.keypoints(number), one.pair.homography)
    accuracy = tuple(round(float(share), 6) for share in matching_accuracy(errors))
    return Measured(accuracy, len(matches), images.counts(number))


@dataclass(frozen=True)
class MatchingRow:
    """One scheme over all its image pairs: `accuracy` at 1 to 10 px, and means per pair.

    `matches` is their mean number, `right` that of the ones within 3 px. Accuracy is a precision: a scheme that
    keeps fewer matches can score above raw descriptors and still find less.
    """

    strategy: str
    dimension: int
    distance: str
    accuracy: tuple[float, ...]
    pairs: int
    matches: float
    right: float

    def at(self, threshold: int) -> float:
        """Mean matching accuracy at a threshold of 1 to 10 px."""
        return self.accuracy[THRESHOLDS.index(threshold)]


def _accuracy(threshold: int, screen: str | None = "") -> Column[MatchingRow]:
    return Column(f"MMA@{threshold}", lambda row: f"{100 * row.at(threshold):.1f}", screen=screen)


COLUMNS: tuple[Column[MatchingRow], ...] = (
    Column("scheme", lambda row: row.strategy, left=True),
    Column("m", lambda row: str(row.dimension)),
    Column("distance", lambda row: row.distance, left=True, brief=lambda row: row.distance.replace("-to-", "-")),
    *(_accuracy(1), _accuracy(3), _accuracy(5, screen=None), _accuracy(10)),
    Column("matches", lambda row: f"{row.matches:.0f}"),
    Column("right@3", lambda row: f"{row.right:.0f}"),
    Column("pairs", lambda row: str(row.pairs), screen=None),
)


def rows_of(records: Sequence[Record], change: str | None = None) -> list[MatchingRow]:
    """One row per scheme, raw descriptors first, then distance by distance, in the order of the records.

    `change` keeps the scenes of one kind, "illumination" or "viewpoint".
    """
    groups: dict[tuple[str, int, str], list[Record]] = {}
    for record in records:
        stated = record.parameters
        if change is None or stated.get("change") == change:
            group = str(stated["strategy"]), int(str(stated["dimension"])), str(stated["distance"])
            groups.setdefault(group, []).append(record)
    # A stable sort: strategies and dimensions stay in the order in which they were asked for.
    rows = [_row(group, members) for group, members in groups.items()]
    return sorted(rows, key=lambda row: (row.strategy != "raw", row.distance))


def _row(group: tuple[str, int, str], records: Sequence[Record]) -> MatchingRow:
    accuracies = [record.value for record in records if isinstance(record.value, tuple)]
    mean = tuple(float(share) for share in mean_matching_accuracy(accuracies))
    matches = [record.count for record in records]
    right = [count * accuracy[_RIGHT] for count, accuracy in zip(matches, accuracies, strict=True)]
    pairs = len(records)
    return MatchingRow(*group, mean, pairs, sum(matches) / pairs, sum(right) / pairs)


def _text(rows: Sequence[MatchingRow], records: Sequence[Record]) -> str:
    """The whole table, and one for each kind of change where scenes are named by it."""
    one = records[0]
    settings = f"{one.parameters.get('kind')}, at most {one.parameters.get('max_features')} features an image"
    parts = [
        f"# Image matching on {one.dataset}\n",
        f"Mean matching accuracy in percent of mutual nearest neighbours ({settings}, seed {one.seed})."
        " MMA@t: the reprojected keypoint is at most t pixels off. A pair without matches counts as 0."
        " matches and right@3: mean number a pair, of all and of those within 3 pixels;"
        " accuracy alone rewards a scheme that keeps few.\n",
        markdown_table(COLUMNS, rows),
    ]
    for change in _CHANGES:
        if changed := rows_of(records, change):
            parts.append(f"\n## Scenes that change in {change}\n\n{markdown_table(COLUMNS, changed)}")
    return "\n".join(parts)


def draw(rows: Sequence[MatchingRow], path: str | Path, title: str = "") -> None:
    """Mean matching accuracy over the threshold, as a PNG: one panel for each strategy and distance."""
    raw = next((row for row in rows if row.strategy == "raw"), None)
    private = [row for row in rows if row.strategy != "raw"]
    strategies = list(dict.fromkeys(row.strategy for row in private)) or ["raw"]
    distances = list(dict.fromkeys(row.distance for row in private)) or [BOTH_RAW]
    figure = blank_figure(2.5 * len(strategies) + 1.6, 2.6 * len(distances) + 1.1)
    panels = figure.subplots(len(distances), len(strategies), sharex=True, sharey=True, squeeze=False)
    styles = _styles(sorted({row.dimension for row in private}))
    for line, distance in enumerate(distances):
        for column, strategy in enumerate(strategies):
            chosen = [row for row in private if (row.strategy, row.distance) == (strategy, distance)]
            _panel(panels[line, column], raw, chosen, styles)
            panels[line, column].set_title(strategy if line == 0 else "", fontsize=11, fontweight="bold")
        panels[line, 0].set_ylabel(f"{distance}\nmean matching accuracy")
    _legend(figure, panels)
    write_figure(figure, path, title)


def _styles(dimensions: Sequence[int]) -> dict[int, dict[str, Any]]:
    """Colour, marker and label of each dimension, the same in every panel."""
    return {
        dimension: {"color": colour, "marker": MARKERS[place % len(MARKERS)], "label": f"m = {dimension}"}
        for place, (dimension, colour) in enumerate(zip(dimensions, shades(len(dimensions)), strict=True))
    }


def _panel(
    panel: "Axes", raw: MatchingRow | None, rows: Sequence[MatchingRow], styles: dict[int, dict[str, Any]]
) -> None:
    for row in rows:
        panel.plot(THRESHOLDS, row.accuracy, linewidth=1.6, markersize=4, **styles[row.dimension])
    if raw is not None:
        # Drawn last: a private curve that equals it must not hide it.
        panel.plot(THRESHOLDS, raw.accuracy, **_LINE)
    panel.set_xlim(THRESHOLDS[0] - 0.3, THRESHOLDS[-1] + 0.3)
    panel.set_ylim(-0.02, 1)
    panel.set_xticks(THRESHOLDS)
    quiet(panel)


def _legend(figure: "Figure", panels: Any) -> None:
    entries: dict[str, Any] = {}
    for panel in panels.flat:
        handles, labels = panel.get_legend_handles_labels()
        entries |= dict(zip(labels, handles, strict=True))
    names = sorted(entries, key=lambda label: (label != "raw", int(label.split()[-1]) if " " in label else 0))
    handles = [entries[name] for name in names]
    figure.legend(handles, names, loc="outside right upper", frameon=False, title="descriptors")
    figure.supxlabel("threshold (px)", fontsize=10)


BENCH = Bench(
    "matching",
    matching,
    measure=measure,
    key=("scene", "scheme", "distance", "image"),
    metric="matching accuracy at 1 to 10 px",
    unit="share of matches",
    rows=rows_of,
    text=_text,
    screen=partial(screen_table, COLUMNS),
    figures={CURVE: draw},
    title=lambda record: f"Image matching on {record.dataset}, {record.parameters['kind']}",
    named=("strategy", "dimension", "distance"),
    length=len(THRESHOLDS),
)
