"""Shared by all tests: where real data is."""

import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def real_data() -> Path:
    """The folder of real images; the test is skipped, visibly, where it is absent."""
    default = Path(__file__).parents[2] / "shared" / "data"
    folder = Path(os.environ.get("FEATVEIL_DATA", default))
    if not folder.is_dir():
        pytest.skip("no real images: set FEATVEIL_DATA")
    return folder
