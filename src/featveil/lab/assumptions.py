"""What the database and clustering attacks take for granted (Pittaluga and Zhuang 2023, S3.1 and S3.2), measured.

members:     the lifting database's entries nearest to a subspace are near one of its members, which are the hidden
             descriptor and the entries that it was lifted with (table S2).
collisions:  other subspaces that meet this one do so in such an entry, and stay away from the hidden descriptor, so
             that of all members this one is farthest from them (table S3).

Lifting does not tell which entries it drew; they are those at distance zero. What is measured beside each other where
the paper can be read in several ways is told in docs/claims.md.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any, NamedTuple

from rich.console import Group
from rich.table import Table
from rich.text import Text

from featveil.audit.schemes import Scheme
from featveil.audit.victims import own_database, read_victims
from featveil.core import Features, InputError
from featveil.core.arrays import Float64, Integers
from featveil.core.options import argument, option
from featveil.core.records import Parameter, Record
from featveil.core.resuming import Report
from featveil.core.seeding import image_generator
from featveil.databases import Database, builtin
from featveil.defenses import Lifting
from featveil.lab.assumptions_parts.members import (
    COLLISIONS,
    COUNTED,
    MEMBERS,
    NEIGHBOURS,
    SPARE,
    VARIANTS,
    Lifted,
    collisions,
    database_of,
    member_success,
)
from featveil.lab.bench import (
    CURVE,
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
from featveil.lab.papers import MEMBERS_NEAR, NO_COLLISION
from featveil.lab.scene_studies import Settings, check_strategy, lifting_parameters
from featveil.plotting.figures import MARKERS, blank_figure, quiet, shades, write_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes

METRICS = {MEMBERS: "ratio test success for each N", COLLISIONS: ", ".join(COUNTED)}
UNITS = {MEMBERS: "share of neighbours", COLLISIONS: "share of subspaces, but for the last: count"}

_PARTS = 16  # of a lifting database that is made of photographs, as in the papers
_PAPER = "#c0392b"


@dataclass(frozen=True)
class Options:
    """What is lifted, and with which database."""

    victims: Path = argument(help="Folder of photographs to lift.")
    out: Path = out_option()
    database: tuple[Path, ...] = option(
        (),
        help="To lift with: a database file, or a folder of photographs; may be repeated.",
        shown="the built-in database",
        repeated=True,
    )
    database_size: int = option(131_072, help="Descriptors to draw from folders of photographs.")
    dimensions: tuple[int, ...] = option((2, 4, 8, 16), help="Subspace dimensions, separated by commas.")
    strategy: str = option("sub-hybrid", help="Lifting strategy.")
    images: int = option(10, help="Photographs to lift, evenly spaced.")
    max_features: int = features_option(1000)
    kind: str = kind_option()
    seed: int = seed_option()

    def __post_init__(self) -> None:
        refuse_none(self, "dimensions")


def assumptions(options: Options, progress: Progress) -> Study["Part"]:
    """How often a subspace comes near its own members only, and how often other subspaces give them away.

    Stop it with Ctrl-C at any time: the same command goes on where it stopped (from OUT/records.jsonl).

    Example: featveil bench assumptions holidays/ --out results/ --dimensions 4,16
    """
    settings = Settings(options.kind, options.max_features, options.seed)
    with progress("images") as report:
        database = lifting_database(options.database, options.kind, options.database_size, options.seed, report)
        schemes = make_schemes(database, options.dimensions, options.strategy)
        victims = read_victims(options.victims, options.kind, options.images, options.max_features, report)
    return study(options.victims.resolve().name, victims, schemes, settings)


def lifting_database(
    sources: Sequence[Path], kind: str, size: int, seed: int = 0, report: Report = lambda done, total: None
) -> Database:
    """The database to lift with: a file, `size` descriptors of folders of photographs, or the built-in one."""
    if not sources:
        return builtin(kind)
    drawn = own_database(sources, kind, size, seed, report)
    return drawn if sources[0].is_file() else replace(drawn, parts=_PARTS)


def make_schemes(database: Database, dimensions: Sequence[int], strategy: str = "sub-hybrid") -> list[Scheme]:
    """Lifting to each of `dimensions`; raises InputError where nothing of the database gets into a subspace."""
    liftings = [Lifting(strategy, m, database=database) for m in dict.fromkeys(dimensions)]
    check_strategy(strategy)
    for lifting in liftings:
        if lifting.adversarial_directions == 0:
            raise InputError(f"{strategy} lifting to dimension {lifting.dimension} draws no entry of a database")
        fewest = max(NEIGHBOURS) + lifting.adversarial_directions + SPARE
        if len(database) < fewest:
            raise InputError(f"{len(database)} entries are too few to lift with: use at least {fewest}")
    return [Scheme(f"{lifting.strategy}-{lifting.dimension}", lifting) for lifting in liftings]


def study(
    dataset: str, victims: Mapping[str, Features], schemes: Sequence[Scheme], settings: Settings
) -> Study["Part"]:
    """Both parts of every photograph under every scheme, in all variants."""

    def cases() -> Iterator[Case[Part]]:
        for scheme in schemes:
            lifted = LiftedVictims(victims, scheme, settings.seed)
            for part, image in product(VARIANTS, victims):
                # A single photograph has no others.
                variants = VARIANTS[part] if part == MEMBERS or len(victims) > 1 else VARIANTS[part][:1]
                whole = _Whole(lifted, image)
                for variant in variants:
                    stated: dict[str, Parameter] = {"study": part, "image": image, "variant": variant}
                    stated |= {"neighbours": list(NEIGHBOURS)} if part == MEMBERS else {}
                    stated |= {**lifting_parameters(scheme), "database_size": len(lifted.database)}
                    stated |= {"others": len(victims) - 1} if variant == VARIANTS[COLLISIONS][1] else {}
                    subject = Part(whole, part, variant)
                    yield Case(scheme.name, stated, subject, metric=METRICS[part], unit=UNITS[part])

    return Study(cases, settings.shared(), settings.seed, dataset)


@dataclass(frozen=True, eq=False)
class Part:
    """One variant of one part for one photograph."""

    whole: "_Whole"
    part: str
    variant: str


def measure(one: Part) -> Measured:
    """The values that METRICS names, and the number of features."""
    whole = one.whole
    values = whole.members[one.variant] if one.part == MEMBERS else whole.collisions(one.variant)
    return Measured(tuple(round(float(value), 6) for value in values), len(whole.lifted.victims[whole.image]))


class LiftedVictims:
    """All photographs under one scheme, each lifted once; which subspaces of two of them meet is found once."""

    def __init__(self, victims: Mapping[str, Features], scheme: Scheme, seed: int) -> None:
        if not isinstance(scheme.defense, Lifting):
            raise InputError("these are assumptions about lifted descriptors")
        self.victims, self.lifting, self.name, self.seed = victims, scheme.defense, scheme.name, seed
        self._lifted: dict[str, Lifted] = {}
        self._met: dict[tuple[str, str], tuple[Integers, Integers]] = {}

    def __getitem__(self, image: str) -> Lifted:
        if image not in self._lifted:
            rng = image_generator(self.seed, image, 1, self.name)
            self._lifted[image] = Lifted.of(self.victims[image].descriptors, self.lifting, rng)
        return self._lifted[image]

    @property
    def database(self) -> Database:
        """What is lifted with."""
        return database_of(self.lifting)

    def met(self, image: str, other: str) -> tuple[Integers, Integers]:
        """Which subspaces of both photographs meet."""
        if (image, other) not in self._met:
            rows, columns = self[image].meeting(self[other])
            self._met[image, other], self._met[other, image] = (rows, columns), (columns, rows)
        return self._met[image, other]


@dataclass(frozen=True, eq=False)
class _Whole:
    """Both parts of one photograph."""

    lifted: LiftedVictims
    image: str

    @cached_property
    def members(self) -> dict[str, Float64]:
        own = self.lifted[self.image]
        return member_success(own.subspaces, own.truth, self.lifted.lifting)

    def collisions(self, variant: str) -> Float64:
        same = variant == VARIANTS[COLLISIONS][0]
        others = [name for name in self.lifted.victims if (name == self.image) == same]
        met = [(self.lifted[name], *self.lifted.met(self.image, name)) for name in others]
        return collisions(self.lifted[self.image], met)


@dataclass(frozen=True)
class MemberRow:
    """Share of the N = `neighbours` entries nearest to a subspace that pass the ratio test between its members.

    `theirs` is the paper's, which does not say whether entries that are members themselves count.
    """

    dimension: int
    variant: str
    neighbours: int
    success: float
    theirs: float | None
    features: int


@dataclass(frozen=True)
class CollisionRow:
    """What other subspaces, of the same image or of others, give away; all but `meeting` are shares of subspaces.

    `meeting` is how many others a subspace meets on average, `met` the share that meets any, `all_found` the share of
    which every confounder lies in one of them. `no_collision`: the hidden descriptor is the member that is farthest
    from them; `no_collision_if_found` among those of which all confounders are found (None if there is none). `clear`:
    they stay at least 0.3 or 0.5 away from it.
    """

    dimension: int
    variant: str
    meeting: float
    met: float
    all_found: float
    no_collision: float
    no_collision_if_found: float | None
    clear_by_03: float
    clear_by_05: float
    theirs: float | None
    features: int


class Rows(NamedTuple):
    """Both tables."""

    members: list[MemberRow]
    collisions: list[CollisionRow]


def rows_of(records: Sequence[Record]) -> Rows:
    """Rows of both parts by dimension and variant; means over the features of all photographs."""
    groups: dict[tuple[str, str, int], list[Record]] = {}
    for record in records:
        _check(record)
        stated = record.parameters
        key = str(stated["study"]), str(stated["variant"]), int(str(stated["dimension"]))
        groups.setdefault(key, []).append(record)
    rows = Rows([], [])
    for (part, variant, m), group in sorted(groups.items(), key=_place):
        if part == MEMBERS:
            rows.members.extend(_member_rows(m, variant, group))
        else:
            rows.collisions.append(_collision_row(m, variant, group))
    return rows


def _place(item: tuple[tuple[str, str, int], object]) -> tuple[int, int]:
    part, variant, m = item[0]
    return m, VARIANTS[part].index(variant)


def _check(record: Record) -> None:
    stated = record.parameters
    if stated["variant"] not in VARIANTS.get(str(stated["study"]), ()):
        raise InputError(f"{stated['study']}, {stated['variant']} is not one of these studies: leave it out")
    counts = stated.get("neighbours") if stated["study"] == MEMBERS else list(COUNTED)
    if not isinstance(counts, list) or not isinstance(record.value, tuple) or len(record.value) != len(counts):
        raise InputError("a record of these studies lacks some of its values: the file is damaged")


def _mean(records: Sequence[Record], place: int) -> float:
    values = [record.value[place] for record in records if isinstance(record.value, tuple)]
    return fmean(values, weights=[record.count for record in records])


def _member_rows(m: int, variant: str, records: Sequence[Record]) -> list[MemberRow]:
    counts = records[0].parameters["neighbours"]
    features = sum(record.count for record in records)
    numbers = [int(str(count)) for count in counts] if isinstance(counts, list) else []
    return [
        MemberRow(m, variant, n, _mean(records, place), MEMBERS_NEAR.get(m, {}).get(n), features)
        for place, n in enumerate(numbers)
    ]


def _collision_row(m: int, variant: str, records: Sequence[Record]) -> CollisionRow:
    means = {name: _mean(records, place) for place, name in enumerate(COUNTED)}
    all_found = means["all found"]
    return CollisionRow(
        dimension=m,
        variant=variant,
        meeting=means["meeting"],
        met=means["met"],
        all_found=all_found,
        no_collision=means["no collision"],
        no_collision_if_found=means["no collision and all found"] / all_found if all_found else None,
        clear_by_03=means["clear by 0.3"],
        clear_by_05=means["clear by 0.5"],
        theirs=NO_COLLISION.get(m),
        features=sum(record.count for record in records),
    )


@dataclass(frozen=True)
class _Line:
    """One line of the first table: the paper's or ours, by the number of neighbours."""

    dimension: int
    name: str
    shares: Mapping[int, float | None]


def member_lines(rows: Sequence[MemberRow]) -> list[_Line]:
    """For each dimension the paper's line and one of ours for each variant."""
    lines: list[_Line] = []
    for m in dict.fromkeys(row.dimension for row in rows):
        if m in MEMBERS_NEAR:
            lines.append(_Line(m, "paper", dict(MEMBERS_NEAR[m])))
        for variant in dict.fromkeys(row.variant for row in rows if row.dimension == m):
            chosen = [row for row in rows if (row.dimension, row.variant) == (m, variant)]
            lines.append(_Line(m, variant, {row.neighbours: row.success for row in chosen}))
    return lines


def member_columns(rows: Sequence[MemberRow]) -> list[Column[_Line]]:
    """One for each number of neighbours."""

    def shares(count: int) -> Column[_Line]:
        return Column(f"N = {count}", lambda line: _percent(line.shares.get(count)))

    counts = dict.fromkeys(row.neighbours for row in rows)
    first: list[Column[_Line]] = [
        Column("m", lambda line: str(line.dimension)),
        Column("neighbours", lambda line: line.name, left=True),
    ]
    return [*first, *map(shares, counts)]


def _percent(share: float | None) -> str:
    return "" if share is None else f"{100 * share:.1f}"


COLLISION_COLUMNS: tuple[Column[CollisionRow], ...] = (
    Column("m", lambda row: str(row.dimension)),
    Column("others of", lambda row: row.variant, left=True, screen="others\nof"),
    Column("meeting", lambda row: f"{row.meeting:.2f}"),
    Column("met", lambda row: _percent(row.met)),
    Column("all found", lambda row: _percent(row.all_found), screen="all\nfound"),
    Column("no collision", lambda row: _percent(row.no_collision), screen="no\ncollision"),
    Column("if found", lambda row: _percent(row.no_collision_if_found), screen="if\nfound"),
    Column("clear 0.3", lambda row: _percent(row.clear_by_03), screen="clear\n0.3"),
    Column("clear 0.5", lambda row: _percent(row.clear_by_05), screen="clear\n0.5"),
    Column("paper", lambda row: _percent(row.theirs)),
)


def _text(rows: Rows, records: Sequence[Record]) -> str:
    """Both tables, with what their columns mean."""
    one, stated = records[0], records[0].parameters
    described = f"{stated.get('kind')}, at most {stated.get('max_features')} each"
    images = len({record.parameters["image"] for record in records})
    features = max([row.features for row in rows.members] + [row.features for row in rows.collisions])
    members = markdown_table(member_columns(rows.members), member_lines(rows.members))
    return (
        f"# Assumptions of the database and clustering attacks on {one.dataset}\n\n"
        f"{images} photographs, {features:,} features ({described}),"
        f" {stated.get('strategy')} lifting with a database of {stated['database_size']:,} entries, digest"
        f" {stated.get('database')}; seed {one.seed}. Shares in percent.\n\n"
        f"{_MEMBERS_EXPLAINED}\n{members}\n"
        f"{_COLLISIONS_EXPLAINED}\n{markdown_table(COLLISION_COLUMNS, rows.collisions)}"
    )


def _screen(rows: Rows) -> Group:
    members = screen_table(member_columns(rows.members), member_lines(rows.members))
    parts: list[Text | Table] = [heading("entries near a subspace that are near one of its members, %"), members]
    parts += [Text(""), heading("subspaces that others give away, %")]
    return Group(*parts, screen_table(COLLISION_COLUMNS, rows.collisions))


def _facts(rows: Rows) -> dict[str, Any]:
    return {name: [asdict(row) for row in table] for name, table in rows._asdict().items()}


_MEMBERS_EXPLAINED = """\
## Entries near a subspace are near one of its members (table S2)

The members of a subspace are the hidden descriptor and the entries that it was lifted with. Of the N entries of the
lifting database nearest to the subspace, the share whose nearest member is closer than 0.8 times the second nearest.
"with members" takes the N nearest of all entries: the members among them are their own nearest member and always pass.
"without members" takes the next N after those. The paper does not say which it counts.
"""
_COLLISIONS_EXPLAINED = """\
## Subspaces that meet give their confounders away, not the hidden descriptor (table S3)

Q' are the other subspaces, of the same image or of all other images, that intersect the one under attack. meeting: how
many those are on average; met: subspaces that have any. all found: every confounder lies in one of Q'. no collision: of
all members, the hidden descriptor is farthest from Q', so the attack would choose it if it knew the members; a subspace
without Q' counts as a failure. if found: the same among subspaces with all confounders found. clear 0.3, clear 0.5:
no subspace of Q' comes closer to the hidden descriptor than that; a subspace without Q' counts as clear. The paper
reports subspaces "that have no collisions in our attack" and does not define a collision.
"""


def draw(rows: Rows, path: str | Path, title: str = "") -> None:
    """Write success over N and the shares of subspaces over m as a PNG to `path`, the paper's in red.

    Raises MissingExtraError without matplotlib, InputError when there is nothing to draw.
    """
    if not rows.members or not rows.collisions:
        raise InputError("there is no result to draw")
    figure = blank_figure(10.5, 4.6)
    left, right = figure.subplots(1, 2)
    _draw_members(left, rows.members)
    _draw_collisions(right, rows.collisions)
    for panel in (left, right):
        quiet(panel)
        panel.legend(fontsize=7, frameon=False, loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2)
    write_figure(figure, path, title)


def _draw_members(panel: "Axes", rows: Sequence[MemberRow]) -> None:
    dimensions = sorted({row.dimension for row in rows})
    counts = sorted({row.neighbours for row in rows})
    for m, colour in zip(dimensions, shades(len(dimensions)), strict=True):
        chosen = sorted((row for row in rows if row.dimension == m), key=lambda row: row.neighbours)
        for variant, style in zip(VARIANTS[MEMBERS], (":", "-"), strict=True):
            values = [100 * row.success for row in chosen if row.variant == variant]
            if values:
                panel.plot(counts, values, style, color=colour, marker="o", markersize=4, label=f"m = {m}, {variant}")
        theirs = [100 * row.theirs for row in chosen if row.theirs is not None and row.variant == chosen[0].variant]
        if theirs:
            marker = MARKERS[1 + list(MEMBERS_NEAR).index(m)]
            panel.plot(counts, theirs, marker, color=_PAPER, markersize=6, label=f"m = {m}, paper")
    panel.set_xscale("log")
    panel.set_xticks(counts, [str(count) for count in counts])
    panel.minorticks_off()
    panel.set_ylim(top=101)  # shares near 100 %: the axis does not begin at 0
    panel.set_xlabel("N: entries nearest to the subspace", fontsize=9)
    panel.set_ylabel("near one of the members, %", fontsize=9)


def _draw_collisions(panel: "Axes", rows: Sequence[CollisionRow]) -> None:
    dimensions = sorted({row.dimension for row in rows})
    shown = {"all_found": "all found", "no_collision": "no collision"}
    shown |= {"clear_by_03": "clear by 0.3", "clear_by_05": "clear by 0.5"}
    for variant, style in zip(VARIANTS[COLLISIONS], ("-", ":"), strict=True):
        chosen = sorted((row for row in rows if row.variant == variant), key=lambda row: row.dimension)
        for (name, label), colour, marker in zip(shown.items(), shades(len(shown)), MARKERS, strict=False):
            looks = {"color": colour, "marker": marker, "markersize": 4.0, "label": f"{label}, {variant}"}
            if chosen:
                heights = [100 * getattr(row, name) for row in chosen]
                panel.plot([row.dimension for row in chosen], heights, style, **looks)
    theirs = {m: 100 * value for m, value in NO_COLLISION.items() if m in dimensions}
    if theirs:
        panel.plot(*zip(*theirs.items(), strict=True), "x", color=_PAPER, markersize=7, label="paper, no collision")
    panel.set_ylim(0, 102)
    panel.set_xscale("log", base=2)
    panel.set_xticks(dimensions, [str(m) for m in dimensions])
    panel.set_xlabel("dimension m", fontsize=9)
    panel.set_ylabel("subspaces, %", fontsize=9)


BENCH = Bench(
    "assumptions",
    assumptions,
    measure=measure,
    key=("study", "scheme", "image", "variant"),
    rows=rows_of,
    text=_text,
    screen=_screen,
    figures={CURVE: draw},
    title=lambda record: f"Assumptions of attacks on {record.dataset}, {record.parameters['kind']}",
    facts=_facts,
    named=("study", "variant", "image", "dimension", "database_size"),
)
