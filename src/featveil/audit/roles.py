"""Who has which photographs: victims, the attacker, and the devices' pools have nothing in common.

Unless an audit says otherwise, every second photograph that is not attacked is the attacker's, the others fill the
pools, and both get one half of the bundled descriptors.
"""

import hashlib
from collections.abc import Iterator, Sequence
from itertools import combinations
from pathlib import Path

import numpy as np

from featveil.audit.measuring import Audit
from featveil.audit.request import Request
from featveil.audit.schemes import Devices
from featveil.audit.trials import trials_of
from featveil.audit.victims import (
    Reading,
    check_apart,
    descriptors_of,
    drawn_database,
    find_photographs,
    own_database,
)
from featveil.core.arrays import Float32
from featveil.core.resuming import Report
from featveil.databases import Database, load_database
from featveil.databases.entries import unit_rows
from featveil.datasets import Content, contents
from featveil.defenses import Gate
from featveil.extractors import image_files

BUNDLED = Path(__file__).parent / "data" / "real-descriptors.safetensors"
_ATTACKER, _POOL = 0, 1  # parts of the bundled descriptors

_SHARED = {
    frozenset({"victims", "attacker"}): "the attacker would have what is hidden",
    frozenset({"victims", "pool"}): "a pool would hold what is hidden",
    frozenset({"attacker", "pool"}): "the attacker would have what the devices' pools hold",
    frozenset({"victims"}): "what is hidden in one dataset would be known from the other",
    frozenset({"attacker"}): "some would count twice",
    frozenset({"pool"}): "some would count twice",
    frozenset({"private"}): "some would count twice",
    frozenset({"victims", "private"}): "a second view would show private content",
    frozenset({"attacker", "private"}): "the attacker would have what is hidden",
    frozenset({"pool", "private"}): "a pool would hold what is hidden",
}


def prepare(request: Request, report: Report = lambda done, total: None) -> Audit:
    """Read everything that `request` names; what cannot be read is logged and left out.

    Raises InputError when roles share photographs, a dataset has no victim, or the attacker or a pool too little.
    """
    _check_roles(request)
    settings = request.settings
    photographs = find_photographs(request.sources)
    private = () if request.private is None else tuple(contents(request.private))
    mapped = any(isinstance(scheme.defense, Gate) for scheme in request.schemes)
    reading = Reading(settings, private, mapped)
    datasets = tuple(one.read(reading, report) for one in photographs)
    spare = [group for one in photographs for group in one.spare]
    attacker = _attacker(request, spare, report)
    pool = _pool(request, spare, report)
    trials = tuple(trials_of(request.methods))
    audit = Audit(datasets, request.schemes, trials, settings, attacker, pool, _digest(private))
    _check_pool(audit)
    return audit


def bundled(kind: str, part: int) -> Float32:
    """Descriptors of real photographs that come with featveil (s, d), of unit norm; half of them are in each part."""
    database = load_database(BUNDLED)
    values = database.values[database.part(part)].astype(np.float32)
    if kind == "rootsift":
        values = np.sqrt(values / values.sum(axis=1, keepdims=True))
    return unit_rows(values)


def _attacker(request: Request, spare: list[tuple[Path, ...]], report: Report) -> Database:
    attacker, kind = request.attacker, request.settings.kind
    sources = [attacker.database] if attacker.database is not None else [*attacker.photos]
    if sources:
        return own_database(sources, kind, attacker.size, report=report)
    return drawn_database(_left_over(spare, _ATTACKER, kind, report), kind, attacker.size)


def _pool(request: Request, spare: list[tuple[Path, ...]], report: Report) -> Float32:
    """Different descriptors for all pools; none where no scheme has any."""
    if not any(scheme.private_pool for scheme in request.schemes):
        return np.empty((0, 0), np.float32)
    files, kind = [path for folder in request.pool for path in image_files(folder)], request.settings.kind
    values = descriptors_of(files, kind, report) if files else _left_over(spare, _POOL, kind, report)
    return np.unique(values, axis=0)


def _left_over(spare: list[tuple[Path, ...]], part: int, kind: str, report: Report) -> Float32:
    """Descriptors of every second group of spare photographs, and a part of the bundled ones."""
    own = descriptors_of([path for group in spare[part::2] for path in group], kind, report)
    known = bundled(kind, part)
    return np.concatenate([own, known]) if len(own) else known


def _digest(private: Sequence[Content]) -> str:
    """What names the private content in records; empty without any."""
    if not private:
        return ""
    digest = hashlib.sha256()
    for content in private:
        digest.update(f"{content.name} {content.picture.shape}\n".encode())
        digest.update(np.ascontiguousarray(content.picture).data)
    return digest.hexdigest()[:16]


def _check_pool(audit: Audit) -> None:
    """Raise InputError when a scheme needs more descriptors for its pools than there are."""
    for dataset in audit.datasets:
        for scheme in audit.schemes:
            if scheme.private_pool:
                Devices(audit.pool, audit.settings.kind, dataset.victims, scheme, 0).check()


def _check_roles(request: Request) -> None:
    for (first, role), (second, other) in combinations(_folders(request), 2):
        check_apart(first, second, _SHARED[frozenset({role, other})])


def _folders(request: Request) -> Iterator[tuple[Path, str]]:
    yield from ((source.folder, "victims") for source in request.sources)
    yield from ((folder, "attacker") for folder in request.attacker.photos)
    yield from ((folder, "pool") for folder in request.pool)
    if request.private is not None:
        yield request.private, "private"
