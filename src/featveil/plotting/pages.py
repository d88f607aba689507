"""Jinja2 templates -> HTML pages. Every value is escaped unless it is Markup; a name that is missing is an error."""

from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined


def render(template: Path, **values: Any) -> str:
    """The template at that path, filled with `values`; it may include others of its folder."""
    return _environment(template.parent).get_template(template.name).render(values)


@cache
def _environment(folder: Path) -> Environment:
    return Environment(
        loader=FileSystemLoader(folder),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
