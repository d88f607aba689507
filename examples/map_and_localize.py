"""A map of private features, and a private query that is placed in it. Needs the extra colmap.

Example: python examples/map_and_localize.py photos/ query.jpg map/
"""

import sys
from pathlib import Path

import featveil as fv


def main(photos: str, query: str, out: str) -> None:
    """Build the map of a folder of photographs, and say where the query was taken."""
    lifting = fv.Lifting(dimension=2)
    paths = sorted(path for path in Path(photos).iterdir() if path != Path(query))
    released = {path.name: fv.privatize(fv.extract(path), lifting) for path in paths}
    built = fv.build_map(list(released), released.__getitem__, out)
    print(f"{len(built.model.views)} of {len(released)} images and {len(built.model.points)} points in {out}")

    localizer = fv.Localizer(built.model, released.__getitem__)
    located = localizer.locate(fv.privatize(fv.extract(query), lifting))
    if located.pose is None:
        print(f"no pose: {located.reason}")
    else:
        print(f"{query} was taken at {located.pose.centre.round(2)}, by {located.inliers} matches")


if __name__ == "__main__":
    if len(sys.argv) != 4:
        print("usage: python examples/map_and_localize.py PHOTOS QUERY OUT", file=sys.stderr)
        sys.exit(2)
    main(*sys.argv[1:])
