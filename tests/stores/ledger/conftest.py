from pathlib import Path

import pytest

from featveil.stores.ledger import Ledger


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    made = Ledger(tmp_path / "ledger.sqlite", wait=0.1)
    made.set_budget("ann", 30)
    return made
