"""What is sent of each victim under a scheme, what lies behind it, and what the adversary of a trial is given.

Each device of an audit lifts with confounders of its own, which it uses once and no adversary knows. Of a pair of
images the query and the map come from two devices, whose pools share nothing. The pools of different victims share
nothing either, where there are enough descriptors for that. Otherwise each victim is measured as if its devices were
the only ones, and what releases of others tell is not measured.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from featveil.attacks import Knowledge
from featveil.attacks.posterior import posterior_bound
from featveil.audit.rows import FAMILIES, SIDES
from featveil.audit.trials import Trial
from featveil.core import (
    ConcealingNetwork,
    Defense,
    Descriptors,
    Features,
    InputError,
    MapPoints,
    NotMappedError,
    Points,
    PrivateFeatures,
    Subspaces,
    WordSets,
)
from featveil.core.arrays import Float32, Float64
from featveil.core.features import sent_by
from featveil.core.records import Parameter
from featveil.core.seeding import generator, image_generator
from featveil.databases import Database
from featveil.datasets.private_content import Sides
from featveil.defenses import Concealer, Gate, Lifting, Metric, Subset, last_step, privatize
from featveil.defenses.selection import lying_apart
from featveil.extractors.images import Image
from featveil.gate import Sketch
from featveil.metrics import Truth, align
from featveil.pipelines.scoring import scheme_name
from featveil.stores.pool import Pool

_SENT: dict[str, type[Descriptors]] = {
    "lifting": Subspaces,
    "hardened": Subspaces,
    "subset": WordSets,
    "metric": WordSets,
}
_SPEC = ("lambda", "then", "strategy", "dimension", "confounders", "epsilon", "subset_size")
_GATE = ("tau", "contrast", "candidates", "support", "min_share", "min_features")
_DIGESTS = ("network", "database", "codebook")
_SIDES = 2  # devices of a pair: that of the query, and that of the map
_ROOM = 2  # times as many as are used up: confounders are chosen to resemble what they hide


@dataclass(frozen=True, eq=False)
class Pasted:
    """What was pasted into a photograph: names of the `content`, the `picture` with it, and whose the features are."""

    content: str
    picture: Image
    sides: Sides


@dataclass(frozen=True, eq=False)
class Victim:
    """Raw features of a photograph, and of a second view of what it shows.

    `homography` (3, 3) takes keypoints of the photograph to the second view, where it is known. `photograph` is its
    file, where there is one. `pasted` is private content in it, which the second view lacks. `seen_again` are features
    of one more image of the second view with the homography to it, where there is a map of both.
    """

    name: str
    features: Features
    second_view: Features
    homography: Float64 | None = None
    photograph: Path | None = None
    pasted: Pasted | None = None
    seen_again: tuple[Features, Float64] | None = None


@dataclass(frozen=True)
class Scheme:
    """A defense and its name in tables; `apart`: of overlapping keypoints few are sent; `geometry`: scale and angle."""

    name: str
    defense: Defense
    apart: bool = False
    geometry: bool = False

    @property
    def representation(self) -> type[Descriptors]:
        """What it sends."""
        if isinstance(self.defense, Gate) and isinstance(self.defense.then, Subset | None):
            return MapPoints
        return _SENT.get(sent_by(self.defense.spec()), Points)

    @property
    def mechanism(self) -> object:
        """What makes that: the defense after a concealer or a gate, where there is one."""
        last = last_step(self.defense)
        return last.then if isinstance(last, Gate) and last.then is not None else last

    @property
    def sketch(self) -> Sketch | None:
        """Of the map that a gate is before, once that is known."""
        return self.defense.sketch if isinstance(self.defense, Gate) else None

    def before(self, sketch: Sketch | None) -> "Scheme":
        """The same with its gate, if it has one, before the map of `sketch`."""
        if not isinstance(self.defense, Gate) or sketch is None:
            return self
        return replace(self, defense=replace(self.defense, sketch=sketch).for_kind(sketch.kind))

    @property
    def network(self) -> ConcealingNetwork | None:
        """What conceals its descriptors, if anything does."""
        return self.defense.network if isinstance(self.defense, Concealer) else None

    @property
    def codebook(self) -> Database | None:
        """Of the words it sends, if it sends any."""
        codebook = getattr(last_step(self.defense), "codebook", None)
        return codebook if isinstance(codebook, Database) else None

    @property
    def sides(self) -> tuple[str, ...]:
        """Which of a pair can be private: a map is raw where numbers of its points are sent."""
        return SIDES[:1] if self.representation is MapPoints else SIDES

    @property
    def private_pool(self) -> bool:
        """Whether confounders come from a pool that the device alone knows."""
        return self.defense.spec()["name"] == "hardened"

    def faces(self, trial: Trial) -> bool:
        """Whether the trial applies: to what is sent, and with a database where one is drawn from."""
        return issubclass(self.representation, trial.method.breaks) and self.withholds(trial) is None

    def withholds(self, trial: Trial) -> str | None:
        """Why no adversary of this scheme has what the trial is about, as a sentence; None if one may."""
        concealed, mechanism = isinstance(self.defense, Concealer), self.mechanism
        if "network" in trial.knows and not concealed:
            return "no network conceals these descriptors"
        if concealed and "database" in trial.also:
            return "whoever undoes a concealer has a database: it is there without being named"
        if concealed and "overlap" in trial.method.name:
            return "how concealed descriptors of overlapping keypoints predict each other is not known"
        if "lifting_database" not in trial.knows:
            return None
        if self.private_pool:
            return "the pool that confounders are drawn from is private to the device: no adversary has it"
        if isinstance(mechanism, Lifting) and mechanism.adversarial_directions == 0:
            return "this lifting draws from no database that could be known"
        return "nothing is drawn from a database here" if concealed and not isinstance(mechanism, Lifting) else None

    def parameters(self) -> dict[str, Parameter]:
        """What a record states of the defense."""
        spec = self.defense.spec()
        stated: dict[str, Parameter] = {"defense": spec["name"]}
        stated |= {name: spec[name] for name in _SPEC if name in spec}
        if isinstance(self.defense, Gate):
            stated |= {f"gate.{name}": spec[name] for name in _GATE}
        stated |= {f"{spec['name']}.{name}": value for name, value in self.own_parameters().items()}
        if self.sides != SIDES:
            stated["raw_map"] = True
        return stated | {name: str(spec[name])[:16] for name in _DIGESTS if spec.get(name)}

    def own_parameters(self) -> dict[str, Parameter]:
        """Of a defense of another package: what its spec says beside what defenses of this one say too."""
        spec = self.defense.spec()
        known = ("name", *_SPEC, *_DIGESTS)
        return {} if spec["name"] in FAMILIES else {name: spec[name] for name in spec if name not in known}

    def bound(self) -> dict[str, Parameter]:
        """How often any attack can name the right word of the subset mechanism, were all equally common."""
        mechanism = self.mechanism
        if not isinstance(mechanism, Subset) or mechanism.codebook is None:
            return {}
        words = len(mechanism.codebook)
        return {"bound": posterior_bound(mechanism.epsilon, np.full(words, 1 / words))}


def concealed_schemes(
    networks: Sequence[ConcealingNetwork], kind: str, after: Sequence[Lifting | Subset | Metric] = ()
) -> list[Scheme]:
    """Each network by itself, then each with every defense of `after` behind it.

    Raises InputError for a network of another kind, and for two that have the same lambda and so the same name.
    """
    schemes = [
        Scheme(scheme_name(defense.spec()), defense.for_kind(kind))
        for then in (None, *after)
        for defense in (Concealer(network, then) for network in networks)
    ]
    if len({scheme.name for scheme in schemes}) < len(schemes):
        raise InputError("two concealers have the same lambda: study them one after the other")
    return schemes


Equip = Callable[[Scheme, Victim, int], Defense]


class Releases:
    """What is sent of every victim under one scheme at a time, made when first needed.

    `equip` gives the defense of the device that makes a release, for schemes whose devices differ.
    """

    def __init__(
        self,
        victims: Sequence[Victim],
        database: Database,
        seed: int,
        equip: Equip = lambda scheme, victim, number: scheme.defense,
    ) -> None:
        self.victims, self.database, self.seed, self.equip = victims, database, seed, equip
        self._scheme = ""
        self._sent: dict[tuple[str, int], PrivateFeatures] = {}

    def release(self, victim: Victim, scheme: Scheme, number: int = 0, geometry: bool = False) -> PrivateFeatures:
        """A release of the victim's features; another `number` is another release, -1 one of its second view."""
        if scheme.name != self._scheme:
            self._scheme, self._sent = scheme.name, {}
        if (victim.name, number) not in self._sent:
            if number > 0:
                self.release(victim, scheme, number - 1)  # a device may remember what it has sent, in this order
            features = victim.second_view if number < 0 else victim.features
            rng = image_generator(self.seed, victim.name, number + 1, scheme.name)
            defense = self.equip(scheme, victim, number)
            try:
                sent = privatize(features, defense, keep_geometry=True, apart=scheme.apart, rng=rng)
            except NotMappedError:
                sent = _nothing(features, defense, rng)
            self._sent[victim.name, number] = sent
        sent = self._sent[victim.name, number]
        if geometry or sent.keypoints is None:
            return sent
        return replace(sent, keypoints=sent.keypoints.positions_only())

    def truth(self, victim: Victim, scheme: Scheme) -> Truth:
        """What the release hides: scale and orientation tell features at one position apart, whoever sees them."""
        return align(self.release(victim, scheme, geometry=True), victim.features, scheme.network)

    def knowledge(self, victim: Victim, scheme: Scheme, trial: Trial) -> Knowledge:
        """What the adversary of a trial has; the truth, for an oracle, is added where guesses are scored.

        Every adversary has a concealing network, and descriptors of its own to learn the way back from.
        """
        wanted, mechanism = trial.knows, scheme.mechanism
        others = [other for other in self.victims if other is not victim] if "others" in wanted else []
        reference: Features | PrivateFeatures = victim.second_view
        shown = trial.geometry or scheme.geometry
        if trial.lifted_reference:
            reference = self.release(victim, scheme, -1, scheme.geometry)
        return Knowledge(
            database=self.database if "database" in wanted or scheme.network is not None else None,
            lifting_database=mechanism.database
            if "lifting_database" in wanted and isinstance(mechanism, Lifting)
            else None,
            codebook=scheme.codebook,
            others=tuple(self.release(other, scheme, geometry=scheme.geometry) for other in others),
            repeats=(self.release(victim, scheme, 1, shown),) if "repeats" in wanted else (),
            reference=reference if "reference" in wanted else None,
            network=scheme.network,
            sketch=scheme.sketch,
        )


def _nothing(features: Features, defense: Defense, rng: np.random.Generator) -> PrivateFeatures:
    """What a gate sends of a photograph that it holds for one of another place, as a release without features."""
    if not isinstance(defense, Gate) or defense.sketch is None:
        raise NotMappedError("nothing is sent of this photograph")
    sketch, none, then = defense.sketch, np.empty(0, np.int64), defense.then
    descriptors: Descriptors = MapPoints(np.empty((0, 1), np.int64), sketch.digest, sketch.model, sketch.model_points)
    if then is not None and not isinstance(then, Subset):
        descriptors = then.privatize(features.descriptors.take(np.arange(1)), rng).take(none)
    keypoints = None if features.keypoints is None else features.keypoints.take(none)
    spec, guarantee = defense.spec(), defense.guarantee()
    return PrivateFeatures(descriptors, features.kind, spec, guarantee, keypoints, features.image_size)


class Devices:
    """Devices of one dataset under one scheme: two for each of `victims`, with parts of the descriptors `values`."""

    def __init__(self, values: Float32, kind: str, victims: Sequence[Victim], scheme: Scheme, seed: int) -> None:
        self.values, self.kind, self.scheme, self.seed = values, kind, scheme, seed
        self.names = [victim.name for victim in victims]
        self.needed = _needed(scheme, victims)
        self._pools: dict[tuple[str, int], Pool] = {}

    @property
    def strangers(self) -> bool:
        """Whether devices of different victims have pools of their own."""
        return len(self.values) // (_SIDES * len(self.names)) >= _ROOM * self.needed

    def check(self) -> None:
        """Raise InputError when the descriptors do not even serve the devices of one victim."""
        if len(self.values) // _SIDES < self.needed:
            raise InputError(
                f"the pools of {self.scheme.name} need {_SIDES * self.needed} descriptors, {len(self.values)} are"
                " there: name more photographs in [pool], or lower max_features"
            )

    def equip(self, scheme: Scheme, victim: Victim, number: int) -> Defense:
        """The defense of the device that makes release `number` of the victim, with its pool."""
        if not scheme.private_pool:
            return scheme.defense
        side = 1 if number < 0 else 0
        if (victim.name, side) not in self._pools:
            rng = generator(self.seed, victim.name, scheme.name, f"pool {side}")
            self._pools[victim.name, side] = Pool.in_memory(self._part(victim, side), self.kind, rng)
        defense: Any = scheme.defense
        equipped: Defense = replace(defense, pool=self._pools[victim.name, side])
        return equipped

    def _part(self, victim: Victim, side: int) -> Float32:
        order = generator(0, "pools").permutation(len(self.values))
        if not self.strangers:
            return self.values[order[side::_SIDES]]
        place = self.names.index(victim.name)
        return self.values[order[_SIDES * place + side :: _SIDES * len(self.names)]]


def _needed(scheme: Scheme, victims: Sequence[Victim]) -> int:
    """Descriptors that the busiest device uses up."""
    if not scheme.private_pool:
        return 0
    defense: Any = scheme.defense
    sides = [features for victim in victims for features in (victim.features, victim.second_view)]
    return int(defense.confounders) * max(len(lying_apart(one) if scheme.apart else one) for one in sides)
