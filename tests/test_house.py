"""The shape of the house: sizes of folders, names of modules, parameters, names of variables, and no pasted HTML.

Exceptions are counted, and the counts only fall: `python tests/test_house.py` prints those of today.
"""

import ast
import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

SOURCES = Path(__file__).parents[1] / "src" / "featveil"
MOST_FILES, MOST_PARAMETERS = 20, 8
DRAWERS = {"utils", "util", "common", "misc", "helpers", "helper"}
VAGUE = {"found", "made", "told"}

# Folders with more files.
FULL_FOLDERS: dict[str, int] = {}
# Names of modules that several folders have and that no command explains: a bench and a verb are named after a method.
SHARED_NAMES: dict[str, int] = {
    "oracle of attacks, lab": 2,
    "subset of defenses, pipelines": 2,
    "gate of defenses, lab": 2,
}
# Functions with more parameters, by file: a public function with seven keyword options, and compiled passes.
LONG_SIGNATURES: dict[str, int] = {"matching/dispatch.py": 1, "distances/backends/numba_parts/passes.py": 3}
# Pieces of HTML in f-strings, by file.
PASTED_HTML: dict[str, int] = {}
# Uses of vague names.
VAGUE_NAMES: dict[str, int] = {}


@cache
def modules() -> dict[str, ast.Module]:
    """Every source file, from the package's folder, and what it says."""
    paths = sorted(SOURCES.rglob("*.py"))
    return {path.relative_to(SOURCES).as_posix(): ast.parse(path.read_text(encoding="utf-8")) for path in paths}


def full_folders() -> dict[str, int]:
    """Files in each folder that has too many; its `__init__.py` is none."""
    count: defaultdict[str, int] = defaultdict(int)
    for name in modules():
        count[str(Path(name).parent)] += Path(name).name != "__init__.py"
    return {folder: files for folder, files in count.items() if files > MOST_FILES}


def shared_names() -> dict[str, int]:
    """Folders outside of cli/ that have a module of each name, where there are several; a command adds one of its own.

    A module of cli/ is the command of what has its name, so that the two count as one.
    """
    homes: defaultdict[str, set[str]] = defaultdict(set)
    for name in modules():
        path = Path(name)
        if path.name not in ("__init__.py", "__main__.py") and path.parts[0] != "cli":
            homes[path.stem].add(str(path.parent))
    return {f"{name} of {', '.join(sorted(own))}": len(own) for name, own in homes.items() if len(own) > 1}


def functions(tree: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Every function and method."""
    return (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


def parameters(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """How many it takes as written, without self and cls."""
    takes = function.args
    names = [one.arg for one in (*takes.posonlyargs, *takes.args, *takes.kwonlyargs)]
    return len([name for name in names if name not in ("self", "cls")])


def long_signatures() -> dict[str, int]:
    """Functions with too many parameters in each file that has some."""
    count = {name: [parameters(one) for one in functions(tree)] for name, tree in modules().items()}
    long = {name: len([number for number in numbers if number > MOST_PARAMETERS]) for name, numbers in count.items()}
    return {name: number for name, number in long.items() if number}


def html_pieces(tree: ast.AST) -> int:
    """f-strings with a tag of HTML."""
    strings = (node for node in ast.walk(tree) if isinstance(node, ast.JoinedStr))
    texts = ("".join(str(part.value) for part in one.values if isinstance(part, ast.Constant)) for one in strings)
    return sum(bool(re.search(r"</?(?:[a-z]+[1-6]?)(?=[\s>/]|$)", text)) for text in texts)


def pasted_html() -> dict[str, int]:
    """f-strings with HTML in each file that has some."""
    return {name: number for name, tree in modules().items() if (number := html_pieces(tree))}


def identifiers(tree: ast.AST) -> Iterator[str]:
    """Every name of a variable, parameter, keyword, attribute, function or class, each time it is used."""
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name) | ast.arg(arg=name) | ast.Attribute(attr=name):
                yield name
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield name
            case ast.keyword(arg=str(name)):
                yield name


def vague_names() -> dict[str, int]:
    """How often each name that says nothing is used."""
    count = Counter(one for tree in modules().values() for one in identifiers(tree) if one in VAGUE)
    return dict(sorted(count.items()))


@pytest.mark.parametrize(
    ("offenders", "excepted"),
    [
        pytest.param(full_folders, FULL_FOLDERS, id="folders are small"),
        pytest.param(shared_names, SHARED_NAMES, id="modules have names of their own"),
        pytest.param(long_signatures, LONG_SIGNATURES, id="functions take few parameters"),
        pytest.param(pasted_html, PASTED_HTML, id="HTML comes from templates"),
        pytest.param(vague_names, VAGUE_NAMES, id="variables have names of the field"),
    ],
)
def test_rules_hold_but_for_counted_exceptions(offenders: object, excepted: dict[str, int]) -> None:
    assert callable(offenders)
    assert not {name: number for name, number in offenders().items() if number > excepted.get(name, 0)}


def test_there_is_no_drawer_for_odds_and_ends() -> None:
    assert not [name for name in modules() if DRAWERS & set(Path(name).with_suffix("").parts)]


@pytest.mark.parametrize("folder", sorted({str(Path(name).parent) for name in modules()}))
def test_every_folder_says_what_it_holds(folder: str) -> None:
    docstring = ast.get_docstring(modules()[(Path(folder) / "__init__.py").as_posix()])
    assert docstring and docstring.splitlines()[0].endswith(".")


def test_the_rules_notice() -> None:
    tree = ast.parse(
        "def f(self, a, b, c, d, e, g, *, h, i, j=1): return f'<div class={a}>'\n"
        "def g(a): found = f'{a} < b'; return h(made=1, told=f'</p>{a}').found"
    )
    assert [parameters(one) for one in functions(tree)] == [9, 1]
    assert html_pieces(tree) == 2
    assert sorted(name for name in identifiers(tree) if name in VAGUE) == ["found", "found", "made", "told"]


if __name__ == "__main__":  # what there is now, to be copied above
    for rule in (full_folders, shared_names, long_signatures, pasted_html, vague_names):
        print(rule.__name__, rule())  # noqa: T201
