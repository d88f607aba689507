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


@command
def privatize(request: PrivatizeRequest, options: DefenseOptions, json: Json = False) -> None:
    """Hide descriptors so that they still match. Randomness is the operating system's, or that of the pool's secret.

    An input that cannot be read is reported and left out: exit code 1 if others worked, 2 if none did.

    Example: featveil privatize query.jpg --out query.veil --defense subset --epsilon 10

    Example: featveil privatize query.jpg --out query.veil --defense concealer --then lifting --dimension 4
    """
    with progress("privatizing") as report:
        result = privatize_files(request, options, report)
    summary = result.summary
    if summary is None:
        finish(result, {"features": 0, "bytes": 0}, json)
    else:
        finish(result, {"features": result.features, **_facts(summary)}, json, _text(summary, request.apart))


def _facts(summary: ReleaseSummary) -> dict[str, Any]:
    """For --json."""
    return {
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
    considered = f" of {summary.considered:,}: those that lie apart" if apart else ""
    lines = [
        f"defense    {_defense(summary)}",
        f"features   {summary.features:,}{considered}",
        f"guarantee  {_guarantee(summary, apart)}",
        f"leaks      {', '.join(summary.leaks)}",
        *([f"attacks    {summary.known_attacks} ({THREATS})"] if summary.known_attacks else []),
    ]
    return "\n".join(
        lines + ([] if summary.budget_left is None else [f"budget     {number(summary.budget_left)} left"])
    )


def _defense(summary: ReleaseSummary) -> str:
    spec = summary.defense
    shown = {key: value for key, value in spec.items() if value is not None and key not in _NOT_SHOWN}
    shown |= {key: str(spec[key])[:12] for key in ("network", "database", "codebook") if spec.get(key)}
    listed = ", ".join(f"{key.replace('_', ' ')} {value}" for key, value in shown.items())
    return f"{spec.get('name')}: {listed}" if listed else str(spec.get("name"))


def _guarantee(summary: ReleaseSummary, apart: bool) -> str:
    guarantee, confounders = summary.guarantee, summary.defense.get("confounders")
    if isinstance(confounders, int):
        if not apart:
            return "empirical, nothing is proved: overlapping features tell which of their descriptors is true"
        among = f"at best no attack is right more often than 1 in {confounders + 1}"
        return f"empirical, nothing is proved: {among}, as far as the pool resembles the photograph"
    if guarantee.epsilon is None or summary.image_epsilon is None or summary.total_epsilon is None:
        return "empirical: judged by known attacks only, nothing is proved"
    both = f", {number(summary.total_epsilon)} for all {summary.images}" if summary.images > 1 else ""
    unit = " and unit of distance" if guarantee.kind == "metric-dp" else ""
    unit += " between concealed ones" if unit and "network" in summary.defense else ""
    return (
        f"{guarantee.kind}: epsilon {number(guarantee.epsilon)} a descriptor{unit},"
        f" {number(summary.image_epsilon)} for an image of {summary.largest:,}{both} (they add up)"
    )
