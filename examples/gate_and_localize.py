"""A device sends only what the map of a place knows of a photograph, and the server places it. Needs the extra colmap.

Example: python examples/gate_and_localize.py place.sketch query.jpg map/
"""

import sys
from pathlib import Path

import featveil as fv


def main(sketch: str, query: str, model: str) -> None:
    """Gate a photograph on the device, then find where it was taken, and what else shows that, on the server."""
    gate = fv.Gate(fv.load_sketch(sketch))
    raw = fv.extract(query)
    try:
        sent = fv.privatize(raw, gate)
    except fv.NotMappedError as error:
        print(f"nothing is sent: {error}")
        return
    print(f"{len(sent)} of {len(raw)} features are sent, as numbers of points of the map")

    localizer = fv.Localizer(model)  # a model is enough: nothing is matched
    located = localizer.locate(sent)
    if located.pose is None:
        print(f"no pose: {located.reason}")
    else:
        print(f"{Path(query).name} was taken at {located.pose.centre.round(2)}, by {located.inliers} points")
    print("it shows what these show:", *localizer.retrieve(sent, 3))


if __name__ == "__main__":
    if len(sys.argv) != 4:
        print("usage: python examples/gate_and_localize.py SKETCH QUERY MODEL", file=sys.stderr)
        sys.exit(2)
    main(*sys.argv[1:])
