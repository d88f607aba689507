"""Face descriptors of many photographs: an .npz file, or a plain .npy array.

    faces.npz   embedding (n, d)    one row a photograph; `embeddings` and `descriptors` are read as well
                names (n,)          text, or `files`: PERSON_0001, or person/photograph.jpg
                model               text: the digest of the network that made them, where it is known
                gender, race, ...   (n,) whole numbers: attributes by the name of their array
                first, second, same, fold   pairs of rows, where the file brings its own (see face_pairs)

Nothing in such a file is ever unpickled.
"""

import re
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from featveil.core import DatasetError, FeatveilError, FormatError, InputError
from featveil.core.arrays import Float32, Integers, floats, integers
from featveil.core.features import check_kind
from featveil.core.files import replacing
from featveil.core.kinds import face_kind
from featveil.extractors.images import IMAGE_SUFFIXES

_VALUES = ("embedding", "embeddings", "descriptors")
_NAMES = ("names", "files")
_PAIRS = ("first", "second", "same", "fold")
_RESERVED = {*_VALUES, *_NAMES, *_PAIRS, "model", "file", "allow_pickle"}  # the last two are np.savez's own
_LARGEST = 2**33  # bytes that a file may unpack to
_NUMBERED = re.compile(r"_\d{4}$")  # as LFW numbers the photographs of a person
_DIGEST = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, eq=False)
class FaceSet:
    """Descriptors `values` (n, d) of norm 1 with the `names` of their photographs; `kind` says which network.

    `attributes` are labels (n,) by name. `pairs` are arrays first, second, same and fold, or empty.
    """

    values: Float32 = field(repr=False)
    names: tuple[str, ...] = field(repr=False)
    kind: str
    attributes: Mapping[str, Integers] = field(default_factory=dict, repr=False)
    pairs: Mapping[str, Integers] = field(default_factory=dict, repr=False)
    model: str | None = None

    def __post_init__(self) -> None:
        check_kind(self.kind)
        values: Float32 = floats("face descriptors", self.values, (None, None))
        if 0 in values.shape:
            raise InputError(f"there is no face descriptor: the array has shape {values.shape}")
        norms = np.linalg.norm(values.astype(np.float64), axis=1, keepdims=True)
        if not norms.all():
            raise InputError(f"face descriptor {int(np.argmin(norms))} has zero norm: remove it first")
        object.__setattr__(self, "values", floats("face descriptors", values / norms, values.shape))
        if len(self.names) != len(values) or len(set(self.names)) != len(values):
            raise InputError(f"{len(values)} face descriptors need as many different names")
        labels = {name: integers(f"attribute {name}", one, (len(values),)) for name, one in self.attributes.items()}
        object.__setattr__(self, "attributes", labels)

    def __len__(self) -> int:
        return len(self.values)

    @property
    def size(self) -> int:
        """Descriptor size d."""
        return int(self.values.shape[1])

    @property
    def people(self) -> NDArray[np.str_]:
        """Who is on each photograph (n,), by its name: its folder, else the name without its number."""
        return np.array([person_of(name) for name in self.names])

    def attribute(self, name: str) -> Integers:
        """The labels (n,) called `name`; raises DatasetError where there are none."""
        if name not in self.attributes:
            there = ", ".join(self.attributes) or "none"
            raise DatasetError(f"these faces have no attribute {name!r:.80}: there are {there}")
        return self.attributes[name]

    def take(self, rows: Integers) -> Self:
        """The faces at `rows`, without pairs."""
        attributes = {name: labels[rows] for name, labels in self.attributes.items()}
        names = tuple(self.names[row] for row in rows)
        return type(self)(self.values[rows], names, self.kind, attributes, {}, self.model)


def person_of(name: str) -> str:
    """The person on a photograph called `name`: its folder, else what comes before its number."""
    folder = PurePath(name).parent.name
    return folder or _NUMBERED.sub("", PurePath(without_suffix(name)).name)


def without_suffix(name: str) -> str:
    """The name of a photograph without .jpg and the like; other dots belong to it, as in George_W._Bush_0001."""
    path = PurePath(name)
    return str(path.with_suffix("")) if path.suffix.lower() in IMAGE_SUFFIXES else name


def load_faces(path: str | Path, kind: str = "face") -> FaceSet:
    """Read an .npz or .npy file of face descriptors.

    They are of `kind` unless the file names the model that made them. Raises InputError for a missing file, FormatError
    for a damaged one and DatasetError for one that holds something else.
    """
    path = Path(path)
    arrays = _arrays(path)
    name = next((name for name in _VALUES if name in arrays), None)
    if name is None:
        raise DatasetError(f"{path} holds no face descriptors: expected an array called {' or '.join(_VALUES)}")
    values = arrays[name]
    if values.ndim == 1 and len(values) and path.suffix.lower() == ".npy":  # one descriptor
        values = values[None]
    if values.ndim != 2 or 0 in values.shape:
        raise DatasetError(f"face descriptors must be rows (n, d), {path} has shape {values.shape}")
    model = _model(arrays.get("model"), path)
    try:
        return FaceSet(
            values,
            _names(arrays, len(values)),
            kind if model is None else face_kind(model),
            _attributes(arrays, len(values)),
            {name: integers(name, _whole(arrays[name]), arrays[name].shape) for name in _PAIRS if name in arrays},
            model,
        )
    except InputError as error:
        raise DatasetError(f"{path}: {error}") from error


def save_faces(faces: FaceSet, path: str | Path) -> None:
    """Write `faces` to an .npz file, all of it or nothing; raises InputError where an attribute cannot be called so."""
    taken = sorted(_RESERVED & faces.attributes.keys())
    if taken:
        raise InputError(f"an attribute cannot be called {taken[0]!r} in an .npz file of faces: rename it")
    arrays: dict[str, Any] = {"embedding": faces.values, "names": np.array(faces.names)}
    arrays |= dict(faces.attributes) | dict(faces.pairs)
    if faces.model is not None:
        arrays["model"] = np.array(faces.model)
    with replacing(path) as temporary, temporary.open("wb") as file:
        np.savez(file, **arrays)


def _names(arrays: Mapping[str, NDArray[Any]], n: int) -> tuple[str, ...]:
    """What the photographs are called, else their numbers."""
    named = next((arrays[name] for name in _NAMES if name in arrays), None)
    if named is None:
        return tuple(map(str, range(n)))
    if named.size != n or named.dtype.kind not in "USiu":  # before any is touched: empty text takes no room in a file
        raise InputError(f"{n} face descriptors need as many names, as text")
    try:
        return tuple(one.decode() if isinstance(one, bytes) else str(one) for one in named.ravel().tolist())
    except UnicodeDecodeError as error:
        raise InputError("names that are stored as bytes must be UTF-8") from error


def _attributes(arrays: Mapping[str, NDArray[Any]], n: int) -> dict[str, Integers]:
    """Arrays (n,) of whole numbers that are nothing else."""
    known = {*_VALUES, *_NAMES, *_PAIRS}
    return {
        name: _whole(array)
        for name, array in arrays.items()
        if name not in known and array.shape == (n,) and array.dtype.kind in "iub"
    }


def _whole(array: NDArray[Any]) -> NDArray[Any]:
    """True and false as 1 and 0; anything else as it is."""
    return array.astype(np.int64) if array.dtype == np.bool_ else array


def _arrays(path: Path) -> dict[str, NDArray[Any]]:
    if not path.is_file():
        raise InputError(f"there is no file {path}")
    try:
        if path.suffix.lower() == ".npy":
            with path.open("rb") as file:
                return {"embedding": np.lib.format.read_array(file, allow_pickle=False)}
        with zipfile.ZipFile(path) as archive:
            if sum(entry.file_size for entry in archive.infolist()) > _LARGEST:
                raise FormatError(f"{path} unpacks to more than {_LARGEST >> 30} GiB: split it")
        with np.load(path, allow_pickle=False) as content:
            members = {name: content[name] for name in content.files}
        return {name: one for name, one in members.items() if isinstance(one, np.ndarray)}  # other files come as bytes
    except FeatveilError:
        raise
    except Exception as error:  # NumPy, zipfile, and what unpacks and parses for them raise a dozen sorts
        raise FormatError(f"{path} is not a readable .npz or .npy file of plain arrays") from error


def _model(stored: NDArray[Any] | None, path: Path) -> str | None:
    if stored is None:
        return None
    text = str(stored[()]) if stored.shape == () else ""
    if not _DIGEST.fullmatch(text):
        raise DatasetError(f"the model in {path} must be a digest: 64 lower-case hexadecimal digits")
    return text
