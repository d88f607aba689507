"""What the face commands do: describe photographs, make templates for a store, and find its threshold."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from featveil.core import (
    Defense,
    Descriptors,
    Features,
    InputError,
    Points,
    PrivacyError,
    PrivateFeatures,
    SecureRandomness,
    Subspaces,
)
from featveil.core.arrays import Float64, Integers
from featveil.core.descriptors import as_flats
from featveil.core.resuming import Report
from featveil.databases import Database, load_database
from featveil.databases.nearest_labels import NearestLabels
from featveil.datasets.face_pairs import FacePairs
from featveil.datasets.face_sets import FaceSet, load_faces
from featveil.datasets.insightface import load_bin
from featveil.defenses import STRATEGIES, Hardened, Lifting, privatize
from featveil.defenses.parallel import parallel
from featveil.distances import matrix, pair_distances
from featveil.extractors.face_networks import FaceNetwork
from featveil.extractors.faces import Which, faces_of
from featveil.metrics.error_rates import error_rates
from featveil.pipelines.face_schemes import HARDENED, halves, hide_by_pools
from featveil.stores.pool import Pool
from featveil.stores.templates import Calibration, Settings

ARRAYS = (".npz", ".npy")
_MOST_REASONS = 3  # that are told where no photograph could be described
_SAME_PHOTOGRAPH = 1e-4  # distance below which only rounding is left
_MOST_OTHERS = 1000  # that are compared with as many templates
_MOST_PHOTOGRAPHS = 3000  # that are compared with each other to find a threshold


@dataclass(frozen=True)
class LeftOut:
    """A photograph without a template, and why."""

    name: str
    reason: str


def describe_photographs(
    files: dict[str, Path], network: FaceNetwork, which: Which, report: Report = lambda done, total: None
) -> tuple[FaceSet, list[LeftOut]]:
    """Descriptors of the faces on photographs, by their names, and those that could not be described.

    With "all" the faces of one photograph are numbered from 1. Raises InputError where none could be.
    """
    rows, names, left_out = [], [], []
    for done, (name, path) in enumerate(files.items()):
        report(done, len(files))
        try:
            values = faces_of(path, network, which).descriptors.values
        except InputError as error:
            left_out.append(LeftOut(name, str(error)))
            continue
        if len(values) == 0:
            left_out.append(LeftOut(name, "no face was found in the picture"))
        rows.append(values)
        names += [name] if which != "all" else [f"{name}#{number}" for number in range(1, len(values) + 1)]
    report(len(files), len(files))
    if not names:
        reasons = "".join(f"; {one.name}: {one.reason}" for one in left_out[:_MOST_REASONS])
        raise InputError(f"no face was described{reasons}" + "; ..." * (len(left_out) > _MOST_REASONS))
    return FaceSet(np.concatenate(rows), tuple(names), network.kind, model=network.digest), left_out


def describe_bin(path: Path, network: FaceNetwork, report: Report = lambda done, total: None) -> FaceSet:
    """Descriptors and pairs of one of InsightFace's validation sets."""
    content = load_bin(path)
    try:
        pairs = content.pairs()
    except InputError as error:
        raise InputError(f"{path}: {error}") from error
    rows, part = [], []
    total = len(content.pictures)
    for done, crop in enumerate(content.crops(), start=1):
        part.append(crop)
        if len(part) == 64 or done == total:
            rows.append(network.describe_crops(part))
            part = []
            report(done, total)
    brought = {"first": pairs.first, "second": pairs.second, "same": pairs.same.astype(np.int64), "fold": pairs.fold}
    names = tuple(f"{path.stem}-{number:06d}" for number in range(total))
    return FaceSet(np.concatenate(rows), names, network.kind, {}, brought, network.digest)


def load_others(path: Path, kind: str, attribute: str | None = None) -> Database:
    """Faces to hide others among: a database file, or face descriptors, with the labels of `attribute`."""
    if path.suffix.lower() not in ARRAYS:
        return load_database(path)
    faces = load_faces(path, kind)
    labels = None if attribute is None else faces.attribute(attribute)
    # In a fixed order, so that the same file has the same digest: nothing is drawn from its parts.
    return Database.from_array(faces.values, faces.kind, 1, labels, np.random.default_rng(0))


def defense_of(settings: Settings, among: Path, attribute: str | None = None) -> Defense:
    """The defense of a store, with the faces in `among`; raises InputError where those are not the ones it had."""
    spec = settings.defense
    if spec["name"] == HARDENED:
        confounders = cast(Any, spec.get("confounders"))  # checked by what is made of it
        return Hardened(confounders, settings.dimension, Pool(among)).for_kind(settings.kind)
    made = Lifting(str(spec.get("strategy")), settings.dimension, database=load_others(among, settings.kind, attribute))
    made = made.for_kind(settings.kind)
    if made.spec() != spec:
        raise InputError(
            f"{among} does not hold the faces that this store hides others among: give those, with the same --attribute"
        )
    return made


def check_enough(faces: Sequence[tuple[str, Features]], defense: Defense) -> None:
    """Raise PrivacyError where a pool cannot hide all of them, before any of it is used."""
    if not isinstance(defense, Hardened) or defense.pool is None or not faces:
        return
    values = np.concatenate([features.descriptors.values for _, features in faces])
    free, needed = defense.pool.holdings().free, defense.pool.lacking(values, defense.confounders)
    if free < needed:
        raise PrivacyError(
            f"the pool has {free:,} unused descriptors left and {needed:,} are needed for {len(faces):,} people: add"
            " faces to it, or enroll fewer"
        )


def templates(faces: Sequence[tuple[str, Features]], defense: Defense) -> Iterator[tuple[str, PrivateFeatures]]:
    """A private template of each descriptor, by person. Its label, where one is balanced, is that of similar faces."""
    for person, features in faces:
        if len(features) != 1:
            raise InputError(f"{person!r:.80} is enrolled with one face, got {len(features)}")
        yield person, privatize(_labelled(features, defense), defense)


def parallel_probe(probe: Features, template: PrivateFeatures) -> PrivateFeatures:
    """What may be sent of a probe: its descriptor lifted along the directions of the template it is compared with."""
    if not isinstance(template.descriptors, Subspaces):
        raise InputError("a template is a subspace")
    if probe.kind != template.kind:
        raise InputError(
            f"the template is of {template.kind}, the probe of {probe.kind}: describe it by the same network"
        )
    lifted = parallel(probe.descriptors, template.descriptors, SecureRandomness())
    return replace(template, descriptors=lifted)


def calibrate(
    faces: FaceSet, pairs: FacePairs | None, settings: Settings, among: Path, far: float, attribute: str | None = None
) -> Calibration:
    """The loosest threshold that accepts at most a share `far` of strangers, found on `pairs`, or else on everyone.

    A pool is not touched: half of the people hide the others instead. Raises InputError where there are too few pairs.
    """
    if not 0 < far < 1:
        raise InputError(f"a false accept rate is between 0 and 1, got {far}")
    if faces.kind != settings.kind or faces.size != settings.size:
        raise InputError(f"the store is for {settings.kind} of size {settings.size}, these faces are {faces.kind}")
    rng = np.random.default_rng()
    if settings.defense["name"] == HARDENED:
        tested, rest = halves(faces, rng)
        database = Database.from_array(rest.values, rest.kind, 1, rng=rng)
        distances, same = _compared(
            tested,
            _within(pairs, faces, tested),
            lambda rows: hide_by_pools(tested.values[rows], database, settings.dimension, rng),
        )
    else:
        defense = defense_of(settings, among, attribute)
        distances, same = _compared(faces, pairs, lambda rows: _hidden(faces.take(rows), defense, rng))
    strangers, mated = int((~same).sum()), int(same.sum())
    if strangers * far < 1:
        halved = " (of a store with a pool, half of the people hide the others)" * (
            settings.defense["name"] == HARDENED
        )
        raise InputError(
            f"a FAR of {far:g} is seen on {int(np.ceil(1 / far)):,} pairs of strangers or more, there are"
            f" {strangers:,}{halved}: give more faces, leave --pairs out, or ask for a higher FAR"
        )
    rates = error_rates(distances, same)
    if rates.threshold(far) < _SAME_PHOTOGRAPH:
        raise InputError(
            f"more than {far:g} of the strangers are as near as can be: are photographs there twice, or are these the"
            " faces that others are hidden among?"
        )
    return Calibration(far, rates.threshold(far), strangers, mated, rates.true_accept_rate(far))


def accepted_others(
    faces: FaceSet, settings: Settings, among: Path, threshold: float, attribute: str | None = None
) -> float | None:
    """How many pairs of a template of `faces` and someone of those it is hidden among are nearer than `threshold`.

    A template runs through faces of their sort, so that it is nearer to them than to strangers of another sort. None
    for a pool, whose threshold is found on strangers of the sort that hides.
    """
    defense = defense_of(settings, among, attribute)
    if not isinstance(defense, Lifting) or defense.database is None:
        return None
    rng = np.random.default_rng()
    hidden = _hidden(faces.take(rng.permutation(len(faces))[:_MOST_OTHERS]), defense, rng)
    others = defense.database.points()
    probes = Points(others[rng.permutation(len(others))[:_MOST_OTHERS]])
    return float((matrix(probes, hidden) <= threshold).mean())


def _compared(
    faces: FaceSet, pairs: FacePairs | None, hide: Callable[[Integers], Descriptors]
) -> tuple[Float64, NDArray[np.bool_]]:
    """Distances of raw first and lifted second faces, and which pairs are one person."""
    if pairs is not None:
        hidden = as_flats(hide(np.arange(len(faces))))
        return pair_distances(Points(faces.values), hidden, pairs.first, pairs.second), pairs.same
    rows = np.arange(len(faces))
    if len(rows) > _MOST_PHOTOGRAPHS:
        rows = np.sort(np.random.default_rng().choice(rows, _MOST_PHOTOGRAPHS, replace=False))
    people = faces.people[rows]
    away = matrix(Points(faces.values[rows]), hide(rows))
    others = ~np.eye(len(rows), dtype=np.bool_)
    same = (people[:, None] == people[None])[others]
    if not same.any() or same.all():
        raise InputError("a threshold is found on people with several photographs: none was recognised by its name")
    return away[others].astype(np.float64), same


def _within(pairs: FacePairs | None, faces: FaceSet, tested: FaceSet) -> FacePairs | None:
    """The pairs of which both are among those `tested`, as rows of these."""
    if pairs is None:
        return None
    rows = {name: row for row, name in enumerate(tested.names)}
    place = np.array([rows.get(name, -1) for name in faces.names])
    kept = (place[pairs.first] >= 0) & (place[pairs.second] >= 0)
    return FacePairs(place[pairs.first[kept]], place[pairs.second[kept]], pairs.same[kept], pairs.fold[kept])


def _hidden(faces: FaceSet, defense: Defense, rng: np.random.Generator) -> Descriptors:
    return defense.privatize(Points(faces.values), rng, _labels(faces, defense))


def _labels(faces: FaceSet, defense: Defense) -> Integers | None:
    if not isinstance(defense, Lifting) or not STRATEGIES[defense.strategy].needs_labels:
        return None
    if defense.database is None or defense.database.labels is None:
        raise InputError(f"{defense.strategy} needs faces with labels to hide among")
    return NearestLabels().fit(defense.database.as_points, defense.database.labels).predict(Points(faces.values))


def _labelled(features: Features, defense: Defense) -> Features:
    faces = FaceSet(features.descriptors.values, tuple(map(str, range(len(features)))), features.kind)
    labels = _labels(faces, defense)
    return features if labels is None else replace(features, labels=labels)
