"""Records on disk: whole lines, torn lines, damaged lines."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from featveil.core import FormatError, InputError
from featveil.core.records import Record, append_records, read_records

RECORD = Record("matching", "scenes", "raw", "accuracy", 0.5, "share", 7, 0, {"featveil": "0"})


def test_records_come_back_as_they_were(tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    rich = replace(RECORD, value=(0.25, 1.0), attack="nearest", parameters={"m": 4, "sizes": [1, 2], "name": "Ä\n"})
    append_records(path, [RECORD])
    append_records(path, [rich, RECORD])
    append_records(path, [])
    assert read_records(path) == [RECORD, rich, RECORD]
    assert path.read_bytes().count(b"\n") == 3


@pytest.mark.parametrize("cut", [1, 2, 40])
def test_a_torn_last_line_is_dropped_on_read_and_replaced_on_append(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "records.jsonl"
    other = replace(RECORD, scheme="random")
    append_records(path, [RECORD, other])
    path.write_bytes(path.read_bytes()[:-cut])
    assert read_records(path) == [RECORD]
    append_records(path, [other])
    assert read_records(path) == [RECORD, other]


def test_a_file_that_is_one_torn_line_holds_nothing(tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    path.write_bytes(b'{"task": "mat')
    assert read_records(path) == []
    append_records(path, [RECORD])
    assert read_records(path) == [RECORD]


@pytest.mark.parametrize(
    "line",
    [
        b"{}",
        b"",
        b"[1]",
        b"\xff\xfe",
        b'{"task": "mat',
        b'{"task":"t","dataset":"d","scheme":"s","metric":"m","value":NaN,"unit":"u","count":1,"seed":0}',
        b'{"task":"t","dataset":"d","scheme":"s","metric":"m","value":1,"unit":"u","count":1.5,"seed":0}',
        b'{"task":3,"dataset":"d","scheme":"s","metric":"m","value":1,"unit":"u","count":1,"seed":0}',
        b'{"task":"t","dataset":"d","scheme":"s","metric":"m","value":1,"unit":"u","count":1,"seed":0,"new":1}',
        b"[" * 100_000,
    ],
)
def test_a_damaged_line_elsewhere_is_an_error_that_names_it(tmp_path: Path, line: bytes) -> None:
    path = tmp_path / "records.jsonl"
    append_records(path, [RECORD])
    path.write_bytes(path.read_bytes() + line + b"\n" + path.read_bytes())
    with pytest.raises(FormatError, match="line 2 of"):
        read_records(path)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), (1.0, float("nan")), "1", None, True])
def test_values_are_finite_numbers(value: Any) -> None:
    with pytest.raises(InputError, match="finite"):
        replace(RECORD, value=value)


def test_parameters_that_are_no_json_leave_the_file_alone(tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    append_records(path, [RECORD])
    with pytest.raises(InputError, match="parameters"):
        append_records(path, [RECORD, replace(RECORD, parameters={"x": float("nan")})])
    assert read_records(path) == [RECORD]


def test_a_failed_write_leaves_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "records.jsonl"
    append_records(path, [RECORD])

    def full_disk(handle: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("featveil.core.records.os.fsync", full_disk)
        with pytest.raises(InputError, match="No space left"):
            append_records(path, [RECORD])
    assert path.read_bytes().count(b"\n") == 1
    assert read_records(path) == [RECORD]


def test_paths_that_cannot_be_used(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot read"):
        read_records(tmp_path / "none.jsonl")
    with pytest.raises(InputError, match="cannot write"):
        append_records(tmp_path / "none" / "records.jsonl", [RECORD])
    with pytest.raises(InputError, match="cannot write"):
        append_records(tmp_path, [RECORD])
