"""Every command says what it does, with examples that it can parse, and prints JSON."""

import re
from typing import Any

import pytest
from typer.testing import CliRunner

from command_lines import calls, check, child, children, commands, flags, root
from featveil.cli import app

COMMANDS = commands()


def examples(command: Any) -> list[str]:
    """What its help gives as examples, each on one line."""
    paragraphs = [" ".join(part.split()) for part in (command.help or "").split("\n\n")]
    return [line for part in paragraphs for line in re.findall(r"Example: (featveil .*)", part)]


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
class TestEveryCommand:
    def test_its_help_says_what_it_does_and_gives_an_example(self, path: tuple[str, ...]) -> None:
        command = COMMANDS[path]
        given = examples(command)
        assert given and all(f"{one} ".startswith(f"featveil {' '.join(path)} ") for one in given)
        opening = command.help.split("\n\n")[0]
        assert not opening.startswith("Example") and opening.rstrip().endswith(".")
        shown = CliRunner().invoke(app, [*path, "--help"], env={"COLUMNS": "200"})
        assert shown.exit_code == 0 and "Example: featveil" in shown.stdout
        assert all(flag in shown.stdout for flag in flags(command) if flag.startswith("--") and "no-" not in flag)

    def test_it_parses_its_own_examples(self, path: tuple[str, ...]) -> None:
        for example in examples(COMMANDS[path]):
            (words,) = calls(example)
            check(words)

    def test_every_option_has_help(self, path: tuple[str, ...]) -> None:
        assert not [one.name for one in COMMANDS[path].params if not one.help and not one.hidden]

    def test_it_prints_json(self, path: tuple[str, ...]) -> None:
        assert "--json" in flags(COMMANDS[path])


def test_groups_say_what_they_are_for() -> None:
    groups = [group for group in (child(root(), name) for name in children(root())) if children(group)]
    assert groups and all(re.search(r"\w", group.help or "") for group in groups)


@pytest.mark.parametrize(
    ("line", "fact"),
    [
        ("privatize a.jpg --out b.veil --bogus", "--bogus"),
        ("privatize a.jpg", "--out"),
        ("privatise a.jpg", "no such command"),
        ("privatize a.jpg --out b.veil --dimension x", "--dimension"),
        ("privatize a.jpg --out b.veil --defense lift", "lift"),
        ("attack a.veil --with all,latice", "latice"),
        ("match a.jpg", "Missing"),
    ],
)
def test_what_does_not_parse_is_noticed(line: str, fact: str) -> None:
    with pytest.raises(AssertionError, match=fact):
        check(line.split())


def test_lines_of_a_shell() -> None:
    text = """
featveil map a/ --out b/ --defense raw && \\
    featveil patches build a/ --model b/ --out c/   # and d/
for m in 2 4; do featveil privatize x-$m.jpg "--out" y.veil; done
featveil ledger show l.sqlite [ann] | head
pip install 'featveil[colmap]'
"""
    assert calls(text) == [
        ["map", "a/", "--out", "b/", "--defense", "raw"],
        ["patches", "build", "a/", "--model", "b/", "--out", "c/"],
        ["privatize", "x-$m.jpg", "--out", "y.veil"],
        ["ledger", "show", "l.sqlite", "ann"],
    ]
