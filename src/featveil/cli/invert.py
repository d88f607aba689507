"""featveil invert: features, raw or private -> the picture that an attacker sees."""

from featveil.cli.console import Json, progress, show
from featveil.cli.options import command
from featveil.pipelines.adversary import AdversaryFiles
from featveil.pipelines.invert import InvertRequest, InvertResult
from featveil.pipelines.invert import invert as run_inverter

_GEOMETRIES = {"positions": "positions only", "full": "positions, scale, orientation, response"}


@command
def invert(request: InvertRequest, known: AdversaryFiles, json: Json = False) -> None:
    """Paint what features show, with a trained network: what an attacker sees who has them.

    Raw SIFT needs nothing else; raw files also tell scale and orientation of keypoints, which the picture gains from.
    To compare one with what is seen of a private file, use --positions-only. For private features give an inverter that
    was trained on such (featveil train inverter --defense ...), or an attack that recovers the descriptors first. Gated
    ones are painted from the map's own descriptors (--sketch). With an original it says how near the picture is, and
    how near a grey one would be.

    Example: featveil invert query.veil --attack database --out seen.png --original photo.jpg
    """
    with progress("inverting"):
        result = run_inverter(request, known)
    show(result.facts(), json, _text(result))


def _text(result: InvertResult) -> str:
    width, height = result.size
    lines = [f"{width} x {height} pixels of {result.features:,} features, painted by {result.inverter}"]
    lines.append(f"read of keypoints: {_GEOMETRIES[result.geometry]}")
    if result.answered is not None:
        lines.append(f"recovered by {result.attack}, which answers {100 * result.answered:.0f}% of them")
    for name, score in (("picture", result.score), ("grey picture", result.blank)):
        if score is not None:
            lines.append(f"{name:12}  MAE {score.mae:.3f}  SSIM {score.ssim:.3f}  PSNR {score.psnr:.2f} dB")
    return "\n".join([*lines, *([] if result.out is None else [f"wrote {result.out}"])])
