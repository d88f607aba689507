"""Results as records: one JSON line each, stored first, turned into tables and figures later."""

import dataclasses
import json
import math
import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from featveil.core.errors import FormatError, InputError

Value = float | tuple[float, ...]
Parameter = str | int | float | bool | list[int] | list[float] | list[str] | None

_TEXTS = ("task", "dataset", "scheme", "metric", "unit")


@dataclass(frozen=True)
class Record:
    """One measured `value` (or several, for example one a threshold) and all that is needed to repeat it.

    `count` is how many things were counted for it (matches, pairs, images); `parameters` are settings of the
    task; `versions` the software; `attack` is named where something was attacked.
    """

    task: str
    dataset: str
    scheme: str
    metric: str
    value: Value
    unit: str
    count: int
    seed: int
    versions: dict[str, str]
    attack: str | None = None
    parameters: dict[str, Parameter] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in _TEXTS:
            if not isinstance(getattr(self, name), str):
                raise InputError(f"{name} of a record must be text, got {type(getattr(self, name)).__name__}")
        if self.attack is not None and not isinstance(self.attack, str):
            raise InputError(f"attack of a record must be text or none, got {type(self.attack).__name__}")
        for name in ("count", "seed"):
            if type(getattr(self, name)) is not int:
                raise InputError(f"{name} of a record must be a whole number")
        for name in ("versions", "parameters"):
            if not isinstance(getattr(self, name), dict):
                raise InputError(f"{name} of a record must be a mapping")
        object.__setattr__(self, "value", _finite(self.value))


def append_records(path: str | Path, records: Iterable[Record]) -> None:
    """Add `records` to the end of a file, as whole lines that are on the disk when this returns.

    What an interrupted writer left of a last line is removed first. One writer at a time. Raises InputError
    when the file cannot be written; it then holds what it held before.
    """
    lines = "".join(_encode(record) for record in records).encode()
    try:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | getattr(os, "O_BINARY", 0), 0o666)
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror}") from error
    with os.fdopen(handle, "r+b", buffering=0) as file:
        end = _end_of_whole_lines(file)
        try:
            file.truncate(end)
            while lines:
                lines = lines[file.write(lines) :]
            os.fsync(file.fileno())
        except OSError as error:
            file.truncate(end)
            raise InputError(f"cannot write {path}: {error.strerror or error}") from error


def read_records(path: str | Path) -> list[Record]:
    """All records of a file, in order; without a last line that was cut off while it was written.

    Raises InputError when the file cannot be read, FormatError when any other line is not a record.
    """
    try:
        content = Path(path).read_bytes()
    except OSError as error:
        raise InputError(f"cannot read records {path}: {error.strerror}") from error
    whole = content[: content.rfind(b"\n") + 1]
    return [_decode(line, path, number) for number, line in enumerate(whole.splitlines(), start=1)]


def _finite(value: object) -> Value:
    values = value if isinstance(value, list | tuple) else (value,)
    for number in values:
        if isinstance(number, bool) or not isinstance(number, int | float) or not math.isfinite(number):
            raise InputError("value of a record must be a finite number, or a list of them")
    numbers = tuple(float(number) for number in values)
    return numbers if isinstance(value, list | tuple) else numbers[0]


def _encode(record: Record) -> str:
    # A shallow copy, without what is empty: a file has thousands of these lines.
    entries = {item.name: getattr(record, item.name) for item in dataclasses.fields(record)}
    kept = {name: entry for name, entry in entries.items() if entry is not None and entry != {}}
    try:
        return json.dumps(kept, allow_nan=False, separators=(",", ":")) + "\n"
    except (TypeError, ValueError) as error:
        raise InputError("parameters of a record must be finite numbers, texts or lists of them") from error


def _decode(line: bytes, path: str | Path, number: int) -> Record:
    try:
        entries: Any = json.loads(line)
        return Record(**{"versions": {}, **entries})
    except (ValueError, TypeError, RecursionError) as error:
        raise FormatError(
            f"line {number} of {path} is no record: it is damaged or of another version of featveil"
        ) from error


def _end_of_whole_lines(file: Any) -> int:
    size: int = file.seek(0, os.SEEK_END)
    if size == 0:
        return 0
    file.seek(size - 1)
    if file.read(1) == b"\n":
        return size
    file.seek(0)
    content: bytes = file.read()
    return content.rfind(b"\n") + 1
