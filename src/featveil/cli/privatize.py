"""featveil privatize: raw features or images -> private features, which may be sent."""

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from featveil.cli.console import Json, number, progress
from featveil.cli.extract import finish
from featveil.cli.options import command
from featveil.pipelines.privatize import PrivatizeRequest, privatize_files
from featveil.pipelines.privatize_parts.releases import THREATS, ReleaseSummary
from featveil.registry import defense_options

if TYPE_CHECKING:
    DefenseOptions = Any
else:
    DefenseOptions = defense_options()

_NOT_SHOWN = ("name", "random_directions", "epsilon")  # epsilon stands in the next line, with that of the image
_LIMITS = ("min_share", "min_features", "background")  # of a gate: what passed has met them
_AFTER_GATE = {
    "None": "of the others, the map's points that they may show are sent as they are",
    "identity": "the descriptors of the others are sent as they are",
    "lifting": "the descriptors of the others are hidden as far as known attacks tell",
    "hardened": "the descriptors of the others are hidden as far as known attacks tell",
}
_DIGESTS = ("network", "database", "codebook", "sketch")


@command
def privatize(request: PrivatizeRequest, options: DefenseOptions, json: Json = False) -> None:
    """Hide descriptors so that they still match. Randomness is the operating system's, or that of the pool's secret.

    An input that cannot be read is reported and left out: exit code 1 if others worked, 2 if none did. A gate sends
    nothing of a photograph of another place. That is reported, and is no failure: exit code 0 if another input shows
    the place, 3 if none does.

    Example: featveil privatize query.jpg --out query.veil --defense subset --epsilon 10

    Example: featveil privatize query.jpg --out query.veil --defense gate --sketch place.sketch

    Example: featveil privatize query.jpg --out query.veil --defense concealer --then lifting --dimension 4
    """
    with progress("privatizing") as report:
        result = privatize_files(request, options, report)
    summary = result.summary
    facts: dict[str, Any] = {"elsewhere": result.elsewhere, "features": result.features}
    if summary is None:
        finish(result, {**facts, "bytes": 0}, json, elsewhere=result.elsewhere)
    else:
        finish(result, {**facts, **_facts(summary)}, json, _text(summary, request.apart), result.elsewhere)


def _facts(summary: ReleaseSummary) -> dict[str, Any]:
    """For --json."""
    return {
        "considered": summary.considered,
        "bytes": summary.bytes,
        "kind": summary.kind,
        "defense": summary.defense,
        "guarantee": {
            **asdict(summary.guarantee),
            "image_epsilon": summary.image_epsilon,
            "total_epsilon": summary.total_epsilon,
        },
        "leaks": summary.leaks,
        "known_attacks": summary.known_attacks,
        "weaknesses": [{**asdict(weakness), "message": weakness.message} for weakness in summary.weaknesses],
        "budget_left": summary.budget_left,
    }


def _text(summary: ReleaseSummary, apart: bool) -> str:
    """For a person."""
    lines = [
        f"defense    {_defense(summary)}",
        f"features   {summary.features:,}{_considered(summary, apart)}, {summary.bytes:,} bytes",
        f"guarantee  {_guarantee(summary, apart)}",
        f"leaks      {', '.join(summary.leaks)}",
        *([f"attacks    {summary.known_attacks} ({THREATS})"] if summary.known_attacks else []),
    ]
    return "\n".join(
        lines + ([] if summary.budget_left is None else [f"budget     {number(summary.budget_left)} left"])
    )


def _considered(summary: ReleaseSummary, apart: bool) -> str:
    """Of how many features those are that were sent."""
    if summary.guarantee.kind == "map-known":
        share = 100 * summary.features / max(summary.considered, 1)
        which = "those that the map knows and that lie apart" if apart else "those that the map knows"
        return f" of {summary.considered:,} ({share:.1f} %): {which}"
    return f" of {summary.considered:,}: those that lie apart" if apart else ""


def _defense(summary: ReleaseSummary) -> str:
    spec = summary.defense
    left_out = (*_NOT_SHOWN, *_LIMITS) if spec.get("name") == "gate" else _NOT_SHOWN
    shown = {key: value for key, value in spec.items() if value is not None and key not in left_out}
    shown |= {key: str(spec[key])[:12] for key in _DIGESTS if spec.get(key)}
    listed = ", ".join(f"{key.replace('_', ' ')} {value}" for key, value in shown.items())
    return f"{spec.get('name')}: {listed}" if listed else str(spec.get("name"))


def _guarantee(summary: ReleaseSummary, apart: bool) -> str:
    guarantee, confounders = summary.guarantee, summary.defense.get("confounders")
    gated = guarantee.kind == "map-known"
    if isinstance(confounders, int) and not gated:
        if not apart:
            return "empirical, nothing is proved: overlapping features tell which of their descriptors is true"
        among = f"at best no attack is right more often than 1 in {confounders + 1}"
        return f"empirical, nothing is proved: {among}, as far as the pool resembles the photograph"
    if gated and guarantee.epsilon is None:
        return f"{_map_known(summary)}; {_AFTER_GATE[str(summary.defense.get('then'))]}"
    if guarantee.epsilon is None or summary.image_epsilon is None or summary.total_epsilon is None:
        return "empirical: judged by known attacks only, nothing is proved"
    both = f", {number(summary.total_epsilon)} for all {summary.images}" if summary.images > 1 else ""
    unit = " and unit of distance" if guarantee.kind == "metric-dp" else ""
    unit += " between concealed ones" if unit and "network" in summary.defense else ""
    claim = f"{_map_known(summary)}; which points the others show" if gated else guarantee.kind
    return (
        f"{claim}: epsilon {number(guarantee.epsilon)} a descriptor{unit},"
        f" {number(summary.image_epsilon)} for an image of {summary.largest:,}{both} (they add up)"
    )


def _map_known(summary: ReleaseSummary) -> str:
    """What a gate promises, in a sentence."""
    tau = f"{summary.guarantee.tau:g}"
    return f"map-known: features farther than {tau} from the sketch leave no trace, but for whether anything is sent"
