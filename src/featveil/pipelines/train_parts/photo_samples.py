"""Photographs -> square pieces with their features, extracted once and kept in files (photo_pieces.py).

Each photograph is for training, validation or test by the digest of its file, so that it is on the same side in every
study, whatever else the folder holds. Training takes several pieces of a photograph, the others its middle.
"""

import hashlib
import json
import logging
import os
import shutil
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import cv2
import numpy as np

from featveil.core import InputError
from featveil.core.files import locked, make_folder, replacing
from featveil.core.resuming import Report
from featveil.core.seeding import check_seed, generator
from featveil.extractors import CONTRAST, Extractor, image_files, make_extractor, read_image
from featveil.extractors.images import Image
from featveil.pipelines.train_parts.photo_pieces import SIDE, Part, Piece, Pieces, write_shard

_RECIPE = "recipe.json"
_SHARD = 48  # photographs
_SMALLEST = 64  # pixels of the short side
_FEWEST = 8  # features that a piece must have
_FEW = 50  # photographs
_SHARES: dict[Part, float] = {"training": 0.94, "validation": 0.97, "test": 1.0}

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Recipe:
    """How pieces are cut: `crops` of each training photograph, at most `max_features` of `kind` each.

    `weights` is the file of a kind that is a network, `contrast_threshold` that of its keypoints.
    Raises InputError for numbers that leave nothing to train on.
    """

    kind: str = "sift"
    crops: int = 6
    max_features: int = 1000
    seed: int = 0
    weights: Path | None = None
    contrast_threshold: float = CONTRAST

    def __post_init__(self) -> None:
        for name, least in (("crops", 1), ("max_features", _FEWEST)):
            value = getattr(self, name)
            if type(value) is not int or value < least:
                raise InputError(f"{name} must be a whole number of at least {least}, got {value!r:.40}")
        check_seed(self.seed)

    def extractor(self) -> Extractor:
        """What finds the features; raises InputError for a kind that is not known, or weights that are not there."""
        return make_extractor(self.kind, self.max_features, self.weights, self.contrast_threshold)

    def to_json(self) -> dict[str, Any]:
        """Plain values, for a file; weights by the digest of theirs, the usual contrast threshold unsaid."""
        weights = None if self.weights is None else hashlib.sha256(self.weights.read_bytes()).hexdigest()
        values = asdict(self) | {"weights": weights}
        if self.contrast_threshold == CONTRAST:
            del values["contrast_threshold"]
        return values


def make_pieces(images: Path, cache: Path, recipe: Recipe, report: Report = lambda done, total: None) -> None:
    """Extract what `cache` lacks of the photographs under `images`; a call that was stopped goes on when repeated.

    Photographs that cannot be used are left out, and logged. Raises InputError for a kind that is not known, when the
    cache is of another recipe or of photographs of other names, and while another process fills it; FormatError for
    weights that cannot be used.
    """
    recipe.extractor()
    files = image_files(images)
    shards = [files[start : start + _SHARD] for start in range(0, len(files), _SHARD)]
    if _is_filled(cache, recipe, images, files) and not _missing(cache, shards):
        report(len(shards), len(shards))
        return
    make_folder(cache, private=True)
    with locked(cache / "lock"):
        if not _is_filled(cache, recipe, images, files):
            with replacing(cache / _RECIPE) as temporary:
                temporary.write_text(json.dumps(_stated(recipe, images, files)), encoding="utf-8")
        for leftover in cache.glob(".shard-*"):  # of a process that was killed
            shutil.rmtree(leftover, ignore_errors=True)
        missing = _missing(cache, shards)
        done = len(shards) - len(missing)
        report(done, len(shards))
        with _pool() as (pool, stop):
            jobs = [pool.submit(_make_shard, cache, number, shards[number], images, recipe, stop) for number in missing]
            for finished, job in enumerate(jobs, done + 1):
                for note in job.result():
                    _log.warning(note)
                report(finished, len(shards))


def check_photographs(images: Path) -> None:
    """Raise InputError, before anything is extracted, unless photographs are there to train on and to validate with."""
    counts = dict.fromkeys(_SHARES, 0)
    for path in image_files(images):
        with suppress(OSError):  # whether it can be used is seen later
            counts[part_of(path.read_bytes())] += 1
    if not (counts["training"] and counts["validation"]):
        raise InputError(
            f"too few photographs: {counts['training']} are for training and {counts['validation']} for validation,"
            " which about one in 33 is for: give more"
        )


def warn_of_few(photographs: Pieces) -> None:
    """Log that a network learns little from few photographs."""
    if (count := len(photographs.names())) < _FEW:
        _log.warning(f"{count} photographs to learn from are few, good for a trial: networks like this want hundreds")


@contextmanager
def _pool() -> Iterator[tuple[ThreadPoolExecutor, threading.Event]]:
    """A thread for each processor, and what makes them stop soon, which the end of the block does.

    Threads rather than processes: OpenCV leaves them to run side by side, and Ctrl-C reaches the main one alone.
    """
    pool, stop, before = ThreadPoolExecutor(os.cpu_count()), threading.Event(), cv2.getNumThreads()
    cv2.setNumThreads(1)
    try:
        yield pool, stop
    finally:
        stop.set()
        pool.shutdown(cancel_futures=True)
        cv2.setNumThreads(before)


def part_of(content: bytes) -> Part:
    """The side that a photograph is on, by its file."""
    share = int.from_bytes(hashlib.sha256(content).digest()[:8], "big") / 2**64
    return next(part for part, limit in _SHARES.items() if share < limit)


def middle(image: Image) -> Image:
    """The largest square in the middle of an image, as 256 x 256 pixels. Raises InputError for a tiny image."""
    height, width = image.shape[:2]
    side = min(height, width)
    if side < _SMALLEST:
        raise InputError(f"an image of {width} x {height} pixels is too small: at least {_SMALLEST} on each side")
    return _cut(image, (width - side) // 2, (height - side) // 2, side)


def _cut(image: Image, x: int, y: int, side: int) -> Image:
    piece = image[y : y + side, x : x + side]
    smaller = cv2.INTER_AREA if side > SIDE else cv2.INTER_CUBIC
    return np.asarray(cv2.resize(piece, (SIDE, SIDE), interpolation=smaller), np.uint8)


def _cut_all(image: Image, count: int, rng: np.random.Generator) -> list[Image]:
    """The middle, and `count` - 1 random squares of random size."""
    squares, (height, width) = [middle(image)], image.shape[:2]
    shortest = min(height, width)
    for _ in range(count - 1):
        side = int(rng.integers(min(SIDE, shortest), shortest, endpoint=True))
        x, y = int(rng.integers(width - side, endpoint=True)), int(rng.integers(height - side, endpoint=True))
        squares.append(_cut(image, x, y, side))
    return squares


def _missing(cache: Path, shards: Sequence[Sequence[Path]]) -> list[int]:
    return [number for number in range(len(shards)) if not _shard(cache, number).is_dir()]


def _shard(cache: Path, number: int) -> Path:
    return cache / f"shard-{number:05d}"


def _make_shard(
    cache: Path, number: int, files: Sequence[Path], root: Path, recipe: Recipe, stop: threading.Event
) -> list[str]:
    """Write one shard, unless told to `stop` before that; returns what a user should know."""
    pieces: list[Piece] = []
    extractor = recipe.extractor()
    parts, names, notes = [], [], []
    for path in files:
        if stop.is_set():
            return []
        name = path.relative_to(root).as_posix()
        try:
            part = part_of(path.read_bytes())
            rng = generator(recipe.seed, name, "crops")
            squares = _cut_all(read_image(path), recipe.crops if part == "training" else 1, rng)
        except (InputError, OSError) as error:
            notes.append(f"left out: {name}: {error}")
            continue
        cut = [_piece(square, extractor) for square in squares]
        kept = [piece for piece in cut if len(piece.features) >= _FEWEST]
        if not kept:
            notes.append(f"left out: {name}: it has fewer than {_FEWEST} features")
        pieces += kept
        parts += [part] * len(kept)
        names += [name] * len(kept)
    write_shard(_shard(cache, number), pieces, {"parts": parts, "names": names})
    return notes


def _piece(square: Image, extractor: Extractor) -> Piece:
    return Piece(square, extractor.extract(square))


def _stated(recipe: Recipe, images: Path, files: Sequence[Path]) -> dict[str, Any]:
    names = "\n".join(path.relative_to(images).as_posix() for path in files)
    return {**recipe.to_json(), "photographs": hashlib.sha256(names.encode()).hexdigest()[:16]}


def _is_filled(cache: Path, recipe: Recipe, images: Path, files: Sequence[Path]) -> bool:
    """Whether there is a cache, of this recipe and these photographs; raises InputError when it is of others."""
    if not (cache / _RECIPE).exists():
        return False
    try:
        stored = dict(json.loads((cache / _RECIPE).read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError) as error:
        raise InputError(f"{cache / _RECIPE} is damaged: delete the folder {cache}") from error
    usual = {"contrast_threshold": CONTRAST}
    stored, stated = usual | stored, usual | _stated(recipe, images, files)
    for name, value in stated.items():
        if stored.get(name) == value:
            continue
        if name == "photographs":
            raise InputError(f"{cache} was made of other photographs than {images} holds: name another --cache")
        raise InputError(f"{cache} was made with {name} {stored.get(name)}, not {value}: name another --cache")
    return True
