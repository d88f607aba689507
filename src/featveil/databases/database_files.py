"""Database <-> one safetensors file: tensors `values` and `labels`, and one JSON text of metadata.

The metadata is a single key, so that equal databases give equal files (safetensors does not order its keys).
"""

import json
from pathlib import Path
from typing import Any

import safetensors
import safetensors.numpy
from numpy.typing import NDArray

from featveil.core.errors import FormatError, InputError
from featveil.core.files import replacing
from featveil.databases.concealed import ConcealedDatabase
from featveil.databases.entries import Database

_VERSION = 1
_KEY = "featveil.database"
_LARGEST_HEADER = 2**20
_DTYPES = {"values": ("U8", "F32"), "labels": ("I64",)}


def save_database(database: Database, path: str | Path) -> None:
    """Write `database` to `path` (.safetensors), all of it or nothing.

    Raises InputError when the folder is missing or the disk is full, and for a concealed one: it is made of its source.
    """
    if isinstance(database, ConcealedDatabase):
        raise InputError("a concealed database is made anew from its source and network: save these")
    tensors: dict[str, NDArray[Any]] = {"values": database.values}
    if database.labels is not None:
        tensors["labels"] = database.labels
    about = {
        "version": _VERSION,
        "kind": database.kind,
        "parts": database.parts,
        "digest": database.digest,
        "card": database.card,
    }
    text = json.dumps(about, sort_keys=True)
    if len(text) > _LARGEST_HEADER // 2:
        raise InputError(f"the database card has {len(text)} characters, at most {_LARGEST_HEADER // 2} fit")
    content = safetensors.numpy.save(tensors, metadata={_KEY: text})
    with replacing(path) as temporary:
        temporary.write_bytes(content)


def load_database(path: str | Path, digest: str | None = None) -> Database:
    """Read and verify a database.

    Raises FormatError when the file is damaged, altered or of another kind, and InputError when it is missing
    or its digest is not the expected `digest`.
    """
    path = Path(path)
    _check_header(path)
    try:
        with safetensors.safe_open(path, framework="numpy") as content:
            _check_tensors(content, path)
            about = _metadata(content.metadata(), path)
            tensors = {name: content.get_tensor(name) for name in content.keys()}  # noqa: SIM118
    except (safetensors.SafetensorError, OSError) as error:
        raise FormatError(f"{path} is not a readable database file: build or download it again") from error
    try:
        database = Database(tensors["values"], about["kind"], about["parts"], tensors.get("labels"), about["card"])
    except InputError as error:
        raise FormatError(f"{path} is damaged: {error}") from error
    if database.digest != about["digest"]:
        raise FormatError(f"{path} is damaged or was altered: its content does not have the digest it states")
    if digest is not None and database.digest != digest.lower():
        raise InputError(f"database {path} has digest {database.digest}, expected {digest}")
    return database


def _check_header(path: Path) -> None:
    if not path.is_file():
        raise InputError(f"there is no database file {path}")
    try:
        with path.open("rb") as file:
            header = int.from_bytes(file.read(8), "little")
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from error
    if not 0 < header <= min(_LARGEST_HEADER, path.stat().st_size - 8):
        raise FormatError(f"{path} is not a database file: expected safetensors with a header under 1 MiB")


def _check_tensors(content: Any, path: Path) -> None:
    names = set(content.keys())
    if "values" not in names or not names <= set(_DTYPES):
        raise FormatError(f"{path} is not a featveil database: expected tensors 'values' and maybe 'labels'")
    for name in names:
        kind = content.get_slice(name).get_dtype()
        if kind not in _DTYPES[name]:
            raise FormatError(f"{path}: tensor '{name}' must be {' or '.join(_DTYPES[name])}, got {kind}")


def _metadata(metadata: dict[str, str] | None, path: Path) -> dict[str, Any]:
    """The checked metadata: version, kind, parts, digest, card."""
    try:
        about = json.loads((metadata or {})[_KEY])
    except (KeyError, ValueError, RecursionError) as error:
        raise FormatError(f"{path} is not a featveil database: it has no readable description") from error
    version = about.get("version") if isinstance(about, dict) else None
    if version != _VERSION:
        raise FormatError(f"{path} has database format {version!r:.20}, this featveil reads {_VERSION}")
    wanted = {"kind": str, "parts": int, "digest": str, "card": dict}
    for name, kind in wanted.items():
        if type(about.get(name)) is not kind:
            raise FormatError(f"{path} is damaged: its {name} is missing or not of type {kind.__name__}")
    return dict(about)
