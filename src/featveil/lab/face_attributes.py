"""What attackers read off face templates: gender, race and age band (Dusmanu et al. 2021, section 4.3, figure 5).

Faces are split into those that lifting hides others among, those that the attacker has labels of, and victims, three
parts without a person in common (`groups_of_people`). Attackers:
chance:    the most frequent label of the attacker's own faces, for everyone.
knn:       the paper's: its ten nearest faces vote, by point-to-subspace distance.
trained:   learns from its own faces, hidden by the same defense.
unmix:     knows the lifting database, removes the confounders and reads what is left as a raw descriptor is read.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, partial
from pathlib import Path

import numpy as np

from featveil.attacks import Knowledge, Unmix, attack
from featveil.attacks.on_faces.attributes import TrainedLabels
from featveil.core import Flats, Guarantee, InputError, Points, PrivateFeatures
from featveil.core.arrays import Integers
from featveil.core.options import argument, option
from featveil.core.records import Parameter, Record
from featveil.core.seeding import check_seed, generator
from featveil.databases import Database
from featveil.databases.nearest_labels import NearestLabels
from featveil.datasets.face_sets import FaceSet, load_faces
from featveil.lab.bench import (
    CURVE,
    Bench,
    Case,
    Column,
    Measured,
    Progress,
    Study,
    markdown_table,
    out_option,
    refuse_none,
    screen_table,
    seed_option,
)
from featveil.lab.face_parts.face_studies import (
    DIMENSIONS,
    DIMENSIONS_HELP,
    FACE_STRATEGIES,
    FACES,
    FILES,
    RAW,
    STRATEGIES_HELP,
    FaceScheme,
    apart_from,
    draw_bars,
    lifting_database,
    make_schemes,
    strategy_and_dimension,
)
from featveil.pipelines.face_parts.face_templates import HARDENED, groups_of_people
from featveil.plotting.figures import LEVELS, blank_figure, quiet, write_figure

AGE_BANDS = (13, 20, 40, 60)  # the first years of the bands after the youngest
ATTACKERS = ("chance", "knn", "trained", "unmix")
NEIGHBOURS = 10

_TASK = "face-attributes"
_MOST_EXAMPLES = 4000  # that are learned from: the time grows with their third power


@dataclass(frozen=True)
class Options:
    """Whose attributes are attacked, and under which schemes."""

    faces: Path = argument(metavar="FACES", help=FACES)
    out: Path = out_option(FILES)
    attributes: tuple[str, ...] = option(
        ("gender", "race", "age"), help="Attributes to guess; age becomes bands.", flags=("--attributes",)
    )
    shares: tuple[float, ...] = option((0.35, 0.4), help="Shares of the faces to hide among, and of the attacker.")
    strategies: tuple[str, ...] = option(FACE_STRATEGIES, help=STRATEGIES_HELP)
    dimensions: tuple[int, ...] = option(DIMENSIONS, help=DIMENSIONS_HELP)
    seed: int = seed_option()

    def __post_init__(self) -> None:
        refuse_none(self, "attributes", "strategies", "dimensions")
        if len(self.shares) != 2:
            raise InputError("--shares are two numbers: of the faces to hide among, and of the attacker")


def attributes(options: Options, progress: Progress) -> Study["Guessed"]:
    """What attackers read off private templates: K-NN, one that is trained, and one that removes confounders.

    Stop it with Ctrl-C at any time: the same command goes on where it stopped (from OUT/records.jsonl).

    Example: featveil bench faces attributes utk.npz --out results/ --attributes gender,race
    """
    shares = options.shares[0], options.shares[1]
    faces = LabelledFaces(options.faces.stem, load_faces(options.faces), options.attributes, shares, options.seed)
    return study(faces, make_schemes(options.strategies, options.dimensions))


@dataclass(frozen=True, eq=False)
class Split:
    """Three parts of one set of faces, by person."""

    lifting: FaceSet
    attacker: FaceSet
    victims: FaceSet


@dataclass(frozen=True, eq=False)
class LabelledFaces:
    """Whose attributes are attacked; `shares` are those of the lifting database and of the attacker."""

    name: str
    faces: FaceSet
    attributes: tuple[str, ...] = ("gender", "race", "age")
    shares: tuple[float, float] = (0.35, 0.4)
    seed: int = 0

    def __post_init__(self) -> None:
        check_seed(self.seed)
        if min(self.shares) <= 0 or sum(self.shares) >= 1:
            raise InputError(f"shares of the lifting database and the attacker leave victims over, got {self.shares}")
        for attribute in self.attributes:
            if (self.faces.attribute(attribute) < 0).any():
                raise InputError(f"labels of {attribute} must be 0 or more")

    @cached_property
    def split(self) -> Split:
        """The faces, split by person, the same for the same seed."""
        person = groups_of_people(self.faces)
        people = int(person.max()) + 1
        place = generator(self.seed, _TASK, "split").permutation(people)[person] / people
        limits = np.cumsum(self.shares)
        parts = [np.flatnonzero(np.searchsorted(limits, place, side="right") == part) for part in range(3)]
        if min(map(len, parts)) < NEIGHBOURS:
            raise InputError(f"{people} people are too few for a lifting database, an attacker and victims")
        return Split(*(self.faces.take(rows) for rows in parts))

    def labels(self, faces: FaceSet, attribute: str) -> Integers:
        """Labels (n,) of an attribute; years of age become bands."""
        labels = faces.attribute(attribute)
        return np.digitize(labels, AGE_BANDS) if attribute == "age" else labels

    def shared(self) -> dict[str, Parameter]:
        """Settings that all records of a file have."""
        return {"shares": list(self.shares), "faces": len(self.faces), "neighbours": NEIGHBOURS}


def study(faces: LabelledFaces, schemes: Sequence[FaceScheme]) -> Study["Guessed"]:
    """Every attribute of all victims, by every attacker, under every scheme."""
    return Study(partial(_cases, faces, schemes), faces.shared(), faces.seed, faces.name)


def _cases(faces: LabelledFaces, schemes: Sequence[FaceScheme]) -> Iterator[Case["Guessed"]]:
    for scheme in schemes:
        attackers = [one for one in ATTACKERS if one != "unmix" or scheme.confounders_are_known]
        # A strategy that balances an attribute makes other templates for each of them.
        groups = [(one,) for one in faces.attributes] if scheme.needs_labels else [faces.attributes]
        for group in groups:
            victims = cache(partial(_Victims, faces, scheme, group))
            for attacker in attackers:
                for attribute in group:
                    stated = {"attribute": attribute, **scheme.parameters()}
                    yield Case(scheme.name, stated, Guessed(victims, attacker, attribute), attack=attacker)


class _Victims:
    """Templates of all victims under one scheme, and what each attacker makes of them."""

    def __init__(self, faces: LabelledFaces, scheme: FaceScheme, attributes: tuple[str, ...]) -> None:
        self.faces, self.scheme, self.attributes = faces, scheme, attributes
        balanced = attributes[0] if scheme.needs_labels else None
        lifting = faces.split.lifting
        labelled = lifting
        if balanced is not None:
            bands = {balanced: faces.labels(lifting, balanced)}
            labelled = FaceSet(lifting.values, lifting.names, lifting.kind, bands)
        self.database: Database = lifting_database(labelled, balanced, generator(faces.seed, "database"))
        self.rng = generator(faces.seed, _TASK, scheme.name, *attributes)
        self.seen = self._hidden(faces.split.victims, balanced, self.database)
        self._balanced = balanced

    def guesses(self, attacker: str, attribute: str) -> Integers:
        """The attribute of each victim, as an attacker guesses it."""
        known = self.faces.split.attacker
        labels = self.faces.labels(known, attribute)
        match attacker:
            case "chance":
                return np.full(len(self.seen), np.bincount(labels).argmax())
            case "knn":
                return NearestLabels(NEIGHBOURS).fit(Points(known.values), labels).predict(self.seen)
            case "trained":
                return self._trained[attribute].predict(self.seen)
        return self._readers[attribute].predict(self._unmixed)

    @cached_property
    def _trained(self) -> dict[str, TrainedLabels]:
        own = self.faces.split.attacker
        count = min(_MOST_EXAMPLES, 2 * len(own) // 3)
        order = self.rng.permutation(len(own))  # files may be sorted by a label
        known, rest = own.take(order[:count]), own.take(order[count:])
        many = [self.faces.labels(known, one) for one in self.attributes]
        # Nobody has the faces of a private pool: the attacker hides its own among the rest of them.
        among = self.database
        if self.scheme.strategy == HARDENED:
            among = lifting_database(apart_from(rest, known), None, self.rng)
        fitted = TrainedLabels().fit_many(self._hidden(known, self._balanced, among), many)
        return dict(zip(self.attributes, fitted, strict=True))

    @cached_property
    def _readers(self) -> dict[str, NearestLabels]:
        known = self.faces.split.attacker
        return {
            one: NearestLabels(NEIGHBOURS).fit(Points(known.values), self.faces.labels(known, one))
            for one in self.attributes
        }

    @cached_property
    def _unmixed(self) -> Points:
        seen = PrivateFeatures(
            self.seen, self.database.kind, self.scheme.lifting(self.database).spec(), Guarantee("empirical")
        )
        return Points(attack(seen, Unmix(), Knowledge(lifting_database=self.database), self.rng).values)

    def _hidden(self, faces: FaceSet, balanced: str | None, among: Database) -> Flats:
        labels = None if balanced is None else self.faces.labels(faces, balanced)
        return self.scheme.hide(faces.values, among, self.rng, labels)


@dataclass(frozen=True, eq=False)
class Guessed:
    """An attribute of all victims, as an attacker guesses it."""

    victims: Callable[[], _Victims]
    attacker: str
    attribute: str


def measure(guessed: Guessed) -> Measured:
    """The share of labels that are right."""
    victims = guessed.victims()
    faces = victims.faces
    right = victims.guesses(guessed.attacker, guessed.attribute) == faces.labels(faces.split.victims, guessed.attribute)
    return Measured(round(float(right.mean()), 6), len(right))


@dataclass(frozen=True)
class AttributeRow:
    """How often each attacker names an attribute right under one scheme, by its name; `best` of all but chance."""

    strategy: str
    dimension: int
    attribute: str
    right: dict[str, float]
    victims: int

    @property
    def best(self) -> float:
        """Of the attackers that look."""
        return max((share for name, share in self.right.items() if name != "chance"), default=self.right["chance"])

    def share(self, attacker: str) -> str:
        """As a cell, in percent."""
        return f"{100 * self.right[attacker]:.1f}" if attacker in self.right else "-"


COLUMNS: tuple[Column[AttributeRow], ...] = (
    Column("attribute", lambda row: row.attribute, left=True),
    Column("scheme", lambda row: row.strategy, left=True),
    Column("m", lambda row: str(row.dimension or "")),
    Column("chance", lambda row: row.share("chance")),
    Column("K-NN", lambda row: row.share("knn")),
    Column("trained", lambda row: row.share("trained")),
    Column("unmix", lambda row: row.share("unmix")),
    Column("best", lambda row: f"{100 * row.best:.1f}"),
)


def rows_of(records: Sequence[Record]) -> list[AttributeRow]:
    """One row for each scheme and attribute, in the order of the records, attribute by attribute."""
    groups: dict[tuple[str, int, str], dict[str, Record]] = {}
    for record in records:
        if record.attack not in ATTACKERS:
            raise InputError(f"a record of task {record.task} is not one of attribute attacks: leave it out")
        group = *strategy_and_dimension(record), str(record.parameters["attribute"])
        groups.setdefault(group, {})[record.attack] = record
    rows = [
        AttributeRow(*group, {name: float(str(one.value)) for name, one in members.items()}, members["chance"].count)
        for group, members in groups.items()
        if "chance" in members
    ]
    order = list(dict.fromkeys(row.attribute for row in rows))
    return sorted(rows, key=lambda row: order.index(row.attribute))


def _text(rows: Sequence[AttributeRow], records: Sequence[Record]) -> str:
    one = records[0]
    return "\n".join(
        [
            f"# Attributes of faces in {one.dataset}\n",
            f"How often an attacker names them right, in percent, on {rows[0].victims:,} victims (seed {one.seed})."
            " chance: always the most frequent label. K-NN: the paper's attacker, its ten nearest labelled faces vote."
            " trained: learns from its own faces, hidden by the same defense. unmix: knows the faces that others are"
            " hidden among, and reads what is left without them. hybrid+ and balanced balance the attribute in the"
            " row.\n",
            markdown_table(COLUMNS, rows),
        ]
    )


def draw(rows: Sequence[AttributeRow], path: str | Path, title: str = "") -> None:
    """A line of panels for each attribute: the paper's attacker on the left, the best one on the right."""
    attributes = list(dict.fromkeys(row.attribute for row in rows))
    strategies = list(dict.fromkeys(row.strategy for row in rows if row.strategy != RAW))
    dimensions = sorted({row.dimension for row in rows if row.strategy != RAW})
    figure = blank_figure(11.5, 2.3 * len(attributes) + 0.4)
    panels = figure.subplots(len(attributes), 2, sharex=True, sharey="row", squeeze=False)
    for line, attribute in zip(panels, attributes, strict=True):
        chosen = [row for row in rows if row.attribute == attribute]
        for panel, name in zip(line, ("knn", "best"), strict=True):
            share = {
                (row.strategy, row.dimension): 100 * (row.best if name == "best" else row.right[name])
                for row in chosen
                if row.strategy != RAW and (name == "best" or name in row.right)
            }
            draw_bars(panel, strategies, dimensions, share)
            for row in (one for one in chosen if one.strategy == RAW):
                height = 100 * (row.best if name == "best" else row.right.get(name, row.best))
                panel.axhline(height, color=LEVELS["raw"], linestyle="--", linewidth=1.3, label="raw")
            panel.axhline(100 * chosen[0].right["chance"], color="black", linewidth=1.3, label="chance")
            panel.set_ylim(0, 103)
            quiet(panel)
        line[0].set_ylabel(f"{attribute}\nnamed right (%)", fontsize=9)
    panels[0][0].set_title("the paper's attacker (K-NN)", fontsize=9)
    panels[0][1].set_title("the best attacker", fontsize=9)
    figure.legend(*panels[0][0].get_legend_handles_labels(), loc="outside right center", frameon=False, fontsize=8)
    write_figure(figure, path, title)


BENCH = Bench(
    "faces attributes",
    attributes,
    task=_TASK,
    measure=measure,
    key=("scheme", "attack", "attribute"),
    metric="accuracy",
    unit="share",
    rows=rows_of,
    text=_text,
    screen=partial(screen_table, COLUMNS),
    figures={CURVE: draw},
    title=lambda record: f"Attributes of faces in {record.dataset}",
    named=("attribute", "strategy", "dimension"),
)
