"""Localization with word sets (Pittaluga and Zhuang 2023, section 6.2), on image pairs with a known homography.

Image 1 of a scene is the raw reference, image n is private. Candidate matches are verified by a homography from image
1 to image n. Beside the subset mechanism stand raw descriptors, words without any randomness (quantised) and the naive
mechanism. Every image is released once for each scheme, which serves both matching rules. An epsilon of one descriptor
is never shown without the one that it adds up to over an image.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.console import Group
from rich.table import Table
from rich.text import Text

from featveil.audit.schemes import Scheme
from featveil.core import Descriptors, InputError, Matches, Points, WordSets
from featveil.core.options import argument, option
from featveil.core.records import Parameter, Record
from featveil.databases import Database, builtin, load_database
from featveil.databases.entries import QUANTIZED_KINDS, unit_rows
from featveil.datasets import HPatches, ImagePair, load_hpatches
from featveil.defenses import Naive, Subset
from featveil.defenses.subset import subset_coin
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
    heading,
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
    homography_settings,
    private_features,
    quantised,
    release_generator,
    short,
    subsets,
)
from featveil.matching import NearestMatcher
from featveil.matching.word_sets import WordRule
from featveil.plotting.figures import LEVELS, MARKERS, blank_figure, quiet, shades, write_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NAIVE = Naive(10.0)


@dataclass(frozen=True)
class Options:
    """What is matched, and under which schemes."""

    dataset: Path = argument(help=HPATCHES)
    out: Path = out_option()
    codebooks: tuple[Path, ...] | None = option(
        None, help="Codebook files, separated by commas.", shown="the built-in one"
    )
    epsilons: tuple[float, ...] = option(
        (16.0, 14.0, 12.0, 10.0), help="Epsilons of a descriptor, separated by commas."
    )
    subset_sizes: tuple[int, ...] = option((1, 2, 4, 8, 16), help="Words sent for each descriptor.")
    nearest_sizes: tuple[int, ...] = option((2, 4), help="Of these, run rule nearest, too; 0 for none.")
    max_features: int = features_option(1500)
    iterations: int = option(100_000, help="Most iterations of the robust homography.")
    kind: str = kind_option()
    seed: int = seed_option()

    def __post_init__(self) -> None:
        refuse_none(self, "epsilons", "subset_sizes", "nearest_sizes")
        check_iterations(self.iterations)


def words(options: Options, progress: Progress) -> Study["Compared"]:
    """Homographies found between raw images and word sets, for every codebook, epsilon and subset size.

    Stop it with Ctrl-C at any time: the same command goes on where it stopped (from OUT/records.jsonl).

    Example: featveil bench words hpatches-sequences/ --out results/ --epsilons 12,10 --subset-sizes 1,4
    """
    settings = Settings(options.kind, options.max_features, options.seed)
    books = _codebooks(options.codebooks, options.kind)
    schemes = make_schemes(options.kind, books, options.epsilons, options.subset_sizes)
    released = Released(schemes, {book.digest: name for name, book in books.items()}, options.nearest_sizes)
    return study(load_hpatches(options.dataset), released, settings, options.iterations)


def _codebooks(files: Sequence[Path] | None, kind: str) -> dict[str, Database]:
    """Codebooks by file name and size; without `files` the built-in one."""
    if files is None:
        book = builtin(kind)
        return {f"built-in ({len(book):,})": book}
    books: dict[str, Database] = {}
    for path in files:
        book = load_database(path)
        name = f"{path.stem} ({len(book):,})"
        if name in books:
            raise InputError(f"two codebooks are called {name}: rename one of the files")
        books[name] = book
    return books


def make_schemes(
    kind: str, codebooks: Mapping[str, Database], epsilons: Sequence[float], subset_sizes: Sequence[int]
) -> list[Scheme]:
    """Raw and naive; then of each codebook its words quantised and every epsilon x subset size.

    Raises InputError for a codebook of another kind or given twice, and a size or epsilon that cannot be.
    """
    check_finite(epsilons)
    if len({codebook.digest for codebook in codebooks.values()}) < len(codebooks):
        raise InputError("two of the codebooks are the same: name each once")
    schemes = [RAW]
    if kind in QUANTIZED_KINDS:
        schemes.append(Scheme(f"naive-{short(NAIVE.epsilon)}", NAIVE))
    for codebook in codebooks.values():
        whole = quantised(codebook)
        schemes += [Scheme(whole.name, whole.defense.for_kind(kind)), *subsets(codebook, epsilons, subset_sizes)]
    return schemes


@dataclass(frozen=True)
class Released:
    """The `schemes` of a study, the names of their codebooks by digest, and the subset sizes for rule nearest."""

    schemes: Sequence[Scheme]
    names: Mapping[str, str]
    nearest_sizes: Sequence[int]

    def rules(self, scheme: Scheme) -> tuple[WordRule, ...]:
        """Rule `nearest`, which is slow, is run for quantised words and those subset sizes that are named."""
        if not isinstance(scheme.defense, Subset):
            return ("nearest",)
        quick = scheme.name != "quantised" and scheme.defense.subset_size not in self.nearest_sizes
        return RULES[:1] if quick else RULES

    def parameters(self, scheme: Scheme) -> dict[str, Parameter]:
        """Mechanism, epsilon of a descriptor (None: no guarantee) and codebook."""
        stated: dict[str, Parameter] = {"mechanism": scheme.name.split("-")[0]}
        stated["epsilon"] = scheme.defense.guarantee().epsilon
        codebook = scheme.codebook
        if isinstance(scheme.defense, Subset) and codebook is not None:
            stated |= {"subset_size": scheme.defense.subset_size, "codebook": codebook.digest[:16]}
            stated |= {"codebook_name": self.names.get(codebook.digest), "codebook_size": len(codebook)}
        return stated


def study(dataset: HPatches, released: Released, settings: Settings, iterations: int) -> Study["Compared"]:
    """Every image pair of `dataset` under every scheme and rule."""

    def cases() -> Iterator[Case[Compared]]:
        for scene in dataset.scenes:
            images = WordImages(scene, settings, iterations)
            for scheme in released.schemes:
                sent, about = _Sent(images, scheme), released.parameters(scheme)
                for rule, pair in product(released.rules(scheme), scene.pairs):
                    stated = {"rule": rule, **images.describe(pair.number), **about}
                    yield Case(scheme.name, stated, Compared(sent, pair, rule))

    return Study(cases, homography_settings(settings, iterations), settings.seed, dataset.name)


class _Sent:
    """A scene under one scheme: one release per image, each with its own generator."""

    def __init__(self, images: WordImages, scheme: Scheme) -> None:
        self.images, self.scheme = images, scheme
        self._private: dict[int, Descriptors] = {}

    def private(self, number: int) -> Descriptors:
        """What is sent of an image."""
        if number not in self._private:
            self._private[number] = self._release(number, release_generator(self.images, number, self.scheme))
        return self._private[number]

    def candidates(self, number: int, rule: WordRule) -> Matches:
        """Matches of raw image 1 (first column) with private image `number`."""
        reference, private = self.images[1].descriptors, self.private(number)
        if isinstance(self.scheme.defense, Naive):
            reference = Points(unit_rows(reference.values))
        if isinstance(private, WordSets) and self.scheme.codebook is not None:
            return self.images.candidates(private, self.scheme.codebook, rule)
        return NearestMatcher().match(reference, private)

    def probability(self, descriptor_size: int) -> float:
        """That the true word (without words, the true descriptor) is among what is sent."""
        match self.scheme.defense:
            case Subset() as mechanism:
                return float(mechanism.coin.probability)
            case Naive(epsilon):
                return float(subset_coin(epsilon, 256**descriptor_size, 1).probability)
        return 1.0

    def _release(self, number: int, rng: np.random.Generator) -> Descriptors:
        raw, defense, codebook = self.images[number].descriptors, self.scheme.defense, self.scheme.codebook
        if isinstance(defense, Subset) and codebook is not None:
            return defense.hide(self.images.words(number, codebook), rng)
        if isinstance(defense, Naive):
            # Random bytes are much longer than descriptors: compared by direction.
            return Points(unit_rows(defense.privatize(raw, rng).values))
        return raw


@dataclass(frozen=True, eq=False)
class Compared:
    """An image pair, as it is sent and matched."""

    sent: _Sent
    pair: ImagePair
    rule: WordRule


def measure(one: Compared) -> Measured:
    """What MATCHED names, and the number of candidates."""
    images, pair = one.sent.images, one.pair
    matches = one.sent.candidates(pair.number, one.rule)
    sent: dict[str, Parameter] = {"sent": one.sent.probability(images[1].descriptors.size)}
    return Measured(images.verify(matches, pair), len(matches), {**images.counts(pair.number), **sent})


@dataclass(frozen=True)
class WordsRow:
    """One scheme and matching rule over all its image pairs; numbers are means per pair.

    `epsilon` is that of a descriptor, `image_epsilon` that of an image with the mean number of `features`; None where
    nothing is guaranteed. `sent` is the probability that the true word is sent, `right_share` the share of right ones
    among the candidates (a pair without any counts as 0), `correct` the share of pairs whose homography is correct.
    """

    mechanism: str
    codebook: str | None
    rule: str
    epsilon: float | None
    image_epsilon: float | None
    subset_size: int | None
    sent: float
    features: float
    candidates: float
    right_share: float
    inliers: float
    right_inliers: float
    correct: float
    pairs: int


def epsilon_cell(epsilon: float | None) -> str:
    """Of one descriptor."""
    return "inf" if epsilon is None else f"{epsilon:g}"


def _sent_words(row: WordsRow) -> str:
    if row.mechanism != "subset":
        return row.mechanism
    return f"{row.subset_size} word{'' if row.subset_size == 1 else 's'}"


COLUMNS: tuple[Column[WordsRow], ...] = (
    Column("sent", lambda row: row.mechanism, left=True, brief=_sent_words),
    Column("rule", lambda row: row.rule, left=True, screen=None),
    Column("epsilon", lambda row: epsilon_cell(row.epsilon)),
    Column(
        "epsilon an image",
        lambda row: "inf" if row.image_epsilon is None else f"{row.image_epsilon:,.0f}",
        screen="epsilon\nan image",
    ),
    Column("k", lambda row: "" if row.subset_size is None else str(row.subset_size), screen=None),
    Column(
        "P(true sent)",
        lambda row: f"{row.sent:.3f}" if row.sent >= 0.001 else f"{row.sent:.0e}",
        screen="P(true\nsent)",
    ),
    Column("candidates", lambda row: f"{row.candidates:.0f}"),
    Column("right %", lambda row: f"{100 * row.right_share:.1f}", screen="right\nshare %"),
    Column("inliers", lambda row: f"{row.inliers:.0f}", screen=None),
    Column("right inliers", lambda row: f"{row.right_inliers:.0f}", screen="right\ninliers"),
    Column("correct %", lambda row: f"{100 * row.correct:.0f}", screen="correct\npairs %"),
    Column("pairs", lambda row: str(row.pairs), screen=None),
)


def rows_of(records: Sequence[Record]) -> list[WordsRow]:
    """One row for each scheme, codebook and rule, in the order of the records, rule `nearest` last in its codebook."""
    groups: dict[tuple[str, str, str], list[Record]] = {}
    for record in records:
        stated = record.parameters
        groups.setdefault((record.scheme, str(stated.get("codebook")), str(stated["rule"])), []).append(record)
    rows = [_row(members) for members in groups.values()]
    books = [None, *dict.fromkeys(row.codebook for row in rows if row.codebook is not None)]
    return sorted(
        rows, key=lambda row: (books.index(row.codebook), row.mechanism == "subset" and row.rule == "nearest")
    )


def _row(records: Sequence[Record]) -> WordsRow:
    stated = records[0].parameters
    values = [dict(zip(MATCHED, r.value, strict=True)) for r in records if isinstance(r.value, tuple)]
    mean = {name: fmean(value[name] for value in values) for name in MATCHED}
    shares = [value["right candidates"] / max(value["candidates"], 1) for value in values]
    features = fmean(private_features(record) for record in records)
    epsilon, k, name = stated["epsilon"], stated.get("subset_size"), stated.get("codebook_name")
    return WordsRow(
        mechanism=str(stated["mechanism"]),
        codebook=None if name is None else str(name),
        rule=str(stated["rule"]),
        epsilon=None if epsilon is None else float(str(epsilon)),
        image_epsilon=None if epsilon is None else float(str(epsilon)) * features,
        subset_size=None if k is None else int(str(k)),
        sent=float(str(stated["sent"])),
        features=features,
        candidates=mean["candidates"],
        right_share=fmean(shares),
        inliers=mean["inliers"],
        right_inliers=mean["right inliers"],
        correct=mean["correct"],
        pairs=len(records),
    )


def tables_of(rows: Sequence[WordsRow]) -> dict[str, list[WordsRow]]:
    """The rows of each codebook, by its name, under those without a codebook: both end points are in every table."""
    free = [row for row in rows if row.codebook is None]
    names = dict.fromkeys(row.codebook for row in rows if row.codebook is not None)
    return {name: [*free, *(row for row in rows if row.codebook == name)] for name in names} or {"": free}


def _text(rows: Sequence[WordsRow], records: Sequence[Record]) -> str:
    """All tables, with what their columns mean."""
    one, stated = records[0], records[0].parameters
    described = f"{stated.get('kind')}, at most {stated.get('max_features')} features an image"
    features = next((row.features for row in rows), 0.0)
    parts = [
        f"# Word sets on {one.dataset}\n",
        f"Image 1 of each scene is raw, the other is private ({described}, {features:.0f} on average;"
        f" seed {one.seed}). The homography between them is found with"
        f" at most {stated.get('iterations'):,} iterations at {stated.get('pixels'):g} px. Numbers are means a pair.\n",
        "- epsilon: of one descriptor; epsilon an image: what it adds up to over the private features of an image."
        " Sums of thousands bound nothing that matters about a whole image.\n"
        "- P(true sent): probability that the true word (raw, naive: the true descriptor) is among what is sent.\n"
        "- candidates: matches that go into the verification; right %: share of them within 5 px of the truth.\n"
        "- inliers: private features that agree with the homography; right inliers: those within 5 px of the truth.\n"
        "- correct %: pairs whose homography puts the corners of image 1 within 5 px of the truth on average.\n",
    ]
    for name, chosen in tables_of(rows).items():
        parts.append(f"## {_title(name, records)}\n\n{markdown_table(COLUMNS, chosen)}")
    return "\n".join(parts)


def _title(name: str, records: Sequence[Record]) -> str:
    digest = next((r.parameters["codebook"] for r in records if r.parameters.get("codebook_name") == name), None)
    return f"Codebook {name}, digest {digest}" if digest else "Without a codebook"


def _screen(rows: Sequence[WordsRow]) -> Group:
    """A table for each codebook and rule."""
    parts: list[Text | Table] = []
    for name, chosen in tables_of(rows).items():
        free = [row for row in chosen if row.codebook is None]
        for rule in dict.fromkeys(row.rule for row in chosen if row.codebook is not None):
            private = [row for row in chosen if row.codebook is not None and row.rule == rule]
            parts += [heading(f"{name}, rule {rule}"), screen_table(COLUMNS, [*free, *private]), Text("")]
    return Group(*parts[:-1])


_MEASURES: tuple[tuple[str, Callable[[WordsRow], float]], ...] = (
    ("pairs with a correct homography (%)", lambda row: 100 * row.correct),
    ("right inliers a pair", lambda row: row.right_inliers),
)


def draw(rows: Sequence[WordsRow], path: str | Path, title: str = "") -> None:
    """Write the curves of `rows` as a PNG to `path`: solid for rule vocabulary, dotted for nearest.

    Raises MissingExtraError without matplotlib.
    """
    tables = tables_of(rows)
    figure = blank_figure(3.1 * len(tables) + 2.6, 6.2)
    styles = _styles(rows)
    panels = figure.subplots(len(_MEASURES), len(tables), sharex=True, sharey="row", squeeze=False)
    for column, (name, chosen) in enumerate(tables.items()):
        panels[0, column].set_title(name, fontsize=10, fontweight="bold")
        for line, (_, measure) in enumerate(_MEASURES):
            _panel(panels[line, column], chosen, measure, styles)
    for line, (label, _) in enumerate(_MEASURES):
        panels[line, 0].set_ylabel(label, fontsize=9)
        panels[line, 0].set_ylim(bottom=0)
    panels[0, 0].set_ylim(-3, 103)
    sizes = sorted({row.subset_size for row in rows if row.subset_size is not None}) or [1]
    panels[0, 0].set_xscale("log", base=2)
    panels[0, 0].set_xticks(sizes, [str(size) for size in sizes])
    handles, labels = panels[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside right center", frameon=False, fontsize=9)
    figure.supxlabel("words sent for each descriptor (k)", fontsize=10)
    write_figure(figure, path, title)


def _styles(rows: Sequence[WordsRow]) -> dict[float, dict[str, Any]]:
    """Colour, marker and label of each epsilon, the same in every panel."""
    images = {row.epsilon: row.image_epsilon for row in rows if row.mechanism == "subset" and row.epsilon is not None}
    return {
        epsilon: {
            "color": colour,
            "marker": MARKERS[place % len(MARKERS)],
            "label": f"epsilon {epsilon:g}\n({images[epsilon]:,.0f} an image)",
        }
        for place, (epsilon, colour) in enumerate(zip(sorted(images), shades(len(images)), strict=True))
    }


def _panel(
    panel: "Axes",
    rows: Sequence[WordsRow],
    measure: Callable[[WordsRow], float],
    styles: dict[float, dict[str, Any]],
) -> None:
    for row in rows:
        # On top: a curve that equals a level must not hide it. Quantised words by rule nearest are in the table only.
        if row.mechanism in LEVELS and (row.mechanism == "raw" or row.rule == "vocabulary"):
            looks: dict[str, Any] = {"linestyle": "--", "linewidth": 1.4, "zorder": 3}
            panel.axhline(measure(row), label=row.mechanism, color=LEVELS[row.mechanism], **looks)
    for epsilon, style in reversed(styles.items()):
        for rule in RULES:
            chosen = sorted(
                (row.subset_size, measure(row))
                for row in rows
                if (row.mechanism, row.epsilon, row.rule) == ("subset", epsilon, rule) and row.subset_size is not None
            )
            looks = {"linewidth": 1.6, "markersize": 4.5, **style}
            if rule == "nearest":
                looks |= {"linestyle": ":", "markerfacecolor": "white", "label": "_"}
            if chosen:
                panel.plot(*zip(*chosen, strict=True), **looks)
    if any(row.mechanism == "subset" and row.rule == "nearest" for row in rows):
        panel.plot([], [], color="black", linestyle=":", label="dotted: by rule nearest")
    quiet(panel)


BENCH = Bench(
    "words",
    words,
    measure=measure,
    key=("scene", "scheme", "codebook", "rule", "image"),
    metric=", ".join(MATCHED),
    unit=MATCHED_UNIT,
    rows=rows_of,
    text=_text,
    screen=_screen,
    figures={CURVE: draw},
    title=lambda record: f"Word sets on {record.dataset}, {record.parameters['kind']}",
    named=("mechanism", "epsilon", "rule", "sent", "features"),
    length=len(MATCHED),
)
