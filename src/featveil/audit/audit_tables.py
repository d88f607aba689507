"""Rows of an audit -> tables: in Markdown, as cells for a terminal, and as cells that a reader of the page can sort."""

from collections.abc import Sequence
from dataclasses import dataclass

from featveil.audit.frontier import has_private
from featveil.audit.rows import AuditRow, Spread, TrialRow, summarize_audit
from featveil.audit.sentences import percent
from featveil.core.records import Record
from featveil.metrics import CLOSE, NEAR

_TEXTS = ("scheme", "best attack", "best on private")  # columns that are no figures

WHO = {
    "release": "the release",
    "twice": "a second release",
    "place": "another image of the place",
    "none": "nothing (chance)",
    "truth": "the truth (no adversary)",
}


@dataclass(frozen=True)
class Cell:
    """What a cell of a table shows, and the number by which it sorts; None for text, or where there is no figure."""

    text: str
    value: float | None = None


@dataclass(frozen=True)
class Table:
    """A table of the page, of whose columns the first `texts` are text, the others figures."""

    name: str
    headings: Sequence[str]
    lines: Sequence[Sequence[Cell]]
    texts: int = 1


def audit_cells(rows: Sequence[AuditRow]) -> tuple[list[str], list[tuple[str, ...]]]:
    """Headings, and the cells of each row as text, shares in percent: the compact table."""
    headings = ["scheme", "private query", "both private", "features", "best attack", f"<{NEAR:g}", "twice", "place"]
    headings += ["chance", "epsilon", "epsilon an image"]
    if not has_private(rows):
        return headings, [_line(row) for row in rows]
    headings += ["private sent", "mapped sent", "best on private", f"private <{NEAR:g}", f"private <{CLOSE:g}"]
    return [*headings, f"mapped <{NEAR:g}"], [(*_line(row), *_private(row)) for row in rows]


def audit_markdown(records: Sequence[Record]) -> str:
    """The compact table of every dataset, one line a scheme; raises InputError as `summarize_audit` does."""
    rows = summarize_audit(records)
    parts = [
        "# Audit\n",
        "private query, both private: right verified matches as a share of those of raw features. features: released of"
        f" those found, a photograph. best attack: the one with most guesses nearer than {NEAR:g} to the hidden"
        " descriptor, of an adversary who has one release; twice: with a second release of the same image; place: with"
        " another image of the place (a right match itself reveals the feature: not held against a defense); chance:"
        " without any knowledge. epsilon adds up over the features of an image. Several seeds: mean (range).\n",
    ]
    if has_private(rows):
        parts.append(
            "private: features of content pasted into the photographs, which no second view shows. mapped: those of the"
            " rest. Features whose window meets the border are neither. Figures are shares of all raw features of a"
            f" side: those that are sent, and those that are sent and guessed nearer than {NEAR:g} or {CLOSE:g}. mapped"
            f" <{NEAR:g} is of the attack that is best on private.\n"
        )
    for dataset in dict.fromkeys(row.dataset for row in rows):
        chosen = [row for row in rows if row.dataset == dataset]
        headings, cells = audit_cells(chosen)
        rule = ["---" if heading in _TEXTS else "---:" for heading in headings]
        lines = "".join(f"| {' | '.join(map(_plain, line))} |\n" for line in (headings, rule, *cells))
        parts.append(f"## {_plain(dataset)}\n\n{lines}")
        if has_private(chosen):
            one = chosen[0]
            parts.append(f"The photographs have {one.private_raw} private and {one.mapped_raw} mapped features.\n")
        if any(row.missing for row in chosen):
            parts.append("(*): results are missing, the audit was not finished.\n")
    return "\n".join(parts)


def utility_table(rows: Sequence[AuditRow], name: str) -> Table:
    """What every scheme keeps of the matches."""
    headings = ["Scheme", "Features released", "of found"]
    for title in ("Query private", "Both private"):
        headings += [f"{title}: {what}" for what in ("right matches", "of raw", "of same keypoints", "accuracy")]
    lines = [
        [
            Cell(_marked(row)),
            _count(row.features),
            _count(row.raw_features),
            _count(row.right_one.mean if row.right_one else None),
            *map(_share, (row.utility_one, row.kept_one, row.accuracy_one)),
            _count(row.right_both.mean if row.right_both else None),
            *map(_share, (row.utility_both, row.kept_both, row.accuracy_both)),
        ]
        for row in rows
    ]
    return Table(name, headings, lines)


def private_table(rows: Sequence[AuditRow], name: str) -> Table:
    """What every scheme sends of private content and of the rest, and what comes back of both."""
    headings = ["Scheme", "Best attack on private content", "Private: sent", f"nearer than {NEAR:g}"]
    headings += [f"nearer than {CLOSE:g}", "Mapped: sent", f"nearer than {NEAR:g}", "Query private: matches of raw"]
    lines = []
    for row in rows:
        best = row.private_best
        private, mapped = (best.private, best.mapped) if best else (None, None)
        shares = [row.private_sent, private.near if private else None, private.close if private else None]
        shares += [row.mapped_sent, mapped.near if mapped else None, row.utility_one]
        lines.append([Cell(_marked(row)), Cell(best.attack if best else "–"), *map(_share, shares)])
    return Table(name, headings, lines, texts=2)


def attack_table(rows: Sequence[AuditRow], name: str) -> Table:
    """Every attack on every scheme."""
    headings = ["Scheme", "Attack", "Attacker has", f"Nearer than {NEAR:g}", f"Nearer than {CLOSE:g}", "Exact"]
    headings += ["Median distance", "Guesses"]
    lines = [_attack(row, trial) for row in rows for trial in row.trials]
    if any(trial.released_near is not None for row in rows for trial in row.trials):
        headings.append(f"Concealed one nearer than {NEAR:g}")
        behind = [trial.released_near for row in rows for trial in row.trials]
        lines = [[*line, _share(share)] for line, share in zip(lines, behind, strict=True)]
    return Table(name, headings, lines, texts=3)


def _attack(row: AuditRow, trial: TrialRow) -> list[Cell]:
    best = " (best)" if trial == row.best else ""
    shares = map(_share, (trial.below_near, trial.below_close, trial.exact))
    median = Cell(f"{trial.median.mean:.2f}", trial.median.mean)
    return [
        Cell(_marked(row)),
        Cell(trial.attack + best),
        Cell(WHO[trial.adversary]),
        *shares,
        median,
        _count(trial.count),
    ]


def _marked(row: AuditRow) -> str:
    return row.scheme + ("*" if row.missing else "")


def _share(spread: Spread | None) -> Cell:
    return Cell("–") if spread is None else Cell(percent(spread, 1), 100 * spread.mean)


def _count(value: float | None) -> Cell:
    return Cell("–") if value is None else Cell(f"{value:,.0f}", value)


def _line(row: AuditRow) -> tuple[str, ...]:
    def leaked(trial: TrialRow | None) -> str:
        return "-" if trial is None else percent(trial.below_near, 1)

    return (
        row.scheme + (" (*)" if row.missing else ""),
        "-" if row.utility_one is None else percent(row.utility_one, 1),
        "-" if row.utility_both is None else percent(row.utility_both, 1),
        f"{row.features:.0f} of {row.raw_features:.0f}",
        "-" if row.best is None else row.best.attack,
        leaked(row.best),
        leaked(row.twice),
        leaked(row.place),
        leaked(row.chance),
        *("-" if value is None else f"{value:,.6g}" for value in (row.epsilon, row.image_epsilon)),
    )


def _private(row: AuditRow) -> tuple[str, ...]:
    """The cells of private content in the compact table."""
    best = row.private_best
    private, mapped = (best.private, best.mapped) if best else (None, None)
    sent = (_percent(row.private_sent), _percent(row.mapped_sent), best.attack if best else "-")
    near = (_percent(private.near if private else None), _percent(private.close if private else None))
    return *sent, *near, _percent(mapped.near if mapped else None)


def _percent(spread: Spread | None) -> str:
    return "-" if spread is None else percent(spread, 1)


def _plain(text: str) -> str:
    """A name that ends neither its cell nor its line."""
    return " ".join(text.replace("|", "/").split())
