"""The calibration of a sketch -> a small figure: what passes at each distance."""

from pathlib import Path

from featveil.gate import Calibration
from featveil.plotting.figures import LEVELS, blank_figure, quiet, write_figure


def draw_calibration(calibration: Calibration, path: str | Path) -> None:
    """Write the PNG; raises MissingExtraError without matplotlib."""
    figure = blank_figure(5.2, 3.4)
    panel = figure.subplots()
    curves = [
        ("true correspondences", calibration.passes, LEVELS["quantised"], "-"),
        ("of these, right point", calibration.right, LEVELS["quantised"], ":"),
    ]
    if calibration.foreign is not None:
        curves.append(("foreign content", calibration.foreign, LEVELS["raw"], "-"))
    for label, shares, color, line in curves:
        there = f"{label}: {calibration.at(shares, calibration.tau):.2%} at tau"
        panel.plot(calibration.taus, [100 * share for share in shares], line, color=color, label=there)
    panel.axvline(calibration.tau, color="#555555", linewidth=1, linestyle="--")
    panel.annotate(
        f"tau {calibration.tau:g}",
        (calibration.tau, 100),
        xytext=(4, 0),
        textcoords="offset points",
        fontsize=8,
        va="top",
    )
    panel.set_xlim(calibration.taus[0], calibration.taus[-1])
    panel.set_ylim(0, 102)
    panel.set_xlabel("tau: largest distance from the sketch", fontsize=9)
    panel.set_ylabel("share that passes, %", fontsize=9)
    quiet(panel)
    panel.legend(fontsize=8, frameon=False, loc="center right")
    write_figure(figure, path)
