"""How well patch descriptors tell patches apart, before and after a transform hides what they show.

FPR@95 on the pairs of patch sets in PhotoTour's layout, and the three tasks of HPatches on image sequences. A scheme is
a transform of descriptors: the identity ("raw"), a concealer, or random vectors ("chance"), the floor of every table.
"""

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np

from featveil.core import InputError, Points
from featveil.core.arrays import Float32, Float64
from featveil.core.networks import ConcealingNetwork
from featveil.core.records import Parameter, Record
from featveil.core.resuming import Key, Plan, Report, resume, versions
from featveil.core.seeding import check_seed, generator
from featveil.datasets import HPatches, PatchSet
from featveil.extractors import PatchDescriber
from featveil.lab.patch_measures import Negatives, SceneDescriptors, matching, retrieval, verification
from featveil.lab.patch_sequences import LEVELS, scene_patches
from featveil.metrics import false_positive_rate

TASK = "patches"
FPR = "FPR@95"
MEASURES = ("verification intra", "verification inter", "matching", "retrieval")

Transform = Callable[[Points], Points]

_KEY = ("dataset", "kind", "scheme", "measure", "level")
_BLOCK = 4096


@dataclass(frozen=True)
class PatchSettings:
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
class PatchSources:
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


def run_resumable(
    sources: PatchSources,
    describer: PatchDescriber,
    schemes: Mapping[str, Transform],
    settings: PatchSettings,
    path: str | Path,
    report: Report = lambda done, total: None,
) -> list[Record]:
    """Measure what `path` does not hold yet, append each record once measured, return all that were asked for.

    `schemes` are transforms of the describer's descriptors, by name. `report` is called with records (done, total).
    Raises InputError when the file has other settings or other weights of the describer.
    """
    shared: dict[str, Parameter] = asdict(settings)
    about: dict[str, Parameter] = {"kind": describer.kind, "weights": describer.digest}
    keys: list[Key] = [(one.name, describer.kind, scheme, FPR, "") for one in sources.sets for scheme in schemes]
    if sources.sequences is not None:
        name = sources.sequences.name
        keys += [
            (name, describer.kind, scheme, measure, level)
            for scheme in schemes
            for measure in MEASURES
            for level in LEVELS
        ]
    bench = _Bench(sources, describer, settings)

    def measure_rest(done: frozenset[Key]) -> Iterator[Record]:
        for key in keys:
            if key not in done:
                yield _record(key, bench, schemes[key[2]], about)

    return resume(path, Plan(TASK, _KEY, shared, dict.fromkeys(keys, about)), measure_rest, report)


class _Bench:
    """Raw descriptors of the sources, each described when first needed."""

    def __init__(self, sources: PatchSources, describer: PatchDescriber, settings: PatchSettings) -> None:
        self.sources, self.describer, self.settings = sources, describer, settings
        self._pairs: dict[str, tuple[Points, Points]] = {}

    def pair_distances(self, name: str, transform: Transform) -> tuple[Float64, PatchSet]:
        """Distances (k,) of the pairs of a set."""
        found = next(one for one in self.sources.sets if one.name == name)
        if name not in self._pairs:
            self._pairs[name] = self._described(found)
        first, second = (transform(side).values.astype(np.float64) for side in self._pairs[name])
        return np.linalg.norm(first - second, axis=1), found

    def _described(self, found: PatchSet) -> tuple[Points, Points]:
        assert found.pairs is not None
        wanted, places = np.unique(np.concatenate([found.pairs.first, found.pairs.second]), return_inverse=True)
        blocks = [wanted[start : start + _BLOCK] for start in range(0, len(wanted), _BLOCK)]
        values = np.concatenate([self.describer.describe(found.read(block)).values for block in blocks])
        both = values[places]
        return Points(both[: len(found.pairs)]), Points(both[len(found.pairs) :])

    @cached_property
    def _scenes(self) -> dict[str, list[SceneDescriptors]]:
        """Descriptors of the sequences by level."""
        assert self.sources.sequences is not None
        made: dict[str, list[SceneDescriptors]] = {level: [] for level in LEVELS}
        for scene in self.sources.sequences.scenes:
            patches = scene_patches(scene, self.settings.max_patches, self.settings.seed)
            reference = self.describer.describe(patches.reference).values
            for level, others in patches.others.items():
                views = [reference, *(self.describer.describe(view).values for view in others)]
                made[level].append(SceneDescriptors(scene.name, np.stack(views)))
        return made

    def scenes(self, level: str, transform: Transform) -> list[SceneDescriptors]:
        """Descriptors of the sequences at one level, transformed."""
        return [SceneDescriptors(one.name, _transformed(one.values, transform)) for one in self._scenes[level]]


def _transformed(values: Float32, transform: Transform) -> Float32:
    images, n, _ = values.shape
    made = transform(Points(values.reshape(images * n, -1))).values
    return made.reshape(images, n, made.shape[1])


def _record(key: Key, bench: _Bench, transform: Transform, about: dict[str, Parameter]) -> Record:
    dataset, _, scheme, measure, level = key
    value, count, unit = _measured(key, bench, transform)
    parameters: dict[str, Parameter] = {"measure": measure, "level": level, **about}
    return Record(
        task=TASK,
        dataset=dataset,
        scheme=scheme,
        metric=measure if measure == FPR else f"{measure} mAP",
        value=round(value, 6),
        unit=unit,
        count=count,
        seed=bench.settings.seed,
        versions=versions(),
        parameters=parameters | {name: value for name, value in asdict(bench.settings).items() if name != "seed"},
    )


def _measured(key: Key, bench: _Bench, transform: Transform) -> tuple[float, int, str]:
    """Value, what was counted for it, and its unit. Draws are the same for every descriptor and scheme."""
    dataset, _, _, measure, level = key
    if measure == FPR:
        distances, found = bench.pair_distances(dataset, transform)
        assert found.pairs is not None
        return false_positive_rate(distances, found.pairs.match), len(distances), "share of non-matching pairs"
    settings, scenes = bench.settings, bench.scenes(level, transform)
    rng = generator(settings.seed, "measure", measure, level)
    patches = sum(scene.values.shape[1] for scene in scenes)
    if measure == "matching":
        return matching(scenes), 5 * patches, "mean average precision"
    if measure == "retrieval":
        return retrieval(scenes, settings.queries, rng), min(settings.queries, patches), "mean average precision"
    negatives: Negatives = "intra" if measure == "verification intra" else "inter"
    return verification(scenes, negatives, settings.pairs, rng), settings.pairs, "mean average precision"
