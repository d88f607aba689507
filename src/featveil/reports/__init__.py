"""Records -> tables and figures. Reports only read records; they measure nothing."""

from featveil.reports.curves import draw_matching_curves
from featveil.reports.tables import MatchingRow, matching_cells, matching_markdown, summarize_matching

__all__ = ["MatchingRow", "draw_matching_curves", "matching_cells", "matching_markdown", "summarize_matching"]
