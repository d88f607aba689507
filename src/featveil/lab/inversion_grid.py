"""Photographs beside what attackers see of them, as a PNG: a line for each photograph, a column for each attacker."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from featveil.core import InputError
from featveil.lab.inversion_report import CONSTANT, RAW, READ
from featveil.plotting.figures import blank_figure, write_figure

Picture = NDArray[np.uint8]

_INCHES = 1.35  # of a picture


@dataclass(frozen=True, eq=False)
class Seen:
    """What an attacker sees of a photograph, uint8 RGB, and how near that is."""

    picture: Picture
    ssim: float


def draw_inversion_grid(
    columns: Sequence[tuple[str, str]],
    photographs: Sequence[Picture],
    seen: Sequence[Sequence[Seen | None]],
    path: str | Path,
    title: str = "",
) -> None:
    """Write the grid to the PNG `path`; `seen` has a line for each photograph, in it one for each column, or None.

    `columns` are scheme and attack. Raises MissingExtraError without matplotlib, InputError when there is no photograph
    or column.
    """
    if not photographs or not columns:
        raise InputError("there is nothing to show: name photographs that were attacked")
    figure = blank_figure(_INCHES * (len(columns) + 1) + 0.1, (_INCHES + 0.14) * len(photographs) + 0.45)
    panels = figure.subplots(len(photographs), len(columns) + 1, squeeze=False)
    for line, photograph, cells in zip(panels, photographs, seen, strict=True):
        line[0].imshow(photograph)
        for panel, cell in zip(line[1:], cells, strict=True):
            if cell is not None:
                panel.imshow(cell.picture)
                panel.set_xlabel(f"SSIM {cell.ssim:.2f}", fontsize=7.5, labelpad=2)
        for panel in line:
            panel.set_xticks([])
            panel.set_yticks([])
            panel.spines[:].set_visible(False)
    for panel, heading in zip(
        panels[0], ["photograph\n", *(column_heading(*column) for column in columns)], strict=True
    ):
        panel.set_title(heading, fontsize=8)
    write_figure(figure, path, title)


def column_heading(scheme: str, attack: str) -> str:
    """Two lines above a column."""
    if scheme == RAW:
        return {READ: "raw\ndescriptors", CONSTANT: "positions\nalone"}.get(attack, f"raw\n{attack}")
    return f"{scheme}\n{attack}"
