"""featveil subset: what the subset mechanism amounts to, and whether its sampler does what is claimed."""

import math
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from featveil.cli.console import Json, printable, progress, show, table
from featveil.cli.options import command
from featveil.pipelines.subset import (
    SubsetAudit,
    SubsetAuditRequest,
    SubsetPlan,
    SubsetPlanRequest,
    audit_sampler,
    plan_subset,
)

if TYPE_CHECKING:
    from rich.console import RenderableType

app = typer.Typer(
    no_args_is_help=True,
    help="Choose epsilon and the number of words of the subset mechanism, and check the sampler that ships.",
)

_LONG = 10**15  # more sets than can be drawn
_LIMITS = (
    "This is a check of the sampler with two words, not a proof: it can show a leak above the claim, but\n"
    "not that there is none. The proof is defenses/subset.md."
)


@app.command()
@command
def plan(
    request: SubsetPlanRequest,
    more_images: Annotated[list[Path] | None, typer.Argument(metavar="[IMAGE]...", hidden=True)] = None,
    json: Json = False,
) -> None:
    """What an epsilon amounts to for each number of words sent, and where it is weak in practice.

    Nothing is drawn or sent. With --images the distance of their descriptors from the words is measured too.

    Example: featveil subset plan --epsilon 10 --codebook-size 256k
    """
    planned = plan_subset(replace(request, images=(*request.images, *(more_images or []))))
    show(planned.facts(), json, _plan_text(planned))


@app.command()
@command
def audit(request: SubsetAuditRequest, json: Json = False) -> None:
    """Draw sets with the sampler that ships and show how much they leak at least: exit code 1 above the claim.

    Example: featveil subset audit --epsilon 4 --trials 1000000
    """
    with progress("drawing") as report:
        audited = audit_sampler(request, report)
    show(audited.facts(), json, _audit_text(audited))
    if not audited.result.holds:
        raise typer.Exit(1)


def _plan_text(planned: SubsetPlan) -> "RenderableType":
    from featveil.pipelines.subset_parts.planning import explain, percent, rounded

    headings = ("k", "true word sent", "best guess", "right at best", "their share", "verdict")
    cells: list[tuple[object, ...]] = [
        (
            row.subset_size,
            percent(row.sent),
            percent(row.best_guess),
            f"{row.right_candidates:,.0f}" if row.right_candidates >= 10 else f"{row.right_candidates:.2g}",
            percent(row.vocabulary_inliers) if row.right_candidates >= 1 else "-",
            row.level,
        )
        for row in planned.rows
    ]
    rows = table(*headings, rows=cells)
    rows.columns[-1].justify = "left"
    first, words = planned.rows[0], f"codebook of {rounded(planned.codebook_size)} words"
    heading = f"epsilon {_epsilons(first.epsilon, planned.features)} of {planned.features:,} features; {words}"
    if math.isinf(first.epsilon):
        heading = f"infinite epsilon, per descriptor and per image: quantisation only, no guarantee; {words}"
    below = ["", *explain(planned.rows, planned.codebook_size, planned.features)]
    below += [] if planned.measured is None else ["", *planned.measured.explain()]
    return _page([heading, ""], rows, [*below, *(["", f"wrote {planned.picture}"] if planned.picture else [])])


def _audit_text(audited: SubsetAudit) -> "RenderableType":
    from featveil.pipelines.subset_parts.sampler_audit import RESOLVED

    result, features = audited.result, audited.features
    cells: list[tuple[object, ...]] = [
        (
            *(event.name, event.direction, f"{event.seen_a:,}", f"{event.seen_b:,}", f"{event.trials:,}"),
            *(f"{_down(event.bound):.2f}", f"{_down(event.bound) * features:,.0f}"),
        )
        for event in result.events
    ]
    events = table("event", "ratio", "with A", "with B", "sets", "leak at least", "per image", rows=cells)
    heading = (
        f"A is word {result.pair[0]}, B is word {result.pair[1]};"
        f" {result.trials:,} sets of {audited.subset_size} for each"
    )
    lines = [
        f"The sampler leaks at least {_epsilons(_down(result.bound), features)} of {features:,} features"
        f" ({100 * result.confidence:g} % confidence);",
        f"{_epsilons(result.claimed, features)}, is claimed.",
        f"With so many sets a correct sampler shows about {_epsilons(_down(result.attainable), features)}.",
        f"The coin that runs has epsilon {_epsilons(result.effective, features)}, after rounding.",
    ]
    if not result.holds:
        lines.append("It leaks more than it claims: do not use it, and report this.")
    if not result.resolved:
        needed = f"use --trials {result.trials_needed}, or" if result.trials_needed < _LONG else "use"
        lines.append(
            f"Too few sets for this epsilon: the rarer event is expected {result.expected_rare:.2g} times, {RESOLVED}"
            f" are needed:\n  {needed} a smaller epsilon or codebook."
        )
    return _page([heading, ""], events, ["", *lines, _LIMITS])


def _page(above: list[str], table: "RenderableType", below: list[str]) -> "RenderableType":
    from rich.console import Group
    from rich.text import Text

    return Group(Text(printable("\n".join(above))), table, Text(printable("\n".join(below))))


def _epsilons(epsilon: float, features: int) -> str:
    """A per-descriptor epsilon with what it adds up to: never one without the other."""
    image = epsilon * features
    return f"{epsilon:.6g} per descriptor, {f'{image:,.0f}' if image >= 100 else f'{image:.4g}'} per image"


def _down(bound: float) -> float:
    """A lower bound is not rounded up."""
    return math.floor(100 * bound) / 100
