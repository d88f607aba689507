"""A sketch and its file: checked before the work, signed, written, and told of as plain values."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from featveil.core.errors import InputError
from featveil.core.files import check_folder

if TYPE_CHECKING:
    from featveil.gate import Sketch
    from featveil.gate.tile_files import Tile

_SUFFIX = ".sketch"


@dataclass(frozen=True, eq=False)
class Written:
    """A sketch in a file of `bytes` bytes; of one in `tiles` these are all of theirs, and `path` is their folder."""

    path: Path
    sketch: "Sketch"
    bytes: int
    tiles: "tuple[Tile, ...]" = ()

    def facts(self) -> dict[str, Any]:
        """What it is, as plain values."""
        signature = self.sketch.signature
        return {
            "path": str(self.path),
            "entries": len(self.sketch),
            "points": len(self.sketch.known),
            "images": len(self.sketch.seen),
            "entry_bytes": self.sketch.entries.bytes,
            "bytes": self.bytes,
            "digest": self.sketch.digest,
            "signed_with": None if signature is None else signature.key,
            **self.sketch.card(),
            "tiles": [asdict(tile) for tile in self.tiles],
        }


def check_file(out: Path, overwrite: bool) -> None:
    """Raise InputError where no sketch can be written, or one is there that shall stay."""
    if out.suffix != _SUFFIX:
        raise InputError(f"a sketch is a {_SUFFIX} file, not {out.name}")
    check_folder(out.parent)
    if out.is_dir():
        raise InputError(f"{out} is a folder: name a file, or write tiles (--tile-images)")
    if out.exists() and not overwrite:
        raise InputError(f"{out} is there already, and devices may name its digest: --overwrite replaces it")


def check_key_file(key: Path | None) -> None:
    """Raise InputError for a file that is no private key, before a long work."""
    from featveil.gate.signing import check_key

    if key is not None:
        check_key(key)


def signed(sketch: "Sketch", key: Path | None) -> "Sketch":
    """The sketch with a signature, if there is a key."""
    from featveil.gate.signing import sign

    return sketch if key is None else sign(sketch, key)


def saved(sketch: "Sketch", out: Path) -> Written:
    """The sketch once it is in the file `out`."""
    from featveil.gate import save_sketch

    save_sketch(sketch, out)
    return Written(out, sketch, out.stat().st_size)
