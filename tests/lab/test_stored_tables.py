"""Tables in docs/results are those of the records beside them."""

import gzip
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path

import pytest

from featveil.audit.audit_tables import audit_markdown
from featveil.core.records import Record, read_records

RESULTS = Path(__file__).parents[2] / "docs" / "results"
# The bench whose records a folder holds, where it is not called like it.
BENCHES = {
    "faces-attributes": "face_attributes",
    "faces-logins": "face_logins",
    "faces-protection": "face_protection",
    "faces-protection-own": "face_protection",
    "faces-verification": "face_verification",
    "faces-verification-own": "face_verification",
    "concealers-hardtfeat": "concealers",
    "concealers-hardtfeat-collapsed": "concealers",
}
SEVERAL_RUNS = ("attacks/sift", "localization/concealers", "words")
AUDITS = ("audit", "audit-private", "composition")
STORED = sorted(path.parent.relative_to(RESULTS).as_posix() for path in RESULTS.rglob("records.jsonl.gz"))


@pytest.mark.parametrize("name", STORED)
def test_are_those_of_their_records(name: str, tmp_path: Path) -> None:
    records = tmp_path / "records.jsonl"
    records.write_bytes(gzip.decompress((RESULTS / name / "records.jsonl.gz").read_bytes()))
    stored = (RESULTS / name / "table.md").read_text(encoding="utf-8")
    # A file is in the order in which it was measured, over several runs; a table is in that of the last command.
    ordered = sorted(read_records(records), key=lambda one: place_in(stored, one) if name in SEVERAL_RUNS else 0)
    assert stored == markdown_of(name)(ordered)


def place_in(stored: str, record: Record) -> int:
    if record.task == "words":
        return stored.find(f"## Codebook {record.parameters.get('codebook_name')}")
    attacked = f"| {record.attack} |" if record.attack else ""
    return stored.find(f"\n| {record.scheme} |{attacked[1:]}")


def markdown_of(name: str) -> Callable[[Sequence[Record]], str]:
    first = name.split("/", 1)[0]
    if first in AUDITS:
        return audit_markdown
    module = BENCHES.get(first, first)
    markdown: Callable[[Sequence[Record]], str] = import_module(f"featveil.lab.{module}").BENCH.markdown
    return markdown
