"""Records of a study of concealers -> one row a network, and tables of utility beside privacy, with theirs beside ours.

The records are those of the tasks of patches, image matching and inversion, which have the networks under one name.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from featveil.core import InputError
from featveil.core.records import Record
from featveil.lab.inversion import BENCH as INVERSION
from featveil.lab.inversion_report import (
    BLANK,
    FLOORS,
    RAW,
    READ,
    InversionRow,
    best_inversions,
)
from featveil.lab.matching import BENCH as MATCHING
from featveil.lab.matching import MatchingRow
from featveil.lab.papers import CONCEALED_SSIM as SSIM
from featveil.lab.papers import NINJADESC_SAID as SAID
from featveil.lab.papers import SOSNET
from featveil.lab.patches import BENCH as PATCHES
from featveil.lab.patches import TASKS, PatchRow, percent
from featveil.metrics import THRESHOLDS

TRAINED = {  # inverters of an architecture, as inversion names them
    "unet": ("direct", "direct (standardised)"),
    "uresnet": ("direct (uresnet)", "direct (uresnet, standardised)"),
}
_ALIKE = {"hardtfeat": "hardnet"}  # whose numbers stand beside those of a kind that the paper has not; else sift's
_AT = 3  # pixels


@dataclass(frozen=True)
class ConcealerRow:
    """One network, or the raw descriptor (lambda None), under all that was measured; None where it was not.

    `inversions` are all attempts to see the picture, `seen` the one that sees most.
    """

    scheme: str
    strength: float | None
    patches: PatchRow | None
    matching: MatchingRow | None
    inversions: tuple[InversionRow, ...]
    seen: InversionRow | None

    @property
    def name(self) -> str:
        """As tables have it."""
        return "raw" if self.strength is None else f"lambda {self.strength:g} ({self.scheme[-8:]})"

    def inverted(self, attack: str) -> InversionRow | None:
        """The row of one attempt."""
        return next((row for row in self.inversions if row.attack == attack), None)

    def fresh(self, architecture: str) -> InversionRow | None:
        """Of inverters of an architecture that were trained on these descriptors, the one that sees most.

        Of raw descriptors without one, what the usual inverter reads.
        """
        tried = [row for row in map(self.inverted, TRAINED[architecture]) if row is not None]
        usual = self.inverted(READ) if self.strength is None and architecture == "unet" else None
        return max(tried, key=lambda row: row.ssim, default=usual)


@dataclass(frozen=True)
class ConcealerResults:
    """`rows`: raw first, then by lambda. `floors` of inversion, `lifted` of matching, and `chance` of patches."""

    rows: tuple[ConcealerRow, ...]
    floors: tuple[InversionRow, ...]
    lifted: tuple[MatchingRow, ...]
    chance: PatchRow | None

    def gain(self, row: ConcealerRow) -> float | None:
        """Mean average precision beyond that of raw descriptors, over the three tasks of HPatches."""
        here, raw = (one.patches.mean_precision if one.patches else None for one in (row, self.rows[0]))
        return None if here is None or raw is None else here - raw


def summarize_concealers(records: Sequence[Record]) -> ConcealerResults:
    """Rows of everything that is known of each network; raises InputError without records of raw descriptors."""
    by_task: dict[str, list[Record]] = {}
    for record in records:
        by_task.setdefault(record.task, []).append(record)
    patches = {row.scheme: row for row in PATCHES.summarize(by_task.get("patches", []))}
    matched = MATCHING.summarize(by_task.get("matching", []))
    inverted = INVERSION.summarize(by_task.get("inversion", []))
    if "raw" not in patches and not any(row.strategy == "raw" for row in matched):
        raise InputError("there is no record of raw descriptors to compare with")
    strengths = _strengths(records)
    best = best_inversions(inverted)
    rows = []
    for scheme, strength in [("raw", None), *sorted(strengths.items(), key=lambda one: (one[1], one[0]))]:
        name = RAW if strength is None else scheme
        tried = tuple(row for row in inverted if row.scheme == name and row.attack not in FLOORS)
        match = next((row for row in matched if row.strategy == scheme), None)
        rows.append(ConcealerRow(scheme, strength, patches.get(scheme), match, tried, best.get(name)))
    floors = tuple(row for row in inverted if row.scheme == RAW and row.attack in FLOORS)
    known = {row.scheme for row in rows}
    lifted = tuple(row for row in matched if row.strategy not in known)
    return ConcealerResults(tuple(rows), floors, lifted, patches.get("chance"))


def concealer_cells(found: ConcealerResults) -> tuple[list[str], list[tuple[str, ...]]]:
    """Headings, and a line for each row: utility, then privacy. Shares in percent."""
    sets = list(dict.fromkeys(name for row in found.rows if row.patches for name in row.patches.false_positives))
    headings = ["descriptors", *(f"FPR@95 {name}" for name in sets), *TASKS, "mean mAP", "to raw", f"MMA@{_AT}"]
    headings += [f"right@{_AT}", "SSIM seen", "by"]
    lines = []
    for row in found.rows:
        patches, match, seen, gain = row.patches, row.matching, row.seen, found.gain(row)
        rates = [patches.false_positives.get(name) if patches else None for name in sets]
        precisions = [patches.mean_of(task) if patches else None for task in TASKS]
        precisions.append(patches.mean_precision if patches else None)
        cells = [row.name, *map(percent, (*rates, *precisions)), "-" if gain is None else f"{100 * gain:+.2f}"]
        cells += ["-", "-"] if match is None else [f"{100 * match.at(_AT):.1f}", f"{match.right:.0f}"]
        lines.append((*cells, *(("-", "-") if seen is None else (f"{seen.ssim:.3f}", seen.attack))))
    return headings, lines


def concealer_markdown(records: Sequence[Record]) -> str:
    """All tables: utility and privacy, inversion, theirs beside ours, and mean matching accuracy."""
    found = summarize_concealers(records)
    kind = str(records[0].parameters.get("kind"))
    headings, lines = concealer_cells(found)
    table = _table(headings, lines, 1, len(headings) - 1)
    parts = [f"# Concealers of {kind}\n", _settings(records, found), _EXPLAINED, table]
    if found.floors or any(row.inversions for row in found.rows):
        parts.append(f"## What inverters see\n\n{_SEEN}\n{_inversions(found)}")
        parts.append(f"## Beside NinjaDesc\n\n{SAID}\n{_beside(found, kind)}")
    if matched := [row for row in found.rows if row.matching]:
        parts.append(f"## Mean matching accuracy, percent\n\n{_accuracies(matched, found.lifted)}")
    return "\n".join(parts)


_EXPLAINED = """\
- FPR@95: share of non-matching pairs taken for matches when 95 % of the matching ones are; lower is better.
  verification, matching, retrieval: mean average precision of the tasks of HPatches, means over easy and hard;
  "to raw" is what the mean of the three gains on raw descriptors (their figure 8b). All in percent.
- MMA@3: share of mutual nearest neighbours within 3 pixels; right@3: how many those are for an image pair.
- SSIM seen: the most that any inverter or attack sees of test photographs ("by" which one); lower is more private.
"""
_SEEN = """\
**direct** is an inverter trained on what the network gives (its card says from what beginning), **read** one of raw
descriptors; others recover raw descriptors first. blank: a grey picture; chance: random descriptors at the true
positions; constant: the average descriptor at all of them, both painted by the inverter of raw descriptors. No
concealer hides positions, and an inverter trained on these alone would see more than that: the last two are no upper
bound of privacy.
"""


def _settings(records: Sequence[Record], found: ConcealerResults) -> str:
    """What was measured on what, in one paragraph."""
    firsts = {record.task: record for record in reversed(records)}
    told = []
    if "patches" in firsts:
        names = dict.fromkeys(record.dataset for record in records if record.task == "patches")
        told.append(
            f"Patches of {', '.join(names)}, at most {firsts['patches'].parameters.get('max_patches')} a scene."
        )
    if "matching" in firsts:
        one = firsts["matching"]
        told.append(f"Matching on {one.dataset}, at most {one.parameters.get('max_features')} features an image.")
    if "inversion" in firsts:
        one = firsts["inversion"]
        part = "" if one.parameters.get("part") == "all" else f" (the {one.parameters.get('part')} part)"
        count = max((row.photographs for row in found.floors), default=0)
        told.append(
            f"Inversion of {count} photographs of {one.dataset}{part}, at most {one.parameters.get('max_features')}"
            f" features each; of keypoints inverters see: {one.parameters.get('geometry')}."
        )
    return "\n".join([*told, f"Seed {records[0].seed}.\n"])


def _strengths(records: Sequence[Record]) -> dict[str, float]:
    """Lambda of each network that there are records of."""
    found: dict[str, float] = {}
    for record in records:
        strength = record.parameters.get("lambda")
        if isinstance(strength, int | float):
            found[record.scheme] = float(strength)
    return found


def _inversions(found: ConcealerResults) -> str:
    lines = [("floor", *_figures(row), str(row.photographs)) for row in found.floors]
    named = [(row.name, tried) for row in found.rows for tried in row.inversions]
    lines += [(name, *_figures(tried), str(tried.photographs)) for name, tried in named]
    return _table(["descriptors", "seen by", "MAE", "SSIM", "spread", "PSNR", "photographs"], lines, 2)


def _figures(row: InversionRow) -> tuple[str, ...]:
    return row.attack, f"{row.mae:.3f}", f"{row.ssim:.3f}", f"{row.spread:.3f}", f"{row.psnr:.2f}"


def _beside(found: ConcealerResults, kind: str) -> str:
    """MAE, SSIM and PSNR of both architectures, our best and theirs of SOSNet; and SSIM of their base descriptor."""
    theirs = kind if kind in SSIM else _ALIKE.get(kind, "sift")
    headings = ["descriptors", "SSIM above blank", f"their {theirs} SSIM"]
    for architecture in TRAINED:
        headings += [f"{architecture} {name}" for name in ("MAE", "SSIM", "PSNR")]
        headings += [f"their SOSNet {architecture} {name}" for name in ("MAE", "SSIM", "PSNR")]
    floor = next((row.ssim for row in found.floors if row.attack == BLANK), None)
    lines = []
    for row in found.rows:
        known = SSIM[theirs].get(row.strength)
        above = "-" if floor is None or row.seen is None else f"{row.seen.ssim - floor:+.3f}"
        cells = [row.name, above, "-" if known is None else f"{known:.3f}"]
        for architecture in TRAINED:
            ours, paper = row.fresh(architecture), SOSNET[architecture].get(row.strength)
            cells += _three(None if ours is None else (ours.mae, ours.ssim, ours.psnr)) + _three(paper)
        lines.append(tuple(cells))
    return _table(headings, lines, 1)


def _three(figures: tuple[float, float, float] | None) -> list[str]:
    return ["-"] * 3 if figures is None else [f"{figures[0]:.3f}", f"{figures[1]:.3f}", f"{figures[2]:.2f}"]


def _accuracies(rows: Sequence[ConcealerRow], lifted: Sequence[MatchingRow]) -> str:
    named = [(row.name, row.matching) for row in rows if row.matching]
    named += [(f"{row.strategy} lifting m = {row.dimension}, {row.distance}", row) for row in lifted]
    lines = [
        (name, *(f"{100 * share:.1f}" for share in row.accuracy), f"{row.matches:.0f}", str(row.pairs))
        for name, row in named
    ]
    return _table(["descriptors", *(f"{px} px" for px in THRESHOLDS), "matches", "pairs"], lines, 1)


def _table(headings: Sequence[str], lines: Sequence[Sequence[str]], words: int, last: int | None = None) -> str:
    """In Markdown; the first `words` columns, and the one at `last`, are words, the others numbers."""
    rule = ["---" if place < words or place == last else "---:" for place in range(len(headings))]
    return "".join(f"| {' | '.join(line)} |\n" for line in (headings, rule, *lines))
