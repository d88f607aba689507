"""featveil match: two images or feature files, raw or private -> matches, and a picture of them; or many pairs."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from featveil.cli.concealing import ConcealedBy, find_network
from featveil.cli.console import Json, complain, number, show
from featveil.cli.extract import MaxFeatures, read_features
from featveil.cli.match_many import Many, has_many, match_many
from featveil.core.errors import InputError
from featveil.core.files import check_folder
from featveil.core.kinds import base_kind

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from featveil.core import Features, Matches, PrivateFeatures

_SHARED = (
    "most matches have distance 0: both sides probably drew the same part of one database"
    " (of 16 parts, 1 pair in 16 does), and such matches mean nothing"
)
_ZERO = 1e-3
SAMPLES_FOR_WORDS = 200_000  # few of many candidates are right, so it takes many to draw four of those


def match(
    a: Annotated[
        Path,
        typer.Argument(
            metavar="A", help="An image or a .veil file, raw or private; or features of many images (.h5, .db, folder)."
        ),
    ],
    b: Annotated[Path, typer.Argument(metavar="B", help="Another one; or features of many images, perhaps A itself.")],
    pairs: Annotated[
        Path | None,
        typer.Argument(metavar="[PAIRS]", help="Which images of A and B to match: a pairs file of hloc. Else all."),
    ] = None,
    mutual: Annotated[bool, typer.Option(help="Keep a pair only if each is the other's nearest.")] = True,
    ratio: Annotated[
        float | None, typer.Option(help="Keep it only if it is nearer than this share of the second nearest.")
    ] = None,
    max_distance: Annotated[float | None, typer.Option(help="Keep it only if it is at most this far.")] = None,
    on_sphere: Annotated[
        bool,
        typer.Option("--on-sphere", help="Compare subspaces only where they have norm 1: for private with private."),
    ] = False,
    codebook: Annotated[
        Path | None, typer.Option(help="Codebook file of word sets.", show_default="the built-in one")
    ] = None,
    rule: Annotated[
        str, typer.Option(help="How words match: vocabulary (same word) or nearest (mutual nearest words).")
    ] = "vocabulary",
    concealer: ConcealedBy = None,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Write indices (k, 2) and distances (k,): .npz. Of many images: matches.h5 for hloc, or a COLMAP .db."
        ),
    ] = None,
    picture: Annotated[Path | None, typer.Option(help="Draw the matches: .png or .jpg.")] = None,
    images: Annotated[
        tuple[Path, Path] | None, typer.Option(help="Images of A and B to draw on, for .veil files.")
    ] = None,
    kind: Annotated[
        str | None,
        typer.Option(
            help="Descriptor kind of images, and of files that do not say it.",
            show_default="that of the .veil file, else sift",
        ),
    ] = None,
    max_features: MaxFeatures = 2048,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Match again the pairs that OUT has.")] = False,
    json: Json = False,
) -> None:
    """Match two images by the exact distances of their features, or by their words.

    Also counts the matches that agree on one homography, as views of a flat scene or from one place do. Word sets give
    several candidates a feature, most of them wrong by design: believe those that agree if they are many more than
    would agree by chance, which is printed beside them.
    Existing files named by --out and --picture are replaced.

    Features of many images go pair by pair into one file that hloc or COLMAP reads. Pairs that are in it are kept, so a
    stopped command can be run again.

    Example: featveil match query.veil reference.jpg --picture matches.png

    Example: featveil match private.h5 features.h5 pairs.txt --out matches.h5
    """
    tests = {"mutual": mutual, "ratio": ratio, "max_distance": max_distance, "on_sphere": on_sphere}
    if pairs is not None or any(has_many(path) for path in (a, b)):
        if picture is not None or images is not None:
            raise InputError("--picture and --images are for two images, these are many")
        match_many(a, b, pairs, out, Many(tests, codebook, rule, kind, overwrite, concealer), json)
        return
    if overwrite:
        raise InputError("--overwrite is for features of many images: two are always matched again")
    _check_outputs(a, b, out, picture, images)
    first, second = _sides(a, b, kind, max_features)
    network = find_network(concealer, (first.features.kind, second.features.kind))
    found = _matched(first, second, {**tests, "network": network}, codebook, rule)
    words = first.has_words or second.has_words
    agree, chance = _verified(first, second, found, words)
    drawn = _picture(first, second, found, agree, images) if picture is not None else None
    if out is not None:
        _write(out, found)
    if picture is not None and drawn is not None:
        from featveil.plotting.pictures import write_picture

        write_picture(drawn, picture)
    if first.private and second.private and not words and shared_part(found, agree):
        complain("warning", _SHARED)
    inliers = None if agree is None else int(agree.sum())
    result: dict[str, Any] = {
        "matches": len(found),
        "inliers": inliers,
        "inliers_by_chance": chance,
        "a": first.facts(),
        "b": second.facts(),
    }
    result |= {"out": None if out is None else str(out), "picture": None if picture is None else str(picture)}
    show(result, json, _text(result, words, out, picture))


def _matched(first: "_Side", second: "_Side", tests: dict[str, Any], codebook: Path | None, rule: str) -> "Matches":
    from featveil.databases import load_database
    from featveil.matching import match as match_features

    book = None if codebook is None else load_database(codebook)
    chosen: Any = rule
    return match_features(first.features, second.features, codebook=book, rule=chosen, **tests)


def _verified(
    first: "_Side", second: "_Side", found: "Matches", words: bool
) -> "tuple[NDArray[np.bool_] | None, int | None]":
    """Which matches agree on one homography, where both sides have keypoints; of words, how many would by chance."""
    from featveil.geometry import agreeing, agreeing_by_chance, agreeing_candidates

    if first.features.keypoints is None or second.features.keypoints is None:
        return None, None
    places = first.features.keypoints.xy[found.indices[:, 0]], second.features.keypoints.xy[found.indices[:, 1]]
    if not words:
        return agreeing(*places), None
    return agreeing_candidates(*places, SAMPLES_FOR_WORDS), agreeing_by_chance(*places, SAMPLES_FOR_WORDS)


def shared_part(found: "Matches", agree: "NDArray[np.bool_] | None") -> bool:
    """Whether most subspaces meet without agreeing, as they do when both images drew one sub-database.

    Subspaces of the very same image meet too, in the descriptors they hide; those matches agree.
    """
    if len(found) == 0 or (agree is not None and agree.mean() > 0.5):
        return False
    return float((found.distances < _ZERO).mean()) > 0.5


@dataclass(frozen=True)
class _Side:
    path: Path
    features: "Features | PrivateFeatures"

    @property
    def private(self) -> bool:
        from featveil.core import PrivateFeatures

        return isinstance(self.features, PrivateFeatures)

    @property
    def has_words(self) -> bool:
        from featveil.core import WordSets

        return isinstance(self.features.descriptors, WordSets)

    def facts(self) -> dict[str, Any]:
        """For --json."""
        made = {"path": str(self.path), "features": len(self.features), "private": self.private}
        return made | {"protection": self.protection}

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
        return f"{name}, {guarantee.kind}: epsilon {number(guarantee.epsilon)} a descriptor, {number(image)} an image"


def _sides(a: Path, b: Path, kind: str | None, max_features: int) -> tuple[_Side, _Side]:
    """Both inputs. An image without a given `kind` gets the kind of the .veil file that it is matched with."""
    for path in (a, b):
        if not path.exists():
            raise InputError(f"there is no image or .veil file {path}")
    sides: dict[Path, _Side] = {}
    for path in sorted((a, b), key=lambda path: path.suffix.lower() != ".veil"):
        sides[path] = _Side(path, read_features(path, kind or "sift", max_features))
        kind = kind or base_kind(sides[path].features.kind)
    return sides[a], sides[b]


def _check_outputs(a: Path, b: Path, out: Path | None, picture: Path | None, images: tuple[Path, Path] | None) -> None:
    """Raise InputError, before any work, when an output has a wrong name or would replace an input."""
    inputs = {path.resolve() for path in (a, b, *(images or ()))}
    endings = ((out, (".npz",)), (picture, (".png", ".jpg", ".jpeg")))
    for path, allowed in endings:
        if path is None:
            continue
        if path.suffix.lower() not in allowed:
            raise InputError(f"{path} must end in {' or '.join(allowed)}")
        if path.resolve() in inputs:
            raise InputError(f"{path} is an input: choose another output")
        check_folder(path.parent)


def _picture(
    first: _Side, second: _Side, found: "Matches", agree: Any, images: tuple[Path, Path] | None
) -> "NDArray[np.uint8]":
    from featveil.extractors import read_image
    from featveil.plotting.pictures import draw_matches, panel

    panels = []
    for side, given in zip((first, second), images or (None, None), strict=True):
        path = given or (None if side.path.suffix.lower() == ".veil" else side.path)
        image = None if path is None else read_image(path)
        panels.append(panel(side.features.keypoints, image, side.features.image_size))
    names = " - ".join(f"{side.path.name}{' (private)' if side.private else ''}" for side in (first, second))
    kind = "candidates" if first.has_words or second.has_words else "matches"
    caption = f"{names}: {len(found)} {kind}, {int(agree.sum())} agree on one homography (green)"
    return draw_matches(panels[0], panels[1], found.indices, agree, caption)


def _text(result: dict[str, Any], words: bool, out: Path | None, picture: Path | None) -> str:
    lines = [
        f"{name}  {side['path']}: {side['features']} {'private' if side['private'] else 'raw'} features"
        + (f" ({side['protection']})" if side["protection"] else "")
        for name, side in (("A", result["a"]), ("B", result["b"]))
    ]
    counted = "" if result["inliers"] is None else f", {result['inliers']} agree on one homography"
    counted += "" if result["inliers_by_chance"] is None else f" ({result['inliers_by_chance']} would by chance)"
    lines.append(f"{result['matches']} {'candidates' if words else 'matches'}{counted}")
    return "\n".join([*lines, *(f"wrote {path}" for path in (out, picture) if path is not None)])


def _write(out: Path, found: "Matches") -> None:
    import numpy as np

    from featveil.core.files import replacing

    with replacing(out) as temporary, temporary.open("wb") as file:
        np.savez(file, indices=found.indices, distances=found.distances)
