"""A row of an audit -> its card: what it does and promises, what it keeps, what attacks get back, and examples."""

import html
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from featveil.audit.frontier_svg import marker_svg
from featveil.audit.glyphs import GLYPH_SIZE, descriptor_glyph, glyph_distance
from featveil.audit.rows import AuditRow, TrialRow
from featveil.audit.sentences import describe_attack, describe_promise, describe_scheme, percent
from featveil.core import InputError
from featveil.core.records import Record
from featveil.metrics import NEAR

_SHOWN = 3  # examples of a card


@dataclass(frozen=True)
class Example:
    """A hidden descriptor and the guess at it, both at norm 512."""

    truth: tuple[int, ...]
    guess: tuple[int, ...]


Examples = dict[tuple[str, str, str], list[Example]]  # by dataset, scheme and attack


def collect_examples(records: Iterable[Record]) -> Examples:
    """What records show of hidden descriptors of SIFT kinds; raises InputError when such a list is not whole."""
    found: Examples = {}
    for record in records:
        truth, guess = (record.parameters.get(name, []) for name in ("shown_truth", "shown_guess"))
        if record.attack is None or not truth or "sift" not in str(record.parameters["kind"]):
            continue
        key = record.dataset, record.scheme, record.attack
        pairs = list(zip(_parts(truth, record), _parts(guess, record), strict=False))
        if len(pairs) * 2 * GLYPH_SIZE != len(truth) + len(guess):  # type: ignore[arg-type]
            raise _damaged(record)
        found.setdefault(key, [Example(*pair) for pair in pairs[:_SHOWN]])
    return found


def scheme_card(row: AuditRow, number: int, optimal: bool, examples: Sequence[Example], name: str) -> str:
    """The card as HTML, with `name` as its id; `examples` are those of the best attack."""
    badge = ' <span class="badge">on the frontier</span>' if optimal else ""
    parts = [
        f'<article class="card scheme" id="{name}">',
        f"<h4>{marker_svg(row.defense, optimal)} {number} {html.escape(row.scheme)}{badge}</h4>",
        f"<p>{html.escape(describe_scheme(row))}</p>",
        f"<p><b>{html.escape(describe_promise(row))}</b></p>",
        _incomplete(row),
        f"<dl>{''.join(_fact(*fact) for fact in _facts(row))}</dl>",
        _figure(row, examples),
        "</article>",
    ]
    return "\n".join(part for part in parts if part)


def _facts(row: AuditRow) -> Iterable[tuple[str, str, str]]:
    """What, its figure, and what to know about it."""
    apart = row.keypoints != "all"
    for name, kept, same in (
        ("Private query, raw map", row.utility_one, row.kept_one),
        ("Both private", row.utility_both, row.kept_both),
    ):
        yield (
            name,
            percent(kept),
            "of the raw matches" + (f"; {percent(same)} of the same keypoints raw" if apart else ""),
        )
    yield "Features released", f"{row.features:,.0f}", f"of {row.raw_features:,.0f} found, a photograph"
    yield "Best attack", *_attacked(row.best, "of features guessed nearer than {near:g} by")
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
    told = by.format(near=NEAR) + f" {trial.attack}"
    return percent(trial.below_near), told + (f": {summary}" if summary else "")


def _fact(name: str, figure: str, told: str) -> str:
    return f"<div><dt>{html.escape(name)}</dt><dd><b>{html.escape(figure)}</b> {html.escape(told)}</dd></div>"


def _incomplete(row: AuditRow) -> str:
    if not row.missing:
        return ""
    return (
        f'<p class="incomplete"><b>Incomplete:</b> {row.missing:,} of {row.expected:,} results are missing: the audit'
        " was not finished. The figures are of what there is; a stronger attack may be among the missing ones.</p>"
    )


def _figure(row: AuditRow, examples: Sequence[Example]) -> str:
    if not examples or row.best is None:
        return ""
    pairs = []
    for place, example in enumerate(examples, start=1):
        distance = glyph_distance(example.truth, example.guess)
        truth = descriptor_glyph(example.truth, f"hidden descriptor {place}")
        guess = descriptor_glyph(
            example.guess, f"guess at descriptor {place} by {row.best.attack}, {distance:.2f} away"
        )
        pairs.append(f'<div class="pair">{truth}{guess}<small>distance {distance:.2f}</small></div>')
    return (
        f'<figure><div class="pairs">{"".join(pairs)}</div><figcaption>Hidden descriptor (left) and the guess of'
        f" {html.escape(row.best.attack)} (right). These are features of an audited photograph.</figcaption></figure>"
    )


def _parts(values: object, record: Record) -> list[tuple[int, ...]]:
    if not isinstance(values, list) or not all(type(value) is int for value in values):
        raise _damaged(record)
    return [tuple(values[start : start + GLYPH_SIZE]) for start in range(0, len(values), GLYPH_SIZE)]


def _damaged(record: Record) -> InputError:
    return InputError(
        f"the examples of scheme {record.scheme}, attack {record.attack}, are not lists of {GLYPH_SIZE} whole numbers a"
        " descriptor: the file is damaged"
    )
