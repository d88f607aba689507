"""Faces -> templates: dlib's face network, or any ArcFace-style network (Deng et al., CVPR 2019) in an ONNX file.

Each network reads faces aligned in its own way, by the same five landmarks. Its digest is in the kind of its
templates, because templates of two networks cannot be compared.
"""

import hashlib
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import cv2
import numpy as np

from featveil.core import FormatError, InputError
from featveil.core.arrays import Float32
from featveil.core.kinds import face_kind
from featveil.extractors.faces import ARCFACE, SIDE, Face, align, import_dlib, model_file, similarity
from featveil.extractors.images import Image

Crops = Sequence[Image] | Image  # each uint8 RGB (112, 112, 3), in a list or one array

_LARGEST_FILE = 2**30
_BATCH = 64
_SHAPE = [3, SIDE, SIDE]
# A tensor in another file, or at an address of memory, says so under the key "location", after that key's length.
_OUTSIDE = re.compile(rb"[\x00-\x08]location")

# dlib's network reads 150 x 150 with a margin of a quarter: there the mean face of dlib has the five landmarks here.
# Alignment by them tells people apart as well as dlib's own by 33 landmarks, and templates differ by 0.1 only.
_CHIP = 150
_DLIB = np.array(
    [[47.5492, 46.5990], [100.4761, 46.5990], [74.0127, 76.5625], [50.4149, 103.0233], [97.6104, 103.0233]]
)


class FaceNetwork(Protocol):
    """Describes faces by vectors that are near for one person and far for two."""

    @property
    def digest(self) -> str:
        """SHA-256 of the weights, 64 hexadecimal digits."""
        ...

    @property
    def size(self) -> int:
        """Template size d."""
        ...

    @property
    def kind(self) -> str:
        """The kind of the templates: face- and the first 12 digits of the digest."""
        ...

    def describe(self, image: Image, faces: Sequence[Face]) -> Float32:
        """Templates (n, d) of unit norm of faces in a uint8 image (h, w, 3)."""
        ...

    def describe_crops(self, crops: Crops) -> Float32:
        """Templates (n, d) of unit norm of faces that are aligned already, as `align` does it."""
        ...


@dataclass(frozen=True)
class DlibNetwork:
    """dlib's ResNet of 29 layers (King, 2017), d = 128, from the extra `faces`; raises MissingExtraError without it.

    Two templates are of one person when they are nearer than about 0.4 (dlib says 0.6 before they have unit norm).
    """

    def __post_init__(self) -> None:
        import_dlib()
        _dlib_weights()

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the weights, 64 hexadecimal digits."""
        return hashlib.sha256(_dlib_weights().read_bytes()).hexdigest()

    @property
    def size(self) -> int:
        """Template size d."""
        return 128

    @property
    def kind(self) -> str:
        """The kind of the templates."""
        return face_kind(self.digest)

    def describe(self, image: Image, faces: Sequence[Face]) -> Float32:
        """Templates (n, 128) of unit norm of faces in a uint8 image (h, w, 3)."""
        return self._described([align(image, face, _DLIB, _CHIP) for face in faces])

    def describe_crops(self, crops: Crops) -> Float32:
        """Templates (n, 128) of aligned faces (112, 112, 3), which show less of the chin: `describe` is better."""
        inward = similarity(ARCFACE, _DLIB)
        return self._described([cv2.warpAffine(_crop(crop), inward, (_CHIP, _CHIP)) for crop in crops])

    def _described(self, chips: Sequence[Any]) -> Float32:
        rows = [np.array(self._network.compute_face_descriptor(chip)) for chip in chips]
        return _unit(np.array(rows, np.float32).reshape(-1, self.size))

    @cached_property
    def _network(self) -> Any:
        return import_dlib().face_recognition_model_v1(str(_dlib_weights()))


class _Loaded(NamedTuple):
    session: Any
    digest: str
    size: int
    batch: int


@dataclass(frozen=True)
class OnnxNetwork:
    """A network in an ONNX file that reads faces (n, 3, 112, 112), aligned as ArcFace's, and gives templates (n, d).

    It is given (RGB - mean) / scale: as it is, 0 to 255; for InsightFace's networks (buffalo) both are 127.5. Other
    values make another network, with another digest. Raises InputError for a missing file, FormatError for another.
    """

    path: Path
    mean: float = 0.0
    scale: float = 1.0
    _loaded: _Loaded = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "path", Path(self.path))
        for name in ("mean", "scale"):
            value = getattr(self, name)
            if not isinstance(value, int | float) or not math.isfinite(value) or (name == "scale" and value <= 0):
                raise InputError(f"{name} must be a number{' above 0' if name == 'scale' else ''}, got {value!r}")
        object.__setattr__(self, "_loaded", _load(self.path))

    @property
    def digest(self) -> str:
        """SHA-256 of the file, or of that and the numbers that pictures are changed by; 64 hexadecimal digits."""
        if (self.mean, self.scale) == (0, 1):
            return self._loaded.digest
        changed = f"{self._loaded.digest} {float(self.mean)!r} {float(self.scale)!r}"
        return hashlib.sha256(changed.encode()).hexdigest()

    @property
    def size(self) -> int:
        """Template size d."""
        return self._loaded.size

    @property
    def kind(self) -> str:
        """The kind of the templates."""
        return face_kind(self.digest)

    def describe(self, image: Image, faces: Sequence[Face]) -> Float32:
        """Templates (n, d) of unit norm of faces in a uint8 image (h, w, 3)."""
        return self.describe_crops([align(image, face) for face in faces])

    def describe_crops(self, crops: Crops) -> Float32:
        """Templates (n, d) of unit norm of faces that are aligned already.

        Raises InputError for other arrays, FormatError when the network does not do what its file says.
        """
        rows, step = np.empty((len(crops), self.size), np.float32), self._loaded.batch
        for start in range(0, len(crops), step):
            rows[start : start + step] = self._run([_crop(crop) for crop in crops[start : start + step]])
        return _unit(rows)

    def _run(self, crops: list[Image]) -> Float32:
        pixels = (np.stack(crops).transpose(0, 3, 1, 2).astype(np.float32) - self.mean) / self.scale
        session = self._loaded.session
        try:
            rows = session.run(None, {session.get_inputs()[0].name: np.ascontiguousarray(pixels, np.float32)})[0]
        except Exception as error:  # onnxruntime has no public base class of its errors
            raise FormatError(f"the network {self.path} cannot be run on faces") from error
        if rows.shape != (len(crops), self.size):
            raise FormatError(f"the network {self.path} gives {rows.shape} for {len(crops)} faces of size {self.size}")
        return np.asarray(rows, np.float32)


def _load(path: Path) -> _Loaded:
    if not path.is_file():
        raise InputError(f"there is no face network {path}: name an ONNX file")
    if path.stat().st_size > _LARGEST_FILE:
        raise FormatError(f"{path} is no usable face network: it is larger than {_LARGEST_FILE >> 20} MB")
    try:
        content = path.read_bytes()
        return _checked(content, _session(content))
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}") from error
    except FormatError as error:
        raise FormatError(f"{path} is no usable face network: {error}") from error


def _session(content: bytes) -> Any:
    import onnxruntime

    if _OUTSIDE.search(content):
        raise FormatError("its weights are in another file")
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.add_session_config_entry("session.load_model_format", "ONNX")
    try:
        return onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime has no public base class of its errors
        raise FormatError("it is damaged, cut off or no ONNX file") from error


def _checked(content: bytes, session: Any) -> _Loaded:
    """The network, if it reads pictures of faces one at a time or many at once, and gives one vector for each."""
    inputs, outputs = session.get_inputs(), session.get_outputs()
    if len(inputs) != 1 or len(outputs) != 1:
        raise FormatError(f"it has {len(inputs)} inputs and {len(outputs)} outputs, not one of each")
    read, given = inputs[0], outputs[0]
    if read.type != "tensor(float)" or read.shape[1:] != _SHAPE or not _any_or_one(read.shape[0]):
        raise FormatError(f"it reads {read.type} {read.shape!s:.80}, not floats (n, 3, {SIDE}, {SIDE})")
    sized = len(given.shape) == 2 and isinstance(given.shape[1], int) and given.shape[1] > 0
    if given.type != "tensor(float)" or not sized or not _any_or_one(given.shape[0]):
        raise FormatError(f"it gives {given.type} {given.shape!s:.80}, not floats (n, d)")
    batch = 1 if read.shape[0] == 1 else _BATCH
    return _Loaded(session, hashlib.sha256(content).hexdigest(), given.shape[1], batch)


def _any_or_one(length: object) -> bool:
    """Whether that is a batch of any length, which has a name or none, or of one."""
    return length == 1 or not isinstance(length, int)


def _dlib_weights() -> Path:
    return model_file("dlib_face_recognition_resnet_model_v1.dat")


def _crop(crop: object) -> Image:
    if not isinstance(crop, np.ndarray) or crop.dtype != np.uint8 or crop.shape != (SIDE, SIDE, 3):
        came = f"{crop.dtype} {crop.shape}" if isinstance(crop, np.ndarray) else type(crop).__name__
        raise InputError(f"an aligned face is a uint8 array ({SIDE}, {SIDE}, 3), got {came}")
    return crop


def _unit(rows: Float32) -> Float32:
    norms = np.linalg.norm(rows.astype(np.float64), axis=1, keepdims=True)
    if not ((norms > 0) & np.isfinite(norms)).all():
        raise InputError("the network finds nothing to tell in a face: its template is zero or holds no numbers")
    return np.asarray(rows / norms, np.float32)
