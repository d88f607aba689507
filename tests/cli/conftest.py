"""Releases of these tests are seeded."""

import pytest


@pytest.fixture(autouse=True)
def seeded(repeatable: None) -> None:
    """See `repeatable`."""
