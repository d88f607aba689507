"""Rows of an audit -> plain sentences: what a scheme does, what it promises, what an attack is, the bottom line."""

from collections.abc import Sequence

from featveil.attacks import MEANINGS
from featveil.audit.rows import AuditRow, Spread, TrialRow
from featveil.metrics import NEAR
from featveil.registry import ATTACKS

_USEFUL = 0.5  # share of the raw matches that a scheme must keep to be named in the bottom line
_SMALL = 0.01
_CONCEALED = (
    "Each descriptor goes through a network that was trained against image reconstruction, and that everyone has."
)
_GATED = (
    "Only features that the sketch of a map knows are sent, each as the numbers of the points that it resembles; the"
    " others are not sent at all, nor where they were."
)
_GATED_THEN = {
    "identity": "Only features that the sketch of a map knows are sent, with their raw descriptors.",
    "subset": "Only features that the sketch of a map knows are sent, each as {k} numbers of its points, the right one"
    " among them or not, at random.",
}
_GEOMETRY = "scale and orientation of the keypoints"


def percent(spread: Spread | None, digits: int = 0) -> str:
    """A share as text, with the range where seeds differ; a dash where there is none.

    Small shares have one digit after the point at least: little is not nothing.
    """
    if spread is None:
        return "–"
    digits = max(digits, 1) if 0 < spread.mean < _SMALL else digits
    low, mean, high = (f"{100 * share:.{digits}f}" for share in (spread.low, spread.mean, spread.high))
    return f"{mean}%" if low == high else f"{mean}% ({low}–{high})"


def describe_scheme(row: AuditRow) -> str:
    """What is released instead of the descriptors, in one to three sentences."""
    k, m = row.subset_size, row.dimension
    words = "one word" if k == 1 else f"{k} words"
    sentences = {
        "identity": "Descriptors are sent as they are; nothing is hidden.",
        "lifting": f"Each descriptor is replaced by a subspace of dimension {m} through it (strategy {row.strategy}).",
        "hardened": f"Each descriptor is replaced by a subspace of dimension {m} that holds it and {row.confounders}"
        " real descriptors of a pool that only the device has.",
        "subset": f"Each descriptor is replaced by {words} of a public codebook, its own among them or not, at random.",
        "metric": f"Each descriptor is replaced by {words} of a public codebook, likelier by near ones than by others.",
        "naive": "Noise is added to every value of a descriptor.",
    }
    sender = row.then or row.defense
    description = [sentences.get(sender, f"Descriptors are hidden by the defense {sender}.")]
    if row.defense == "concealer":
        description = [_CONCEALED, *(description if row.then else [])]
    if row.defense == "gate":
        description = [_gated(row, description)]
    if row.keypoints == "apart":
        description.append("Only keypoints that do not overlap are released.")
    if row.geometry:
        description.append(f"The {_GEOMETRY} are released too.")
    return " ".join(description)


def describe_promise(row: AuditRow) -> str:
    """What is guaranteed; an epsilon of a descriptor never without that of an image."""
    if row.promise == "empirical":
        return "Guarantee: empirical. Nothing is proved; it is as good as the best attack known."
    if row.promise == "map-known":
        return _map_known(row)
    if row.image_epsilon is None:
        return "Guarantee: none."
    space = " between concealed descriptors" if row.defense == "concealer" else ""
    unit = f" per unit of distance{space}" if row.promise == "metric-dp" else ""
    if row.epsilon is None:
        return f"Guarantee: {row.promise}, proved: epsilon {row.image_epsilon:g}{unit} for an image."
    promise = (
        f"Guarantee: {row.promise}, proved: epsilon {row.epsilon:g}{unit} for a descriptor, which adds up to"
        f" {row.image_epsilon:,.0f}{unit} for an image of {row.features:,.0f} features."
    )
    if row.bound is not None:
        promise += " From the words of one feature alone, were all words equally common, nobody names the right one"
        promise += f" more often than {100 * row.bound:.1f}% of the time; overlapping features add theirs."
    return promise


def _gated(row: AuditRow, after: list[str]) -> str:
    """What passes a gate, and what becomes of it."""
    if row.then is None:
        return _GATED
    known = _GATED_THEN.get(row.then, "Only features that the sketch of a map knows are sent. ")
    return known.format(k=row.subset_size) if row.then in _GATED_THEN else known + after[0]


def _map_known(row: AuditRow) -> str:
    promise = (
        f"Guarantee: map-known, proved: features farther than {row.tau:g} from everything in the sketch leave no trace"
        " in the release."
    )
    if row.epsilon is None:
        return promise + " What passes tells which points of the map it resembles."
    return promise + (
        f" Of the others, epsilon {row.epsilon:g} for a descriptor, which adds up to {row.image_epsilon:,.0f} for an"
        f" image of {row.features:,.0f} features."
    )


def describe_attack(name: str) -> str:
    """What an attack does and what it has beyond its needs, from the name of its trial; empty for an unknown one."""
    first, *more = name.split(" + ")
    if first not in ATTACKS:
        return ""
    has = [_GEOMETRY if what == "geometry" else MEANINGS.get(what, what.replace("_", " ")) for what in more]
    summary: str = ATTACKS[first].summary
    return summary + (f"; it also has {' and '.join(has)}" if has else "")


def _private_line(measured: Sequence[tuple[AuditRow, TrialRow, Spread]]) -> str:
    """Which of these schemes leaks least of the private content; empty where none was pasted in."""
    pasted = [(row, one.private.near, kept) for row, _, kept in measured if (one := row.private_best) and one.private]
    if not pasted:
        return ""
    row, near, kept = min(pasted, key=lambda one: (one[1].mean, -one[2].mean))
    return (
        f" Of private content pasted in, {row.scheme} leaks least: the best attack recovers {percent(near)} of its"
        f" {row.private_raw:,} features, and {percent(kept)} of the matches are kept."
    )


def bottom_line(rows: Sequence[AuditRow]) -> str:
    """The rows of one dataset in a sentence: of the schemes that stay useful, the one that leaks least."""
    measured = [(row, row.best, row.utility_one) for row in rows if row.defense != "identity"]
    private = [(row, best, kept) for row, best, kept in measured if best and kept]
    if not private:
        return "No scheme that hides anything was both matched and attacked, so nothing can be said yet."
    useful = [one for one in private if one[2].mean >= _USEFUL]
    count = f"{len(private)} private scheme{'s' if len(private) > 1 else ''}"
    if useful:
        row, best, kept = min(useful, key=lambda one: (one[1].below_near.mean, -one[2].mean))
        line = (
            f"Of {count}, {len(useful)} keep{'s' if len(useful) == 1 else ''} at least half of the matches of raw"
            f" features; of these {row.scheme} leaks least:"
        )
    else:
        row, best, kept = max(private, key=lambda one: (one[2].mean, -one[1].below_near.mean))
        line = f"None of {count} keeps half of the matches of raw features; {row.scheme} keeps most:"
    chance = f" (a blind guess: {percent(row.chance.below_near)})" if row.chance else ""
    line += (
        f" it keeps {percent(kept)} of the matches, and the best of the attacks that were run gets within {NEAR:g} of"
        f" {percent(best.below_near)} of its features{chance}."
    )
    line += _private_line(useful or private)
    return line + (" The audit is not finished: this may change." if any(one.missing for one in rows) else "")
