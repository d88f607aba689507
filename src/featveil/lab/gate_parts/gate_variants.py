"""The gates that a bench compares, and the sketches and methods that they are compared by."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from featveil.core import InputError
from featveil.core.records import Parameter
from featveil.databases import Database
from featveil.defenses import Gate, Subset
from featveil.defenses.gate import CANDIDATES, MIN_SHARE
from featveil.defenses.support import SUPPORTS
from featveil.gate import Sketch
from featveil.gate.map_sketch import check_tau
from featveil.gate.sketch_building import BYTES, Observations, build_sketch
from featveil.gate.thresholds import Foreign, calibrate
from featveil.lab.localization_parts.localization_maps import MapsWithout
from featveil.lab.scene_studies import RAW, short
from featveil.pipelines.map_parts.observed import facts_of, foreign_to, observations

EXACT = "exact"


@dataclass(frozen=True)
class Variant:
    """One way to gate; what is not said is as usual.

    `size` are the bytes of an entry, None for descriptors as they are. `tau` is the sketch's own where it is None.
    Without `contrast` no background takes features away.
    """

    size: int | None = BYTES
    tau: float | None = None
    contrast: bool = True
    candidates: int = CANDIDATES
    support: str = "none"
    then: Subset | None = None

    @property
    def name(self) -> str:
        """What differs from a usual gate."""
        usual, parts = Variant(), ["gate"]
        if self.size != usual.size:
            parts.append(EXACT if self.size is None else f"{self.size}-bytes")
        if self.tau is not None:
            parts.append(f"tau-{short(self.tau)}")
        if not self.contrast:
            parts.append("no-contrast")
        if self.support != usual.support:
            parts.append(self.support)
        if self.candidates != usual.candidates:
            parts.append(f"candidates-{self.candidates}")
        if self.then is not None:
            parts.append(f"subset-{short(self.then.epsilon)}")
        return "-".join(parts)

    @property
    def epsilon(self) -> float | None:
        """Of a descriptor."""
        return None if self.then is None else self.then.epsilon

    def parameters(self) -> dict[str, Parameter]:
        """What a record states of it."""
        return {
            "entry_bytes": self.size,
            "stated_tau": self.tau,
            "contrasting": self.contrast,
            "candidates": self.candidates,
            "support": self.support,
        }

    def gate(self, sketch: Sketch) -> Gate:
        """The gate with a sketch that was built for it."""
        gate = Gate(sketch, self.tau, candidates=self.candidates, support=self.support, then=self.then)
        if self.contrast or sketch.calibration is None:
            return gate
        tau = sketch.calibration.tau if self.tau is None else self.tau
        away = far_away(sketch.kind, sketch.size)
        return replace(gate, tau=tau, contrast=1.0, background=away, min_share=MIN_SHARE)


def make_variants(
    sizes: Sequence[str], taus: Iterable[float], supports: Iterable[str], epsilons: Iterable[float]
) -> list[Variant]:
    """The usual gate of the first of `sizes`, then gates that differ from it in one thing.

    Raises InputError for sizes that are neither numbers of bytes nor `exact`, impossible taus and unknown supports.
    """
    taus, supports = [check_tau(tau) for tau in taus], list(supports)
    if unknown := [support for support in supports if support not in SUPPORTS]:
        raise InputError(f"unknown support {unknown[0]!r:.40}: use one of {', '.join(SUPPORTS)}")
    first, *others = [Variant(_bytes_of(size)) for size in dict.fromkeys(sizes)]
    single = 1
    wanted = [
        first,
        *others,
        *(replace(first, tau=tau) for tau in taus),
        replace(first, contrast=False),
        *(replace(first, support=support) for support in supports if support != first.support),
        replace(first, candidates=single),
        *(replace(first, then=Subset(epsilon)) for epsilon in epsilons),
    ]
    return list(dict.fromkeys(wanted))


def _bytes_of(size: str) -> int | None:
    if size == EXACT:
        return None
    if not size.isdecimal() or int(size) < 1:
        raise InputError(f"an entry takes a number of bytes, or is {EXACT!r}; got {size!r:.40}")
    return int(size)


class Sketches:
    """Sketches of the map of a scene without one image, for the gates that are asked for."""

    def __init__(self, maps: MapsWithout, query: str) -> None:
        self.maps, self.query = maps, query
        self._built: dict[int | None, Sketch] = {}
        self._calibrated: dict[tuple[int | None, bool], Sketch] = {}

    def of(self, variant: Variant) -> Sketch:
        """Calibrated with a background, or without one."""
        key = variant.size, variant.contrast
        if key not in self._calibrated:
            if variant.size not in self._built:
                model = self.maps.without(self.query, RAW)
                facts = facts_of(model, self.maps.releases.settings.kind, self.maps.scene.name)
                self._built[variant.size] = build_sketch(facts, self._observations, variant.size)
            sketch, foreign = self._built[variant.size], _foreign(self.maps.releases.settings.kind)
            known = foreign if variant.contrast else Foreign(foreign.corpus)
            self._calibrated[key] = replace(sketch, calibration=calibrate(sketch, self._observations(), known))
        return self._calibrated[key]

    def _observations(self) -> Iterator[Observations]:
        model = self.maps.without(self.query, RAW)
        return observations(model, self.maps.releases.raw, sorted(model.views))


@lru_cache(maxsize=2)
def _foreign(kind: str) -> Foreign:
    return foreign_to(kind)


@lru_cache(maxsize=2)
def far_away(kind: str, size: int) -> Database:
    """A background that takes nothing away: one entry, which no descriptor of a photograph is near to."""
    entry = np.zeros((1, size), np.float32)
    entry[0, 0] = 1
    return Database.from_array(entry, kind, 1)
