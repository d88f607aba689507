"""Paint what features show, raw or private: what an attacker sees who has them and a trained network."""

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from featveil.core.errors import InputError
from featveil.core.files import check_folder
from featveil.core.kinds import base_kind
from featveil.core.options import argument, option
from featveil.pipelines.adversary import NO_FILES, Adversary, AdversaryFiles, obstacle
from featveil.pipelines.sources import HDF5, read_features

if TYPE_CHECKING:
    from featveil.attacks import Attack, Guess
    from featveil.core import Features, PrivateFeatures
    from featveil.extractors.images import Image
    from featveil.metrics.reconstruction import Reconstruction
    from featveil.pipelines.painters import Painter

_FEW_NEARBY = 0.3  # of features in their own image, however it was encoded since
_RAW = {"name": "identity"}  # the defense that inverters of raw descriptors were trained on
_GAP = 8  # pixels between two pictures

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class InvertRequest:
    """What to paint, and how; at least a picture to write or an image to compare with is needed."""

    features: Path = argument(help="A .veil file, raw or private, an .h5 file or an image.")
    out: Path | None = option(None, help="The picture, a .png file.", shown="none")
    inverter: Path | None = option(None, help="Inverter, an .onnx file.", shown="the built-in one, for raw SIFT")
    attack: str | None = option(
        None, help="Recover the descriptors first: NAME, see featveil attack --list.", shown="none; of gated ones read"
    )
    original: Path | None = option(None, help="Image to compare with.", shown="FEATURES, if it is an image")
    side_by_side: bool = option(False, help="The original at the left of the picture.")
    positions_only: bool = option(False, help="Of keypoints read positions alone, as of most private files.")
    size: int | None = option(
        None, help="Pixels of the picture's long side.", shown="by the number of features", minimum=32
    )
    name: str | None = option(None, help="The image, in a file of many.", shown="the only one")
    kind: str | None = option(None, help="Descriptor kind, where a file does not say it.")
    max_features: int = option(2048, help="Of an image, the strongest.", minimum=1)
    settings: tuple[str, ...] = option(
        (), help="A parameter of the attack: NAME=VALUE.", flags=("--set",), repeated=True
    )
    seed: int = option(0, help="Of the attack's own draws.", minimum=0)


@dataclass(frozen=True, eq=False)
class InvertResult:
    """The `picture` (h, w, 3) of so many `features`, painted by the `inverter` of that `digest`.

    `geometry` is what was read of keypoints: "positions" or "full". `attack` recovered descriptors for a share
    `answered` of the features. `score` compares the picture with the original, `blank` a grey one.
    """

    picture: "Image"
    features: int
    kind: str
    geometry: str
    inverter: str
    digest: str
    attack: str | None = None
    answered: float | None = None
    score: "Reconstruction | None" = None
    blank: "Reconstruction | None" = None
    out: Path | None = None

    @property
    def size(self) -> tuple[int, int]:
        """(width, height) of the picture."""
        return self.picture.shape[1], self.picture.shape[0]

    def facts(self) -> dict[str, Any]:
        """As plain values, without the picture."""
        facts: dict[str, Any] = {"features": self.features, "kind": self.kind}
        facts |= {"attack": self.attack, "answered": self.answered, "geometry": self.geometry}
        facts |= {"size": list(self.size), "inverter": self.inverter, "digest": self.digest}
        if self.score is not None and self.blank is not None:
            facts |= {**self.score._asdict(), "blank": self.blank._asdict()}
        return {**facts, "out": None if self.out is None else str(self.out)}


def invert(request: InvertRequest, known: AdversaryFiles = NO_FILES) -> InvertResult:
    """Paint features, write the picture where one is named, and compare it with the original where there is one.

    Private features are recovered first by the attack that is named, with what is `known`; points of a map by `read`,
    unless an inverter of their own is named. Raises InputError for a request that cannot be carried out, and where the
    inverter does not fit.
    """
    from featveil.core import PrivateFeatures
    from featveil.pipelines.painters import at_size, load_painter, paint, without_geometry, words_of

    _check_request(request)
    method = None if request.attack is None else _one_attack(request.attack, request.settings)
    seen = _read(request)
    seen = without_geometry(seen) if request.positions_only else seen
    method = _usual_attack(seen, request) if method is None else method
    painter, original = load_painter(request.inverter, base_kind(seen.kind)), _original(seen, request)
    adversary, answered = Adversary(known), None
    words, readable = None, seen
    if isinstance(seen, PrivateFeatures) and method is None:
        words = words_of(seen, adversary.knowledge(seen, request.features.name))
    if method is not None:
        guess, readable = _recovered(seen, method, adversary, painter, (request.seed, request.features.name))
        answered = float(guess.answered.mean())
    picture = paint(at_size(readable, _size(readable, request.size)), painter, words)
    _warn_of_another_defense(readable, painter)
    score, blank = _finish(picture, original, request)
    return InvertResult(
        picture=picture,
        features=len(seen),
        kind=seen.kind,
        geometry="full" if painter.reads_all(readable) else "positions",
        inverter=painter.name,
        digest=painter.digest,
        attack=None if method is None else method.name,
        answered=answered,
        score=score,
        blank=blank,
        out=request.out,
    )


def _check_request(request: InvertRequest) -> None:
    """Raise InputError, before any work, when nothing would come of it."""
    from featveil.extractors.images import IMAGE_SUFFIXES

    out = request.out
    if out is not None and out.suffix.lower() != ".png":
        raise InputError(f"the picture is a .png file, not {out.name}")
    if out is not None:
        check_folder(out.parent)
    compared = request.original is not None or request.features.suffix.lower() in IMAGE_SUFFIXES
    if request.side_by_side and (out is None or not compared):
        raise InputError("--side-by-side needs the picture, --out FILE.png, and an --original")
    if out is None and not compared:
        raise InputError("nothing would come of it: name the picture, --out FILE.png, or an --original to compare with")


def _one_attack(given: str, settings: tuple[str, ...]) -> "Attack":
    from featveil.registry import make_attacks

    names = [name.strip() for name in given.split(",") if name.strip()]
    methods = make_attacks(names or [given], settings)
    if len(methods) > 1:
        raise InputError("a picture is of one attack: name one")
    method: Attack = methods[0]
    if "truth" in method.needs:
        raise InputError(f"{given} knows the truth, which no file has: see featveil bench inversion")
    return method


def _usual_attack(seen: "Features | PrivateFeatures", request: InvertRequest) -> "Attack | None":
    """The built-in inverter reads raw descriptors: for points of a map it gets the map's own."""
    from featveil.core import MapPoints
    from featveil.registry import make_attacks

    if request.inverter is None and isinstance(seen.descriptors, MapPoints):
        method: Attack = make_attacks(["read"])[0]
        return method
    return None


def _read(request: InvertRequest) -> "Features | PrivateFeatures":
    """The features of a file; of several images those of the one that is named."""
    from featveil.formats import colmap_database, hloc, private_hloc

    path, module = request.features, None
    if path.suffix.lower() in HDF5:
        module = private_hloc if path.is_file() and private_hloc.is_private(path) else hloc
    elif path.is_file() and colmap_database.is_database(path):
        module = colmap_database
    if module is None:
        if request.name is not None:
            raise InputError(f"--name is for files with features of many images, which {path} is not")
        return read_features(path, request.kind or "sift", request.max_features)
    names = module.names(path)
    if request.name is None and len(names) != 1:
        raise InputError(f"{path} has features of {len(names)} images: --name one of them")
    chosen = names[0] if request.name is None else request.name
    features: Features | PrivateFeatures = (
        module.read(path, chosen) if module is private_hloc else module.read(path, chosen, request.kind)
    )
    if len(features) == 0:
        raise InputError(f"image {chosen!r} in {path} has no features")
    return features


def _original(seen: "Features | PrivateFeatures", request: InvertRequest) -> "Image | None":
    """The image that the features are of, if there is one; warns of another, raises InputError for another size."""
    from featveil.extractors import read_image
    from featveil.extractors.images import IMAGE_SUFFIXES
    from featveil.pipelines.painters import keypoints_found

    features, original = request.features, request.original
    path = original or (features if features.suffix.lower() in IMAGE_SUFFIXES else None)
    if path is None:
        return None
    image = read_image(path)
    if seen.image_size is not None and tuple(seen.image_size) != (image.shape[1], image.shape[0]):
        raise InputError(
            f"the features are of an image of {seen.image_size[0]} x {seen.image_size[1]} pixels, {path} has"
            f" {image.shape[1]} x {image.shape[0]}: give the image they were extracted from"
        )
    if original is not None and (share := keypoints_found(seen, image)) is not None and share < _FEW_NEARBY:
        _log.warning(f"{100 * share:.0f}% of the features are where {path.name} has any: is it their image?")
    return image


def _size(seen: "Features | PrivateFeatures", longest: int | None) -> tuple[int, int]:
    """(width, height) of the picture."""
    from featveil.pipelines.painters import picture_size

    if longest is None or seen.image_size is None:
        return picture_size(seen)
    factor = longest / max(seen.image_size)
    return max(1, round(seen.image_size[0] * factor)), max(1, round(seen.image_size[1] * factor))


def _recovered(
    seen: "Features | PrivateFeatures",
    method: "Attack",
    adversary: Adversary,
    painter: "Painter",
    draws: tuple[int, str],
) -> "tuple[Guess, Features]":
    """What the attack makes of all features, as raw ones."""
    from featveil.attacks import attack
    from featveil.core import PrivateFeatures
    from featveil.core.seeding import generator
    from featveil.pipelines.painters import check_reads_raw, recovered

    if not isinstance(seen, PrivateFeatures):
        raise InputError("these are raw features: nothing is hidden, so there is nothing to attack")
    check_reads_raw(painter, base_kind(seen.kind))
    seed, name = draws
    known = adversary.knowledge(seen, name)
    if (why := obstacle(seen, method, known)) is not None:
        raise InputError(why.message)
    guess = attack(seen, method, known, generator(seed, name, method.name))
    return guess, recovered(seen, guess)


def _warn_of_another_defense(seen: "Features | PrivateFeatures", painter: "Painter") -> None:
    """Say when the inverter was trained on the same representation, but another defense or database.

    What identity sends after a gate are raw descriptors.
    """
    from featveil.core import PrivateFeatures
    from featveil.pipelines.painters import training_command

    trained = painter.inverter.card.get("defense")
    if not isinstance(seen, PrivateFeatures) or trained is None:
        return
    if trained != (_RAW if seen.defense.get("then") == "identity" else seen.defense):
        _log.warning(f"{painter.name} was trained on another defense, so it sees less: {training_command(seen)}")


def _finish(
    picture: "Image", original: "Image | None", request: InvertRequest
) -> "tuple[Reconstruction | None, Reconstruction | None]":
    """Write the picture, and say how near it is to the original, and how near a grey one would be."""
    import numpy as np

    from featveil.metrics.reconstruction import compare
    from featveil.pipelines.painters import blank, resized
    from featveil.plotting.pictures import write_picture

    height, width = picture.shape[:2]
    beside = None if original is None else resized(original, (width, height))
    scores = (None, None) if beside is None else (compare(picture, beside), compare(blank(beside), beside))
    if request.out is not None:
        gap = np.full((height, _GAP, 3), 255, np.uint8)
        whole = np.hstack([beside, gap, picture]) if request.side_by_side and beside is not None else picture
        write_picture(whole, request.out)
    return scores
