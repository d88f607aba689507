"""Headings and cells -> a table in Markdown."""

from collections.abc import Sequence


def markdown_table(headings: Sequence[str], cells: Sequence[Sequence[str]], left: Sequence[str]) -> str:
    """The table; columns whose heading is in `left` are aligned to that side, numbers to the other."""
    rule = ["---" if heading in left else "---:" for heading in headings]
    return "".join(f"| {' | '.join(line)} |\n" for line in (headings, rule, *cells))
