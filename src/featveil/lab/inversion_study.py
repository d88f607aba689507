"""What a study of inversion consists of: photographs, defenses, attacks that recover descriptors, and inverters."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from featveil.attacks import ATTACKS, Chance, Guess, Knowledge, Read
from featveil.audit.releases import Scheme
from featveil.audit.trials import Trial
from featveil.core import ConcealingNetwork, InputError, Points, PrivateFeatures
from featveil.core.records import Parameter
from featveil.databases import Database
from featveil.defenses import Identity
from featveil.extractors import CONTRAST, Sift
from featveil.lab import attacks, scenes
from featveil.lab.inversion_photos import ALL, Photograph
from featveil.pipelines.attack import scheme_name
from featveil.pipelines.invert import Painter, check_reads_raw

BLANK, DIRECT = "blank", "direct"
GEOMETRIES = ("positions", "full")
DEFAULT_ATTACKS = (
    *("read", "nearest", "database", "clustering", "lattice", "vertex", "oracle", "mean"),
    *("posterior", "posterior+database", "posterior-overlap+database", "unconceal"),
)


@dataclass(frozen=True)
class Settings(scenes.Settings):
    """What all records share: which `geometry` of keypoints is sent, and the `part` that photographs are of."""

    max_features: int = 1000
    geometry: str = "positions"
    part: str = ALL
    contrast_threshold: float = CONTRAST

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.geometry not in GEOMETRIES:
            raise InputError(f"geometry must be one of {', '.join(GEOMETRIES)}, got {self.geometry!r:.40}")
        Sift(contrast_threshold=self.contrast_threshold)  # which checks it

    def shared(self) -> dict[str, Parameter]:
        """These settings but the seed, as every record states them."""
        return {
            "kind": self.kind,
            "max_features": self.max_features,
            "geometry": self.geometry,
            "part": self.part,
            "contrast_threshold": self.contrast_threshold,
        }


@dataclass(frozen=True)
class Constant:
    """The average descriptor of its own database, whatever was sent: what an inverter makes of positions alone."""

    name: ClassVar[str] = "constant"
    summary: ClassVar[str] = "the average descriptor, whatever was sent"
    breaks: ClassVar[tuple[type, ...]] = (Points,)
    needs: ClassVar[tuple[str, ...]] = ("database",)
    uses: ClassVar[tuple[str, ...]] = ()
    alone: ClassVar[bool] = True

    def run(self, seen: PrivateFeatures, knowledge: Knowledge, rng: np.random.Generator) -> Guess:
        """The same guess for every feature."""
        if knowledge.database is None:
            raise InputError("the average is of a database: give one")
        return Guess.all_of(np.tile(knowledge.database.as_points.values.mean(axis=0), (len(seen), 1)))


@dataclass(frozen=True)
class Attempt:
    """One way to a picture: `trial` recovers descriptors for `painter`, which without one reads what is sent.

    Without both it is a grey picture.
    """

    name: str
    painter: Painter | None = None
    trial: Trial | None = None


@dataclass(frozen=True, eq=False)
class Study:
    """What is attacked, how it is defended, and what the attackers have.

    `painter` inverts raw descriptors, each of `direct` what one of the schemes sends. `left_out` are (scheme, attack).
    Raises InputError for an inverter that fits no scheme, two that fit one, and one that needs geometry that is not
    sent.
    """

    dataset: str
    photographs: Sequence[Photograph]
    schemes: Sequence[Scheme]
    trials: Sequence[Trial]
    painter: Painter
    database: Database
    direct: Sequence[Painter] = ()
    left_out: frozenset[tuple[str, str]] = frozenset()
    settings: Settings = field(default_factory=Settings)

    def __post_init__(self) -> None:
        for painter in (self.painter, *self.direct):
            if painter.needs_geometry and self.settings.geometry != "full":
                raise InputError(f"{painter.name} reads scale and orientation of keypoints: --geometry full sends them")
        check_reads_raw(self.painter, self.settings.kind)
        for painter in self.direct:
            if not any(self._fits(painter, scheme) for scheme in self.schemes):
                raise InputError(f"{painter.name} was trained on {_trained_on(painter)}, which no scheme here sends")
        for scheme in self.schemes:
            names = [attempt.name for attempt in self.attempts(scheme)]
            if len(set(names)) < len(names):
                raise InputError(f"two inverters of one architecture fit {scheme.name}: give one at a time")

    def attempts(self, scheme: Scheme) -> Iterator[Attempt]:
        """What is tried on a scheme; the floors, which are the same for all, on raw descriptors."""
        if isinstance(scheme.defense, Identity):
            yield Attempt(BLANK)
            yield Attempt(Chance.name, self.painter, Trial(Chance()))
            yield Attempt(Constant.name, self.painter, Trial(Constant()))
            yield Attempt(Read.name, self.painter, Trial(Read()))
            if self.painter.reads_geometry and self.settings.geometry != "full":
                shown = Trial(Read(), geometry=True)
                yield Attempt(shown.name, self.painter, shown)
        for trial in self.trials:
            if _faces(scheme, trial) and (scheme.name, trial.name) not in self.left_out:
                yield Attempt(trial.name, self.painter, trial)
        for painter in self.direct:
            if self._fits(painter, scheme):
                yield Attempt(_direct_name(painter), painter)

    def _fits(self, painter: Painter, scheme: Scheme) -> bool:
        """Whether it was trained on just what the scheme sends, with the same database or codebook."""
        kind = self.settings.kind if scheme.network is None else scheme.network.concealed_kind
        inverter = painter.inverter
        return inverter.encoding.kind == kind and inverter.card.get("defense") == scheme.defense.spec()

    def wanted(self) -> Iterator[tuple[Photograph, Scheme, Attempt]]:
        """Everything that is to be measured, in order."""
        for scheme in self.schemes:
            for photograph in self.photographs:
                for attempt in self.attempts(scheme):
                    yield photograph, scheme, attempt


def make_schemes(
    kind: str,
    strategies: Sequence[str] = ("sub-hybrid",),
    dimensions: Sequence[int] = (2, 4, 8, 16),
    random_dimensions: Sequence[int] = (2,),
    epsilons: Sequence[float] = (14.0, 10.0),
    subset_sizes: Sequence[int] = (2,),
    concealers: Sequence[ConcealingNetwork] = (),
    composed: bool = False,
) -> list[Scheme]:
    """No defense, random lifting, then as `attacks.make_schemes` makes them: strategies, word sets, concealers."""
    plain, *lifted = attacks.make_schemes(kind, ["random"], random_dimensions, (), (), ())
    others = attacks.make_schemes(kind, strategies, dimensions, epsilons, subset_sizes, (), concealers, composed)
    return list({scheme.name: scheme for scheme in (plain, *lifted, *others[1:])}.values())


def make_trials(names: Sequence[str] = DEFAULT_ATTACKS) -> list[Trial]:
    """Attacks, each as NAME or NAME+KNOWLEDGE with what its adversary has beyond what it needs.

    Raises InputError for unknown ones, for knowledge that an attack makes no use of, and for attacks that need another
    image of the place.
    """
    made: dict[str, Trial] = {}
    for text in names:
        name, *also = (part.strip() for part in text.split("+"))
        if name not in ATTACKS:
            raise InputError(f"unknown attack {name!r:.40}: use some of {', '.join(ATTACKS)}")
        method = ATTACKS[name]()
        unused = [one for one in also if one not in method.uses]
        if unused:
            raise InputError(f"{name} makes no use of {unused[0]!r:.40}: it can use {', '.join(method.uses) or 'none'}")
        if "reference" in (*method.needs, *also):
            raise InputError(f"{name} needs another image of the place, which this study has not: leave it out")
        if name != Chance.name:  # which is in every study
            trial = Trial(method, tuple(also))
            made[trial.name] = trial
    return list(made.values())


def _faces(scheme: Scheme, trial: Trial) -> bool:
    """Whether a trial is one on a private scheme; raw descriptors are read as they are, whatever attacks there are."""
    return not isinstance(scheme.defense, Identity) and scheme.faces(trial)


def _trained_on(painter: Painter) -> str:
    spec: Any = painter.inverter.card.get("defense")
    if not isinstance(spec, dict):
        return "what its card does not say"
    digests = [f"{name} {str(spec[name])[:16]}" for name in ("network", "database", "codebook") if spec.get(name)]
    return " with ".join([scheme_name(spec), *digests])


def _direct_name(painter: Painter) -> str:
    card = painter.inverter.card
    architecture = str(card.get("architecture", "unet"))[:16]
    told = [
        *([] if architecture == "unet" else [architecture]),
        *(["standardised"] if card.get("standardised") else []),
    ]
    return f"{DIRECT} ({', '.join(told)})" if told else DIRECT
