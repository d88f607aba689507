"""Matching patches from one's own photographs: what sets have in common, and how their pairs are drawn.

Points are tracked through known views of single photographs (`patch_photos`), or, better, through photographs of one
place by their COLMAP model (`patch_models`). The folder is in the layout of PhotoTour.
"""

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np

from featveil.core import InputError, Keypoints
from featveil.core.arrays import Integers
from featveil.core.seeding import check_seed, generator
from featveil.datasets import PatchPairs
from featveil.datasets.phototour_writing import writing_phototour
from featveil.extractors.images import Image
from featveil.extractors.patch_cutting import Patches, cut_patches
from featveil.pipelines.patches_parts.patch_tracks import jittered

Part = Literal["all", "train", "test"]
Block = tuple[Patches, Integers]  # patches, and which point each shows

_ROUNDS = 20


@dataclass(frozen=True)
class PatchRecipe:
    """How a set is made: `views` of each photograph beside itself, at most `max_features` points of each.

    `pairs` are half matching and half not. `part` keeps the photographs (of a model: the points) of one part, of which
    "test" has about `test_share`; the seed decides which. Photographs are scaled down to `longest_side` pixels.

    Keypoints that are found again are found precisely, and such patches are too easy to tell apart. So every patch is
    moved, scaled and turned by up to `jitter` of what PhotoTour lets two matching patches differ by: at 0.5, two
    patches of a point differ by up to that. 0 leaves the detector's own errors.
    """

    views: int = 4
    max_features: int = 300
    pairs: int = 20_000
    part: Part = "all"
    test_share: float = 0.2
    longest_side: int = 1024
    jitter: float = 0.5
    seed: int = 0

    def __post_init__(self) -> None:
        check_seed(self.seed)
        for name in ("views", "max_features", "longest_side"):
            if type(getattr(self, name)) is not int or getattr(self, name) < 1:
                raise InputError(f"{name} must be a whole number of at least 1, got {getattr(self, name)!r}")
        if type(self.pairs) is not int or self.pairs < 2 or self.pairs % 2:
            raise InputError(f"pairs must be an even number of at least 2, got {self.pairs!r}")
        if self.part not in get_args(Part):
            raise InputError(f"part must be one of {', '.join(get_args(Part))}, got {self.part!r}")
        if not 0 < self.test_share < 1:
            raise InputError(f"test_share must lie between 0 and 1, got {self.test_share!r}")
        if not 0 <= self.jitter <= 2:
            raise InputError(f"jitter must be 0 to 2, got {self.jitter!r}")

    def cut(self, image: Image, keypoints: Keypoints, *names: str) -> Patches:
        """The patches (n, 64, 64) at keypoints of an image, with the jitter that `names` decide."""
        if self.jitter:
            keypoints = jittered(keypoints, self.jitter, generator(self.seed, "jitter", *names))
        return cut_patches(image, keypoints)

    def keeps(self, name: str) -> bool:
        """Whether what is called `name` is in the part; the same for every set with this seed and share."""
        if self.part == "all":
            return True
        test = bool(generator(self.seed, "part", name).random() < self.test_share)
        return (self.part == "test") == test


@dataclass(frozen=True)
class BuiltPatches:
    """What a set holds: patches of how many points in how many images, and its pairs."""

    images: int
    points: int
    patches: int
    matching: int
    other: int


def write_blocks(
    blocks: Iterator[Block], out: str | Path, recipe: PatchRecipe, card: dict[str, Any], overwrite: bool
) -> BuiltPatches:
    """Write patches and draw pairs of them; each block is one image's. Raises InputError for fewer than two points."""
    images = 0
    with writing_phototour(out, overwrite) as writer:
        for patches, points in blocks:
            writer.add(patches, points)
            images += 1
        points = writer.points
        pairs = draw_pairs(points, recipe.pairs, generator(recipe.seed, "pairs"))
        matching = int(pairs.match.sum())
        built = BuiltPatches(images, len(np.unique(points)), len(points), matching, len(pairs) - matching)
        writer.finish(pairs, {**card, **asdict(built), "recipe": asdict(recipe)})
    return built


def draw_pairs(points: Integers, count: int, rng: np.random.Generator) -> PatchPairs:
    """Different pairs: half of `count` of one point, half of two points; fewer of both where there are fewer of one.

    Raises InputError for fewer than two points, or when none has two patches.
    """
    half = count // 2
    order = np.argsort(points, kind="stable")
    _, starts, sizes = np.unique(points[order], return_index=True, return_counts=True)
    if len(sizes) < 2 or sizes.max() < 2:
        raise InputError("fewer than two points were found twice: use more photographs, with more texture")
    right = _different(half, lambda k: _of_one_point(order, starts, sizes, k, rng))
    wrong = _different(half, lambda k: _of_two_points(points, k, rng))
    fewer = min(len(right), len(wrong))
    first, second = np.concatenate([right[:fewer], wrong[:fewer]]).T
    return PatchPairs(first, second, np.repeat([True, False], fewer))


def _different(count: int, draw: Callable[[int], Integers]) -> Integers:
    """Up to `count` different pairs; gives up once draws bring nothing new."""
    pairs: dict[tuple[int, int], None] = {}
    for _ in range(_ROUNDS):
        before = len(pairs)
        for first, second in np.sort(draw(2 * count), axis=1).tolist():
            pairs.setdefault((first, second))
        if len(pairs) >= count or len(pairs) == before:
            break
    return np.array(list(pairs)[:count], np.int64).reshape(-1, 2)


def _of_one_point(order: Integers, starts: Integers, sizes: Integers, count: int, rng: np.random.Generator) -> Integers:
    point = rng.choice(np.flatnonzero(sizes > 1), count)
    first = rng.integers(0, sizes[point])
    second = (first + rng.integers(1, sizes[point])) % sizes[point]
    return np.column_stack([order[starts[point] + first], order[starts[point] + second]])


def _of_two_points(points: Integers, count: int, rng: np.random.Generator) -> Integers:
    drawn = rng.integers(0, len(points), (count, 2))
    return np.asarray(drawn[points[drawn[:, 0]] != points[drawn[:, 1]]], np.int64)
