"""Records of an audit -> one self-contained HTML page, which loads nothing from anywhere.

The layout is audit.html, its parts are audit_*.html; here is what they are filled with.
"""

import base64
import hashlib
import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from featveil.audit.audit_tables import Table, attack_table, private_table, utility_table
from featveil.audit.frontier import (
    HEIGHT,
    PANELS,
    WIDTH,
    Mark,
    Panel,
    draw_panel,
    has_private,
    number_schemes,
    optimal_schemes,
)
from featveil.audit.gallery import AuditPictures
from featveil.audit.rows import AuditRow, SkippedTrial, TrialRow, natural, summarize_audit
from featveil.audit.sentences import bottom_line, describe_attack, describe_promise, describe_scheme, percent
from featveil.core import InputError
from featveil.core.records import Record
from featveil.metrics import CLOSE, NEAR
from featveil.plotting.pages import render

_LAYOUT = Path(__file__).with_name("audit.html")
_SCRIPT = re.compile(r"<script>(.*?)</script>", re.DOTALL)
_SHOWN = 3  # examples of a card

# A SIFT descriptor as a small drawing: 4 x 4 cells, in each 8 gradient directions as strokes from its middle.
_CELLS, _DIRECTIONS = 4, 8
GLYPH_SIZE = _CELLS * _CELLS * _DIRECTIONS
_CELL = 24  # units of the drawing
_LONGEST = 120  # of values of a descriptor at norm 512: a stroke of half a cell and a little more
_TURNS = [(math.cos(math.tau * k / _DIRECTIONS), math.sin(math.tau * k / _DIRECTIONS)) for k in range(_DIRECTIONS)]
_GRID = "".join(f"M{k * _CELL} 0V{_CELLS * _CELL}M0 {k * _CELL}H{_CELLS * _CELL}" for k in range(_CELLS + 1))


@dataclass(frozen=True)
class Example:
    """A hidden descriptor and the guess of an attack at it, both at norm 512."""

    truth: tuple[int, ...]
    guess: tuple[int, ...]
    attack: str = ""
    number: int = 1

    @property
    def distance(self) -> float:
        """How far the guess is from the truth, as a share of the truth's norm."""
        return math.dist(self.truth, self.guess) / max(math.hypot(*self.truth), 1)

    @property
    def glyphs(self) -> list[tuple[str, str]]:
        """Strokes of both drawings, and their text for those who cannot see them."""
        guess = f"guess at descriptor {self.number} by {self.attack}, {self.distance:.2f} away"
        return [(strokes(self.truth), f"hidden descriptor {self.number}"), (strokes(self.guess), guess)]


@dataclass(frozen=True)
class SchemeCard:
    """What the page says of one scheme; `facts` are what, its figure, and what to know about it."""

    row: AuditRow
    number: int
    mark: Mark
    id: str
    description: str
    promise: str
    facts: tuple[tuple[str, str, str], ...]
    examples: tuple[Example, ...]


@dataclass(frozen=True)
class DatasetPart:
    """What the page shows of one dataset; `id` starts those of its parts. `private` are panels of private content."""

    name: str
    id: str
    bottom_line: str
    panels: dict[str, Panel]
    private: dict[str, Panel]
    schemes: tuple[SchemeCard, ...]
    tables: tuple[Table, ...]
    skipped: tuple[tuple[str, SkippedTrial], ...]
    is_incomplete: bool


Examples = dict[tuple[str, str, str], list[Example]]  # by dataset, scheme and attack


def audit_page(records: Sequence[Record], pictures: AuditPictures | None = None) -> str:
    """The page as HTML text, with `pictures` if there are any; raises InputError as `summarize_audit` does."""
    rows, examples = summarize_audit(records), collect_examples(records)
    numbers = number_schemes(rows)
    names = dict.fromkeys(row.dataset for row in rows)
    parts = [
        _dataset_part([row for row in rows if row.dataset == name], numbers, examples, f"d{place}")
        for place, name in enumerate(names, start=1)
    ]
    families = dict.fromkeys(row.defense for row in rows)
    return render(
        _LAYOUT,
        script_hash=_script_hash(),
        datasets=parts,
        facts=list(_facts_of_audit(records)),
        families=[Mark.of(defense, True, defense) for defense in families],
        has_examples=bool(examples),
        has_private=has_private(rows),
        pictures=pictures,
        near=f"{NEAR:g}",
        close=f"{CLOSE:g}",
        width=WIDTH,
        height=HEIGHT,
        cells=_GRID,
    )


def collect_examples(records: Iterable[Record]) -> Examples:
    """What records show of hidden descriptors of SIFT kinds; raises InputError when such a list is not whole."""
    examples: Examples = {}
    for record in records:
        truth, guess = (record.parameters.get(name, []) for name in ("shown_truth", "shown_guess"))
        if record.attack is None or not truth or "sift" not in str(record.parameters["kind"]):
            continue
        key = record.dataset, record.scheme, record.attack
        pairs = list(zip(_descriptors(truth, record), _descriptors(guess, record), strict=False))
        if len(pairs) * 2 * GLYPH_SIZE != len(truth) + len(guess):  # type: ignore[arg-type]
            raise _damaged(record)
        numbered = enumerate(pairs[:_SHOWN], start=1)
        examples.setdefault(key, [Example(*pair, record.attack, number) for number, pair in numbered])
    return examples


def strokes(values: Sequence[int]) -> str:
    """The path of an SVG that draws a descriptor at norm 512.

    Strokes are as long as values are large; what is not above zero, as parts of a guess may be, has none.
    """
    path = []
    for place, value in enumerate(values):
        cell, direction = divmod(place, _DIRECTIONS)
        length = min(value / _LONGEST, 1) * 0.62 * _CELL
        if length >= 0.5:
            x, y = (cell % _CELLS + 0.5) * _CELL, (cell // _CELLS + 0.5) * _CELL
            across, down = _TURNS[direction]
            path.append(f"M{x:g} {y:g}l{length * across:.1f} {length * down:.1f}")
    return "".join(path)


def _script_hash() -> str:
    """What lets the page's own script run and no other."""
    script = _SCRIPT.search(_LAYOUT.read_text(encoding="utf-8"))
    assert script is not None, "audit.html has one script"
    return base64.b64encode(hashlib.sha256(script[1].encode()).digest()).decode("ascii")


def _dataset_part(rows: Sequence[AuditRow], numbers: dict[str, int], examples: Examples, name: str) -> DatasetPart:
    dataset, optimal = rows[0].dataset, optimal_schemes(rows)
    cards = []
    for row in rows:
        shown = examples.get((dataset, row.scheme, row.best.attack), []) if row.best else []
        cards.append(
            SchemeCard(
                row,
                numbers[row.scheme],
                Mark.of(row.defense, row.scheme in optimal),
                f"{name}-s{numbers[row.scheme]}",
                describe_scheme(row),
                describe_promise(row),
                tuple(_facts(row)),
                tuple(shown),
            )
        )
    tables = [utility_table(rows, f"Matches on {dataset}"), attack_table(rows, f"Attacks on {dataset}")]
    private: dict[str, Panel] = {}
    if has_private(rows):
        private = {sides: draw_panel(rows, sides, numbers, "private") for sides in PANELS}
        tables.insert(1, private_table(rows, f"Private content on {dataset}"))
    return DatasetPart(
        dataset,
        name,
        bottom_line(rows),
        {sides: draw_panel(rows, sides, numbers) for sides in PANELS},
        private,
        tuple(cards),
        tuple(tables),
        tuple((row.scheme, trial) for row in rows for trial in row.skipped),
        any(row.missing for row in rows),
    )


def _facts_of_audit(records: Sequence[Record]) -> Iterator[tuple[str, str]]:
    """What was audited and how, as it stands in the records."""

    def stated(name: str) -> str:
        values = {str(record.parameters[name]) for record in records if name in record.parameters}
        return ", ".join(sorted(values, key=natural))

    victims: dict[str, set[str]] = {}
    for record in records:
        victims.setdefault(record.dataset, set()).add(str(record.parameters["victim"]))
    for dataset, names in sorted(victims.items()):
        yield f"Photographs of {dataset}", f"{len(names)}: {', '.join(sorted(names, key=natural))}"
    yield "Features", f"{stated('kind')}, at most {stated('max_features')} a photograph"
    yield "Features attacked one by one", f"{stated('sample')} a photograph"
    contents: dict[str, set[str]] = {}
    for record in records:
        if "content" in record.parameters:
            contents.setdefault(str(record.parameters["content"]), set()).add(str(record.parameters["victim"]))
    if contents:
        pasted = (
            f"{content} of {', '.join(sorted(names, key=natural))}" for content, names in sorted(contents.items())
        )
        yield "Private content pasted in", "; ".join(pasted)
    yield "Schemes", str(len({record.scheme for record in records}))
    yield "Seeds", ", ".join(map(str, sorted({record.seed for record in records})))
    software = {f"{name} {number}" for record in records for name, number in record.versions.items()}
    if software:
        yield "Made with", ", ".join(sorted(software))


def _facts(row: AuditRow) -> Iterator[tuple[str, str, str]]:
    apart = row.keypoints != "all"
    for name, kept, same in (
        ("Private query, raw map", row.utility_one, row.kept_one),
        ("Both private", row.utility_both, row.kept_both),
    ):
        if kept is None and row.defense == "gate":
            continue  # the map behind a gate is raw
        yield (
            name,
            percent(kept),
            "of the raw matches" + (f"; {percent(same)} of the same keypoints raw" if apart else ""),
        )
    yield "Features released", f"{row.features:,.0f}", f"of {row.raw_features:,.0f} found, a photograph"
    yield "Best attack", *_attacked(row.best, f"of released features guessed nearer than {NEAR:g} by")
    if row.private_best is not None and row.private_best.private is not None:
        sent = f"{percent(row.private_sent)} are sent, of others {percent(row.mapped_sent)}"
        recovered = f"of its {row.private_raw:,} features recovered by {row.private_best.attack}; {sent}"
        yield "Private content", percent(row.private_best.private.near), recovered
    if row.named is not None:
        yield "Words named right", percent(row.named.exact), f"by {row.named.attack}"
    yield "With a second release", *_attacked(row.twice, "by")
    yield "With another image of the place", *_attacked(row.place, "by")
    if row.chance is not None:
        yield "Chance", percent(row.chance.below_near, 1), "a blind guess, without the release"
    left_out = len({trial.attack for trial in row.skipped})
    yield "Attacks run", str(len(row.trials)), f"and {left_out} skipped: why is below the tables"


def _attacked(trial: TrialRow | None, by: str) -> tuple[str, str]:
    if trial is None:
        return "–", "no such attack was run"
    summary = describe_attack(trial.attack)
    return percent(trial.below_near), f"{by} {trial.attack}" + (f": {summary}" if summary else "")


def _descriptors(values: object, record: Record) -> list[tuple[int, ...]]:
    if not isinstance(values, list) or not all(type(value) is int for value in values):
        raise _damaged(record)
    return [tuple(values[start : start + GLYPH_SIZE]) for start in range(0, len(values), GLYPH_SIZE)]


def _damaged(record: Record) -> InputError:
    return InputError(
        f"the examples of scheme {record.scheme}, attack {record.attack}, are not lists of {GLYPH_SIZE} whole numbers a"
        " descriptor: the file is damaged"
    )
