"""Photographs -> a trained inverter of what one defense sends: the direct inversion attack.

Papers: affine-subspace-embeddings.txt 4.2 (direct inversion), ldp-feat.txt 6.3, ninjadesc.txt 3.2. The attacker has
photographs of his own, the defense and all that is public of it, and makes as many releases as he likes.
"""

import hashlib
import logging
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import numpy as np

from featveil.core import Defense, InputError, PrivateFeatures
from featveil.core.files import check_folder
from featveil.core.resuming import Report
from featveil.core.seeding import generator
from featveil.core.version import VERSION
from featveil.extractors.images import Image
from featveil.inverters import Inverter, load_inverter
from featveil.learning import require_torch
from featveil.learning.encodings import Geometry
from featveil.metrics.reconstruction import Reconstruction, compare
from featveil.pipelines.train_parts.photo_pieces import Part, Piece, Pieces
from featveil.pipelines.train_parts.photo_samples import Recipe, check_photographs, make_pieces, warn_of_few

if TYPE_CHECKING:
    from featveil.learning.inverter_networks import Inverter as Network
    from featveil.learning.training import Progress, Settings, Trainer
    from featveil.pipelines.train_parts.inverter_samples import Release

_MOST_TESTED = 32

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class InverterTraining:
    """What is to be trained: on the photographs of `images`, against `defense`.

    `loss` is "structure" or "perceptual"; the latter needs `loss_weights`, a file of VGG16 or EfficientNet-lite0.
    `start` is a checkpoint of another training, or an inverter, whose network is the beginning. `data_note` and
    `licence` go into the card as they are. A training that is `standardised` reads columns at mean 0 and spread 1,
    whatever the defense makes of them; the inverter that comes of it reads them as they are.
    """

    images: Path
    defense: Defense
    kind: str = "sift"
    geometry: Geometry = "positions"
    architecture: str = "unet"
    size: str = "small"
    loss: str = "structure"
    loss_weights: Path | None = None
    start: Path | None = None
    recipe: Recipe = field(default_factory=Recipe)
    data_note: str = ""
    licence: str = ""
    standardised: bool = False

    def __post_init__(self) -> None:
        if self.recipe.kind != self.kind:
            object.__setattr__(self, "recipe", replace(self.recipe, kind=self.kind))


def checkpoint_of(out: Path) -> Path:
    """Where a training that writes `out` keeps its state."""
    return out.with_name(f"{out.stem}.checkpoint.safetensors")


def run_inverter_training(
    request: InverterTraining,
    out: Path,
    cache: Path,
    settings: "Settings",
    extracting: Report = lambda done, total: None,
    training: "Callable[[Progress], None]" = lambda progress: None,
) -> dict[str, Any]:
    """Train, write the inverter to `out` and return its card; the same call goes on where a stopped one was.

    Raises MissingExtraError without torch or onnx, InputError for photographs or settings that cannot be used and for a
    checkpoint of another training, FormatError for damaged files, FeatveilError when the loss is no number.
    """
    require_torch()
    from featveil.learning.exporting import export_inverter
    from featveil.learning.inverter_networks import make_inverter
    from featveil.learning.losses import make_loss
    from featveil.learning.training import Trainer
    from featveil.pipelines.train_parts.inverter_samples import Release, ReleasedSamples

    check_request(request, out, settings)
    loss = make_loss(request.loss, request.loss_weights)
    check_photographs(request.images)
    make_pieces(request.images, cache, request.recipe, extracting)
    parts = {part: Pieces(cache, request.kind, part) for part in get_args(Part)}
    release = Release(request.defense, request.kind, request.geometry)
    samples = ReleasedSamples(parts["training"], parts["validation"], release, settings.seed, request.standardised)
    warn_of_few(parts["training"])
    network = make_inverter(samples.encoding.columns, request.architecture, request.size, settings.seed)
    if request.start is not None and not checkpoint_of(out).exists():
        begin_with(network, request.start)
        if samples.standard is not None:
            samples.standard.unfold(network)
    identity = _identity(request, samples.encoding.to_json(), parts["training"])
    trainer = Trainer(network, loss, settings, checkpoint_of(out), identity)
    trainer.run(samples, training)
    card = identity | _notes(request, trainer) | _counts(parts)
    trained = trainer.network if samples.standard is None else samples.standard.folded(trainer.network)
    export_inverter(out, trained, samples.encoding, card)
    card |= _tested(out, release, parts["test"])
    export_inverter(out, trained, samples.encoding, card)
    return card


def begin_with(network: "Network", start: Path) -> None:
    """Take over the network of another training: its checkpoint, or the inverter that it made.

    Raises InputError for another architecture, FormatError for a file that is damaged or no inverter.
    """
    from featveil.learning.training import start_from

    if start.suffix == ".onnx":
        load_inverter(start)
    start_from(network, start)


def check_request(request: InverterTraining, out: Path, settings: "Settings") -> None:
    """Raise what would otherwise end a training only after features were extracted, or the training itself."""
    from featveil.learning import require_onnx
    from featveil.learning.inverter_networks import check_architecture
    from featveil.learning.training import find_device

    require_onnx()
    check_folder(out.parent)
    if out.is_dir():
        raise InputError(f"{out} is a folder: name a file")
    check_architecture(request.architecture, request.size)
    find_device(settings.device)
    if request.start is not None and not request.start.is_file() and not checkpoint_of(out).exists():
        raise InputError(f"there is no checkpoint {request.start}")


def score(inverter: Inverter, release: "Release", piece: Piece, geometry: bool, seed: int = 0) -> Reconstruction:
    """How near the inverter comes to a piece of which it sees one release."""
    return compare(reconstruct(inverter, release, piece, geometry, seed), piece.image)


def reconstruct(inverter: Inverter, release: "Release", piece: Piece, geometry: bool, seed: int = 0) -> Image:
    """What the inverter paints of one release of a piece."""
    rng = generator(seed, "test", str(len(piece.features)))
    sent, keypoints = release.sent(piece.features, rng)
    seen = PrivateFeatures(
        sent,
        release.released_kind,
        release.defense.spec(),
        release.defense.guarantee(),
        keypoints if geometry else keypoints.positions_only(),
        piece.features.image_size,
    )
    return inverter.invert(seen, release.words)


def _identity(request: InverterTraining, encoding: dict[str, Any], training: Pieces) -> dict[str, Any]:
    """What decides how a training goes, together with its settings: one that goes on must share it."""
    identity: dict[str, Any] = {
        "encoding": encoding,
        "defense": request.defense.spec(),
        "architecture": request.architecture,
        "size": request.size,
        "loss": request.loss,
        "recipe": request.recipe.to_json(),
        "training_pieces": training.digest(),
        "start": None if request.start is None else request.start.name,
    }
    if request.standardised:
        identity["standardised"] = True
    if request.loss_weights is not None:
        identity["loss_weights"] = hashlib.sha256(request.loss_weights.read_bytes()).hexdigest()
    return identity


def _notes(request: InverterTraining, trainer: "Trainer") -> dict[str, Any]:
    return {
        "data": request.data_note,
        "licence": request.licence,
        "featveil": VERSION,
        "steps": trainer.step,
        "batch": trainer.settings.batch,
        "rate": trainer.settings.rate,
        "seed": trainer.settings.seed,
        "minutes": round(trainer.seconds / 60, 1),
        "parameters": sum(value.numel() for value in trainer.network.parameters()),
        "validation_ssim": [entry[2] for entry in trainer.history],
    }


def _counts(parts: dict[Part, Pieces]) -> dict[str, Any]:
    return {
        "photographs": {part: len(pieces.names()) for part, pieces in parts.items()},
        "pieces": {part: len(pieces) for part, pieces in parts.items()},
    }


def _tested(out: Path, release: "Release", pieces: Pieces) -> dict[str, Any]:
    """What the written file scores on photographs that no step has seen, and the floor; nothing without any."""
    from featveil.pipelines.train_parts.inverter_samples import passing

    inverter = load_inverter(out)
    tested = [pieces[place] for place in passing(pieces, release)[:_MOST_TESTED].tolist()]
    if not tested:
        _log.warning("none of these photographs is for tests, as about one in 33 is: the card says nothing of quality")
        return {}
    scores_of: dict[str, list[float]] = {}
    for geometry in {"positions": (False,), "full": (True,), "either": (False, True)}[release.geometry]:
        scores = [score(inverter, release, piece, geometry) for piece in tested]
        scores_of["full" if geometry else "positions"] = _mean(scores)
    scores_of["blank"] = _mean([compare(np.full_like(piece.image, 127), piece.image) for piece in tested])
    return {"test": scores_of, "test_pieces": len(tested), "test_values": list(Reconstruction._fields)}


def _mean(scores: list[Reconstruction]) -> list[float]:
    return [round(float(value), 4) for value in np.mean(scores, axis=0)]
