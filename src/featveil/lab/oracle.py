"""The oracle attack's curve (Dusmanu et al. 2021, supplement C, figure 6): distance from the truth over K.

The K entries of the attacker's database nearest to a subspace, the one of them that is closest to the hidden
descriptor, plain and projected to the subspace. Beside it chance, a random entry of the same database.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from operator import itemgetter
from pathlib import Path
from statistics import fmean
from typing import Any

from rich.table import Table

from featveil.attacks.oracle import OracleCurve, oracle_curve, usual_neighbours
from featveil.audit.schemes import Scheme
from featveil.audit.victims import own_database, read_victims
from featveil.core import Features, InputError, Subspaces
from featveil.core.options import argument, option
from featveil.core.records import Parameter, Record
from featveil.core.resuming import Report
from featveil.core.seeding import image_generator
from featveil.databases import Database
from featveil.defenses import Lifting
from featveil.lab.bench import (
    CURVE,
    Bench,
    Case,
    Column,
    Measured,
    Progress,
    Study,
    features_option,
    markdown_table,
    out_option,
    refuse_none,
    screen_table,
    seed_option,
)
from featveil.lab.scene_studies import lifted, lifting_parameters
from featveil.plotting.figures import blank_figure, quiet, shades, write_figure

GUESSES = ("plain", "projected", "chance")


@dataclass(frozen=True)
class Options:
    """How many photographs and features are attacked, how they are lifted, and what the attacker has."""

    victims: Path = argument(help="Folder of photographs to attack.")
    database: tuple[Path, ...] = option(
        help="The attacker's: a database file, or a folder of photographs; may be repeated.", repeated=True
    )
    out: Path = out_option()
    dimension: int = option(2, help="Subspace dimension.")
    strategy: str = option("sub-hybrid", help="Lifting strategy.")
    database_size: int = option(131_072, help="Descriptors to draw from the attacker's photographs.")
    images: int = option(10, help="Photographs to attack, evenly spaced.")
    max_features: int = features_option(1000)
    kinds: tuple[str, ...] = option(("sift",), help="Descriptor kinds, separated by commas.")
    seed: int = seed_option()

    def __post_init__(self) -> None:
        refuse_none(self, "kinds")


def oracle(options: Options, progress: Progress) -> Study["Curve"]:
    """Mean distance from the truth of the best of the K database entries nearest to a subspace, for K up to all.

    Stop it with Ctrl-C at any time: the same command goes on where it stopped (from OUT/records.jsonl).

    Example: featveil bench oracle holidays/ --database places/ --out results/ --kinds sift,rootsift
    """
    with progress("images") as report:
        targets = make_targets(options, report)
    return study(options.victims.resolve().name, targets, options.max_features, options.seed)


@dataclass(frozen=True, eq=False)
class Target:
    """Features of one kind by photograph, how they are lifted, and the database of the attacker."""

    kind: str
    victims: Mapping[str, Features]
    scheme: Scheme
    database: Database

    def parameters(self) -> dict[str, Parameter]:
        """Lifting, the attacker's database, and the K that its curve has."""
        stated: dict[str, Parameter] = {"kind": self.kind, **lifting_parameters(self.scheme)}
        stated |= {"own_database": self.database.digest[:16], "own_size": len(self.database)}
        return stated | {"neighbours": usual_neighbours(len(self.database))}

    def lifted(self, image: str, seed: int) -> Subspaces:
        """The private descriptors of a photograph, in the order of the raw ones."""
        lifting = self.scheme.defense
        if not isinstance(lifting, Lifting):
            raise InputError("the oracle attack is on lifted descriptors")
        rng = image_generator(seed, f"{self.kind}/{image}", 1, self.scheme.name)
        return lifting.privatize(self.victims[image].descriptors, rng)


def make_targets(options: Options, report: Report = lambda done, total: None) -> list[Target]:
    """Victims and the attacker's database for each kind.

    `report` is called with photographs (done, total), once for each folder. Raises InputError for what cannot be read
    or lifted.
    """
    targets: list[Target] = []
    for kind in dict.fromkeys(options.kinds):
        (scheme,) = lifted(kind, [options.dimension], [options.strategy])
        victims = read_victims(options.victims, kind, options.images, options.max_features, report)
        database = own_database(options.database, kind, options.database_size, options.seed, report)
        targets.append(Target(kind, victims, scheme, database))
    return targets


def study(dataset: str, targets: Sequence[Target], max_features: int, seed: int) -> Study["Curve"]:
    """Every photograph of every kind, with every guess."""

    def cases() -> Iterator[Case[Curve]]:
        for target in targets:
            for image in target.victims:
                whole = _Whole(target, image, seed)
                for guess in GUESSES:
                    stated: dict[str, Parameter] = {"image": image, "guess": guess, **target.parameters()}
                    attack = "chance" if guess == "chance" else "oracle"
                    yield Case(target.scheme.name, stated, Curve(whole, guess), attack)

    return Study(cases, {"max_features": max_features}, seed, dataset)


@dataclass(frozen=True, eq=False)
class _Whole:
    """All guesses for a photograph."""

    target: Target
    image: str
    seed: int

    @cached_property
    def curve(self) -> OracleCurve:
        truth = self.target.victims[self.image].descriptors
        return oracle_curve(self.target.lifted(self.image, self.seed), self.target.database, truth)


@dataclass(frozen=True, eq=False)
class Curve:
    """One guess for a photograph."""

    whole: _Whole
    guess: str


def measure(one: Curve) -> Measured:
    """The mean distance over the features for every K, of chance a single number; and the number of features."""
    curve = one.whole.curve
    distances = getattr(curve, one.guess).mean(axis=0).round(6)
    value = float(distances) if one.guess == "chance" else tuple(distances.tolist())
    return Measured(value, len(curve.plain))


@dataclass(frozen=True)
class OracleRow:
    """Mean distance from the truth, as a share of its norm, over all features of one descriptor kind at K neighbours.

    `neighbours` is K; the last row of a kind has all of the attacker's database, the limit of the curve. `chance` is
    a random entry of that database, the same for every K.
    """

    kind: str
    scheme: str
    neighbours: int
    plain: float
    projected: float
    chance: float
    features: int
    images: int


def rows_of(records: Sequence[Record]) -> list[OracleRow]:
    """One row for each kind and K, in rising K; means over features, of all photographs together.

    Raises InputError when a photograph lacks one of its three records.
    """
    groups: dict[tuple[str, str], list[Record]] = {}
    for record in records:
        _check(record)
        groups.setdefault((str(record.parameters["kind"]), record.scheme), []).append(record)
    return [row for members in groups.values() for row in _rows(members)]


def columns_of(rows: Sequence[OracleRow]) -> list[Column[tuple[str, ...]]]:
    """K, and two columns for each kind."""
    names = ["K", *(f"{kind} {guess}" for kind in _by_kind(rows) for guess in GUESSES[:2])]
    return [Column(name, itemgetter(place), screen=name.replace(" ", "\n")) for place, name in enumerate(names)]


def lines_of(rows: Sequence[OracleRow]) -> list[tuple[str, ...]]:
    """A line of text for every K; then one for chance."""
    groups = _by_kind(rows)
    lines: list[tuple[str, ...]] = []
    for count in sorted({row.neighbours for row in rows}):
        chosen = [next((row for row in group if row.neighbours == count), None) for group in groups.values()]
        cells = [(f"{row.plain:.3f}", f"{row.projected:.3f}") if row else ("", "") for row in chosen]
        lines.append((f"{count:,}", *(cell for pair in cells for cell in pair)))
    levels = [cell for group in groups.values() for cell in (f"{group[0].chance:.3f}", "")]
    return [*lines, ("chance", *levels)]


def _by_kind(rows: Sequence[OracleRow]) -> dict[str, list[OracleRow]]:
    groups: dict[str, list[OracleRow]] = {}
    for row in rows:
        groups.setdefault(row.kind, []).append(row)
    return groups


def _check(record: Record) -> None:
    counts, guess = record.parameters["neighbours"], record.parameters["guess"]
    length = len(record.value) if isinstance(record.value, tuple) else None
    if guess not in GUESSES or not isinstance(counts, list) or length != (None if guess == "chance" else len(counts)):
        raise InputError("a record of the oracle attack lacks some of its values: the file is damaged")


def _rows(records: Sequence[Record]) -> list[OracleRow]:
    one = records[0]
    counts = one.parameters["neighbours"]
    by_guess = {guess: [record for record in records if record.parameters["guess"] == guess] for guess in GUESSES}
    images = {guess: {str(record.parameters["image"]) for record in members} for guess, members in by_guess.items()}
    if len({frozenset(names) for names in images.values()}) > 1:
        raise InputError("some photographs of these records lack a part of the curve: run the same command again")
    if not isinstance(counts, list) or any(record.parameters["neighbours"] != counts for record in records):
        raise InputError("these records are of databases of different sizes: make a table of each")

    def mean(guess: str, place: int) -> float:
        values = [
            record.value[place] if isinstance(record.value, tuple) else record.value for record in by_guess[guess]
        ]
        return fmean(values, weights=[record.count for record in by_guess[guess]])

    return [
        OracleRow(
            kind=str(one.parameters["kind"]),
            scheme=one.scheme,
            neighbours=int(str(count)),
            plain=mean("plain", place),
            projected=mean("projected", place),
            chance=mean("chance", place),
            features=sum(record.count for record in by_guess["plain"]),
            images=len(by_guess["plain"]),
        )
        for place, count in enumerate(counts)
    ]


def _text(rows: Sequence[OracleRow], records: Sequence[Record]) -> str:
    """The table, with what its columns mean."""
    one, stated = records[0], records[0].parameters
    return (
        f"# Oracle attack on {one.dataset}\n\n"
        f"{rows[0].images} photographs, {rows[0].features:,} features (at most {stated.get('max_features')} each),"
        f" lifted to subspaces of dimension {stated['dimension']} by {stated.get('strategy')} lifting; the attacker has"
        f" {stated.get('own_size'):,} descriptors of other photographs; seed {one.seed}.\n\n{_EXPLAINED}\n"
        f"{markdown_table(columns_of(rows), lines_of(rows))}"
    )


def _screen(rows: Sequence[OracleRow]) -> Table:
    return screen_table(columns_of(rows), lines_of(rows))


_EXPLAINED = """\
Mean distance from the true descriptor, as a share of its norm (0: known exactly). Of the K descriptors of the attacker
that are nearest to the subspace, an oracle names the one closest to the truth: plain is that descriptor, projected the
point of the subspace nearest to it, which is not at norm 1. K = 1 is the nearest neighbour attack, the last K all that
the attacker has. chance is a random one of them. No adversary has the oracle: this bounds what a better choice among K
descriptors could gain, not what other attacks can do.
"""


def draw(rows: Sequence[OracleRow], path: str | Path, title: str = "") -> None:
    """Write the mean distance over K as a PNG to `path`, limits dotted, chance dashed.

    Raises MissingExtraError without matplotlib.
    """
    figure = blank_figure(7.4, 4.4)
    panel = figure.subplots()
    groups = _by_kind(rows)
    for (kind, group), colour in zip(groups.items(), shades(len(groups), 0.72, 0.05), strict=True):
        counts = [row.neighbours for row in group]
        for guess, marker in (("plain", "o"), ("projected", "^")):
            values = [getattr(row, guess) for row in group]
            looks: dict[str, Any] = {"color": colour, "marker": marker, "markersize": 5}
            panel.plot(counts, values, label=f"{kind}, {guess}", **looks)
            panel.axhline(values[-1], color=colour, linestyle=":", linewidth=1.2, zorder=1)
        panel.axhline(group[0].chance, color=colour, linestyle="--", linewidth=1.2, zorder=1, label=f"{kind}, chance")
    panel.set_xscale("log")
    panel.set_ylim(bottom=0)
    panel.set_xlabel("K: nearest descriptors that the oracle chooses from", fontsize=9)
    panel.set_ylabel("mean distance from the truth (higher hides more)", fontsize=9)
    quiet(panel)
    names = {"title": "dotted: all of the\nattacker's database", "title_fontsize": 8, "fontsize": 9}
    figure.legend(loc="outside right center", frameon=False, **names)
    write_figure(figure, path, title)


BENCH = Bench(
    "oracle",
    oracle,
    measure=measure,
    key=("kind", "scheme", "image", "guess"),
    metric="mean distance from the truth",
    unit="share of the truth's norm",
    rows=rows_of,
    text=_text,
    screen=_screen,
    figures={CURVE: draw},
    title=lambda record: f"Oracle attack on {record.dataset}, {record.scheme}",
    named=("kind", "guess", "image", "neighbours", "dimension"),
)
