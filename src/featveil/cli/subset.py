"""featveil subset: what the subset mechanism amounts to, and whether its sampler does what is claimed."""

import math
import re
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from featveil.cli.console import Json, printable, progress, show, table
from featveil.cli.extract import MaxFeatures, read_features
from featveil.core.errors import InputError, PrivacyError
from featveil.core.files import check_folder

if TYPE_CHECKING:
    from rich.console import RenderableType

    from featveil.core import Features
    from featveil.databases import Database
    from featveil.pipelines.subset_parts.planning import PlanRow, Quantization
    from featveil.pipelines.subset_parts.sampler_audit import AuditResult

app = typer.Typer(
    no_args_is_help=True,
    help="Choose epsilon and the number of words of the subset mechanism, and check the sampler that ships.",
)

Epsilon = Annotated[float, typer.Option(help="Privacy of one descriptor; those of an image add up.")]
Codebook = Annotated[Path | None, typer.Option(help="Codebook: a database file.", show_default="the built-in database")]

_DEFAULT_SIZES = "1,2,4,8,16,32"
_DEFAULT_FEATURES = 2048
_BESIDE = (-4, -2, 0, 2)  # epsilons that the picture shows beside the one that is asked for
_LARGEST_BITS = 4096
_LONG = 10**15  # more sets than can be drawn
_LIMITS = (
    "This is a check of the sampler with two words, not a proof: it can show a leak above the claim, but\n"
    "not that there is none. The proof is defenses/subset.md."
)


@app.command()
def plan(
    epsilon: Epsilon,
    codebook_size: Annotated[
        str | None, typer.Option(help="Words in the codebook: 256000, 256k or 2^1024.", show_default="of --codebook")
    ] = None,
    codebook: Codebook = None,
    subset_sizes: Annotated[
        str | None,
        typer.Option(help="Words to send for each descriptor, separated by commas.", show_default=_DEFAULT_SIZES),
    ] = None,
    features: Annotated[
        int | None,
        typer.Option(min=1, help="Features of an image.", show_default=f"{_DEFAULT_FEATURES}, or mean of --images"),
    ] = None,
    images: Annotated[
        list[Path] | None,
        typer.Option(metavar="IMAGE...", help="Images or raw .veil files to measure the quantisation error on."),
    ] = None,
    more_images: Annotated[list[Path] | None, typer.Argument(metavar="[IMAGE]...", hidden=True)] = None,
    picture: Annotated[Path | None, typer.Option(help="Draw the plan: .png.")] = None,
    kind: Annotated[str, typer.Option(help="Descriptor kind of the built-in codebook and of images.")] = "sift",
    max_features: MaxFeatures = 2048,
    json: Json = False,
) -> None:
    """What an epsilon amounts to for each number of words sent, and where it is weak in practice.

    Nothing is drawn or sent. With --images the distance of their descriptors from the words is measured too.

    Example: featveil subset plan --epsilon 10 --codebook-size 256k
    """
    from featveil.defenses.subset import check_epsilon
    from featveil.pipelines.subset_parts.planning import measure_quantization
    from featveil.pipelines.subset_parts.planning import plan as make_plan

    check_epsilon(epsilon)
    sources = [*(images or []), *(more_images or [])]
    _check_picture(picture, sources)
    measured = None
    if codebook_size is None:
        words = _codebook(codebook, kind)
        size = len(words)
        sizes = _sizes(subset_sizes, size)
        if sources:
            measured = measure_quantization([_raw(path, words.kind, max_features) for path in sources], words)
    elif codebook is not None or sources:
        raise InputError("--codebook-size stands for a codebook: leave out --codebook and --images, or it")
    else:
        size = parse_size(codebook_size)
        sizes = _sizes(subset_sizes, size)
    features = features or (measured.features_per_image if measured else _DEFAULT_FEATURES)
    made = _Plan(make_plan(epsilon, size, sizes, features), size, features, measured, picture)
    if picture is not None:
        made.draw(picture)
    show(made.facts(), json, made.text())


@app.command()
def audit(
    epsilon: Epsilon,
    subset_size: Annotated[int, typer.Option(help="Words to send for each descriptor.")] = 2,
    codebook: Codebook = None,
    trials: Annotated[int, typer.Option(min=2, help="Sets to draw for each of two words.")] = 1_000_000,
    features: Annotated[int, typer.Option(min=1, help="Features of an image.")] = _DEFAULT_FEATURES,
    json: Json = False,
) -> None:
    """Draw sets with the sampler that ships and show how much they leak at least: exit code 1 above the claim.

    Example: featveil subset audit --epsilon 4 --trials 1000000
    """
    from featveil.defenses.subset import Subset
    from featveil.pipelines.subset_parts.sampler_audit import audit as run_audit

    mechanism = Subset(epsilon, subset_size, _codebook(codebook, "sift"))
    with progress("drawing") as report:
        result = run_audit(mechanism, trials, report=report)
    facts = {name: _finite(value) for name, value in asdict(result).items()}
    facts |= {
        "claimed_per_image": result.claimed * features,
        "bound_per_image": result.bound * features,
        "features": features,
        "holds": result.holds,
        "resolved": result.resolved,
    }
    show(facts, json, _audit_text(result, subset_size, features))
    if not result.holds:
        raise typer.Exit(1)


def parse_size(text: str) -> int:
    """A codebook size as people write it: 256000, 256k (256,000) or 2^1024; raises InputError for anything else."""
    found = re.fullmatch(r"(\d{1,1300})(?:(k)|\^(\d{1,6}))?", text.strip().lower())
    if found is None:
        raise InputError(f"--codebook-size must look like 256000, 256k or 2^1024, got {text!r:.80}")
    base, thousands, exponent = int(found[1]), found[2], int(found[3] or 1)
    if (base.bit_length() - 1) * exponent > _LARGEST_BITS:  # before a power that would fill the memory
        raise InputError(f"--codebook-size must be at most 2^{_LARGEST_BITS}, got {text!r:.80}")
    return int(base**exponent) * (1000 if thousands else 1)


def _codebook(path: Path | None, kind: str) -> "Database":
    from featveil.databases import builtin, load_database

    return builtin(kind) if path is None else load_database(path)


def _raw(path: Path, kind: str, max_features: int) -> "Features":
    from featveil.core import Features

    features = read_features(path, kind, max_features)
    if not isinstance(features, Features):
        raise PrivacyError(f"{path} is private already: the quantisation error is measured on raw features")
    return features


def _sizes(text: str | None, codebook_size: int) -> list[int]:
    """Numbers of words to send; of the default ones those that the codebook has."""
    words = [word.strip() for word in (text or _DEFAULT_SIZES).split(",") if word.strip()]
    if not words or not all(re.fullmatch(r"\d{1,9}", word) for word in words):
        raise InputError(f"--subset-sizes must be whole numbers separated by commas, got {text!r:.80}")
    sizes = sorted({int(word) for word in words})
    return sizes if text is not None else [size for size in sizes if size == 1 or size < codebook_size]


def _check_picture(picture: Path | None, sources: list[Path]) -> None:
    """Raise InputError, before any work, when the picture has a wrong name or would replace an input."""
    if picture is None:
        return
    if picture.suffix.lower() != ".png":
        raise InputError(f"{picture} must end in .png")
    if picture.resolve() in {path.resolve() for path in sources}:
        raise InputError(f"{picture} is an input: choose another output")
    check_folder(picture.parent)


@dataclass(frozen=True)
class _Plan:
    """A plan, and what it is for."""

    rows: "list[PlanRow]"
    codebook_size: int
    features: int
    measured: "Quantization | None"
    picture: Path | None

    def draw(self, path: Path) -> None:
        """The picture, with some epsilons beside the one that was asked for."""
        from featveil.defenses.subset import LARGEST_EPSILON
        from featveil.pipelines.subset_parts.planning import plan as make_plan
        from featveil.pipelines.subset_parts.planning import rounded
        from featveil.plotting.plan import draw_plan

        chosen, sizes = self.rows[0].epsilon, [row.subset_size for row in self.rows]
        near = {chosen} | {chosen + step for step in _BESIDE if 0 < chosen + step <= LARGEST_EPSILON}
        curves = {epsilon: make_plan(epsilon, self.codebook_size, sizes, self.features) for epsilon in sorted(near)}
        title = f"Subset mechanism, {rounded(self.codebook_size)} words, images of {self.features:,} features"
        draw_plan(curves, chosen, path, None if self.measured is None else self.measured.distances, title)

    def facts(self) -> dict[str, Any]:
        """For --json."""
        first, measured = self.rows[0], self.measured
        return {
            "epsilon": _finite(first.epsilon),
            "epsilon_per_image": _finite(first.epsilon_per_image),
            "features": self.features,
            "codebook_size": self.codebook_size,
            "chance": 1 / self.codebook_size,
            "rows": [{name: _finite(value) for name, value in asdict(row).items()} for row in self.rows],
            "quantization": None if measured is None else {"images": measured.images, **measured.summary()},
            "picture": None if self.picture is None else str(self.picture),
        }

    def text(self) -> "RenderableType":
        """For a person."""
        from featveil.pipelines.subset_parts.planning import explain, percent, rounded

        headings = ("k", "true word sent", "best guess", "right at best", "their share", "verdict")
        rows: list[tuple[object, ...]] = [
            (
                row.subset_size,
                percent(row.sent),
                percent(row.best_guess),
                f"{row.right_candidates:,.0f}" if row.right_candidates >= 10 else f"{row.right_candidates:.2g}",
                percent(row.vocabulary_inliers) if row.right_candidates >= 1 else "-",
                row.level,
            )
            for row in self.rows
        ]
        made = table(*headings, rows=rows)
        made.columns[-1].justify = "left"
        first, words = self.rows[0], f"codebook of {rounded(self.codebook_size)} words"
        heading = f"epsilon {_epsilons(first.epsilon, self.features)} of {self.features:,} features; {words}"
        if math.isinf(first.epsilon):
            heading = f"infinite epsilon, per descriptor and per image: quantisation only, no guarantee; {words}"
        below = ["", *explain(self.rows, self.codebook_size, self.features)]
        below += [] if self.measured is None else ["", *self.measured.explain()]
        return _page([heading, ""], made, [*below, *(["", f"wrote {self.picture}"] if self.picture else [])])


def _audit_text(result: "AuditResult", subset_size: int, features: int) -> "RenderableType":
    from featveil.pipelines.subset_parts.sampler_audit import RESOLVED

    events: list[tuple[object, ...]] = [
        (
            *(event.name, event.direction, f"{event.seen_a:,}", f"{event.seen_b:,}", f"{event.trials:,}"),
            *(f"{_down(event.bound):.2f}", f"{_down(event.bound) * features:,.0f}"),
        )
        for event in result.events
    ]
    made = table("event", "ratio", "with A", "with B", "sets", "leak at least", "per image", rows=events)
    heading = (
        f"A is word {result.pair[0]}, B is word {result.pair[1]}; {result.trials:,} sets of {subset_size} for each"
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
    return _page([heading, ""], made, ["", *lines, _LIMITS])


def _page(above: list[str], made: "RenderableType", below: list[str]) -> "RenderableType":
    from rich.console import Group
    from rich.text import Text

    return Group(Text(printable("\n".join(above))), made, Text(printable("\n".join(below))))


def _epsilons(epsilon: float, features: int) -> str:
    """A per-descriptor epsilon with what it adds up to: never one without the other."""
    image = epsilon * features
    return f"{epsilon:.6g} per descriptor, {f'{image:,.0f}' if image >= 100 else f'{image:.4g}'} per image"


def _down(bound: float) -> float:
    """A lower bound is not rounded up."""
    return math.floor(100 * bound) / 100


def _finite(value: Any) -> Any:
    """JSON has no infinity."""
    return None if isinstance(value, float) and math.isinf(value) else value
