"""Repeated authentication (Dusmanu et al. 2021, section 5): what a history of private templates gives away.

A person enrolls and then logs in, each time from another photograph; whoever keeps the templates puts them together.
raw:        nothing is lifted: what the photographs themselves give.
fresh:      each template is lifted anew.
keyed:      a key of the enrolment draws the same confounders and random directions each time.
parallel:   each login is lifted along the directions of the enrolment; `parallel-S` turns them by about S radians.
Measured: how far the attacker's descriptor is from the person's mean over all photographs but one, whether it is
accepted as that person on the one, in place of a raw descriptor, and whether such logins are still verified.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, partial
from pathlib import Path

import numpy as np
from rich.table import Table

from featveil.attacks.on_faces.logins import Population, meeting_point, varying_part
from featveil.core import InputError, Points, Subspaces
from featveil.core.arrays import Float32, Float64, Integers
from featveil.core.keyed import SECRET_BYTES, KeyedRandomness
from featveil.core.options import option
from featveil.core.records import Parameter, Record
from featveil.core.seeding import check_seed, generator
from featveil.databases import Database
from featveil.datasets.face_pairs import FacePairs
from featveil.datasets.face_sets import FaceSet
from featveil.defenses.parallel import parallel
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
    STRATEGIES_HELP,
    FaceScheme,
    TestedFaces,
    apart_from,
    check_described_alike,
    lifting_database,
    make_schemes,
    raw_threshold,
    strategy_and_dimension,
    without,
)
from featveil.metrics.error_rates import error_rates
from featveil.plotting.figures import MARKERS, blank_figure, quiet, write_figure

COUNTS = (1, 2, 3, 5, 10)
RAW_MODE = "raw"
MODES = (RAW_MODE, "fresh", "keyed", "parallel", "parallel-0.03", "parallel-0.1", "parallel-0.3")
ATTACKS = ("meeting", "varying")

_TASK = "face-logins"


@dataclass(frozen=True)
class Options(TestedFaces):
    """Who logs in how often, and how logins are hidden."""

    counts: tuple[int, ...] = option(COUNTS, help="Numbers of templates that the attacker has.")
    modes: tuple[str, ...] = option(
        MODES, help="How logins are hidden: raw, fresh, keyed, parallel, or parallel-0.03, -0.1, -0.3."
    )
    strategies: tuple[str, ...] = option(("hybrid",), help=STRATEGIES_HELP)
    dimensions: tuple[int, ...] = option(DIMENSIONS, help=DIMENSIONS_HELP)
    seed: int = seed_option()

    def __post_init__(self) -> None:
        refuse_none(self, "counts", "modes", "strategies", "dimensions")


def logins(options: Options, progress: Progress) -> Study["Guessed"]:
    """What a history of private logins gives away, and whether keyed or parallel templates help.

    Stop it with Ctrl-C at any time: the same command goes on where it stopped (from OUT/records.jsonl).

    Example: featveil bench faces logins lfw.npz --pairs pairs.txt --others utk.npz --out results/
    """
    tested = options.load(options.seed)
    people = Visitors(tested.name, tested.faces, tested.pairs, tested.others, options.counts, options.seed)
    return study(people, make_schemes(options.strategies, options.dimensions)[1:], options.modes)


@dataclass(frozen=True, eq=False)
class Visitors:
    """Who logs in: everyone of `faces` with enough photographs, one of them kept to verify the attacker's guess by.

    `pairs` of the same faces say which distance is one person at a FAR of 0.001. Logins are hidden among `others`.
    """

    name: str
    faces: FaceSet
    pairs: FacePairs
    others: FaceSet
    counts: tuple[int, ...] = COUNTS
    seed: int = 0

    def __post_init__(self) -> None:
        check_seed(self.seed)
        check_described_alike(self.faces, self.others)
        if not self.counts or min(self.counts) < 1:
            raise InputError("a study of logins needs at least one of them")
        if len(self.rows) < 2:
            raise InputError(f"nobody has the {max(self.counts) + 1} photographs that this many templates need")

    @cached_property
    def rows(self) -> Integers:
        """Photographs of each person (p, most + 1): an enrolment, logins, and one that nobody has seen."""
        wanted = max(self.counts) + 1
        _, person, counts = np.unique(self.faces.people, return_inverse=True, return_counts=True)
        rng = generator(self.seed, _TASK, "photographs")
        chosen = [rng.permutation(np.flatnonzero(person == one))[:wanted] for one in np.flatnonzero(counts >= wanted)]
        return np.array(chosen, np.int64).reshape(len(chosen), wanted)

    @cached_property
    def database(self) -> Database:
        """Faces of others."""
        others = without(self.others, self.faces.take(self.rows[:, 0]))
        return lifting_database(apart_from(others, without(self.faces, others)), None, generator(self.seed, "database"))

    @cached_property
    def population(self) -> Population:
        """What is known of faces in general: from everyone who is not a victim."""
        victims = np.isin(self.faces.people, self.faces.people[self.rows[:, 0]])
        return Population.of(self.faces.values[~victims], self.faces.people[~victims])

    @cached_property
    def threshold(self) -> float:
        """The raw distance up to which two photographs are one person."""
        return raw_threshold(self.faces, self.pairs)

    def shared(self) -> dict[str, Parameter]:
        """Settings that all records of a file have."""
        return {"people": len(self.rows), "far": FAR, "others": len(self.others)}


def study(people: Visitors, schemes: Sequence[FaceScheme], modes: Sequence[str]) -> Study["Guessed"]:
    """Every number of logins under every scheme and mode, by every attack."""
    for mode in modes:
        if mode not in MODES:
            raise InputError(f"unknown mode {mode!r:.80}: use one of {', '.join(MODES)}")
    return Study(partial(_cases, people, schemes, modes), people.shared(), people.seed, people.name)


def _cases(people: Visitors, schemes: Sequence[FaceScheme], modes: Sequence[str]) -> Iterator[Case["Guessed"]]:
    for scheme in schemes:
        for mode in modes:
            history = cache(partial(_History, people, scheme, mode))
            for count in people.counts:
                for attack in ATTACKS[:1] if mode == RAW_MODE else ATTACKS:
                    stated = {"mode": mode, "logins": count, **scheme.parameters()}
                    yield Case(scheme.name, stated, Guessed(history, count, attack), attack=attack)


class _History:
    """Templates of everyone under one scheme and mode: row i of each belongs to person i."""

    def __init__(self, people: Visitors, scheme: FaceScheme, mode: str) -> None:
        self.people, self.scheme, self.mode = people, scheme, mode
        self.rng = generator(people.seed, _TASK, scheme.name, mode)
        self.secret = self.rng.bytes(SECRET_BYTES)
        self.lifting = scheme.lifting(people.database)
        self.enrolled = self._lifted(self._photographs(0))

    @cached_property
    def templates(self) -> list[Subspaces]:
        """Of all enrolments, then of all logins."""
        columns = range(1, max(self.people.counts))
        return [self.enrolled, *(self._login(self._photographs(column)) for column in columns)]

    @cached_property
    def true_accept_rate(self) -> float:
        """Of first logins against enrolments, both private, at a FAR of 0.001: strangers log in in everyone's place.

        A stranger sits at the device of whom it claims to be, so that what that device keeps lifts it too.
        """
        n, photographs = len(self.people.rows), self._photographs(1)
        if self.mode == RAW_MODE:
            own = self._photographs(0)
            away = np.linalg.norm(own[:, None] - photographs[None], axis=2)
            return error_rates(away.ravel(), np.eye(n, dtype=np.bool_).ravel()).true_accept_rate(FAR)
        rows, distances = np.arange(n), []
        for shift in range(n):
            probes = self._login(np.roll(photographs, -shift, axis=0))
            distances.append(pair_distances(self.enrolled, probes, rows, rows))
        mated = np.repeat(rows == 0, n)  # those of the shift by nobody
        # Whatever is nearer than rounding is as near as can be.
        return error_rates(np.concatenate(distances).round(5), mated).true_accept_rate(FAR)

    def guess(self, count: int, attack: str) -> Float64:
        """What an attack makes of the first `count` templates of everyone."""
        if self.mode == RAW_MODE:
            photographs = [self._photographs(column) for column in range(count)]
            return np.asarray(np.mean(photographs, axis=0, dtype=np.float64))
        seen = self.templates[:count]
        met = meeting_point(seen, self.people.population)
        if attack == "meeting":
            return met
        values, known = varying_part(seen, self.people.population)
        return np.where(known[:, None], values, met)

    def _photographs(self, column: int) -> Float32:
        return self.people.faces.values[self.people.rows[:, column]]

    def _lifted(self, values: Float32) -> Subspaces:
        draws = KeyedRandomness(self.secret, "enrolment") if self.mode == "keyed" else self.rng
        return self.lifting.privatize(Points(values), draws)

    def _login(self, values: Float32) -> Subspaces:
        """What the devices of everyone make of `values` (p, d), a photograph at each."""
        if not self.mode.startswith("parallel"):
            return self._lifted(values)
        return parallel(Points(values), self.enrolled, self.rng, float(self.mode.partition("-")[2] or 0))


@dataclass(frozen=True, eq=False)
class Guessed:
    """The descriptors of everyone, as an attack guesses them from `count` templates."""

    history: Callable[[], _History]
    count: int
    attack: str


def measure(guessed: Guessed) -> Measured:
    """The mean distance of the guess from the mean login, and the share of guesses that verify."""
    history = guessed.history()
    people = history.people
    guess = _unit(history.guess(guessed.count, guessed.attack))
    everything = people.faces.values[people.rows[:, :-1]].astype(np.float64)
    away = np.linalg.norm(guess - _unit(everything.mean(axis=1)), axis=1)
    unseen: Float32 = people.faces.values[people.rows[:, -1]]
    verified = np.linalg.norm(guess - unseen, axis=1) <= people.threshold
    value = round(float(away.mean()), 6), round(float(verified.mean()), 6)
    return Measured(value, len(guess), {"true_accept_rate": round(history.true_accept_rate, 6)})


def _unit(values: Float64) -> Float64:
    return np.asarray(values / np.linalg.norm(values, axis=1, keepdims=True))


@dataclass(frozen=True)
class LoginRow:
    """What the better of the attacks makes of some logins: its `distance` from the truth, and how often it passes."""

    strategy: str
    dimension: int
    mode: str
    logins: int
    attack: str
    distance: float
    verified: float
    true_accept_rate: float
    people: int


@dataclass(frozen=True)
class _Line:
    """A scheme and mode, with its row of each number of logins."""

    strategy: str
    dimension: int
    mode: str
    rows: dict[int, LoginRow]

    @property
    def true_accept_rate(self) -> float:
        return next(iter(self.rows.values())).true_accept_rate

    def cell(self, count: int) -> str:
        """Distance, and in brackets the share that passes."""
        row = self.rows.get(count)
        return "-" if row is None else f"{row.distance:.2f} ({100 * row.verified:.0f})"


_COLUMNS: tuple[Column[_Line], ...] = (
    Column("scheme", lambda line: line.strategy, left=True),
    Column("m", lambda line: str(line.dimension)),
    Column("lifted", lambda line: line.mode, left=True),
    Column("TAR", lambda line: f"{100 * line.true_accept_rate:.1f}"),
)


def columns_and_lines(rows: Sequence[LoginRow]) -> tuple[list[Column[_Line]], list[_Line]]:
    """A line for each scheme and mode, a column for each number of logins."""
    groups: dict[tuple[str, int, str], dict[int, LoginRow]] = {}
    for row in rows:
        groups.setdefault((row.strategy, row.dimension, row.mode), {})[row.logins] = row
    counts = sorted({row.logins for row in rows})
    counted = [Column(f"{n} template{'s' * (n > 1)}", partial(_Line.cell, count=n)) for n in counts]
    return [*_COLUMNS, *counted], [_Line(*group, members) for group, members in groups.items()]


def rows_of(records: Sequence[Record]) -> list[LoginRow]:
    """One row for each scheme, mode and number of logins: the attack that comes nearest."""
    groups: dict[tuple[str, int, str, int], list[LoginRow]] = {}
    for record in records:
        stated = record.parameters
        if not isinstance(record.value, tuple):
            raise InputError("a record of repeated logins has two values: this file is damaged")
        group = *strategy_and_dimension(record), str(stated["mode"]), int(str(stated["logins"]))
        rate, count = float(str(stated["true_accept_rate"])), record.count
        row = LoginRow(*group, str(record.attack), record.value[0], record.value[1], rate, count)
        groups.setdefault(group, []).append(row)
    return [min(rows, key=lambda row: row.distance) for rows in groups.values()]


def _text(rows: Sequence[LoginRow], records: Sequence[Record]) -> str:
    one = records[0]
    return "\n".join(
        [
            f"# Repeated logins of people in {one.dataset}\n",
            f"{one.parameters.get('people')} people, each template from another photograph (seed {one.seed}). Under"
            " the number of templates, the enrolment being the first: how far the attacker's descriptor is from the"
            " person's mean (by the better of two attacks), and in brackets how many in 100 are accepted as that person"
            " in place of a raw descriptor, at a threshold that accepts one pair of strangers in 1,000. TAR: logins"
            " that are accepted against the enrolment, both private, in percent, where one stranger in 1,000 is who"
            " sits at the device of whom it claims to be.\n",
            markdown_table(*columns_and_lines(rows)),
        ]
    )


def _screen(rows: Sequence[LoginRow]) -> Table:
    return screen_table(*columns_and_lines(rows))


def draw(rows: Sequence[LoginRow], path: str | Path, title: str = "") -> None:
    """The attacker's distance over the number of logins, a panel for each scheme and a curve for each mode."""
    schemes = list(dict.fromkeys((row.strategy, row.dimension) for row in rows))
    modes = list(dict.fromkeys(row.mode for row in rows))
    figure = blank_figure(2.7 * len(schemes) + 1.6, 3.6)
    panels = figure.subplots(1, len(schemes), sharey=True, squeeze=False)[0]
    for panel, (strategy, dimension) in zip(panels, schemes, strict=True):
        for place, mode in enumerate(modes):
            chosen = [row for row in rows if (row.strategy, row.dimension, row.mode) == (strategy, dimension, mode)]
            panel.plot(
                [row.logins for row in chosen],
                [row.distance for row in chosen],
                marker=MARKERS[place],
                markersize=5,
                label=mode,
            )
        panel.set_title(f"{strategy}, m = {dimension}", fontsize=9)
        panel.set_xscale("log")
        panel.set_xticks(sorted({row.logins for row in rows}), [str(n) for n in sorted({row.logins for row in rows})])
        panel.minorticks_off()
        panel.set_ylim(0, 1.45)
        quiet(panel)
    panels[0].set_ylabel("attacker's distance from the truth", fontsize=9)
    figure.supxlabel("templates that the attacker has", fontsize=9)
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside right center", frameon=False, fontsize=8)
    write_figure(figure, path, title)


BENCH = Bench(
    "faces logins",
    logins,
    task=_TASK,
    measure=measure,
    key=("scheme", "mode", "logins", "attack"),
    metric="distance, verified",
    unit="distance, share",
    rows=rows_of,
    text=_text,
    screen=_screen,
    figures={CURVE: draw},
    title=lambda record: f"Repeated logins of people in {record.dataset}",
    named=("strategy", "dimension", "mode", "logins", "true_accept_rate"),
    length=2,
)
