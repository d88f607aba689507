"""Features -> picture: by an inverter that reads them as they are, or after an attack has recovered descriptors.

Papers: affine-subspace-embeddings.txt 4.2 (nearest neighbour and direct inversion attack), ldp-feat.txt 6.1 and 6.3.
"""

import hashlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from featveil.attacks import Guess
from featveil.core import Features, InputError, Points, PrivateFeatures, WordSets, base_kind
from featveil.core.arrays import Float32
from featveil.inverters import Inverter, builtin_inverter, load_inverter
from featveil.inverters.bundled import SIFT_FILE
from featveil.learning.encodings import Encoding

Image = NDArray[np.uint8]

BUILT_IN = "the built-in inverter"
_GREY = 127
_NEVER_NEGATIVE = ("sift", "rootsift")
_OPTIONS = ("strategy", "dimension", "confounders", "epsilon", "subset_size")


@dataclass(frozen=True, eq=False)
class Painter:
    """An inverter, the name of its file, and the SHA-256 of that."""

    name: str
    digest: str
    inverter: Inverter

    @property
    def reads_geometry(self) -> bool:
        """Whether it makes use of scale, orientation and response."""
        return self.inverter.encoding.geometry != "positions"

    @property
    def needs_geometry(self) -> bool:
        """Whether it cannot do without them."""
        return self.inverter.encoding.geometry == "full"


def load_painter(path: Path | None = None, kind: str = "sift") -> Painter:
    """The inverter in a file; without `path` the built-in one for raw descriptors of `kind`. Raises as these do."""
    inverter = builtin_inverter(kind) if path is None else load_inverter(path)
    content = (SIFT_FILE if path is None else path).read_bytes()
    return Painter(BUILT_IN if path is None else path.name, hashlib.sha256(content).hexdigest(), inverter)


def paint(seen: Features | PrivateFeatures, painter: Painter, words: Float32 | None = None) -> Image:
    """What the inverter makes of features as they are: a picture (h, w, 3) uint8 RGB.

    `words` (K, d) is the codebook of word sets. Raises InputError when the inverter was trained on others than these,
    and says how to get one, and as `Inverter.invert` does.
    """
    check_fit(seen, painter, words)
    return painter.inverter.invert(seen, words)


def check_fit(seen: Features | PrivateFeatures, painter: Painter, words: Float32 | None = None) -> None:
    """Raise InputError, with the way to an inverter that does, unless this one reads such descriptors."""
    encoding = painter.inverter.encoding
    known = np.empty((0, encoding.size), np.float32) if words is None else words
    try:
        encoding.check(Encoding.of(seen.descriptors, seen.kind, encoding.geometry, known))
    except InputError as error:
        ways = f"train one, '{training_command(seen)}'"
        if isinstance(seen, PrivateFeatures):
            ways += ", or have an attack recover the descriptors first (--attack)"
        raise InputError(f"{painter.name} does not fit: {error}; {ways}") from error
    if isinstance(seen.descriptors, WordSets) and words is None:
        raise InputError("word sets are read with their codebook: give the file (--codebook)")


def training_command(seen: Features | PrivateFeatures) -> str:
    """The command that trains an inverter of such features."""
    command = f"featveil train inverter --images DIR --out FILE.onnx --extractor {base_kind(seen.kind)}"
    if not isinstance(seen, PrivateFeatures):
        return command
    spec = seen.defense
    given = [f" --{name.replace('_', '-')} {_short(spec[name])}" for name in _OPTIONS if spec.get(name) is not None]
    return f"{command} --defense {_short(spec.get('name'))}{''.join(given)}"


def recovered(seen: PrivateFeatures, guess: Guess) -> Features:
    """What an attack takes for the raw features behind `seen`, for an inverter of raw ones.

    Whoever recovers SIFT knows that it is never negative; a guess of nothing at all becomes one of no direction.
    """
    kind, values = base_kind(seen.kind), np.array(guess.values)
    if kind in _NEVER_NEGATIVE:
        values = np.maximum(values, 0)
    values[~values.any(axis=1)] = 1 / np.sqrt(values.shape[1])
    return Features(Points(values), kind, seen.keypoints, seen.image_size)


def blank(image: Image) -> Image:
    """The floor of every comparison: a grey picture of the same size."""
    return np.full_like(image, _GREY)


def _short(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)[:40]
