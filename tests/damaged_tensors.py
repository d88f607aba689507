"""safetensors files taken apart, changed and put together again, without looking whether they still make sense."""

import json
import struct
from collections.abc import Callable
from typing import Any

Change = Callable[[dict[str, Any]], object]


def parts(content: bytes) -> tuple[dict[str, Any], bytes]:
    """Header and data."""
    length = int.from_bytes(content[:8], "little")
    return json.loads(content[8 : 8 + length]), content[8 + length :]


def joined(header: Any, body: bytes) -> bytes:
    """A file of that header, as it is where it is bytes already."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + body


def header_changed(change: Change, content: bytes) -> bytes:
    """The file with another header."""
    header, body = parts(content)
    change(header)
    return joined(header, body)


def metadata_changed(change: Change, content: bytes, key: str) -> bytes:
    """The file with another JSON object in its metadata entry `key`."""

    def work(header: dict[str, Any]) -> None:
        about = json.loads(header["__metadata__"][key])
        change(about)
        header["__metadata__"][key] = json.dumps(about)

    return header_changed(work, content)
