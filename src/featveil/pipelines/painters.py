"""Features -> picture: by an inverter that reads them as they are, or after an attack has recovered descriptors.

Papers: affine-subspace-embeddings.txt 4.2 (nearest neighbour and direct inversion attack), ldp-feat.txt 6.1 and 6.3.
"""

import hashlib
import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import cv2
import numpy as np
from numpy.typing import NDArray
from scipy.spatial import cKDTree

from featveil.attacks.read_parts.map_descriptors import sketch_for
from featveil.core import Features, InputError, Keypoints, MapPoints, Points, PrivateFeatures, WordSets, base_kind
from featveil.core.arrays import Float32
from featveil.databases import builtin
from featveil.defenses import builtin_concealer, has_builtin_concealer
from featveil.extractors import NETWORKS, Sift
from featveil.gate.point_means import PointMeans
from featveil.inverters import Inverter, builtin_inverter, load_inverter
from featveil.inverters.builtin_inverter import SIFT_FILE
from featveil.learning.encodings import Encoding

if TYPE_CHECKING:
    from featveil.attacks import Guess, Knowledge

Image = NDArray[np.uint8]
Size = tuple[int, int]
Seen = TypeVar("Seen", bound=Features | PrivateFeatures)

BUILT_IN = "the built-in inverter"
_GREY = 127
_AT_SIFT_KEYPOINTS = ("sift", "rootsift", *NETWORKS)
_MOST_KEYPOINTS = 10_000
_NEARBY = 1.5  # pixels
_OPTIONS = ("then", "strategy", "dimension", "confounders", "epsilon", "subset_size")
# Inverters are trained on small pieces of photographs, with all their features. A photograph whose strongest features
# lie further apart is painted smaller, so that there are about as many of them as the inverter is used to.
_PIXELS = 300  # for each feature
_SHORTEST, _LONGEST = 256, 800  # of the long side


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

    def reads_all(self, seen: Features | PrivateFeatures) -> bool:
        """Whether it reads scale, orientation and response of the keypoints of `seen`."""
        return seen.keypoints is not None and self.inverter.encoding.reads_all(seen.keypoints)


def load_painter(path: Path | None = None, kind: str = "sift") -> Painter:
    """The inverter in a file; without `path` the built-in one for raw descriptors of `kind`. Raises as these do."""
    inverter = builtin_inverter(_read_as(kind)) if path is None else load_inverter(path)
    content = (SIFT_FILE if path is None else path).read_bytes()
    return Painter(BUILT_IN if path is None else path.name, hashlib.sha256(content).hexdigest(), inverter)


def raw_painter(kind: str, path: Path | None = None) -> Painter:
    """The inverter of raw descriptors of `kind` in a file, or the built-in one; that of SIFT serves RootSIFT too.

    Raises InputError when there is none, or the file has one of something else.
    """
    painter = load_painter(path, kind)
    check_reads_raw(painter, kind)
    return painter


def paint(seen: Features | PrivateFeatures, painter: Painter, words: Float32 | None = None) -> Image:
    """What the inverter makes of features as they are: a picture (h, w, 3) uint8 RGB.

    `words` (K, d) is the codebook of word sets, or the table of a map's points: see `words_of`. An inverter of SIFT
    serves raw RootSIFT too. Raises InputError when the inverter was trained on others than these, and says how to get
    one, and as `Inverter.invert` does.
    """
    seen = _readable(seen, painter)
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
    if isinstance(seen.descriptors, MapPoints) and words is None:
        raise InputError("points of a map are read with its sketch: give the file (--sketch)")


def words_of(seen: Features | PrivateFeatures, knowledge: "Knowledge") -> Float32 | None:
    """What an inverter reads numbers of words, or of points of a map, with; None where it needs nothing, or lacks it.

    Raises InputError for a sketch of another map.
    """
    if not isinstance(seen, PrivateFeatures):
        return None
    if isinstance(seen.descriptors, WordSets) and knowledge.codebook is not None:
        return np.asarray(knowledge.codebook.values, np.float32)
    if isinstance(seen.descriptors, MapPoints) and knowledge.sketch is not None:
        return PointMeans.of(sketch_for(seen, knowledge)).table(seen.descriptors.model_points)
    return None


def check_reads_raw(painter: Painter, kind: str) -> None:
    """Raise InputError unless it is an inverter of raw descriptors of `kind`, which attacks recover."""
    read = painter.inverter.encoding
    if read.representation != "points" or read.kind not in (kind, _read_as(kind)):
        raise InputError(
            f"{painter.name} reads {read.kind} {read.representation}, and recovered are raw {kind} descriptors: give an"
            " inverter of those"
        )


def at_size(seen: Seen, size: Size) -> Seen:
    """The same features as those of the image at another `size` (width, height), which may be unknown."""
    if seen.image_size is None or seen.keypoints is None:
        return seen
    keypoints, factors = seen.keypoints, np.divide(size, seen.image_size)
    scale = None if keypoints.scale is None else (keypoints.scale * factors.mean()).astype(np.float32)
    xy = (keypoints.xy * factors).astype(np.float32)
    moved = Keypoints(xy, scale, keypoints.orientation, keypoints.response)
    return replace(seen, keypoints=moved, image_size=size)


def without_geometry(seen: Seen) -> Seen:
    """The same features with positions of keypoints only."""
    return seen if seen.keypoints is None else replace(seen, keypoints=seen.keypoints.positions_only())


def keypoints_found(seen: Features | PrivateFeatures, image: Image) -> float | None:
    """The share of features near one that SIFT finds in `image`; None for kinds that have other keypoints."""
    if base_kind(seen.kind) not in _AT_SIFT_KEYPOINTS or seen.keypoints is None or len(seen) == 0:
        return None
    there = Sift(max_features=max(_MOST_KEYPOINTS, len(seen))).extract(image).keypoints
    if there is None or len(there) == 0:
        return 0.0
    distances, _ = cKDTree(there.xy).query(seen.keypoints.xy)
    return float((distances < _NEARBY).mean())


def training_command(seen: Features | PrivateFeatures) -> str:
    """The command that trains an inverter of such features."""
    command = f"featveil train inverter --images DIR --out FILE.onnx --extractor {base_kind(seen.kind)}"
    if not isinstance(seen, PrivateFeatures):
        return command
    spec = seen.defense
    given = [f" --{name.replace('_', '-')} {_short(spec[name])}" for name in _OPTIONS if spec.get(name) is not None]
    return f"{command} --defense {_short(spec.get('name'))}{''.join(given)}{_files(seen)}"


def _files(seen: PrivateFeatures) -> str:
    """Options for what did not come with featveil: the network, or a database or codebook of raw descriptors."""
    spec, kind = seen.defense, base_kind(seen.kind)
    if spec.get("network"):
        usual = has_builtin_concealer(kind) and builtin_concealer(kind).digest == spec["network"]
        return "" if usual else " --concealer FILE"
    if spec.get("name") == "gate":
        return " --sketch FILE"
    drawn = spec.get("database") or spec.get("codebook")
    return " --database FILE" if drawn and not _is_builtin(str(drawn), kind) else ""


def _is_builtin(digest: str, kind: str) -> bool:
    try:
        return builtin(kind).digest == digest
    except InputError:  # none comes with featveil for this kind
        return False


def recovered(seen: PrivateFeatures, guess: "Guess") -> Features:
    """What an attack takes for the raw features behind `seen`, for an inverter of raw ones.

    A guess of nothing at all becomes one of no direction. Negative values stay, though SIFT has none: cutting them off
    makes pictures slightly worse.
    """
    values = np.array(guess.values)
    values[~values.any(axis=1)] = 1 / np.sqrt(values.shape[1])
    return Features(Points(values), base_kind(seen.kind), seen.keypoints, seen.image_size)


def picture_size(raw: Features | PrivateFeatures) -> Size:
    """(width, height) of the pictures of what is released of `raw`, none larger than the image.

    Raises InputError where the size of the image is not known.
    """
    if raw.image_size is None:
        raise InputError("the size of the image is not known")
    width, height = raw.image_size
    longest = math.sqrt(_PIXELS * len(raw) / (width * height)) * max(width, height)
    factor = min(1.0, min(max(longest, _SHORTEST), _LONGEST) / max(width, height))
    return max(1, round(width * factor)), max(1, round(height * factor))


def view(seen: PrivateFeatures, guess: "Guess", painter: Painter, size: Size) -> Image:
    """The picture (h, w, 3) of `size` that `painter` makes of guesses at all features.

    Raises InputError as `paint` does.
    """
    return paint(at_size(recovered(seen, guess), size), painter)


def blank(image: Image) -> Image:
    """The floor of every comparison: a grey picture of the same size."""
    return np.full_like(image, _GREY)


def resized(image: Image, size: Size) -> Image:
    """The image itself at that size, to compare with."""
    return np.asarray(cv2.resize(image, size, interpolation=cv2.INTER_AREA), np.uint8)


def _short(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)[:40]


def _read_as(kind: str) -> str:
    """The kind of inverter that serves `kind` too."""
    return "sift" if kind == "rootsift" else kind


def _readable(seen: Features | PrivateFeatures, painter: Painter) -> Features | PrivateFeatures:
    """RootSIFT squared is SIFT but for its norm, which no inverter reads."""
    if not isinstance(seen, Features) or seen.kind != "rootsift" or painter.inverter.encoding.kind != "sift":
        return seen
    return replace(seen, kind="sift", descriptors=Points(seen.descriptors.values**2))
