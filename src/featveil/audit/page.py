"""Records of an audit -> one self-contained HTML page, which loads nothing from anywhere. The layout is audit.html."""

import base64
import hashlib
import html
import re
from collections.abc import Sequence
from pathlib import Path
from string import Template

from featveil.audit.audit_tables import attack_table, utility_table
from featveil.audit.cards import Examples, collect_examples, scheme_card
from featveil.audit.frontier import PANELS, frontier_points, number_schemes
from featveil.audit.frontier_svg import frontier_svg, marker_svg
from featveil.audit.paintings import AuditPictures
from featveil.audit.rows import AuditRow, natural, summarize_audit
from featveil.audit.sentences import bottom_line
from featveil.core.records import Record
from featveil.metrics import CLOSE, NEAR

_LAYOUT = Path(__file__).with_name("audit.html")
_SCRIPT = re.compile(r"<script>(.*?)</script>", re.DOTALL)


def audit_page(records: Sequence[Record], pictures: AuditPictures | None = None) -> str:
    """The page as HTML text, with `pictures` if there are any; raises InputError as `summarize_audit` does."""
    rows, examples = summarize_audit(records), collect_examples(records)
    datasets: dict[str, list[AuditRow]] = {}
    for row in rows:
        datasets.setdefault(row.dataset, []).append(row)
    numbers = number_schemes(rows)
    layout = _LAYOUT.read_text(encoding="utf-8")
    parts = list(enumerate(datasets.items(), start=1))
    several = len(datasets) > 1
    lines = [
        f"On {dataset}: {bottom_line(chosen)}" if several else bottom_line(chosen) for _, (dataset, chosen) in parts
    ]
    values: dict[str, object] = {
        "script_hash": _script_hash(layout),
        "title": html.escape(", ".join(datasets)),
        "bottom_line": "\n".join(f'<p class="lead"><b>{html.escape(line)}</b></p>' for line in lines),
        "audited": "\n".join(_audited(records)),
        "near": f"{NEAR:g}",
        "close": f"{CLOSE:g}",
        "families": "\n".join(
            f"<li>{marker_svg(family, True)} {html.escape(family)}</li>"
            for family in dict.fromkeys(row.defense for row in rows)
        ),
        "frontiers": "\n".join(_frontier(dataset, chosen, numbers, f"d{k}") for k, (dataset, chosen) in parts),
        "cards": "\n".join(_cards(dataset, chosen, numbers, examples, f"d{k}") for k, (dataset, chosen) in parts),
        "pictures": _pictures(pictures, datasets, numbers) if pictures else "",
        "sensitive": _sensitive(bool(examples), bool(pictures)),
        "tables": "\n".join(_tables(dataset, chosen) for _, (dataset, chosen) in parts),
    }
    return Template(layout).substitute(values)


_PICTURES = """
<h2>What the best attacker sees</h2>
<p>The best attack on each scheme guessed every descriptor of one photograph, and a network that was trained to
paint photographs from raw descriptors painted its guesses. Raw descriptors at the same keypoints show the best it
can do, random ones what the positions alone tell. SSIM is how similar the picture is to the photograph, 1 for the
same one. Descriptors do not tell colours: those are guessed. A larger network, or one trained on what a scheme
sends, may see more.</p>
"""


def _sensitive(examples: bool, pictures: bool) -> str:
    """What a reader must know about whom to give the page to."""
    if not examples and not pictures:
        return ""
    shown = ["hidden descriptors of the audited photographs, as small drawings"] if examples else []
    shown += ["photographs and what attackers see of them"] if pictures else []
    return (
        f'<p class="card warn"><b>This page is sensitive.</b> It shows {" and ".join(shown)}, and file names are those'
        " of the photographs. Whoever may not see those should not get this page.</p>"
    )


def _pictures(pictures: AuditPictures, datasets: dict[str, list[AuditRow]], numbers: dict[str, int]) -> str:
    parts = [
        pictures.section(rows, numbers, _optimal(rows), f"d{place}")
        for place, rows in enumerate(datasets.values(), start=1)
    ]
    return _PICTURES + "\n".join(parts)


def _script_hash(layout: str) -> str:
    """What lets the page's own script run and no other."""
    script = _SCRIPT.search(layout)
    assert script is not None, "audit.html has one script"
    return base64.b64encode(hashlib.sha256(script[1].encode()).digest()).decode("ascii")


def _audited(records: Sequence[Record]) -> list[str]:
    """The facts of the audit: a line for each, as they stand in the records."""

    def found(name: str) -> str:
        values = {str(record.parameters[name]) for record in records if name in record.parameters}
        return ", ".join(sorted(values, key=natural))

    victims: dict[str, set[str]] = {}
    for record in records:
        victims.setdefault(record.dataset, set()).add(str(record.parameters["victim"]))
    facts = [
        (f"Photographs of {dataset}", f"{len(names)}: {', '.join(sorted(names, key=natural))}")
        for dataset, names in sorted(victims.items())
    ]
    facts += [
        ("Features", f"{found('kind')}, at most {found('max_features')} a photograph"),
        ("Features attacked one by one", f"{found('sample')} a photograph"),
        ("Schemes", str(len({record.scheme for record in records}))),
        ("Seeds", ", ".join(map(str, sorted({record.seed for record in records})))),
        ("Made with", ", ".join(sorted({f"{name} {v}" for record in records for name, v in record.versions.items()}))),
    ]
    return [f"<div><dt>{html.escape(name)}</dt><dd>{html.escape(told)}</dd></div>" for name, told in facts if told]


def _frontier(dataset: str, rows: Sequence[AuditRow], numbers: dict[str, int], name: str) -> str:
    panels = "\n".join(
        f"<figure><figcaption><b>{title}</b></figcaption>\n"
        f"{frontier_svg(rows, sides, numbers, f'{name}-{sides}')}</figure>"
        for sides, title in PANELS.items()
    )
    optimal = _optimal(rows)
    key = "\n".join(
        f'<li><a href="#{name}-s{numbers[row.scheme]}">{marker_svg(row.defense, row.scheme in optimal)}'
        f" {numbers[row.scheme]} {html.escape(row.scheme)}</a>{'' if row.best else ' (not attacked yet)'}</li>"
        for row in rows
    )
    return f'<h3>{html.escape(dataset)}</h3>\n<div class="two">\n{panels}\n</div>\n<ul class="key">\n{key}\n</ul>'


def _optimal(rows: Sequence[AuditRow]) -> set[str]:
    """Schemes on the frontier of either panel."""
    return {point.row.scheme for sides in PANELS for point in frontier_points(rows, sides) if point.optimal}


def _cards(dataset: str, rows: Sequence[AuditRow], numbers: dict[str, int], examples: Examples, name: str) -> str:
    optimal = _optimal(rows)
    cards = "\n".join(
        scheme_card(
            row,
            numbers[row.scheme],
            row.scheme in optimal,
            examples.get((dataset, row.scheme, row.best.attack), []) if row.best else [],
            f"{name}-s{numbers[row.scheme]}",
        )
        for row in rows
    )
    return f'<h3>{html.escape(dataset)}</h3>\n<div class="cards">\n{cards}\n</div>'


def _tables(dataset: str, rows: Sequence[AuditRow]) -> str:
    skipped = [(row.scheme, trial) for row in rows for trial in row.skipped]
    items = "\n".join(
        f"<li><b>{html.escape(scheme)}</b>, {html.escape(trial.attack)} ({trial.victims} photographs):"
        f" {html.escape(trial.reason)}</li>"
        for scheme, trial in skipped
    )
    parts = [
        f"<h3>{html.escape(dataset)}</h3>",
        utility_table(rows, f"Matches on {dataset}"),
        attack_table(rows, f"Attacks on {dataset}"),
    ]
    if any(row.missing for row in rows):
        parts.append("<p>*: results are missing, the audit was not finished.</p>")
    if skipped:
        parts.append(
            f"<details><summary>{len(skipped)} trials that were skipped</summary><ul>\n{items}\n</ul></details>"
        )
    return "\n".join(parts)
