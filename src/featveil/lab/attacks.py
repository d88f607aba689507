"""Every attack against every defense on the same photographs.

Victims, lifting database and attacker's database come from different photographs. Each victim's features are released
once for a scheme; all attacks see that release. An attack stands once for each thing that its adversary may know beyond
what it needs (a trial). Attacks that treat every feature by itself are tried on a sample of them. A cell of a table is
a mean over all attacked features of all victims, so a photograph with more features weighs more.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from rich.table import Table

from featveil.audit.schemes import Releases, Scheme, Victim, concealed_schemes
from featveil.audit.trials import Trial, make_trials
from featveil.audit.victims import check_apart, own_database, read_victims, second_view
from featveil.core import ConcealingNetwork, InputError
from featveil.core.options import argument, option
from featveil.core.records import Parameter, Record
from featveil.core.resuming import Report
from featveil.core.seeding import image_generator
from featveil.databases import Database
from featveil.defenses import Identity, Lifting, Metric, Subset, load_network
from featveil.lab.bench import (
    CURVE,
    Bench,
    Case,
    Column,
    Measured,
    Progress,
    Study,
    concealers_option,
    kind_option,
    markdown_table,
    out_option,
    refuse_none,
    screen_table,
    seed_option,
)
from featveil.lab.scene_studies import Settings
from featveil.metrics import CLOSE, NEAR, Leakage
from featveil.metrics.leakage import MEASURED, METRIC, UNIT
from featveil.pipelines.scoring import leakage_record, scheme_name, score_attack
from featveil.plotting.figures import blank_figure, write_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_NOT_ADVERSARIES = ("chance", "oracle")
_PARTS = ("identity", "lifting", "subset", "metric", "concealer")
_WORD_SETS = ("subset", "metric")
_NARROWEST = 5.2  # inches of a figure: its title fits

Number = Callable[["AttackRow"], float]


@dataclass(frozen=True)
class Options:
    """What is attacked, how it is defended, and what the attacker has."""

    victims: Path = argument(help="Folder of photographs whose features are attacked.")
    attacker: tuple[Path, ...] = option(
        help="Folder of the attacker's photographs (may be repeated), or one database file.", repeated=True
    )
    out: Path = out_option()
    only: tuple[str, ...] | None = option(None, help="Attacks to run, separated by commas.", shown="all that apply")
    strategies: tuple[str, ...] = option(
        ("random", "adversarial", "hybrid", "sub-adversarial", "sub-hybrid"),
        help="Lifting strategies; none for no lifting.",
    )
    dimensions: tuple[int, ...] = option((2, 4, 8, 16), help="Subspace dimensions.")
    epsilons: tuple[float, ...] = option(
        (14.0, 10.0, 8.0, 6.0), help="Epsilons of the subset mechanism; none to leave it out."
    )
    subset_sizes: tuple[int, ...] = option((1, 4), help="Words it sends for each descriptor.")
    metric_epsilons: tuple[float, ...] = option(
        (121.0, 49.0, 28.0), help="Epsilons of the metric mechanism; none likewise."
    )
    concealer: tuple[Path, ...] = concealers_option()
    composed: bool = option(False, help="Also all other defenses after each concealer, as one scheme.")
    images: int = option(6, help="Photographs to attack.", minimum=1)
    max_features: int = option(1000, help="Features of each, the strongest.", minimum=1)
    sample: int = option(100, help="Features of each for attacks that treat them one by one.", minimum=1)
    database_size: int = option(65_536, help="Descriptors that the attacker has.", minimum=1)
    kind: str = kind_option()
    seed: int = seed_option()

    def __post_init__(self) -> None:
        refuse_none(self, "dimensions", "subset_sizes")


def attacks(options: Options, progress: Progress) -> Study["Attempt"]:
    """All attacks against all defenses: how near the guesses come to the hidden descriptors.

    Take photographs that are not those of the lifting database (`featveil database info`), nor the attacker's. Stop it
    with Ctrl-C at any time: the same command goes on where it stopped (from OUT/records.jsonl). The best attack on each
    defense is shown: by guesses that come near, on word sets by words named right.

    Example: featveil bench attacks victims/ --attacker photos/ --out results/ --strategies sub-hybrid --dimensions 4
    """
    for folder in options.attacker:
        check_apart(folder, options.victims, "the attacker's database would hold what is hidden")
    settings = Settings(options.kind, options.max_features, options.seed)
    schemes = make_schemes(
        options.kind,
        options.strategies,
        options.dimensions,
        options.epsilons,
        options.subset_sizes,
        options.metric_epsilons,
        [load_network(path) for path in options.concealer],
        options.composed,
    )
    trials = make_trials(None if options.only is None else ["chance", "read", *options.only])
    with progress("attacker's photographs") as report:
        database = own_database(options.attacker, options.kind, options.database_size, options.seed, report)
    with progress("victims") as report:
        victims = read_both_views(options.victims, settings, options.images, report)
    return study(options.victims.resolve().name, Faced(victims, schemes, trials, database), settings, options.sample)


def read_both_views(
    folder: Path, settings: Settings, images: int, report: Report = lambda done, total: None
) -> list[Victim]:
    """The photographs of `folder`, evenly spaced, and what each looks like in a second view of it."""
    kind, most = settings.kind, settings.max_features
    victims = read_victims(folder, kind, images, most, report)
    return [Victim(name, features, second_view(folder / name, kind, most)) for name, features in victims.items()]


def make_schemes(
    kind: str,
    strategies: Sequence[str],
    dimensions: Sequence[int],
    epsilons: Sequence[float],
    subset_sizes: Sequence[int],
    metric_epsilons: Sequence[float],
    concealers: Sequence[ConcealingNetwork] = (),
    composed: bool = False,
) -> list[Scheme]:
    """No defense, every strategy x dimension, every epsilon x subset size, and the metric mechanism with one word.

    Then the `concealers`, and with `composed` all of these defenses again after each.
    """
    liftings = [Lifting(*one) for one in product(dict.fromkeys(strategies), dict.fromkeys(dimensions))]
    words = [Subset(*one) for one in product(dict.fromkeys(epsilons), dict.fromkeys(subset_sizes))]
    others: list[Lifting | Subset | Metric] = [*liftings, *words, *map(Metric, dict.fromkeys(metric_epsilons))]
    alone = [Scheme(scheme_name(defense.spec()), defense.for_kind(kind)) for defense in others]
    behind = concealed_schemes(concealers, kind, others if composed else ())
    return [Scheme("identity", Identity()), *alone, *behind]


@dataclass(frozen=True)
class Faced:
    """Who is attacked, under which schemes, and by whom: the attacker has the `database`."""

    victims: Sequence[Victim]
    schemes: Sequence[Scheme]
    trials: Sequence[Trial]
    database: Database


def study(dataset: str, faced: Faced, settings: Settings, sample: int) -> Study["Attempt"]:
    """Every trial that applies to a scheme, on every victim; `sample` features of each for attacks that work alone."""
    if type(sample) is not int or sample < 1:
        raise InputError(f"sample must be a whole number of at least 1, got {sample!r}")

    def cases() -> Iterator[Case[Attempt]]:
        releases = Releases(faced.victims, faced.database, settings.seed)
        for scheme, victim, trial in product(faced.schemes, faced.victims, faced.trials):
            if scheme.faces(trial):
                stated: dict[str, Parameter] = {"victim": victim.name, **scheme.parameters()}
                yield Case(scheme.name, stated, Attempt(releases, victim, scheme, trial, sample), trial.name)

    shared: dict[str, Parameter] = {**settings.shared(), "sample": sample}
    shared["own_database"] = faced.database.digest[:16]
    return Study(cases, shared, settings.seed, dataset)


@dataclass(frozen=True, eq=False)
class Attempt:
    """One trial on what one victim releases under one scheme."""

    releases: Releases
    victim: Victim
    scheme: Scheme
    trial: Trial
    sample: int


def measure(one: Attempt) -> Measured:
    """What leaked, of the features whose truth is certain."""
    releases, victim, scheme, trial = one.releases, one.victim, one.scheme, one.trial
    private, truth = releases.release(victim, scheme, geometry=trial.geometry), releases.truth(victim, scheme)
    # Of the attack's name only the seed depends, not of the scheme: all defenses are sampled at the same features.
    rng = image_generator(releases.seed, victim.name, 0, trial.name)
    if trial.method.alone and len(private) > one.sample:
        rows = np.sort(rng.permutation(len(private))[: one.sample])
        private, truth = private.take(rows), truth.take(rows)
    outcome = score_attack(private, truth, trial.method, releases.knowledge(victim, scheme, trial), rng)
    parameters: dict[str, Parameter] = {"features": len(victim.features), "seconds": round(outcome.seconds, 3)}
    parameters |= scheme.bound()
    record = leakage_record(outcome, "attacks", "", scheme.name, trial.name, releases.seed, parameters)
    return Measured(record.value, record.count, record.parameters)


@dataclass(frozen=True)
class AttackRow(Leakage):
    """One attack against one scheme over all victims; `count` features were attacked, `seconds` for each.

    Distances are shares of the descriptor's norm. `median` and `rank` are means of the photographs' medians.
    `image_epsilon` is that of an image with the mean number of `features`; `bound` is how often any attack can name the
    right word from one release, were all words equally common. None where nothing is guaranteed. `then` is the defense
    after a concealer, and `released_near` the share of guesses below NEAR of the concealed descriptor.
    """

    scheme: str
    defense: str
    then: str | None
    attack: str
    victims: int
    seconds: float
    epsilon: float | None
    image_epsilon: float | None
    bound: float | None
    released_near: float | None = None


def rows_of(records: Sequence[Record]) -> list[AttackRow]:
    """One row for each scheme and attack, in the order of the records."""
    groups: dict[tuple[str, str], list[Record]] = {}
    for record in records:
        groups.setdefault((record.scheme, str(record.attack)), []).append(record)
    return [_row(members) for members in groups.values()]


def _row(records: Sequence[Record]) -> AttackRow:
    one, total = records[0], sum(record.count for record in records)
    measured = [record.value for record in records if isinstance(record.value, tuple)]
    weights = {name: [record.count / total for record in records] for name in MEASURED}
    weights |= dict.fromkeys(("median", "rank"), [1 / len(records)] * len(records))
    values = {
        name: sum(value[place] * weight for value, weight in zip(measured, weights[name], strict=True))
        for place, name in enumerate(MEASURED)
    }
    epsilon, bound, then = (one.parameters.get(name) for name in ("epsilon", "bound", "then"))
    features = sum(int(str(record.parameters["features"])) for record in records) / len(records)
    return AttackRow(
        scheme=one.scheme,
        defense=str(one.parameters["defense"]),
        then=None if then is None else str(then),
        attack=str(one.attack),
        count=total,
        victims=len(records),
        seconds=sum(float(str(record.parameters["seconds"])) for record in records) / total,
        epsilon=None if epsilon is None else float(str(epsilon)),
        image_epsilon=None if epsilon is None else float(str(epsilon)) * features,
        bound=None if bound is None else float(str(bound)),
        released_near=_released(records, total),
        **values,
    )


def _released(records: Sequence[Record], total: int) -> float | None:
    """The share of guesses near the concealed descriptor; None where there is no concealer."""
    if any("released_below_near" not in record.parameters for record in records):
        return None
    return sum(float(str(one.parameters["released_below_near"])) * one.count for one in records) / total


def _success(row: AttackRow) -> float:
    """How often an attack succeeds: the share of words named right for word sets, else of guesses below NEAR."""
    return row.exact if (row.then or row.defense) in _WORD_SETS else row.below_near


def best_attacks(rows: Sequence[AttackRow], value: Number = _success) -> dict[str, AttackRow]:
    """Of each scheme the attack with the largest `value`; neither chance nor the oracle, which knows the truth.

    By default the value is the share of words named right for word sets, else that of guesses below NEAR. Among equals
    it is the attack with more guesses below NEAR, then below CLOSE, then the first.
    """
    best: dict[str, tuple[tuple[float, ...], AttackRow]] = {}
    for row in rows:
        if row.attack.split(" + ")[0] in _NOT_ADVERSARIES:
            continue
        rank = value(row), row.below_near, row.below_close
        if row.scheme not in best or rank > best[row.scheme][0]:
            best[row.scheme] = rank, row
    return {scheme: row for scheme, (_, row) in best.items()}


COLUMNS: tuple[Column[AttackRow], ...] = (
    Column("scheme", lambda row: row.scheme, left=True),
    Column("attack", lambda row: row.attack, left=True),
    Column("mean", lambda row: f"{row.mean:.3f}"),
    Column("median", lambda row: f"{row.median:.3f}"),
    Column(f"<{CLOSE} %", lambda row: f"{100 * row.below_close:.1f}"),
    Column(f"<{NEAR} %", lambda row: f"{100 * row.below_near:.1f}"),
    Column("exact %", lambda row: f"{100 * row.exact:.1f}"),
    Column("rank", lambda row: f"{row.rank:.0f}"),
    Column("answered %", lambda row: f"{100 * row.answered:.0f}"),
    Column("features", lambda row: str(row.count)),
    Column("ms a feature", lambda row: f"{1000 * row.seconds:.1f}"),
    Column("epsilon", lambda row: _epsilon(row.epsilon)),
    Column("epsilon an image", lambda row: _epsilon(row.image_epsilon)),
)


def _epsilon(epsilon: float | None) -> str:
    return "-" if epsilon is None else f"{epsilon:,.6g}"


def _screen(rows: Sequence[AttackRow]) -> Table:
    """A terminal has 80 columns: the best attack of each scheme; table.md and --json have everything."""
    chance = {row.scheme: f"{100 * row.below_near:.0f}" for row in rows if row.attack == "chance"}
    columns: list[Column[AttackRow]] = [
        Column("defense", lambda row: row.scheme, left=True),
        Column("best attack", lambda row: row.attack),
        Column("median\naway", lambda row: f"{row.median:.2f}"),
        Column(f"below\n{NEAR} %", lambda row: f"{100 * row.below_near:.0f}"),
        Column(f"below\n{CLOSE} %", lambda row: f"{100 * row.below_close:.0f}"),
        Column("exact\n%", lambda row: f"{100 * row.exact:.0f}"),
        Column("chance\n%", lambda row: chance.get(row.scheme, "-")),
    ]
    return screen_table(columns, list(best_attacks(rows).values()))


def _text(rows: Sequence[AttackRow], records: Sequence[Record]) -> str:
    """The tables of shares below both distances and of exact recoveries, then all figures in one."""
    one, stated = records[0], records[0].parameters
    parts = [
        f"# Attacks on {one.dataset}\n",
        f"{stated['kind']}, at most {stated['max_features']} features of each of {max(row.victims for row in rows)}"
        f" photographs, of which attacks that treat each feature by itself see {stated['sample']}; seed {one.seed}."
        " A name after + is what the adversary has beyond what the attack needs (`featveil attack --list`); geometry:"
        " the release has scale and orientation of the keypoints. The oracle knows the truth: it is no"
        " adversary. The second view that inlier and closest-pair are given is the victim's own photograph turned,"
        " tilted, smaller and darker, which flatters these two: another photograph of the place tells less. best: the"
        " attack with the largest number above, chance and oracle left out (none: all are 0). - : the attack does not"
        " apply.\n",
    ]
    shown: list[tuple[str, Number]] = [
        (f"Guesses nearer than {NEAR} to the hidden descriptor, in %", lambda row: row.below_near),
        (f"Guesses nearer than {CLOSE}, in %", lambda row: row.below_close),
        ("Exactly recovered (descriptor, or word for word sets), in %", lambda row: row.exact),
    ]
    for defense in _PARTS:
        chosen = [row for row in rows if row.defense == defense]
        for title, value in shown if chosen else ():
            parts.append(f"## {defense}: {title.lower()}\n\n{_grid(chosen, value)}")
        parts[-1] += _bounds(chosen)
        behind = [row for row in chosen if row.released_near is not None]
        if behind:
            title = f"Of the concealed descriptor, before the network is undone: guesses nearer than {NEAR}, in %"
            parts.append(f"## {defense}: {title.lower()}\n\n{_grid(behind, lambda row: row.released_near or 0.0)}")
    parts.append(f"## All figures\n\n{markdown_table(COLUMNS, rows)}")
    return "\n".join(parts)


def _grid(rows: Sequence[AttackRow], value: Number) -> str:
    schemes, attacks = _order(rows)
    cells = {(row.scheme, row.attack): f"{100 * value(row):.1f}" for row in rows}
    best = {scheme: row.attack if value(row) > 0 else "none" for scheme, row in best_attacks(rows, value).items()}
    lines = [["attack", *schemes], ["---", *("---:" for _ in schemes)]]
    lines += [[attack, *(cells.get((scheme, attack), "-") for scheme in schemes)] for attack in attacks]
    lines.append(["**best**", *(best.get(scheme, "-") for scheme in schemes)])
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _bounds(rows: Sequence[AttackRow]) -> str:
    """The last line of the table of exact recoveries: what the guarantee allows."""
    bounds = dict.fromkeys(row.scheme for row in rows) | {
        row.scheme: row.bound for row in rows if row.bound is not None
    }
    if all(bound is None for bound in bounds.values()):
        return ""
    cells = ["-" if bound is None else f"{100 * bound:.1f}" for bound in bounds.values()]
    return f"| **bound: one release, all words equally common** | {' | '.join(cells)} |\n"


def draw(rows: Sequence[AttackRow], path: str | Path, title: str = "") -> None:
    """Write a picture of the share below NEAR of every attack (lines) against every scheme (columns) as a PNG."""
    parts = [[row for row in rows if row.defense == defense] for defense in _PARTS[1:]]
    parts = [part for part in parts if part] or [list(rows)]
    lines = [len({row.attack for row in part}) for part in parts]
    widest = max(len({row.scheme for row in part}) for part in parts)
    figure = blank_figure(max(0.52 * widest + 3.2, _NARROWEST), 0.3 * sum(lines) + 1.5 * len(parts))
    panels = figure.subplots(len(parts), 1, squeeze=False, gridspec_kw={"height_ratios": lines})
    for panel, part in zip(panels[:, 0], parts, strict=True):
        _heat(panel, part)
    write_figure(figure, path, f"{title}\nguesses nearer than {NEAR} to the hidden descriptor, %".strip())


def _order(rows: Sequence[AttackRow]) -> tuple[list[str], list[str]]:
    """Schemes and attacks in the order of their first row."""
    return list(dict.fromkeys(row.scheme for row in rows)), list(dict.fromkeys(row.attack for row in rows))


def _heat(panel: "Axes", rows: Sequence[AttackRow]) -> None:
    schemes, attacks = _order(rows)
    shares = {(row.scheme, row.attack): 100 * row.below_near for row in rows}
    grid = [[shares.get((scheme, attack), float("nan")) for scheme in schemes] for attack in attacks]
    panel.imshow(grid, cmap="cividis", vmin=0, vmax=100, aspect="auto")
    for line, attack in enumerate(attacks):
        for column, scheme in enumerate(schemes):
            share = shares.get((scheme, attack))
            if share is not None:
                colour = "white" if share < 55 else "black"
                panel.text(column, line, f"{share:.0f}", ha="center", va="center", fontsize=7.5, color=colour)
    panel.set_xticks(range(len(schemes)), schemes, rotation=40, ha="right", fontsize=8, rotation_mode="anchor")
    panel.set_yticks(range(len(attacks)), attacks, fontsize=8)
    panel.set_title(rows[0].defense, fontsize=9, loc="left")
    panel.tick_params(length=0)
    panel.spines[:].set_visible(False)


BENCH = Bench(
    "attacks",
    attacks,
    measure=measure,
    key=("victim", "scheme", "attack"),
    metric=METRIC,
    unit=UNIT,
    rows=rows_of,
    text=_text,
    screen=_screen,
    figures={CURVE: draw},
    title=lambda record: f"Attacks on {record.dataset}, {record.parameters['kind']}",
    named=("defense", "features", "seconds"),
    length=len(MEASURED),
)
