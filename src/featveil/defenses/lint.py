"""Choices -> weaknesses: what is known to be broken about a release before it is made, and the attack that shows it.

Only what was measured counts (docs/claims.md, "Attacks"). No weakness found is no proof of privacy.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass

from featveil.core import Defense, PrivacyError
from featveil.core.kinds import is_face
from featveil.databases.entries import QUANTIZED_KINDS
from featveil.defenses.concealer import Concealer
from featveil.defenses.confounders import STRATEGIES
from featveil.defenses.gate import MIN_SHARE, Gate
from featveil.defenses.hardened import Hardened
from featveil.defenses.identity import Identity
from featveil.defenses.lifting import Lifting
from featveil.defenses.metric import Metric
from featveil.defenses.naive import Naive
from featveil.defenses.subset import Subset, subset_coin

_GRADIENTS = QUANTIZED_KINDS  # kinds with exact zeros, whose keypoints predict each other where they overlap
_SENDS_SUBSPACES = ("lifting", "hardened")
_ENOUGH_FACES = 16  # confounders of a face template, of those measured
_LARGEST_VERTEX = 16  # dimension up to which the vertex attack was measured
_LARGEST_EPSILON = 10.0
_LARGEST_METRIC = 28.0  # of those measured, the largest at which an attacker names few words (5 %)
_LARGEST_NAIVE = 700.0  # up to here, fewer than one in 10,000 descriptors (d = 128) are sent as they are
_WORDS_MEASURED = 16_384  # of the codebook that these were measured with
_LARGEST_IN_NEIGHBOURS = 6.0  # of those measured, the largest at which overlapping sets of words tell little (4 %)

_BOUND = "use the subset mechanism with an epsilon of at most 10"


@dataclass(frozen=True)
class Weakness:
    """A choice that is known to be broken: `attack` names the one that shows it (None: no attack is needed)."""

    choice: str
    attack: str | None
    finding: str
    advice: str

    @property
    def message(self) -> str:
        """One line: what was chosen, what becomes of it, what to do instead."""
        return f"{self.shown}; {self.advice}"

    @property
    def shown(self) -> str:
        """What was chosen and what becomes of it."""
        return f"{self.choice}: {f'the {self.attack} attack ' if self.attack else ''}{self.finding}"


_SEEDED = Weakness(
    "draws from a generator with a seed",
    None,
    "whoever has or guesses the seed repeats every draw",
    "let rng be, so that the operating system draws",
)
_NO_DEFENSE = Weakness("no defense", "read", "takes the descriptors as they are", _BOUND)
_WHOLE_NUMBERS = Weakness(
    "plain sift under lifting",
    "lattice",
    "finds at least 97 % of the features exactly (measured up to dimension 16), as they are whole numbers",
    "use rootsift, which stops this attack, not the others",
)
_ZEROS = Weakness(
    "descriptors with exact zeros under lifting",
    "vertex",
    "finds at least 88 % of the features up to dimension 8, at least 35 % at 16",
    "use hardened lifting with --apart, or the subset mechanism with an epsilon of at most 10",
)
_RANDOM = Weakness(
    "lifting without confounders",
    "mean",
    "finds 100 % of sift features at dimension 2 and 74 % at 16",
    "use a strategy that draws confounders, such as sub-hybrid, or rather the subset mechanism",
)
_CONCEALED = Weakness(
    "a concealer alone",
    "unconceal",
    "learns the way back through the network, which everyone has, as far as the network keeps what it is given",
    "let another defense follow (--then), such as the subset mechanism with an epsilon of at most 10",
)
_CONCEALED_AND_LIFTED = Weakness(
    "lifting behind a concealer",
    "unconceal",
    "searches through both at once and finds 64 to 77 % of sift features exactly (sub-hybrid, dimension 4)",
    "let the subset mechanism with an epsilon of at most 10 follow instead (--then subset)",
)
_RANDOM_FACES = Weakness(
    "face templates without confounders",
    "mean",
    "finds descriptors that pass for the person in 98 % of cases, at dimension 32 too",
    "hide them among faces that nobody else has (featveil pool create, hardened lifting)",
)
_KNOWN_FACES = Weakness(
    "face templates hidden among faces that others may have",
    "unmix",
    "takes those out, and what is left passes for the person in 98 % of cases at dimension 4, 85 % at 16, 41 % at 32",
    "hide them among faces that nobody else has (featveil pool create, hardened lifting)",
)
_OTHER_LABELS = Weakness(
    "confounders that all have other labels",
    None,
    "whoever learns from templates of its own reads the missing label off: gender in 82 % of cases at dimension 4, all"
    " at 16",
    "use balanced",
)
_FEW_FACES = Weakness(
    "face templates with few confounders",
    "mean",
    "finds descriptors that pass for the person in 85 % of cases with 2 confounders, 37 % with 8, 12 % with 16",
    "use 16 confounders or more, at dimension 32",
)
_UNCALIBRATED = Weakness(
    "a gate at a distance that was not calibrated",
    None,
    "nothing says how much passes of what has nothing to do with the map",
    "calibrate the sketch with foreign content, and use its own tau and contrast",
)
_GATED_RAW = Weakness(
    "raw descriptors after a gate",
    "read",
    "takes the descriptors of all features that passed as they are",
    "send the numbers of points (no --then), unless the server must match by itself",
)
_GATED_GEOMETRY = Weakness(
    "scale and orientation after a gate",
    None,
    "are sent of every feature that passed, and the pose needs neither",
    "leave them out",
)
_WORDS = Weakness(
    "overlapping keypoints with scale and orientation",
    "posterior-overlap",
    "names 32 % of the words right at epsilon 8 (sets of 4), where the bound of one feature is 15.4 %",
    "leave scale and orientation out, or send one word a descriptor",
)


def lint(
    kind: str, defense: Defense, *, keep_geometry: bool, apart: bool = False, seeded: bool = False
) -> list[Weakness]:
    """What is known to be broken about releasing descriptors of `kind` by `defense`; the first is the worst for SIFT.

    `apart` says that no two keypoints see the same pixels, or that none are sent; `seeded` that draws do not come from
    the operating system. A defense of which nothing is known has no weakness of its own. Behind a concealer no
    descriptor has zeros or whole numbers, and how overlapping ones predict each other is not known.
    """
    weaknesses = [_SEEDED] if seeded else []
    if isinstance(defense, Concealer):
        return weaknesses + _of_concealer(defense)
    if isinstance(defense, Gate):
        return weaknesses + _of_gate(kind, defense, keep_geometry, apart)
    if is_face(kind) and isinstance(defense, Lifting | Hardened):
        return weaknesses + _of_faces(defense)
    match defense:
        case Identity():
            weaknesses.append(_NO_DEFENSE)
        case Lifting():
            weaknesses += _of_lifting(kind, defense)
        case Subset() | Metric() | Naive():
            weaknesses += _of_epsilon(defense)
    if not apart and kind in _GRADIENTS:
        weaknesses += _of_overlap(defense, keep_geometry)
    return weaknesses


def refuse(weaknesses: Iterable[Weakness]) -> None:
    """Raise PrivacyError that lists the weaknesses, unless there is none."""
    listed = [weakness.message for weakness in dict.fromkeys(weaknesses)]
    if listed:
        numbered = [f"({number}) {message}" for number, message in enumerate(listed, 1)] if listed[1:] else listed
        raise PrivacyError(f"refused, as this is known to be broken: {' '.join(numbered)}")


def summarize_weaknesses(weaknesses: Iterable[Weakness]) -> str:
    """The first weakness and the names of the other attacks, in one line; empty when there is none."""
    different = list(dict.fromkeys(weaknesses))
    others = [weakness.attack or weakness.choice for weakness in different[1:]]
    named = f"; {len(others)} more: {', '.join(dict.fromkeys(others))}" if others else ""
    return f"{different[0].shown}{named}" if different else ""


def _of_lifting(kind: str, defense: Lifting) -> list[Weakness]:
    weaknesses = []
    if defense.dimension == 1:
        weaknesses.append(_line(kind, defense))
    if kind == "sift":
        weaknesses.append(_WHOLE_NUMBERS)
    if kind in _GRADIENTS and 1 < defense.dimension <= _LARGEST_VERTEX:
        weaknesses.append(_ZEROS)
    if defense.adversarial_directions == 0:
        return [*weaknesses, _RANDOM]
    source = "the built-in database, which everyone has" if defense.database is None else "a database"
    return [
        *weaknesses,
        Weakness(
            f"confounders taken as they are from {source}",
            "database",
            "recognises them and finds 88 % of sift and 51 % of rootsift features at dimension 4 (sub-hybrid)",
            "use hardened lifting, whose confounders nobody else has",
        ),
    ]


def _of_faces(defense: Lifting | Hardened) -> list[Weakness]:
    """Of face templates (docs/faces.md): what a guess is worth that passes for the person."""
    if isinstance(defense, Hardened):
        return [] if defense.confounders >= _ENOUGH_FACES else [_FEW_FACES]
    weaknesses = [_line("", defense)] if defense.dimension == 1 else []
    if defense.adversarial_directions == 0:
        return [*weaknesses, _RANDOM_FACES]
    if STRATEGIES[defense.strategy].other_labels and defense.adversarial_directions > 1:
        weaknesses.append(_OTHER_LABELS)
    return [*weaknesses, _KNOWN_FACES]


def _of_concealer(defense: Concealer) -> list[Weakness]:
    """Of the defense after it, what does not depend on how descriptors look."""
    match defense.then:
        case None:
            return [_CONCEALED]
        case Lifting() as lifting:
            return [*([_line("", lifting)] if lifting.dimension == 1 else []), _CONCEALED_AND_LIFTED]
        case Subset() | Metric() as words:
            return _of_epsilon(words)


def _of_gate(kind: str, defense: Gate, keep_geometry: bool, apart: bool) -> list[Weakness]:
    """Of what the map knows, what the defense after the gate shows; of the rest, what the gate lets pass."""
    weaknesses = []
    foreign = _foreign_share(defense)
    if foreign is None:
        weaknesses.append(_UNCALIBRATED)
    elif foreign > MIN_SHARE:  # photographs of other places count as mapped ones
        weaknesses.append(
            Weakness(
                f"tau {defense.spec()['tau']:g} of a gate",
                None,
                f"{100 * foreign:.0f} % of what has nothing to do with the map passes, by the sketch's own calibration",
                "state a smaller tau (--tau), or a smaller contrast (--contrast)",
            )
        )
    if keep_geometry:
        weaknesses.append(_GATED_GEOMETRY)
    match defense.then:
        case None:
            return weaknesses
        case Identity():
            return [_GATED_RAW, *weaknesses]
        case Subset() as subset:
            return weaknesses + _of_decoys(defense, subset)
        case Lifting() | Hardened() as after:
            return weaknesses + lint(kind, after, keep_geometry=keep_geometry, apart=apart)


def _foreign_share(gate: Gate) -> float | None:
    """The share of foreign descriptors that pass at most; None where nothing says it."""
    calibration = None if gate.sketch is None else gate.sketch.calibration
    if calibration is None or calibration.foreign is None:
        return None
    if gate.contrast is not None and calibration.contrast is not None and gate.contrast > calibration.contrast:
        return None
    return calibration.at(calibration.foreign, calibration.tau if gate.tau is None else gate.tau)


def _of_decoys(gate: Gate, subset: Subset) -> list[Weakness]:
    """Of the subset mechanism over the points of a sketch: with fewer of them to draw from, an epsilon hides less."""
    if gate.sketch is None:
        return []
    points = len(gate.sketch.known)
    largest = _LARGEST_EPSILON - math.log(_WORDS_MEASURED / points)
    if subset.epsilon <= largest:
        return []
    sent, share = subset.subset_size, float(subset_coin(subset.epsilon, points, subset.subset_size).probability)
    shown = (
        "the point that is sent is the true one" if sent == 1 else f"the true point is among the {sent} that are sent"
    )
    return [
        Weakness(
            f"epsilon {subset.epsilon:g} a descriptor among {points:,} points",
            None,
            f"{shown} in {100 * share:.0f} % of cases",
            f"use at most {math.floor(10 * largest) / 10:g}" if largest >= 0.1 else "send numbers as they are",
        )
    ]


def _line(kind: str, defense: Lifting) -> Weakness:
    """Of dimension 1; which attack picks the right one of the two points depends on what else there is to see."""
    blind = "database" if defense.adversarial_directions else "mean"
    return Weakness(
        "lifting to lines",
        "vertex" if kind in _GRADIENTS else blind,
        "has two points to choose from, where the line meets the unit sphere",
        "use dimension 2 or more",
    )


def _of_epsilon(defense: Subset | Metric | Naive) -> list[Weakness]:
    epsilon = f"{defense.epsilon:g}"
    if isinstance(defense, Naive):
        if defense.epsilon <= _LARGEST_NAIVE:
            return []
        sent = "takes descriptors as they are, of which so large an epsilon sends too many"
        return [Weakness(f"epsilon {epsilon} of naive", "read", sent, f"use at most {_LARGEST_NAIVE:g}")]
    if isinstance(defense, Metric):
        limit, named = _LARGEST_METRIC, "names 23 % of the words right at 49 and 62 % at 121"
    else:
        limit, named = _LARGEST_EPSILON, "names 57 % of the words right at 10 and 99 % at 14"
    if defense.epsilon <= limit:
        return []
    choice = f"epsilon {epsilon} {'a unit of distance' if isinstance(defense, Metric) else 'a descriptor'}"
    return [Weakness(choice, "posterior", f"{named} (one of 16,384 sent)", f"use at most {limit:g}")]


def _of_overlap(defense: Defense, keep_geometry: bool) -> list[Weakness]:
    """Of features that see the same pixels."""
    if isinstance(defense, Subset):
        return [_WORDS] if keep_geometry and _tells_neighbours(defense) else []
    if defense.spec().get("name") not in _SENDS_SUBSPACES:
        return []
    kept, alone = "58 to 91 %", "16 to 54 %"
    share = f" and finds {kept if keep_geometry else alone} of the features (sub-hybrid, dimension 2 to 16)"
    advice = "leave scale and orientation out, and send only" if keep_geometry else "send only"
    return [
        Weakness(
            f"overlapping keypoints{' with scale and orientation' if keep_geometry else ''}",
            "overlap",
            f"predicts them from each other{share if isinstance(defense, Lifting) else ''}",
            f"{advice} keypoints that do not overlap (--apart)",
        )
    ]


def _tells_neighbours(defense: Subset) -> bool:
    """Single words gain next to nothing from their neighbours (60 against 57 % at epsilon 10)."""
    return defense.subset_size > 1 and defense.epsilon > _LARGEST_IN_NEIGHBOURS
