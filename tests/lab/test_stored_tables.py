"""Tables in docs/results are those of the records beside them."""

import gzip
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from featveil.core.records import Record, read_records
from featveil.lab.concealers_report import concealer_markdown
from featveil.lab.face_attributes_report import attributes_markdown
from featveil.lab.face_logins_report import logins_markdown
from featveil.lab.face_protection_report import protection_markdown
from featveil.lab.face_verification_report import verification_markdown

RESULTS = Path(__file__).parents[2] / "docs" / "results"


@pytest.mark.parametrize(
    ("name", "markdown"),
    [
        ("concealers", concealer_markdown),
        ("concealers-hardtfeat", concealer_markdown),
        ("concealers-hardtfeat-collapsed", concealer_markdown),
        ("faces-attributes", attributes_markdown),
        ("faces-logins", logins_markdown),
        ("faces-protection", protection_markdown),
        ("faces-protection-own", protection_markdown),
        ("faces-verification", verification_markdown),
        ("faces-verification-own", verification_markdown),
    ],
)
def test_are_those_of_their_records(name: str, markdown: Callable[[Sequence[Record]], str], tmp_path: Path) -> None:
    records = tmp_path / "records.jsonl"
    records.write_bytes(gzip.decompress((RESULTS / name / "records.jsonl.gz").read_bytes()))
    stored = (RESULTS / name / "table.md").read_text(encoding="utf-8")
    assert stored == markdown(read_records(records))
