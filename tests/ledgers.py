"""What the tests of the ledger share."""

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from featveil.core import FeatveilError, Guarantee, Points, PrivateFeatures
from featveil.stores.ledger import Ledger

PREAMBLE = """
import os, sys
import numpy as np
from featveil.core import Guarantee, Points, PrivacyError, PrivateFeatures
from featveil.stores.ledger import Ledger
ledger = Ledger(sys.argv[1], wait=60)
private = PrivateFeatures(Points(np.ones((1, 4))), "sift", {"name": "subset"}, Guarantee("local-dp", 1.0))
"""


def release(n: int = 1, guarantee: Guarantee | None = None) -> PrivateFeatures:
    descriptors = Points(np.ones((n, 4), np.float32))
    return PrivateFeatures(descriptors, "sift", {"name": "subset"}, guarantee or Guarantee("local-dp", 10.0))


@contextmanager
def refused(ledger: Ledger, error: type[FeatveilError], text: str) -> Iterator[None]:
    """The block fails with `error`, says that nothing was released and changes no file."""
    folder = ledger.path.parent

    def files() -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}

    before = files()
    with pytest.raises(error, match=re.escape(text)) as caught:
        yield
    assert "nothing was released" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert files() == before


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def process(code: str, ledger: Ledger) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-c", PREAMBLE + code, str(ledger.path)],
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
