"""Photographs that inversion is tried on: the middle square of each at 256 x 256 pixels, and its features."""

import hashlib
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

from featveil.audit.victims import evenly
from featveil.core import Features, FeatveilError, InputError
from featveil.core.resuming import Report
from featveil.extractors import CONTRAST, extract, image_files, read_image
from featveil.extractors.images import Image
from featveil.pipelines.train_parts.photo_pieces import Part
from featveil.pipelines.train_parts.photo_samples import middle, part_of

ALL = "all"

_log = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class Photograph:
    """A square picture (256, 256, 3), its features, and the SHA-256 of the file it was cut from."""

    name: str
    image: Image
    features: Features
    digest: str


def find_photographs(folders: Sequence[Path], part: str = ALL) -> dict[str, Path]:
    """All photographs of `folders` by a name that is unique: with the folder's, where there are several.

    `part` keeps those that training leaves for "validation" or "test", whatever folder they are in (`part_of`). Raises
    InputError when nothing is left or two folders have one name.
    """
    if part != ALL and part not in get_args(Part):
        raise InputError(f"part must be one of {', '.join([ALL, *get_args(Part)])}, got {part!r:.40}")
    named: dict[str, Path] = {}
    for folder in folders:
        before = f"{folder.resolve().name}/" if len(folders) > 1 else ""
        for path in image_files(folder):
            name = before + path.relative_to(folder).as_posix()
            if named.setdefault(name, path) != path:
                raise InputError(f"{named[name]} and {path} are both called {name}: rename a folder")
    chosen = {name: path for name, path in named.items() if part == ALL or part_of(_content(path)) == part}
    if not chosen:
        raise InputError(f"none of these {len(named)} photographs is in the {part} part: give more, or --part {ALL}")
    return chosen


def read_photographs(
    files: dict[str, Path],
    count: int,
    kind: str = "sift",
    max_features: int = 1000,
    report: Report = lambda done, total: None,
    contrast_threshold: float = CONTRAST,
) -> list[Photograph]:
    """At most `count` of the named `files`, evenly spaced.

    Those that cannot be read, are tiny or have no feature are logged and left out; raises InputError when none is left.
    """
    if count < 1:
        raise InputError(f"at least one photograph must be attacked, got {count}")
    photographs: list[Photograph] = []
    chosen = evenly(list(files), count)
    for done, name in enumerate(chosen):
        report(done, len(chosen))
        try:
            image = middle(read_image(files[name]))
            features = extract(image, kind, max_features, contrast_threshold=contrast_threshold)
        except FeatveilError as error:
            _log.warning("left out %s: %s", name, error)
            continue
        if len(features) == 0:
            _log.warning("left out %s: it has no feature", name)
            continue
        photographs.append(Photograph(name, image, features, hashlib.sha256(_content(files[name])).hexdigest()))
    report(len(chosen), len(chosen))
    if not photographs:
        raise InputError("no photograph has a feature to attack")
    return photographs


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}") from error
