"""Make a pool of real descriptors of the device's own photographs, and add to it: hardened lifting hides among them."""

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from featveil.core.errors import FeatveilError, InputError
from featveil.core.options import argument, option
from featveil.core.resuming import Report, silent
from featveil.pipelines.sources import named_images

if TYPE_CHECKING:
    from featveil.core.arrays import Float32
    from featveil.stores.pool import Holdings

_ARRAYS = (".npz", ".npy")

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class PoolAddition:
    """The photographs that a pool takes descriptors of, or files of face descriptors."""

    pool: Path = argument(metavar="POOL", help="Pool file: a secret of the device.")
    photographs: tuple[Path, ...] = argument(
        metavar="PHOTOS...", help="Photographs, folders of them, or face descriptors (.npz, .npy)."
    )
    max_features: int = option(2048, help="Features to take of each photograph, the strongest.", minimum=1)


@dataclass(frozen=True)
class PoolRequest(PoolAddition):
    """A new pool, for one kind of descriptors."""

    kind: str = option("sift", help="Descriptor kind: sift or rootsift; of face descriptors their own.")


def create_pool(request: PoolRequest, report: Report = silent) -> "Holdings":
    """Make a pool; returns what it holds. Photographs that cannot be read are logged and left out.

    Raises InputError for a kind that no image has, and a file that is there.
    """
    from featveil.extractors import EXTRACTORS
    from featveil.stores.pool import Pool

    kind = request.kind
    if all(path.suffix.lower() in _ARRAYS for path in request.photographs):
        kind = _kind_of_faces(request.photographs)
    elif kind not in EXTRACTORS:
        raise InputError(f"unknown descriptor kind {kind!r}: use one of {', '.join(EXTRACTORS)}")
    return Pool.create(request.pool, kind, _descriptors(request, kind, report)).holdings()


def add_to_pool(request: PoolAddition, report: Report = silent) -> "Holdings":
    """Add photographs to a pool; returns what it holds. What it holds already, or has released with, is left out."""
    from featveil.core.kinds import is_face
    from featveil.stores.pool import Pool

    pool = Pool(request.pool)
    kind = pool.holdings().kind
    if any((path.suffix.lower() in _ARRAYS) != is_face(kind) for path in request.photographs):
        wanted = "face descriptors (.npz, .npy)" if is_face(kind) else "photographs"
        raise InputError(f"the pool is for {kind} descriptors: add {wanted}")
    return pool.add(_descriptors(request, kind, report))


def _descriptors(request: PoolAddition, kind: str, report: Report) -> "Iterator[Float32]":
    """Of each photograph that can be read and has any; the others are reported."""
    from featveil.extractors import extract

    arrays = [path for path in request.photographs if path.suffix.lower() in _ARRAYS]
    if arrays:
        if len(arrays) < len(request.photographs):
            raise InputError("a pool is made of photographs or of face descriptors, not of both")
        yield from _faces(arrays, kind, report)
        return
    files = named_images(request.photographs)
    for done, path in enumerate(files.values()):
        report(done, len(files))
        try:
            values = extract(path, kind, request.max_features).descriptors.values
        except FeatveilError as error:
            _log.warning(f"left out {path}: {error}")
            continue
        if len(values):
            yield values
    report(len(files), len(files))


def _kind_of_faces(files: Sequence[Path]) -> str:
    from featveil.datasets.face_sets import load_faces

    kinds = {load_faces(path).kind for path in files}
    if len(kinds) > 1:
        raise InputError(f"these faces were described by different networks: {', '.join(sorted(kinds))}")
    return kinds.pop()


def _faces(files: Sequence[Path], kind: str, report: Report) -> "Iterator[Float32]":
    """Each face by itself, as if it were a photograph."""
    from featveil.datasets.face_sets import load_faces

    for path in files:
        faces = load_faces(path, kind)
        if faces.kind != kind:
            raise InputError(f"the pool is for {kind} descriptors, {path} holds {faces.kind}")
        for row in range(len(faces)):
            yield faces.values[row : row + 1]
            report(row + 1, len(faces))
