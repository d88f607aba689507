"""Where the map and localize commands find intrinsics: a list of cameras, a COLMAP database, or the image itself."""

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from featveil.cli.console import complain

if TYPE_CHECKING:
    from featveil.core import Camera

CamerasFile = Annotated[
    Path | None,
    typer.Option(
        help="Known intrinsics, a line each: name MODEL width height parameters... (hloc's list of queries).",
        show_default="EXIF data or a COLMAP .db, else a guess",
    ),
]


class KnownCameras:
    """Intrinsics by image name: those of a list, which are exact, or without one what their source tells."""

    def __init__(self, listed: Path | None) -> None:
        from featveil.formats.poses import read_queries

        self._listed = None if listed is None else read_queries(listed)

    @property
    def exact(self) -> bool:
        """Whether they are better than EXIF data, which are rounded and sometimes wrong."""
        return self._listed is not None

    def warn(self, names: Iterable[str]) -> None:
        """Say how many of the images a list lacks."""
        every = list(names)
        missing = [name for name in every if self._listed is not None and name not in self._listed]
        if missing:
            complain(
                "warning", f"--cameras names none for {len(missing)} of {len(every)} images, such as {missing[0]!r}"
            )

    def find(self, name: str, source: Path) -> "Camera | None":
        """Of image `name` in a folder, an image file or a COLMAP database; None when nothing is known."""
        from featveil.formats import colmap_database
        from featveil.geometry.map_images import camera_from_exif

        if self._listed is not None:
            return self._listed.get(name)
        if source.is_file() and colmap_database.is_database(source):
            return colmap_database.camera_of(source, name)
        image = source / name if source.is_dir() else source
        return camera_from_exif(image) if image.is_file() and image.suffix.lower() not in _NO_IMAGES else None


_NO_IMAGES = (".h5", ".hdf5", ".veil")
