"""Draws the picture of the gate: a room made by code, a portrait in it, and what is seen of what is sent.

Example: python recipes/draw_gate_portrait.py docs/results/gate/room.png
"""

import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from featveil.datasets import render_scene
from featveil.datasets.private_content import contents
from featveil.lab.gate_parts.gate_pictures import portrait
from featveil.lab.gate_parts.gate_subjects import Place
from featveil.lab.gate_parts.gate_variants import Variant
from featveil.lab.localization_parts.localization_maps import MapsWithout
from featveil.lab.scene_studies import SceneReleases, Settings

VIEWS, SIZE, FEATURES = 9, (1200, 900), 4000


def main(target: Path) -> None:
    """Map the room without its middle view, and gate that."""
    with TemporaryDirectory() as folder:
        scene = render_scene(VIEWS, SIZE).write(Path(folder) / "views")
        releases = SceneReleases(scene, Settings(max_features=FEATURES))
        place = Place(releases, MapsWithout(releases, VIEWS, Path(folder) / "maps"))
        answer = portrait(place, sorted(scene.images)[VIEWS // 2], Variant(), contents(), target)
        if isinstance(answer, str):
            sys.exit(answer)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
