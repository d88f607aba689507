"""Who is attacked, and by whom: photographs of the victims, and descriptors of photographs that the attacker has.

A victim has a second view of known homography. Of a folder of photographs that view is made by a homography. Of a
folder in HPatches layout each scene gives one pair, images 1 and 3: image 2 is often almost the same picture, 5 and 6
are those that raw descriptors fail on too. Private content is pasted into photographs, and never into second views.
"""

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import cv2
import numpy as np

from featveil.audit.request import BUILT_IN, Settings, Source
from featveil.audit.schemes import Pasted, Victim
from featveil.audit.view_map import ViewMap, map_of_views
from featveil.core import Features, FeatveilError, InputError
from featveil.core.arrays import Float32, Float64
from featveil.core.resuming import Report
from featveil.core.seeding import generator
from featveil.databases import Database, load_database
from featveil.datasets import load_hpatches
from featveil.datasets.board import views
from featveil.datasets.private_content import SHARES, Content, Mask, paste, private_rows
from featveil.extractors import extract, image_files, read_image
from featveil.extractors.images import Image

Thing = TypeVar("Thing")

_log = logging.getLogger(__name__)

_PER_PHOTOGRAPH = 2048  # descriptors that the attacker takes of one photograph, at most
_TURN, _SHRINK, _TILT, _DARKEN = 12.0, 0.85, 0.15, 0.85  # degrees, factor, share of the width, factor
_SEED = 0x0A77  # apart from the draws that victims are lifted with
_TRIES = 100  # places for one content
_SECOND = 3  # of a scene in HPatches layout, beside image 1
# Where both demo pictures have the corners of the board (recipes/draw_demo_views.py). There the centre of the first
# pixel is at 0 in a drawing of twice the size: at 0.25 pixels of the picture, where keypoints have it at 0.5.
_CORNERS = (
    ((14, 26), (792, 12), (806, 596), (-2, 580)),
    ((96, 92), (702, 22), (744, 590), (52, 512)),
)
_CORNERS_OFF = 0.25


def read_victims(
    folder: Path,
    kind: str = "sift",
    images: int = 10,
    max_features: int = 1000,
    report: Report = lambda done, total: None,
) -> dict[str, Features]:
    """Raw features of at most `images` photographs of `folder`, evenly spaced in the order of their names.

    Photographs that cannot be read or have no feature are logged and left out; raises InputError when none is left.
    """
    if images < 1:
        raise InputError(f"at least one photograph must be attacked, got {images}")
    files = evenly(image_files(folder), images)
    read = read_photographs(files, kind, max_features, report)
    victims = {path.relative_to(folder).as_posix(): features for path, features in read}
    if not victims:
        raise InputError(f"no photograph of {folder} has a feature to attack")
    return victims


def evenly(things: Sequence[Thing], count: int) -> list[Thing]:
    """At most `count` of `things`, evenly spaced, in their order."""
    if len(things) <= count:
        return list(things)
    return [things[place * len(things) // count] for place in range(count)]


def second_view(path: Path, kind: str = "sift", max_features: int = 1000) -> Features:
    """Features of what the photograph at `path` shows, as if seen again: turned, smaller, tilted and darker."""
    return extract(_seen_again(read_image(path)), kind, max_features)


def _seen_again(image: Image) -> Image:
    height, width = image.shape[:2]
    warped = cv2.warpPerspective(image, _second_view(width, height), (width, height), flags=cv2.INTER_AREA)
    return np.asarray(warped * _DARKEN).astype(np.uint8)


def second_view_homography(width: int, height: int) -> Float64:
    """Where the second view of an image of that size has its keypoints: a matrix (3, 3) for `Keypoints.xy`."""
    # OpenCV warps with the centre of the first pixel at 0, keypoints have it at 0.5.
    shift = np.array([[1, 0, 0.5], [0, 1, 0.5], [0, 0, 1]])
    return np.asarray(shift @ _second_view(width, height) @ np.linalg.inv(shift))


def _second_view(width: int, height: int) -> Float64:
    turned = np.vstack([cv2.getRotationMatrix2D((width / 2, height / 2), _TURN, _SHRINK), [0, 0, 1]])
    tilted = np.array([[1, 0, 0], [0, 1, 0], [_TILT / width, 0, 1]])
    return np.asarray(tilted @ turned)


def own_database(
    sources: Sequence[Path],
    kind: str = "sift",
    size: int = 65_536,
    seed: int = 0,
    report: Report = lambda done, total: None,
) -> Database:
    """The attacker's own descriptors: one database file, or `size` descriptors of all photographs in some folders.

    The descriptors are drawn at random and not clustered. Raises InputError for a database of another kind, a mixture
    of files and folders, or folders without descriptors.
    """
    if len(sources) == 1 and sources[0].is_file():
        database = load_database(sources[0])
        if database.kind != kind:
            raise InputError(f"{sources[0]} holds {database.kind} descriptors, the victims' are {kind}")
        return database
    if any(source.is_file() for source in sources):
        raise InputError("an attacker has one database file, or folders of photographs: several were named")
    if size < 1:
        raise InputError(f"the attacker needs at least one descriptor, got {size}")
    values = descriptors_of([path for source in sources for path in image_files(source)], kind, report)
    if len(values) == 0:
        raise InputError("the attacker's photographs have no features")
    return drawn_database(values, kind, size, seed)


def drawn_database(values: Float32, kind: str, size: int, seed: int = 0) -> Database:
    """At most `size` of the descriptors `values` (s, d), drawn at random, as one database."""
    rng = np.random.default_rng([_SEED, seed])
    return Database.from_array(values[rng.permutation(len(values))[:size]], kind, 1, rng=rng)


def descriptors_of(files: Sequence[Path], kind: str, report: Report = lambda done, total: None) -> Float32:
    """The strongest descriptors of photographs (s, d), of unit norm; those that cannot be read are logged."""
    parts = [features.descriptors.values for _, features in read_photographs(files, kind, _PER_PHOTOGRAPH, report)]
    return np.concatenate(parts) if parts else np.empty((0, 0), np.float32)


def check_apart(first: Path, second: Path, harm: str) -> None:
    """Raise InputError when two folders share a file, if only by a link, or one is in the other; `harm` says why."""
    if not (first.is_dir() and second.is_dir()):
        return
    here, there = first.resolve(), second.resolve()
    if here.is_relative_to(there) or there.is_relative_to(here) or not _files(first).isdisjoint(_files(second)):
        raise InputError(f"{first} and {second} share photographs: {harm}; name a folder of other photographs")


def _files(folder: Path) -> set[Path]:
    """The image files under a folder, where they really are."""
    try:
        return {path.resolve() for path in image_files(folder)}
    except InputError:  # there is none
        return set()


def read_photographs(
    files: Sequence[Path], kind: str, max_features: int, report: Report = lambda done, total: None
) -> Iterator[tuple[Path, Features]]:
    """Features of each photograph that can be read and has some; the others are logged."""
    for done, path in enumerate(files):
        report(done, len(files))
        try:
            features = extract(path, kind, max_features)
        except FeatveilError as error:
            _log.warning("left out %s: %s", path, error)
            continue
        if len(features) == 0:
            _log.warning("left out %s: it has no feature", path)
            continue
        yield path, features
    report(len(files), len(files))


@dataclass(frozen=True, eq=False)
class Dataset:
    """The victims of one source; each has the homography to its second view. Gates are before `map`."""

    name: str
    victims: tuple[Victim, ...]
    map: ViewMap | None = None


@dataclass(frozen=True, eq=False)
class _Shot:
    """A photograph to attack; its second view is that of another file, or is made of it where there is none."""

    name: str
    path: Path
    second: Path | None = None
    homography: Float64 | None = None


@dataclass(frozen=True, eq=False)
class Reading:
    """What is made of photographs: features, of ones with some `contents` pasted in; `mapped`: for a map too."""

    settings: Settings
    contents: tuple[Content, ...] = ()
    mapped: bool = False


@dataclass(frozen=True, eq=False)
class Photographs:
    """Those of a source that are attacked, and the others; `spare` ones of one scene are together."""

    name: str
    shots: tuple[_Shot, ...]
    spare: tuple[tuple[Path, ...], ...] = ()

    def read(self, reading: Reading, report: Report = lambda done, total: None) -> Dataset:
        """The features of all victims; what cannot be read or has none is logged and left out.

        Raises InputError when none is left.
        """
        victims = tuple(self._victims(reading, report))
        if not victims:
            raise InputError(f"no photograph of {self.name} has features in both views: there is nothing to audit")
        return Dataset(self.name, victims, map_of_views(victims, reading.settings.kind) if reading.mapped else None)

    def _victims(self, reading: Reading, report: Report) -> Iterator[Victim]:
        for done, shot in enumerate(self.shots):
            report(done, len(self.shots))
            try:
                victim = _read(shot, reading, done)
            except FeatveilError as error:
                _log.warning("left out %s: %s", shot.path, error)
                continue
            own = len(victim.features) if victim.pasted is None else int(victim.pasted.sides.mapped.sum())
            if min(own, len(victim.second_view)) == 0:
                _log.warning("left out %s: it has no feature", shot.path)
                continue
            yield victim
        report(len(self.shots), len(self.shots))


def find_photographs(sources: Sequence[Source]) -> list[Photographs]:
    """The photographs of each source; without any, the demo's two pictures of one board.

    Raises InputError or DatasetError for a folder without photographs, or an incomplete scene.
    """
    if not sources:
        query, reference = views()
        return [Photographs(BUILT_IN, (_Shot(query.name, query, reference, _between_views()),))]
    return [_scenes(source) if _has_scenes(source.folder) else _photographs(source) for source in sources]


def _read(shot: _Shot, reading: Reading, number: int) -> Victim:
    """The victim with that number: content and its share differ from one to the next."""
    kind, most = reading.settings.kind, reading.settings.max_features
    image, pasted = read_image(shot.path), None
    second, homography = _seen_again(image), second_view_homography(image.shape[1], image.shape[0])
    if shot.second is not None and shot.homography is not None:
        second, homography = read_image(shot.second), shot.homography
    if reading.contents:
        image, mask, names = _with_content(image, reading.contents, number, shot.name)
    features, second_features = extract(image, kind, most), extract(second, kind, most)
    if reading.contents and features.keypoints is not None:
        pasted = Pasted(names, image, private_rows(features.keypoints, mask))
    again = None
    if reading.mapped:
        height, width = second.shape[:2]
        again = extract(_seen_again(second), kind, most), second_view_homography(width, height)
    return Victim(shot.name, features, second_features, homography, shot.path, pasted, again)


def _with_content(image: Image, contents: Sequence[Content], number: int, name: str) -> tuple[Image, Mask, str]:
    """The photograph with one content for each of SHARES, the mask of all, and their names with their shares.

    They do not overlap; one that has no room is left out. Each photograph goes on in the list of contents where the one
    before it stopped, and one further after each round, so that contents come in all sizes.
    """
    rng = generator(_SEED, name, "private content")
    covered, names = np.zeros(image.shape[:2], np.bool_), []
    first = number * len(SHARES) + number * len(SHARES) // len(contents)
    for place, share in enumerate(sorted(SHARES, reverse=True)[: len(contents)]):
        content = contents[(first + place) % len(contents)]
        for _ in range(_TRIES):
            across, down = rng.uniform(0, 1, 2)
            pasted, mask = paste(image, content.picture, share, (float(across), float(down)))
            if not (mask & covered).any():
                image, covered = pasted, mask | covered
                names.append(f"{content.name} {100 * share:.3g} %")
                break
    return image, covered, ", ".join(names)


def _photographs(source: Source) -> Photographs:
    files = image_files(source.folder)
    chosen = evenly(files, source.images)
    shots = tuple(_Shot(path.relative_to(source.folder).as_posix(), path) for path in chosen)
    return Photographs(source.name, shots, tuple((path,) for path in files if path not in chosen))


def _has_scenes(folder: Path) -> bool:
    return (folder / "H_1_2").is_file() or any(path.is_file() for path in folder.glob("*/H_1_2"))


def _scenes(source: Source) -> Photographs:
    scenes = load_hpatches(source.folder).scenes
    chosen = evenly(scenes, source.images)
    shots = []
    for scene in chosen:
        pair = next(pair for pair in scene.pairs if pair.number == _SECOND)
        shots.append(_Shot(f"{scene.name}/{pair.first.name}", pair.first, pair.second, pair.homography))
    spare = tuple(tuple(scene.images.values()) for scene in scenes if scene not in chosen)
    return Photographs(source.name, tuple(shots), spare)


def _between_views() -> Float64:
    """The homography (3, 3) from keypoints of the demo's first picture to those of its second."""
    first, second = (np.array(corners, np.float32) for corners in _CORNERS)
    shift = np.array([[1, 0, _CORNERS_OFF], [0, 1, _CORNERS_OFF], [0, 0, 1]])
    return np.asarray(shift @ cv2.getPerspectiveTransform(first, second) @ np.linalg.inv(shift))
