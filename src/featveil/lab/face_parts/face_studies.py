"""What studies of faces share: their options, whose faces are verified, schemes, and the faces that hide others."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from featveil.core import Flats, InputError, Points, Randomness
from featveil.core.arrays import Float32, Integers
from featveil.core.options import argument, option
from featveil.core.records import Parameter, Record
from featveil.core.seeding import check_seed
from featveil.databases import Database
from featveil.databases.nearest_labels import NearestLabels
from featveil.datasets.face_pairs import FacePairs, load_pairs, pairs_within
from featveil.datasets.face_sets import FaceSet, load_faces
from featveil.defenses import STRATEGIES, Lifting
from featveil.distances import nearest
from featveil.lab.bench import out_option
from featveil.metrics.error_rates import error_rates
from featveil.pipelines.face_parts.face_templates import HARDENED, SAME_PERSON, hide_by_pools
from featveil.plotting.figures import shades

if TYPE_CHECKING:
    from matplotlib.axes import Axes

RAW = "raw"
FACE_STRATEGIES = ("random", "adversarial", "hybrid", "hybrid+", "balanced", HARDENED)
DIMENSIONS = (2, 4, 8, 16, 32)
FAR = 1e-3  # at which a guess passes for a person


# What several of the studies say of their options.
FACES = "Face descriptors: .npz or .npy (featveil face extract)."
FILES = "records.jsonl, table.md and figures"
STRATEGIES_HELP = "Strategies, separated by commas."
DIMENSIONS_HELP = "Subspace dimensions, separated by commas."


@dataclass(frozen=True)
class TestedFaces:
    """Options of the studies that verify faces."""

    faces: Path = argument(metavar="FACES", help=FACES)
    out: Path = out_option(FILES)
    pairs: Path | None = option(
        None, help="Pairs: LFW's pairs.txt, or lines of two names and 0 or 1.", shown="those in FACES"
    )
    others: Path | None = option(
        None, help="Faces of other people to hide among.", shown="those of FACES that are in no pair"
    )

    def load(self, seed: int, attribute: str | None = None) -> "Verification":
        """The faces, who is who, and the other faces."""
        tested = load_faces(self.faces)
        known = pairs_within(tested) if self.pairs is None else load_pairs(self.pairs, tested)
        among = others_of(tested, known) if self.others is None else load_faces(self.others)
        return Verification(self.faces.stem, tested, known, among, attribute, seed)


@dataclass(frozen=True, eq=False)
class Verification:
    """What is verified: `pairs` of `faces`, hidden among `others`; `attribute` is what some strategies balance."""

    name: str
    faces: FaceSet
    pairs: FacePairs
    others: FaceSet
    attribute: str | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        check_seed(self.seed)
        check_described_alike(self.faces, self.others)
        shared = self.pairs.people(self.faces) & set(self.others.people)
        if shared:
            raise InputError(
                f"{len(shared)} of the people tested are among the faces to hide among, such as {min(shared)!r:.80}:"
                " leave them out"
            )

    @property
    def tested(self) -> FaceSet:
        """The faces without those to hide among, where these are of the same set."""
        return without(self.faces, self.others)

    def shared(self) -> dict[str, Parameter]:
        """Settings that all records of a file have."""
        return {"attribute": self.attribute, "pairs": len(self.pairs), "others": len(self.others)}


@dataclass(frozen=True)
class FaceScheme:
    """A way to hide face descriptors; half of the directions lead to confounders where a strategy has both sorts."""

    strategy: str = RAW
    dimension: int = 0

    @property
    def name(self) -> str:
        """Strategy and dimension."""
        return self.strategy if self.strategy == RAW else f"{self.strategy}-{self.dimension}"

    @property
    def confounders(self) -> int:
        """Real descriptors in each subspace beside the hidden one."""
        if self.strategy == RAW:
            return 0
        if self.strategy == HARDENED:
            return self.dimension // 2
        return Lifting(self.strategy, self.dimension).adversarial_directions

    @property
    def confounders_are_known(self) -> bool:
        """Whether there are any, and from a database that an attacker may have: pools are private."""
        return self.confounders > 0 and self.strategy != HARDENED

    @property
    def needs_labels(self) -> bool:
        """Whether it balances an attribute."""
        return self.strategy in STRATEGIES and STRATEGIES[self.strategy].needs_labels

    def parameters(self) -> dict[str, Parameter]:
        """Strategy, dimension and confounders."""
        return {"strategy": self.strategy, "dimension": self.dimension, "confounders": self.confounders}

    def lifting(self, database: Database) -> Lifting:
        """The lifting with `database`; raises InputError where this scheme is none."""
        if self.strategy not in STRATEGIES:
            raise InputError(f"{self.name} is not lifting")
        return Lifting(self.strategy, self.dimension, database=database)

    def hide(self, values: Float32, database: Database, rng: Randomness, labels: Integers | None = None) -> Flats:
        """Templates of the descriptors `values` (n, d). `labels` (n,) are of the attribute that is balanced."""
        if self.strategy == RAW:
            return Points(values)
        if self.strategy == HARDENED:
            return hide_by_pools(values, database, rng, self.confounders, self.dimension)
        return self.lifting(database).privatize(Points(values), rng, labels if self.needs_labels else None)


def make_schemes(
    strategies: Sequence[str] = FACE_STRATEGIES, dimensions: Sequence[int] = DIMENSIONS
) -> list[FaceScheme]:
    """Raw descriptors, then every strategy x dimension; raises InputError for unknown ones."""
    for strategy in strategies:
        if strategy not in FACE_STRATEGIES:
            raise InputError(f"unknown strategy {strategy!r:.80}: use one of {', '.join(FACE_STRATEGIES)}")
    for dimension in dimensions:
        if dimension < 2:
            raise InputError(f"face descriptors have one norm, so a dimension is at least 2, got {dimension}")
    wanted = product(dict.fromkeys(strategies), dict.fromkeys(dimensions))
    return [FaceScheme(), *(FaceScheme(*one) for one in wanted)]


def lifting_database(faces: FaceSet, attribute: str | None, rng: np.random.Generator) -> Database:
    """The faces that others are hidden among, with the labels of `attribute` where they have it."""
    labels = faces.attributes.get(attribute) if attribute is not None else None
    return Database.from_array(faces.values, faces.kind, 1, labels, rng)


def labels_for(faces: FaceSet, database: Database, attribute: str | None) -> Integers | None:
    """Labels (n,) of `attribute`: their own, else what the labelled database suggests by its nearest ten; or None."""
    if attribute is not None and attribute in faces.attributes:
        return faces.attributes[attribute]
    if database.labels is None:
        return None
    return NearestLabels().fit(database.as_points, database.labels).predict(Points(faces.values))


def check_described_alike(faces: FaceSet, others: FaceSet) -> None:
    """Raise InputError where those to hide among were described by another network."""
    if faces.kind != others.kind or faces.size != others.size:
        raise InputError("the faces to hide among were described by another network: describe both by one")


def others_of(faces: FaceSet, pairs: FacePairs) -> FaceSet:
    """The faces of everyone who is in no pair; raises InputError where that is nobody."""
    rows = np.flatnonzero(~np.isin(faces.people, list(pairs.people(faces))))
    if len(rows) == 0:
        raise InputError("everyone in these faces is tested: name other faces to hide among")
    return faces.take(rows)


def without(faces: FaceSet, others: FaceSet) -> FaceSet:
    """The faces of everyone who is not in `others` by name; raises InputError where that is nobody."""
    rows = np.flatnonzero(~np.isin(faces.people, others.people))
    if len(rows) == 0:
        raise InputError("everyone is both tested and hidden among: name other faces to hide among")
    return faces.take(rows)


def apart_from(others: FaceSet, faces: FaceSet) -> FaceSet:
    """Those of `others` who do not look like anyone of `faces`; raises InputError where nobody is left."""
    away = nearest(Points(others.values), Points(faces.values), 1).distances[:, 0]
    rows = np.flatnonzero(away >= SAME_PERSON)
    if len(rows) == 0:
        raise InputError("all of the faces to hide among look like someone tested: name other faces")
    return others.take(rows)


def raw_threshold(faces: FaceSet, pairs: FacePairs) -> float:
    """The distance of raw descriptors up to which two photographs are one person: at a FAR of 0.001 on `pairs`."""
    away = np.linalg.norm(faces.values[pairs.first] - faces.values[pairs.second], axis=1)
    return error_rates(away, pairs.same).threshold(FAR)


def strategy_and_dimension(record: Record) -> tuple[str, int]:
    """What rows are grouped by."""
    return str(record.parameters["strategy"]), int(str(record.parameters["dimension"]))


def draw_bars(panel: "Axes", groups: Sequence[str], bars: Sequence[int], heights: dict[tuple[str, int], float]) -> None:
    """A group of bars for each of `groups`, one for each of `bars`, light to dark; what is missing stays empty."""
    width = 0.8 / max(len(bars), 1)
    for place, (bar, colour) in enumerate(zip(bars, shades(len(bars)), strict=True)):
        there = [(index, heights[group, bar]) for index, group in enumerate(groups) if (group, bar) in heights]
        where = [index - 0.4 + (place + 0.5) * width for index, _ in there]
        panel.bar(where, [height for _, height in there], width * 0.92, color=colour, label=f"m = {bar}")
    panel.set_xticks(range(len(groups)), groups)
