"""What the subset mechanism amounts to, before anything is sent, and whether its sampler does what is claimed."""

import math
import re
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from featveil.core.errors import InputError, PrivacyError
from featveil.core.files import check_folder
from featveil.core.options import option
from featveil.core.resuming import Report, silent
from featveil.pipelines.sources import read_features

if TYPE_CHECKING:
    from featveil.core import Features
    from featveil.databases import Database
    from featveil.pipelines.subset_parts.planning import PlanRow, Quantization
    from featveil.pipelines.subset_parts.sampler_audit import AuditResult

_SIZES = (1, 2, 4, 8, 16, 32)
_FEATURES = 2048
_BESIDE = (-4, -2, 0, 2)  # epsilons that the picture shows beside the one that is asked for
_LARGEST_BITS = 4096

_CODEBOOK: dict[str, Any] = {"help": "Codebook: a database file.", "shown": "the built-in database"}
_EPSILON: dict[str, Any] = {"help": "Privacy of one descriptor; those of an image add up."}


@dataclass(frozen=True)
class SubsetPlanRequest:
    """An epsilon and numbers of words to send, and what the words and the images are."""

    epsilon: float = option(**_EPSILON)
    codebook_size: str | None = option(
        None, help="Words in the codebook: 256000, 256k or 2^1024.", shown="of --codebook"
    )
    codebook: Path | None = option(None, **_CODEBOOK)
    subset_sizes: tuple[int, ...] | None = option(
        None,
        help="Words to send for each descriptor, separated by commas.",
        shown=",".join(map(str, _SIZES)),
    )
    features: int | None = option(
        None, help="Features of an image.", shown=f"{_FEATURES}, or mean of --images", minimum=1
    )
    images: tuple[Path, ...] = option(
        (),
        help="Images or raw .veil files to measure the quantisation error on.",
        metavar="IMAGE...",
        repeated=True,
    )
    picture: Path | None = option(None, help="Draw the plan: .png.")
    kind: str = option("sift", help="Descriptor kind of the built-in codebook and of images.")
    max_features: int = option(2048, help="Strongest features to keep of each image.", minimum=1)


@dataclass(frozen=True)
class SubsetAuditRequest:
    """The mechanism whose sampler is checked, and how thoroughly."""

    epsilon: float = option(**_EPSILON)
    subset_size: int = option(2, help="Words to send for each descriptor.")
    codebook: Path | None = option(None, **_CODEBOOK)
    trials: int = option(1_000_000, help="Sets to draw for each of two words.", minimum=2)
    features: int = option(_FEATURES, help="Features of an image.", minimum=1)


@dataclass(frozen=True)
class SubsetPlan:
    """What each number of words amounts to, for images of so many features, and what was measured on images."""

    rows: "tuple[PlanRow, ...]"
    codebook_size: int
    features: int
    measured: "Quantization | None" = None
    picture: Path | None = None

    def facts(self) -> dict[str, Any]:
        """As plain values."""
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


@dataclass(frozen=True)
class SubsetAudit:
    """What draws of the sampler have shown, and what it amounts to for images of so many features."""

    result: "AuditResult"
    subset_size: int
    features: int

    def facts(self) -> dict[str, Any]:
        """As plain values."""
        result = self.result
        return {name: _finite(value) for name, value in asdict(result).items()} | {
            "claimed_per_image": result.claimed * self.features,
            "bound_per_image": result.bound * self.features,
            "features": self.features,
            "holds": result.holds,
            "resolved": result.resolved,
        }


def plan_subset(request: SubsetPlanRequest) -> SubsetPlan:
    """What an epsilon amounts to for each number of words sent. Nothing is drawn or sent.

    With images the distance of their descriptors from the words is measured too. Raises InputError for a request that
    cannot be carried out, PrivacyError for images that are private features already.
    """
    from featveil.defenses.subset import check_epsilon
    from featveil.pipelines.subset_parts.planning import measure_quantization, plan

    check_epsilon(request.epsilon)
    _check_picture(request.picture, request.images)
    measured = None
    if request.codebook_size is None:
        words = _codebook(request.codebook, request.kind)
        size = len(words)
        if request.images:
            images = [_raw(path, words.kind, request.max_features) for path in request.images]
            measured = measure_quantization(images, words)
    elif request.codebook is not None or request.images:
        raise InputError("--codebook-size stands for a codebook: leave out --codebook and --images, or it")
    else:
        size = parse_size(request.codebook_size)
    sizes = _sizes(request.subset_sizes, size)
    features = request.features or (measured.features_per_image if measured else _FEATURES)
    rows = tuple(plan(request.epsilon, size, sizes, features))
    planned = SubsetPlan(rows, size, features, measured, request.picture)
    if request.picture is not None:
        _draw(planned, request.picture)
    return planned


def audit_sampler(request: SubsetAuditRequest, report: Report = silent) -> SubsetAudit:
    """Draw sets with the sampler that ships and bound from below how much they leak."""
    from featveil.defenses.subset import Subset
    from featveil.pipelines.subset_parts.sampler_audit import audit

    mechanism = Subset(request.epsilon, request.subset_size, _codebook(request.codebook, "sift"))
    return SubsetAudit(audit(mechanism, request.trials, report=report), request.subset_size, request.features)


def parse_size(text: str) -> int:
    """A codebook size as people write it: 256000, 256k (256,000) or 2^1024; raises InputError for anything else."""
    fit = re.fullmatch(r"(\d{1,1300})(?:(k)|\^(\d{1,6}))?", text.strip().lower())
    if fit is None:
        raise InputError(f"--codebook-size must look like 256000, 256k or 2^1024, got {text!r:.80}")
    base, thousands, exponent = int(fit[1]), fit[2], int(fit[3] or 1)
    if (base.bit_length() - 1) * exponent > _LARGEST_BITS:  # before a power that would fill the memory
        raise InputError(f"--codebook-size must be at most 2^{_LARGEST_BITS}, got {text!r:.80}")
    return int(base**exponent) * (1000 if thousands else 1)


def _draw(planned: SubsetPlan, path: Path) -> None:
    """The picture, with some epsilons beside the one that was asked for."""
    from featveil.defenses.subset import LARGEST_EPSILON
    from featveil.pipelines.subset_parts.planning import plan, rounded
    from featveil.plotting.plan import draw_plan

    chosen, sizes = planned.rows[0].epsilon, [row.subset_size for row in planned.rows]
    near = {chosen} | {chosen + step for step in _BESIDE if 0 < chosen + step <= LARGEST_EPSILON}
    curves = {epsilon: plan(epsilon, planned.codebook_size, sizes, planned.features) for epsilon in sorted(near)}
    title = f"Subset mechanism, {rounded(planned.codebook_size)} words, images of {planned.features:,} features"
    draw_plan(curves, chosen, path, None if planned.measured is None else planned.measured.distances, title)


def _codebook(path: Path | None, kind: str) -> "Database":
    from featveil.databases import builtin, load_database

    return builtin(kind) if path is None else load_database(path)


def _raw(path: Path, kind: str, max_features: int) -> "Features":
    from featveil.core import Features

    features = read_features(path, kind, max_features)
    if not isinstance(features, Features):
        raise PrivacyError(f"{path} is private already: the quantisation error is measured on raw features")
    return features


def _sizes(given: tuple[int, ...] | None, codebook_size: int) -> list[int]:
    """Numbers of words to send; of the default ones those that the codebook has."""
    if given is not None:
        return sorted(set(given))
    return [size for size in _SIZES if size == 1 or size < codebook_size]


def _check_picture(picture: Path | None, sources: tuple[Path, ...]) -> None:
    """Raise InputError, before any work, when the picture has a wrong name or would replace an input."""
    if picture is None:
        return
    if picture.suffix.lower() != ".png":
        raise InputError(f"{picture} must end in .png")
    if picture.resolve() in {path.resolve() for path in sources}:
        raise InputError(f"{picture} is an input: choose another output")
    check_folder(picture.parent)


def _finite(value: Any) -> Any:
    """JSON has no infinity."""
    return None if isinstance(value, float) and math.isinf(value) else value
