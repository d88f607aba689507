"""Attacks with what their adversaries may know beyond what they need: each combination is a trial."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from featveil.attacks import Attack
from featveil.core import InputError
from featveil.registry import ATTACKS

FLOOR = "chance"
# Every adversary has these: word sets cannot be scored without a codebook, nor numbers of points without a sketch.
PUBLIC = ("codebook", "sketch")


@dataclass(frozen=True)
class Trial:
    """One attack; `also` is what its adversary is given beyond what it needs.

    `geometry` stands for a release with scale and orientation, `lifted_reference` for a second view that is private.
    """

    method: Attack
    also: tuple[str, ...] = ()
    geometry: bool = False
    lifted_reference: bool = False

    @property
    def name(self) -> str:
        """Of the attack, with what it is given on top."""
        return " + ".join((self.method.name, *self.also, *(("geometry",) if self.geometry else ())))

    @property
    def knows(self) -> tuple[str, ...]:
        """The fields of Knowledge that its adversary is given."""
        return (*self.method.needs, *self.also)

    @property
    def adversary(self) -> str:
        """What it takes to be this adversary.

        "release": one release of the image, and what has nothing to do with it; "twice": a second release of the image;
        "place": another image of the place; "none": nothing (chance); "truth": what is hidden, so there is none.
        """
        if self.method.name == FLOOR:
            return "none"
        needed = (("truth", "truth"), ("reference", "place"), ("repeats", "twice"))
        return next((adversary for name, adversary in needed if name in self.knows), "release")


def trials_of(methods: Iterable[Attack], geometry: bool = False) -> list[Trial]:
    """Every attack with each thing that makes it stronger; with `geometry` also on releases that show it."""
    trials: list[Trial] = []
    for method in methods:
        trials.append(Trial(method, lifted_reference=method.name == "closest-pair"))
        trials += [Trial(method, (more,)) for more in method.uses if method.name != FLOOR and more not in PUBLIC]
        if geometry and "overlap" in method.name:
            trials.append(Trial(method, geometry=True))
    return trials


def make_trials(names: Sequence[str] | None = None) -> list[Trial]:
    """Trials of every attack (or those of `names`), on geometry too; raises InputError for unknown ones."""
    unknown = [name for name in names or () if name not in ATTACKS]
    if unknown:
        raise InputError(f"unknown attack {unknown[0]!r}: use some of {', '.join(ATTACKS)}")
    return trials_of((ATTACKS[name]() for name in dict.fromkeys(ATTACKS if names is None else names)), geometry=True)
