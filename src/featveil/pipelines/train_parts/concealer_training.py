"""Patches and photographs -> a trained concealer (ninjadesc.txt, 3), for any base descriptor.

The base descriptor is never changed: it describes all patches once, and features of photographs are extracted once.
"""

import hashlib
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from featveil.core import InputError
from featveil.core.arrays import Float32, Integers
from featveil.core.files import make_folder
from featveil.core.resuming import Report
from featveil.core.seeding import check_seed
from featveil.core.version import VERSION
from featveil.datasets import PatchSet
from featveil.extractors import NetworkDescriber, PatchDescriber
from featveil.formats.network_files import save_network
from featveil.learning import require_torch
from featveil.learning.concealer_presets import Preset
from featveil.learning.encodings import Encoding, Geometry, cells
from featveil.metrics.patch_ranking import false_positive_rate
from featveil.pipelines.train_parts.inverter_training import begin_with
from featveil.pipelines.train_parts.photo_pieces import Pieces
from featveil.pipelines.train_parts.photo_samples import Recipe, make_pieces, warn_of_few

if TYPE_CHECKING:
    from featveil.learning.adversarial import ConcealerTrainer, Progress
    from featveil.learning.training import Sample

_HELD_OUT = 10  # every so many points are for validation, where no other set is given
_MOST_PAIRS = 20_000
_STRONGEST = 1e6
_COLLAPSED = 0.3  # mean distance of descriptors of different points; at random it is 1.4
_COLLAPSE = (
    "lambda {:g}: descriptors of different points are only {:.3f} apart, the training has collapsed: that hides nothing"
    " from who subtracts the mean, as train inverter does; train with a smaller --second-order, such as 0.25"
)

_log = logging.getLogger(__name__)


class Tracks:
    """Descriptors (n, d) of patches, and which point each shows: pairs of one point are drawn from them.

    Raises InputError unless two points at least are shown by two patches each.
    """

    def __init__(self, values: Float32, points: Integers) -> None:
        order = np.argsort(points, kind="stable")
        self._values = values[order]
        _, starts, counts = np.unique(points[order], return_index=True, return_counts=True)
        several = counts > 1
        self._starts, self._counts = starts[several], counts[several]
        if len(self._starts) < 2:
            raise InputError(
                f"{len(self._starts)} points are shown by two patches or more: a concealer learns which patches match,"
                " and which do not; give a larger set"
            )

    def __len__(self) -> int:
        return len(self._starts)

    def pairs(self, count: int, rng: np.random.Generator) -> tuple[Float32, Float32]:
        """Two descriptors each of `count` different points, or of all points where there are fewer."""
        chosen = rng.permutation(len(self))[:count] if count > len(self) // 4 else _distinct(len(self), count, rng)
        sizes = self._counts[chosen]
        first = rng.integers(sizes)
        second = (first + rng.integers(1, sizes)) % sizes
        starts = self._starts[chosen]
        return self._values[starts + first], self._values[starts + second]

    def judged(self, rng: np.random.Generator) -> tuple[Float32, Float32, Float32]:
        """Descriptors of points, of the same points, and of others: pairs to tell apart."""
        first, second = self.pairs(min(len(self), _MOST_PAIRS), rng)
        return first, second, np.roll(second, 1, axis=0)


@dataclass(frozen=True, eq=False)
class ConcealerSource:
    """Pairs of patches and pieces of photographs, the same ones whenever a step asks."""

    training: Tracks
    validation: Tracks
    photographs: Pieces
    encoding: Encoding
    seed: int = 0

    def pairs(self, step: int, count: int) -> tuple[Float32, Float32]:
        """Raw descriptors (count, d) of points, and of the same points in other images."""
        return self.training.pairs(count, np.random.default_rng([self.seed, 0, step]))

    def pieces(self, step: int, count: int) -> "list[Sample]":
        """Pieces whose rows are raw descriptors, followed by the geometry of their keypoints."""
        rng = np.random.default_rng([self.seed, 1, step])
        return [self._piece(int(place)) for place in rng.integers(len(self.photographs), size=count)]

    def false_rate(self, conceal: Callable[[Float32], Float32]) -> float:
        """FPR95 of concealed descriptors on pairs that no step has."""
        first, same, other = (conceal(values) for values in self.validation.judged(np.random.default_rng(self.seed)))
        distances = np.concatenate([np.linalg.norm(first - seen, axis=1) for seen in (same, other)])
        return false_positive_rate(distances, np.arange(len(distances)) < len(first))

    def distance(self, conceal: Callable[[Float32], Float32]) -> float:
        """The mean distance of descriptors of different points, on pairs that no step has."""
        first, _, other = (conceal(values) for values in self.validation.judged(np.random.default_rng(self.seed)))
        return float(np.linalg.norm(first - other, axis=1).mean())

    def _piece(self, place: int) -> "Sample":
        from featveil.learning.training import Sample

        piece = self.photographs[place]
        keypoints = piece.features.keypoints
        assert keypoints is not None
        full = self.encoding.geometry == "full"
        seen, size = keypoints if full else keypoints.positions_only(), self.encoding.size
        rows = self.encoding.rows(piece.features.descriptors, seen)
        rows[:, :size] = piece.features.descriptors.values
        height, width = piece.image.shape[:2]
        return Sample(rows, cells(seen, width, height, full), piece.image)


@dataclass(frozen=True)
class ConcealerTraining:
    """What is to be trained, and with what: `strengths` are the privacy parameters (lambda), one network each.

    The inverter that is trained along sees `geometry` of the keypoints: with all of it, it is the stronger opponent.
    `start` is a checkpoint of another inverter, or that inverter itself, that it begins with.
    """

    images: Path
    describer: PatchDescriber
    preset: Preset
    strengths: Sequence[float] = (1.0,)
    geometry: Geometry = "full"
    start: Path | None = None
    loss: str = "structure"
    loss_weights: Path | None = None
    seed: int = 0
    device: str = "cpu"
    data_note: str = ""
    licence: str = ""

    def __post_init__(self) -> None:
        if not self.strengths or any(not 0 <= strength < _STRONGEST for strength in self.strengths):
            raise InputError(f"lambda must be a number of at least 0 and below {_STRONGEST:,.0f}")
        if self.geometry == "either":
            raise InputError("the inverter that is trained along sees positions or full geometry")
        check_seed(self.seed)


def describe_tracks(patches: PatchSet, describer: PatchDescriber, report: Report) -> tuple[Float32, Integers]:
    """Descriptors (n, d) of all patches of a set, and their points."""
    parts, done = [], 0
    report(0, len(patches))
    for block in patches.blocks():
        parts.append(describer.describe(block).values)
        done += len(block)
        report(done, len(patches))
    return np.concatenate(parts), patches.points


def run_concealer_training(
    request: ConcealerTraining,
    patches: PatchSet,
    validation: PatchSet | None,
    outs: Sequence[Path],
    cache: Path,
    preparing: Report = lambda done, total: None,
    training: "Callable[[float, Progress], None]" = lambda strength, progress: None,
) -> list[dict[str, Any]]:
    """Train one network for each lambda, write them to `outs`, and return their cards.

    The first two stages are shared and kept in `cache`. A stopped call goes on when it is repeated. Raises
    MissingExtraError without torch, InputError for data that cannot be used and for files of another training.
    """
    require_torch()
    from featveil.learning.adversarial import ConcealerTrainer
    from featveil.learning.losses import make_loss
    from featveil.learning.training import find_device

    kind, loss = request.describer.kind, make_loss(request.loss, request.loss_weights)
    initial = cache / f"concealer-{kind}-{request.seed}.safetensors"
    find_device(request.device)
    checkpoints = [out.with_name(f"{out.stem}.checkpoint.safetensors") for out in outs]
    begun = initial.exists() or all(path.exists() for path in checkpoints)
    if request.start is not None and not request.start.is_file() and not begun:
        raise InputError(f"there is no checkpoint {request.start}")
    weights = request.describer.weights if isinstance(request.describer, NetworkDescriber) else None
    make_pieces(request.images, cache, Recipe(kind, weights=weights), preparing)
    for out in outs:
        make_folder(out.parent)
    source = _source(request, patches, validation, Pieces(cache, kind, "training"), preparing)
    identity = _identity(request, patches, validation, source.photographs)
    cards = []
    for strength, out, checkpoint in zip(request.strengths, outs, checkpoints, strict=True):
        size, columns = source.encoding.size, source.encoding.columns
        trainer = ConcealerTrainer(size, columns, loss, request.preset, request.seed, identity, request.device)
        if request.start is not None and not initial.exists() and not checkpoint.exists():
            begin_with(trainer.inverter, request.start)
        report_stage = partial(training, strength)
        network = trainer.run(source, strength, initial, checkpoint, report_stage)
        card = _card(request, trainer, source)
        if card["distance_of_others"]["concealed"] < _COLLAPSED:
            _log.warning(_COLLAPSE.format(strength, card["distance_of_others"]["concealed"]))
        save_network(out, *network.weights(), kind, strength, card)
        cards.append({"lambda": strength, **card})
    return cards


def _source(
    request: ConcealerTraining, patches: PatchSet, validation: PatchSet | None, photographs: Pieces, report: Report
) -> ConcealerSource:
    if not len(photographs):
        raise InputError("too few photographs: none is on the training side")
    warn_of_few(photographs)
    values, points = describe_tracks(patches, request.describer, report)
    size = photographs[0].features.descriptors.size
    if size != values.shape[1]:
        raise InputError(f"patches have descriptors of size {values.shape[1]}, photographs of size {size}")
    if validation is None:
        held = np.unique(points, return_inverse=True)[1] % _HELD_OUT == 0
        training, other = Tracks(values[~held], points[~held]), Tracks(values[held], points[held])
    else:
        training, other = Tracks(values, points), Tracks(*describe_tracks(validation, request.describer, report))
    return ConcealerSource(
        training, other, photographs, Encoding(request.describer.kind, size, geometry=request.geometry), request.seed
    )


def _identity(
    request: ConcealerTraining, patches: PatchSet, validation: PatchSet | None, photographs: Pieces
) -> dict[str, Any]:
    """What decides how a training goes, beside preset, seed and lambda: one that goes on must share it."""
    identity = {
        "kind": request.describer.kind,
        "describer": request.describer.digest,
        "loss": request.loss,
        "geometry": request.geometry,
        "start": None if request.start is None else request.start.name,
        "patches": [patches.name, len(patches)],
        "validation": "held-out points" if validation is None else [validation.name, len(validation)],
        "training_pieces": photographs.digest(),
    }
    if request.loss_weights is not None:
        identity["loss_weights"] = hashlib.sha256(request.loss_weights.read_bytes()).hexdigest()
    return identity


def _card(request: ConcealerTraining, trainer: "ConcealerTrainer", source: ConcealerSource) -> dict[str, Any]:
    return trainer.identity | {
        "featveil": VERSION,
        "minutes": round(sum(trainer.seconds.values()) / 60, 1),
        "false_positive_rate_95": {
            "raw": source.false_rate(lambda values: values),
            "concealed": source.false_rate(trainer.conceal),
            "during_joint_training": trainer.history,
        },
        "distance_of_others": {
            "raw": source.distance(lambda values: values),
            "concealed": source.distance(trainer.conceal),
        },
        "photographs": len(source.photographs.names()),
        "data": request.data_note,
        "licence": request.licence,
    }


def _distinct(total: int, count: int, rng: np.random.Generator) -> Integers:
    """`count` different numbers below `total`, which is much larger."""
    numbers = np.unique(rng.integers(total, size=2 * count))
    return rng.permutation(numbers if len(numbers) >= count else total)[:count]
