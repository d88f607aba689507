"""What an audit reads: photographs with a second view of known homography, and which photographs are left over.

Of a folder of photographs the second view is made by a homography. Of a folder in HPatches layout each scene gives one
pair, images 1 and 3: image 2 is often almost the same picture, 5 and 6 are those that raw descriptors fail on too.
"""

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np

from featveil.audit.releases import Victim
from featveil.audit.request import BUILT_IN, Settings, Source
from featveil.audit.victims import evenly, second_view, second_view_homography
from featveil.core import Features, FeatveilError, InputError
from featveil.core.arrays import Float64
from featveil.core.resuming import Report
from featveil.datasets import load_hpatches
from featveil.datasets.board import views
from featveil.extractors import extract, image_files

_log = logging.getLogger(__name__)

_SECOND = 3  # of a scene in HPatches layout, beside image 1
# Where both demo pictures have the corners of the board (recipes/draw_demo_views.py). There the centre of the first
# pixel is at 0 in a drawing of twice the size: at 0.25 pixels of the picture, where keypoints have it at 0.5.
_CORNERS = (
    ((14, 26), (792, 12), (806, 596), (-2, 580)),
    ((96, 92), (702, 22), (744, 590), (52, 512)),
)
_CORNERS_OFF = 0.25


@dataclass(frozen=True, eq=False)
class Dataset:
    """The victims of one source; each has the homography to its second view."""

    name: str
    victims: tuple[Victim, ...]


@dataclass(frozen=True, eq=False)
class _Shot:
    """A photograph to attack; its second view is that of another file, or is made of it where there is none."""

    name: str
    path: Path
    second: Path | None = None
    homography: Float64 | None = None


@dataclass(frozen=True, eq=False)
class Photographs:
    """Those of a source that are attacked, and the others; `spare` ones of one scene are together."""

    name: str
    shots: tuple[_Shot, ...]
    spare: tuple[tuple[Path, ...], ...] = ()

    def read(self, settings: Settings, report: Report = lambda done, total: None) -> Dataset:
        """The features of all victims; what cannot be read or has none is logged and left out.

        Raises InputError when none is left.
        """
        victims = tuple(self._victims(settings, report))
        if not victims:
            raise InputError(f"no photograph of {self.name} has features in both views: there is nothing to audit")
        return Dataset(self.name, victims)

    def _victims(self, settings: Settings, report: Report) -> Iterator[Victim]:
        for done, shot in enumerate(self.shots):
            report(done, len(self.shots))
            try:
                victim = _read(shot, settings)
            except FeatveilError as error:
                _log.warning("left out %s: %s", shot.path, error)
                continue
            if min(len(victim.features), len(victim.second_view)) == 0:
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


def _read(shot: _Shot, settings: Settings) -> Victim:
    kind, most = settings.kind, settings.max_features
    features = extract(shot.path, kind, most)
    if shot.second is not None:
        return Victim(shot.name, features, extract(shot.second, kind, most), shot.homography, shot.path)
    return Victim(shot.name, features, second_view(shot.path, kind, most), _made_homography(features), shot.path)


def _made_homography(features: Features) -> Float64:
    if features.image_size is None:
        raise InputError("an image has no known size")
    return second_view_homography(*features.image_size)


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
