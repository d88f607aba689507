"""Tables in docs/results are those of the records beside them."""

import gzip
from pathlib import Path

import pytest

from featveil.core.records import read_records
from featveil.reports.concealers import concealer_markdown

RESULTS = Path(__file__).parents[2] / "docs" / "results"


@pytest.mark.parametrize("name", ["concealers", "concealers-hardtfeat", "concealers-hardtfeat-collapsed"])
def test_of_concealers(name: str, tmp_path: Path) -> None:
    records = tmp_path / "records.jsonl"
    records.write_bytes(gzip.decompress((RESULTS / name / "records.jsonl.gz").read_bytes()))
    stored = (RESULTS / name / "table.md").read_text(encoding="utf-8")
    assert stored == concealer_markdown(read_records(records))
