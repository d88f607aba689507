"""The command tree, and `featveil ...` lines parsed by the command they are for, which is not run."""

import re
import shlex
from collections.abc import Iterator
from functools import cache
from typing import Any

import typer

from featveil.cli import app
from featveil.registry import ATTACKS, DEFENSES

# Click's, which newer versions of typer carry a copy of.
UsageError: Any = typer.BadParameter.__bases__[0]

_SEPARATORS = {"|", "&&", "||", ";", "&", "(", ")", "{", "}", "do", "then", "else"}
_NAMES = {
    "--defense": {*DEFENSES, "raw"},
    "--then": {*DEFENSES},
    "--with": {*ATTACKS, "all"},
    "--attack": {*ATTACKS},
    "--attacks": {*ATTACKS, "all", "none"},
}


@cache
def root() -> Any:
    """The whole program as click sees it."""
    return typer.main.get_command(app)


def children(command: Any) -> list[str]:
    """The names of the commands of a group; none where it is a command itself."""
    return list(command.list_commands(_context(command))) if hasattr(command, "list_commands") else []


def child(command: Any, name: str) -> Any:
    """The command called so of a group, as it is when it is run: until then it may be a line in a list."""
    return _context(command.resolve_command(_context(command), [name])[1]).command


def _context(command: Any) -> Any:
    return command.make_context("featveil", [], resilient_parsing=True)


@cache
def commands() -> dict[tuple[str, ...], Any]:
    """Every command that does something, by its words."""

    def walk(command: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
        if not children(command):
            yield path, command
        for name in children(command):
            yield from walk(child(command, name), (*path, name))

    return dict(walk(root(), ()))


def flags(command: Any) -> set[str]:
    """Every spelling of every option of a command."""
    own = {flag for one in command.params for flag in (*one.opts, *one.secondary_opts) if flag.startswith("-")}
    return own | {"--help", "-h"}


def find(words: list[str]) -> tuple[tuple[str, ...], Any, list[str]]:
    """The path of the command that `words` begin with, the command itself, and its arguments."""
    command, path = root(), list[str]()
    while len(path) < len(words) and words[len(path)] in children(command):
        path.append(words[len(path)])
        command = child(command, path[-1])
    return tuple(path), command, words[len(path) :]


def check(words: list[str]) -> None:
    """Fail unless the command parses its arguments; nothing is run, and no file is touched."""
    path, command, arguments = find(words)
    line = " ".join(["featveil", *words])
    if arguments in (["--help"], ["-h"], ["--version"]):
        return
    assert not children(command), f"no such command: {line}"
    try:
        given = command.make_context(" ".join(path), list(arguments)).params
    except UsageError as error:
        raise AssertionError(f"{line}: {error.format_message()}") from None
    assert given, line
    for flag, known in _NAMES.items():
        for place in (place for place, word in enumerate(arguments) if word == flag):
            strange = set(arguments[place + 1].split(",")) - known
            assert not strange, f"{line}: there is no {flag} {strange}"


def logical_lines(text: str) -> list[str]:
    """Lines of a shell, each with those that continue it."""
    return re.sub(r"\\\n\s*", " ", text).splitlines()


def calls(text: str, program: str = "featveil") -> list[list[str]]:
    """The arguments of each call of `program` in some shell, without comments; `[...]` is what may be left out."""
    found = []
    for line in logical_lines(text):
        if program not in line:
            continue
        lexer = shlex.shlex(line.replace("[", "").replace("]", ""), posix=True, punctuation_chars="|&;")
        lexer.whitespace_split, lexer.commenters = True, "#"
        words = list(lexer)
        while program in words:
            words = words[words.index(program) + 1 :]
            end = next((place for place, word in enumerate(words) if word in _SEPARATORS or word in "<>"), len(words))
            found.append(words[:end])
    return found
