"""Two images or feature files, raw or private -> their matches, and a picture of them."""

from dataclasses import dataclass
from logging import getLogger
from pathlib import Path
from typing import TYPE_CHECKING, Any

from featveil.core.errors import InputError
from featveil.core.files import check_folder
from featveil.core.kinds import base_kind
from featveil.core.options import argument, option
from featveil.pipelines.sources import HDF5, find_network, read_features

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from featveil.core import Features, Matches, PrivateFeatures
    from featveil.matching import MatchOptions
    from featveil.plotting.pictures import Picture

SAMPLES_FOR_WORDS = 200_000  # few of many candidates are right, so it takes many to draw four of those

_SHARED = (
    "most matches have distance 0: both sides probably drew the same part of one database"
    " (of 16 parts, 1 pair in 16 does), and such matches mean nothing"
)
_ZERO = 1e-3

logger = getLogger(__name__)


@dataclass(frozen=True)
class MatchRequest:
    """What to match with what, which matches to keep, and what to write."""

    a: Path = argument(
        metavar="A", help="An image or a .veil file, raw or private; or features of many images (.h5, .db, folder)."
    )
    b: Path = argument(metavar="B", help="Another one; or features of many images, perhaps A itself.")
    pairs: Path | None = argument(
        None, metavar="[PAIRS]", help="Which images of A and B to match: a pairs file of hloc. Else all."
    )
    mutual: bool = option(
        True, flags=("--mutual/--no-mutual",), help="Keep a pair only if each is the other's nearest."
    )
    ratio: float | None = option(None, help="Keep it only if it is nearer than this share of the second nearest.")
    max_distance: float | None = option(None, help="Keep it only if it is at most this far.")
    on_sphere: bool = option(False, help="Compare subspaces only where they have norm 1: for private with private.")
    codebook: Path | None = option(None, help="Codebook file of word sets.", shown="the built-in one")
    rule: str = option("vocabulary", help="How words match: vocabulary (same word) or nearest (mutual nearest words).")
    concealer: Path | None = option(
        None,
        help="Network file that private features were concealed by: raw ones that they meet are concealed too.",
        shown="the built-in one if it is that",
    )
    out: Path | None = option(
        None,
        help="Write indices (k, 2) and distances (k,): .npz. Of many images: matches.h5 for hloc, or a COLMAP .db.",
    )
    picture: Path | None = option(None, help="Draw the matches: .png or .jpg.")
    images: tuple[Path, Path] | None = option(None, help="Images of A and B to draw on, for .veil files.")
    kind: str | None = option(
        None,
        help="Descriptor kind of images, and of files that do not say it.",
        shown="that of the .veil file, else sift",
    )
    max_features: int = option(2048, minimum=1, help="Strongest features to keep of each image.")
    overwrite: bool = option(False, help="Match again the pairs that OUT has.")

    @property
    def of_many(self) -> bool:
        """Whether this may be about features of several images on a side."""
        return self.pairs is not None or any(has_many(path) for path in (self.a, self.b))

    def options(self, kinds: list[str]) -> "MatchOptions":
        """As `featveil.matching.match` takes them, for descriptors of these kinds."""
        from featveil.databases import load_database

        rule: Any = self.rule
        return {
            "mutual": self.mutual,
            "ratio": self.ratio,
            "max_distance": self.max_distance,
            "on_sphere": self.on_sphere,
            "codebook": None if self.codebook is None else load_database(self.codebook),
            "rule": rule,
            "network": find_network(self.concealer, kinds),
        }


@dataclass(frozen=True, eq=False)
class Side:
    """One of the two that were matched: its features, and how they are protected."""

    path: Path
    features: "Features | PrivateFeatures"

    @property
    def private(self) -> bool:
        """Whether they may be sent."""
        from featveil.core import PrivateFeatures

        return isinstance(self.features, PrivateFeatures)

    @property
    def has_words(self) -> bool:
        """Whether each has several candidates."""
        from featveil.core import WordSets

        return isinstance(self.features.descriptors, WordSets)

    @property
    def protection(self) -> str | None:
        """Defense and guarantee of private features; an epsilon never without that of the image."""
        from featveil.core import PrivateFeatures

        if not isinstance(self.features, PrivateFeatures):
            return None
        spec, guarantee = self.features.defense, self.features.guarantee
        name = f"{spec.get('name')}, then {spec['then']}" if "then" in spec else spec.get("name")
        if guarantee.epsilon is None:
            return f"{name}, {guarantee.kind}"
        image = guarantee.compose(len(self.features)).epsilon or 0.0
        bounds = f"epsilon {guarantee.epsilon:,.10g} a descriptor, {image:,.10g} an image"
        return f"{name}, {guarantee.kind}: {bounds}"


@dataclass(frozen=True, eq=False)
class MatchResult:
    """The matches of two sides; of word sets they are candidates.

    `agree` are those that agree on one homography, None without keypoints; of candidates, `by_chance` would agree if
    they were wrong.
    """

    a: Side
    b: Side
    matches: "Matches"
    agree: "NDArray[np.bool_] | None"
    by_chance: int | None

    @property
    def has_words(self) -> bool:
        """Whether these are candidates."""
        return self.a.has_words or self.b.has_words

    @property
    def inliers(self) -> int | None:
        """How many agree on one homography."""
        return None if self.agree is None else int(self.agree.sum())


def has_many(path: Path) -> bool:
    """Whether `path` may hold features of several images."""
    return path.suffix.lower() in (*HDF5, ".db") or path.is_dir()


def match_files(request: MatchRequest) -> MatchResult:
    """Match two images or feature files, and write what is asked for; files that are there are replaced.

    Raises InputError for outputs that cannot be written, and for features that cannot be compared.
    """
    from featveil.matching import match

    if request.overwrite:
        raise InputError("--overwrite is for features of many images: two are always matched again")
    _check_outputs(request)
    a, b = _sides(request)
    matches = match(a.features, b.features, **request.options([a.features.kind, b.features.kind]))
    result = MatchResult(a, b, matches, *_verified(a, b, matches))
    picture = None if request.picture is None else _draw(result, request.images)
    if request.out is not None:
        _write(request.out, matches)
    if request.picture is not None and picture is not None:
        from featveil.plotting.pictures import write_picture

        write_picture(picture, request.picture)
    if a.private and b.private and not result.has_words and shared_part(matches, result.agree):
        logger.warning(_SHARED)
    return result


def shared_part(matches: "Matches", agree: "NDArray[np.bool_] | None") -> bool:
    """Whether most subspaces meet without agreeing, as they do when both images drew one sub-database.

    Subspaces of the very same image meet too, in the descriptors they hide; those matches agree.
    """
    if len(matches) == 0 or (agree is not None and agree.mean() > 0.5):
        return False
    return float((matches.distances < _ZERO).mean()) > 0.5


def _verified(a: Side, b: Side, matches: "Matches") -> "tuple[NDArray[np.bool_] | None, int | None]":
    """Which matches agree on one homography, where both sides have keypoints; of words, how many would by chance."""
    from featveil.geometry import agreeing, agreeing_by_chance, agreeing_candidates

    if a.features.keypoints is None or b.features.keypoints is None:
        return None, None
    places = a.features.keypoints.xy[matches.indices[:, 0]], b.features.keypoints.xy[matches.indices[:, 1]]
    if not (a.has_words or b.has_words):
        return agreeing(*places), None
    return agreeing_candidates(*places, SAMPLES_FOR_WORDS), agreeing_by_chance(*places, SAMPLES_FOR_WORDS)


def _sides(request: MatchRequest) -> tuple[Side, Side]:
    """Both inputs. An image without a given `kind` gets the kind of the .veil file that it is matched with."""
    for path in (request.a, request.b):
        if not path.exists():
            raise InputError(f"there is no image or .veil file {path}")
    kind, sides = request.kind, dict[Path, Side]()
    for path in sorted((request.a, request.b), key=lambda path: path.suffix.lower() != ".veil"):
        sides[path] = Side(path, read_features(path, kind or "sift", request.max_features))
        kind = kind or base_kind(sides[path].features.kind)
    return sides[request.a], sides[request.b]


def _check_outputs(request: MatchRequest) -> None:
    """Raise InputError, before any work, when an output has a wrong name or would replace an input."""
    inputs = {path.resolve() for path in (request.a, request.b, *(request.images or ()))}
    endings = ((request.out, (".npz",)), (request.picture, (".png", ".jpg", ".jpeg")))
    for path, allowed in endings:
        if path is None:
            continue
        if path.suffix.lower() not in allowed:
            raise InputError(f"{path} must end in {' or '.join(allowed)}")
        if path.resolve() in inputs:
            raise InputError(f"{path} is an input: choose another output")
        check_folder(path.parent)


def _draw(result: MatchResult, images: tuple[Path, Path] | None) -> "Picture":
    from featveil.extractors import read_image
    from featveil.plotting.pictures import draw_matches, panel

    agree: Any = result.agree  # None only without keypoints, which `panel` refuses
    panels = []
    for side, given in zip((result.a, result.b), images or (None, None), strict=True):
        path = given or (None if side.path.suffix.lower() == ".veil" else side.path)
        image = None if path is None else read_image(path)
        panels.append(panel(side.features.keypoints, image, side.features.image_size))
    names = " - ".join(f"{side.path.name}{' (private)' if side.private else ''}" for side in (result.a, result.b))
    kind = "candidates" if result.has_words else "matches"
    caption = f"{names}: {len(result.matches)} {kind}, {result.inliers} agree on one homography (green)"
    return draw_matches(panels[0], panels[1], result.matches.indices, agree, caption)


def _write(out: Path, matches: "Matches") -> None:
    import numpy as np

    from featveil.core.files import replacing

    with replacing(out) as temporary, temporary.open("wb") as file:
        np.savez(file, indices=matches.indices, distances=matches.distances)
