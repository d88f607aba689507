"""featveil localize: private or raw queries and a COLMAP model -> camera poses; retrieve: gated ones -> its images."""

from featveil.cli.console import Json, complain, progress, show, table
from featveil.cli.options import command
from featveil.pipelines.localize import LocalizeRequest, localize_files
from featveil.pipelines.retrieve import RetrieveRequest, retrieve_files


@command
def localize(request: LocalizeRequest, json: Json = False) -> None:
    """Find where private queries were taken, in a map of raw or private features. Needs the extra colmap.

    OUT gets a line for each query that was localized; NAME_inliers.txt beside it one for every query: name, 1 or 0,
    inliers, matches with points of the map. Known intrinsics stay; without any the focal length is estimated along.
    A query that cannot be localized is reported with the reason, and is no error.

    A gated query names points of the map, so it needs neither features of the map nor pairs.

    Example: featveil localize query.veil --model map/ --features features.h5 --out poses.txt
    """
    with progress("localizing") as report:
        result = localize_files(request, report)
    facts = {
        name: {
            "localized": query.pose is not None,
            "inliers": query.inliers,
            "inliers_by_chance": query.by_chance,
            "matches": query.correspondences,
            "reason": query.reason or None,
        }
        for name, query in result.queries.items()
    }
    rows: list[tuple[object, ...]] = [
        (name, "yes" if query.pose else "no", query.inliers, query.correspondences)
        for name, query in result.queries.items()
    ]
    text = table("query", "localized", "inliers", "matches", rows=rows)
    show({"out": str(result.out), "localized": result.localized, "queries": facts}, json, text)
    for name, query in result.queries.items():
        if query.pose is None:
            complain("not localized", f"{name}: {query.reason}")


@command
def retrieve(request: RetrieveRequest, json: Json = False) -> None:
    """Find the images of a map that see what gated queries see. Needs the extra colmap.

    A gated query names points of the map. Each point votes for the images that see it. OUT is a pairs file for hloc:
    one line per query and image, most votes first.

    Example: featveil retrieve query.veil --model map/ --out pairs.txt --top 20
    """
    with progress("retrieving") as report:
        result = retrieve_files(request, report)
    facts = {
        name: [{"image": image, "votes": round(votes, 3)} for image, votes in images]
        for name, images in result.queries.items()
    }
    rows: list[tuple[object, ...]] = [
        (name, len(images), images[0][0] if images else "none") for name, images in result.queries.items()
    ]
    text = table("query", "images", "most votes", rows=rows)
    show({"out": str(result.out), "pairs": result.pairs, "queries": facts}, json, text)
