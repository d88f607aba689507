"""What every figure shares: a blank one, shades that keep their order, quiet panels, and the PNG.

Matplotlib is the extra `plots`; it is imported when something is drawn.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from featveil.core import MissingExtraError
from featveil.core.files import replacing

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MARKERS = "osD^v<>p"
LEVELS = {"raw": "#c0392b", "quantised": "#1b8a5a"}  # colours of the dashed lines that curves are compared with
_DOTS_PER_INCH = 130


def blank_figure(width: float, height: float) -> "Figure":
    """An empty figure, in inches; raises MissingExtraError without matplotlib."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingExtraError("matplotlib", "plots") from error
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def shades(count: int, lightest: float = 0.82, darkest: float = 0.0) -> list[Any]:
    """Light to dark (cividis), so that order survives colour blindness and grey print."""
    from matplotlib import colormaps

    step = (lightest - darkest) / max(count - 1, 1)
    return [colormaps["cividis"](lightest - step * place) for place in range(count)]


def quiet(panel: "Axes") -> None:
    """Small ticks, a faint grid behind the curves, no frame at the top and right."""
    panel.tick_params(labelsize=8)
    panel.grid(color="#dddddd", linewidth=0.6)
    panel.set_axisbelow(True)
    panel.spines[["top", "right"]].set_visible(False)


def write_figure(figure: "Figure", path: str | Path, title: str = "") -> None:
    """Write the PNG, all of it or nothing."""
    if title:
        figure.suptitle(title, fontsize=11)
    with replacing(path) as temporary:
        figure.savefig(temporary, format="png", dpi=_DOTS_PER_INCH)
