"""Gate: what a map does not know is not sent, and what it knows is sent as the number of its point (ours).

Hides:          every feature farther than tau from all that the sketch of the map holds: gate.md has the derivation.
From:           whoever receives the release, whatever they know or compute, as long as the sketch is an honest one.
Does not hide:  where the camera stood, which points of the map it saw and where in the picture; the hole that people
                and things in front of them leave; features that resemble the map by accident.
Known breaks:   a server that hides descriptors of what it looks for in its sketch (featveil sketch audit; a pinned
                key); a release of `then` identity or lifting shows the descriptors of what passed.
"""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self, assert_never

import numpy as np

from featveil.core import (
    Descriptors,
    Guarantee,
    InputError,
    MapPoints,
    NotFittedError,
    NotMappedError,
    Points,
    Randomness,
    Spec,
)
from featveil.core.arrays import Float32, Integers
from featveil.core.errors import shown
from featveil.core.options import option
from featveil.core.protocols import Thinning
from featveil.databases import Database
from featveil.defenses.hardened import Hardened
from featveil.defenses.identity import Identity
from featveil.defenses.lifting import Lifting
from featveil.defenses.subset import Subset, sets_with, subset_coin
from featveil.defenses.support import SUPPORTS, supported
from featveil.gate import Sketch
from featveil.gate.background import contrasting, foreign_share, usual_background
from featveil.gate.lookup import Passed
from featveil.gate.map_sketch import check_contrast, check_tau
from featveil.gate.signing import check_signer

MIN_SHARE, MIN_FEATURES = 0.05, 12
FOREIGN_TIMES = 3  # what passes of foreign content varies from photograph to photograph
CANDIDATES = 3  # what is one point of the place is often several of a map
_MOST_CANDIDATES = 8
_MOST_FEATURES = 2**31
_LARGEST_OWN_TAU = 0.8  # that a sketch may ask for
_LARGEST_FOREIGN = 0.1  # share of foreign content that may pass at the sketch's own tau

Then = Identity | Lifting | Hardened | Subset


@dataclass(frozen=True)
class Gate:
    """Send the features within `tau` of an entry of `sketch` (default: its own), as numbers of points of the map.

    A feature must also be nearer to the sketch than `contrast` times as far as to the `background`, which is what every
    place has. Of each, the `candidates` nearest points are sent. `support` asks more of them: see `defenses.support`.
    Fewer than `min_features`, or less than `min_share` of all, is no place of the map: nothing is sent. By default that
    share grows with what passes of foreign content, by the sketch's calibration and by descriptors that come with
    featveil; a sketch that lets much of it pass at its own tau is refused. The sketch must be signed by `signer`, where
    that is given: a public key, or its file. What passed may go through `then`: lifting or hardened lifting of the
    descriptors, the subset mechanism on the numbers, or identity, which sends raw descriptors.
    """

    sketch: Sketch | None = option(
        None, help="file of the map's sketch.", needed="what the device knows of the map: see featveil sketch build"
    )
    tau: float | None = option(
        None, help="largest distance from a feature to the sketch, both at norm 1.", shown="the sketch's own"
    )
    contrast: float | None = option(
        None,
        help="send a feature only if its distance to the sketch is below this times its distance to the background.",
        shown="the sketch's own",
    )
    background: Database | None = option(
        None,
        help="database file of common features that every place has.",
        shown="the built-in one of the kind",
    )
    candidates: int = option(CANDIDATES, help="most points of the map that are sent per feature.")
    support: str = option(
        "none", help="which other features must agree before one is sent: none, neighbours, covisible or both."
    )
    min_share: float | None = option(
        None,
        help="send nothing if a smaller share of the features passes.",
        shown=f"{FOREIGN_TIMES} times what passes of foreign content, at least {MIN_SHARE:g}",
    )
    min_features: int = option(MIN_FEATURES, help="send nothing if fewer features pass.")
    signer: str | Path | None = option(None, help="public key, or its file; the sketch must be signed with it.")
    then: Then | None = option(
        None,
        help="what is sent in place of the numbers of points: none (raw descriptors), lifting, hardened, or subset"
        " (numbers among decoys).",
    )

    def __post_init__(self) -> None:
        if not isinstance(self.sketch, Sketch | None):
            raise InputError(f"sketch must be a Sketch (see load_sketch), got {type(self.sketch).__name__}")
        if self.tau is not None:
            object.__setattr__(self, "tau", check_tau(self.tau))
        if self.contrast is not None:
            object.__setattr__(self, "contrast", check_contrast(self.contrast))
        if not isinstance(self.background, Database | None):
            raise InputError(f"background must be a Database, got {type(self.background).__name__}")
        if type(self.candidates) is not int or not 1 <= self.candidates <= _MOST_CANDIDATES:
            raise InputError(f"candidates must be 1 to {_MOST_CANDIDATES}, got {shown(self.candidates)}")
        if self.support not in SUPPORTS:
            raise InputError(f"unknown support {shown(self.support)}: use one of {', '.join(SUPPORTS)}")
        share = self.min_share
        if share is not None and (isinstance(share, bool) or not isinstance(share, int | float) or not 0 <= share <= 1):
            raise InputError(f"min_share must be between 0 and 1, got {shown(share)}")
        if type(self.min_features) is not int or not 1 <= self.min_features <= _MOST_FEATURES:
            raise InputError(f"min_features must be 1 to {_MOST_FEATURES}, got {shown(self.min_features)}")
        if not isinstance(self.then, Then | None):
            raise InputError(f"after a gate come identity, lifting, hardened or subset, not {type(self.then).__name__}")
        if isinstance(self.then, Subset) and self.then.codebook is not None:
            raise InputError("after a gate the words are the points of the map: leave the codebook out")
        if self.sketch is not None:
            if self.signer is not None:
                check_signer(self.sketch, self.signer)
            if isinstance(self.then, Subset):
                subset_coin(self.then.epsilon, len(self.sketch.known), self.then.subset_size)

    def for_kind(self, kind: str) -> Self:
        """This gate with its distance and what follows for descriptors of `kind`, if its sketch is of that kind."""
        sketch = self._own_sketch()
        if sketch.kind != kind:
            raise InputError(
                f"the sketch holds {sketch.kind} descriptors, the features are {kind}: extract {sketch.kind}"
            )
        then = self.then if self.then is None or isinstance(self.then, Subset) else self.then.for_kind(kind)
        tau, contrast = self._tau(), self._contrast()
        background = None
        if contrast is not None:
            background = usual_background(kind) if self.background is None else self.background
            self._check_background(background)
        ready = replace(self, tau=tau, contrast=contrast, background=background, then=then)
        return replace(ready, min_share=ready._least_share(own_tau=self.tau is None))

    def guarantee(self) -> Guarantee:
        """What the map does not know leaves no trace; the subset mechanism also hides the numbers of the others."""
        if isinstance(self.then, Subset) and self.then.guarantee().epsilon is not None:
            return Guarantee("map-known", self.then.guarantee().epsilon, "descriptor", self._tau())
        return Guarantee("map-known", None, "image", self._tau())

    def spec(self) -> Spec:
        """Digest of the sketch, distance, support and limits; then name and parameters of the defense after it."""
        spec: Spec = {
            "name": "gate",
            "sketch": None if self.sketch is None else self.sketch.digest,
            "tau": self.tau if self.sketch is None else self._tau(),
            "contrast": self.contrast if self.sketch is None else self._contrast(),
            "background": None if self.background is None else self.background.digest,
            "candidates": self.candidates,
            "support": self.support,
            "min_share": self.min_share,
            "min_features": self.min_features,
        }
        if self.then is None:
            return spec
        after = self.then.spec()
        return spec | {"then": after.pop("name")} | after

    def privatize(self, points: Points, rng: Randomness, labels: Integers | None = None) -> Descriptors:
        """Of points that all pass; raises InputError for others, since a gate leaves these out (`featveil.privatize`).

        Without positions, neighbours cannot agree.
        """
        rows, descriptors = self.release(points, None, rng, labels)
        if len(rows) < len(points):
            raise InputError(
                f"{len(points) - len(rows)} descriptors are not in the map: featveil.privatize leaves them out"
            )
        return descriptors

    def release(
        self,
        points: Points,
        xy: Float32 | None,
        rng: Randomness,
        labels: Integers | None = None,
        thin: Thinning | None = None,
    ) -> tuple[Integers, Descriptors]:
        """The rows that pass and that `thin` keeps, and what is sent of them. Raises NotMappedError where few pass."""
        sketch = self._own_sketch()
        if not self._ready():
            return self.for_kind(sketch.kind).release(points, xy, rng, labels, thin)
        passed = contrasting(
            sketch.look_up(points, self._tau(), self.candidates), points, self.contrast, self.background
        )
        passed = supported(passed, sketch, xy, self.support)
        self._check_mapped(len(passed), len(points))
        if thin is not None:
            passed = passed.take(thin(passed.rows))
        return passed.rows, self._sent(points, passed, rng, labels)

    def _sent(self, points: Points, passed: Passed, rng: Randomness, labels: Integers | None) -> Descriptors:
        sketch = self._own_sketch()
        numbers, then = sketch.points[passed.entries[:, 0]], self.then
        match then:
            case None:
                several = np.sort(np.where(passed.entries < 0, -1, sketch.points[passed.entries]), axis=1)
                return MapPoints(several, sketch.digest, sketch.model, sketch.model_points)
            case Subset():
                known = sketch.known
                coin = subset_coin(then.epsilon, len(known), then.subset_size)
                sets = sets_with(np.searchsorted(known, numbers), len(known), then.subset_size, coin, rng)
                return MapPoints(known[sets], sketch.digest, sketch.model, sketch.model_points)
            case Identity() | Lifting() | Hardened():
                some = None if labels is None else labels[passed.rows]
                return then.privatize(points.take(passed.rows), rng, some)
        assert_never(then)

    def _check_background(self, background: Database | None) -> None:
        if background is None:
            raise InputError("the contrast of this gate is with a background: give its database (--background)")
        sketch = self._own_sketch()
        if background.kind != sketch.kind or background.size != sketch.size:
            raise InputError(f"the background holds {background.kind} descriptors, the sketch {sketch.kind}")
        known = sketch.calibration
        stated = None if known is None else known.background
        if self.contrast is None and stated is not None and stated != background.digest:
            raise InputError(
                f"the sketch was calibrated with background {stated[:16]}, this one is"
                f" {background.digest[:16]}: give that one, or a contrast of your own (--contrast)"
            )

    def _check_mapped(self, passed: int, total: int) -> None:
        if total == 0:
            raise NotMappedError("the photograph has no features: nothing is sent")
        share = 0 if self.min_share is None else self.min_share
        if passed >= self.min_features and passed >= share * total:
            return
        raise NotMappedError(
            f"not a mapped place: {passed} of {total} features ({100 * passed / total:.1f} %) resemble the map; needed:"
            f" {self.min_features} (--min-features) and {100 * share:.3g} % (--min-share); nothing is sent"
        )

    def _ready(self) -> bool:
        """Whether everything that `for_kind` finds is stated."""
        if self.tau is None or self.min_share is None:
            return False
        return self._contrast() is None if self.contrast is None else self.background is not None

    def _least_share(self, own_tau: bool) -> float:
        """The share that must pass, of a gate with tau, contrast and background; raises for a sketch that asks much."""
        if self.min_share is not None and not own_tau:
            return self.min_share
        sketch, tau = self._own_sketch(), self._tau()
        known, foreign = sketch.calibration, foreign_share(sketch, tau, self.contrast, self.background) or 0.0
        if known is not None and known.foreign is not None:
            foreign = max(foreign, known.at(known.foreign, tau))  # who made the sketch knows more about it, or lies
        if own_tau and foreign > _LARGEST_FOREIGN:
            raise InputError(
                f"{100 * foreign:.0f} % of what other places show would pass at this sketch's own tau: do not use it,"
                " or state a tau of your own (--tau)"
            )
        return min(1.0, max(MIN_SHARE, FOREIGN_TIMES * foreign)) if self.min_share is None else self.min_share

    def _tau(self) -> float:
        if self.tau is not None:
            return self.tau
        calibration = self._own_sketch().calibration
        if calibration is None:
            raise InputError("the sketch was not calibrated: state a tau (--tau), such as 0.35 for SIFT")
        if calibration.tau > _LARGEST_OWN_TAU:
            raise InputError(
                f"the sketch asks for tau {calibration.tau:g}, which lets nearly everything pass: do not use it, or"
                " state a tau of your own (--tau)"
            )
        return calibration.tau

    def _contrast(self) -> float | None:
        """The own one, or the sketch's: a sketch that says none cannot switch off a background that is there."""
        if self.contrast is not None:
            return self.contrast
        sketch = self._own_sketch()
        there = self.background is not None or usual_background(sketch.kind) is not None
        known = None if sketch.calibration is None else sketch.calibration.contrast
        return known if known is not None else 1.0 if there else None

    def _own_sketch(self) -> Sketch:
        if self.sketch is None:
            raise NotFittedError("a gate needs the sketch of a map: featveil sketch build")
        return self.sketch
