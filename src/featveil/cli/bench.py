"""featveil bench: every file of the laboratory that has a `BENCH` is a command; it is loaded when it runs."""

import ast
from collections.abc import Callable
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from featveil import lab
from featveil.cli.console import Json, progress, show, stderr
from featveil.cli.options import command

_GROUPS = {"faces": "Measure how well private face templates verify, and what they give away."}


class Benches(TyperGroup):
    """The benches, or those whose names begin with that of this group, such as "faces verification"."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Their names, and those of groups of them."""
        inside = self._inside()
        words = {name[len(inside)] for name in _listed() if name[: len(inside)] == inside}
        return sorted(words.union(super().list_commands(ctx)))

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """A bench that is not loaded yet, or a group of them."""
        name = (*self._inside(), cmd_name)
        if name in _listed():
            module, text = _listed()[name]
            return _Bench(module, name=cmd_name, help=text)
        if cmd_name in _GROUPS and any(listed[:-1] == name for listed in _listed()):
            return Benches(name=cmd_name, help=_GROUPS[cmd_name], no_args_is_help=True)
        return super().get_command(ctx, cmd_name)

    def _inside(self) -> tuple[str, ...]:
        return (self.name,) if self.name in _GROUPS else ()


class _Bench(TyperCommand):
    """Stands for the command of a bench until it is called."""

    def __init__(self, module: str, **settings: Any) -> None:
        super().__init__(**settings)
        self.module = module

    def make_context(self, info_name: Any, args: Any, parent: Any = None, **extra: Any) -> Any:
        """That of the command itself."""
        loaded = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
        loaded.command(self.name)(as_command(import_module(f"{lab.__name__}.{self.module}").BENCH))
        return typer.main.get_command(loaded).make_context(info_name, args, parent, **extra)


def as_command(bench: Any) -> Callable[..., None]:
    """A function that measures what its options say, and prints the results."""

    def run(options: Any, json: Any = False) -> None:
        from featveil.lab.bench import Stopped

        try:
            results = bench.run(options, progress)
        except Stopped as stopped:
            stderr.print(f"Stopped. {stopped}", markup=False, highlight=False)
            raise typer.Exit(130) from None
        for note in results.notes:
            stderr.print(note, markup=False, highlight=False)
        show(dict(results.facts), json, results.screen)

    run.__doc__ = bench.help
    run.__annotations__ = {"options": bench.options, "json": Json, "return": None}
    return command(run)


@cache
def _listed() -> dict[tuple[str, ...], tuple[str, str]]:
    """Module and help of each bench by the words of its name, read from the files without running them."""
    benches: dict[tuple[str, ...], tuple[str, str]] = {}
    for path in sorted(path for folder in lab.__path__ for path in Path(folder).glob("*.py")):
        source = path.read_text(encoding="utf-8")
        if "\nBENCH = " not in source:
            continue
        tree = ast.parse(source)
        texts = {node.name: ast.get_docstring(node) or "" for node in tree.body if isinstance(node, ast.FunctionDef)}
        for node in tree.body:
            match node:
                case ast.Assign([ast.Name("BENCH")], ast.Call(args=[ast.Constant(str() as name), ast.Name(function)])):
                    benches[tuple(name.split())] = path.stem, texts[function]
    return benches


app = typer.Typer(cls=Benches, no_args_is_help=True, help="Measure how well private features match, and how fast.")


@app.callback()
def bench() -> None:
    """Measure how well private features match, and how fast."""
