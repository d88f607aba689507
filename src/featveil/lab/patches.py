"""How well patch descriptors tell patches apart, before and after a transform hides what they show.

FPR@95 on the pairs of patch sets in PhotoTour's layout, and the three tasks of HPatches on image sequences. A scheme is
a transform of descriptors: the identity ("raw"), a concealer, or random vectors ("chance"), the floor of every table.
"""

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property, partial
from pathlib import Path
from statistics import mean

import numpy as np
from rich.table import Table

from featveil.core import InputError, Points
from featveil.core.arrays import Float32, Float64
from featveil.core.networks import ConcealingNetwork
from featveil.core.options import option
from featveil.core.records import Parameter, Record
from featveil.core.seeding import check_seed, generator
from featveil.datasets import HPatches, PatchSet, load_hpatches, load_phototour
from featveil.extractors import PatchDescriber, make_describer
from featveil.formats.network_files import load_network
from featveil.lab.bench import (
    HPATCHES,
    Bench,
    Case,
    Column,
    Measured,
    Progress,
    Study,
    markdown_table,
    out_option,
    screen_table,
    seed_option,
)
from featveil.lab.patches_parts.patches_tasks import (
    LEVELS,
    Negatives,
    SceneDescriptors,
    matching,
    retrieval,
    scene_patches,
    verification,
)
from featveil.metrics import false_positive_rate

FPR = "FPR@95"
MEASURES = ("verification intra", "verification inter", "matching", "retrieval")
TASKS = ("verification", "matching", "retrieval")

Transform = Callable[[Points], Points]

_BLOCK = 4096


@dataclass(frozen=True)
class Options:
    """What is measured on, and which descriptors."""

    out: Path = out_option("records.jsonl and table.md")
    data: Path | None = option(None, help=HPATCHES, shown="not run")
    phototour: tuple[Path, ...] = option(
        (), help="Patch set, see featveil patches build; may be repeated.", repeated=True
    )
    kind: str = option("sift", help="sift, rootsift, hardtfeat, hardnet or sosnet.")
    weights: Path | None = option(None, help="Weights file of a network.", shown="none")
    concealer: tuple[Path, ...] = option(
        (), help="Concealing network to put after the descriptor; may be repeated.", repeated=True
    )
    max_patches: int = option(500, help="Patches of each scene, the strongest.")
    pairs: int = option(50_000, help="Negative pairs of verification.")
    queries: int = option(1000, help="Queries of retrieval.")
    seed: int = seed_option()


def patches(options: Options, progress: Progress) -> Study["Task"]:
    """FPR@95 on patch sets, and the verification, matching and retrieval tasks of HPatches on image sequences.

    Several kinds may be measured into one folder, one after the other: the table has all of them. Stop it with Ctrl-C
    at any time: the same command goes on where it stopped (from OUT/records.jsonl).

    Example: featveil bench patches --data hpatches-sequences/ --phototour patches/ --out results/
    """
    settings = Settings(options.max_patches, options.pairs, options.queries, options.seed)
    describer = make_describer(options.kind, options.weights)
    networks = [load_network(path) for path in options.concealer]
    for path, network in zip(options.concealer, networks, strict=True):
        if network.kind != options.kind:
            raise InputError(f"{path} conceals {network.kind} descriptors, not {options.kind}")
    sets = [load_phototour(folder) for folder in options.phototour]
    sources = Sources(None if options.data is None else load_hpatches(options.data), sets)
    return study(sources, describer, transforms(networks), settings)


@dataclass(frozen=True)
class Settings:
    """What all records of one file share: patches of each scene, negatives of verification, queries of retrieval."""

    max_patches: int = 500
    pairs: int = 50_000
    queries: int = 1000
    seed: int = 0

    def __post_init__(self) -> None:
        check_seed(self.seed)
        for name, least in (("max_patches", 2), ("pairs", 5), ("queries", 1)):
            if type(getattr(self, name)) is not int or getattr(self, name) < least:
                raise InputError(f"{name} must be a whole number of at least {least}, got {getattr(self, name)!r}")


@dataclass(frozen=True, eq=False)
class Sources:
    """What is measured on: image sequences, and patch sets that have pairs."""

    sequences: HPatches | None = None
    sets: Sequence[PatchSet] = field(default_factory=tuple)

    def __post_init__(self) -> None:
        if self.sequences is None and not self.sets:
            raise InputError("there is nothing to measure on: give image sequences or patch sets")
        if self.sequences is not None and len(self.sequences.scenes) < 2:
            raise InputError("the tasks of HPatches compare scenes: give at least two")
        names = [one.name for one in self.sets]
        if len(set(names)) < len(names):
            raise InputError(f"two patch sets are called {max(names, key=names.count)}: rename a folder")
        for one in self.sets:
            if one.pairs is None:
                raise InputError(f"{one.folder} has no file of pairs (m50_...txt) to measure on")


def raw(points: Points) -> Points:
    """Descriptors as they are."""
    return points


def chance(points: Points) -> Points:
    """Random directions instead of descriptors, the same for the same descriptors: what knows nothing reaches."""
    seed = hashlib.sha256(points.values.tobytes()).hexdigest()
    drawn = generator(0, "chance", seed).standard_normal(points.values.shape)
    return Points((drawn / np.linalg.norm(drawn, axis=1, keepdims=True)).astype(np.float32))


def concealing(network: ConcealingNetwork) -> Transform:
    """The transform of a concealing network."""
    return lambda points: Points(network.apply(points.values))


def transforms(networks: Sequence[ConcealingNetwork]) -> dict[str, Transform]:
    """What is done to descriptors, by the name of the scheme: nothing, each network, random vectors."""
    return {"raw": raw, **{network.name: concealing(network) for network in networks}, "chance": chance}


def study(
    sources: Sources, describer: PatchDescriber, schemes: Mapping[str, Transform], settings: Settings
) -> Study["Task"]:
    """Every measure of the describer's descriptors after each of the transforms `schemes`, which have names."""
    shared = asdict(settings)
    del shared["seed"]
    return Study(partial(_cases, sources, describer, schemes, settings), shared, settings.seed)


def _cases(
    sources: Sources, describer: PatchDescriber, schemes: Mapping[str, Transform], settings: Settings
) -> Iterator[Case["Task"]]:
    described = _Described(sources, describer, settings)
    about: dict[str, Parameter] = {"kind": describer.kind, "weights": describer.digest}
    for patch_set in sources.sets:
        for scheme, transform in schemes.items():
            stated = {"measure": FPR, "level": "", **about}
            task, unit = Task(described, transform, FPR, patch_set=patch_set), "share of non-matching pairs"
            yield Case(scheme, stated, task, dataset=patch_set.name, metric=FPR, unit=unit)
    if sources.sequences is not None:
        for scheme, transform in schemes.items():
            for name in MEASURES:
                for level in LEVELS:
                    stated = {"measure": name, "level": level, **about}
                    task = Task(described, transform, name, level)
                    yield Case(scheme, stated, task, dataset=sources.sequences.name, metric=f"{name} mAP")


class _Described:
    """Raw descriptors of the sources, each described when first needed."""

    def __init__(self, sources: Sources, describer: PatchDescriber, settings: Settings) -> None:
        self.sources, self.describer, self.settings = sources, describer, settings
        self._pairs: dict[str, tuple[Points, Points]] = {}

    def pair_distances(self, patch_set: PatchSet, transform: Transform) -> Float64:
        """Distances (k,) of the pairs of a set."""
        if patch_set.name not in self._pairs:
            self._pairs[patch_set.name] = self._sides(patch_set)
        first, second = (transform(side).values.astype(np.float64) for side in self._pairs[patch_set.name])
        distances: Float64 = np.linalg.norm(first - second, axis=1)
        return distances

    def _sides(self, patch_set: PatchSet) -> tuple[Points, Points]:
        pairs = patch_set.pairs
        assert pairs is not None
        wanted, places = np.unique(np.concatenate([pairs.first, pairs.second]), return_inverse=True)
        blocks = [wanted[start : start + _BLOCK] for start in range(0, len(wanted), _BLOCK)]
        values = np.concatenate([self.describer.describe(patch_set.read(block)).values for block in blocks])
        both = values[places]
        return Points(both[: len(pairs)]), Points(both[len(pairs) :])

    @cached_property
    def _scenes(self) -> dict[str, list[SceneDescriptors]]:
        """Descriptors of the sequences by level."""
        assert self.sources.sequences is not None
        described: dict[str, list[SceneDescriptors]] = {level: [] for level in LEVELS}
        for scene in self.sources.sequences.scenes:
            cut = scene_patches(scene, self.settings.max_patches, self.settings.seed)
            reference = self.describer.describe(cut.reference).values
            for level, others in cut.others.items():
                views = [reference, *(self.describer.describe(view).values for view in others)]
                described[level].append(SceneDescriptors(scene.name, np.stack(views)))
        return described

    def scenes(self, level: str, transform: Transform) -> list[SceneDescriptors]:
        """Descriptors of the sequences at one level, transformed."""
        return [SceneDescriptors(one.name, _transformed(one.values, transform)) for one in self._scenes[level]]


def _transformed(values: Float32, transform: Transform) -> Float32:
    images, n, _ = values.shape
    changed = transform(Points(values.reshape(images * n, -1))).values
    return changed.reshape(images, n, changed.shape[1])


@dataclass(frozen=True, eq=False)
class Task:
    """One measure of transformed descriptors: of a patch set, or of the sequences at a level of disturbance."""

    described: _Described
    transform: Transform
    name: str
    level: str = ""
    patch_set: PatchSet | None = None


def measure(task: Task) -> Measured:
    """One share, or mean average precision. Draws are the same for every descriptor and scheme."""
    described, settings = task.described, task.described.settings
    if task.patch_set is not None:
        distances = described.pair_distances(task.patch_set, task.transform)
        assert task.patch_set.pairs is not None
        return Measured(round(false_positive_rate(distances, task.patch_set.pairs.match), 6), len(distances))
    scenes = described.scenes(task.level, task.transform)
    rng = generator(settings.seed, "measure", task.name, task.level)
    regions = sum(scene.values.shape[1] for scene in scenes)
    if task.name == "matching":
        return Measured(round(matching(scenes), 6), 5 * regions)
    if task.name == "retrieval":
        return Measured(round(retrieval(scenes, settings.queries, rng), 6), min(settings.queries, regions))
    negatives: Negatives = "intra" if task.name == "verification intra" else "inter"
    return Measured(round(verification(scenes, negatives, settings.pairs, rng), 6), settings.pairs)


@dataclass(frozen=True)
class PatchRow:
    """One descriptor under one scheme: FPR@95 by patch set, and mAP by task and level.

    `precisions` has keys such as "matching easy"; verification is the mean over negatives of one scene and of two.
    """

    kind: str
    scheme: str
    false_positives: dict[str, float]
    precisions: dict[str, float]

    def mean_of(self, task: str) -> float | None:
        """Mean over the levels of one task; None where it was not run."""
        values = [value for name, value in self.precisions.items() if name.split()[0] == task]
        return mean(values) if values else None

    @property
    def mean_precision(self) -> float | None:
        """Mean over the three tasks and all levels, as NinjaDesc's figure 8b has it; None unless all are there."""
        tasks = {name.split()[0] for name in self.precisions}
        return mean(self.precisions.values()) if tasks == set(TASKS) else None


def rows_of(records: Sequence[Record]) -> list[PatchRow]:
    """One row for each descriptor and scheme, in the order of the records; "chance" goes last.

    Raises InputError when two records are of one measurement, or sequences of two data sets.
    """
    if len({record.dataset for record in records if record.parameters.get("measure") != FPR}) > 1:
        raise InputError("these records are of sequences of two data sets: make a table of each")
    values: dict[tuple[str, str], dict[tuple[str, ...], float]] = {}
    for record in records:
        if not isinstance(record.value, float):
            raise InputError("a record of patches has one value: this file is damaged")
        stated = record.parameters
        row = values.setdefault((str(stated.get("kind")), record.scheme), {})
        name = (record.dataset, *str(stated["measure"]).split(), str(stated.get("level")))
        if name in row:
            raise InputError("these records have one measurement twice: make a table of each run")
        row[name] = record.value
    rows = [_row(kind, scheme, numbers) for (kind, scheme), numbers in values.items()]
    return sorted(rows, key=lambda row: row.scheme == "chance")


def _row(kind: str, scheme: str, numbers: dict[tuple[str, ...], float]) -> PatchRow:
    false_positives, grouped = {}, dict[str, list[float]]()
    for (dataset, measure, *_, level), value in numbers.items():
        if measure == FPR:
            false_positives[dataset] = value
        else:
            grouped.setdefault(f"{measure} {level}", []).append(value)
    order = sorted(grouped, key=lambda name: TASKS.index(name.split()[0]))
    return PatchRow(kind, scheme, false_positives, {name: mean(grouped[name]) for name in order})


_NAMES: tuple[Column[PatchRow], ...] = (
    Column("descriptor", lambda row: row.kind, left=True),
    Column("scheme", lambda row: row.scheme, left=True),
)
_MEAN: Column[PatchRow] = Column("mean mAP", lambda row: percent(row.mean_precision), screen="mean\nmAP")


def columns_of(rows: Sequence[PatchRow], means: bool = False) -> list[Column[PatchRow]]:
    """A column for each patch set, and for each task and level: with `means` for each task, over both levels."""
    columns = [*_NAMES, *map(_rates, dict.fromkeys(name for row in rows for name in row.false_positives))]
    tasks = list(dict.fromkeys(name for row in rows for name in row.precisions))
    if means:
        measured = {name.split()[0] for name in tasks}
        columns += [_task_mean(task) for task in TASKS if task in measured]
    else:
        columns += [_precisions(name) for name in tasks]
    return [*columns, *([_MEAN] if tasks else [])]


def _rates(name: str) -> Column[PatchRow]:
    # Patch sets are called like their folders: a terminal must not be steered by one.
    shown = "".join(letter if letter.isprintable() else "?" for letter in name)
    return Column(f"{FPR} {name}", lambda row: percent(row.false_positives.get(name)), screen=f"{FPR}\n{shown}")


def _precisions(name: str) -> Column[PatchRow]:
    return Column(name, lambda row: percent(row.precisions.get(name)))


def _task_mean(task: str) -> Column[PatchRow]:
    return Column(task, lambda row: percent(row.mean_of(task)), screen=f"{task}\nmAP")


def percent(share: float | None) -> str:
    """A share as text; a dash for none."""
    return "-" if share is None else f"{100 * share:.2f}"


def _text(rows: Sequence[PatchRow], records: Sequence[Record]) -> str:
    """The table, with what its columns mean."""
    names = ", ".join(dict.fromkeys(record.dataset for record in records))
    stated, seed = records[0].parameters, records[0].seed
    settings = f"at most {stated.get('max_patches')} patches a scene, {stated.get('queries')} queries, seed {seed}"
    table = markdown_table(columns_of(rows), rows)
    return f"# Patch descriptors on {names}\n\nAll numbers in percent ({settings}).\n\n{_EXPLAINED}\n{table}"


_EXPLAINED = """\
- FPR@95: share of non-matching pairs that are taken for matches when 95 % of the matching ones are. Lower is better.
- verification, matching, retrieval: mean average precision of the tasks of HPatches. Higher is better. Verification is
  the mean over negatives of the same scene and of other scenes. easy, hard: how much patches are disturbed.
- scheme: what is done to the descriptors. raw: nothing. chance: random vectors, which know nothing.
"""


def _screen(rows: Sequence[PatchRow]) -> Table:
    """Means over easy and hard: a terminal has 80 columns."""
    return screen_table(columns_of(rows, means=True), rows)


BENCH = Bench(
    "patches",
    patches,
    measure=measure,
    key=("dataset", "kind", "scheme", "measure", "level"),
    unit="mean average precision",
    rows=rows_of,
    text=_text,
    screen=_screen,
    named=("measure",),
    whole_file=True,
)
