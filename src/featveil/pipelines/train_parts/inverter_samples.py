"""Pieces of photographs as an attacker trains on them: released anew at every step, as often as he likes."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from featveil.core import (
    ChangesKind,
    Defense,
    Descriptors,
    Features,
    InputError,
    Keypoints,
    NotMappedError,
    Randomness,
    Selective,
)
from featveil.core.arrays import Float32, Integers
from featveil.defenses import Gate
from featveil.defenses.concealer import last_step
from featveil.gate.point_means import PointMeans
from featveil.learning.encodings import Encoding, Geometry, cells
from featveil.learning.inverter_networks import Standard
from featveil.learning.training import Sample
from featveil.pipelines.train_parts.photo_pieces import Piece, Pieces

_MOST_VALIDATION = 32
_STANDARD = 128  # pieces that the mean and spread of rows are taken from
_DROPPED = 0.5  # at most, of the keypoints of a training piece
_FEWEST_SENT = 24  # features of a piece that pass a gate


@dataclass(frozen=True)
class Release:
    """What an attacker sees of features of `kind`: descriptors under `defense`, and keypoints with `geometry`."""

    defense: Defense
    kind: str
    geometry: Geometry = "positions"

    @property
    def released_kind(self) -> str:
        """The kind of what is sent."""
        return self.defense.released_kind(self.kind) if isinstance(self.defense, ChangesKind) else self.kind

    @cached_property
    def words(self) -> Float32 | None:
        """The codebook (K, d) of word sets, or what the sketch of a gate says of each point of the map."""
        if isinstance(self.defense, Gate) and self.defense.sketch is not None:
            return PointMeans.of(self.defense.sketch).table(self.defense.sketch.model_points)
        codebook = getattr(last_step(self.defense), "codebook", None)
        return None if codebook is None else np.asarray(codebook.values, np.float32)

    def sent(self, features: Features, rng: Randomness) -> tuple[Descriptors, Keypoints]:
        """What the defense makes of the features that it sends, and where they are.

        Pieces are small, and a gate lets them pass however few of their features do. Raises NotMappedError for none.
        """
        keypoints = features.keypoints
        assert keypoints is not None
        if not isinstance(self._ready, Selective):
            return self._ready.privatize(features.descriptors, rng), keypoints
        rows, descriptors = self._ready.release(features.descriptors, keypoints.xy, rng)
        return descriptors, keypoints.take(rows)

    def passes(self, piece: Piece) -> bool:
        """Whether enough of a piece is sent to learn from: at most half of that is dropped later."""
        try:
            return len(self.sent(piece.features, np.random.default_rng(0))[0]) >= _FEWEST_SENT
        except NotMappedError:
            return False

    def encoding(self, piece: Piece) -> Encoding:
        """How a network reads such releases, found by making one."""
        rows = np.arange(len(piece.features) if isinstance(self.defense, Selective) else min(2, len(piece.features)))
        sent, _ = self.sent(piece.features.take(rows), np.random.default_rng(0))
        return Encoding.of(sent, self.released_kind, self.geometry, self.words)

    def sample(self, piece: Piece, encoding: Encoding, rng: np.random.Generator, full: bool) -> Sample:
        """What the network reads of a release of `piece`; `full` geometry or positions only."""
        return self.read(*self.sent(piece.features, rng), piece, encoding, full)

    def read(self, sent: Descriptors, keypoints: Keypoints, piece: Piece, encoding: Encoding, full: bool) -> Sample:
        """The same of what was sent of it before."""
        seen: Keypoints = keypoints if full else keypoints.positions_only()
        height, width = piece.image.shape[:2]
        return Sample(encoding.rows(sent, seen, self.words), cells(seen, width, height, full), piece.image)

    @cached_property
    def _ready(self) -> Defense:
        return replace(self.defense, min_share=0, min_features=1) if isinstance(self.defense, Gate) else self.defense


class ReleasedSamples:
    """Training and validation samples of one kind of release; a step has the same ones whenever it is asked for.

    Rows that are `standardised` have mean 0 and spread 1 in every column, by the `standard` of some training samples.
    """

    def __init__(
        self, training: Pieces, validation: Pieces, release: Release, seed: int = 0, standardised: bool = False
    ) -> None:
        if not len(training) or not len(validation):
            raise InputError(
                f"too few photographs: {len(training.names())} that can be used are for training and"
                f" {len(validation.names())} for validation, which about one in 33 is for: give more"
            )
        self._pieces, self._release, self._seed = training, release, seed
        self._sent: dict[int, tuple[Descriptors, Keypoints]] = {}
        self._places, checked = passing(training, release), passing(validation, release)
        if not len(self._places) or not len(checked):
            raise InputError(
                f"{len(self._places)} pieces for training and {len(checked)} for validation pass this gate: give"
                " photographs of the place"
            )
        self.encoding = release.encoding(training[int(self._places[0])])
        self.standard: Standard | None = None
        if standardised:
            shown = self.batch(0, _STANDARD)
            self.standard = Standard.of(np.concatenate([sample.rows for sample in shown]))
        self.validation: Sequence[Sample] = [
            self._standardised(
                release.sample(validation[place], self.encoding, np.random.default_rng(place), self._full(place))
            )
            for place in checked[:_MOST_VALIDATION].tolist()
        ]

    def batch(self, step: int, count: int) -> Sequence[Sample]:
        """`count` random pieces, each without a random part of its keypoints."""
        rng = np.random.default_rng([self._seed, step])
        chosen = self._places[rng.integers(len(self._places), size=count)]
        sample = self._gated if isinstance(self._release.defense, Selective) else self._sample
        return [sample(int(place), turn, rng) for turn, place in enumerate(chosen, step * count)]

    def _sample(self, place: int, turn: int, rng: np.random.Generator) -> Sample:
        piece = self._pieces[place]
        kept = rng.random(len(piece.features)) >= _DROPPED * rng.random() * (rng.random() < 0.5)
        kept[0] = True
        thinned = replace(piece, features=piece.features.take(np.flatnonzero(kept)))
        return self._standardised(self._release.sample(thinned, self.encoding, rng, self._full(turn)))

    def _gated(self, place: int, turn: int, rng: np.random.Generator) -> Sample:
        """Of what passes a gate, which takes long to look up and is looked up once."""
        if place not in self._sent:
            own = np.random.default_rng([self._seed, place])
            self._sent[place] = self._release.sent(self._pieces[place].features, own)
        sent, keypoints = self._sent[place]
        kept = rng.random(len(sent)) >= _DROPPED * rng.random() * (rng.random() < 0.5)
        kept[0] = True
        rows = np.flatnonzero(kept)
        piece, full = self._pieces[place], self._full(turn)
        return self._standardised(self._release.read(sent.take(rows), keypoints.take(rows), piece, self.encoding, full))

    def _standardised(self, sample: Sample) -> Sample:
        return sample if self.standard is None else replace(sample, rows=self.standard.apply(sample.rows))

    def _full(self, turn: int) -> bool:
        """Whether this one shows scale, orientation and response: with geometry "either", every other does."""
        return self.encoding.geometry == "full" or (self.encoding.geometry == "either" and turn % 2 == 1)


def passing(pieces: Pieces, release: Release) -> Integers:
    """The places of the pieces of which enough is sent to learn from."""
    if not isinstance(release.defense, Selective):
        return np.arange(len(pieces))
    return np.array([place for place in range(len(pieces)) if release.passes(pieces[place])], np.int64)
