"""Records of word sets -> rows of means over image pairs, and the tables in Markdown: one for each codebook.

An epsilon of one descriptor is never shown without the one that it adds up to over an image.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from featveil.core import InputError
from featveil.core.records import Record

_MEASURED = ("candidates", "right candidates", "inliers", "right inliers", "corner error", "correct")
_NAMED = ("mechanism", "epsilon", "rule", "sent", "features")
_Group = tuple[str, str, str]


@dataclass(frozen=True)
class WordsRow:
    """One scheme and matching rule over all its image pairs; numbers are means a pair.

    `epsilon` is that of a descriptor, `image_epsilon` that of an image with the mean number of `features`; None where
    nothing is guaranteed. `sent` is the probability that the true word is sent, `right_share` the share of right ones
    among the candidates (a pair without any counts as 0), `correct` the share of pairs whose homography is correct.
    """

    mechanism: str
    codebook: str | None
    rule: str
    epsilon: float | None
    image_epsilon: float | None
    subset_size: int | None
    sent: float
    features: float
    candidates: float
    right_share: float
    inliers: float
    right_inliers: float
    correct: float
    pairs: int


def summarize_words(records: Sequence[Record]) -> list[WordsRow]:
    """One row for each scheme, codebook and rule, in the order of the records, rule `nearest` last in its codebook.

    Raises InputError when a record is not one of word sets.
    """
    groups: dict[_Group, list[Record]] = {}
    for record in records:
        _check(record)
        found = record.parameters
        group = record.scheme, str(found.get("codebook")), str(found["rule"])
        groups.setdefault(group, []).append(record)
    rows = [_row(members) for members in groups.values()]
    books = [None, *dict.fromkeys(row.codebook for row in rows if row.codebook is not None)]
    return sorted(
        rows, key=lambda row: (books.index(row.codebook), row.mechanism == "subset" and row.rule == "nearest")
    )


def words_tables(rows: Sequence[WordsRow]) -> dict[str, list[WordsRow]]:
    """The rows of each codebook, by its name, under those without a codebook: both end points are in every table."""
    free = [row for row in rows if row.codebook is None]
    names = dict.fromkeys(row.codebook for row in rows if row.codebook is not None)
    return {name: [*free, *(row for row in rows if row.codebook == name)] for name in names} or {"": free}


def words_cells(rows: Sequence[WordsRow]) -> tuple[list[str], list[tuple[str, ...]]]:
    """Headings, and the cells of each row as text."""
    headings = ["sent", "rule", "epsilon", "epsilon an image", "k", "P(true sent)", "candidates", "right %"]
    headings += ["inliers", "right inliers", "correct %", "pairs"]
    return headings, [_cells(row) for row in rows]


def words_markdown(records: Sequence[Record]) -> str:
    """All tables, with what their columns mean."""
    if not records:
        raise InputError("there is no record to make a table of")
    rows, one = summarize_words(records), records[0]
    found = one.parameters
    features = next((row.features for row in rows), 0.0)
    parts = [
        f"# Word sets on {one.dataset}\n",
        f"Image 1 of each scene is raw, the other is private ({found.get('kind')}, at most {found.get('max_features')}"
        f" features an image, {features:.0f} on average; seed {one.seed}). The homography between them is found with"
        f" at most {found.get('iterations'):,} iterations at {found.get('pixels'):g} px. Numbers are means a pair.\n",
        "- epsilon: of one descriptor; epsilon an image: what it adds up to over the private features of an image."
        " Sums of thousands bound nothing that matters about a whole image.\n"
        "- P(true sent): probability that the true word (raw, naive: the true descriptor) is among what is sent.\n"
        "- candidates: matches that go into the verification; right %: share of them within 5 px of the truth.\n"
        "- inliers: private features that agree with the homography; right inliers: those within 5 px of the truth.\n"
        "- correct %: pairs whose homography puts the corners of image 1 within 5 px of the truth on average.\n",
    ]
    for name, chosen in words_tables(rows).items():
        parts.append(f"## {_heading(name, records)}\n\n{_markdown(chosen)}")
    return "\n".join(parts)


def _heading(name: str, records: Sequence[Record]) -> str:
    digest = next((r.parameters["codebook"] for r in records if r.parameters.get("codebook_name") == name), None)
    return f"Codebook {name}, digest {digest}" if digest else "Without a codebook"


def _markdown(rows: Sequence[WordsRow]) -> str:
    headings, cells = words_cells(rows)
    rule = ["---" if heading in ("sent", "rule") else "---:" for heading in headings]
    return "".join(f"| {' | '.join(line)} |\n" for line in (headings, rule, *cells))


def _cells(row: WordsRow) -> tuple[str, ...]:
    return (
        row.mechanism,
        row.rule,
        "inf" if row.epsilon is None else f"{row.epsilon:g}",
        "inf" if row.image_epsilon is None else f"{row.image_epsilon:,.0f}",
        "" if row.subset_size is None else str(row.subset_size),
        f"{row.sent:.3f}" if row.sent >= 0.001 else f"{row.sent:.0e}",
        f"{row.candidates:.0f}",
        f"{100 * row.right_share:.1f}",
        f"{row.inliers:.0f}",
        f"{row.right_inliers:.0f}",
        f"{100 * row.correct:.0f}",
        str(row.pairs),
    )


def _check(record: Record) -> None:
    whole = all(name in record.parameters for name in _NAMED) and isinstance(record.value, tuple)
    if record.task != "words" or not whole or record.metric != ", ".join(_MEASURED):
        raise InputError(f"a record of task {record.task} is not one of word sets: leave it out")
    if len(record.value) != len(_MEASURED):  # type: ignore[arg-type]
        raise InputError(f"a record of word sets has {len(_MEASURED)} values: this file is damaged")


def _row(records: Sequence[Record]) -> WordsRow:
    found = records[0].parameters
    values = [dict(zip(_MEASURED, r.value, strict=True)) for r in records if isinstance(r.value, tuple)]
    mean = {name: fmean(value[name] for value in values) for name in _MEASURED}
    shares = [value["right candidates"] / max(value["candidates"], 1) for value in values]
    features = fmean(_private_features(record) for record in records)
    epsilon, k, name = found["epsilon"], found.get("subset_size"), found.get("codebook_name")
    return WordsRow(
        mechanism=str(found["mechanism"]),
        codebook=None if name is None else str(name),
        rule=str(found["rule"]),
        epsilon=None if epsilon is None else float(str(epsilon)),
        image_epsilon=None if epsilon is None else float(str(epsilon)) * features,
        subset_size=None if k is None else int(str(k)),
        sent=float(str(found["sent"])),
        features=features,
        candidates=mean["candidates"],
        right_share=fmean(shares),
        inliers=mean["inliers"],
        right_inliers=mean["right inliers"],
        correct=mean["correct"],
        pairs=len(records),
    )


def _private_features(record: Record) -> float:
    counts = record.parameters["features"]
    if not isinstance(counts, list) or len(counts) != 2:
        raise InputError("a record of word sets has two numbers of features: this file is damaged")
    return float(counts[1])
