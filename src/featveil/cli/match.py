"""featveil match: two images or feature files, raw or private -> matches, and a picture of them; or many pairs."""

from dataclasses import asdict
from typing import Any

from featveil.cli.console import Json, number, progress, show
from featveil.cli.options import command
from featveil.pipelines.match import MatchRequest, MatchResult, Side, match_files
from featveil.pipelines.match_parts.match_many import MatchManyResult, match_many


@command
def match(request: MatchRequest, json: Json = False) -> None:
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
    if request.of_many:
        with progress("matching") as report:
            many = match_many(request, report)
        show({**asdict(many), "out": str(many.out)}, json, _text_of_many(many))
        return
    result = match_files(request)
    written = {"out": request.out, "picture": request.picture}
    facts: dict[str, Any] = {
        "matches": len(result.matches),
        "inliers": result.inliers,
        "inliers_by_chance": result.by_chance,
        "a": _facts(result.a),
        "b": _facts(result.b),
    }
    facts |= {name: None if path is None else str(path) for name, path in written.items()}
    show(facts, json, "\n".join([_text(result), *(f"wrote {path}" for path in written.values() if path is not None)]))


def _facts(side: Side) -> dict[str, Any]:
    """For --json."""
    facts = {"path": str(side.path), "features": len(side.features), "private": side.private}
    return facts | {"protection": side.protection}


def _text(result: MatchResult) -> str:
    lines = [
        f"{name}  {side.path}: {len(side.features)} {'private' if side.private else 'raw'} features"
        + (f" ({side.protection})" if side.protection else "")
        for name, side in (("A", result.a), ("B", result.b))
    ]
    counted = "" if result.inliers is None else f", {result.inliers} agree on one homography"
    counted += "" if result.by_chance is None else f" ({result.by_chance} would by chance)"
    lines.append(f"{len(result.matches)} {'candidates' if result.has_words else 'matches'}{counted}")
    return "\n".join(lines)


def _text_of_many(result: MatchManyResult) -> str:
    text = f"{number(result.matches)} matches of {number(result.pairs)} pairs written to {result.out}"
    text += f", {number(result.skipped)} pairs there already and kept" if result.skipped else ""
    return text + (f", {number(result.without_matches)} pairs without a match" if result.without_matches else "")
