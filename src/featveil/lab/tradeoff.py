"""Subset against metric mechanism on image pairs with a known homography: what each finds, and what it gives away.

Image 1 of a scene is the raw reference, image n is private. The two mechanisms are compared at equal expected success
of the attacker of lab/calibration, who names one of the k words at random. The metric epsilon of that success is
found once, on descriptors of all private images, so that what an image is released with does not depend on the image.
End points: raw descriptors, words without any randomness (quantised), and sets that know nothing (chance). Utility is
a mean over image pairs, leakage one over descriptors.
"""

from collections.abc import Iterator, Sequence
from dataclasses import astuple, dataclass
from functools import cached_property, partial
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

from featveil.audit.schemes import Scheme
from featveil.core import InputError, Matches, Points, WordSets
from featveil.core.options import argument, option
from featveil.core.records import Parameter, Record
from featveil.core.resuming import Report
from featveil.databases import Database
from featveil.datasets import HPatches, ImagePair, load_hpatches
from featveil.defenses import Subset
from featveil.defenses.metric import Metric
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
from featveil.lab.scene_studies import (
    MATCHED,
    MATCHED_UNIT,
    RAW,
    RULES,
    Settings,
    WordImages,
    check_finite,
    check_iterations,
    codebook_of,
    homography_settings,
    private_features,
    quantised,
    release_generator,
    short,
)
from featveil.lab.tradeoff_parts.calibration import Outcome, calibrate, outcome, sample_descriptors, subset_success
from featveil.matching import NearestMatcher
from featveil.matching.word_sets import WordRule
from featveil.plotting.figures import LEVELS, blank_figure, quiet, shades, write_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MEASURED = (*MATCHED, "contains", "guess distance", "nearest distance")

_NO_KNOWLEDGE = 1e-9  # epsilon of the end point chance
_ORDER = ("raw", "quantised", "subset", "metric", "chance")
_MARKERS = {"subset": "o", "metric": "^"}


@dataclass(frozen=True)
class Options:
    """What is matched, and at which success the mechanisms are compared."""

    dataset: Path = argument(help=HPATCHES)
    out: Path = out_option()
    codebook: Path | None = option(None, help="Codebook: a database file.", shown="the built-in database")
    epsilons: tuple[float, ...] = option(
        (10.0, 8.0, 6.0), help="Epsilons of the subset mechanism; those of the metric one are found."
    )
    subset_sizes: tuple[int, ...] = option((1, 4), help="Words sent for each descriptor.")
    max_features: int = features_option(1500)
    iterations: int = option(100_000, help="Most iterations of the robust homography.")
    kind: str = kind_option()
    seed: int = seed_option()

    def __post_init__(self) -> None:
        refuse_none(self, "epsilons", "subset_sizes")
        check_iterations(self.iterations)


def tradeoff(options: Options, progress: Progress) -> Study["Compared"]:
    """Subset against metric mechanism at equal success of an attacker: what is still matched, and what leaks.

    Stop it with Ctrl-C at any time: the same command goes on where it stopped (from OUT/records.jsonl).

    Example: featveil bench tradeoff hpatches-sequences/ --out results/ --epsilons 10,8 --subset-sizes 1,4
    """
    settings = Settings(options.kind, options.max_features, options.seed)
    book = codebook_of(options.codebook, options.kind)
    scenes = load_hpatches(options.dataset)
    with progress("images") as report:
        arms = make_arms(scenes, settings, book, options.epsilons, options.subset_sizes, report)
    return study(scenes, arms, settings, options.iterations)


@dataclass(frozen=True)
class Arm:
    """A scheme of the comparison: raw descriptors, or the word sets of a mechanism.

    `success` is how often the attacker is expected to name the nearest word, `matched` the epsilon of the subset
    mechanism that has that success.
    """

    scheme: Scheme = RAW
    success: float = 1.0
    matched: float | None = None

    @property
    def rules(self) -> tuple[WordRule, ...]:
        """Near words help rule nearest, exact ones help vocabulary: what has words is matched by both."""
        return ("nearest",) if self.scheme.codebook is None else RULES

    def parameters(self) -> dict[str, Parameter]:
        """Mechanism, its own epsilon of a descriptor (None: no guarantee), the attacker's success and the codebook."""
        defense, codebook = self.scheme.defense, self.scheme.codebook
        stated: dict[str, Parameter] = {"mechanism": self.scheme.name.split("-")[0], "epsilon": None}
        stated["success"] = self.success
        if codebook is None or not isinstance(defense, Subset | Metric):
            return stated
        stated |= {"epsilon": defense.guarantee().epsilon, "subset_epsilon": self.matched}
        stated |= {"subset_size": defense.subset_size}
        return stated | {"codebook": codebook.digest[:16], "codebook_size": len(codebook)}


def make_arms(
    dataset: HPatches,
    settings: Settings,
    codebook: Database,
    epsilons: Sequence[float],
    subset_sizes: Sequence[int],
    report: Report = lambda done, total: None,
) -> list[Arm]:
    """Raw and quantised; for each subset size, both mechanisms for every epsilon of the subset one, then chance.

    Reads all private images to find the metric epsilons; `report` is called with images (done, total). Raises
    InputError for a codebook of another kind, a size or epsilon that cannot be, and a success that no metric epsilon
    has.
    """
    check_finite(epsilons)
    whole = quantised(codebook)
    arms = [Arm(), Arm(Scheme(whole.name, whole.defense.for_kind(settings.kind)))]
    sizes, wanted = dict.fromkeys(subset_sizes), dict.fromkeys(epsilons)
    subsets = {k: [_subset(f"subset-{short(e)}", e, k, codebook) for e in wanted] for k in sizes}
    sample = sample_descriptors(dataset, settings, report)
    for k, chosen in subsets.items():
        for subset in chosen:
            arms += [subset, _metric(subset, k, sample, codebook)]
        arms.append(_subset("chance", _NO_KNOWLEDGE, k, codebook))
    return arms


def _subset(name: str, epsilon: float, k: int, codebook: Database) -> Arm:
    success = subset_success(epsilon, len(codebook), k)
    return Arm(Scheme(f"{name}-{k}", Subset(epsilon, k, codebook)), success, epsilon)


def _metric(subset: Arm, k: int, sample: Points, codebook: Database) -> Arm:
    """The metric mechanism that is as successful for the attacker as `subset`."""
    try:
        epsilon = calibrate(sample, codebook, subset.success, k)
    except InputError as error:
        raise InputError(
            f"no metric mechanism compares with {subset.scheme.name}: {error}; use other epsilons"
        ) from error
    # Five digits: finer than the calibration, and the epsilon in a table is then the one that was used.
    metric = Metric(float(f"{epsilon:.5g}"), k, codebook)
    return Arm(Scheme(subset.scheme.name.replace("subset", "metric-as"), metric), subset.success, subset.matched)


def study(dataset: HPatches, arms: Sequence[Arm], settings: Settings, iterations: int) -> Study["Compared"]:
    """Every image pair of `dataset` under every scheme and rule."""

    def cases() -> Iterator[Case[Compared]]:
        for scene in dataset.scenes:
            images = WordImages(scene, settings, iterations)
            for arm, pair in product(arms, scene.pairs):
                released = Released(images, arm.scheme, pair)
                for rule in arm.rules:
                    stated = {"rule": rule, **images.describe(pair.number), **arm.parameters()}
                    yield Case(arm.scheme.name, stated, Compared(released, rule))

    return Study(cases, homography_settings(settings, iterations), settings.seed, dataset.name)


@dataclass(frozen=True, eq=False)
class Released:
    """One private image under one scheme: a single release, with its own generator, for both rules."""

    images: WordImages
    scheme: Scheme
    pair: ImagePair

    @cached_property
    def sets(self) -> WordSets | None:
        """What is sent; None if that is the raw descriptors. The same set is drawn in the bench of words."""
        number, book, defense = self.pair.number, self.scheme.codebook, self.scheme.defense
        rng = release_generator(self.images, number, self.scheme)
        if isinstance(defense, Subset) and book is not None:
            return defense.hide(self.images.words(number, book), rng)
        return defense.privatize(self.images[number].descriptors, rng) if isinstance(defense, Metric) else None

    @cached_property
    def outcome(self) -> Outcome:
        """What the attacker has of it."""
        number, book = self.pair.number, self.scheme.codebook
        if self.sets is None or book is None:
            return Outcome(contains=1.0, guess_distance=0.0, best_distance=0.0)
        if len(self.sets) == 0:
            return Outcome(0.0, 0.0, 0.0)
        return outcome(self.sets, self.images[number].descriptors, self.images.words(number, book), book)

    def candidates(self, rule: WordRule) -> Matches:
        """Matches of raw image 1 (first column) with the private image."""
        if self.sets is None or self.scheme.codebook is None:
            return NearestMatcher().match(self.images[1].descriptors, self.images[self.pair.number].descriptors)
        return self.images.candidates(self.sets, self.scheme.codebook, rule)


@dataclass(frozen=True, eq=False)
class Compared:
    """A release, and how it is matched."""

    released: Released
    rule: WordRule


def measure(one: Compared) -> Measured:
    """What MEASURED names: the release's `Outcome`, which serves both rules, comes last; and the candidates."""
    released, images = one.released, one.released.images
    matches = released.candidates(one.rule)
    leaked = (round(value, 6) for value in astuple(released.outcome))
    return Measured(
        (*images.verify(matches, released.pair), *leaked), len(matches), images.counts(released.pair.number)
    )


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


def _share(value: float) -> str:
    return f"{value:.3f}" if value >= 0.001 or value == 0 else f"{value:.0e}"


def _epsilon(row: TradeoffRow, unit: str = " per unit") -> str:
    return "inf" if row.epsilon is None else f"{row.epsilon:.4g}{unit if row.mechanism == 'metric' else ''}"


def _image_epsilon(row: TradeoffRow, unit: str = " per unit") -> str:
    epsilon = row.image_epsilon
    if epsilon is None:
        return "inf"
    return f"{f'{epsilon:,.0f}' if epsilon >= 1 else f'{epsilon:.0e}'}{unit if row.mechanism == 'metric' else ''}"


def _inliers(value: float | None) -> str:
    return "-" if value is None else f"{value:.0f}"


def _correct(value: float | None) -> str:
    return _inliers(None if value is None else 100 * value)


def _both_inliers(row: TradeoffRow) -> str:
    return f"{_inliers(row.right_inliers_vocabulary)} / {_inliers(row.right_inliers_nearest)}"


def _both_correct(row: TradeoffRow) -> str:
    return f"{_correct(row.correct_vocabulary)} / {_correct(row.correct_nearest)}"


_SUCCESS: tuple[Column[TradeoffRow], ...] = (
    Column("k", lambda row: "" if row.subset_size is None else str(row.subset_size)),
    Column("success", lambda row: _share(row.success)),
)
_MECHANISM: Column[TradeoffRow] = Column("sent", lambda row: row.mechanism, left=True)
_LEAKED: tuple[Column[TradeoffRow], ...] = (
    Column("epsilon", _epsilon, brief=lambda row: _epsilon(row, "/d")),
    Column("epsilon an image", _image_epsilon, screen="epsilon\nan image", brief=lambda row: _image_epsilon(row, "/d")),
    Column("contains", lambda row: _share(row.contains)),
    Column("guess distance", lambda row: f"{row.guess_distance:.3f}", screen="guess\naway"),
)
COLUMNS: tuple[Column[TradeoffRow], ...] = (
    *_SUCCESS,
    _MECHANISM,
    *_LEAKED,
    Column("nearest distance", lambda row: f"{row.nearest_distance:.3f}"),
    Column("right inliers, vocabulary", lambda row: _inliers(row.right_inliers_vocabulary)),
    Column("right inliers, nearest", lambda row: _inliers(row.right_inliers_nearest)),
    Column("correct %, vocabulary", lambda row: _correct(row.correct_vocabulary)),
    Column("correct %, nearest", lambda row: _correct(row.correct_nearest)),
    Column("pairs", lambda row: str(row.pairs)),
)
_SCREEN: tuple[Column[TradeoffRow], ...] = (
    _MECHANISM,
    *_SUCCESS,
    *_LEAKED,
    Column("right\ninliers", _both_inliers),
    Column("correct\npairs %", _both_correct),
)


def rows_of(records: Sequence[Record]) -> list[TradeoffRow]:
    """One row for each scheme: raw, quantised, then by subset size and falling success, the two mechanisms together.

    Raises InputError when a record is of another codebook than the others.
    """
    groups: dict[str, list[Record]] = {}
    for record in records:
        groups.setdefault(record.scheme, []).append(record)
    if len({record.parameters["codebook"] for record in records if "codebook" in record.parameters}) > 1:
        raise InputError("these records are of two codebooks: make a table of each")
    return sorted((_row(members) for members in groups.values()), key=_place)


def _row(records: Sequence[Record]) -> TradeoffRow:
    stated = records[0].parameters
    features = [private_features(record) for record in records]
    values = [dict(zip(MEASURED, r.value, strict=True)) for r in records if isinstance(r.value, tuple)]
    rules = [str(record.parameters["rule"]) for record in records]
    epsilon, k = stated["epsilon"], stated.get("subset_size")

    def by_rule(rule: str, name: str) -> float | None:
        chosen = [value[name] for value, of in zip(values, rules, strict=True) if of == rule]
        return fmean(chosen) if chosen else None

    def by_descriptor(name: str) -> float:
        if not any(features):
            raise InputError("no private image of these records has features: there is nothing to compare")
        return fmean((value[name] for value in values), weights=features)

    if stated["mechanism"] not in _ORDER:
        raise InputError(f"{stated['mechanism']} is not one of these mechanisms: leave its records out")
    return TradeoffRow(
        mechanism=str(stated["mechanism"]),
        subset_size=None if k is None else int(str(k)),
        success=float(str(stated["success"])),
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
        pairs=max(rules.count(rule) for rule in RULES),
    )


def _place(row: TradeoffRow) -> tuple[bool, int, float, int]:
    order = _ORDER.index(row.mechanism)
    return order > 1, row.subset_size or 0, -row.success, order


def _text(rows: Sequence[TradeoffRow], records: Sequence[Record]) -> str:
    """The table, with what its columns mean."""
    one, stated = records[0], records[0].parameters
    book = next((record.parameters for record in records if "codebook" in record.parameters), None)
    codebook = f"Codebook of {book['codebook_size']:,} words, digest {book['codebook']}. " if book else ""
    described = f"{stated.get('kind')}, at most {stated.get('max_features')} features an image"
    return (
        f"# Subset and metric mechanism on {one.dataset}\n\n"
        f"Image 1 of each scene is raw, the other is private ({described}, {rows[0].features:.0f} on average;"
        f" seed {one.seed}). {codebook}The homography between"
        f" them is found with at most {stated.get('iterations'):,} iterations at {stated.get('pixels'):g} px.\n\n"
        f"{_EXPLAINED}\n{markdown_table(COLUMNS, rows)}"
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


def draw(rows: Sequence[TradeoffRow], path: str | Path, title: str = "") -> None:
    """Write right inliers (by the better rule) over guess distance as a PNG to `path`.

    Raises MissingExtraError without matplotlib.
    """
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


BENCH = Bench(
    "tradeoff",
    tradeoff,
    measure=measure,
    key=("scene", "scheme", "codebook", "image", "rule"),
    metric=", ".join(MEASURED),
    unit=f"{MATCHED_UNIT}, share, distance at norm 1, distance at norm 1",
    rows=rows_of,
    text=_text,
    screen=partial(screen_table, _SCREEN),
    figures={CURVE: draw},
    title=lambda record: f"Subset and metric mechanism on {record.dataset}, {record.parameters['kind']}",
    named=("mechanism", "epsilon", "success", "rule", "features"),
    length=len(MEASURED),
)
