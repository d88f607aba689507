"""Face templates measured as ISO/IEC 24745 asks: irreversible, unlinkable, renewable.

unlinkability:   D_sys (Gomez-Barrero et al. 2018) of templates of two photographs of one person, lifted independently,
                 against those of two people; by each score that a linker may use, of which the worst counts.
irreversibility: how far the best attack comes to the descriptor, and how often its guess is accepted as that person.
renewability:    D_sys of a template and the one that replaced it after it was revoked: from another photograph, or,
                 the worst case, from the same one.
The attacker's own faces and those that others are hidden among are two halves of one set; `database` and `unmix` are
given the latter.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, partial
from pathlib import Path

import numpy as np

from featveil.attacks import ATTACKS, Knowledge, attack
from featveil.attacks.subspaces import central
from featveil.core import Flats, Guarantee, InputError, Points, PrivateFeatures, Spec
from featveil.core.arrays import Float32, Float64, Integers
from featveil.core.options import option
from featveil.core.records import Record
from featveil.core.seeding import generator
from featveil.databases import Database
from featveil.distances import pair_distances
from featveil.lab.bench import (
    CURVE,
    Bench,
    Case,
    Column,
    Measured,
    Progress,
    Study,
    markdown_table,
    refuse_none,
    screen_table,
    seed_option,
)
from featveil.lab.face_parts.face_studies import (
    DIMENSIONS,
    DIMENSIONS_HELP,
    FAR,
    RAW,
    STRATEGIES_HELP,
    FaceScheme,
    TestedFaces,
    Verification,
    apart_from,
    lifting_database,
    make_schemes,
    raw_threshold,
    strategy_and_dimension,
)
from featveil.metrics.unlinkability import global_unlinkability
from featveil.pipelines.face_parts.face_templates import HARDENED, halves
from featveil.plotting.figures import MARKERS, blank_figure, quiet, shades, write_figure

LINKERS = ("distance", "centres", "unmixed")
REVERSERS = ("mean", "nearest", "database", "unmix")

_TASK = "face-protection"
_LINKED, _LEAST_FREE, _REVERSED = "unlinkability", "renewed, same photograph", "irreversibility"
_UNITS = {
    _REVERSED: ("distance, verified", "distance, share"),
    _LINKED: ("global unlinkability", "D_sys"),
    _LEAST_FREE: ("global unlinkability", "D_sys"),
}
_CROWDED = 0.9  # from here on points lie on each other
_BESIDE = ((-11, 5), (6, -9))


@dataclass(frozen=True)
class Options(TestedFaces):
    """Whose templates are measured, and under which schemes."""

    strategies: tuple[str, ...] = option(("random", "adversarial", "hybrid", HARDENED), help=STRATEGIES_HELP)
    dimensions: tuple[int, ...] = option(DIMENSIONS, help=DIMENSIONS_HELP)
    seed: int = seed_option()

    def __post_init__(self) -> None:
        refuse_none(self, "strategies", "dimensions")


def protection(options: Options, progress: Progress) -> Study["Protected"]:
    """Unlinkability (D_sys), irreversibility and renewability of private templates.

    Stop it with Ctrl-C at any time: the same command goes on where it stopped (from OUT/records.jsonl).

    Example: featveil bench faces protection lfw.npz --pairs pairs.txt --others utk.npz --out results/
    """
    return study(options.load(options.seed), make_schemes(options.strategies, options.dimensions))


def study(tested: Verification, schemes: Sequence[FaceScheme]) -> Study["Protected"]:
    """Every measure of every scheme, by every attack that it faces."""
    return Study(partial(_cases, tested, schemes), {**tested.shared(), "far": FAR}, tested.seed, tested.name)


def _cases(tested: Verification, schemes: Sequence[FaceScheme]) -> Iterator[Case["Protected"]]:
    for scheme in schemes:
        templates = cache(partial(_Templates, tested, scheme))
        for measured, by in _figures(scheme):
            stated = {"measure": measured, "by": by, **scheme.parameters()}
            metric, unit = _UNITS[measured]
            yield Case(scheme.name, stated, Protected(templates, measured, by), attack=by, metric=metric, unit=unit)


def _figures(scheme: FaceScheme) -> list[tuple[str, str]]:
    """Measure and attack. Points are read; whoever has no confounders, or none that are known, is not unmixed."""
    known = scheme.confounders_are_known
    linkers = [one for one in LINKERS if one != "unmixed" or known]
    reversers = [one for one in REVERSERS if one not in ("database", "unmix") or known]
    if scheme.strategy == RAW:
        linkers, reversers = ["distance"], ["read"]
    return [
        *((_REVERSED, one) for one in reversers),
        *((measured, one) for measured in (_LINKED, _LEAST_FREE) for one in linkers),
    ]


@dataclass(frozen=True, eq=False)
class _Side:
    """Templates of photographs, each lifted once for this side."""

    rows: Integers
    seen: Flats

    def place(self, rows: Integers) -> Integers:
        """Where the templates of `rows` are."""
        return np.searchsorted(self.rows, rows)


class _Templates:
    """Two independent sides of templates of all photographs that are in pairs, under one scheme."""

    def __init__(self, tested: Verification, scheme: FaceScheme) -> None:
        self.tested, self.scheme = tested, scheme
        self.rng = generator(tested.seed, _TASK, scheme.name)
        others = apart_from(tested.others, tested.tested)
        lifting, own = halves(others, generator(tested.seed, "halves"))
        self.database: Database = lifting_database(lifting, None, generator(tested.seed, "database"))
        self.own: Database = lifting_database(own, None, generator(tested.seed, "database"))
        used = np.unique(np.concatenate([tested.pairs.first, tested.pairs.second]))
        self.sides = [_Side(used, self._hide(used)) for _ in range(2)]

    @cached_property
    def threshold(self) -> float:
        """The raw distance up to which two photographs are one person."""
        return raw_threshold(self.tested.faces, self.tested.pairs)

    def linked(self, measured: str, by: str) -> tuple[float, int]:
        """D_sys by one score; where the same photograph is lifted again, mated are its two templates."""
        pairs = self.tested.pairs
        scores = self._scores(by, pairs.first, pairs.second)
        mated = scores[pairs.same]
        if measured == _LEAST_FREE:
            again = pairs.first[pairs.same]
            mated = self._scores(by, again, again)
        return global_unlinkability(mated, scores[~pairs.same]), len(scores)

    def _scores(self, by: str, first: Integers, second: Integers) -> Float64:
        one, two = self.sides
        i, j = one.place(first), two.place(second)
        if by == "distance":
            return pair_distances(one.seen, two.seen, i, j)
        a, b = (_unit(self._points(side.seen, by)) for side in (one, two))
        return np.asarray((a[i] * b[j]).sum(axis=1))

    def _points(self, seen: Flats, by: str) -> Float64:
        """A point for each template: its own, that nearest the origin, or what unmixing gives."""
        if isinstance(seen, Points):
            return seen.values.astype(np.float64)
        if by == "centres":
            return central(seen, self.database.kind)
        return self._guess(seen, "unmix").astype(np.float64)

    def reversed(self, by: str) -> tuple[tuple[float, float], int]:
        """Mean distance of the guess for the first of each mated pair, and how often it passes for the second."""
        pairs, values, side = self.tested.pairs, self.tested.faces.values, self.sides[0]
        first, second = pairs.first[pairs.same], pairs.second[pairs.same]
        chosen = np.unique(first)
        guess = _unit(self._guess(side.seen.take(side.place(chosen)), by).astype(np.float64))
        place = np.searchsorted(chosen, first)
        away = np.linalg.norm(guess - values[chosen], axis=1)
        passes = np.linalg.norm(guess[place] - values[second], axis=1) <= self.threshold
        return (float(away.mean()), float(passes.mean())), len(first)

    def _guess(self, seen: Flats, by: str) -> Float32:
        private = PrivateFeatures(seen, self.database.kind, self._spec(), Guarantee("empirical"))
        known = Knowledge(database=self.own, lifting_database=self.database)
        return attack(private, ATTACKS[by](), known, self.rng).values

    def _spec(self) -> Spec:
        if self.scheme.strategy in (RAW, HARDENED):
            return {"name": self.scheme.strategy}
        return self.scheme.lifting(self.database).spec()

    def _hide(self, rows: Integers) -> Flats:
        return self.scheme.hide(self.tested.faces.values[rows], self.database, self.rng)


def _unit(values: Float64) -> Float64:
    return np.asarray(values / np.maximum(np.linalg.norm(values, axis=1, keepdims=True), 1e-12))


@dataclass(frozen=True, eq=False)
class Protected:
    """The templates of a scheme, and what is measured of them by which attack."""

    templates: Callable[[], _Templates]
    measured: str
    by: str


def measure(protected: Protected) -> Measured:
    """D_sys; or how far a guess is from the descriptor, and the share of guesses that pass for the person."""
    templates = protected.templates()
    if protected.measured == _REVERSED:
        pair, count = templates.reversed(protected.by)
        return Measured((round(pair[0], 6), round(pair[1], 6)), count, {"threshold": templates.threshold})
    value, count = templates.linked(protected.measured, protected.by)
    return Measured(round(value, 6), count, {"threshold": templates.threshold})


@dataclass(frozen=True)
class ProtectionRow:
    """One scheme: by the worst linker and the best attack.

    `linked` and `renewed` are D_sys with another and with the same photograph, with the score that links best.
    """

    strategy: str
    dimension: int
    linked: float
    linked_by: str
    renewed: float
    renewed_by: str
    distance: float
    verified: float
    reversed_by: str
    pairs: int


COLUMNS: tuple[Column[ProtectionRow], ...] = (
    Column("scheme", lambda row: row.strategy, left=True),
    Column("m", lambda row: str(row.dimension or "")),
    Column("linked", lambda row: f"{row.linked:.2f}"),
    Column("by", lambda row: row.linked_by, left=True),
    Column("renewed", lambda row: f"{row.renewed:.2f}"),
    Column("by ", lambda row: row.renewed_by, left=True),
    Column("distance", lambda row: f"{row.distance:.2f}"),
    Column("passes", lambda row: f"{100 * row.verified:.1f}"),
    Column("by  ", lambda row: row.reversed_by, left=True),
)


def rows_of(records: Sequence[Record]) -> list[ProtectionRow]:
    """One row for each scheme whose three measures are there, in the order of the records."""
    groups: dict[tuple[str, int], dict[str, list[Record]]] = {}
    for record in records:
        measures = groups.setdefault(strategy_and_dimension(record), {})
        measures.setdefault(str(record.parameters["measure"]), []).append(record)
    return [_row(*group, measures) for group, measures in groups.items() if len(measures) == 3]


def _row(strategy: str, dimension: int, measures: dict[str, list[Record]]) -> ProtectionRow:
    linked, renewed = (_worst(measures[name]) for name in (_LINKED, _LEAST_FREE))
    best = max(measures[_REVERSED], key=lambda one: _pair(one)[1])
    return ProtectionRow(
        strategy,
        dimension,
        *linked,
        *renewed,
        *_pair(best),
        str(best.attack),
        max(one.count for one in measures[_LINKED]),
    )


def _worst(records: Sequence[Record]) -> tuple[float, str]:
    worst = max(records, key=lambda one: float(str(one.value)))
    return float(str(worst.value)), str(worst.attack)


def _pair(record: Record) -> tuple[float, float]:
    if not isinstance(record.value, tuple) or len(record.value) != 2:
        raise InputError("a record of irreversibility lacks its two values: the file is damaged")
    return record.value[0], record.value[1]


def _text(rows: Sequence[ProtectionRow], records: Sequence[Record]) -> str:
    one = records[0]
    return "\n".join(
        [
            f"# Template protection on {one.dataset}\n",
            f"{one.parameters.get('pairs'):,} pairs, seed {one.seed}. linked: D_sys of templates of two photographs of"
            " one person, lifted independently (0: never linked, 1: always), by the score that links best. renewed: the"
            " same where both templates are of one photograph, the worst case of a template that replaces a revoked"
            " one; with another photograph it is as in linked. distance: of the best attack's guess from the hidden"
            " descriptor (two strangers: 1.41). passes: guesses that are accepted as that person in place of a raw"
            " descriptor, in percent, where one pair of strangers in 1,000 is; best attack by this share. distance"
            " (linker): of two subspaces; centres: cosine of their points nearest the origin; unmixed: that of what is"
            " left without known confounders.\n",
            markdown_table(COLUMNS, rows),
        ]
    )


def draw(rows: Sequence[ProtectionRow], path: str | Path, title: str = "") -> None:
    """Share of guesses that pass over D_sys: the lower left is protected."""
    figure = blank_figure(7.6, 4.6)
    panel = figure.subplots()
    strategies = list(dict.fromkeys(row.strategy for row in rows))
    for place, (strategy, colour) in enumerate(zip(strategies, shades(len(strategies)), strict=True)):
        chosen = [row for row in rows if row.strategy == strategy]
        looks = {"marker": MARKERS[place % len(MARKERS)], "color": colour, "markersize": 6, "linewidth": 1.0}
        panel.plot([row.linked for row in chosen], [100 * row.verified for row in chosen], label=strategy, **looks)
        for row in chosen:
            if row.linked < _CROWDED:
                where = row.linked, 100 * row.verified
                panel.annotate(str(row.dimension), where, _BESIDE[place % 2], textcoords="offset points", fontsize=7)
    panel.set_xlim(-0.02, 1.03)
    panel.set_ylim(-3, 104)
    panel.set_xlabel("templates of one person are linked (D_sys)", fontsize=9)
    panel.set_ylabel("recovered descriptors that verify (%)", fontsize=9)
    quiet(panel)
    names = {"title": "numbers: dimension", "title_fontsize": 8, "fontsize": 9}
    figure.legend(loc="outside right center", frameon=False, **names)
    write_figure(figure, path, title)


BENCH = Bench(
    "faces protection",
    protection,
    task=_TASK,
    measure=measure,
    key=("scheme", "measure", "by"),
    rows=rows_of,
    text=_text,
    screen=partial(screen_table, COLUMNS),
    figures={CURVE: draw},
    title=lambda record: f"Template protection on {record.dataset}",
    named=("measure", "strategy", "dimension"),
)
